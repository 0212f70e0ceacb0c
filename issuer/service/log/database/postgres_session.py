"""Connections to PostgreSQL (psycopg 3, on libpq) with a time limit for every answer, and checks of the server.

This file does not know the log's statements. Messages never contain passwords.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import waiting
from psycopg.conninfo import conninfo_to_dict

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.io.resolver import resolver_of
from issuer.service.log.bounds import LOG_CONNECT_S, LOG_DATABASE_S, LOG_IDLE_S, LOG_ROW_LOCK_S
from issuer.service.log.database.store import OutcomeUnknown, StoreFailed

Result = TypeVar("Result")
Row: TypeAlias = tuple[Any, ...]

# RFC 3986, strictly: if a password has an `@`, libpq takes the part after it for the host's name, and prints that part.
_TEXT = r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"
_URL = re.compile(
    rf"postgresql://(?:{_TEXT}+(?::{_TEXT}*)?@)?(?:{_TEXT}|[:\[\]])*(?:/{_TEXT}*)?(?:\?(?:{_TEXT}|[/:@])*)?"
)
_HERE = re.compile(r"|/.*|@.*|localhost|127\.\d+\.\d+\.\d+|::1")
_WRITE_IT = "Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, and percent-encode all except letters and digits"

# Our own clock limits the wait for a server. The server's statement timeout would cancel a COMMIT that waits for a
# replica, and such a COMMIT then *succeeds*, with only a warning; a role's settings must not hide that warning.
SETTINGS = {
    "client_min_messages": "warning",
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": f"{LOG_IDLE_S * 1000:.0f}ms",
    "lock_timeout": f"{LOG_ROW_LOCK_S * 1000:.0f}ms",
    "statement_timeout": "0",
    "synchronous_commit": "on",
    # The server may keep a plan from a time when the tables were small, so plans must always use indexes.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
# Without these, a power cut may lose or tear committed data.
MUST_BE_ON = ("fsync", "full_page_writes", "synchronous_commit")

_ASK = f"SELECT {', '.join(f'current_setting({name!r})' for name in MUST_BE_ON)}"


class Late(Exception):
    """The server has not answered in time."""


class Session(psycopg.Connection[Row]):
    """A connection that waits at most LOG_DATABASE_S for an answer, and then closes. It never cancels a statement;
    psycopg's own connection, when interrupted, has the server cancel the statement, even a COMMIT."""

    def commit_durably(self) -> None:
        """Return when the transaction is on the disk and the synchronous replicas. Raises OutcomeUnknown."""
        notices: list[str] = []

        def note(notice: psycopg.errors.Diagnostic) -> None:
            notices.append(notice.message_primary or "a notice")

        self.add_notice_handler(note)
        try:
            with failing():
                status = self.execute(b"COMMIT").statusmessage
        except StoreFailed as error:
            raise OutcomeUnknown(str(error)) from error
        finally:
            self.remove_notice_handler(note)
        # A COMMIT that stops waiting for a replica reports success, with a warning.
        if status != "COMMIT" or notices:
            raise OutcomeUnknown("; ".join([f"COMMIT was answered by {status}", *notices]))

    def wait(self, gen: Generator[Any, Any, Result], interval: float = 0.1, timeout: float | None = None) -> Result:
        """Run psycopg's exchange with the server until its answer is complete. Raises Late."""
        deadline = time.monotonic() + min(timeout or LOG_DATABASE_S, LOG_DATABASE_S)
        try:
            return waiting.wait(_until(gen, deadline), self.pgconn.socket, interval)
        except Late:
            self.close()
            raise


def _until(gen: Generator[Any, Any, Result], deadline: float) -> Generator[Any, Any, Result]:
    """Forward psycopg's waits and their results until a deadline. An interval without data gives an empty result."""
    try:
        awaited = next(gen)
        while True:
            ready = yield awaited
            if not ready and time.monotonic() > deadline:
                gen.close()
                raise Late(f"no answer within {LOG_DATABASE_S:g} s")
            awaited = gen.send(ready)
    except StopIteration as done:
        result: Result = done.value
        return result


@contextmanager
def failing() -> Iterator[None]:
    """Raise the library's errors as StoreFailed with the server's message, without the values of a row."""
    try:
        yield
    except (psycopg.Error, Late) as error:
        message = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
        raise StoreFailed(f"{type(error).__name__}: {' '.join(message.split())}") from error


