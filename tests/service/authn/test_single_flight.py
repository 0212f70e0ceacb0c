"""One task for all who ask the same: shared, bounded, and not ended when one of them hangs up."""

from __future__ import annotations

import asyncio

from issuer.service.authn.single_flight import SingleFlight
from issuer.service.bounds import MAX_WAITING


async def echo(text: str, gate: asyncio.Event) -> str:
    await gate.wait()
    return text


async def test_all_who_ask_the_same_share_one_task_and_its_result() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    gate = asyncio.Event()
    task = flights.start("a", echo("answer", gate))
    assert flights.find("a") is task
    assert flights.find("b") is None
    waiting = [asyncio.create_task(flights.wait(task)) for _ in range(3)]
    await asyncio.sleep(0)
    assert (len(flights), flights.waiting) == (1, 3)
    gate.set()
    assert await asyncio.gather(*waiting) == ["answer"] * 3
    assert (len(flights), flights.waiting) == (0, 0)


async def test_the_next_one_after_the_end_begins_anew() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    gate = asyncio.Event()
    gate.set()
    first = flights.start("a", echo("first", gate))
    while not first.done():  # its end is noted at the loop's next turn: a newcomer may be there before
        await asyncio.sleep(0)
        assert flights.find("a") in {first, None}
    assert flights.find("a") is None
    second = flights.start("a", echo("second", gate))
    assert await flights.wait(second) == "second"


async def test_who_hangs_up_ends_nobody_elses_wait() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    gate = asyncio.Event()
    task = flights.start("a", echo("answer", gate))
    impatient, patient = (asyncio.create_task(flights.wait(task)) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    gate.set()
    assert await patient == "answer"
    assert impatient.cancelled()


async def test_it_is_full_by_those_who_wait_or_by_tasks_that_nobody_waits_for() -> None:
    gate = asyncio.Event()
    crowded: SingleFlight[int, str] = SingleFlight()
    task = crowded.start(0, echo("answer", gate))
    waiting = [asyncio.create_task(crowded.wait(task)) for _ in range(MAX_WAITING)]
    deserted: SingleFlight[int, str] = SingleFlight()
    for number in range(MAX_WAITING - 1):
        deserted.start(number, echo("answer", gate))
    await asyncio.sleep(0)
    assert [crowded.is_full, deserted.is_full] == [True, False]
    deserted.start(MAX_WAITING, echo("answer", gate))
    assert [crowded.is_full, deserted.is_full] == [True, True]
    gate.set()
    await asyncio.gather(*waiting)
    await deserted.aclose()
    assert [crowded.is_full, deserted.is_full] == [False, False]


async def test_closing_ends_what_is_under_way_and_every_wait_for_it() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    task = flights.start("a", echo("never", asyncio.Event()))
    waiting = asyncio.create_task(flights.wait(task))
    await asyncio.sleep(0)
    await flights.aclose()
    assert await waiting is None
    assert task.cancelled()
