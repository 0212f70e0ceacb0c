"""What the log keeps, on every engine: places are found again, rows are only added, and the head is compared."""

from contextlib import closing

import pytest
from msgspec.structs import replace

from issuer.errors import SetupError
from issuer.service.log.bounds import LOG_LOOKED_UP
from issuer.service.log.database.store import Dialect, LogStore, Reader, StoreCorrupt, StoreFailed, in_dialect
from issuer.tlog.merkle import root
from tests.support.log_store import EMPTY, Place, announcement, append, created, token


def test_a_database_is_empty_until_a_log_is_begun(place: Place) -> None:
    with closing(place.connect()) as database:
        database.open(create=True)
        assert database.is_empty()
    with closing(place.connect()) as database:
        store = created(database)
        assert not database.is_empty()
        assert (store.head(), store.last_cosigned()) == (EMPTY, None)


def test_a_log_that_is_not_there_is_not_made(place: Place) -> None:
    with closing(place.connect()) as database, pytest.raises(SetupError, match=r"log\.absent"):
        database.open()


def test_another_connection_sees_what_is_committed_and_not_what_is_undone(place: Place) -> None:
    with closing(place.connect()) as database:
        store = created(database)
        append(store, [token(1), announcement(1)])
        assert Reader(place.read()).leaves(0, 2) == (token(1).leaf, announcement(1).leaf)

        before = store.begin()
        assert before is not None
        store.append(before, replace(before, root=bytes(32)), [token(2)], [])
        database.rollback()
        assert store.head() == Reader(place.read()).head() == before


def test_places_are_found_by_what_a_leaf_is_there_once_by(place: Place) -> None:
    with closing(place.connect()) as database:
        store = created(database)
        append(store, [token(1), announcement(2), token(3)])
        wanted = [token(3).key, token(4).key, announcement(2).key, announcement(5).key, token(1, iat=1).key]
        assert store.indexes_of(wanted) == {token(3).key: 2, announcement(2).key: 1}
        iat, digest = token(3).key.iat, token(3).key.token
        assert iat is not None
        assert digest is not None
        assert store.index_of_token(iat, digest) == 2
        assert store.index_of_token(iat + 1, digest) is None


def test_more_tokens_than_one_statement_takes_are_found(place: Place) -> None:
    many = [token(number, iat=number // 7) for number in range(LOG_LOOKED_UP * 2 + 1)]
    with closing(place.connect()) as database:
        store = created(database)
        append(store, many)
        assert store.indexes_of(entry.key for entry in many) == {entry.key: at for at, entry in enumerate(many)}


def test_the_database_itself_takes_no_leaf_twice(place: Place) -> None:
    with closing(place.connect()) as database:
        store = created(database)
        append(store, [token(1), announcement(2)])
        for again in (token(1), announcement(2)):
            with pytest.raises(StoreFailed):
                append(store, [again])
            database.rollback()


def test_a_head_that_moved_under_the_lock_stops_the_append(place: Place) -> None:
    with closing(place.connect()) as database:
        store = created(database)
        head = append(store, [token(1)])
        store.begin()
        with pytest.raises(StoreCorrupt, match="head has changed"):
            store.append(replace(head, root=bytes(32)), head, [token(2)], [])


def test_a_lost_row_is_not_passed_over(place: Place) -> None:
    with closing(place.connect()) as database:
        store = created(database)
        append(store, [token(1), token(2)])
        assert store.tile(0, 0, 2) == token(1).hash + token(2).hash
        with pytest.raises(StoreCorrupt, match="2 rows of 3"):
            store.tile(0, 0, 3)
        with pytest.raises(StoreCorrupt):
            store.leaves(1, 2)


def test_a_tile_is_a_range_of_one_level(place: Place) -> None:
    with closing(place.connect()) as database:
        store = created(database)
        many = [token(number) for number in range(300)]
        append(store, many)
        assert store.tile(0, 1, 44) == b"".join(entry.hash for entry in many[256:])
        assert store.tile(1, 0, 1) == root(entry.hash for entry in many[:256])
        with pytest.raises(StoreCorrupt):
            store.tile(1, 0, 2)


def test_the_first_cosigned_checkpoint_of_a_size_stays(place: Place) -> None:
    with closing(place.connect()) as database:
        store = created(database)
        for size, note in ((7, b"seven"), (3, b"three"), (3, b"another three")):
            store.begin()
            store.keep_cosigned(size, note)
            database.commit()
        assert store.cosigned_over(1) == store.cosigned_over(3) == (3, b"three")
        assert store.cosigned_over(4) == store.last_cosigned() == (7, b"seven")
        assert store.cosigned_over(8) is None


def test_one_writer_at_a_time(place: Place) -> None:
    with closing(place.connect()) as first, closing(place.connect()) as second:
        created(first)
        second.open()
        LogStore(first).begin()
        with pytest.raises(StoreFailed):
            LogStore(second).begin()


def test_an_untouched_database_is_the_one_that_was_opened(place: Place) -> None:
    with closing(place.connect()) as database:
        store = created(database)
        append(store, [token(1)])
        database.tend()
        assert not database.is_another()


def test_a_closed_connection_answers_nothing(place: Place) -> None:
    database = place.connect()
    store = created(database)
    database.close()
    database.close()
    with pytest.raises(StoreFailed):
        store.head()


def test_words_are_put_into_statements_and_nothing_else() -> None:
    dialect = Dialect(integer="int", octets="bytes", clustered="", for_update="locked", mark="%s")
    assert in_dialect(dialect, "a {integer} {octets}, ? {other} {for_update}") == "a int bytes, %s {other} locked"
