"""What the log keeps, and every statement that reads or writes it; what differs between databases is theirs to say.

    head       one row: the version of these tables, the origin, and size, root and peaks (the compact range, from left
               to right) of the tree
    entries    a leaf at its index, with what it is found by: a token by `iat` and `token`, an announcement by its name
    hashes     level 0: the hashes of leaves; level L: the roots of full subtrees of 256^L leaves
    cosigned   the checkpoints that have reached the witnesses' quorum, as signed notes

Rows are only ever added, but for that of the head. Knows no key, no lock of its own, and not what a leaf says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.service.log.bounds import LOG_LOOKED_UP
from issuer.tlog.merkle import HASH_BYTES, Peaks
from issuer.tlog.tiles import WIDTH, TileHash

Values: TypeAlias = Sequence[int | str | bytes | None]


class StoreFailed(Exception):
    """The database did not do what it was asked for, and nothing was committed. Its connection is not used again."""


class OutcomeUnknown(StoreFailed):
    """A COMMIT was asked for and not confirmed: what was to be written is there, or is not."""


class StoreCorrupt(StoreFailed):
    """The database answers with what nobody wrote there: a row is missing, or is not what its column is for."""


def absent(place: str) -> SetupError:
    """Make the error for a place where no log is. Whether one was there before only the operator knows."""
    again = "If one was there, `issuer log restore SOURCE` brings it back"
    return SetupError(Code.LOG_ABSENT, f"there is no log at {place}. {again}; `issuer log init` begins the first one")


def another(place: str, origin: str, wanted: str) -> SetupError:
    """Make the error for a place where another log is than the settings name."""
    detail = f"the log at {place} is that of {origin}; the settings name {wanted}. Correct log.origin, or log.database"
    return SetupError(Code.LOG_ABSENT, f"{detail}; in another place `issuer log init` begins another log")


class Dialect(Struct, frozen=True):
    """The words of one database: its types, what keeps a table in the order of its key, what locks a selected row until
    the end of the transaction, and the mark of a value."""

    integer: str
    octets: str
    clustered: str
    for_update: str
    mark: str


_WORD = re.compile(r"\{(integer|octets|clustered|for_update)\}|\?")


@lru_cache(256)
def in_dialect(words: Dialect, statement: str) -> str:
    """Put the words into a statement, in the places of `{word}` and of each `?`."""
    return _WORD.sub(lambda found: getattr(words, found[1]) if found[1] else words.mark, statement)


class Reading(Protocol):
    """A connection that only reads."""

    dialect: Dialect

    def fetch(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Return all rows. Raises StoreFailed."""

    def close(self) -> None:
        """Disconnect, if connected; what was begun is undone. Raises nothing."""


class Database(Reading, Protocol):
    """The sequencer's connection, in one thread. Each method raises StoreFailed; after that only `close` may be called,
    and then `open`."""

    @property
    def place(self) -> str:
        """Where the database is, for people: never a password."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator should know of a database that is open."""
        return ()

    def open(self, *, create: bool = False) -> None:
        """Connect, and make sure that what is committed, and was committed before as far as is known, is on the disk.
        Raises SetupError for a database that is not fit to hold a log; without `create`, also where there is none."""

    def is_another(self) -> bool:
        """Say whether what is open may not be what was opened: another file is there, another server answers."""

    def is_empty(self) -> bool:
        """Say whether nothing was ever made here."""

    def begin(self) -> None:
        """Begin to write. The head's row, once it is selected with `{for_update}`, stays the same until the end."""

    def commit(self) -> None:
        """Return when everything is on the disk. Raises OutcomeUnknown in any doubt."""

    def rollback(self) -> None:
        """Undo what was begun."""
        self.define("ROLLBACK")

    def define(self, statement: str) -> None:
        """Run a statement without values."""

    def write(self, statement: str, rows: Iterable[Values]) -> int:
        """Run a statement once for each of the rows, and return how many rows that has changed in all."""

    def tend(self) -> None:
        """Do what is due now and then, while nobody waits for an answer."""


class Head(Struct, frozen=True):
    """A tree of the log: its origin line, its root (32 bytes), and its peaks."""

    origin: str
    root: bytes
    peaks: Peaks

    @property
    def size(self) -> int:
        """The number of its leaves."""
        return self.peaks.size


class Key(Struct, frozen=True):
    """What a leaf is found by, and there once by: `iat` and `token` (32 bytes) of a token, or else its `name`."""

    kind: str
    iat: int | None = None
    token: bytes | None = None
    name: bytes | None = None


