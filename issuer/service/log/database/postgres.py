"""What an issuer keeps in PostgreSQL, for several hosts: the log, and beside it the history of keys and revocations.

    postgresql://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...]/DATABASE[?PARAMETER=VALUE&...]

Parameters are libpq's: `host=/FOLDER` for a unix socket, `options=-csearch_path%3DNAME` for a schema. Over TCP to
another machine it is TLS with the server's name verified, unless `sslmode` says otherwise. To the server itself, and
never to a replica: a pooler that shares connections would part a transaction from its session's settings.

Each host's sequencer locks the head's row. A failover to a replica that lacks the last commits is another tree.
`synchronous_standby_names` keeps that from happening; where it is empty, `warnings` says so.

    kept      a document by its name, and a mark that is new whenever the document is (io/common_documents.py)

A turn is a transaction that holds the row of a document: what is written in it is there as a whole or not at all, and a
process that is stopped in the middle holds up the others for at most HOME_IDLE_S. Documents know the log beside their
table by its origin, and touch nothing of it.
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

# Whose tree this server has. The timeline is the first part of a WAL file's name, and new after every promotion;
# pg_control_checkpoint() has the old one until the next checkpoint.
_IDENTITY = "SELECT system_identifier, left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) FROM pg_control_system()"
_BEGIN = f"BEGIN ISOLATION LEVEL READ COMMITTED; {_IDENTITY}"
_IS_EMPTY = "SELECT NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace(current_schema()))"
_IS_THERE = "SELECT to_regclass('head') IS NOT NULL"
# What an INSERT has for one row; and how many rows one takes: a message has at most 65,535 values.
_VALUES = re.compile(r"(?<= VALUES )(\([^)]*\))")
_ROWS = 1024
_TOUCH = "UPDATE head SET one = one WHERE one = 1"
_STANDBYS = "SELECT current_setting('synchronous_standby_names')"
NO_STANDBY = "PostgreSQL has no synchronous_standby_names: a failover may end this log"


class PostgresReading:
    """Implements `store.Reading`, for the thread that makes it: every statement is a transaction.

    Connects when it is first asked, and anew after it has failed.
    """

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
        """Disconnect; the server undoes what was begun."""
        connection, self._opened = self._opened, None
        if connection is not None:
            connection.close()


class PostgresDatabase(PostgresReading, Database):
    """Implements `store.Database`."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._identity: Row = ()
        self._standbys: str | None = None
        self._ask_again = 0.0

    @property
    def place(self) -> str:
        """Host, port and name of the database."""
        return self._server.place

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator should know, as of the last `open` or `tend`."""
        return (NO_STANDBY,) if self._standbys == "" else ()

    def open(self, *, create: bool = False) -> None:
        """Connect, and commit something: then all that was committed before is on the disk and with the replicas that
        are waited for, also where an earlier answer to that was lost. Raises SetupError and StoreFailed."""
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
        """Say whether the connection is gone: the next may lead elsewhere. `begin` asks who answers on this one."""
        return self._opened is None or self._opened.closed

    def is_empty(self) -> bool:
        """Say whether there is no table in the schema, which has to be the log's own."""
        return self.fetch(_IS_EMPTY) == [(True,)]

    def begin(self) -> None:
        """Begin a transaction, on the server that was opened: behind a proxy it may have become another one."""
        with failing():
            asked = self._connection.execute(_BEGIN.encode(), prepare=False)
            asked.nextset()
            answering = asked.fetchone()
        if answering != self._identity:
            raise StoreFailed("another server answers than the one that was opened")

    def commit(self) -> None:
        """Return when everything is on the disk, and with the replicas that are waited for. Raises OutcomeUnknown."""
        self._connection.commit_durably()

    def define(self, statement: str) -> None:
        """Run a statement without values."""
        with failing():
            self._connection.execute(statement.encode())

    def write(self, statement: str, rows: Iterable[Values]) -> int:
        """Run a statement once for each of the rows, and return how many rows that has changed in all.

        Rows to insert go in one statement. Not by `executemany`: its pipeline ends with a Flush behind the Sync, after
        which the server no longer ends a session that is idle in a transaction: a host that stops would stop them all.
        """
        before, *inserted = _VALUES.split(statement)
        every, at_once = list(rows), _ROWS if inserted else 1
        changed = 0
        for first in range(0, len(every), at_once):
            some = every[first : first + at_once]
            text = before + ", ".join(inserted[:1] * len(some)) + "".join(inserted[1:])
            with failing():
                changed += self._connection.execute(text.encode(), tuple(chain.from_iterable(some))).rowcount
        return changed

    def fetch(self, statement: str, values: Values = ()) -> list[Row]:
        """Return all rows, in the transaction if one was begun."""
        return fetch_rows(self._connection, statement, values)

    def tend(self) -> None:
        """Ask now and then whether a COMMIT waits for replicas, and tell when it no longer does."""
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
# Two hosts that make a table at the same moment would fail, though it need not be there.
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
# What is begun here may wait for people's keys, which lie in tokens or clouds.
_PATIENCE = f"SET LOCAL idle_in_transaction_session_timeout = '{HOME_IDLE_S:.0f}s'"
_PUT_BACK = (
    "Put the file of that name, from a backup or out of the database before this one, into data, remove "
    f"{MOVED} there, and start; if another host has it still, start that one first"
)


