"""PostgreSQL for several hosts: the log's database, and the home of the keys' history and the revocations.

    postgresql://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...]/DATABASE[?PARAMETER=VALUE&...]

Parameters are libpq's: `host=/FOLDER` for a unix socket, `options=-csearch_path%3DNAME` for a schema. TCP to another
machine uses TLS and verifies the server's name, unless `sslmode` says otherwise. The URL must name the primary itself:
not a replica, and not a pooler that shares connections, which would separate a transaction from its session's settings.

Each host's sequencer locks the head's row. After a failover to a replica without the last commits the log would have
another tree. `synchronous_standby_names` prevents this; if it is empty, `warnings` says so.

    kept      a document by its name, and a mark that changes with the document (io/common_documents.py)

A turn is a transaction that locks the row of a document. Its writes appear together or not at all, and a process that
stops during a turn blocks the others for at most HOME_IDLE_S. The documents' code reads the log's origin and size, and
never writes its tables.
"""

from __future__ import annotations

import errno
import re
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import chain

import structlog

from issuer.codes import Code
from issuer.errors import InputError, Place, SetupError
from issuer.io.bounds import MAX_RECORD_BYTES
from issuer.io.common_documents import HISTORY, MOVED, TURNS, FolderHome, Turn
from issuer.service.log.bounds import HOME_IDLE_S, HOME_POLL_S, LOG_STANDBYS_S
from issuer.service.log.database.postgres_session import Row, Server, Session, failing, fetch_rows
from issuer.service.log.database.store import Database, Dialect, StoreFailed, Values, absent, another
from issuer.service.signing.bounds import HISTORY_TURN_S

_log = structlog.get_logger("issuer")
DIALECT = Dialect(integer="BIGINT", octets="BYTEA", clustered="", for_update="FOR UPDATE", mark="%s")

# The server and its timeline, which changes with every promotion. It is the first part of a WAL file's name;
# pg_control_checkpoint() has the old timeline until the next checkpoint.
_IDENTITY = "SELECT system_identifier, left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) FROM pg_control_system()"
_BEGIN = f"BEGIN ISOLATION LEVEL READ COMMITTED; {_IDENTITY}"
_IS_EMPTY = "SELECT NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace(current_schema()))"
_IS_THERE = "SELECT to_regclass('head') IS NOT NULL"
_VALUES = re.compile(r"(?<= VALUES )(\([^)]*\))")  # one row of an INSERT
_ROWS = 1024  # rows of one INSERT; a message has at most 65,535 values
_TOUCH = "UPDATE head SET one = one WHERE one = 1"
_STANDBYS = "SELECT current_setting('synchronous_standby_names')"
NO_STANDBY = "PostgreSQL has no synchronous_standby_names: a failover may end this log"


