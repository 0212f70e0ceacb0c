"""The memory that workers count in, and recent answers: counts stay, are read whole, and are bounded."""

import os
import signal
from collections import Counter as Tally

import pytest

from issuer.codes import Code
from issuer.service.metrics.bounds import METRIC_SPARE_BYTES, METRIC_SPARE_NUMBERS
from issuer.service.metrics.counts import (
    ELSEWHERE,
    NOBODY,
    OTHER,
    REQUESTS,
    TOKEN_ENDPOINTS,
    Board,
    Counter,
    Counters,
    Row,
)
from issuer.service.metrics.history import HOURS, MINUTES, Answers, CountedAnswer, History, answers_of
from issuer.service.metrics.state import BoardReader

BEGIN = 1_790_000_000 // 3600 * 3600


def test_what_several_workers_count_is_added_up() -> None:
    board = Board(3)
    for number, row in enumerate(board.rows):
        Counter(row, "a", "x").add(number + 1)
        Counter(row, "b").add(10)
    assert board.counted() == {("a", "x"): [6], ("b",): [30]}


def test_a_worker_that_dies_loses_nothing_and_the_next_one_in_its_place_goes_on() -> None:
    board = Board(2)
    for count in (3, 4):
        pid = os.fork()
        if pid == 0:
            row = Row(board.rows[1].memory)
            Counter(row, "issuer_x", str(count)).add(count)
            Counter(row, "issuer_x", "both").add(count)
            row.write_state(b"well")
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        assert board.states() == []  # it had said so, and is gone
    assert board.counted() == {("issuer_x", "3"): [3], ("issuer_x", "4"): [4], ("issuer_x", "both"): [7]}


def test_a_half_written_state_of_a_worker_is_not_told_nor_one_that_is_too_long() -> None:
    board = Board(1)
    (row,) = board.rows
    row.write_state(b"one")
    row.write_state(b"two and more")
    assert board.states() == [b"two and more"]
    row.head[1] += 1  # as SIGKILL leaves it in the middle
    assert board.states() == []
    row.write_state(b"three")
    row.write_state(bytes(1_000_000))
    assert board.states() == [b"three"]


@pytest.mark.parametrize("length", [8, pytest.param(64, marks=pytest.mark.long)])
def test_a_row_is_bounded_and_no_request_of_many_integrations_is_lost(length: int) -> None:
    board = Board(1)
    counts = Counters(board.rows[0])
    for number in range(20_000):
        counts.answered("/tokens", "issued", integration=f"{number:0{length}}")
    found = {key: numbers for key, (*numbers,) in board.counted().items() if key[0] == REQUESTS}
    assert sum(number for (number,) in found.values()) == 20_000
    assert 5_000 < len(found) < 16_384
    assert found[REQUESTS, "/tokens", "issued", "ok", OTHER][0] > 4_000
    # There is still room for everything that has no integration.
    for code in Code:
        for endpoint in (*TOKEN_ENDPOINTS, "/verify", ELSEWHERE):
            counts.answered(endpoint, "no", code)
    assert board.counted()[REQUESTS, ELSEWHERE, "no", str(list(Code)[-1]), NOBODY] == [1]
    keys = (len(TOKEN_ENDPOINTS) + 2) * len(Code) * 2
    longest = (REQUESTS, "/tokens/explain", "undecided", max(Code, key=len), OTHER)
    assert keys <= METRIC_SPARE_NUMBERS
    assert keys * (sum(map(len, longest)) + 16) < METRIC_SPARE_BYTES


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
    def minutes(self) -> list[Tally[str]]:
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
    none = Tally[str]()
    assert kept.minutes == [*[none] * (MINUTES - 4), {"issued": 1}, {"issued": 2, "no": 1}, none, {"undecided": 1}]
    *before, hour = kept.hours
    assert before == [Answers()] * (HOURS - 1)
    assert hour == {CountedAnswer("issued", "ok", "a"): 3, CountedAnswer("no", "policy.model", "b"): 1,
                    CountedAnswer("undecided", "internal", "-"): 1}  # fmt: skip


def test_what_is_only_asked_and_what_was_before_is_left_out_and_nothing_else() -> None:
    kept = Kept()
    kept.counts[0].answered("/tokens/explain", "explained", integration="a")
    kept.counts[0].answered("/verify", "answered")
    assert not any(kept.minutes)
    assert not any(kept.hours)
    assert kept.board.counted()[REQUESTS, "/tokens", "issued", "ok", "before"] == [1000]
    kept.counts[0].answered("/tokens", "issued")
    kept.now += 200  # these minutes were not looked at
    kept.counts[0].answered("/tokens", "issued")
    kept.history.turn()
    assert sum(kept.minutes, Tally()) == {"issued": 2}


def test_an_hour_and_a_day_are_all_that_is_kept() -> None:
    kept = Kept()
    for number in range(30):
        kept.counts[0].answered("/tokens", "issued", integration=f"{number}")
        kept.wait(3600, every_s=20)
    kept.counts[0].answered("/tokens", "issued", integration="now")
    assert sum(kept.minutes, Tally()) == {"issued": 1}
    assert [[answer.integration for answer in hour] for hour in kept.hours] == [
        *[[f"{number}"] for number in range(7, 30)], ["now"],
    ]  # fmt: skip
