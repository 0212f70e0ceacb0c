"""What only PostgreSQL does: replicas that a COMMIT waits for, servers that are another one, other hosts, passwords."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from issuer.errors import SetupError
from issuer.service.log.database.engines import database_at
from issuer.service.log.database.postgres import PostgresDatabase, PostgresReading
from issuer.service.log.database.store import LogStore, OutcomeUnknown, Reader, StoreFailed
from tests.support.log_store import append, created, token
from tests.support.postgresql import GUARDED, PostgreSQL, postgresql
from tests.support.postgresql_proxy import Proxy, is_cut
from tests.support.shared import ROOT
from tests.support.tls import certificate
from tests.support.waiting import eventually

PASSWORD = "correct horse@battery:staple/?#%"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    """A server whose settings a test may change, and puts back."""
    with postgresql() as running:
        yield running


@pytest.fixture
def schema(server: PostgreSQL) -> Iterator[str]:
    server.execute("CREATE SCHEMA log")
    yield "-csearch_path=log"
    server.execute("DROP SCHEMA log CASCADE")


@pytest.fixture
def url(server: PostgreSQL, schema: str) -> str:
    return server.url(options=schema)


@pytest.fixture
def waits(server: PostgreSQL) -> Iterator[Callable[[], None]]:
    """Let COMMITs wait for a replica that is not there."""

    def waits() -> None:
        configure(server, "synchronous_standby_names", "nobody")
        eventually(lambda: commit_waits(server))

    yield waits
    configure(server, "synchronous_standby_names", "")


def configure(server: PostgreSQL, name: str, value: str) -> None:
    server.execute(f"ALTER SYSTEM SET {name} = '{value}'")
    server.reload()
    eventually(lambda: server.execute(f"SHOW {name}") == [(value,)])


def commit_waits(server: PostgreSQL) -> bool:
    """Say whether a COMMIT waits. It does so once the checkpointer, too, has read the setting: later than SHOW knows it."""
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(server.execute, "SELECT pg_logical_emit_message(true, '', '')")
        eventually(lambda: commit.done() or waiting_commits(server))
        return not commit.done() and bool(end_waiting(server, "pg_cancel_backend"))


def size(url: str) -> int:
    with closing(PostgresReading(url)) as reading:
        head = Reader(reading).head()
    assert head is not None
    return head.size


# -- which database -------------------------------------------------------------------------------------------------------


WRONG_URLS = (
    "postgresql://me:{}@here/log", "postgresql://me:{}@", "postgresql://me:{}@here:port/log",
    "postgresql://me:{}@here/log?nonsense=1", "postgresql://me@here/log?password={}&sslmode",
    "postgresql://me:{}@[::1/log", "postgresql://me:{}@here/log?port=1?",
)  # fmt: skip


def test_no_error_shows_the_password() -> None:
    for secret in ("s3cret", "s3@cret", "s3 cret", "s3/cret", "s3%cret"):
        for written in WRONG_URLS:
            text = written.format(secret)
            with pytest.raises((SetupError, StoreFailed)) as caught, closing(PostgresDatabase(text)) as database:
                database.open()
            error: BaseException | None = caught.value
            while error is not None:
                assert not [part for part in ("s3", "cret") if part in str(error)], text
                error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_a_password_is_taken_from_the_url_and_shown_nowhere(server: PostgreSQL, schema: str) -> None:
    server.execute(f"CREATE ROLE {GUARDED} LOGIN PASSWORD '{PASSWORD}'")
    server.execute(f"GRANT ALL ON SCHEMA log TO {GUARDED}")
    with closing(PostgresDatabase(server.url(user=GUARDED, password=PASSWORD, options=schema))) as database:
        append(created(database), [token(1)])
        assert database.place == f"PostgreSQL at {server.folder}:{server.port}/postgres"
    wrong = "wrong" + PASSWORD
    with closing(PostgresDatabase(server.url(user=GUARDED, password=wrong, options=schema))) as database:
        with pytest.raises(StoreFailed, match="password authentication failed") as caught:
            database.open()
        assert wrong not in str(caught.value)


def test_without_the_package_the_next_step_is_told() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from issuer.errors import SetupError\n"
        "from issuer.service.log.database.engines import database_at\n"
        "database_at('/a/file')\n"
        "try: database_at('postgresql://here/log')\n"
        "except SetupError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "pip install '.[postgresql]'" in done.stdout


def test_a_schema_with_other_tables_is_no_place_for_a_new_log(server: PostgreSQL, url: str) -> None:
    server.execute("CREATE TABLE log.other (one int)")
    with closing(database_at(url)) as database:
        database.open(create=True)
        assert not database.is_empty()


# -- what the server must be ----------------------------------------------------------------------------------------------


def test_a_server_that_may_lose_what_it_has_committed_is_refused(server: PostgreSQL, url: str) -> None:
    for name in ("fsync", "full_page_writes"):
        configure(server, name, "off")
        try:
            with closing(database_at(url)) as database, pytest.raises(SetupError, match=f"{name} off"):
                database.open(create=True)
        finally:
            configure(server, name, "on")


def test_a_role_s_own_settings_weaken_nothing(server: PostgreSQL, url: str) -> None:
    weak = {
        "synchronous_commit": "off", "client_min_messages": "error", "statement_timeout": "'50ms'",
        "lock_timeout": "'1h'", "idle_in_transaction_session_timeout": "'1h'",
        "default_transaction_isolation": "serializable", "default_transaction_read_only": "on",
    }  # fmt: skip
    with psycopg.connect(server.url()) as connection:  # a setting of a role holds for its next connection
        for name, value in weak.items():
            connection.execute(f"ALTER ROLE postgres SET {name} = {value}".encode())
    try:
        with closing(database_at(url)) as database:
            append(created(database), [token(1)])
            found = {name: database.fetch(f"SHOW {name}")[0][0] for name in weak}
    finally:
        with psycopg.connect(
            server.url(options="-cdefault_transaction_read_only=off -cstatement_timeout=0")
        ) as connection:
            connection.execute("ALTER ROLE postgres RESET ALL")
    assert found == {
        "synchronous_commit": "on", "client_min_messages": "warning", "statement_timeout": "0", "lock_timeout": "1s",
        "idle_in_transaction_session_timeout": "2s", "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "off",
    }  # fmt: skip


def test_a_reader_changes_nothing(url: str) -> None:
    with closing(PostgresDatabase(url)) as database, closing(PostgresReading(url)) as reading:
        created(database)
        with pytest.raises(StoreFailed, match="read-only"):
            reading.fetch("DELETE FROM head")


def test_an_ordinary_role_is_enough(server: PostgreSQL, schema: str) -> None:
    server.execute("CREATE ROLE plain LOGIN NOSUPERUSER")
    server.execute("GRANT USAGE, CREATE ON SCHEMA log TO plain")
    with closing(database_at(server.url(user="plain", options=schema))) as database:
        append(created(database), [token(1)])
        database.close()
        database.open()


def test_every_lookup_is_by_an_index_though_the_tables_are_small(url: str) -> None:
    """A plan is kept for as long as the connection: one that reads the whole table would be slow by the evening."""
    plans: list[str] = []

    class Explained(PostgresDatabase):
        def fetch(self, statement, values=()):  # type: ignore[no-untyped-def]
            if statement.startswith(("SELECT idx", "WITH", "SELECT hash", "SELECT leaf")):
                plans.extend(row[0] for row in super().fetch(f"EXPLAIN {statement}", values))
            return super().fetch(statement, values)

    with closing(Explained(url)) as database:
        store = created(database)
        append(store, [token(1)])
        database.define("ANALYZE")
        store.indexes_of(token(number).key for number in range(100))
        store.index_of_token(1, bytes(32))
        store.tile(0, 0, 0)
        store.leaves(0, 0)
    assert len([plan for plan in plans if "Index" in plan]) >= 4
    assert not [plan for plan in plans if "Seq Scan" in plan or "Hash" in plan or "Merge" in plan]


# -- a COMMIT -------------------------------------------------------------------------------------------------------------


def test_a_commit_whose_answer_is_lost_is_an_unknown_outcome(server: PostgreSQL, url: str, schema: str) -> None:
    with Proxy(server) as proxy, closing(PostgresDatabase(proxy.url(options=schema))) as database:
        store = created(database)
        proxy.at_commit = is_cut
        with pytest.raises(OutcomeUnknown):
            append(store, [token(1)])
        assert size(url) == 1


def test_a_commit_that_was_rolled_back_is_no_success(url: str) -> None:
    with closing(PostgresDatabase(url)) as database:
        created(database)
        database.begin()
        with pytest.raises(StoreFailed, match="zero"):
            database.fetch("SELECT 1 / 0")
        with pytest.raises(OutcomeUnknown, match="ROLLBACK"):
            database.commit()


def test_a_commit_that_no_longer_waits_for_its_replica_is_no_success(
    server: PostgreSQL, url: str, waits: Callable[[], None]
) -> None:
    """Measured: it ends as a success, with a warning."""
    with closing(PostgresDatabase(url)) as database:
        store = created(database)
        for number, end in enumerate(("pg_cancel_backend", "pg_terminate_backend")):
            waits()
            ending = threading.Thread(target=end_waiting, args=(server, end))
            ending.start()
            with pytest.raises(OutcomeUnknown):
                append(store, [token(number)])
            ending.join()
            assert size(url) == number + 1  # committed here, and nowhere else
            database.close()
            configure(server, "synchronous_standby_names", "")
            database.open()


def waiting_commits(server: PostgreSQL) -> list[tuple[object, ...]]:
    """Return the process of each COMMIT that waits for a replica."""
    return server.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")


def end_waiting(server: PostgreSQL, end: str) -> list[tuple[object, ...]]:
    """End the COMMIT that waits, as an operator could."""
    eventually(lambda: waiting_commits(server))
    return server.execute(f"SELECT {end}(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")


@pytest.mark.long
def test_a_commit_that_waits_for_too_long_is_an_unknown_outcome(
    server: PostgreSQL, url: str, waits: Callable[[], None]
) -> None:
    with closing(PostgresDatabase(url)) as database:
        store = created(database)
        waits()
        with pytest.raises(OutcomeUnknown, match="no answer"):
            append(store, [token(1)])
        # Its lock stays while it waits, so another host cannot append after it or believe that it is lost.
        database.close()
        with pytest.raises(StoreFailed, match="lock timeout"):
            database.open()
        database.close()
        configure(server, "synchronous_standby_names", "")
        database.open()
        assert size(url) == 1


@pytest.mark.long
def test_an_earlier_commit_is_with_the_replicas_before_the_log_goes_on(url: str, waits: Callable[[], None]) -> None:
    """An earlier COMMIT may have ended here alone: its server was killed while it waited."""
    with closing(PostgresDatabase(url)) as database:
        append(created(database), [token(1)])
        waits()
        database.close()
        with pytest.raises(OutcomeUnknown):
            database.open()


def interrupt_waiting(server: PostgreSQL) -> None:
    """Interrupt this process when its COMMIT waits."""
    eventually(lambda: waiting_commits(server))
    os.kill(os.getpid(), signal.SIGALRM)


def test_an_interrupt_cancels_no_commit(server: PostgreSQL, url: str, waits: Callable[[], None]) -> None:
    """psycopg's own waiting sends a cancel, which ends the COMMIT as a success that no replica has."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    with closing(PostgresDatabase(url)) as database:
        store = created(database)
        waits()
        before = signal.signal(signal.SIGALRM, interrupt)
        interrupting = threading.Thread(target=interrupt_waiting, args=(server,))
        interrupting.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                append(store, [token(1)])
        finally:
            interrupting.join()
            signal.signal(signal.SIGALRM, before)
        assert len(waiting_commits(server)) == 1
        assert size(url) == 0


