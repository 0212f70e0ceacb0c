"""Both homes of an issuer's history and revocations: their contract, and the move from one to the other."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.formats import jose
from issuer.io import keyfile
from issuer.io.common_documents import HISTORY, KEYS, LIST, MOVED, RECORD, FolderHome, Home
from issuer.service.log.database.engines import home_of, settle_home
from issuer.service.log.database.postgres import PostgresHome
from issuer.service.log.database.store import LogStore
from issuer.service.revocation.bounds import LIST_GOOD_S
from issuer.service.revocation.ledger import NOTHING, Ledger, Signing
from issuer.service.signing.history import KeyHistory, LiveHistory
from issuer.service.signing.lifecycle import KeyEvent
from tests.support.log_store import ORIGIN, POSTGRESQL, Place, append, created, postgres_place, token
from tests.support.make import ISSUER, NOW, REVOCATION_KEY
from tests.support.postgresql import shared
from tests.support.revoking import JTIS, act

MOST = 1_000_000
# Connects to the same home once more, as another process or host does.
Open = Callable[[], Home]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A log's database in PostgreSQL, in its own schema, before it is settled."""
    with postgres_place(tmp_path) as fresh:
        created(fresh.connect()).database.close()
        yield fresh


@pytest.fixture
def database(tmp_path: Path, place: Place) -> Iterator[Open]:
    """A settled home beside the log."""
    with ExitStack() as opened:

        def connect() -> PostgresHome:
            return opened.enter_context(closing(PostgresHome(place.setting, ORIGIN)))

        connect().settle(FolderHome(tmp_path / "data"))
        yield connect


def test_a_document_that_another_user_may_replace_is_not_read(tmp_path: Path) -> None:
    home = FolderHome(tmp_path / "data")
    with home.turn(HISTORY) as turn:
        turn.append(HISTORY, b"{}\n")
    for path, mode in ((tmp_path / "data", 0o777), (tmp_path / "data" / HISTORY, 0o666)):
        before = path.stat().st_mode
        path.chmod(mode)
        with pytest.raises(InputError, match=rf"it has mode {mode:04o}.*Run `chmod .*{path}`"):
            home.read(HISTORY, MOST)
        path.chmod(before)
    assert home.read(HISTORY, MOST) == b"{}\n"


@pytest.fixture(params=["folder", POSTGRESQL])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "folder":
        return lambda: FolderHome(tmp_path / "data")
    connect: Open = request.getfixturevalue("database")
    return connect


def event(number: int = 0, who: str = "somebody") -> KeyEvent:
    jwk = jose.public_jwk(keyfile.generate().public_key())
    return KeyEvent(NOW + number, "next", str(jwk["kid"]), str(jwk["x"]), who)


def add(home: Open, *events: KeyEvent) -> None:
    KeyHistory(home()).record(lambda _: events)


# -- the contract -----------------------------------------------------------------------------------------------------


def test_what_one_host_writes_every_other_reads_byte_for_byte(home: Open) -> None:
    one, other = home(), home()
    assert not one.read(HISTORY, MOST)
    assert one.read(LIST, MOST) is None
    with one.turn(HISTORY) as turn:
        turn.append(HISTORY, b"a\n")
        turn.append(HISTORY, b"\xff\x00\n")
        assert turn.read(HISTORY, MOST) == b"a\n\xff\x00\n"
    with other.turn(RECORD) as turn:
        for raw in (b"first", b"", b"\x00second"):
            turn.replace(LIST, raw)
    assert (other.read(HISTORY, 5), one.read(LIST, MOST)) == (b"a\n\xff\x00\n", b"\x00second")
    assert HISTORY in one.place(HISTORY)
    with pytest.raises(InputError) as refused:
        other.read(HISTORY, 4)
    assert (refused.value.code, refused.value.place.file) == (Code.FILE_TOO_LARGE, one.place(HISTORY))


def test_a_look_changes_only_if_its_document_was_written(home: Open) -> None:
    one, other = home(), home()
    before = one.look(HISTORY, LIST)
    assert before == one.look(HISTORY, LIST)
    with other.turn(RECORD) as turn:
        turn.replace(KEYS, b"x")
    assert one.look(HISTORY, LIST) == before
    for _ in range(3):
        with other.turn(RECORD) as turn:
            turn.replace(LIST, b"the same")
        assert one.look(HISTORY, LIST) != before
        before = one.look(HISTORY, LIST)


def test_one_process_has_the_turn_until_its_end_or_death(home: Open) -> None:
    add(home, event(1))
    before, holders = home().read(HISTORY, MOST), []

    def wait() -> None:
        with home().turn(HISTORY, 60):
            holders.append("second")

    with ThreadPoolExecutor(1) as waiting:
        with home().turn(HISTORY):
            with pytest.raises(BlockingIOError) as refused, home().turn(HISTORY, 0.1):
                pass
            assert refused.value.filename in {home().place(HISTORY), home().place("key-history.lock")}
            with home().turn(RECORD, 0.1):
                pass
            second = waiting.submit(wait)
            holders.append("first")
        second.result()
    assert holders == ["first", "second"]
    if not (child := os.fork()):
        try:
            with home().turn(HISTORY):
                os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    with home().turn(HISTORY, 10) as turn:
        assert turn.read(HISTORY, MOST) == before


