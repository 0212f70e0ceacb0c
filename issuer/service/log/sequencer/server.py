"""The server of the sequencer process: it reads workers' questions, commits batches, and answers.

Group commit without a timer: while one batch is committed, the next one gathers leaves. Its commit begins when the
first batch is durable. One thread runs the sequencer. A slow client does not delay others: if its unread answers exceed
a limit, its connection is closed.

With `log.witnesses: sync` an answer also waits for a quorum, after the commit. The next batch does not wait. Leaves
stay in the log even without cosignatures, and a worker may send the same leaf again.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar, cast

import structlog
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError, Undecided
from issuer.service.log.bounds import (
    LOG_ASKED,
    LOG_BATCH_LEAVES,
    LOG_CALL_S,
    LOG_QUEUE_LEAVES,
    LOG_TEND_BATCHES,
    LOG_UNREAD_BYTES,
    WITNESS_PACE_S,
    WITNESS_SYNC_PACE_S,
)
from issuer.service.log.client import (
    Answer,
    Append,
    Failed,
    Frames,
    LeafPlaces,
    LogCondition,
    Newest,
    NotAMessage,
    Question,
    framed,
    read_question,
)
from issuer.service.log.database.store import StoredLeaf
from issuer.service.log.sequencer.sequencer import CommittedHead, Placed, Sequencer, entry_of
from issuer.service.log.sequencer.setup import LogSettings, read_seal, sequencer_of, turn
from issuer.service.log.witnesses.witness import SignedHead
from issuer.service.log.witnesses.witnesses import Witnesses, shown_at_start, vouched_at_start, witnessing_of
from issuer.service.settings.bounds import BEAT_S
from issuer.tlog.checkpoint import parse_checkpoint
from issuer.tlog.note import parse_note

T = TypeVar("T")
Settle = Callable[["tuple[Placed, ...] | None"], None]
_log = structlog.get_logger("issuer")


# -- group commit ------------------------------------------------------------------------------------------------------


class Waiting(Struct, frozen=True):
    """Leaves that wait for their batch; `since` is when their wait began, in the event loop's time. `settle` is called
    once, with their places or, after a failure, None."""

    entries: tuple[StoredLeaf, ...]
    settle: Settle
    since: float


class GroupCommit:
    """The queue between an event loop and the sequencer's thread. `newest` is the newest published head; `published` is
    called with each, on the event loop. Implements `witness.WitnessedLog`, and raises Undecided(`dependency.log`)."""

    def __init__(
        self, sequencer: Sequencer, thread: ThreadPoolExecutor, published: Callable[[CommittedHead], None]
    ) -> None:
        self._sequencer = sequencer
        self._thread = thread
        self._published = published
        self.newest: CommittedHead | None = None
        self._queue: deque[Waiting] = deque()
        self._queued = 0
        self._running: asyncio.Task[None] | None = None
        self._batches = 0

    def add(self, entries: tuple[StoredLeaf, ...], settle: Settle) -> None:
        """Append leaves with the next batch; without leaves, check that leaves could be appended."""
        if self._queued + len(entries) > LOG_QUEUE_LEAVES:
            settle(None)
            return
        loop = asyncio.get_running_loop()
        self._queue.append(Waiting(entries, settle, loop.time()))
        self._queued += len(entries)
        if self._running is None:
            self._running = loop.create_task(self._run())

    async def do(self, work: Callable[[Sequencer], T]) -> T:
        """Run `work` in the sequencer's thread, between two batches; return its result or raise its error."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._sequencer)

    async def finish(self) -> None:
        """Wait until all added leaves are settled."""
        if self._running is not None:
            await self._running

    async def head(self) -> SignedHead:
        """Read the head again, which another host may have moved, and return its checkpoint."""
        note = parse_note((await self.do(_newest)).note)
        return SignedHead(parse_checkpoint(note.text), note)

    async def consistency_proof(self, old: int, new: int) -> tuple[bytes, ...]:
        """Return the consistency proof of two committed sizes."""
        return await self.do(lambda sequencer: sequencer.consistency(old, new))

    async def keep_cosigned(self, size: int, note: bytes) -> None:
        """Keep a cosigned checkpoint in the database."""
        await self.do(lambda sequencer: sequencer.keep_cosigned(size, note))

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
        """Return the leaves of the next batch: whole questions, in the order of their arrival."""
        batch: list[Waiting] = []
        leaves, now = 0, asyncio.get_running_loop().time()
        while self._queue and (not batch or leaves + len(self._queue[0].entries) <= LOG_BATCH_LEAVES):
            waiting = self._queue.popleft()
            self._queued -= len(waiting.entries)
            if now - waiting.since > LOG_CALL_S:
                waiting.settle(None)  # the worker has given up, so the leaf would not get a token
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
            pass  # the sequencer has logged why
        except Exception as error:  # noqa: BLE001 (whatever the error, the waiting questions must be settled)
            _log.error("log batch failed", exc_info=error)
        published = self._sequencer.published
        if published is not None and published is not self.newest:
            self.newest = published
            self._published(published)
        _settle(batch, places)


