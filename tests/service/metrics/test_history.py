"""Recent answers: each one in the minute and in the hour in which it was given, and bounded."""

from collections import Counter

from issuer.service.metrics.counts import REQUESTS, Board, Counters
from issuer.service.metrics.history import HOURS, MINUTES, Answers, CountedAnswer, History, answers_of
from issuer.service.metrics.state import BoardReader

BEGIN = 1_790_000_000 // 3600 * 3600


class Kept:
    """A board that is written to, and its history at a time of the test's."""

    def __init__(self) -> None:
        self.board = Board(2)
        self.counts = [Counters(row) for row in self.board.rows]
        self.now = float(BEGIN)
        self.counts[0].answered("/tokens", "issued", integration="before", count=1000)
        self.history = History(BoardReader(self.board), lambda: self.now)

    def wait(self, seconds: int, every_s: int = 1) -> None:
        for _ in range(0, seconds, every_s):
            self.now += every_s
            self.history.turn()

    @property
    def answers(self) -> Answers:
        return answers_of(self.board.counted())

    @property
    def minutes(self) -> list[Counter[str]]:
        return self.history.by_minute(self.answers)

    @property
    def hours(self) -> list[Answers]:
        return self.history.by_hour(self.answers)


def test_an_answer_is_in_the_minute_in_which_it_was_given_by_whichever_worker() -> None:
    kept = Kept()
    kept.counts[0].answered("/tokens", "issued", integration="a")
    kept.wait(60)
    kept.counts[1].answered("/tokens/batch", "repeat", integration="a", count=2)
    kept.counts[1].answered("/tokens", "no", "policy.model", "b")
    kept.wait(125)
    kept.counts[0].answered("/tokens", "undecided", "internal")
    none = Counter[str]()
    assert kept.minutes == [*[none] * (MINUTES - 4), {"issued": 1}, {"issued": 2, "no": 1}, none, {"undecided": 1}]
    *before, hour = kept.hours
    assert before == [Answers()] * (HOURS - 1)
    assert hour == {CountedAnswer("issued", "ok", "a"): 3, CountedAnswer("no", "policy.model", "b"): 1,
                    CountedAnswer("undecided", "internal", "-"): 1}  # fmt: skip


def test_what_is_only_asked_and_what_was_before_is_left_out() -> None:
    kept = Kept()
    kept.counts[0].answered("/tokens/explain", "explained", integration="a")
    kept.counts[0].answered("/verify", "answered")
    assert not any(kept.minutes)
    assert not any(kept.hours)
    assert kept.board.counted()[REQUESTS, "/tokens", "issued", "ok", "before"] == [1000]


def test_an_hour_and_a_day_are_all_that_is_kept() -> None:
    kept = Kept()
    for number in range(30):
        kept.counts[0].answered("/tokens", "issued", integration=f"{number}")
        kept.wait(3600, every_s=20)
    kept.counts[0].answered("/tokens", "issued", integration="now")
    assert sum(kept.minutes, Counter()) == {"issued": 1}
    assert [[answer.integration for answer in hour] for hour in kept.hours] == [
        *[[f"{number}"] for number in range(7, 30)], ["now"],
    ]  # fmt: skip


def test_a_minute_that_nobody_looked_at_shows_nothing_and_loses_nothing() -> None:
    kept = Kept()
    kept.counts[0].answered("/tokens", "issued")
    kept.now += 200
    kept.counts[0].answered("/tokens", "issued")
    kept.history.turn()
    assert sum(kept.minutes, Counter()) == {"issued": 2}
