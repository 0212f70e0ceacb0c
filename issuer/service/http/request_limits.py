"""Limits on requests without a credential: how many are in progress, and how much CPU they cost.

Everything in this file belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar

import structlog
from litestar.types import Receive, Scope, Send

from issuer.codes import Code
from issuer.errors import Refused, Undecided
from issuer.io.bounds import COUNT_S
from issuer.limits.sources import Sources
from issuer.service.http.bounds import HELD_S, MAX_HELD, MAX_OPEN_BODIES
from issuer.service.http.messages import REFUSED, Answer, Headers, Http, WrittenProblem, read_whole

Found = TypeVar("Found")
# Does blocking work in a thread, and passes on its result or exception.
Run: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]
ALL = ""


class OpenBodies:
    """The bodies of strangers that are being read, at most MAX_OPEN_BODIES at once."""

    def __init__(self) -> None:
        self._sources: dict[asyncio.Timeout, str] = {}

    async def read(self, request: Http, source: str, max_bytes: int) -> bytes:
        """Read a body. If MAX_OPEN_BODIES others are being read, end the first of the source with the most. Raises
        Refused."""
        if len(self._sources) >= MAX_OPEN_BODIES:
            ((most, _),) = Counter(self._sources.values()).most_common(1)
            first = next(end for end, source_of_body in self._sources.items() if source_of_body == most)
            del self._sources[first]
            first.reschedule(0)
        end = asyncio.timeout(None)
        self._sources[end] = source
        try:
            async with end:
                return await read_whole(request, max_bytes)
        except TimeoutError:
            raise Refused(Code.REQUEST_TIMEOUT, retry_after_s=1) from None
        finally:
            self._sources.pop(end, None)


class Gate:
    """A gate for expensive requests: `at_once` of them run in threads, and at most `places` are running or waiting.

    Each request is charged to its source and to the sum of all sources. Both rates count milliseconds of CPU, so the
    source of an expensive request pays for it, and all requests together leave most of a core free. `run` does the work
    in a thread; the default uses the event loop's shared threads.
    """

    def __init__(
        self, places: int, sources: Sources, of_all: Sources, run: Run = asyncio.to_thread, at_once: int = 1
    ) -> None:
        self._free = places
        self._sources = sources
        self._all = of_all
        self._run = run
        self._working = asyncio.Semaphore(at_once)
        self.bodies = OpenBodies()

    def demand(self, source: str) -> None:
        """Charge a source the minimum cost of a request, before the service reads the body.

        Raises Refused (`rate.source`) if the source has used up its rate. Raises Undecided (`service.busy`) if all
        sources together have used up theirs, or no place is free.
        """
        now_us = time.time_ns() // 1000
        if retry_after_s := self._sources.allowance(source, now_us).retry_after_s:
            detail = "This address has used up the CPU time that one address may use"
            raise Refused(Code.RATE_SOURCE, detail, retry_after_s=retry_after_s)
        self._sources.charge(source, now_us, 1)
        if retry_after_s := self._all.allowance(ALL, now_us).retry_after_s:
            raise Undecided(Code.SERVICE_BUSY, retry_after_s=retry_after_s)
        self._demand_place()

    async def work(self, source: str, work: Callable[[], Found]) -> Found:
        """Do the work and charge it. Raises what the work raises; Undecided (`service.busy`) without a free place."""
        self._demand_place()
        self._free -= 1
        result: Found | Exception
        try:
            async with self._working:
                result, spent_ms = await self._run(partial(_timed, work))
        finally:
            self._free += 1
        now_us = time.time_ns() // 1000
        self._sources.charge(source, now_us, spent_ms)
        self._all.charge(ALL, now_us, spent_ms)
        if isinstance(result, Exception):
            raise result
        return result

    def _demand_place(self) -> None:
        if not self._free:
            raise Undecided(Code.SERVICE_BUSY)


def _timed(work: Callable[[], Found]) -> tuple[Found | Exception, int]:
    """Return the work's result or exception, and the milliseconds of CPU that it took."""
    began = time.thread_time_ns()
    result: Found | Exception
    try:
        result = work()
    except Exception as error:  # noqa: BLE001 (our own mistakes cost time, too)
        result = error
    return result, (time.thread_time_ns() - began) // 1_000_000


# -- tarpit ------------------------------------------------------------------------------------------------------------

# The answer to a source over its rate of refused requests: a 429 that is written once (contract section 5).
#
# A flood of bad tokens shares a process with good callers, and they wait while it is answered. So the bodies of such
# requests are not read, the problem document is written once, and the log stream gets one count a second instead of a
# line for each. The answer is also delayed: a client that waits for it sends fewer requests.

_log = structlog.get_logger("issuer")


class CountedEvent:
    """An event that any client can cause at any rate: one line of the log stream a second has the number of requests.

    It belongs to one event loop.
    """

    def __init__(self, name: str, **members: str) -> None:
        self._name = name
        self._members = members
        self._count = 0

    def add(self) -> None:
        """Count one request."""
        if not self._count:
            asyncio.get_running_loop().call_later(COUNT_S, self._log_count)
        self._count += 1

    def _log_count(self) -> None:
        _log.warning(self._name, **self._members, requests=self._count)
        self._count = 0


# One second is enough: refusals above the rate are not charged, so it soon admits a request again.
TURNED_AWAY = Refused(Code.RATE_SOURCE, retry_after_s=1)


class Tarpit:
    """The delayed refusals of one process. It belongs to one event loop."""

    def __init__(self, issuer_url: str) -> None:
        self._problem = WrittenProblem(TURNED_AWAY, issuer_url)
        self._event = CountedEvent("turned away", code=str(Code.RATE_SOURCE))
        self.waiting = 0

    def answer(self, request_id: str, problem: WrittenProblem | None = None) -> TarpitAnswer:
        """Return the delayed answer to one request, and count it for the log stream. `problem` is TURNED_AWAY for
        clients that do not read problem documents."""
        self._event.add()
        seconds = HELD_S * (1 + int(request_id[:2], 16) / 256)
        written = problem or self._problem
        return TarpitAnswer(self, seconds, written.headers, written.body(request_id))


class TarpitAnswer(Answer):
    """An answer that is sent after a delay. Meanwhile it keeps no part of its request."""

    __slots__ = ("_seconds", "_tarpit")

    def __init__(self, tarpit: Tarpit, seconds: float, headers: Headers, body: bytes) -> None:
        super().__init__(429, headers, body)
        self._tarpit = tarpit
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer when it is due, or at once if MAX_HELD others already wait."""
        if self._tarpit.waiting < MAX_HELD:
            scope[REFUSED] = True  # type: ignore[literal-required]
            self._tarpit.waiting += 1
            try:
                await asyncio.sleep(self._seconds)
            finally:
                self._tarpit.waiting -= 1
        await super().__call__(scope, receive, send)
