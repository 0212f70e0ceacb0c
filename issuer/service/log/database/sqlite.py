"""The log's database in a SQLite file, with one writing sequencer and read-only readers.

WAL with `synchronous=FULL`: a COMMIT returns when its pages are synced. Only the sequencer's connection checkpoints the
write-ahead log into the database file, between two batches, because before SQLite 3.51.3 two connections that do so can
lose committed pages. Any other change of the file therefore means that somebody put an old copy in its place. Network
file systems are not supported: their locks and syncs are not reliable.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from issuer.io import files
from issuer.service.log.bounds import LOG_BATCH_PAGES, LOG_LOCK_S, LOG_PAGE_ROWS, LOG_WAL_PAGES
from issuer.service.log.database.store import Database, Dialect, OutcomeUnknown, StoreFailed, Values, absent

DIALECT = Dialect(integer="INTEGER", octets="BLOB", clustered="WITHOUT ROWID", for_update="", mark="?")

# Device, inode, size and modification time of the database file; device and inode of its write-ahead log.
Identity: TypeAlias = tuple[int, ...]
# Connections to replaced files, kept until the process ends: Python closes a connection without a reference, and to
# close one would change the file that has the name now.
_ABANDONED: list[sqlite3.Connection] = []


class SqliteReading:
    """Implements `store.ReadConnection`, for the thread that makes it. Every statement is a transaction. Raises
    StoreFailed if the file does not exist."""

    dialect = DIALECT
    _opened: sqlite3.Connection | None = None

    def __init__(self, path: Path) -> None:
        with _FAILING:
            self._opened = _connect(path, "ro")

    def fetch(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Return all rows. Raises StoreFailed."""
        with _FAILING:
            return self._connection.execute(statement, values).fetchall()

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            raise StoreFailed("not connected")
        return self._opened


class SqliteDatabase(SqliteReading, Database):
    """Implements `store.Database`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.place = str(path)
        self._identity: Identity = ()
        self._ahead = 0  # about how many pages the write-ahead log has

    def open(self, *, create: bool = False) -> None:
        """Connect, and checkpoint the whole write-ahead log, synced. Raises SetupError and StoreFailed. After a failed
        fsync a page may be in the system's cache but not on the disk: this writes it again."""
        if not create and not self._path.is_file():
            raise absent(self.place)
        with _FAILING:
            if create:
                with suppress(FileExistsError):
                    files.create(self._path, b"", shared=True)  # root may run the command, another user the service
            before, self._identity = self._file(), ()
            self._opened = _connect(self._path, "rw")
            self._set("journal_mode", "wal", "wal")
            self._set("synchronous", "full", 2)
            self._set("fullfsync", "on", 1)  # macOS, where fsync alone does not reach the disk
            self._set("wal_autocheckpoint", "0", 0)
            # The write-ahead log keeps its size and is overwritten: a sync without a change of size takes a fifth of
            # the time (measured).
            self._set("journal_size_limit", "-1", -1)
            self._checkpoint("TRUNCATE")
            _sync_folder(self._path.parent)
            if self._file()[:2] != before[:2]:
                raise StoreFailed("the file was replaced while it was opened")

    def close(self) -> None:
        """Disconnect. SQLite then checkpoints into the file, so a connection to a replaced file is abandoned."""
        connection, self._opened = self._opened, None
        if connection is None:
            return
        with suppress(sqlite3.Error):
            connection.rollback()
        if self._identity and self.is_another():
            _ABANDONED.append(connection)
        else:
            connection.close()

    def is_another(self) -> bool:
        """Return whether somebody else has changed or replaced the file."""
        try:
            return self._look() != self._identity
        except OSError:
            return True

    def is_empty(self) -> bool:
        """Return whether the file has no tables."""
        return not self.fetch("SELECT 1 FROM sqlite_master LIMIT 1")

    def begin(self) -> None:
        """Take the only lock for writing."""
        self.define("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Return when everything is synced. Raises OutcomeUnknown: after a failed sync the rows may appear later."""
        try:
            self.define("COMMIT")
        except StoreFailed as error:
            raise OutcomeUnknown(str(error)) from error
        self._ahead += LOG_BATCH_PAGES

    def define(self, statement: str) -> None:
        """Run a statement without values."""
        with _FAILING:
            self._connection.execute(statement)

    def write(self, statement: str, rows: Iterable[Values]) -> int:
        """Run a statement once for each row of values, and return the total number of changed rows."""
        with _FAILING:
            count = self._connection.executemany(statement, rows).rowcount
        self._ahead += count // LOG_PAGE_ROWS
        return count

    def tend(self) -> None:
        """Checkpoint the write-ahead log if it has grown large. Pages that readers use are left for later."""
        if self._ahead >= LOG_WAL_PAGES:
            self._ahead = 0
            with _FAILING:
                self._checkpoint("PASSIVE")

    def _set(self, name: str, value: str, is_then: object) -> None:
        """Set a PRAGMA and read it back, because SQLite ignores unknown ones."""
        self._connection.execute(f"PRAGMA {name} = {value}").fetchall()
        if self._connection.execute(f"PRAGMA {name}").fetchone() != (is_then,):
            raise StoreFailed(f"this SQLite does not support PRAGMA {name} = {value}")

    def _checkpoint(self, mode: str) -> None:
        busy, _, _ = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        if busy and mode != "PASSIVE":
            raise StoreFailed("readers use pages of the write-ahead log")
        self._identity = self._look()

    def _file(self) -> Identity:
        status = os.stat(self._path)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def _look(self) -> Identity:
        wal = os.stat(f"{self._path}-wal")
        return *self._file(), wal.st_dev, wal.st_ino


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """Connect without Python's implicit transactions: our transactions take their lock when they begin."""
    place = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(place, uri=True, timeout=LOG_LOCK_S, isolation_level=None)


def _sync_folder(folder: Path) -> None:
    """Make the name of the write-ahead log durable. SQLite does so at its first sync, but ignores a failure (measured):
    then a power cut would lose every COMMIT since."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        files.sync_folder(descriptor)
    finally:
        os.close(descriptor)


class _Failing:
    """Raises errors of a block as StoreFailed. A batch has eight such blocks: with a generator they would take a tenth
    of its CPU time."""

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error | OSError):
            raise StoreFailed(f"{type(error).__name__}: {error}") from error


_FAILING = _Failing()
