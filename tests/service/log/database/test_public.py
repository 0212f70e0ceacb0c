"""The public part of a log: bytes that never change, proofs that verify, and no verdict in doubt."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.errors import Refused, Undecided
from issuer.service.log.database import public
from issuer.service.log.database.engines import reading_at
from issuer.service.log.database.public import PublicLog
from issuer.service.log.database.sqlite import SqliteDatabase
from issuer.service.log.database.store import LogStore, ReadConnection
from issuer.tlog.tiles import WIDTH, TilePath, read_entries, tiles_between
from tests.support.log_store import ORIGIN, Place, append, token
from tests.support.public_log import Writer, size_proved, writing
from tests.support.waiting import eventually


@pytest.fixture
def writer(place: Place) -> Iterator[Writer]:
    with writing(place) as begun:
        yield begun


@pytest.fixture
def log(place: Place, writer: Writer) -> Iterator[PublicLog]:
    """Of one thread: this one."""
    log = PublicLog(ORIGIN, partial(reading_at, place.setting))
    yield log
    log.let_go()


def proof_of(log: PublicLog, number: int, size: int | None = None) -> bytes:
    key = token(number).key
    assert key.iat is not None
    assert key.token is not None
    return log.proof(key.iat, key.token, size)


def code_of(log: PublicLog, number: int, size: int | None = None) -> Code:
    with pytest.raises((Refused, Undecided)) as caught:
        proof_of(log, number, size)
    return caught.value.code


def test_every_tile_of_every_size_is_there_and_stays_as_it_was(log: PublicLog, writer: Writer) -> None:
    kept: dict[TilePath, bytes] = {}
    for size in (1, 2, 255, 256, 257, 600):
        writer.grow(size - len(writer.entries))
        for path in tiles_between(0, size):
            raw = log.tile(path)
            assert raw is not None
            assert kept.setdefault(path, raw) == raw
    for path, raw in kept.items():
        assert log.tile(path) == raw
        if path.level == "entries":
            first = path.index * WIDTH
            assert read_entries(raw) == tuple(e.leaf for e in writer.entries[first : first + path.width])
        elif path.level == 0:
            first = path.index * WIDTH
            assert raw == b"".join(entry.hash for entry in writer.entries[first : first + path.width])


def test_beyond_what_is_committed_there_is_nothing(log: PublicLog, writer: Writer) -> None:
    writer.grow(257)
    entries, hashes = TilePath("entries", 1, 2), (TilePath(0, 1, 2), TilePath(0, 1), TilePath(0, 2**54))
    higher = (TilePath(1, 0, 2), TilePath(1, 0), TilePath(2, 0, 1), TilePath(63, 0, 1))
    assert [path for path in (entries, *hashes, *higher) if log.tile(path) is not None] == []


def test_the_newest_cosigned_checkpoint_is_served_and_no_other(log: PublicLog, writer: Writer) -> None:
    writer.grow(3)
    with pytest.raises(Undecided) as caught:
        log.checkpoint()
    assert caught.value.code is Code.LOG_PENDING
    first = writer.cosign()
    writer.grow(1)
    assert log.checkpoint() == first, "the new head is not cosigned yet"
    assert log.checkpoint() != writer.cosign() == log.checkpoint()


def test_a_proof_is_always_under_the_first_cosigned_checkpoint_over_its_leaf(log: PublicLog, writer: Writer) -> None:
    for count in (3, 255, 50):
        writer.grow(count)
        writer.cosign()
    sizes = [size_proved(proof_of(log, number), number) for number in range(308)]
    assert sizes == [3] * 3 + [258] * 255 + [308] * 50
    assert size_proved(proof_of(log, 0, 308), 0) == 308
    assert size_proved(proof_of(log, 257, 258), 257) == 258


def test_of_a_size_that_was_not_kept_or_lacks_the_leaf_there_is_no_proof(log: PublicLog, writer: Writer) -> None:
    for count in (2, 3):
        writer.grow(count)
        writer.cosign()
    assert {code_of(log, 2, size) for size in (1, 2, 4, 7, 2**63 - 1)} == {Code.REQUEST_QUERY}


def test_a_leaf_without_a_cosigned_checkpoint_is_pending_and_another_is_no_leaf(log: PublicLog, writer: Writer) -> None:
    writer.grow(2)
    writer.cosign()
    writer.grow(1)
    assert code_of(log, 2) is Code.LOG_PENDING
    assert code_of(log, 3) is Code.LOG_NO_LEAF
    key = token(0).key
    assert key.iat is not None
    assert key.token is not None
    with pytest.raises(Refused) as caught:
        log.proof(key.iat + 1, key.token)
    assert caught.value.code is Code.LOG_NO_LEAF, "the same digest at another time"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "log" / "log.sqlite"
    path.parent.mkdir()
    return path


@pytest.fixture
def sqlite_log(file: Path) -> Iterator[PublicLog]:
    log = PublicLog(ORIGIN, partial(reading_at, str(file)))
    yield log
    log.let_go()


def grown(file: Path, count: int) -> None:
    """Write a log of as many cosigned leaves, or go on with one."""
    if not file.exists():
        with writing(Place(str(file))) as writer:
            writer.grow(count)
            writer.cosign()
        return
    with closing(SqliteDatabase(file)) as database:
        database.open()
        store = LogStore(database)
        head = store.head()
        assert head is not None
        writer = Writer(store)
        append(store, [token(number) for number in range(head.size, head.size + count)])
        writer.cosign()


def put_back(old: Path, file: Path) -> None:
    """Replace a database by a copy that was made before."""
    for name in ("-wal", "-shm"):
        Path(f"{file}{name}").unlink(missing_ok=True)
    os.replace(old, file)


def test_a_log_that_is_away_or_never_was_has_no_verdict(sqlite_log: PublicLog, file: Path) -> None:
    for _ in range(2):
        assert code_of(sqlite_log, 0) is Code.DEPENDENCY_LOG_READ
        with pytest.raises(Undecided):
            sqlite_log.checkpoint()
        with pytest.raises(Undecided):
            sqlite_log.tile(TilePath(0, 0, 1))
        file.write_bytes(b"")
    file.unlink()
    grown(file, 1)
    with closing(SqliteDatabase(file)) as database:  # a reader alone cannot make the files that WAL needs
        database.open()
        eventually(lambda: proved_size(sqlite_log, 0) == 1)  # it is back


def proved_size(log: PublicLog, number: int) -> int | None:
    with suppress(Undecided):
        return size_proved(proof_of(log, number), number)
    return None


class Counted(PublicLog):
    def __init__(self, place: Place) -> None:
        self.connections: list[ReadConnection] = []
        super().__init__(ORIGIN, self._count)
        self._place = place

    def _count(self) -> ReadConnection:
        self.connections.append(reading_at(self._place.setting))
        return self.connections[-1]


def test_no_leaf_needs_a_fresh_look_which_all_threads_share(
    place: Place, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public, "LOG_FRESH_S", 60)
    log = Counted(place)
    writer.grow(1)
    with ThreadPoolExecutor(1) as other:
        for _ in range(20):
            assert {code_of(log, 1), other.submit(code_of, log, 1).result()} == {Code.LOG_NO_LEAF}
        other.submit(log.let_go).result()
    assert len(log.connections) == 3, "one for each thread, and the fresh one"
    monkeypatch.setattr(public, "LOG_FRESH_S", 0)
    assert code_of(log, 1) is Code.LOG_NO_LEAF
    assert len(log.connections) == 4
    log.let_go()


def test_a_failure_costs_one_connection(place: Place, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public, "LOG_FRESH_S", 60)
    log = Counted(place)
    writer.store.database.write("DELETE FROM head WHERE one = 1", [()])
    assert {code_of(log, 1) for _ in range(20)} == {Code.DEPENDENCY_LOG_READ}
    assert len(log.connections) == 1


def test_a_stale_connection_says_no_to_nobody_after_another_s_fresh_look(
    sqlite_log: PublicLog, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public, "LOG_FRESH_S", 60)
    grown(file, 1)
    shutil.copy(file, newer := tmp_path / "newer.sqlite")
    grown(newer, 1)
    with ThreadPoolExecutor(1) as other, closing(SqliteDatabase(file)) as database:
        database.open()
        assert sqlite_log.tile(TilePath(0, 0, 1))
        put_back(newer, file)
        with closing(SqliteDatabase(file)) as current:
            current.open()
            assert other.submit(code_of, sqlite_log, 2).result() is Code.LOG_NO_LEAF
            assert code_of(sqlite_log, 1) is Code.DEPENDENCY_LOG_READ
            other.submit(sqlite_log.let_go).result()


def test_the_log_of_another_origin_is_not_this_one(file: Path) -> None:
    grown(file, 1)
    log = PublicLog(f"{ORIGIN}-other", partial(reading_at, str(file)))
    assert code_of(log, 0) is Code.DEPENDENCY_LOG_READ
    assert code_of(log, 1) is Code.DEPENDENCY_LOG_READ


def test_an_old_copy_that_was_put_back_says_no_to_nobody(sqlite_log: PublicLog, file: Path, tmp_path: Path) -> None:
    """An open connection still reads the old file; a new connection sees the old tree, which is no smaller log."""
    grown(file, 1)
    old = tmp_path / "old.sqlite"
    shutil.copy(file, old)
    grown(file, 1)
    with closing(SqliteDatabase(file)) as database:
        database.open()
        assert size_proved(proof_of(sqlite_log, 1), 1) == 2
    put_back(old, file)
    for number in (1, 2):
        for _ in range(2):
            with closing(sqlite3.connect(file)):
                assert code_of(sqlite_log, 2) is Code.DEPENDENCY_LOG_READ, number


def test_a_file_that_was_replaced_is_not_read_for_ever(file: Path, tmp_path: Path) -> None:
    grown(file, 1)
    newer = tmp_path / "newer.sqlite"
    shutil.copy(file, newer)
    grown(newer, 1)
    log = PublicLog(ORIGIN, partial(reading_at, str(file)), oldest_s=0.05)
    with closing(SqliteDatabase(file)) as database:
        database.open()
        first = log.checkpoint()
    put_back(newer, file)
    with closing(SqliteDatabase(file)) as database:
        database.open()
        eventually(lambda: log.checkpoint() != first)
    log.let_go()


def test_a_proof_that_does_not_verify_is_not_given_out(sqlite_log: PublicLog, file: Path) -> None:
    grown(file, 3)
    with closing(SqliteDatabase(file)) as database:
        database.open()
        database.write("UPDATE hashes SET hash = ? WHERE level = 0 AND idx = 1", [(bytes(32),)])
        assert code_of(sqlite_log, 0) is Code.DEPENDENCY_LOG_READ


def test_a_row_that_is_gone_is_a_failure_and_no_shorter_tile(sqlite_log: PublicLog, file: Path) -> None:
    grown(file, 3)
    with closing(SqliteDatabase(file)) as database:
        database.open()
        database.write("DELETE FROM hashes WHERE level = 0 AND idx = ?", [(1,)])
        database.write("DELETE FROM entries WHERE idx = ?", [(1,)])
        for path in (TilePath(0, 0, 3), TilePath("entries", 0, 3)):
            with pytest.raises(Undecided) as caught:
                sqlite_log.tile(path)
            assert caught.value.code is Code.DEPENDENCY_LOG_READ
