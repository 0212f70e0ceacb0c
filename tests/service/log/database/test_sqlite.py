"""SQLite alone: files that are replaced, its write-ahead log, full disks, and plans of queries."""

import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from issuer.service.log.bounds import LOG_LOOKED_UP, LOG_WAL_PAGES
from issuer.service.log.database.sqlite import SqliteDatabase, SqliteReading
from issuer.service.log.database.store import LogStore, OutcomeUnknown, Reader, StoreFailed
from tests.support.disk import fill, small_disk
from tests.support.log_store import append, created, token


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "log.sqlite"


def copy_of(file: Path) -> Path:
    """Back up as an operator does who knows what is written ahead: both files."""
    kept = file.parent / "kept"
    kept.mkdir()
    for each in file.parent.glob("log.sqlite*"):
        shutil.copy2(each, kept)
    return kept / file.name


def by_name(kept: Path, file: Path) -> None:
    os.replace(kept, file)


def over_the_bytes(kept: Path, file: Path) -> None:
    file.write_bytes(kept.read_bytes())


def removed(_kept: Path, file: Path) -> None:
    file.unlink()


def without_what_was_written_ahead(_kept: Path, file: Path) -> None:
    Path(f"{file}-wal").unlink()


def test_a_file_that_others_touched_is_seen(tmp_path: Path) -> None:
    for put_back in (by_name, over_the_bytes, removed, without_what_was_written_ahead):
        file = tmp_path / put_back.__name__ / "log.sqlite"
        file.parent.mkdir()
        with closing(SqliteDatabase(file)) as database:
            store = created(database)
            append(store, [token(1)])
            kept = copy_of(file)
            append(store, [token(2)])
            assert not database.is_another()
            put_back(kept, file)
            assert database.is_another(), put_back


def test_closing_does_not_write_into_a_file_that_was_put_there(file: Path) -> None:
    """SQLite puts what was written ahead into the file when it disconnects: into another tree's pages."""
    database = SqliteDatabase(file)
    store = created(database)
    kept = copy_of(file)
    append(store, [token(1)])
    over_the_bytes(kept, file)
    Path(f"{file}-wal").unlink()
    before = file.read_bytes()
    database.close()
    assert file.read_bytes() == before


def test_only_the_sequencer_puts_what_was_written_ahead_into_the_file(file: Path) -> None:
    with closing(SqliteDatabase(file)) as database:
        store = created(database)
        before = file.read_bytes()
        append(store, [token(1)])
        with closing(SqliteReading(file)) as reading:
            assert Reader(reading).leaves(0, 1) == (token(1).leaf,)
            with pytest.raises(StoreFailed):
                reading.fetch("PRAGMA wal_checkpoint(TRUNCATE)")
        assert file.read_bytes() == before


def test_what_was_written_ahead_stays_small(file: Path) -> None:
    with closing(SqliteDatabase(file)) as database:
        store = created(database)
        ahead, largest = Path(f"{file}-wal"), 0
        for number in range(12):
            append(store, [token(1000 * number + each) for each in range(500)])
            largest = max(largest, ahead.stat().st_size)
            database.tend()
            assert not database.is_another()
        assert largest < 2 * 4096 * LOG_WAL_PAGES


def test_opening_puts_everything_on_the_disk(file: Path) -> None:
    """After a failed fsync a page that was written ahead may be in memory alone: it is written once more."""
    first = SqliteDatabase(file)
    append(created(first), [token(1)])
    with closing(SqliteDatabase(file)) as second:
        second.open()
        assert Path(f"{file}-wal").stat().st_size == 0
        assert LogStore(second).leaves(0, 1) == (token(1).leaf,)
    assert first.is_another()
    first.close()


def test_a_reader_that_holds_on_delays_an_opening_and_nothing_else(file: Path) -> None:
    with closing(SqliteDatabase(file)) as database:
        store = created(database)
        append(store, [token(1)])
        with closing(SqliteReading(file)) as reading:
            reading.fetch("BEGIN")
            reading.fetch("SELECT * FROM head")
            append(store, [token(2)])
            database.tend()
            with closing(SqliteDatabase(file)) as second, pytest.raises(StoreFailed, match="readers"):
                second.open()


def test_a_full_disk_fails_a_commit_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk, closing(SqliteDatabase(disk / "log.sqlite")) as database:
        store = created(database)
        append(store, [token(1)])
        full = fill(disk / "full")
        with pytest.raises(StoreFailed):
            append(store, [token(number) for number in range(2, 400)])
        database.close()
        full.unlink()
        database.open()
        head = store.head()
        assert head is not None
        assert head.size == 1
        append(store, [token(2)])


def test_a_commit_that_fails_is_an_unknown_outcome(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk, closing(SqliteDatabase(disk / "log.sqlite")) as database:
        store = created(database)
        fill(disk / "full")
        with pytest.raises(OutcomeUnknown):
            append(store, [token(1)])


def test_looking_up_tokens_never_looks_at_all_entries(file: Path) -> None:
    """`(iat, token) IN (VALUES ...)` would: at 3 million rows a second for each batch."""
    plans: list[str] = []

    class Explained(SqliteDatabase):
        def fetch(self, statement, values=()):  # type: ignore[no-untyped-def]
            plans.extend(row[3] for row in super().fetch(f"EXPLAIN QUERY PLAN {statement}", values))
            return super().fetch(statement, values)

    with closing(Explained(file)) as database:
        store = created(database)
        plans.clear()
        store.indexes_of(token(number).key for number in range(LOG_LOOKED_UP))
        store.index_of_token(1, bytes(32))
        store.tile(0, 0, 0)
        store.leaves(0, 0)
    assert len(plans) >= 5
    assert not [plan for plan in plans if plan.startswith("SCAN") and "wanted" not in plan and "CONSTANT" not in plan]


def test_the_file_is_for_its_owner_alone(file: Path) -> None:
    with closing(SqliteDatabase(file)) as database:
        created(database)
        assert {path.stat().st_mode & 0o777 for path in file.parent.glob("log.sqlite*")} == {0o600}