# -- other hosts, and other servers ---------------------------------------------------------------------------------------


def test_a_host_that_waits_for_another_one_gives_up(url: str) -> None:
    with closing(PostgresDatabase(url)) as first, closing(PostgresDatabase(url)) as second:
        created(first)
        second.open()
        LogStore(first).begin()
        with pytest.raises(StoreFailed, match="lock timeout"):
            LogStore(second).begin()


@pytest.mark.long
@pytest.mark.parametrize("rows", [0, 1, 2000], ids=lambda rows: f"{rows} rows written")
def test_a_host_that_stops_in_its_transaction_delays_the_others_for_2_s(url: str, rows: int) -> None:
    with closing(PostgresDatabase(url)) as stopped, closing(PostgresDatabase(url)) as other:
        created(stopped)
        other.open()
        store, locked = LogStore(stopped), LogStore(stopped).begin()
        assert locked is not None
        hashes = [(9, at, bytes(32)) for at in range(rows)]
        assert stopped.write("INSERT INTO hashes (level, idx, hash) VALUES (%s, %s, %s)", hashes) == rows
        time.sleep(1.5)  # a slow peer
        append(LogStore(other), [token(1)])
        with pytest.raises(StoreFailed):
            store.append(locked, locked, [token(2)], [])
        assert size(url) == 1


