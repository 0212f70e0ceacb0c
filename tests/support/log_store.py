"""The databases that a log's tests run on: each test of the log runs on every one that is here.

A test takes `place`, a fresh one; how that is made is the engine's affair.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from issuer.service.log.database.engines import database_at, reading_at
from issuer.service.log.database.postgres import PostgresReading
from issuer.service.log.database.sqlite import SqliteReading
from issuer.service.log.database.store import Database, LeafKey, LogStore, ReadConnection, StoredLeaf, TreeHead
from issuer.tlog import tiles
from issuer.tlog.merkle import EMPTY_ROOT, Peaks, leaf_hash
from tests.support.postgresql import shared, version

ORIGIN = "issuer.example/log/2026-11-22-7f3a"
EMPTY = TreeHead(ORIGIN, EMPTY_ROOT, Peaks())


class Place:
    """The database of one log, by its setting: any number of connections to it, of which one at a time writes. Within
    `away` nobody finds it: its file or its schema has another name."""

    def __init__(
        self, setting: str, away: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    ) -> None:
        self.setting = setting
        self.away = away
        self._readings: list[SqliteReading | PostgresReading] = []

    def connect(self) -> Database:
        return database_at(self.setting)

    def read(self) -> ReadConnection:
        """Connect for reading, until the test ends."""
        reading = reading_at(self.setting)
        assert isinstance(reading, SqliteReading | PostgresReading)
        self._readings.append(reading)
        return reading

    def close(self) -> None:
        for reading in self._readings:
            reading.close()


@contextmanager
def sqlite_place(folder: Path) -> Iterator[Place]:
    file = folder / "log" / "log.sqlite"
    file.parent.mkdir(parents=True)

    @contextmanager
    def away() -> Iterator[None]:
        hidden = file.rename(folder / "hidden")
        yield
        hidden.rename(file)

    with closing(Place(str(file), away)) as place:
        yield place


@contextmanager
def postgres_place(folder: Path) -> Iterator[Place]:
    """A separate schema on the server that this process's tests share."""
    server, schema = shared(), f"log_{os.urandom(8).hex()}"
    server.execute(f"CREATE SCHEMA {schema}")

    @contextmanager
    def away() -> Iterator[None]:
        server.execute(f"ALTER SCHEMA {schema} RENAME TO {schema}_hidden")
        yield
        server.execute(f"ALTER SCHEMA {schema}_hidden RENAME TO {schema}")

    with closing(Place(server.url(options=f"-csearch_path={schema}"), away)) as place:
        yield place
    server.execute(f"DROP SCHEMA {schema} CASCADE")


# A test's name has its engine.
POSTGRESQL = f"postgresql-{version()}"
ENGINES: dict[str, Callable[[Path], AbstractContextManager[Place]]] = {
    "sqlite": sqlite_place,
    POSTGRESQL: postgres_place,
}


def created(database: Database) -> LogStore:
    """Begin a log of the empty tree, and return it, open."""
    database.open(create=True)
    store = LogStore(database)
    database.begin()
    store.create(EMPTY)
    database.commit()
    return store


def token(number: int, iat: int = 1_792_000_000) -> StoredLeaf:
    """Make an entry of a token that does not exist."""
    leaf = f"leaf {number}\n".encode()
    key = LeafKey("token", iat=iat, token=hashlib.sha256(b"%d" % number).digest())
    return StoredLeaf(key, leaf, leaf_hash(leaf))


def announcement(number: int) -> StoredLeaf:
    """Make an entry of a key that does not exist."""
    leaf = f"key {number}\n".encode()
    return StoredLeaf(LeafKey("key", name=hashlib.sha256(leaf).digest()), leaf, leaf_hash(leaf))


def append(store: LogStore, entries: Sequence[StoredLeaf]) -> TreeHead:
    """Append as the sequencer does, without its checks of the head; commit, and return the new one."""
    before = store.begin()
    assert before is not None
    peaks, gained = tiles.extend(before.peaks, [entry.hash for entry in entries])
    after = TreeHead(before.origin, peaks.root, peaks)
    store.append(before, after, entries, gained)
    store.database.commit()
    return after
