"""The persistent state of a witness: the last checkpoint that it cosigned for each log, in one SQLite file.

The file has a rollback journal and `synchronous=EXTRA`. With less, SQLite may undo its last commit after a power
failure, because the journal's deletion is not yet on the disk. We considered WAL: it saves a write per commit, and adds
two files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import SetupError

# "wtns" identifies the file of a witness, so that no other database counts as an empty state (sqlite.org/pragma.html).
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
# Another process, such as a backup, may lock the file for this long.
_BUSY_S = 5.0
# Recorded forks for each log. The first one is enough proof.
_MAX_FORKS = 16


class NotKept(Exception):
    """The content of the disk is uncertain, so the witness must not sign."""


class Latest(Struct, frozen=True):
    """The last cosigned checkpoint of a log. `note` has only the log's signatures."""

    size: int
    root: bytes
    note: bytes


class WitnessState:
    """The state of one witness, for one thread at a time; several processes are safe."""

    def __init__(self, path: Path) -> None:
        """Open a state that `create` made. Raises SetupError: without its state, a witness could sign a fork."""
        uri = f"{path.absolute().as_uri()}?mode=rw"
        with ExitStack() as on_error:
            try:
                self._database = sqlite3.connect(
                    uri, timeout=_BUSY_S, isolation_level=None, check_same_thread=False, uri=True
                )
                on_error.callback(self._database.close)
                self._database.execute("PRAGMA synchronous = EXTRA")
                self.name = self._name()
            except sqlite3.Error as error:
                raise SetupError(Code.WITNESS_STATE, f"{path}: {error}") from None
            if not self.name:
                raise SetupError(Code.WITNESS_STATE, f"{path} is not a witness's state, or has an unknown version")
            on_error.pop_all()

    def _name(self) -> str:
        """Return the name of the witness; "" if the file is not a witness's state, or has another version."""
        marks = [self._database.execute(f"PRAGMA {mark}").fetchone()[0] for mark in ("application_id", "user_version")]
        if marks != [_APPLICATION_ID, _VERSION]:
            return ""
        return str(self._database.execute("SELECT name FROM witness").fetchone()[0])

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Run the block in a transaction: after it, all its changes are on the disk, or none. Raises NotKept."""
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
        """Return the last cosigned checkpoint of a log, or None."""
        row = self._database.execute("SELECT size, root, note FROM latest WHERE origin = ?", (origin,)).fetchone()
        return None if row is None else Latest(*row)

    def keep(self, origin: str, latest: Latest) -> None:
        """Record a checkpoint, within a `turn`. It must extend the last one."""
        row = (origin, latest.size, latest.root, latest.note)
        self._database.execute("INSERT OR REPLACE INTO latest VALUES (?, ?, ?, ?)", row)

    def keep_fork(self, origin: str, other: Latest) -> None:
        """Record, within a `turn`, that a log signed another tree of a cosigned size."""
        (count,) = self._database.execute("SELECT count(*) FROM forks WHERE origin = ?", (origin,)).fetchone()
        if count < _MAX_FORKS:
            row = (origin, other.size, other.root, other.note)
            self._database.execute("INSERT OR IGNORE INTO forks VALUES (?, ?, ?, ?)", row)

    def forks(self, origin: str) -> list[Latest]:
        """Return the recorded forks of a log."""
        rows = self._database.execute("SELECT size, root, note FROM forks WHERE origin = ? ORDER BY size", (origin,))
        return [Latest(*row) for row in rows]

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def create(path: Path, name: str) -> None:
    """Create the empty state of a witness. Raises FileExistsError, OSError and SetupError."""
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