class PostgresReading:
    """Implements `store.ReadConnection`, for the thread that makes it. Every statement is a transaction. Connects at
    the first statement, and again after a failure."""

    dialect = DIALECT

    def __init__(self, url: str) -> None:
        self._server = Server(url)
        self._opened: Session | None = None

    def fetch(self, statement: str, values: Values = ()) -> list[Row]:
        """Return all rows. Raises StoreFailed."""
        try:
            self._opened = self._opened or self._server.connect(reading=True)
            return fetch_rows(self._opened, statement, values)
        except StoreFailed:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect; the server rolls back."""
        connection, self._opened = self._opened, None
        if connection is not None:
            connection.close()


# -1 means that the account or the database has no limit.
_CONNECTIONS = (
    "SELECT least(current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int "
    "- coalesce(current_setting('reserved_connections', true), '0')::int, nullif(rolconnlimit, -1), "
    "nullif(datconnlimit, -1)) FROM pg_roles, pg_database WHERE rolname = current_user AND datname = current_database()"
)


def most_connections(url: str) -> int:
    """Return how many connections the server, this account and this database accept. Raises StoreFailed and
    SetupError."""
    with closing(PostgresReading(url)) as reading:
        ((most,),) = reading.fetch(_CONNECTIONS)
        return int(most)


class PostgresDatabase(PostgresReading, Database):
    """Implements `store.Database`."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.place = self._server.place
        self._identity: Row = ()
        self._standbys: str | None = None
        self._ask_again = 0.0

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings to the operator, as of the last `open` or `tend`."""
        return (NO_STANDBY,) if self._standbys == "" else ()

    def open(self, *, create: bool = False) -> None:
        """Connect, and commit an empty change: then all earlier commits are on the disk and the synchronous replicas,
        even those whose confirmation was lost. Raises SetupError and StoreFailed."""
        self._opened = self._server.connect()
        (self._identity,) = self.fetch(_IDENTITY)
        self._ask_again = 0.0
        self.tend()
        if self.fetch(_IS_THERE) == [(True,)]:
            self.begin()
            self.define(_TOUCH)
            self.commit()
        elif not create:
            raise absent(self.place)

    def is_another(self) -> bool:
        """Return whether the connection has ended: the next one may reach another server. `begin` checks an open
        one."""
        return self._opened is None or self._opened.closed

    def is_empty(self) -> bool:
        """Return whether the schema has no tables. No other application may use this schema."""
        return self.fetch(_IS_EMPTY) == [(True,)]

    def begin(self) -> None:
        """Begin a transaction on the server that was opened. Behind a proxy the server may have been replaced."""
        with failing():
            cursor = self._connection.execute(_BEGIN.encode(), prepare=False)
            cursor.nextset()
            identity = cursor.fetchone()
        if identity != self._identity:
            raise StoreFailed("another server answers than the one that was opened")

    def commit(self) -> None:
        """Return when everything is on the disk and the synchronous replicas. Raises OutcomeUnknown."""
        self._connection.commit_durably()

    def define(self, statement: str) -> None:
        """Run a statement without values."""
        with failing():
            self._connection.execute(statement.encode())

    def write(self, statement: str, rows: Iterable[Values]) -> int:
        """Run a statement once for each row of values, and return the total number of changed rows."""
        # One INSERT has many rows. `executemany` is unsafe: its pipeline ends with a Flush after the Sync, and then the
        # server does not end a session that is idle in a transaction, so a host that hangs would block all hosts.
        before, *inserted = _VALUES.split(statement)
        values, at_once = list(rows), _ROWS if inserted else 1
        changed = 0
        for first in range(0, len(values), at_once):
            part = values[first : first + at_once]
            text = before + ", ".join(inserted[:1] * len(part)) + "".join(inserted[1:])
            with failing():
                changed += self._connection.execute(text.encode(), tuple(chain.from_iterable(part))).rowcount
        return changed

    def fetch(self, statement: str, values: Values = ()) -> list[Row]:
        """Return all rows, within the transaction if there is one."""
        return fetch_rows(self._connection, statement, values)

    def tend(self) -> None:
        """Check from time to time whether a COMMIT waits for replicas, and log a warning when it does not."""
        if time.monotonic() >= self._ask_again:
            before = self.warnings
            ((self._standbys,),) = self.fetch(_STANDBYS)
            self._ask_again = time.monotonic() + LOG_STANDBYS_S
            for warning in set(self.warnings) - set(before):
                _log.warning("log database", place=self.place, warning=warning)

    @property
    def _connection(self) -> Session:
        if self._opened is None:
            raise StoreFailed("not connected")
        return self._opened


# -- documents ---------------------------------------------------------------------------------------------------------

_TABLES = "SELECT to_regclass('head') IS NOT NULL, to_regclass('kept') IS NOT NULL"
_LOG = "SELECT origin, size FROM head WHERE one = 1"
# Without the lock, two hosts that make the table at the same moment would fail in spite of IF NOT EXISTS.
_MAKE = (
    "SELECT pg_advisory_xact_lock(hashtext('eval-token-issuer/kept'))",
    "CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, octets BYTEA NOT NULL, mark UUID NOT NULL)",
)
_BEGIN_ONE = "INSERT INTO kept VALUES (%s, '', gen_random_uuid()) ON CONFLICT (name) DO NOTHING"
_LOOK = "SELECT name, mark FROM kept WHERE name = ANY(%s) ORDER BY name"
_READ = "SELECT CASE WHEN octet_length(octets) <= %s THEN octets END FROM kept WHERE name = %s"
_LOCK = "SELECT name FROM kept WHERE name = %s FOR UPDATE SKIP LOCKED"
_REPLACE = (
    "INSERT INTO kept (name, octets, mark) VALUES (%s, %s, gen_random_uuid()) "
    "ON CONFLICT (name) DO UPDATE SET octets = EXCLUDED.octets, mark = EXCLUDED.mark"
)
_APPEND = _REPLACE.replace("octets = EX", "octets = kept.octets || EX")
# A turn may wait for an operator's key in a token or a KMS.
_PATIENCE = f"SET LOCAL idle_in_transaction_session_timeout = '{HOME_IDLE_S:.0f}s'"
_PUT_BACK = (
    "Put the file of that name, from a backup or the previous database, into data, remove "
    f"{MOVED} there, and start. If another host still has the file, start that host first"
)


class PostgresHome:
    """Implements `common_documents.Home` in the database of the log `origin`. Connects at the first query, and again
    after a failure; each turn has a separate connection."""

    def __init__(self, url: str, origin: str) -> None:
        """Read the URL. Raises SetupError (`settings.invalid`)."""
        self._server = Server(url)
        self._origin = origin
        self._reading: Session | None = None
        self._one = threading.Lock()

    def place(self, name: str) -> str:
        """Return the database and the name of a document, for people."""
        return f"{self._server.place}: {name}"

    def look(self, *names: str) -> Hashable:
        """Return the marks of documents; a unique object if the database fails."""
        try:
            return tuple(self._fetch(_LOOK, ([*names],), names[0]))
        except OSError:
            return object()

    def read(self, name: str, most: int) -> bytes | None:
        """Return a document of at most `most` bytes."""
        return _document(self._fetch(_READ, (most, name), name), self.place(name), most)

    @contextmanager
    def turn(self, name: str, wait_s: float | None = None) -> Iterator[Turn]:
        """Lock the document's row in a transaction, and commit that at the end."""
        naming = partial(_naming, self.place(name))
        with naming():
            session = self._opened(reading=False)
        with closing(session):
            with naming():
                _wait_for(session, name, wait_s)
            yield _Rows(session, self.place)
            with naming():
                session.commit_durably()

    def close(self) -> None:
        """Disconnect."""
        session, self._reading = self._reading, None
        if session is not None:
            session.close()

    def _fetch(self, statement: str, values: Sequence[object], name: str) -> list[Row]:
        with self._one, _naming(self.place(name)):
            if self._reading is not None:
                with suppress(StoreFailed):  # the server may have ended an idle connection: try again with another one
                    return fetch_rows(self._reading, statement, values)
                self.close()
            self._reading = self._opened(reading=True)
            return fetch_rows(self._reading, statement, values)

    def _opened(self, *, reading: bool) -> Session:
        """Connect, and check that the database has this log and the table. Raises StoreFailed and SetupError."""
        session = self._server.connect(reading=reading)
        try:
            self._look_at_log(session, demand_table=True)
        except BaseException:
            session.close()
            raise
        return session

    def _look_at_log(self, session: Session, *, demand_table: bool = False) -> tuple[int, bool]:
        """Return the size of the log, and whether the table exists. Raises SetupError if the log is not here."""
        ((has_log, has_table),) = fetch_rows(session, _TABLES)
        if not has_log:
            raise absent(self._server.place)
        ((origin, size),) = fetch_rows(session, _LOG)
        if origin != self._origin:
            raise another(self._server.place, origin, self._origin)
        if demand_table and not has_table:
            raise StoreFailed("it has no history of the keys yet; the service creates it at its start")
        return int(size), bool(has_table)

    def settle(self, folder: FolderHome) -> None:
        """Make the table, and copy the documents of a folder into it, once. Existing documents are not replaced. Raises
        SetupError: `key.history` if the histories in folder and database differ, or if the history is lost;
        `log.absent`; `state.unreachable` if the database does not answer."""
        try:
            size = self._made()
            moved = [] if folder.has_moved else [name for turn in TURNS for name in self._take_over(folder, turn)]
            is_begun = bool(self.read(HISTORY, MAX_RECORD_BYTES))
            if not is_begun and (size or folder.has_moved):
                raise SetupError(Code.KEY_HISTORY, f"{self.place(HISTORY)} is lost. {_PUT_BACK}")
            if is_begun and not folder.has_moved:
                folder.leave(self._server.place)
                _log.info("history moved to log", place=self._server.place, files=moved)
        except StoreFailed as error:
            raise _unreachable(f"the log's database at {self._server.place}", str(error)) from error
        except OSError as error:
            raise _unreachable(str(error.filename), str(error.strerror)) from error

    def _made(self) -> int:
        """Make the table if it is missing; return the size of the log."""
        with closing(self._server.connect()) as session:
            size, has_table = self._look_at_log(session)
            if not has_table:
                with failing():
                    for statement in ("BEGIN", *_MAKE):
                        session.execute(statement.encode())
                    for name in TURNS:
                        session.execute(_BEGIN_ONE, (name,))
                session.commit_durably()
            return size

    def _take_over(self, folder: FolderHome, turn: str) -> list[str]:
        """Copy the documents that belong to one turn; return their names."""
        moved: list[str] = []
        with folder.turn(turn, HISTORY_TURN_S), self.turn(turn, HISTORY_TURN_S) as rows:
            for name in TURNS[turn]:
                raw, before = folder.read(name, MAX_RECORD_BYTES), rows.read(name, MAX_RECORD_BYTES)
                if raw and not before:
                    rows.replace(name, raw)
                    moved.append(name)
                elif raw and before and name == turn and not before.startswith(raw):
                    both = f"{folder.place(name)} differs from the one in {self._server.place}"
                    raise SetupError(Code.KEY_HISTORY, f"{both}. Find out which one is right, and move the file away")
        return moved


