"""The steps of several callers, in a fair order, on a real event loop."""

import asyncio
from collections.abc import Callable, Generator

import pytest

from issuer.issuance.steps import Payer, finish, one_by_one
from issuer.service.process.bounds import TURN_S
from issuer.service.process.fair_queue import FairQueue

ONE, OTHER = Payer("i", "one"), Payer("i", "other")


class Work:
    """A queue whose clock counts only the seconds of its steps, and the names of the steps that it has run."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.seen: list[str] = []
        self.queue = FairQueue(clock=lambda: self.now_s)

    def steps(self, name: str, count: int, step_s: float = 0.0) -> Generator[None, None, str]:
        for _ in range(count):
            self.now_s += step_s
            self.seen.append(name)
            yield
        return name


@pytest.fixture
def work() -> Work:
    return Work()


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 (other tasks work in each turn)
        await asyncio.sleep(0)


async def test_work_returns_what_its_steps_return_and_raises_what_they_raise(work: Work) -> None:
    turns = work.queue
    assert await turns.take(ONE, work.steps("done", 3)) == "done"
    assert await turns.take(ONE, work.steps("at once", 0)) == "at once"

    def failing() -> Generator[None, None, None]:
        yield
        raise LookupError("no")

    with pytest.raises(LookupError):
        await turns.take(ONE, failing())
    assert await turns.take(ONE, work.steps("still", 1)) == "still"


async def test_the_work_of_one_caller_delays_another_by_two_steps(work: Work) -> None:
    turns, seen = work.queue, work.seen
    step_s = 2 * TURN_S
    much = [asyncio.create_task(turns.take(ONE, work.steps("much", 5, step_s))) for _ in range(8)]
    await until(lambda: seen.count("much") >= 2)
    for _ in range(3):
        before = seen.count("much")
        await turns.take(OTHER, work.steps("little", 1))
        assert seen.count("much") <= before + 2
    await asyncio.gather(*much)
    assert seen.count("much") == 40


async def test_little_work_is_done_at_once_and_more_of_a_busy_caller_waits(work: Work) -> None:
    turns, seen = work.queue, work.seen
    much = asyncio.create_task(turns.take(ONE, work.steps("much", 20, 2 * TURN_S)))
    await until(lambda: len(seen) >= 2)
    turned = list[bool]()
    asyncio.get_running_loop().call_soon(turned.append, True)
    assert await turns.take(OTHER, work.steps("little", 3)) == "little"
    assert not turned, "the event loop had no turn in between"
    before = len(seen)
    assert await turns.take(ONE, work.steps("more", 3)) == "more"
    assert seen[before:].count("much") == 18, "after the earlier work of the same caller"
    await much


async def test_an_idle_caller_gains_no_credit_and_one_that_comes_back_starves_no_other(work: Work) -> None:
    """It begins where the others are. Otherwise its claim could grow, and then hold up all others."""
    turns, seen = work.queue, work.seen
    first = asyncio.create_task(turns.take(ONE, work.steps("first", 40, TURN_S)))
    await until(lambda: len(seen) >= 10)
    second = asyncio.create_task(turns.take(OTHER, work.steps("second", 40, TURN_S)))
    await until(lambda: seen.count("second") >= 10)
    assert seen.count("first") >= 15, "they take turns"
    await asyncio.gather(first, second)
    patient = asyncio.create_task(turns.take(ONE, work.steps("patient", 20, TURN_S)))
    while not patient.done():
        await turns.take(OTHER, work.steps("again", 1, TURN_S))
    assert seen.count("again") <= 60


async def test_the_event_loop_turns_between_steps(work: Work) -> None:
    """After each step that uses up the time of a turn."""
    task = asyncio.create_task(work.queue.take(ONE, work.steps("x", 30, TURN_S)))
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 30


async def test_cancelled_work_is_not_done(work: Work) -> None:
    turns, seen = work.queue, work.seen
    given_up = asyncio.create_task(turns.take(ONE, work.steps("given up", 1000, TURN_S)))
    await until(lambda: len(seen) >= 3)
    given_up.cancel()
    await turns.take(OTHER, work.steps("other", 1))
    count = len(seen)
    assert await turns.take(ONE, work.steps("next", 1)) == "next"
    assert len(seen) <= count + 2
    assert given_up.cancelled()


def test_each_step_makes_one_item() -> None:
    made = list[int]()
    steps = one_by_one(made.append(number) for number in range(3))  # type: ignore[func-returns-value]
    assert made == []
    next(steps)
    assert made == [0]
    assert finish(one_by_one(range(3))) == (0, 1, 2)
