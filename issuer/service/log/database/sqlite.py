"""The log's database in a SQLite file: one sequencer that writes, and readers that never do.

WAL with `synchronous=FULL`: a COMMIT returns when its pages are synced. What was written ahead is put into the database
file by the sequencer's connection alone, between two of its batches: in versions before 3.51.3 two connections that do
so lose committed pages. So between two such moments nobody changes the file, and a change is an old copy that was put
there, by a new name or over the old bytes. Not for network file systems, whose locks and syncs are promises of others.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from issuer.io import files
from issuer.service.log.bounds import LOG_BATCH_PAGES, LOG_LOCK_S, LOG_PAGE_ROWS, LOG_WAL_PAGES
from issuer.service.log.database.store import Database, Dialect, OutcomeUnknown, StoreFailed, Values, absent

DIALECT = Dialect(integer="INTEGER", octets="BLOB", clustered="WITHOUT ROWID", for_update="", mark="?")

# The database file by device, inode, size and time of its last change; what is written ahead by the first two.
Identity: TypeAlias = tuple[int, ...]
# Connections to files that others have put away: to close one would touch the file that is there now, and one that
# nothing holds is closed. They end with the process.
_ABANDONED: list[sqlite3.Connection] = []


class SqliteReading:
    """Implements `store.Reading`, for the thread that makes it: every statement is a transaction.

    Raises StoreFailed where there is no log.
    """

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
        self._identity: Identity = ()
        self._ahead = 0  # pages, about

    @property
    def place(self) -> str:
        """The path of the file."""
        return str(self._path)

    def open(self, *, create: bool = False) -> None:
        """Connect, and put everything that was written ahead into the file, synced. Raises SetupError and StoreFailed.
        After a failed fsync a page may look written and not be on the disk: this writes it once more."""
        if not create and not self._path.is_file():
            raise absent(self.place)
        with _FAILING:
            if create:
                with suppress(FileExistsError):
                    files.create(self._path, b"", shared=True)  # root's command, and the service of another user
            before, self._identity = self._file(), ()
            self._opened = _connect(self._path, "rw")
            self._set("journal_mode", "wal", "wal")
            self._set("synchronous", "full", 2)
            self._set("fullfsync", "on", 1)  # macOS, where fsync alone does not reach the disk
            self._set("wal_autocheckpoint", "0", 0)
            # What is written ahead lies in a file that keeps its size and is written over: a sync that changes no size
            # takes a disk a fifth of the time (measured).
            self._set("journal_size_limit", "-1", -1)
            self._checkpoint("TRUNCATE")
            _sync_folder(self._path.parent)
            if self._file()[:2] != before[:2]:
                raise StoreFailed("the file was replaced while it was opened")

    def close(self) -> None:
        """Disconnect. SQLite then puts what was written ahead into the file: not where that is another one by now."""
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
        """Say whether the file is not what this connection made of it."""
        try:
            return self._look() != self._identity
        except OSError:
            return True

    def is_empty(self) -> bool:
        """Say whether the file has no table yet."""
        return not self.fetch("SELECT 1 FROM sqlite_master LIMIT 1")

    def begin(self) -> None:
        """Take the only lock for writing."""
        self.define("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Return when everything is synced. Raises OutcomeUnknown: what failed to be synced may yet be there later."""
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
        """Run a statement once for each of the rows, and return how many rows that has changed in all."""
        with _FAILING:
            count = self._connection.executemany(statement, rows).rowcount
        self._ahead += count // LOG_PAGE_ROWS
        return count

    def tend(self) -> None:
        """Put what was written ahead into the file, where it has become much. What readers look at stays for later."""
        if self._ahead >= LOG_WAL_PAGES:
            self._ahead = 0
            with _FAILING:
                self._checkpoint("PASSIVE")

    def _set(self, name: str, value: str, is_then: object) -> None:
        """Set a PRAGMA, and demand that it is set: SQLite passes over what it does not know."""
        self._connection.execute(f"PRAGMA {name} = {value}").fetchall()
        if self._connection.execute(f"PRAGMA {name}").fetchone() != (is_then,):
            raise StoreFailed(f"this SQLite does not take PRAGMA {name} = {value}")

    def _checkpoint(self, how: str) -> None:
        busy, _, _ = self._connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
        if busy and how != "PASSIVE":
            raise StoreFailed("readers hold what was written ahead")
        self._identity = self._look()

    def _file(self) -> Identity:
        found = os.stat(self._path)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _look(self) -> Identity:
        ahead = os.stat(f"{self._path}-wal")
        return *self._file(), ahead.st_dev, ahead.st_ino


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """Connect without Python's own transactions: ours begin with their lock."""
    place = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(place, uri=True, timeout=LOG_LOCK_S, isolation_level=None)


def _sync_folder(folder: Path) -> None:
    """Make the name of what is written ahead durable: SQLite does so when it first syncs that file, and passes over a
    failure (measured). After a power cut every COMMIT since then would be gone."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        files.sync_folder(descriptor)
    finally:
        os.close(descriptor)


class _Failing:
    """Makes StoreFailed of what fails in a block. Eight blocks of a batch: a generator would be a tenth of its CPU."""

    def __enter__(self) -> None:
        """Nothing is to be done."""

    def __exit__(self, _: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, sqlite3.Error | OSError):
            raise StoreFailed(f"{type(error).__name__}: {error}") from error


_FAILING = _Failing()
