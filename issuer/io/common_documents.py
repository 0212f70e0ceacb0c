"""Documents that all hosts of an issuer share: key history, record of revocations, signed list of revocations.

    key-history.jsonl       the history of the signing keys: events, with the person and the reason
    revocations.jsonl       the record of revocations, with the person and the reason
    revocations.jwt         the signed list of revocations that the service publishes
    revocation-keys.json    the JWK set with the key that signs this list

They are in one of two homes: files in the data folder, which several hosts must then share, or the log's PostgreSQL
database (log/database/postgres.py). Moving them to the database leaves a file `moved-to-log` in the folder, so the
service refuses the old files there. This file does not know the content of the documents.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from issuer.io import files
from issuer.io.bounds import MAX_RECORD_BYTES
from issuer.io.followed import look_at

HISTORY, RECORD, LIST, KEYS = "key-history.jsonl", "revocations.jsonl", "revocations.jwt", "revocation-keys.json"
# The names of the turns to write, and the documents that each turn may write.
TURNS = {HISTORY: (HISTORY,), RECORD: (RECORD, LIST, KEYS)}
# The file that names the new home after a move.
MOVED = "moved-to-log"


class Turn(Protocol):
    """The actions of the process that has the turn. They are durable when the turn ends without an error."""

    def read(self, name: str, most: int) -> bytes | None:
        """Return a document, as `Home.read` does."""

    def append(self, name: str, raw: bytes) -> None:
        """Add lines to a document, which is made if it is missing. Raises OSError."""

    def replace(self, name: str, raw: bytes) -> None:
        """Write or replace a document. Raises OSError."""


class Home(Protocol):
    """A place for the documents. Its calls block, and any thread may make them. Errors name the document's place."""

    def place(self, name: str) -> str:
        """Return a document's place, for people."""

    def look(self, *names: str) -> Hashable:
        """Return a fingerprint of documents, which changes with every write. Never raises."""

    def read(self, name: str, most: int) -> bytes | None:
        """Return a document, or None if it never existed. Raises InputError (larger than `most` bytes) or OSError."""

    def turn(self, name: str, wait_s: float | None = None) -> AbstractContextManager[Turn]:
        """Take the turn to write, which one process on all hosts has at a time. A dead process loses its turn.

        Wait for the turn, or raise BlockingIOError after `wait_s`. Raises OSError if nothing can be written; at the end
        of the turn, also if it is unknown whether everything was written.
        """

    def close(self) -> None:
        """Close all connections and files."""


class FolderHome:
    """Files in a folder. Each write replaces a file, so a crash leaves the old file or the new one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def has_moved(self) -> bool:
        """Whether the documents have moved to another home. Raises OSError."""
        return _is_there(self.folder / MOVED)

    @property
    def is_empty(self) -> bool:
        """Whether the folder has neither a history nor a record. Raises OSError."""
        return not any(_is_there(self.folder / name) for name in TURNS)

    def place(self, name: str) -> str:
        """Return the path of the file."""
        return str(self.folder / name)

    def look(self, *names: str) -> Hashable:
        """Return a fingerprint of the files."""
        return tuple(look_at(self.place(name)) for name in (*names, MOVED))

    def read(self, name: str, most: int) -> bytes | None:
        """Return the content of a file, which must not be a link, and which no other user may replace."""
        self._demand_here(name)
        path = self.folder / name
        if not _is_there(path):
            return None
        content = files.read(path, most, follow=False)
        for guarded in (self.folder, path):
            files.demand_guarded(guarded, group=False, own=True)
        return content

    @contextmanager
    def turn(self, name: str, wait_s: float | None = None) -> Iterator[Turn]:
        """Hold the lock beside the file."""
        files.make_folder(self.folder, shared=True)
        with files.locked((self.folder / name).with_suffix(".lock"), shared=True, wait_s=wait_s):
            self._demand_here(name)
            yield self

    def append(self, name: str, raw: bytes) -> None:
        """Replace the file by one with more lines."""
        self.replace(name, (self.read(name, MAX_RECORD_BYTES) or b"") + raw)

    def replace(self, name: str, raw: bytes) -> None:
        """Replace the file."""
        files.replace(self.folder / name, raw, mode=0o600, durable=True, shared=True)

    def close(self) -> None:
        """Do nothing: no file is open between calls."""

    def leave(self, place: str) -> None:
        """Write the file that names the new home."""
        self.replace(MOVED, f"the history of the keys and the revocations have moved to: {place}\n".encode())

    def _demand_here(self, name: str) -> None:
        if self.has_moved:
            why = (
                f"it has moved to the log's database, which the file {MOVED} names: name this database in the settings"
            )
            raise OSError(errno.ESTALE, why, self.place(name))


def _is_there(path: Path) -> bool:
    """Say whether anything has this name. Raises OSError if the folder cannot be searched: that does not mean empty."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True
