"""The gate in front of public questions: the bodies under way, and the source that is charged."""

import asyncio
import threading
import time

import pytest
from litestar import Request
from litestar.types import HTTPReceiveMessage

from issuer.codes import Code
from issuer.errors import Refused, Undecided
from issuer.limits.rate import Rate
from issuer.limits.sources import Sources
from issuer.service.http import messages
from issuer.service.http.bounds import MAX_OPEN_BODIES
from issuer.service.http.messages import Http
from issuer.service.http.request_limits import Gate
from issuer.service.settings.background import OwnThreads

WIDE = Rate(count=1_000_000, per_s=1, burst=50_000)
NARROW = Rate(count=60, per_s=3600, burst=50)


def busy_ms(milliseconds: int) -> None:
    end = time.thread_time() + milliseconds / 1000
    while time.thread_time() < end:
        pass


async def test_one_works_at_a_time_and_a_call_beyond_the_places_is_refused_for_now() -> None:
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


async def test_work_runs_in_the_given_threads_as_many_at_once_as_allowed() -> None:
    threads, together = OwnThreads(2), threading.Barrier(2)
    gate = Gate(4, Sources(WIDE), Sources(WIDE), threads.run, at_once=2)

    def work() -> str:
        together.wait(60)  # it passes two at a time
        return threading.current_thread().name

    names = await asyncio.gather(*(gate.work("a", work) for _ in range(4)))
    assert len(set(names)) == 2
    await threads.aclose(lambda: None)


async def test_a_source_is_charged_for_the_cost_of_its_questions() -> None:
    for error in (Refused(Code.REQUEST_MALFORMED), StopIteration()):
        gate = Gate(3, Sources(NARROW), Sources(WIDE))

        def fail(error: Exception = error) -> None:
            busy_ms(80)
            raise error

        gate.demand("a")
        with pytest.raises((type(error), RuntimeError)):  # a coroutine raises RuntimeError instead of StopIteration
            await gate.work("a", fail)
        with pytest.raises(Refused) as caught:
            gate.demand("a")
        assert caught.value.code is Code.RATE_SOURCE
        assert caught.value.retry_after_s is not None
        assert caught.value.retry_after_s > 60 * 30
        gate.demand("b")


async def test_a_source_is_charged_for_questions_that_cost_nothing() -> None:
    gate = Gate(3, Sources(NARROW), Sources(WIDE))
    for _ in range(NARROW.burst):
        gate.demand("a")
    with pytest.raises(Refused):
        gate.demand("a")


async def test_all_sources_together_have_a_limit() -> None:
    gate = Gate(3, Sources(WIDE), Sources(NARROW))
    for source in ("a", "b"):
        gate.demand(source)
        await gate.work(source, lambda: busy_ms(40))
    with pytest.raises(Undecided) as caught:
        gate.demand("c")
    assert caught.value.code is Code.SERVICE_BUSY


class Body:
    def __init__(self) -> None:
        self._parts: asyncio.Queue[HTTPReceiveMessage] = asyncio.Queue()
        self.request: Http = Request({"type": "http", "headers": []}, receive=self._parts.get)  # type: ignore[arg-type]

    def send(self, part: bytes, *, more: bool = False) -> None:
        self._parts.put_nowait({"type": "http.request", "body": part, "more_body": more})


async def test_a_body_beyond_the_places_ends_the_first_of_the_source_with_most() -> None:
    gate, bodies = Gate(3, Sources(WIDE), Sources(WIDE)), [Body() for _ in range(MAX_OPEN_BODIES + 1)]
    reading = []
    for number, body in enumerate(bodies):
        reading.append(asyncio.create_task(gate.bodies.read(body.request, "a crowd" if number else "another", 100)))
        await asyncio.sleep(0)
    with pytest.raises(Refused) as caught:
        await reading.pop(1)
    assert caught.value.code is Code.REQUEST_TIMEOUT
    assert not any(task.done() for task in reading)
    for body in bodies:
        body.send(b"whole")
    assert await asyncio.gather(*reading) == [b"whole"] * MAX_OPEN_BODIES


async def test_a_body_has_more_time_the_more_of_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a shorter time at the beginning, and a lower rate: the first part is enough for minutes."""
    monkeypatch.setattr(messages, "BODY_FREE_S", 0.05)
    monkeypatch.setattr(messages, "BODY_BYTES_PER_S", 1)
    steady, silent = Body(), Body()
    steady.send(b"x" * 600, more=True)
    task = asyncio.create_task(messages.read_whole(steady.request, 1000))
    with pytest.raises(Refused) as caught:
        await messages.read_whole(silent.request, 1000)
    assert caught.value.code is Code.REQUEST_TIMEOUT
    steady.send(b"y")
    assert await task == b"x" * 600 + b"y"