class _Rows:
    """The rows of documents, within a transaction. Implements `common_documents.Turn`."""

    def __init__(self, session: Session, place: Callable[[str], str]) -> None:
        self._session, self._place = session, place

    def read(self, name: str, most: int) -> bytes | None:
        """Return the current document."""
        with _naming(self._place(name)):
            return _document(fetch_rows(self._session, _READ, (most, name)), self._place(name), most)

    def append(self, name: str, raw: bytes) -> None:
        """Add lines to a document."""
        self._write(_APPEND, name, raw)

    def replace(self, name: str, raw: bytes) -> None:
        """Replace a document."""
        self._write(_REPLACE, name, raw)

    def _write(self, statement: str, name: str, raw: bytes) -> None:
        with _naming(self._place(name)), failing():
            self._session.execute(statement.encode(), (name, raw))


def _wait_for(session: Session, name: str, wait_s: float | None) -> None:
    """Begin a transaction, and wait for the lock of the row. Raises BlockingIOError and StoreFailed."""
    until = None if wait_s is None else time.monotonic() + wait_s
    with failing():
        session.execute(b"BEGIN ISOLATION LEVEL READ COMMITTED")
        session.execute(_PATIENCE.encode())
    while not fetch_rows(session, _LOCK, (name,)):
        if not fetch_rows(session, _LOOK, ([name],)):
            raise StoreFailed("its row is gone")
        if until is not None and time.monotonic() >= until:
            raise BlockingIOError(errno.EWOULDBLOCK, "another process, which may hang, is writing it")
        time.sleep(HOME_POLL_S)


def _document(rows: list[Row], place: str, most: int) -> bytes | None:
    """Return the document of a row. Raises InputError."""
    if not rows:
        return None
    if rows[0][0] is None:
        raise InputError(Code.FILE_TOO_LARGE, f"larger than {most} bytes", Place(place))
    return bytes(rows[0][0])


def _unreachable(place: str, why: str) -> SetupError:
    return SetupError(Code.STATE_UNREACHABLE, f"{place} does not work: {why}")


@contextmanager
def _naming(place: str) -> Iterator[None]:
    """Raise errors of the database as OSErrors with the document's place, as for a file."""
    try:
        yield
    except BlockingIOError as error:
        raise BlockingIOError(error.errno, error.strerror, place) from None
    except StoreFailed as error:
        raise OSError(errno.EIO, str(error), place) from error
    except SetupError as error:
        raise OSError(errno.EIO, error.detail, place) from error
