"""The public view of the log, read from its database: checkpoints, tiles, entry bundles, and proofs of tokens.

A few threads have a read-only connection each. An old copy of the database, or a replaced file or server, must not
mislead readers, so this process keeps the largest head that it has seen, and replaces its connections from time to
time. Every answer except the newest checkpoint is permanent. A failure of the database is 503 `dependency.log_read`,
which says nothing about the log's contents. Relying parties refuse a token because of "no such leaf", so that answer is
never given in doubt.
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
from issuer.service.log.bounds import LOG_FRESH_S, LOG_READERS, LOG_READING_S
from issuer.service.log.database.engines import SCHEME, reading_at
from issuer.service.log.database.store import ReadConnection, Reader, StoreCorrupt, StoreFailed, TreeHead
from issuer.service.settings.background import OwnThreads
from issuer.tlog.checkpoint import parse_checkpoint
from issuer.tlog.merkle import inclusion_proof, verify_inclusion
from issuer.tlog.note import parse_note
from issuer.tlog.proof import Proof
from issuer.tlog.tiles import HEIGHT, WIDTH, TilePath, node_of_tiles, parse_tile_path, write_entries

T = TypeVar("T")
_log = structlog.get_logger("issuer")


class _Own(threading.local):
    """The connection of one thread, and the time when it was opened, in seconds of the monotonic clock."""

    reading: ReadConnection | None = None
    since = 0.0


class PublicLog:
    """The public view of one log. `connect` makes a connection for the calling thread, which replaces it at the age of
    `oldest_s`. `run` and `aclose` belong to one event loop, the other methods to the threads in which `run` runs work.
    They raise Undecided(`dependency.log_read`) if the database fails."""

    def __init__(self, origin: str, connect: Callable[[], ReadConnection], oldest_s: float = LOG_READING_S) -> None:
        self._origin = origin
        self._connect = connect
        self._oldest_s = oldest_s
        self._threads = OwnThreads(LOG_READERS)
        self._own = _Own()
        self._lock = threading.Lock()
        self._seen: TreeHead | None = None
        self._fresh = threading.Lock()
        self._fresh_at, self._failed_at = float("-inf"), float("-inf")
        self._logged_at = 0.0

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """Run `work` in one of the threads; return its result or raise its error."""
        return self._threads.run(work)

    async def aclose(self) -> None:
        """Disconnect."""
        await self._threads.aclose(self.let_go)

    def let_go(self) -> None:
        """Disconnect the calling thread."""
        reading, self._own.reading = self._own.reading, None
        if reading is not None:
            reading.close()

    def checkpoint(self) -> bytes:
        """Return the newest checkpoint that has reached the quorum, as a signed note. Raises Undecided(`log.pending`)
        before the first one."""
        cosigned = self._look(Reader.last_cosigned)
        if cosigned is None:
            raise Undecided(Code.LOG_PENDING)
        return cosigned[1]

    def tile(self, path: TilePath) -> bytes | None:
        """Return a tile or an entry bundle (tlog-tiles); None if the log does not have all of it yet."""
        return self._look(partial(_read, path)) if self._committed(_leaves_under(path)) else None

    def proof(self, iat: int, token: bytes, size: int | None = None) -> bytes:
        """Return the proof of a token's leaf (tlog-proof) under the first cosigned checkpoint that includes the leaf,
        or under the cosigned checkpoint of a tree of `size` leaves.

        `iat` is Unix seconds, `token` the token's digest (32 bytes). Raises Undecided(`log.pending`) if no cosigned
        checkpoint includes the leaf yet; Refused(`request.query`) if there is no such checkpoint of this size;
        Refused(`log.no_leaf`), which the caller may pass on only while the log is known to be consistent.
        """
        index = self._index(iat, token)
        return self._look(lambda reader: _proof(reader, index, size))

    def _index(self, iat: int, token: bytes) -> int:
        index = self._look(lambda reader: reader.index_of_token(iat, token))
        if index is None:
            # The open file or server may not be the log's any more: then its tree is smaller than one just seen.
            self._refresh()
            self._look(self._head)
            index = self._look(lambda reader: reader.index_of_token(iat, token))
        if index is None:
            raise Refused(Code.LOG_NO_LEAF)
        return index

    def _refresh(self) -> None:
        """See the head through a new connection, unless a thread has just done so. Raises
        Undecided(`dependency.log_read`)."""
        with self._fresh:
            if time.monotonic() - self._fresh_at >= LOG_FRESH_S:
                self.let_go()
                self._look(self._head)
                self._fresh_at = time.monotonic()

    def _look(self, read: Callable[[Reader], T]) -> T:
        """Return the result of `read`. Raises Undecided(`dependency.log_read`) in place of StoreFailed and FormatError,
        and just after such a failure if this thread would need a new connection."""
        try:
            return read(self._reader())
        except (StoreFailed, FormatError) as error:
            self.let_go()
            self._failed_at = time.monotonic()
            self._log_failure(error)
            raise Undecided(Code.DEPENDENCY_LOG_READ) from error

    def _committed(self, size: int) -> bool:
        """Return whether the log has at least `size` leaves. Raises Undecided(`dependency.log_read`)."""
        seen = self._seen  # the log only grows
        return (seen is not None and size <= seen.size) or size <= self._look(self._head).size

    def _reader(self) -> Reader:
        own, now = self._own, time.monotonic()
        if own.reading is None or now - own.since > self._oldest_s:
            self.let_go()
            if now - self._failed_at < LOG_FRESH_S:
                raise Undecided(Code.DEPENDENCY_LOG_READ)
            own.reading, own.since = self._connect(), now
            self._head(Reader(own.reading))
        return Reader(own.reading)

    def _head(self, reader: Reader) -> TreeHead:
        """Return the head, and keep it if it is the largest. Raises StoreCorrupt if the tree has shrunk or changed."""
        seen = self._seen  # read before the query: other threads may see a larger head meanwhile
        head = reader.head()
        if head is None or head.origin != self._origin:
            raise StoreCorrupt(f"not the log {self._origin}")
        if seen is not None and (head.size < seen.size or (head.size == seen.size and head.root != seen.root)):
            raise StoreCorrupt(f"a tree of {head.size} leaves; another tree of {seen.size} leaves was seen before")
        with self._lock:
            if self._seen is None or head.size > self._seen.size:
                self._seen = head
        return head

    def _log_failure(self, error: Exception) -> None:
        """Log a failure, at most once a second: the number of public requests has no limit."""
        with self._lock:
            now = time.monotonic()
            if now - self._logged_at < COUNT_S:
                return
            self._logged_at = now
        _log.error("log not read", reason=f"{type(error).__name__}: {error}")


def _leaves_under(path: TilePath) -> int:
    """Return the size of the smallest tree that has this tile or bundle."""
    level = 0 if path.level == "entries" else path.level
    return (path.index * WIDTH + path.width) << (HEIGHT * level)


def _read(path: TilePath, reader: Reader) -> bytes:
    if path.level == "entries":
        return write_entries(reader.leaves(path.index * WIDTH, path.width))
    return reader.tile(path.level, path.index, path.width)


def _proof(reader: Reader, index: int, size: int | None) -> bytes:
    cosigned = reader.cosigned_over(index + 1 if size is None else size)
    if size is not None and (size <= index or cosigned is None or cosigned[0] != size):
        raise Refused(Code.REQUEST_QUERY, f"A cosigned checkpoint of {size} leaves with this leaf does not exist")
    if cosigned is None:
        raise Undecided(Code.LOG_PENDING)
    note = cosigned[1]
    checkpoint = parse_checkpoint(parse_note(note).text)
    node = node_of_tiles(reader.tile, checkpoint.size)
    hashes = inclusion_proof(index, checkpoint.size, node)
    if not verify_inclusion(index, checkpoint.size, node(0, index), hashes, checkpoint.root):
        raise StoreCorrupt(f"the hashes do not lead from leaf {index} to the checkpoint of {checkpoint.size} leaves")
    return Proof(index, hashes, note).to_bytes()


class StoredFiles:
    """The log's public files, for a command that reads the database without the service. `place` is the path of a
    SQLite file, or `postgresql://...`. The newest checkpoint is the last one that reached the quorum. The command
    verifies these files like those of any other source."""

    def __init__(self, place: str) -> None:
        """Connect. Raises SetupError, and Undecided(`log.unavailable`) if the database fails."""
        self.name = "the PostgreSQL database" if place.startswith(SCHEME) else place  # no password
        try:
            self._reading = reading_at(place)
        except StoreFailed as error:
            raise _unavailable(error) from None
        self.reader = Reader(self._reading)

    def close(self) -> None:
        """Disconnect."""
        self._reading.close()

    def read(self, path: str, max_bytes: int) -> bytes | None:  # noqa: ARG002  (files here are always smaller)
        """Return the file at a path under the log's prefix; None if it does not exist."""
        try:
            if path == "checkpoint":
                cosigned = self.reader.last_cosigned()
                return None if cosigned is None else cosigned[1]
            tile = parse_tile_path(path)
            return None if tile is None else _read(tile, self.reader)
        except StoreCorrupt:  # the path is beyond the tree
            return None
        except (StoreFailed, FormatError) as error:
            raise _unavailable(error) from None


def _unavailable(error: Exception) -> Undecided:
    return Undecided(Code.LOG_UNAVAILABLE, f"the log's database: {error}")
