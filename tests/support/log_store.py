"""The databases that a log's tests run on: each test of the log runs on every one that is here.

A test takes `log_database`, a maker of connections to one fresh database; how that is made is the engine's affair.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from issuer.service.log.sqlite import SqliteDatabase, SqliteReading
from issuer.service.log.store import Database, Entry, Head, Key, Reading, Store
from issuer.tlog import tiles
from issuer.tlog.merkle import EMPTY_ROOT, Peaks, leaf_hash

ORIGIN = "issuer.example/log/2026-11-22-7f3a"
EMPTY = Head(ORIGIN, EMPTY_ROOT, Peaks())


class Place:
    """Where one log is kept: any number of connections to it, one of which at a time writes."""

    def __init__(self, connect: Callable[[], Database], read: Callable[[], Reading]) -> None:
        self.connect = connect
        self.read = read


MakePlace: TypeAlias = Callable[[Path], Iterator[Place]]


def sqlite_place(folder: Path) -> Iterator[Place]:
    file = folder / "log" / "log.sqlite"
    file.parent.mkdir(parents=True)
    yield Place(lambda: SqliteDatabase(file), lambda: SqliteReading(file))


ENGINES: dict[str, MakePlace] = {"sqlite": sqlite_place}


def created(database: Database) -> Store:
    """Begin a log of the empty tree, and return it, open."""
    database.open(create=True)
    store = Store(database)
    database.begin()
    store.create(EMPTY)
    database.commit()
    return store


def token(number: int, iat: int = 1_792_000_000) -> Entry:
    """Make an entry of a token that never was."""
    leaf = f"leaf {number}\n".encode()
    key = Key("token", iat=iat, token=hashlib.sha256(b"%d" % number).digest())
    return Entry(key, leaf, leaf_hash(leaf))


def announcement(number: int) -> Entry:
    """Make an entry of a key that never was."""
    leaf = f"key {number}\n".encode()
    return Entry(Key("key", name=hashlib.sha256(leaf).digest()), leaf, leaf_hash(leaf))


def append(store: Store, entries: Sequence[Entry]) -> Head:
    """Append as the sequencer does, to a head that nobody doubts; commit, and return the new one."""
    before = store.begin()
    assert before is not None
    peaks, gained = tiles.extend(before.peaks, [entry.hash for entry in entries])
    after = Head(before.origin, peaks.root, peaks)
    store.append(before, after, entries, gained)
    store.database.commit()
    return after