def test_records_of_many_hosts_at_once_are_all_kept(home: Open) -> None:
    def record(host: int) -> None:
        for number in range(5):
            add(home, event(number, f"host {host}"))

    with ThreadPoolExecutor(6) as hosts:
        list(hosts.map(record, range(6)))
    lives = KeyHistory(home()).read()
    assert len(lives) == 30
    raw = home().read(HISTORY, MOST)
    assert raw is not None
    assert [raw.count(b'"host %d"' % host) for host in range(6)] == [5] * 6


def test_a_failed_decision_or_a_damaged_history_records_nothing(home: Open) -> None:
    one, other = LiveHistory(home()), LiveHistory(home())
    new = event(1)
    add(home, new)
    for live in (one, other):
        live.follow()
        assert set(live.lives) == {new.kid}, "each host follows the other"
    before = home().read(HISTORY, MOST)
    with pytest.raises(KeyError):
        KeyHistory(home()).record(lambda lives: [event(2), lives["nobody"]])  # type: ignore[list-item]  # raises
    assert home().read(HISTORY, MOST) == before
    with home().turn(HISTORY) as turn:
        turn.append(HISTORY, b"{\n")
    for act_on in (lambda: KeyHistory(home()).read(), lambda: add(home, event(2)), lambda: LiveHistory(home())):
        with pytest.raises(SetupError) as refused:
            act_on()
        assert refused.value.code is Code.KEY_HISTORY
        assert refused.value.detail.startswith(f"{home().place(HISTORY)}:2: ")


def test_there_is_one_list_whose_number_only_grows(home: Open) -> None:
    first = Ledger(home(), ISSUER).renew(Signing(REVOCATION_KEY), NOW)
    assert first.listed.number == 1
    due = NOW + LIST_GOOD_S // 2

    def keep(_: int) -> None:
        Ledger(home(), ISSUER).keep(Signing(REVOCATION_KEY), due, NOTHING, first)

    with ThreadPoolExecutor(6) as hosts:
        list(hosts.map(keep, range(6)))
        list(hosts.map(lambda jti: Ledger(home(), ISSUER).add(act(jti)), JTIS))
    found = Ledger(home(), ISSUER).read()
    assert found.error is None
    assert found.published is not None
    assert (found.published.listed.number, found.items.jtis) == (2, frozenset(JTIS))
    renewed = Ledger(home(), ISSUER).renew(Signing(REVOCATION_KEY), NOW)
    assert (renewed.listed.number, renewed.listed.iat, renewed.listed.jtis) == (3, due, frozenset(JTIS))
    assert home().read(LIST, MOST) == renewed.raw


# -- a database that fails --------------------------------------------------------------------------------------------


def fail() -> None:
    """End every connection of this test's process to the log's database."""
    shared().execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'issuer-log'")


def test_a_connection_lost_in_a_turn_is_an_error_and_a_lost_idle_one_is_replaced(database: Open) -> None:
    add(database, event(1))
    home = database()
    looked, before = home.look(HISTORY), home.read(HISTORY, MOST)

    def decide(_lives: object) -> list[KeyEvent]:
        fail()
        return [event(2)]

    with pytest.raises(OSError, match=r"AdminShutdown|terminat|closed") as refused:
        KeyHistory(database()).record(decide)
    assert refused.value.filename == home.place(HISTORY)
    for _ in range(2):
        fail()
        assert home.look(HISTORY) == looked
        assert home.read(HISTORY, MOST) == before, "nothing was written"


def test_the_writes_of_one_turn_are_atomic_and_a_deleted_row_is_not_empty(database: Open, tmp_path: Path) -> None:
    def write() -> None:
        with database().turn(RECORD) as turn:
            turn.replace(KEYS, b"new")
            turn.replace(LIST, b"new")
            turn.append(RECORD, b"new")
            raise KeyError

    with pytest.raises(KeyError):
        write()
    assert [database().read(name, MOST) for name in (KEYS, LIST, RECORD)] == [None, None, b""]
    add(database, event(1))
    home, folder, live = database(), FolderHome(tmp_path / "data"), LiveHistory(database())
    assert isinstance(home, PostgresHome)
    home.settle(folder)
    with database().turn(HISTORY) as turn:
        turn.replace(HISTORY, b"")
    with pytest.raises(SetupError, match="no longer has the key"):
        live.follow()
    assert len(live.lives) == 1
    with pytest.raises(SetupError) as refused:
        home.settle(folder)
    assert refused.value.code is Code.KEY_HISTORY
    assert f"{home.place(HISTORY)} is lost" in refused.value.detail


# -- moving -----------------------------------------------------------------------------------------------------------


def used(folder: Path) -> FolderHome:
    """Return a folder with a history, a record, and a list."""
    home = FolderHome(folder)
    KeyHistory(home).record(lambda _: [event(1)])
    Ledger(home, ISSUER).add(act(JTIS[0]))
    Ledger(home, ISSUER).renew(Signing(REVOCATION_KEY), NOW)
    return home


