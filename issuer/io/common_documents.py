"""Documents that all hosts of an issuer share: the history of its keys, what it has revoked, and the list of that.

    key-history.jsonl       what happened to each signing key, who did it and why
    revocations.jsonl       what was revoked, who did it and why
    revocations.jwt         the signed list of that, as it is served
    revocation-keys.json    the JWK set with the key of that list

There are two homes: files in the folder of data, which several hosts must then share; and, where the log is in
PostgreSQL, its database (log/database/postgres.py). Documents that have moved there leave a file behind, so
that nobody uses what was left in the folder. What the documents say is not known here.
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
# The turns, by name, and the documents that each of them writes.
TURNS = {HISTORY: (HISTORY,), RECORD: (RECORD, LIST, KEYS)}
# Says where everything has moved to.
MOVED = "moved-to-log"


class Turn(Protocol):
    """What the process that has the turn may do. All of it is durable when the turn ends without an error."""

    def read(self, name: str, most: int) -> bytes | None:
        """Return a document, as `Home.read` does."""

    def append(self, name: str, raw: bytes) -> None:
        """Add lines to a document, which is made if it is missing. Raises OSError."""

    def replace(self, name: str, raw: bytes) -> None:
        """Write a document anew. Raises OSError."""


class Home(Protocol):
    """Where the documents lie. Blocks; for any thread. Every error has the document's place, for people."""

    def place(self, name: str) -> str:
        """Say where a document lies."""

    def look(self, *names: str) -> Hashable:
        """Look at documents from outside: where two looks are equal, nothing was written in between. Raises nothing."""

    def read(self, name: str, most: int) -> bytes | None:
        """Return a document; None where there never was one. Raises InputError for one of more than `most` bytes, and
        OSError where it cannot be known what it says."""

    def turn(self, name: str, wait_s: float | None = None) -> AbstractContextManager[Turn]:
        """Take the turn to write, which one process of all hosts has at a time; a dead one has none.

        Waits for it, or raises BlockingIOError after `wait_s`. Raises OSError where nothing can be written, at the end
        also where that is not known.
        """

    def close(self) -> None:
        """Let go of what is open."""


class FolderHome:
    """Files in a folder, each written by replacing it: a crash leaves the old one or the new one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def has_moved(self) -> bool:
        """Whether everything lies elsewhere by now. Raises OSError."""
        return _is_there(self.folder / MOVED)

    @property
    def is_empty(self) -> bool:
        """Whether neither history nor record are here. Raises OSError."""
        return not any(_is_there(self.folder / name) for name in TURNS)

    def place(self, name: str) -> str:
        """Return the path of the file."""
        return str(self.folder / name)

    def look(self, *names: str) -> Hashable:
        """Look at the files."""
        return tuple(look_at(self.place(name)) for name in (*names, MOVED))

    def read(self, name: str, most: int) -> bytes | None:
        """Read a file. No link is followed."""
        self._demand_here(name)
        path = self.folder / name
        return files.read(path, most, follow=False) if _is_there(path) else None

    @contextmanager
    def turn(self, name: str, wait_s: float | None = None) -> Iterator[Turn]:
        """Hold the lock beside the file."""
        files.make_folder(self.folder, shared=True)
        with files.locked((self.folder / name).with_suffix(".lock"), shared=True, wait_s=wait_s):
            self._demand_here(name)
            yield self

    def append(self, name: str, raw: bytes) -> None:
        """Write the file anew, with more lines."""
        self.replace(name, (self.read(name, MAX_RECORD_BYTES) or b"") + raw)

    def replace(self, name: str, raw: bytes) -> None:
        """Replace the file."""
        files.replace(self.folder / name, raw, mode=0o600, durable=True, shared=True)

    def close(self) -> None:
        """Nothing is open."""

    def leave(self, place: str) -> None:
        """Say that everything has moved to a place."""
        self.replace(MOVED, f"the history of the keys and what is revoked have moved to: {place}\n".encode())

    def _demand_here(self, name: str) -> None:
        if self.has_moved:
            why = f"it has moved into the log's database, as {MOVED} beside it says: name that in the settings"
            raise OSError(errno.ESTALE, why, self.place(name))


def _is_there(path: Path) -> bool:
    """Say whether anything has this name. A folder that cannot be searched is no empty one: that raises OSError."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True