def _newest(sequencer: Sequencer) -> CommittedHead:
    sequencer.append(())
    if sequencer.published is None:
        raise Undecided(Code.DEPENDENCY_LOG)
    return sequencer.published


def _settle(batch: list[Waiting], places: tuple[Placed | None, ...] | None) -> None:
    remaining = iter(places or ())
    for waiting in batch:
        placed = tuple(place for place in islice(remaining, len(waiting.entries)) if place is not None)
        is_complete = places is not None and len(placed) == len(waiting.entries)
        waiting.settle(placed if is_complete else None)


# -- answers -----------------------------------------------------------------------------------------------------------


class Responder:
    """The answers for all connections. Belongs to one event loop. With `must_cosign`, a place is answered only after a
    quorum has cosigned a tree with its leaf."""

    def __init__(
        self, sequencer: Sequencer, group: GroupCommit, witnesses: Witnesses, *, must_cosign: bool = False
    ) -> None:
        self._sequencer = sequencer
        self._group = group
        self._witnesses = witnesses
        self._must_cosign = must_cosign
        self._waiting: set[asyncio.Task[None]] = set()

    def add(self, entries: tuple[StoredLeaf, ...], settle: Settle) -> None:
        """Append leaves with the next batch; without leaves, check that leaves could be appended."""
        if not entries or not self._must_cosign:
            self._group.add(entries, settle)
        elif self._witnesses.is_stuck:
            settle(None)  # the leaves would not get tokens
        else:
            self._group.add(entries, partial(self._cosign, settle))

    async def finish(self) -> None:
        """Wait until all added leaves are settled."""
        await self._group.finish()
        await asyncio.gather(*self._waiting)

    def newest(self, number: int) -> Newest | Failed:
        """Return the answer to the question of this number: the newest checkpoint."""
        if (published := self._group.newest) is None:
            return self.failed(number)
        standing = LogCondition(
            cosigned=self._witnesses.cosigned,
            failing=self._witnesses.faults.failing,
            warnings=self._sequencer.warnings,
            must_wait=self._must_cosign and self._witnesses.is_stuck,
        )
        return Newest(number, published.note, standing)

    def failed(self, number: int) -> Failed:
        """Return a failure as the answer to the question of this number."""
        return Failed(number, bool(self._sequencer.latched))

    def _cosign(self, settle: Settle, places: tuple[Placed, ...] | None) -> None:
        if not places:
            settle(None)
            return
        task = asyncio.get_running_loop().create_task(self._settle(settle, places))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _settle(self, settle: Settle, places: tuple[Placed, ...]) -> None:
        cosigned: tuple[Placed, ...] | None = None
        try:
            await self._witnesses.wait_for(max(place.index for place in places) + 1)
            # Look even after a timeout: witnesses may have cosigned the tree for another host of this database.
            cosigned = await self._group.do(lambda sequencer: sequencer.under_cosigned(places))
        except Undecided:
            pass  # the sequencer has logged why
        except Exception as error:  # noqa: BLE001 (whatever the error, the question must be settled)
            _log.error("log places not cosigned", exc_info=error)
        settle(cosigned)