@pytest.mark.long
def test_a_server_that_says_nothing_is_given_up(server: PostgreSQL, url: str) -> None:
    with closing(PostgresDatabase(url)) as database, closing(PostgresReading(url)) as reading:
        store = created(database)
        ((pid,),) = database.fetch("SELECT pg_backend_pid()")
        ((read_by,),) = reading.fetch("SELECT pg_backend_pid()")
        server.send(signal.SIGSTOP, pid, read_by)
        try:
            for ask in (store.head, Reader(reading).head):
                with pytest.raises(StoreFailed, match="no answer"):
                    ask()
            assert database.is_another()
            assert Reader(reading).head() is not None  # on a new connection
        finally:
            server.send(signal.SIGCONT, pid, read_by)


@pytest.mark.long
def test_a_replica_is_never_asked_and_a_promoted_one_is_another_server(tmp_path: Path) -> None:
    with postgresql() as primary:
        with closing(PostgresDatabase(primary.url())) as database:
            append(created(database), [token(1)])
        replica = primary.replica("second")
        both = f"postgresql://postgres@/postgres?host={quote(f'{replica.folder},{replica.folder}', safe='')}&port={replica.port},{primary.port}"
        for asked in (replica.url(), replica.url(target_session_attrs="any")):
            with closing(PostgresReading(asked)) as reading, pytest.raises(StoreFailed, match=r"replica|hot standby"):
                Reader(reading).head()
            with closing(PostgresDatabase(asked)) as database, pytest.raises(StoreFailed, match=r"replica|hot standby"):
                database.open()
        with (
            Proxy(primary) as pooler,
            closing(PostgresDatabase(pooler.url())) as database,
            closing(PostgresReading(both)) as reading,
        ):
            database.open()
            append(LogStore(database), [token(2)])
            assert Reader(reading).head() == LogStore(database).head()
            replica.caught_up_with(primary)
            replica.promote()
            pooler.switch(replica)
            with pytest.raises(StoreFailed, match="another server"):
                database.begin()
            primary.kill()
            with suppress(StoreFailed):  # on the old connection
                Reader(reading).head()
            assert size(replica.url()) == 2
            head = Reader(reading).head()
            assert head is not None
            assert head.size == 2


