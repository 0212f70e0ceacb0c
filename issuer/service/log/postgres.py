"""The log's database in PostgreSQL, where several hosts write one log: each host's sequencer locks the head's row.

    postgresql://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...]/DATABASE[?PARAMETER=VALUE&...]

Parameters are libpq's: `host=/FOLDER` for a unix socket, `options=-csearch_path%3DNAME` for a schema. Over TCP to
another machine it is TLS with the server's name verified, unless `sslmode` says otherwise. To the server itself, and
never to a replica: a pooler that shares connections would part a transaction from its session's settings.

A failover to a replica that lacks the last commits is another tree. `synchronous_standby_names` keeps that from
happening; where it is empty, `warnings` says so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from itertools import chain

import structlog

from issuer.service.bounds import LOG_STANDBYS_S
from issuer.service.log.postgres_session import Row, Server, Session, failing, fetch_rows
from issuer.service.log.store import Dialect, StoreFailed, Values, absent

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


class PostgresDatabase:
    """Implements `store.Database`."""

    dialect = DIALECT

    def __init__(self, url: str) -> None:
        self._server = Server(url)
        self._opened: Session | None = None
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

    def close(self) -> None:
        """Disconnect; the server undoes what was begun."""
        connection, self._opened = self._opened, None
        if connection is not None:
            connection.close()

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

    def rollback(self) -> None:
        """Undo what was begun."""
        self.define("ROLLBACK")

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
        """Return all rows."""
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


class PostgresReading:
    """Implements `store.Reading`, for the thread that makes it: every statement is a transaction of its own.

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
        """Disconnect."""
        connection, self._opened = self._opened, None
        if connection is not None:
            connection.close()