class PostgresHome:
    """Implements `common_documents.Home`, beside the log of this origin. Connects when it is first asked, and anew
    after a failure; each turn has its connection."""

    def __init__(self, url: str, origin: str) -> None:
        """Read the URL. Raises SetupError (`settings.invalid`)."""
        self._server = Server(url)
        self._origin = origin
        self._reading: Session | None = None
        self._one = threading.Lock()

    def place(self, name: str) -> str:
        """Say in which database, and by which name."""
        return f"{self._server.place}: {name}"

    def look(self, *names: str) -> Hashable:
        """Look at the marks. A database that does not answer looks like nothing else."""
        try:
            return tuple(self._fetch(_LOOK, ([*names],), names[0]))
        except OSError:
            return object()

    def read(self, name: str, most: int) -> bytes | None:
        """Return a document of at most `most` bytes."""
        return _document(self._fetch(_READ, (most, name), name), self.place(name), most)

    @contextmanager
    def turn(self, name: str, wait_s: float | None = None) -> Iterator[Turn]:
        """Begin a transaction that holds the row, and commit it."""
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
                with suppress(StoreFailed):  # it may only have been idle for too long: once more, by another one
                    return fetch_rows(self._reading, statement, values)
                self.close()
            self._reading = self._opened(reading=True)
            return fetch_rows(self._reading, statement, values)

    def _opened(self, *, reading: bool) -> Session:
        """Connect to the database of this log, whose table is there. Raises StoreFailed and SetupError."""
        session = self._server.connect(reading=reading)
        try:
            self._look_at_log(session, demand_table=True)
        except BaseException:
            session.close()
            raise
        return session

    def _look_at_log(self, session: Session, *, demand_table: bool = False) -> tuple[int, bool]:
        """Return the size of the log, and whether the table is there. Raises SetupError where the log is not there."""
        ((has_log, has_table),) = fetch_rows(session, _TABLES)
        if not has_log:
            raise absent(self._server.place)
        ((origin, size),) = fetch_rows(session, _LOG)
        if origin != self._origin:
            raise another(self._server.place, origin, self._origin)
        if demand_table and not has_table:
            raise StoreFailed("it has no history of the keys yet: the service begins it when it starts")
        return int(size), bool(has_table)

    def settle(self, folder: FolderHome) -> None:
        """Make the table, and take over what lies in a folder: once, and nothing that is there is replaced.

        Raises SetupError: `key.history` where both have a history, or where one has been and is lost; `log.absent`; and
        `state.unreachable` where the database does not answer.
        """
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
        """Make the table where it is missing; return the size of the log."""
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
        """Copy the documents that are written in one turn; return their names."""
        moved: list[str] = []
        with folder.turn(turn, HISTORY_TURN_S), self.turn(turn, HISTORY_TURN_S) as there:
            for name in TURNS[turn]:
                raw, before = folder.read(name, MAX_RECORD_BYTES), there.read(name, MAX_RECORD_BYTES)
                if raw and not before:
                    there.replace(name, raw)
                    moved.append(name)
                elif raw and before and name == turn and not before.startswith(raw):
                    both = f"{folder.place(name)} is another one than that in {self._server.place}"
                    raise SetupError(Code.KEY_HISTORY, f"{both}. Find out which one is right, and move the file away")
        return moved


class _Rows:
    """The rows, within a transaction. Implements `common_documents.Turn`."""

    def __init__(self, session: Session, place: Callable[[str], str]) -> None:
        self._session, self._place = session, place

    def read(self, name: str, most: int) -> bytes | None:
        """Return a document as it is now."""
        with _naming(self._place(name)):
            return _document(fetch_rows(self._session, _READ, (most, name)), self._place(name), most)

    def append(self, name: str, raw: bytes) -> None:
        """Add lines to a document."""
        self._write(_APPEND, name, raw)

    def replace(self, name: str, raw: bytes) -> None:
        """Write a document anew."""
        self._write(_REPLACE, name, raw)

    def _write(self, statement: str, name: str, raw: bytes) -> None:
        with _naming(self._place(name)), failing():
            self._session.execute(statement.encode(), (name, raw))


def _wait_for(session: Session, name: str, wait_s: float | None) -> None:
    """Begin a transaction, and wait for the row. Raises BlockingIOError, and StoreFailed."""
    until = None if wait_s is None else time.monotonic() + wait_s
    with failing():
        session.execute(b"BEGIN ISOLATION LEVEL READ COMMITTED")
        session.execute(_PATIENCE.encode())
    while not fetch_rows(session, _LOCK, (name,)):
        if not fetch_rows(session, _LOOK, ([name],)):
            raise StoreFailed("its row is gone")
        if until is not None and time.monotonic() >= until:
            raise BlockingIOError(errno.EWOULDBLOCK, "another process writes there, which may be stopped")
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
    """Raise what a database does as an OSError with the document's place, as a file would."""
    try:
        yield
    except BlockingIOError as error:
        raise BlockingIOError(error.errno, error.strerror, place) from None
    except StoreFailed as error:
        raise OSError(errno.EIO, str(error), place) from error
    except SetupError as error:
        raise OSError(errno.EIO, error.detail, place) from error
