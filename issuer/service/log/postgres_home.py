"""The home of keys' history and revocations in the log's database (home.py), for hosts that share no folder.

    kept      a document by its name, and a mark that is new whenever the document is

A turn is a transaction that holds the row by whose name it is taken: what is written in it is there as a whole or not
at all, and who is stopped in the middle holds up nobody for longer than HOME_IDLE_S. It knows the log that is beside
the table by its origin, and touches nothing of it.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress

import structlog

from issuer.codes import Code
from issuer.errors import InputError, Place, SetupError
from issuer.service.bounds import HISTORY_TURN_S, HOME_IDLE_S, HOME_POLL_S, MAX_RECORD_BYTES
from issuer.service.home import HISTORY, MOVED, TURNS, FolderHome, Turn
from issuer.service.log.postgres_session import Row, Server, Session, failing, fetch_rows
from issuer.service.log.store import StoreFailed, absent, another

_log = structlog.get_logger("issuer")

_ARE_THERE = "SELECT to_regclass('head') IS NOT NULL, to_regclass('kept') IS NOT NULL"
_HEAD = "SELECT origin, size FROM head WHERE one = 1"
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


class PostgresHome:
    """Implements `home.Home`, beside the log of this origin. Connects when it is first asked, and anew where that has
    failed; each turn has a connection of its own."""

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
        with _naming(self.place(name)):
            session = self._opened(reading=False)
        try:
            with _naming(self.place(name)):
                _wait_for(session, name, wait_s)
            yield _Rows(session, self.place)
            with _naming(self.place(name)):
                session.commit_durably()
        finally:
            session.close()

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
            self._demand_table(session)
        except BaseException:
            session.close()
            raise
        return session

    def _demand_table(self, session: Session) -> None:
        if not self._look_at_log(session)[1]:
            raise StoreFailed("it has no history of the keys yet: the service begins it when it starts")

    def _look_at_log(self, session: Session) -> tuple[int, bool]:
        """Return the size of the log, and whether the table is there. Raises SetupError where the log is not there."""
        ((has_log, has_table),) = fetch_rows(session, _ARE_THERE)
        if not has_log:
            raise absent(self._server.place)
        ((origin, size),) = fetch_rows(session, _HEAD)
        if origin != self._origin:
            raise another(self._server.place, origin, self._origin)
        return int(size), bool(has_table)

    # -- at the start of the service ----------------------------------------------------------------------------------

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
        session = self._server.connect()
        try:
            size, has_table = self._look_at_log(session)
            if not has_table:
                with failing():
                    for statement in ("BEGIN", *_MAKE):
                        session.execute(statement.encode())
                    for name in TURNS:
                        session.execute(_BEGIN_ONE, (name,))
                session.commit_durably()
            return size
        finally:
            session.close()

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


_PUT_BACK = (
    "Put the file of that name, from a backup or out of the database before this one, into data, remove "
    f"{MOVED} there, and start; if another host has it still, start that one first"
)


class _Rows:
    """The rows, within a transaction. Implements `home.Turn`."""

    def __init__(self, session: Session, place: Callable[[str], str]) -> None:
        self._session = session
        self._place = place

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
