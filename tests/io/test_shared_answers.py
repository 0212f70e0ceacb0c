"""One task for all callers with one question: shared, counted, kept for a while, and not ended by a cancelled caller."""

import asyncio
from functools import partial

import pytest

from issuer.codes import Code
from issuer.errors import IssuerError, Refused, Undecided
from issuer.io.shared_answers import SharedAnswers


async def echo(text: str, gate: asyncio.Event) -> str:
    await gate.wait()
    return text


def answers(kept_s: float = 0, capacity: int = 1) -> SharedAnswers[str, str]:
    return SharedAnswers(Code.SERVICE_BUSY, kept_s=kept_s, capacity=capacity)


async def test_callers_with_one_question_share_one_task_that_a_cancelled_one_does_not_end() -> None:
    shared, gate = answers(), asyncio.Event()
    shared.start("a", partial(echo, "answer", gate))
    assert (shared.under_way("a"), shared.under_way("b")) == (True, False)
    waiting = [asyncio.create_task(shared.wait("a")) for _ in range(3)]
    await asyncio.sleep(0)
    assert (shared.load(), shared.load(lambda key: key == "b")) == (3, 0)
    waiting[0].cancel()
    gate.set()
    assert await asyncio.gather(*waiting[1:]) == ["answer"] * 2
    assert waiting[0].cancelled()
    assert shared.load() == 0


async def test_whoever_is_cancelled_and_whenever_they_come_the_others_get_the_answer() -> None:
    """Some come in the turn in which a task ends, and find it replaced or forgotten after their wait."""
    shared, callers = answers(), list[asyncio.Task[str]]()

    async def ask() -> str:
        await asyncio.sleep(0)
        return "answer"

    for turn in range(100):
        callers += [asyncio.create_task(shared.find("a", ask)) for _ in range(3)]
        await asyncio.sleep(0)
        callers[3 * turn].cancel()
    found = await asyncio.gather(*callers, return_exceptions=True)
    assert {type(each) for each in found if each != "answer"} == {asyncio.CancelledError}
    assert found.count("answer") >= 200


async def test_a_question_after_the_end_of_a_task_begins_a_new_one() -> None:
    shared, gate = answers(), asyncio.Event()
    gate.set()
    first = shared.start("a", partial(echo, "first", gate))
    while not first.done():  # the loop records its end at the next turn, and a new caller may come before
        await asyncio.sleep(0)
        assert shared.load() <= 1
    assert not shared.under_way("a")
    assert await shared.find("a", partial(echo, "second", gate)) == "second"


async def test_the_load_is_the_larger_of_the_waiting_callers_and_the_tasks() -> None:
    gate, crowded, deserted = asyncio.Event(), answers(), answers()
    crowded.start("a", partial(echo, "answer", gate))
    waiting = [asyncio.create_task(crowded.wait("a")) for _ in range(5)]
    for number in range(4):
        deserted.start(str(number), partial(echo, "answer", gate))
    await asyncio.sleep(0)
    assert [crowded.load(), deserted.load()] == [5, 4]
    gate.set()
    await asyncio.gather(*waiting)
    await deserted.aclose()
    assert [crowded.load(), deserted.load()] == [0, 0]


async def test_closing_ends_every_task_and_every_wait_for_it() -> None:
    shared = answers()
    task = shared.start("a", partial(echo, "never", asyncio.Event()))
    waiting = asyncio.create_task(shared.wait("a"))
    await asyncio.sleep(0)
    await shared.aclose()
    ended = await waiting
    assert isinstance(ended, Undecided)
    assert ended.code is Code.SERVICE_BUSY
    assert task.cancelled()


async def test_an_answer_is_kept_from_its_question_on_and_the_least_used_goes_first() -> None:
    asked: list[str] = []
    now = [0.0]
    shared: SharedAnswers[str, str] = SharedAnswers(Code.SERVICE_BUSY, kept_s=10, capacity=2, monotonic=lambda: now[0])

    async def ask(text: str, takes_s: float = 0) -> str:
        asked.append(text)
        now[0] += takes_s
        return text

    for text in ("a", "b", "a", "c", "a", "b"):
        assert await shared.find(text, partial(ask, text)) == text
    assert asked == ["a", "b", "c", "b"]
    await shared.find("slow", partial(ask, "slow", 9))
    assert (kept := shared.kept("slow")) is not None
    assert kept.answer == "slow"
    now[0] += 1
    assert shared.kept("slow") is None


@pytest.mark.parametrize("keeps_errors", [True, False])
async def test_an_error_is_raised_for_every_caller_and_kept_only_on_demand(keeps_errors: bool) -> None:
    asked: list[int] = []
    shared: SharedAnswers[str, int] = SharedAnswers(
        Code.SERVICE_BUSY, kept_s=60, keeps=lambda answer: keeps_errors or not isinstance(answer, IssuerError)
    )

    async def ask() -> int:
        asked.append(1)
        raise Refused(Code.RATE_SOURCE)

    for _ in range(2):
        found = await asyncio.gather(*[shared.find("a", ask) for _ in range(3)], return_exceptions=True)
        assert all(isinstance(one, Refused) for one in found)
    assert len(asked) == (1 if keeps_errors else 2)
