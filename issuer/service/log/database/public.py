"""What anybody may read of the log, out of its database: checkpoints, tiles, entries, and proofs of tokens.

Each of a few threads has a connection that only reads. An old copy of the database that was put back, or a file or
server that was replaced, must not fool a reader: this process remembers what it has seen of the log, and opens
connections anew now and then. A failure is 503 `dependency.log_read`: it says nothing of what is in the log. What is
returned never changes, but for the newest checkpoint. "No such leaf" is a verdict, by which relying parties refuse a
token: it is never said in doubt.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import structlog

from issuer.codes import Code
from issuer.errors import FormatError, Refused, Undecided
from issuer.io.bounds import COUNT_S
from issuer.service.log.bounds import LOG_READERS, LOG_READING_S
from issuer.service.log.database.engines import SCHEME, reading_at
from issuer.service.log.database.store import Head, Reader, Reading, StoreCorrupt, StoreFailed
from issuer.service.settings.background import OwnThreads
from issuer.tlog.checkpoint import parse_checkpoint
from issuer.tlog.merkle import inclusion_proof, verify_inclusion
from issuer.tlog.note import parse_note
from issuer.tlog.proof import Proof
from issuer.tlog.tiles import HEIGHT, WIDTH, TilePath, node_of_tiles, parse_tile_path, write_entries

T = TypeVar("T")
_log = structlog.get_logger("issuer")


class _Own(threading.local):
    """What one thread has: a connection, and when it was opened, in seconds of the monotonic clock."""

    reading: Reading | None = None
    since = 0.0


class PublicLog:
    """The public side of one log; `connect` connects the thread that calls it, anew when it is `oldest_s` old.
    `run` belongs to one event loop, and the rest to the threads that it runs work in.

    Each method raises Undecided(`dependency.log_read`) where the database fails.
    """

    def __init__(self, origin: str, connect: Callable[[], Reading], oldest_s: float = LOG_READING_S) -> None:
        self._origin = origin
        self._connect = connect
        self._oldest_s = oldest_s
        self._threads = OwnThreads(LOG_READERS)
        self._own = _Own()
        self._lock = threading.Lock()
        self._seen: Head | None = None
        self._told = 0.0

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """Do work in one of the threads. Returns and raises what it does."""
        return self._threads.run(work)

    async def aclose(self) -> None:
        """Disconnect."""
        await self._threads.aclose(self.let_go)

    def let_go(self) -> None:
        """Disconnect the thread that calls this."""
        reading, self._own.reading = self._own.reading, None
        if reading is not None:
            reading.close()

    def checkpoint(self) -> bytes:
        """Return the newest checkpoint that has reached the quorum, as a signed note. Raises Undecided(`log.pending`)
        where none has yet."""
        kept = self._look(Reader.last_cosigned)
        if kept is None:
            raise Undecided(Code.LOG_PENDING)
        return kept[1]

    def tile(self, path: TilePath) -> bytes | None:
        """Return a tile or an entry bundle (tlog-tiles); None where the log does not have all of it yet."""
        if not self._committed(_leaves_under(path)):
            return None
        return self._look(partial(_read, path))

    def proof(self, iat: int, token: bytes, size: int | None = None) -> bytes:
        """Return the proof of a token's leaf (tlog-proof) under the first checkpoint over it that reached the quorum,
        or under that of a tree of `size` leaves.

        `iat` is Unix seconds, `token` the 32 bytes of the token's digest. Raises Refused(`log.no_leaf`), which its
        caller passes on only while the log is known to be what it was; Refused(`request.query`) where no checkpoint of
        this size over the leaf was kept; Undecided(`log.pending`) where none over it is yet.
        """
        index = self._index(iat, token)
        return self._look(lambda reader: _proof(reader, index, size))

    def _index(self, iat: int, token: bytes) -> int:
        def find(reader: Reader) -> int | None:
            return reader.index_of_token(iat, token)

        # What is open may be a file or a server that is no longer the log's: only what is there now can say no.
        for anew in (False, True):
            if (index := self._look(find, anew=anew)) is not None:
                return index
        raise Refused(Code.LOG_NO_LEAF)

    def _look(self, read: Callable[[Reader], T], *, anew: bool = False) -> T:
        """Return what `read` finds; `anew`, by a connection that was opened just now. Raises what it raises, and
        Undecided(`dependency.log_read`) in place of StoreFailed and FormatError."""
        try:
            return read(self._reader(anew=anew))
        except (StoreFailed, FormatError) as error:
            self.let_go()
            self._tell(error)
            raise Undecided(Code.DEPENDENCY_LOG_READ) from error

    def _committed(self, size: int) -> bool:
        """Say whether the log has a tree of so many leaves. Raises Undecided(`dependency.log_read`)."""
        if (seen := self._seen) is not None and size <= seen.size:
            return True  # it only grows
        return size <= self._look(self._head).size

    def _reader(self, *, anew: bool) -> Reader:
        own = self._own
        if own.reading is None or anew or time.monotonic() - own.since > self._oldest_s:
            self.let_go()
            own.reading, own.since = self._connect(), time.monotonic()
            self._head(Reader(own.reading))
        return Reader(own.reading)

    def _head(self, reader: Reader) -> Head:
        """Return the head, and remember it. Raises StoreCorrupt where it is not that of a log which grew."""
        seen = self._seen  # before the look: others may see a larger one meanwhile
        head = reader.head()
        if head is None or head.origin != self._origin:
            raise StoreCorrupt(f"not the log {self._origin}")
        if seen is not None and (head.size < seen.size or (head.size == seen.size and head.root != seen.root)):
            raise StoreCorrupt(f"a tree of {head.size} leaves, where another of {seen.size} was seen before")
        with self._lock:
            if self._seen is None or head.size > self._seen.size:
                self._seen = head
        return head

    def _tell(self, error: Exception) -> None:
        """Say in the log stream what failed, at most once a second: anybody may ask, as often as he likes."""
        with self._lock:
            now = time.monotonic()
            if now - self._told < COUNT_S:
                return
            self._told = now
        _log.error("log not read", reason=f"{type(error).__name__}: {error}")


def _leaves_under(path: TilePath) -> int:
    """Return the size of the smallest tree that has a tile."""
    level = 0 if path.level == "entries" else path.level
    return (path.index * WIDTH + path.width) << (HEIGHT * level)


def _read(path: TilePath, reader: Reader) -> bytes:
    if path.level == "entries":
        return write_entries(reader.leaves(path.index * WIDTH, path.width))
    return reader.tile(path.level, path.index, path.width)


def _proof(reader: Reader, index: int, size: int | None) -> bytes:
    kept = reader.cosigned_over(index + 1 if size is None else size)
    if size is not None and (size <= index or kept is None or kept[0] != size):
        raise Refused(Code.REQUEST_QUERY, f"There is no cosigned checkpoint of {size} leaves over this one")
    if kept is None:
        raise Undecided(Code.LOG_PENDING)
    checkpoint, note = parse_checkpoint(parse_note(kept[1]).text), kept[1]
    node = node_of_tiles(reader.tile, checkpoint.size)
    hashes = inclusion_proof(index, checkpoint.size, node)
    if not verify_inclusion(index, checkpoint.size, node(0, index), hashes, checkpoint.root):
        raise StoreCorrupt(f"the hashes do not lead from leaf {index} to the checkpoint of {checkpoint.size} leaves")
    return Proof(index, hashes, note).to_bytes()


class StoredFiles:
    """The log's public files for a command that is run beside its database, the path of a SQLite file or
    `postgresql://...`: an export needs no service.

    The newest checkpoint is the last one that reached the quorum: another process signs. Readers check these files as
    those of a stranger.
    """

    def __init__(self, place: str) -> None:
        """Connect. Raises SetupError, and Undecided(`log.unavailable`) where the database fails."""
        self.name = "the PostgreSQL database" if place.startswith(SCHEME) else place  # no password
        try:
            self._reading = reading_at(place)
        except StoreFailed as error:
            raise _unavailable(error) from None
        self.reader = Reader(self._reading)

    def close(self) -> None:
        """Disconnect."""
        self._reading.close()

    def read(self, path: str, max_bytes: int) -> bytes | None:  # noqa: ARG002  (nothing here is larger)
        """Return the file at a path under the log's prefix; None where there is none."""
        try:
            if path == "checkpoint":
                cosigned = self.reader.last_cosigned()
                return None if cosigned is None else cosigned[1]
            tile = parse_tile_path(path)
            return None if tile is None else _read(tile, self.reader)
        except StoreCorrupt:  # beyond the tree
            return None
        except (StoreFailed, FormatError) as error:
            raise _unavailable(error) from None


def _unavailable(error: Exception) -> Undecided:
    return Undecided(Code.LOG_UNAVAILABLE, f"the log's database: {error}")