class Connection(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, responder: Responder) -> None:
        self._responder = responder
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of a new connection."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Drop the transport. Open questions are processed without an answer."""
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Process received bytes."""
        try:
            for raw in self._frames.feed(data):
                self._take(raw)
        except NotAMessage as error:
            self._close(str(error))

    def _take(self, raw: bytes) -> None:
        question = read_question(raw)
        self._asked += 1
        if self._asked > LOG_ASKED:
            raise NotAMessage(f"more than {LOG_ASKED} questions without an answer")
        try:
            entries = tuple(map(entry_of, question.leaves)) if isinstance(question, Append) else ()
        except FormatError as error:  # a bug of the worker, which must not fail the other questions
            _log.error("log leaf refused", reason=str(error))
            self._answer(Failed(question.number))
        else:
            self._responder.add(entries, partial(self._settle, question))

    def _settle(self, question: Question, places: tuple[Placed, ...] | None) -> None:
        if places is None:
            self._answer(self._responder.failed(question.number))
        elif isinstance(question, Append):
            self._answer(LeafPlaces(question.number, places))
        else:
            self._answer(self._responder.newest(question.number))

    def _answer(self, answer: Answer) -> None:
        self._asked -= 1
        if (transport := self._transport) is None or transport.is_closing():
            return
        transport.write(framed(answer))
        if transport.get_write_buffer_size() > LOG_UNREAD_BYTES:
            self._close("it does not read its answers")

    def _close(self, why: str) -> None:
        if self._transport is not None:
            _log.error("log client closed", reason=why)
            self._transport.abort()
            self._transport = None


# -- the life of the process -------------------------------------------------------------------------------------------


async def serve(
    settings: LogSettings, socket: Path, end: int, beats: int, listening: Callable[[], None], *, again: bool = False
) -> None:
    """Serve one log on the socket until the pipe `end` is closed. Call `listening` once, and then write to the pipe
    `beats` regularly while the event loop runs. `again` is set after an earlier process has died. Raises SetupError if
    the log cannot be served safely."""
    os.umask(0o077)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(end, ended.set)
    with turn(settings):
        async with _started(settings, again=again) as responder:
            server = await asyncio.get_running_loop().create_unix_server(lambda: Connection(responder), str(socket))
            os.chmod(socket, 0o600)
            listening()
            beating = asyncio.create_task(_beat(beats))
            await ended.wait()
            beating.cancel()
            server.close()
            await responder.finish()


@asynccontextmanager
async def _started(settings: LogSettings, *, again: bool) -> AsyncIterator[Responder]:
    """Start the sequencer, and have its heads cosigned until the block ends. The first start waits for witnesses twice:
    before it, for the checkpoints that they show; after it, for their cosignatures of the head. A restart (`again`)
    skips both, so requests do not wait for the slowest witness: the records have the newest checkpoint, and a witness
    that contradicts it still raises an alarm."""
    seal = read_seal(settings)
    witnessing = witnessing_of(settings.witnesses, seal.verifier)
    shown = () if again else await shown_at_start(witnessing.witnesses)
    sequencer = sequencer_of(settings, seal, shown)
    with ThreadPoolExecutor(1, "sequencer") as thread:
        group = GroupCommit(sequencer, thread, lambda _: witnesses.committed())
        must_cosign = settings.witnesses is not None and settings.witnesses.must_cosign
        pace_s = WITNESS_SYNC_PACE_S if must_cosign else WITNESS_PACE_S
        witnesses = Witnesses(witnessing.policy, group, witnessing.witnesses, pace_s)
        try:
            await group.do(Sequencer.start)
            if not again:
                await vouched_at_start(witnessing.witnesses, group)
            witnesses.committed()  # the first head may not be cosigned yet
            showing = asyncio.create_task(witnesses.run())
            yield Responder(sequencer, group, witnesses, must_cosign=must_cosign)
            showing.cancel()
            await witnesses.aclose()
        finally:
            await group.do(Sequencer.close)


async def _beat(beats: int) -> None:
    os.set_blocking(beats, False)
    while True:
        with suppress(BlockingIOError):  # the watcher hangs
            os.write(beats, b".")
        await asyncio.sleep(BEAT_S / 2)