# -- TLS ------------------------------------------------------------------------------------------------------------------


def test_another_machine_is_reached_by_tls_unless_the_url_says_otherwise(server: PostgreSQL, schema: str) -> None:
    """127.1 is this machine, by a name that the client does not know as local."""
    with Proxy(server, tcp=True) as proxy:
        remote = PostgresDatabase(proxy.url(host="127.1", options=schema))
        with closing(remote), pytest.raises(StoreFailed):
            remote.open(create=True)
        with closing(PostgresDatabase(proxy.url(host="127.1", options=schema, sslmode="disable"))) as database:
            database.open(create=True)
        with closing(PostgresDatabase(proxy.url(options=schema))) as database:
            database.open(create=True)


def test_a_host_whose_look_up_hangs_is_passed_over(
    server: PostgreSQL, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, real = threading.Event(), socket.getaddrinfo

    def look_up(host: str, *rest: Any, **more: Any) -> Any:
        assert host != "silent.example" or go_on.wait(60)
        return real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with Proxy(server, tcp=True) as proxy:
        url = proxy.url(host="silent.example,localhost", options=schema, sslmode="disable")
        with closing(PostgresDatabase(url)) as database:
            database.open(create=True)
        alone = PostgresDatabase(proxy.url(host="silent.example", options=schema))
        with closing(alone), pytest.raises(StoreFailed, match=r"no address of silent\.example is found"):
            alone.open()
    go_on.set()


def test_the_name_in_the_server_s_certificate_is_verified(server: PostgreSQL, schema: str, tmp_path: Path) -> None:
    tls = certificate("localhost", tmp_path)
    roots = str(tmp_path / "cert.pem")
    with Proxy(server, tcp=True, tls=tls) as proxy:
        with closing(PostgresDatabase(proxy.url(options=schema, sslmode="verify-full", sslrootcert=roots))) as database:
            created(database)
        remote = PostgresDatabase(proxy.url(host="127.1", options=schema, sslrootcert=roots))
        with closing(remote), pytest.raises(StoreFailed, match="does not match host name"):
            remote.open()
