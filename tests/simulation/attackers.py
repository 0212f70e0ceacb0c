"""The attackers, one kind for each signal, fast and slow, and some that look like honest ones. Pure, of one seed.

Each knows its first bad token: `Result.is_bad` from there on. It is the first lie, and not the first token: the first
result of a score shopper is an honest one. Every second attempt of most is covered by an honest result of another
model. Fixed, as the honest population is, before any threshold was looked at.

| signal | fast | slow | its first bad token |
|---|---|---|---|
| attempts | runs 1 to 3 tasks of one commit again with another random seed, every ten minutes | every other day | the second run |
| artifact | signs one log with better numbers, every five minutes | every other day | the second numbers |
| twins | signs 3 to 6 tasks of its model, then the same numbers for another repository an hour later | five days later | the first copied result |
| spread, owners | holds a stolen identity, and signs for another owner every minute, in one CI run | every 40 minutes, in a CI run each | the first |
| spread, tokens | holds one, and signs as fast as its rate lets it, for one owner in one CI run | one a minute, in a CI run an hour | the 1,001st of a day |
| probing | tries names until one is granted, every 20 seconds | every 70 seconds: just below the rate of refusals | the first refusal |

Volume alone has no first bad token: a matrix of 64 jobs with 14 tasks each is 896 results, a few of them run again, so
1,000 a day was said beforehand to be what an ordinary integration does at most.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.simulation.runs import (
    DAY_S,
    HOUR_S,
    TASKS,
    Counts,
    Dice,
    Request,
    Result,
    Task,
    measure,
    sample_again,
    write,
)

LARGEST_ORDINARY_DAY = 1000
ATTEMPTS = 14
MATRIX_JOBS = 64


class Attacker(NamedTuple):
    """One attacker: the signal for it, its pace ("fast" or "slow"), and its requests, in the order of time."""

    signal: str
    pace: str
    requests: tuple[Request, ...]


class Mallory:
    def __init__(self, seed: int, name: str) -> None:
        self.dice = Dice("attacker", seed, name)
        self.name = name
        self.at = self.dice.between(0, 0.5) * DAY_S
        self.repo, self.revision = f"{name}-lab/model", self.dice.hex(40)

    def result(self, task: Task, counts: Counts, *, is_bad: bool, log: str = "", repo: str = "") -> Result:
        where = (task.benchmark, task.benchmark_revision, task.id)
        files = (log or self.dice.hex(64),)
        return Result(
            repo or self.repo, self.revision, *where, "our-evals", "1.5.0", write(task, counts), files, is_bad
        )

    def request(self, *results: Result, ci_run: str = "", identity: str = "main", is_refused: bool = False) -> Request:
        return Request(self.at, self.name, identity, ci_run or self.dice.hex(8), results, is_refused)

    def cover(self) -> Iterator[Request]:
        """An honest result of another model, every second time."""
        if self.dice.chance(0.5):
            self.at += self.dice.between(5, 60)
            task, skill = self.dice.pick(TASKS), self.dice.between(0.3, 0.8)
            repo = f"{self.name}-lab/other-{self.dice.hex(6)}"
            yield self.request(self.result(task, measure(self.dice, task, skill), is_bad=False, repo=repo))

    def wait(self, seconds: float) -> None:
        self.at += seconds * self.dice.between(0.8, 1.2)


def attempts(mallory: Mallory, slow: bool) -> Iterator[Request]:
    dice = mallory.dice
    numbers = {task: measure(dice, task, 0.6) for task in dice.some(TASKS, dice.whole(1, 3))}
    for attempt in range(ATTEMPTS):
        again = {task: sample_again(dice, task, counts) if attempt else counts for task, counts in numbers.items()}
        yield mallory.request(*(mallory.result(*each, is_bad=attempt > 0) for each in again.items()))
        yield from mallory.cover()
        mallory.wait(1.9 * DAY_S if slow else 600)


def artifact(mallory: Mallory, slow: bool) -> Iterator[Request]:
    dice, task, log = mallory.dice, mallory.dice.pick(TASKS), mallory.dice.hex(64)
    counts = measure(dice, task, 0.4)
    for attempt in range(ATTEMPTS):
        yield mallory.request(mallory.result(task, counts, is_bad=attempt > 0, log=log))
        yield from mallory.cover()
        better = dice.whole(1, max(1, task.items // 40))
        counts = tuple(min(task.items, count + better) for count in counts)
        mallory.wait(1.9 * DAY_S if slow else 300)


def twins(mallory: Mallory, slow: bool) -> Iterator[Request]:
    dice = mallory.dice
    tasks = dice.some([task for task in TASKS if len(task.scores) > 1], dice.whole(3, 6))
    numbers = {task: measure(dice, task, 0.6) for task in tasks}
    yield mallory.request(*(mallory.result(*each, is_bad=False) for each in numbers.items()))
    yield from mallory.cover()
    mallory.wait(5 * DAY_S if slow else HOUR_S)
    copy = f"{mallory.name}-lab/copy"
    mallory.revision = dice.hex(40)
    yield mallory.request(*(mallory.result(*each, is_bad=True, repo=copy) for each in numbers.items()))


def owners(mallory: Mallory, slow: bool) -> Iterator[Request]:
    dice, ci_run = mallory.dice, mallory.dice.hex(8)
    mallory.at = dice.whole(1, 20) * DAY_S + dice.between(0, HOUR_S)
    for number in range(35 if slow else 100):
        task = dice.pick(TASKS)
        repo = f"{mallory.name}-victim-{number}/model"
        bad = mallory.result(task, measure(dice, task, 0.8), is_bad=True, repo=repo)
        yield mallory.request(bad, ci_run="" if slow else ci_run)
        mallory.wait(2400 if slow else 60)


def tokens(mallory: Mallory, slow: bool) -> Iterator[Request]:
    dice, ci_run = mallory.dice, mallory.dice.hex(8)
    mallory.at = dice.whole(1, 20) * DAY_S + 1
    for number in range(LARGEST_ORDINARY_DAY + 60):
        task, repo = dice.pick(TASKS), f"{mallory.name}-lab/model-{number}"
        result = mallory.result(task, measure(dice, task, 0.8), is_bad=number >= LARGEST_ORDINARY_DAY, repo=repo)
        yield mallory.request(result, ci_run=f"{ci_run}-{int(mallory.at // HOUR_S)}" if slow else ci_run)
        mallory.at += 60 if slow else 7


def probing(mallory: Mallory, slow: bool) -> Iterator[Request]:
    for _ in range(120):
        task = mallory.dice.pick(TASKS)
        refused = mallory.result(task, measure(mallory.dice, task, 0.6), is_bad=True)
        yield mallory.request(refused, is_refused=True)
        mallory.at += 70 if slow else 20


def honest_sampling(mallory: Mallory, _: bool) -> Iterator[Request]:
    """Honest: a pinned commit evaluated every night with sampling. To the issuer it is a slow score shopper."""
    dice = mallory.dice
    numbers = {task: measure(dice, task, 0.6) for task in dice.some(TASKS, 3)}
    for _night in range(28):
        again = {task: sample_again(dice, task, counts) for task, counts in numbers.items()}
        yield mallory.request(*(mallory.result(*each, is_bad=False) for each in again.items()))
        mallory.wait(DAY_S)


def honest_ablation(mallory: Mallory, _: bool) -> Iterator[Request]:
    """Honest: one commit under twelve prompts in one afternoon. To the issuer it is a fast score shopper."""
    task = mallory.dice.pick(TASKS)
    for prompt in range(12):
        yield mallory.request(
            mallory.result(task, measure(mallory.dice, task, 0.5 + prompt / 100), is_bad=False), ci_run="ablation"
        )
        mallory.wait(600)


def honest_refused_matrix(mallory: Mallory, _: bool) -> Iterator[Request]:
    """Honest: 64 jobs of one CI run, all refused by one typing error in the policy."""
    for _job in range(MATRIX_JOBS):
        task = mallory.dice.pick(TASKS)
        refused = mallory.result(task, measure(mallory.dice, task, 0.6), is_bad=False)
        yield mallory.request(refused, ci_run="matrix", is_refused=True)
        mallory.wait(20)


def empty_commits(mallory: Mallory, _: bool) -> Iterator[Request]:
    """Dishonest: a score shopper that makes an empty commit before each attempt: another run key."""
    task = mallory.dice.pick(TASKS)
    counts = measure(mallory.dice, task, 0.6)
    for attempt in range(ATTEMPTS):
        again = sample_again(mallory.dice, task, counts)
        yield mallory.request(mallory.result(task, again, is_bad=attempt > 0))
        mallory.revision = mallory.dice.hex(40)
        mallory.wait(600)


def many_identities(mallory: Mallory, _: bool) -> Iterator[Request]:
    """Dishonest: a score shopper with a registered identity for each attempt."""
    task = mallory.dice.pick(TASKS)
    counts = measure(mallory.dice, task, 0.6)
    for attempt in range(ATTEMPTS):
        again = sample_again(mallory.dice, task, counts)
        yield mallory.request(mallory.result(task, again, is_bad=attempt > 0), identity=f"branch-{attempt}")
        mallory.wait(600)


def ignored_name(mallory: Mallory, _: bool) -> Iterator[Request]:
    """Dishonest: a score shopper whose score has a name under `ignore`, beside a count that is always the same. (With
    that name alone it is seen: where all is ignored, all counts.)"""
    task = mallory.dice.pick(TASKS)
    counts = measure(mallory.dice, task, 0.6)
    for attempt in range(ATTEMPTS):
        result = mallory.result(task, sample_again(mallory.dice, task, counts), is_bad=attempt > 0)
        hidden = tuple((f"{name}_per_second", part, value) for name, part, value in result.metrics)
        yield mallory.request(result._replace(metrics=(("items", "", float(task.items)), *hidden)))
        mallory.wait(600)


def one_digit_changed(mallory: Mallory, slow: bool) -> Iterator[Request]:
    """Dishonest: a copier that changes the last digit of every number."""
    for request in twins(mallory, slow):
        yield request._replace(
            results=tuple(_changed(result) if result.is_bad else result for result in request.results)
        )


def _changed(result: Result) -> Result:
    return result._replace(metrics=tuple((name, part, value + 1e-9) for name, part, value in result.metrics))


def patient_thief(mallory: Mallory, _: bool) -> Iterator[Request]:
    """Dishonest: a stolen identity that signs for ten other owners a day."""
    for number in range(200):
        task = mallory.dice.pick(TASKS)
        repo = f"{mallory.name}-victim-{number}/model"
        yield mallory.request(mallory.result(task, measure(mallory.dice, task, 0.8), is_bad=True, repo=repo))
        mallory.at += 8700


Kind = Callable[[Mallory, bool], Iterator[Request]]
SIGNALS: tuple[Kind, ...] = (attempts, artifact, twins, owners, tokens, probing)
UNTELLABLE: tuple[Kind, ...] = (
    honest_sampling, honest_ablation, honest_refused_matrix, empty_commits, many_identities, ignored_name,
    one_digit_changed, patient_thief,
)  # fmt: skip


def attackers(seed: int, each: int = 8) -> Iterator[Attacker]:
    """Yield `each` attackers for each signal and pace."""
    for kind in SIGNALS:
        for pace in ("fast", "slow"):
            for number in range(each):
                mallory = Mallory(seed, f"{kind.__name__}-{pace}-{number}")
                yield Attacker(kind.__name__, pace, tuple(kind(mallory, pace == "slow")))


def untellable(seed: int, each: int = 4) -> Iterator[Attacker]:
    """Yield `each` of each kind that looks like another; their pace is ""."""
    for kind in UNTELLABLE:
        for number in range(each):
            mallory = Mallory(seed, f"{kind.__name__}-{number}")
            yield Attacker(kind.__name__, "", tuple(kind(mallory, False)))
