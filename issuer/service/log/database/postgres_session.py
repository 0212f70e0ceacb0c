"""From a URL to a connection to PostgreSQL on which nothing waits for ever; what a server must be to be believed.

Knows the library (psycopg 3, on libpq) and no statement of the log. Passwords are in no message.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import waiting
from psycopg.conninfo import conninfo_to_dict

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.service.log.bounds import LOG_CONNECT_S, LOG_DATABASE_S, LOG_IDLE_S, LOG_ROW_LOCK_S
from issuer.service.log.database.store import OutcomeUnknown, StoreFailed

Result = TypeVar("Result")
Row: TypeAlias = tuple[Any, ...]

# RFC 3986, strictly: libpq takes the rest of a password with an `@` in it for the host's name, and then prints it.
_TEXT = r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"
_URL = re.compile(
    rf"postgresql://(?:{_TEXT}+(?::{_TEXT}*)?@)?(?:{_TEXT}|[:\[\]])*(?:/{_TEXT}*)?(?:\?(?:{_TEXT}|[/:@])*)?"
)
_HERE = re.compile(r"|/.*|@.*|localhost|127\.\d+\.\d+\.\d+|::1")
_WRITE_IT = "Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, and percent-encode what is not a letter or a digit"

# A silent server is noticed by our own clock. Its statement timeout would cancel a COMMIT that waits for a replica, and
# such a COMMIT then *succeeds*, with no more than a warning: which a role's own settings must not hide either.
SETTINGS = {
    "client_min_messages": "warning",
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": f"{LOG_IDLE_S * 1000:.0f}ms",
    "lock_timeout": f"{LOG_ROW_LOCK_S * 1000:.0f}ms",
    "statement_timeout": "0",
    "synchronous_commit": "on",
    # A plan is kept from when the tables were small: it must be by index from the first day.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
# Without these what is committed may be gone after a power cut, or torn.
MUST_BE_ON = ("fsync", "full_page_writes", "synchronous_commit")

_ASK = f"SELECT {', '.join(f'current_setting({name!r})' for name in MUST_BE_ON)}"


class Late(Exception):
    """The server has not answered in time."""


class Session(psycopg.Connection[Row]):
    """A connection that waits for each answer at most LOG_DATABASE_S, and then is closed; it cancels nothing.

    psycopg's own asks the server to cancel what an interrupt came upon, be it a COMMIT.
    """

    def commit_durably(self) -> None:
        """Return when what was begun is on the disk, and with the replicas that are waited for. Raises
        OutcomeUnknown."""
        notices: list[str] = []

        def note(said: psycopg.errors.Diagnostic) -> None:
            notices.append(said.message_primary or "a notice")

        self.add_notice_handler(note)
        try:
            with failing():
                said = self.execute(b"COMMIT").statusmessage
        except StoreFailed as error:
            raise OutcomeUnknown(str(error)) from error
        finally:
            self.remove_notice_handler(note)
        # A COMMIT that no longer waits for a replica says so in a warning, and that it is done.
        if said != "COMMIT" or notices:
            raise OutcomeUnknown("; ".join([f"COMMIT was answered by {said}", *notices]))

    def wait(self, gen: Generator[Any, Any, Result], interval: float = 0.1, timeout: float | None = None) -> Result:
        """Let psycopg talk to the server until it has its answer. Raises Late."""
        deadline = time.monotonic() + min(timeout or LOG_DATABASE_S, LOG_DATABASE_S)
        try:
            return waiting.wait(_until(gen, deadline), self.pgconn.socket, interval)
        except Late:
            self.close()
            raise


def _until(gen: Generator[Any, Any, Result], deadline: float) -> Generator[Any, Any, Result]:
    """Pass on what psycopg waits for and what came; it is told at every interval that nothing did."""
    try:
        awaited = next(gen)
        while True:
            came = yield awaited
            if not came and time.monotonic() > deadline:
                gen.close()
                raise Late(f"no answer within {LOG_DATABASE_S:g} s")
            awaited = gen.send(came)
    except StopIteration as done:
        result: Result = done.value
        return result


@contextmanager
def failing() -> Iterator[None]:
    """Raise the library's errors as StoreFailed: the server's own words, without the values of a row."""
    try:
        yield
    except (psycopg.Error, Late) as error:
        said = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
        raise StoreFailed(f"{type(error).__name__}: {' '.join(said.split())}") from error


class Server:
    """Where a URL leads. `place` says so to people, without user and password."""

    def __init__(self, url: str) -> None:
        """Read the URL. Raises SetupError (`settings.invalid`)."""
        given = _parse(url)
        self.place = f"PostgreSQL at {given.get('host', '')}:{given.get('port', '5432')}/{given.get('dbname', '')}"
        self._parts = {**_defaults(given), **given}

    def connect(self, *, reading: bool = False) -> Session:
        """Connect to a primary that keeps what it has committed. Raises StoreFailed and SetupError."""
        try:
            with failing():
                session = Session.connect(**self._parts, autocommit=True)  # type: ignore[arg-type]
        except StoreFailed as error:
            said = str(error)
            for secret in filter(None, (self._parts.get("password"), self._parts.get("sslpassword"))):
                said = said.replace(secret, "***")
            raise StoreFailed(said) from None
        try:
            with failing():
                self._prepare(session, reading=reading)
        except BaseException:
            session.close()
            raise
        return session

    def _prepare(self, session: Session, *, reading: bool) -> None:
        if session.execute("SELECT pg_is_in_recovery()").fetchone() != (False,):
            raise StoreFailed(f"{self.place} is a replica, which may lack what was committed: name the primary")
        settings = SETTINGS | {"default_transaction_read_only": "on" if reading else "off"}
        for setting in settings.items():
            session.execute("SELECT set_config(%s, %s, false)", setting)
        found = session.execute(_ASK).fetchall()[0]
        if off := [name for name, value in zip(MUST_BE_ON, found, strict=True) if value != "on"]:
            detail = f"{self.place} has {' and '.join(off)} off, and may lose what it has committed. Set it to on"
            raise SetupError(Code.SETTINGS_INVALID, detail)


def _parse(url: str) -> dict[str, str]:
    """Return the parts by libpq's names, as far as they are there. Its own words are not told: they hold the URL."""
    try:
        if _URL.fullmatch(url):
            return {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except psycopg.Error:
        pass
    raise SetupError(Code.SETTINGS_INVALID, f"The URL of the log's database cannot be read. {_WRITE_IT}")


def _defaults(given: dict[str, str]) -> dict[str, str]:
    """Return what holds where the URL says nothing. Of several hosts the primary is meant."""
    hosts = (given.get("hostaddr") or given.get("host", "")).split(",")
    here = all(_HERE.fullmatch(host) for host in hosts)
    return {
        "application_name": "issuer-log",
        "connect_timeout": str(LOG_CONNECT_S),
        "client_encoding": "utf8",
        "target_session_attrs": "primary",
    } | ({} if here else {"sslmode": "verify-full"})


def fetch_rows(session: Session, statement: str, values: Sequence[object] = ()) -> list[Row]:
    """Return all rows of a statement. Raises StoreFailed."""
    with failing():
        return session.execute(statement.encode(), values or None, binary=True).fetchall()