class Entry(Struct, frozen=True):
    """A leaf, its hash, and what it is found by."""

    key: Key
    leaf: bytes
    hash: bytes


# No index over names where there is none: tokens, of which there are a thousand times as many, have none. And none over
# digests alone, which are random: at 3 million rows that costs three quarters of the leaves a second (measured).
VERSION = 1
SCHEMA = (
    "CREATE TABLE head (one {integer} PRIMARY KEY CHECK (one = 1), version {integer} NOT NULL, origin TEXT NOT NULL, "
    "size {integer} NOT NULL, root {octets} NOT NULL, peaks {octets} NOT NULL)",
    "CREATE TABLE entries (idx {integer} PRIMARY KEY, kind TEXT NOT NULL, leaf {octets} NOT NULL, iat {integer}, "
    "token {octets}, name {octets})",
    "CREATE UNIQUE INDEX entries_token ON entries (iat, token) WHERE token IS NOT NULL",
    "CREATE UNIQUE INDEX entries_name ON entries (kind, name) WHERE name IS NOT NULL",
    "CREATE TABLE hashes (level {integer} NOT NULL, idx {integer} NOT NULL, hash {octets} NOT NULL, "
    "PRIMARY KEY (level, idx)) {clustered}",
    "CREATE TABLE cosigned (size {integer} PRIMARY KEY, note {octets} NOT NULL)",
)
_BEGIN_HEAD = "INSERT INTO head (one, version, origin, size, root, peaks) VALUES (1, ?, ?, ?, ?, ?)"
_HEAD = "SELECT version, origin, size, root, peaks FROM head WHERE one = 1"
_LOCK_HEAD = _HEAD + " {for_update}"
_MOVE_HEAD = "UPDATE head SET size = ?, root = ?, peaks = ? WHERE one = 1 AND origin = ? AND size = ? AND root = ?"
_ADD_ENTRY = "INSERT INTO entries (idx, kind, leaf, iat, token, name) VALUES (?, ?, ?, ?, ?, ?)"
_ADD_HASH = "INSERT INTO hashes (level, idx, hash) VALUES (?, ?, ?)"
_TILE = "SELECT hash FROM hashes WHERE level = ? AND idx >= ? AND idx < ? ORDER BY idx"
_LEAVES = "SELECT leaf FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx"
_PLACE = "SELECT idx FROM entries WHERE iat = ? AND token = ?"
# A join, and in this order: `(iat, token) IN (VALUES ...)` makes SQLite look at every entry.
_PLACES = (
    "WITH wanted (iat, token) AS (VALUES ...) SELECT entries.iat, entries.token, idx FROM wanted CROSS JOIN entries "
    "WHERE entries.iat = wanted.iat AND entries.token = wanted.token"
)
_NAMED = "SELECT idx FROM entries WHERE kind = ? AND name = ?"
_ADD_COSIGNED = "INSERT INTO cosigned (size, note) VALUES (?, ?) ON CONFLICT (size) DO NOTHING"
_COSIGNED_OVER = "SELECT size, note FROM cosigned WHERE size >= ? ORDER BY size LIMIT 1"
_LAST_COSIGNED = "SELECT size, note FROM cosigned ORDER BY size DESC LIMIT 1"


