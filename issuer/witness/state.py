"""What a witness must never forget: for each log the checkpoint that it cosigned last. One SQLite file.

A rollback journal, and `synchronous=EXTRA`: with less, SQLite may undo its last commit after a power failure, because
the folder does not know yet that the journal is gone. Weighed: WAL, which has one write less for each commit and two
files more to lose.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import SetupError

# "wtns": that a file is a witness's, so that no other database is ever taken for an empty one (sqlite.org/pragma.html).
_APPLICATION_ID = 0x77746E73
_VERSION = 1
_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_VERSION};
BEGIN;
CREATE TABLE witness (name TEXT NOT NULL) STRICT;
CREATE TABLE latest (origin TEXT PRIMARY KEY, size INTEGER NOT NULL, root BLOB NOT NULL, note BLOB NOT NULL) STRICT;
CREATE TABLE forks (
  origin TEXT NOT NULL, size INTEGER NOT NULL, root BLOB NOT NULL, note BLOB NOT NULL, PRIMARY KEY (origin, size, root)
) STRICT;
"""
# How long another process, as a backup, may hold the file.
_BUSY_S = 5.0
# Kept for each log: the first of them is proof enough.
_MAX_FORKS = 16


class NotKept(Exception):
    """It is not certain what is on the disk: nothing may be signed."""


class Latest(Struct, frozen=True):
    """The checkpoint of a log that was cosigned last. `note` has the log's signatures and no others."""

    size: int
    root: bytes
    note: bytes


class State:
    """The state of one witness. One thread at a time; several processes are safe."""

    def __init__(self, path: Path) -> None:
        """Open a state that `create` has made. Raises SetupError: a witness without its memory would sign a fork."""
        with ExitStack() as refused:
            try:
                self._database = sqlite3.connect(
                    f"{path.absolute().as_uri()}?mode=rw",
                    timeout=_BUSY_S,
                    isolation_level=None,
                    check_same_thread=False,
                    uri=True,
                )
                refused.callback(self._database.close)
                self._database.execute("PRAGMA synchronous = EXTRA")
                self.name = self._name()
            except sqlite3.Error as error:
                raise SetupError(Code.WITNESS_STATE, f"{path}: {error}") from None
            if not self.name:
                detail = f"{path} is not the state of a witness, or has a form not known here"
                raise SetupError(Code.WITNESS_STATE, detail)
            refused.pop_all()

    def _name(self) -> str:
        """Return the name of the witness; "" where the file is none's, or of another version."""
        marks = [self._database.execute(f"PRAGMA {mark}").fetchone()[0] for mark in ("application_id", "user_version")]
        if marks != [_APPLICATION_ID, _VERSION]:
            return ""
        return str(self._database.execute("SELECT name FROM witness").fetchone()[0])

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the state until the block ends: what it keeps is on the disk after it, or nothing is. Raises NotKept."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            finally:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise NotKept(str(error)) from error

    def latest(self, origin: str) -> Latest | None:
        """Return what was cosigned last for a log, if anything was."""
        row = self._database.execute("SELECT size, root, note FROM latest WHERE origin = ?", (origin,)).fetchone()
        return None if row is None else Latest(*row)

    def keep(self, origin: str, latest: Latest) -> None:
        """Remember a checkpoint, within a `turn`. It must extend the one before."""
        row = (origin, latest.size, latest.root, latest.note)
        self._database.execute("INSERT OR REPLACE INTO latest VALUES (?, ?, ?, ?)", row)

    def keep_fork(self, origin: str, other: Latest) -> None:
        """Remember, within a `turn`, that a log signed another tree of a size that was cosigned."""
        (known,) = self._database.execute("SELECT count(*) FROM forks WHERE origin = ?", (origin,)).fetchone()
        if known < _MAX_FORKS:
            row = (origin, other.size, other.root, other.note)
            self._database.execute("INSERT OR IGNORE INTO forks VALUES (?, ?, ?, ?)", row)

    def forks(self, origin: str) -> list[Latest]:
        """Return what a log signed against what was cosigned."""
        rows = self._database.execute("SELECT size, root, note FROM forks WHERE origin = ? ORDER BY size", (origin,))
        return [Latest(*row) for row in rows]

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()


def create(path: Path, name: str) -> None:
    """Make the empty state of a witness. Raises FileExistsError, OSError and SetupError."""
    path.touch(0o600, exist_ok=False)
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute("PRAGMA synchronous = EXTRA")
        database.executescript(_SCHEMA)
        database.execute("INSERT INTO witness VALUES (?)", (name,))
        database.execute("COMMIT")
    except sqlite3.Error as error:
        raise SetupError(Code.WITNESS_STATE, f"{path}: {error}") from None
    finally:
        database.close()