class Server:
    """The server of a URL. `place` is its name for people, without user and password."""

    def __init__(self, url: str) -> None:
        """Read the URL. Raises SetupError (`settings.invalid`)."""
        given = _parse(url)
        self.place = f"PostgreSQL at {given.get('host', '')}:{given.get('port', '5432')}/{given.get('dbname', '')}"
        self._parts = {**_defaults(given), **given}

    def connect(self, *, reading: bool = False) -> Session:
        """Connect to a primary with durable commits. Raises StoreFailed and SetupError."""
        try:
            with failing():
                session = Session.connect(**_resolved(self._parts), autocommit=True)  # type: ignore[arg-type]
        except StoreFailed as error:
            message = str(error)
            for secret in filter(None, (self._parts.get("password"), self._parts.get("sslpassword"))):
                message = message.replace(secret, "***")
            raise StoreFailed(message) from None
        try:
            with failing():
                self._prepare(session, reading=reading)
        except BaseException:
            session.close()
            raise
        return session

    def _prepare(self, session: Session, *, reading: bool) -> None:
        if session.execute("SELECT pg_is_in_recovery()").fetchone() != (False,):
            raise StoreFailed(f"{self.place} is a replica, which may lack the last commits: name the primary")
        settings = SETTINGS | {"default_transaction_read_only": "on" if reading else "off"}
        for setting in settings.items():
            session.execute("SELECT set_config(%s, %s, false)", setting)
        values = session.execute(_ASK).fetchall()[0]
        if off := [name for name, value in zip(MUST_BE_ON, values, strict=True) if value != "on"]:
            names = " and ".join(off)
            detail = f"{self.place} has {names} off, and may lose commits. Set {names} to on"
            raise SetupError(Code.SETTINGS_INVALID, detail)


def _parse(url: str) -> dict[str, str]:
    """Return the parts of a URL by libpq's names. Never shows libpq's error messages, which contain the URL."""
    try:
        if _URL.fullmatch(url):
            return {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except psycopg.Error:
        pass
    raise SetupError(Code.SETTINGS_INVALID, f"The URL of the log's database cannot be read. {_WRITE_IT}")


def _defaults(given: dict[str, str]) -> dict[str, str]:
    """Return the defaults for parameters that the URL does not give. Of several hosts, connect to the primary."""
    hosts = (given.get("hostaddr") or given.get("host", "")).split(",")
    here = all(_HERE.fullmatch(host) for host in hosts)
    return {
        "application_name": "issuer-log",
        "connect_timeout": str(LOG_CONNECT_S),
        "client_encoding": "utf8",
        "target_session_attrs": "primary",
    } | ({} if here else {"sslmode": "verify-full"})


def _resolved(parts: Mapping[str, str]) -> dict[str, str]:
    """Return the parts with the addresses of their hosts. psycopg would look the names up without a time limit, one
    after the other. Raises psycopg.OperationalError if no host has an address."""
    hosts, ports = parts.get("host", "").split(","), parts.get("port", "").split(",")
    names = {host for host in hosts if host and host[0] not in "/@"}
    if not names or parts.get("hostaddr") or len(ports) not in {1, len(hosts)}:
        return {**parts}
    found = resolver_of("database").find_all(names)
    places: list[tuple[str, str, str]] = []
    for host, port in zip(hosts, ports * len(hosts), strict=False):
        addresses = found.get(host, ("",))  # an address of a unix socket is its path
        if not isinstance(addresses, OSError):
            places += ((host, address, port) for address in addresses)
    if not places:
        raise psycopg.OperationalError(f"no address of {', '.join(sorted(names))} is found (DNS)")
    names_of, addresses_of, ports_of = map(",".join, zip(*places, strict=True))
    resolved = {**parts, "host": names_of, "hostaddr": addresses_of}
    return resolved | {"port": ports_of} if "port" in parts else resolved


def fetch_rows(session: Session, statement: str, values: Sequence[object] = ()) -> list[Row]:
    """Return all rows of a statement. Raises StoreFailed."""
    with failing():
        return session.execute(statement.encode(), values or None, binary=True).fetchall()