def everything(home: FolderHome | PostgresHome) -> list[bytes | None]:
    return [home.read(name, MOST) for name in (HISTORY, RECORD, LIST, KEYS)]


def test_the_files_of_the_folder_move_once_and_are_no_longer_in_it(tmp_path: Path, place: Place) -> None:
    folder, data = used(tmp_path / "data"), tmp_path / "data"
    before, live, looked = everything(folder), LiveHistory(folder), Ledger(folder, ISSUER).look()
    assert isinstance(home_of(data, ORIGIN, place.setting), FolderHome), "until it has moved"
    with capture_logs() as logs:
        settle_home(data, ORIGIN, place.setting)
    assert [(line["event"], line["files"]) for line in logs] == [
        ("history moved to log", [HISTORY, RECORD, LIST, KEYS])
    ]
    home = home_of(data, ORIGIN, place.setting)
    assert isinstance(home, PostgresHome)
    assert everything(home) == before
    assert Ledger(folder, ISSUER).look() != looked
    for act_on in (live.follow, lambda: KeyHistory(folder).record(lambda _: [event(2)])):
        with pytest.raises(OSError, match=f"moved to the log's database, which the file {MOVED} names"):
            act_on()
    with pytest.raises(SetupError, match="has moved"):
        LiveHistory(home_of(data, "", ""))
    assert len(live.lives) == 1
    error = Ledger(folder, ISSUER).read().error
    assert error is not None
    assert error.code is Code.FILE_UNREADABLE
    KeyHistory(home).record(lambda _: [event(2)])
    with capture_logs() as logs:
        settle_home(data, ORIGIN, place.setting)
        settle_home(tmp_path / "another-host", ORIGIN, place.setting)
    assert [line["files"] for line in logs] == [[]], "of the other host"
    assert len(KeyHistory(home).read()) == 2
    (data / MOVED).unlink()  # an interrupted move is completed
    before = everything(home)
    settle_home(data, ORIGIN, place.setting)
    assert everything(home) == before
    assert folder.has_moved
    home.close()


@pytest.mark.parametrize("name", [HISTORY, RECORD])
def test_two_different_histories_are_not_merged(tmp_path: Path, place: Place, name: str) -> None:
    settle_home(used(tmp_path / "one").folder, ORIGIN, place.setting)
    other = used(tmp_path / "other")
    (other.folder / {HISTORY: RECORD, RECORD: HISTORY}[name]).unlink()
    if name == RECORD:
        Ledger(other, ISSUER).add(act(JTIS[1]))
        raw = (other.folder / RECORD).read_bytes()
        (other.folder / RECORD).write_bytes(raw.splitlines(keepends=True)[1])
    with pytest.raises(SetupError, match="differs from the one in PostgreSQL") as refused:
        settle_home(other.folder, ORIGIN, place.setting)
    assert refused.value.code is Code.KEY_HISTORY
    assert not other.has_moved


def test_a_log_with_leaves_and_a_lost_history_is_not_a_new_issuer_s(tmp_path: Path, place: Place) -> None:
    """A new issuer's first key signs at once."""
    settle_home(tmp_path / "new", ORIGIN, place.setting)
    assert not (tmp_path / "new" / MOVED).exists(), "no history exists yet"
    store = LogStore(place.connect())
    store.database.open()
    append(store, [token(1)])
    store.database.close()
    with pytest.raises(SetupError, match=f"{HISTORY} is lost") as refused:
        settle_home(tmp_path / "new", ORIGIN, place.setting)
    assert refused.value.code is Code.KEY_HISTORY
    settle_home(used(tmp_path / "backup").folder, ORIGIN, place.setting)
    settle_home(tmp_path / "new", ORIGIN, place.setting)


def test_a_database_without_the_log_gets_no_history(tmp_path: Path, place: Place) -> None:
    folder = used(tmp_path / "data")
    schema = f"empty_{os.urandom(4).hex()}"
    shared().execute(f"CREATE SCHEMA {schema}")
    empty = shared().url(options=f"-csearch_path={schema}")
    for origin, setting in (("issuer.example/log/another", place.setting), (ORIGIN, empty)):
        with pytest.raises(SetupError) as refused:
            settle_home(folder.folder, origin, setting)
        assert refused.value.code is Code.LOG_ABSENT
        assert not folder.has_moved
        home = PostgresHome(setting, origin)
        with pytest.raises(OSError, match="log"):
            home.read(HISTORY, MOST)
        home.close()
    with pytest.raises(SetupError, match="PostgreSQL at /nowhere") as refused:
        settle_home(tmp_path, ORIGIN, "postgresql://postgres@/postgres?host=/nowhere")
    assert refused.value.code is Code.STATE_UNREACHABLE


def test_files_remain_the_home_of_one_host_with_a_log_in_a_file(tmp_path: Path) -> None:
    used(tmp_path)
    settle_home(tmp_path, ORIGIN, str(tmp_path / "log.sqlite"))
    assert isinstance(home_of(tmp_path, ORIGIN, str(tmp_path / "log.sqlite")), FolderHome)
    assert not FolderHome(tmp_path).has_moved
