"""Connections to the log's database that only read, one in each of a few threads that are theirs alone.

A reader must not be fooled by an old copy of the database that was put back, or by a file or server that was replaced
under it: what this process has seen of the log stays, and connections are opened anew now and then. Whatever fails is
503 `dependency.log_read`: it says nothing of what is in the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError, Undecided
from issuer.service.background import OwnThreads
from issuer.service.bounds import COUNT_S, LOG_READERS, LOG_READING_S
from issuer.service.log.store import Head, Reader, Reading, StoreCorrupt, StoreFailed

T = TypeVar("T")
_log = structlog.get_logger("issuer")


class _Open(Struct, frozen=True):
    """A connection, and when it was opened: seconds of the monotonic clock."""

    reading: Reading
    since: float


class _Own(threading.local):
    """What one thread has."""

    open: _Open | None = None


class Readers:
    """The readers of one log; `connect` connects the thread that calls it, anew when a connection is `oldest_s` old.
    `run` belongs to one event loop, and the rest to the threads that it runs work in."""

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

    def look(self, read: Callable[[Reader], T], *, anew: bool = False) -> T:
        """Return what `read` finds; `anew`, by a connection that was opened just now.

        Raises what it raises, and Undecided(`dependency.log_read`) in place of StoreFailed and FormatError.
        """
        try:
            return read(self._reader(anew=anew))
        except (StoreFailed, FormatError) as error:
            self.let_go()
            self._tell(error)
            raise Undecided(Code.DEPENDENCY_LOG_READ) from error

    def let_go(self) -> None:
        """Disconnect the thread that calls this."""
        own, self._own.open = self._own.open, None
        if own is not None:
            own.reading.close()

    def committed(self, size: int) -> bool:
        """Say whether the log has a tree of so many leaves. Raises Undecided(`dependency.log_read`)."""
        if (seen := self._seen) is not None and size <= seen.size:
            return True  # it only grows
        return size <= self.look(self._head).size

    def _reader(self, *, anew: bool) -> Reader:
        own = self._own.open
        if own is None or anew or time.monotonic() - own.since > self._oldest_s:
            self.let_go()
            own = self._own.open = _Open(self._connect(), time.monotonic())
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
