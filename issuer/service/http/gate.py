"""What anybody may ask for, without a credential, is bounded twice: how much of it is under way, and how much it costs.

`SharedLook` is for a question whose answer is the same for all who ask, `Gate` for questions that differ. Neither knows
what is asked. Both belong to one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from issuer.codes import Code
from issuer.errors import IssuerError, Refused, Undecided
from issuer.service.authn.sources import Sources

Answer = TypeVar("Answer")
# Does blocking work in a thread, and returns and raises what it does.
Run: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]
ALL = ""


class SharedLook(Generic[Answer]):
    """One look at a time for all who ask, and at most one in `kept_s` seconds. A refusal is kept like an answer."""

    def __init__(self, look: Callable[[], Awaitable[Answer]], kept_s: float) -> None:
        self._look = look
        self._kept_s = kept_s
        self._task: asyncio.Task[Answer | IssuerError] | None = None
        self._began = 0.0

    async def answer(self) -> Answer:
        """Return what the last look found. Raises what it raised. Who hangs up ends no look of others."""
        loop = asyncio.get_running_loop()
        if self._task is None or (self._task.done() and loop.time() - self._began >= self._kept_s):
            self._began = loop.time()
            self._task = loop.create_task(self._try())
        await asyncio.wait([self._task])
        found = self._task.result()
        if isinstance(found, IssuerError):
            raise found
        return found

    async def _try(self) -> Answer | IssuerError:
        try:
            return await self._look()
        except IssuerError as error:
            return error


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

    async def work(self, source: str, work: Callable[[], Answer]) -> Answer:
        """Do the work and charge it. Raises what it raises, and Undecided (`service.busy`) where no place is free."""
        self._demand_place()
        self._free -= 1
        found: Answer | Exception
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


def _timed(work: Callable[[], Answer]) -> tuple[Answer | Exception, int]:
    """Return what the work returns or raises, whatever it is, and the milliseconds of CPU that it took."""
    began = time.thread_time_ns()
    found: Answer | Exception
    try:
        found = work()
    except Exception as error:  # noqa: BLE001 (our own mistakes cost time, too)
        found = error
    return found, (time.thread_time_ns() - began) // 1_000_000
