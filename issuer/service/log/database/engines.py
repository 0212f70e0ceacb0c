"""The choice of a log's database by its setting: the path of a SQLite file, or the URL of a PostgreSQL database.

A PostgreSQL database also has the documents that several hosts share (io/common_documents.py). Its library is an extra
of the distribution, and is imported only for such a URL.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.io.common_documents import FolderHome, Home
from issuer.service.log.database.sqlite import SqliteDatabase, SqliteReading
from issuer.service.log.database.store import Database, ReadConnection

if TYPE_CHECKING:
    from issuer.service.log.database import postgres

SCHEME = "postgresql://"


def database_at(place: str) -> Database:
    """Return the database of a sequencer, not connected yet. Raises SetupError (`settings.invalid`)."""
    if not place.startswith(SCHEME):
        return SqliteDatabase(Path(place))
    with _postgres_library():
        from issuer.service.log.database import postgres
    return postgres.PostgresDatabase(place)


def reading_at(place: str) -> ReadConnection:
    """Return a read-only connection. Raises SetupError (`settings.invalid`) and StoreFailed."""
    if not place.startswith(SCHEME):
        return SqliteReading(Path(place))
    with _postgres_library():
        from issuer.service.log.database import postgres
    return postgres.PostgresReading(place)


def connections_at(place: str) -> int | None:
    """Return how many connections the database accepts from this account; None for a SQLite file. Raises SetupError
    (`settings.invalid`) and StoreFailed."""
    if not place.startswith(SCHEME):
        return None
    with _postgres_library():
        from issuer.service.log.database import postgres
    return postgres.most_connections(place)


def home_of(data: Path, origin: str, place: str) -> Home:
    """Return the home of the keys' history and the revocations. It is the folder `data`, unless the log `origin` is in
    PostgreSQL and the folder is empty or they have moved: then it is that database. Raises SetupError
    (`settings.invalid`) and OSError."""
    folder = FolderHome(data)
    in_log = _home_in_log(origin, place)
    return folder if in_log is None or not (folder.has_moved or folder.is_empty) else in_log


def settle_home(data: Path, origin: str, place: str) -> None:
    """Move documents from the folder to the log's database, if that is their home. Raises SetupError."""
    if (home := _home_in_log(origin, place)) is not None:
        with closing(home):
            home.settle(FolderHome(data))


def _home_in_log(origin: str, place: str) -> postgres.PostgresHome | None:
    """Return the home in PostgreSQL. None for a SQLite file: only one host uses it."""
    if not origin or not place.startswith(SCHEME):
        return None
    with _postgres_library():
        from issuer.service.log.database import postgres
    return postgres.PostgresHome(place, origin)


@contextmanager
def _postgres_library() -> Iterator[None]:
    """Raise an ImportError as a SetupError that says what to install."""
    try:
        yield
    except ImportError as error:
        detail = f"psycopg cannot be used ({error}): in the checkout, run `pip install '.[postgresql]'`"
        raise SetupError(Code.SETTINGS_INVALID, detail) from None
