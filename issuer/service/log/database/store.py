"""The tables of the log, and all statements that read or write them, for any database.

    head       one row: the version of these tables, the origin, and size, root and peaks (the compact range, from left
               to right) of the tree
    entries    a leaf at its index, with its key: `iat` and `token` of a token, the name of an announcement
    hashes     level 0: the hashes of leaves; level L: the roots of full subtrees of 256^L leaves
    cosigned   the checkpoints that have reached the witnesses' quorum, as signed notes

Only the head's row changes; all others are only added. This code does not sign, and does not interpret leaves.
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
    """The database failed before a commit. The connection must not be used again."""


class OutcomeUnknown(StoreFailed):
    """A COMMIT was sent and not confirmed: the rows may be in the database or not."""


class StoreCorrupt(StoreFailed):
    """The database has impossible contents: a row is missing, or a column has a wrong value."""


def absent(place: str) -> SetupError:
    """Return the error for a place without a log. Only the operator knows whether there was one before."""
    todo = "If there was one, restore it with `issuer log restore SOURCE`; otherwise begin it with `issuer log init`"
    return SetupError(Code.LOG_ABSENT, f"there is no log at {place}. {todo}")


def another(place: str, origin: str, wanted: str) -> SetupError:
    """Return the error for a place with another log than the settings name."""
    detail = f"the log at {place} has the origin {origin}; the settings name {wanted}. Correct log.origin or"
    todo = "log.database; or begin another log in another place with `issuer log init`"
    return SetupError(Code.LOG_ABSENT, f"{detail} {todo}")


class Dialect(Struct, frozen=True):
    """The SQL of one database: its types, the suffix of a table that is stored in the order of its key, the suffix that
    locks a selected row until the end of the transaction, and the placeholder of a value."""

    integer: str
    octets: str
    clustered: str
    for_update: str
    mark: str


_WORD = re.compile(r"\{(integer|octets|clustered|for_update)\}|\?")


@lru_cache(256)
def in_dialect(words: Dialect, statement: str) -> str:
    """Replace each `{word}` and `?` of a statement with the words of a dialect."""
    return _WORD.sub(lambda found: getattr(words, found[1]) if found[1] else words.mark, statement)


class ReadConnection(Protocol):
    """A read-only connection."""

    dialect: Dialect

    def fetch(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Return all rows. Raises StoreFailed."""

    def close(self) -> None:
        """Disconnect, if connected, and roll back. Never raises."""


class Database(ReadConnection, Protocol):
    """The sequencer's connection, in one thread. Each method raises StoreFailed. After that the caller may only call
    `close`, and then `open`. `place` is the name of the database for people, without a password."""

    place: str

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings to the operator about an open database."""
        return ()

    def open(self, *, create: bool = False) -> None:
        """Connect, and make sure that everything committed so far is on the disk. Raises SetupError for a database that
        is unsafe for a log; without `create`, also if it does not have a log."""

    def is_another(self) -> bool:
        """Return whether the file or server may have been replaced since `open`."""

    def is_empty(self) -> bool:
        """Return whether the database has no tables."""

    def begin(self) -> None:
        """Begin a transaction. A head's row that is selected with `{for_update}` is locked until COMMIT or ROLLBACK."""

    def commit(self) -> None:
        """Return when everything is on the disk. Raises OutcomeUnknown in any doubt."""

    def rollback(self) -> None:
        """Roll the transaction back."""
        self.define("ROLLBACK")

    def define(self, statement: str) -> None:
        """Run a statement without values."""

    def write(self, statement: str, rows: Iterable[Values]) -> int:
        """Run a statement once for each row of values, and return the total number of changed rows."""

    def tend(self) -> None:
        """Do periodic maintenance. The caller calls it between batches."""


class TreeHead(Struct, frozen=True):
    """A tree of the log: its origin line, its root (32 bytes), and its peaks."""

    origin: str
    root: bytes
    peaks: Peaks

    @property
    def size(self) -> int:
        """The number of leaves."""
        return self.peaks.size


class LeafKey(Struct, frozen=True):
    """The unique key of a leaf: `iat` and `token` (32 bytes) of a token, or the `name` of another leaf."""

    kind: str
    iat: int | None = None
    token: bytes | None = None
    name: bytes | None = None


class StoredLeaf(Struct, frozen=True):
    """A leaf with its key and its hash."""

    key: LeafKey
    leaf: bytes
    hash: bytes


# The index over names leaves out tokens, which have no name and are a thousand times as many. There is no index over
# digests alone: they are random, so at 3 million rows it would cost three quarters of the throughput (measured).
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
# A join, in this order, because `(iat, token) IN (VALUES ...)` makes SQLite scan every row.
_PLACES = (
    "WITH wanted (iat, token) AS (VALUES ...) SELECT entries.iat, entries.token, idx FROM wanted CROSS JOIN entries "
    "WHERE entries.iat = wanted.iat AND entries.token = wanted.token"
)
_NAMED = "SELECT idx FROM entries WHERE kind = ? AND name = ?"
_ADD_COSIGNED = "INSERT INTO cosigned (size, note) VALUES (?, ?) ON CONFLICT (size) DO NOTHING"
_COSIGNED_OVER = "SELECT size, note FROM cosigned WHERE size >= ? ORDER BY size LIMIT 1"
_LAST_COSIGNED = "SELECT size, note FROM cosigned ORDER BY size DESC LIMIT 1"


