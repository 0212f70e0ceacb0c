"""Group commit without a timer: while one batch is committed the next one gathers, and begins when the last is durable.

One thread has the sequencer, and does one thing at a time. Who waits too long has given up by then, and is left out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import structlog
from msgspec import Struct

from issuer.errors import Undecided
from issuer.service.bounds import LOG_BATCH_LEAVES, LOG_CALL_S, LOG_QUEUE_LEAVES, LOG_TEND_BATCHES
from issuer.service.log.batch import Placed
from issuer.service.log.sequencer import Published, Sequencer
from issuer.service.log.store import Entry

T = TypeVar("T")
Settle = Callable[["tuple[Placed, ...] | None"], None]
_log = structlog.get_logger("issuer")


class Waiting(Struct, frozen=True):
    """Leaves that wait for their batch since a time of the event loop. `settle` is called once, with their places, or
    with None where nobody knows them."""

    entries: tuple[Entry, ...]
    settle: Settle
    since: float


class GroupCommit:
    """Between an event loop and the sequencer's thread. `newest` is the newest published head; `published` is told of
    each, on the event loop."""

    def __init__(
        self, sequencer: Sequencer, thread: ThreadPoolExecutor, published: Callable[[Published], None]
    ) -> None:
        self._sequencer = sequencer
        self._thread = thread
        self._published = published
        self.newest: Published | None = None
        self._queue: deque[Waiting] = deque()
        self._queued = 0
        self._running: asyncio.Task[None] | None = None
        self._batches = 0

    def add(self, entries: tuple[Entry, ...], settle: Settle) -> None:
        """Have leaves appended with the next batch; with none, have it seen whether they could be."""
        if self._queued + len(entries) > LOG_QUEUE_LEAVES:
            settle(None)
            return
        loop = asyncio.get_running_loop()
        self._queue.append(Waiting(entries, settle, loop.time()))
        self._queued += len(entries)
        if self._running is None:
            self._running = loop.create_task(self._run())

    async def do(self, what: Callable[[Sequencer], T]) -> T:
        """Do something else in the sequencer's thread, between two batches. Raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, what, self._sequencer)

    async def finish(self) -> None:
        """Wait until everything that was added has been settled."""
        if self._running is not None:
            await self._running

    async def _run(self) -> None:
        try:
            while self._queue:
                await self._commit(self._next())
                self._batches += 1
                if self._batches % LOG_TEND_BATCHES == 0:
                    await self.do(Sequencer.tend)
        finally:
            self._running = None

    def _next(self) -> list[Waiting]:
        """Return what fits into a batch: whole questions, in the order in which they came."""
        batch: list[Waiting] = []
        leaves, now = 0, asyncio.get_running_loop().time()
        while self._queue and (not batch or leaves + len(self._queue[0].entries) <= LOG_BATCH_LEAVES):
            waiting = self._queue.popleft()
            self._queued -= len(waiting.entries)
            if now - waiting.since > LOG_CALL_S:
                waiting.settle(None)  # its leaf would have no token
                continue
            batch.append(waiting)
            leaves += len(waiting.entries)
        return batch

    async def _commit(self, batch: list[Waiting]) -> None:
        if not batch:
            return
        places: tuple[Placed | None, ...] | None = None
        entries = [entry for waiting in batch for entry in waiting.entries]
        try:
            places = await self.do(lambda sequencer: sequencer.append(entries))
        except Undecided:
            pass  # the sequencer has told why
        except Exception as error:  # noqa: BLE001 (whatever it is, those who wait hear of it)
            _log.error("log batch failed", exc_info=error)
        self._tell()
        _settle(batch, places)

    def _tell(self) -> None:
        published = self._sequencer.published
        if published is not None and published is not self.newest:
            self.newest = published
            self._published(published)


def _settle(batch: list[Waiting], places: tuple[Placed | None, ...] | None) -> None:
    left = iter(places or ())
    for waiting in batch:
        own = tuple(islice(left, len(waiting.entries)))
        placed = tuple(place for place in own if place is not None)
        whole = places is not None and len(placed) == len(waiting.entries)
        waiting.settle(placed if whole else None)
