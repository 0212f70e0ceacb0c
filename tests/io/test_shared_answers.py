"""One task for all callers with one question: shared, bounded, kept for a while, and not ended when a caller hangs
up."""

from __future__ import annotations

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


async def test_all_who_ask_the_same_share_one_task_and_its_result() -> None:
    shared, gate = answers(), asyncio.Event()
    shared.start("a", partial(echo, "answer", gate))
    assert (shared.under_way("a"), shared.under_way("b")) == (True, False)
    waiting = [asyncio.create_task(shared.wait("a")) for _ in range(3)]
    await asyncio.sleep(0)
    assert (shared.load(), shared.load(lambda key: key == "b")) == (3, 0)
    gate.set()
    assert await asyncio.gather(*waiting) == ["answer"] * 3
    assert shared.load() == 0


async def test_the_next_one_after_the_end_begins_anew() -> None:
    shared, gate = answers(), asyncio.Event()
    gate.set()
    first = shared.start("a", partial(echo, "first", gate))
    while not first.done():  # the loop notes its end at the next turn, and a new caller may come before
        await asyncio.sleep(0)
        assert shared.load() <= 1
    assert not shared.under_way("a")
    assert await shared.find("a", partial(echo, "second", gate)) == "second"


async def test_who_hangs_up_ends_nobody_elses_wait() -> None:
    shared, gate = answers(), asyncio.Event()
    shared.start("a", partial(echo, "answer", gate))
    impatient, patient = (asyncio.create_task(shared.wait("a")) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    gate.set()
    assert await patient == "answer"
    assert impatient.cancelled()


async def test_its_load_is_those_who_wait_or_the_tasks_that_nobody_waits_for() -> None:
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


async def test_closing_ends_what_is_under_way_and_every_wait_for_it() -> None:
    shared = answers()
    task = shared.start("a", partial(echo, "never", asyncio.Event()))
    waiting = asyncio.create_task(shared.wait("a"))
    await asyncio.sleep(0)
    await shared.aclose()
    ended = await waiting
    assert isinstance(ended, Undecided)
    assert ended.code is Code.SERVICE_BUSY
    assert task.cancelled()


async def test_an_answer_is_kept_from_the_beginning_of_its_question_and_the_least_used_goes_first() -> None:
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
async def test_an_error_is_for_all_who_wait_and_kept_only_where_that_is_wanted(keeps_errors: bool) -> None:
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
