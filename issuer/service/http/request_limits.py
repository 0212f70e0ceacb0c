"""What anybody may ask for, without a credential, is bounded twice: how much of it is under way, and how much it costs.

Everything belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar

import structlog
from litestar.types import Receive, Scope, Send

from issuer.codes import Code
from issuer.errors import Refused, Undecided
from issuer.io.bounds import COUNT_S
from issuer.limits.sources import Sources
from issuer.service.http.bounds import HELD_S, MAX_HELD
from issuer.service.http.messages import Answer, Headers, WrittenProblem

Found = TypeVar("Found")
# Does blocking work in a thread, and returns and raises what it does.
Run: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]
ALL = ""


class Gate:
    """Work on questions that differ: `at_once` at a time in threads, with at most `places` under way or waiting.

    What each costs is charged to its source, and to all together: both rates count milliseconds of CPU. So the price of
    the worst question is paid by who asks it, and all questions leave most of a core to others. `run` does work in a
    thread: by default in one of the event loop's own, which it shares with others.
    """

    def __init__(
        self, places: int, sources: Sources, of_all: Sources, run: Run = asyncio.to_thread, at_once: int = 1
    ) -> None:
        self._free = places
        self._sources = sources
        self._all = of_all
        self._run = run
        self._working = asyncio.Semaphore(at_once)

    def demand(self, source: str) -> None:
        """Charge a source the least that a question costs, before anything of it is read.

        Raises Refused (`rate.source`) where the source has used up its share; Undecided (`service.busy`) where all have
        used up theirs, or no place is free.
        """
        now_us = time.time_ns() // 1000
        if retry_after_s := self._sources.allowance(source, now_us).retry_after_s:
            detail = "Questions from this address cost more than one may"
            raise Refused(Code.RATE_SOURCE, detail, retry_after_s=retry_after_s)
        self._sources.charge(source, now_us, 1)
        if retry_after_s := self._all.allowance(ALL, now_us).retry_after_s:
            raise Undecided(Code.SERVICE_BUSY, retry_after_s=retry_after_s)
        self._demand_place()

    async def work(self, source: str, work: Callable[[], Found]) -> Found:
        """Do the work and charge it. Raises what it raises, and Undecided (`service.busy`) where no place is free."""
        self._demand_place()
        self._free -= 1
        found: Found | Exception
        try:
            async with self._working:
                found, spent_ms = await self._run(partial(_timed, work))
        finally:
            self._free += 1
        now_us = time.time_ns() // 1000
        self._sources.charge(source, now_us, spent_ms)
        self._all.charge(ALL, now_us, spent_ms)
        if isinstance(found, Exception):
            raise found
        return found

    def _demand_place(self) -> None:
        if not self._free:
            raise Undecided(Code.SERVICE_BUSY)


def _timed(work: Callable[[], Found]) -> tuple[Found | Exception, int]:
    """Return what the work returns or raises, whatever it is, and the milliseconds of CPU that it took."""
    began = time.thread_time_ns()
    found: Found | Exception
    try:
        found = work()
    except Exception as error:  # noqa: BLE001 (our own mistakes cost time, too)
        found = error
    return found, (time.thread_time_ns() - began) // 1_000_000


# -- tarpit ------------------------------------------------------------------------------------------------------------

# The answer to a source above its limit for all that does not verify: one 429, written once (contract section 5).
#
# A flood of bad tokens shares a process with good callers, who wait while it is answered. So its bodies are not read,
# its problem document is written once, and the log stream counts refusals instead of a line for each. And the answer is
# delayed: a connection that is answered late asks less often.

_log = structlog.get_logger("issuer")


class Tarpit:
    """Answers for one process. Belongs to one event loop."""

    def __init__(self, issuer_url: str) -> None:
        # A slot of the table is free again well within a second, however hard a source tries: nothing is added above.
        self._problem = WrittenProblem(Refused(Code.RATE_SOURCE, retry_after_s=1), issuer_url)
        self._count = 0
        self.held = 0

    def answer(self, request_id: str) -> TarpitAnswer:
        """Return the answer to one more request."""
        if not self._count:
            asyncio.get_running_loop().call_later(COUNT_S, self._log_count)
        self._count += 1
        seconds = HELD_S * (1 + int(request_id[:2], 16) / 256)
        return TarpitAnswer(self, seconds, self._problem.headers, self._problem.body(request_id))

    def _log_count(self) -> None:
        _log.warning("turned away", code=str(Code.RATE_SOURCE), requests=self._count)
        self._count = 0


class TarpitAnswer(Answer):
    """An answer that waits before it is sent. Nothing of its request is kept until then."""

    __slots__ = ("_seconds", "_tarpit")

    def __init__(self, tarpit: Tarpit, seconds: float, headers: Headers, body: bytes) -> None:
        super().__init__(429, headers, body)
        self._tarpit = tarpit
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it when it is due; at once where too many others already wait."""
        if self._tarpit.held < MAX_HELD:
            self._tarpit.held += 1
            try:
                await asyncio.sleep(self._seconds)
            finally:
                self._tarpit.held -= 1
        await super().__call__(scope, receive, send)