class Reader:
    """The public queries of the log. Each method is one statement, outside a transaction, and raises StoreFailed."""

    def __init__(self, database: ReadConnection) -> None:
        self._reading = database

    def head(self) -> TreeHead | None:
        """Return the committed head; None if no log was begun."""
        return self._head(_HEAD)

    def tile(self, level: int, index: int, width: int = WIDTH) -> bytes:
        """Return the first `width` hashes of a tile (tlog-tiles). Raises StoreCorrupt if one is missing."""
        first = index * WIDTH
        return b"".join(self._column(_TILE, (level, first, first + width), width))

    def leaves(self, first: int, count: int) -> tuple[bytes, ...]:
        """Return `count` leaves in order, beginning with the index `first`. Raises StoreCorrupt if one is missing."""
        return self._column(_LEAVES, (first, first + count), count)

    def index_of_token(self, iat: int, token: bytes) -> int | None:
        """Return the index of a token's leaf; None if it is not in the log."""
        rows = self._fetch(_PLACE, (iat, token))
        return int(rows[0][0]) if rows else None

    def cosigned_over(self, size: int) -> tuple[int, bytes] | None:
        """Return the first cosigned checkpoint of a tree of at least this size: its size, and the note."""
        return self._cosigned(_COSIGNED_OVER, (size,))

    def last_cosigned(self) -> tuple[int, bytes] | None:
        """Return the cosigned checkpoint of the largest tree."""
        return self._cosigned(_LAST_COSIGNED)

    def _cosigned(self, statement: str, values: Values = ()) -> tuple[int, bytes] | None:
        rows = self._fetch(statement, values)
        return (int(rows[0][0]), bytes(rows[0][1])) if rows else None

    def _head(self, statement: str) -> TreeHead | None:
        if not (rows := self._fetch(statement)):
            return None
        try:
            version, origin, size, root, peaks = msgspec.convert(rows[0], tuple[int, str, int, bytes, bytes])
        except msgspec.ValidationError as error:
            raise StoreCorrupt(f"the head's row: {error}") from error
        if version != VERSION:
            raise StoreCorrupt(f"its tables have version {version}; this installation knows only {VERSION}")
        if len(peaks) % HASH_BYTES:
            raise StoreCorrupt("the head's peaks are not hashes")
        hashes = tuple(peaks[at : at + HASH_BYTES] for at in range(0, len(peaks), HASH_BYTES))
        return TreeHead(origin, root, Peaks(size, hashes))

    def _column(self, statement: str, values: Values, count: int) -> tuple[bytes, ...]:
        rows = tuple([bytes(row[0]) for row in self._fetch(statement, values)])
        if len(rows) != count:
            raise StoreCorrupt(f"{len(rows)} rows of {count} from {values}")
        return rows

    def _fetch(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        return self._reading.fetch(in_dialect(self._reading.dialect, statement), values)


class LogStore(Reader):
    """The sequencer's queries and writes. It calls the methods after `begin` only within a transaction."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.database = database

    def create(self, head: TreeHead) -> None:
        """Make the tables, and begin a log with an empty tree."""
        for statement in SCHEMA:
            self.database.define(in_dialect(self.database.dialect, statement))
        self._write(_BEGIN_HEAD, [(VERSION, head.origin, head.size, head.root, b"".join(head.peaks.hashes))])

    def begin(self) -> TreeHead | None:
        """Begin a transaction, lock the head, and return it."""
        self.database.begin()
        return self._head(_LOCK_HEAD)

    def indexes_of(self, keys: Iterable[LeafKey]) -> dict[LeafKey, int]:
        """Return the index of each of these leaves that the log has."""
        indexes: dict[LeafKey, int] = {}
        tokens: list[LeafKey] = []
        for key in keys:
            if key.token is not None:
                tokens.append(key)
            elif rows := self._fetch(_NAMED, (key.kind, key.name)):
                indexes[key] = int(rows[0][0])
        by_token = {(key.iat, key.token): key for key in tokens}
        for start in range(0, len(tokens), LOG_LOOKED_UP):
            part = tokens[start : start + LOG_LOOKED_UP]
            statement = _PLACES.replace("...", ", ".join(["(?, ?)"] * len(part)))
            values = [value for key in part for value in (key.iat, key.token)]
            indexes |= {by_token[iat, bytes(token)]: int(index) for iat, token, index in self._fetch(statement, values)}
        return indexes

    def append(
        self, before: TreeHead, after: TreeHead, entries: Sequence[StoredLeaf], hashes: Iterable[TileHash]
    ) -> None:
        """Add leaves after those of the tree `before`, and the new hashes of its tiles. Raises StoreCorrupt if the
        head is not `before`, because the lock did not hold."""
        numbered = enumerate(entries, before.size)
        rows = [(at, e.key.kind, e.leaf, e.key.iat, e.key.token, e.key.name) for at, e in numbered]
        self._write(_ADD_ENTRY, rows)
        self._write(_ADD_HASH, hashes)
        moved = (after.size, after.root, b"".join(after.peaks.hashes), before.origin, before.size, before.root)
        if self._write(_MOVE_HEAD, [moved]) != 1:
            raise StoreCorrupt("the head has changed in spite of its lock")

    def keep_cosigned(self, size: int, note: bytes) -> None:
        """Keep a checkpoint that has reached the quorum, unless there is already one of this size."""
        self._write(_ADD_COSIGNED, [(size, note)])

    def _write(self, statement: str, rows: Iterable[Values]) -> int:
        return self.database.write(in_dialect(self.database.dialect, statement), rows)
