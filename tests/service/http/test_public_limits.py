"""A gate in front of what anybody may ask for: how much is under way, and who pays for it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from issuer.codes import Code
from issuer.errors import Refused, Undecided
from issuer.limits.rate import Rate
from issuer.limits.sources import Sources
from issuer.service.http.request_limits import Gate
from issuer.service.settings.background import OwnThreads

WIDE = Rate(count=1_000_000, per_s=1, burst=50_000)
NARROW = Rate(count=60, per_s=3600, burst=50)


def busy_ms(milliseconds: int) -> None:
    """Use CPU."""
    end = time.thread_time() + milliseconds / 1000
    while time.thread_time() < end:
        pass


async def test_one_works_and_beyond_the_places_the_next_is_told_to_come_back_unread() -> None:
    gate, go_on, began = Gate(3, Sources(WIDE), Sources(WIDE)), threading.Event(), threading.Event()
    working: list[int] = []

    def work() -> int:
        working.append(1)
        began.set()
        go_on.wait(60)
        return len(working)

    under_way = [asyncio.create_task(gate.work("a", work)) for _ in range(3)]
    await asyncio.to_thread(began.wait, 60)
    with pytest.raises(Undecided) as caught:
        await gate.work("a", work)
    assert caught.value.code is Code.SERVICE_BUSY
    with pytest.raises(Undecided):
        gate.demand("b")
    assert len(working) == 1, "one at a time"
    go_on.set()
    assert await asyncio.gather(*under_way) == [1, 2, 3]
    gate.demand("b")
    assert await gate.work("b", work) == 4, "the places are free again"


async def test_work_is_done_in_the_threads_that_are_named_and_so_many_at_a_time() -> None:
    threads, together = OwnThreads(2), threading.Barrier(2)
    gate = Gate(4, Sources(WIDE), Sources(WIDE), threads.run, at_once=2)

    def work() -> str:
        together.wait(60)  # alone it would wait in vain
        return threading.current_thread().name

    names = await asyncio.gather(*(gate.work("a", work) for _ in range(4)))
    assert len(set(names)) == 2
    await threads.aclose(lambda: None)


@pytest.mark.parametrize("error", [Refused(Code.REQUEST_MALFORMED), ZeroDivisionError(), StopIteration()])
async def test_a_source_pays_for_what_its_questions_cost_and_no_other_does(error: Exception) -> None:
    gate = Gate(3, Sources(NARROW), Sources(WIDE))

    def fail() -> None:
        busy_ms(80)
        raise error

    gate.demand("a")
    with pytest.raises((type(error), RuntimeError)):  # a coroutine raises the latter for a StopIteration
        await gate.work("a", fail)
    with pytest.raises(Refused) as caught:
        gate.demand("a")
    assert caught.value.code is Code.RATE_SOURCE
    assert caught.value.retry_after_s is not None
    assert caught.value.retry_after_s > 60 * 30
    gate.demand("b")


async def test_who_asks_much_that_costs_nothing_pays_too() -> None:
    gate = Gate(3, Sources(NARROW), Sources(WIDE))
    for _ in range(NARROW.burst):
        gate.demand("a")
    with pytest.raises(Refused):
        gate.demand("a")


async def test_all_sources_together_leave_time_to_others() -> None:
    gate = Gate(3, Sources(WIDE), Sources(NARROW))
    for source in ("a", "b"):
        gate.demand(source)
        await gate.work(source, lambda: busy_ms(40))
    with pytest.raises(Undecided) as caught:
        gate.demand("c")
    assert caught.value.code is Code.SERVICE_BUSY