class Reader:
    """What anybody may ask of the log. Each method is one statement, so none holds a transaction; each raises
    StoreFailed."""

    def __init__(self, database: Reading) -> None:
        self._reading = database

    def head(self) -> Head | None:
        """Return the committed head; None where no log was begun."""
        return self._head(_HEAD)

    def tile(self, level: int, index: int, width: int = WIDTH) -> bytes:
        """Return the first `width` hashes of a tile (tlog-tiles). Raises StoreCorrupt where one is not there."""
        first = index * WIDTH
        return b"".join(self._column(_TILE, (level, first, first + width), width))

    def leaves(self, first: int, count: int) -> tuple[bytes, ...]:
        """Return so many leaves in their order, from the `first` on. Raises StoreCorrupt where one is not there."""
        return self._column(_LEAVES, (first, first + count), count)

    def index_of_token(self, iat: int, token: bytes) -> int | None:
        """Return where the leaf of a token is; None where it is not in the log."""
        found = self._fetch(_PLACE, (iat, token))
        return int(found[0][0]) if found else None

    def cosigned_over(self, size: int) -> tuple[int, bytes] | None:
        """Return the first cosigned checkpoint of a tree of at least this size: its size, and the note."""
        return self._cosigned(_COSIGNED_OVER, (size,))

    def last_cosigned(self) -> tuple[int, bytes] | None:
        """Return the cosigned checkpoint of the largest tree."""
        return self._cosigned(_LAST_COSIGNED)

    def _cosigned(self, statement: str, values: Values = ()) -> tuple[int, bytes] | None:
        found = self._fetch(statement, values)
        return (int(found[0][0]), bytes(found[0][1])) if found else None

    def _head(self, statement: str) -> Head | None:
        found = self._fetch(statement)
        if not found:
            return None
        try:
            version, origin, size, root, peaks = msgspec.convert(found[0], tuple[int, str, int, bytes, bytes])
        except msgspec.ValidationError as error:
            raise StoreCorrupt(f"the head's row: {error}") from error
        if version != VERSION:
            raise StoreCorrupt(f"its tables have version {version}, and this installation knows {VERSION}")
        if len(peaks) % HASH_BYTES:
            raise StoreCorrupt("the head's peaks are no hashes")
        hashes = tuple(peaks[at : at + HASH_BYTES] for at in range(0, len(peaks), HASH_BYTES))
        return Head(origin, root, Peaks(size, hashes))

    def _column(self, statement: str, values: Values, count: int) -> tuple[bytes, ...]:
        found = tuple([bytes(row[0]) for row in self._fetch(statement, values)])
        if len(found) != count:
            raise StoreCorrupt(f"{len(found)} rows of {count} from {values}")
        return found

    def _fetch(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        return self._reading.fetch(in_dialect(self._reading.dialect, statement), values)


class Store(Reader):
    """What the sequencer alone may do. It calls the methods below `begin` only between that and the end of it."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.database = database

    def create(self, head: Head) -> None:
        """Begin a log whose tree is empty, where none was begun."""
        for statement in SCHEMA:
            self.database.define(in_dialect(self.database.dialect, statement))
        self._write(_BEGIN_HEAD, [(VERSION, head.origin, head.size, head.root, b"".join(head.peaks.hashes))])

    def begin(self) -> Head | None:
        """Lock the head, and return it."""
        self.database.begin()
        return self._head(_LOCK_HEAD)

    def indexes_of(self, keys: Iterable[Key]) -> dict[Key, int]:
        """Return where each of these leaves is, as far as it is there."""
        wanted = list(keys)
        tokens = [key for key in wanted if key.token is not None]
        found = self._indexes_of_tokens(tokens) if tokens else {}
        for key in wanted:
            if key.token is None and (rows := self._fetch(_NAMED, (key.kind, key.name))):
                found[key] = int(rows[0][0])
        return found

    def append(self, before: Head, after: Head, entries: Sequence[Entry], hashes: Iterable[TileHash]) -> None:
        """Add leaves behind those of the tree `before`, and every hash that its tiles gain. Raises StoreCorrupt where
        the head is not `before`: the lock did not hold."""
        numbered = enumerate(entries, before.size)
        rows = [(at, e.key.kind, e.leaf, e.key.iat, e.key.token, e.key.name) for at, e in numbered]
        self._write(_ADD_ENTRY, rows)
        self._write(_ADD_HASH, hashes)
        moved = (after.size, after.root, b"".join(after.peaks.hashes), before.origin, before.size, before.root)
        if self._write(_MOVE_HEAD, [moved]) != 1:
            raise StoreCorrupt("the head has moved under its lock")

    def keep_cosigned(self, size: int, note: bytes) -> None:
        """Keep a checkpoint that has reached the quorum, unless there is one of this size: the first stays."""
        self._write(_ADD_COSIGNED, [(size, note)])

    def _indexes_of_tokens(self, keys: Sequence[Key]) -> dict[Key, int]:
        of = {(key.iat, key.token): key for key in keys}
        found: dict[Key, int] = {}
        for start in range(0, len(keys), LOG_LOOKED_UP):
            some = keys[start : start + LOG_LOOKED_UP]
            statement = _PLACES.replace("...", ", ".join(["(?, ?)"] * len(some)))
            values = [value for key in some for value in (key.iat, key.token)]
            found |= {of[iat, bytes(token)]: int(index) for iat, token, index in self._fetch(statement, values)}
        return found

    def _write(self, statement: str, rows: Iterable[Values]) -> int:
        return self.database.write(in_dialect(self.database.dialect, statement), rows)
