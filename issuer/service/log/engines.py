"""Which database a log is in: the path of a SQLite file, or the URL of a PostgreSQL database, where that lies beside it
which all hosts go by.

The library for PostgreSQL is an extra of the distribution, and is imported only where such a URL is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.service.home import FolderHome, Home
from issuer.service.log.sqlite import SqliteDatabase, SqliteReading
from issuer.service.log.store import Database, Reading

if TYPE_CHECKING:
    from issuer.service.log.postgres_home import PostgresHome

SCHEME = "postgresql://"


def database_at(place: str) -> Database:
    """Return the connection of a sequencer, not open yet. Raises SetupError (`settings.invalid`)."""
    if not place.startswith(SCHEME):
        return SqliteDatabase(Path(place))
    with _its_library():
        from issuer.service.log.postgres import PostgresDatabase
    return PostgresDatabase(place)


def reading_at(place: str) -> Reading:
    """Return a connection that only reads. Raises SetupError (`settings.invalid`) and StoreFailed."""
    if not place.startswith(SCHEME):
        return SqliteReading(Path(place))
    with _its_library():
        from issuer.service.log.postgres import PostgresReading
    return PostgresReading(place)


def home_of(data: Path, origin: str, place: str) -> Home:
    """Return where the history of the keys and what is revoked lie: in the folder `data`; or with the log of this
    origin, where it is in PostgreSQL and they have moved there. Raises SetupError (`settings.invalid`) and OSError.

    One SQLite file has one host, and nobody else writes to it.
    """
    folder = FolderHome(data)
    beside_log = _home_in_log(origin, place)
    return folder if beside_log is None or not (folder.has_moved or folder.is_empty) else beside_log


def settle_home(data: Path, origin: str, place: str) -> None:
    """Move there what is still in the folder, where it belongs into the log's database. Raises SetupError."""
    if (home := _home_in_log(origin, place)) is not None:
        with closing(home):
            home.settle(FolderHome(data))


def _home_in_log(origin: str, place: str) -> PostgresHome | None:
    if not origin or not place.startswith(SCHEME):
        return None
    with _its_library():
        from issuer.service.log.postgres_home import PostgresHome
    return PostgresHome(place, origin)


@contextmanager
def _its_library() -> Iterator[None]:
    """Say what to install where a module of ours cannot be imported."""
    try:
        yield
    except ImportError as error:
        detail = f"psycopg cannot be used ({error}): in the checkout, run `pip install '.[postgresql]'`"
        raise SetupError(Code.SETTINGS_INVALID, detail) from None
