"""The choice of a log's database: the path of a SQLite file, or the URL of a PostgreSQL database, where all hosts find
the documents that they share beside the log.

The library for PostgreSQL is an extra of the distribution, and is imported only where such a URL is given.
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
from issuer.service.log.database.store import Database, Reading

if TYPE_CHECKING:
    from issuer.service.log.database import postgres

SCHEME = "postgresql://"


def database_at(place: str) -> Database:
    """Return the connection of a sequencer, not open yet. Raises SetupError (`settings.invalid`)."""
    if not place.startswith(SCHEME):
        return SqliteDatabase(Path(place))
    with _its_library():
        from issuer.service.log.database import postgres
    return postgres.PostgresDatabase(place)


def reading_at(place: str) -> Reading:
    """Return a connection that only reads. Raises SetupError (`settings.invalid`) and StoreFailed."""
    if not place.startswith(SCHEME):
        return SqliteReading(Path(place))
    with _its_library():
        from issuer.service.log.database import postgres
    return postgres.PostgresReading(place)


def home_of(data: Path, origin: str, place: str) -> Home:
    """Return the home of the keys' history and the revocations: the folder `data`; or the log of this origin, where it
    is in PostgreSQL and they have moved there. Raises SetupError (`settings.invalid`) and OSError.

    One SQLite file has one host, and nobody else writes to it.
    """
    folder = FolderHome(data)
    beside_log = _home_in_log(origin, place)
    return folder if beside_log is None or not (folder.has_moved or folder.is_empty) else beside_log


def settle_home(data: Path, origin: str, place: str) -> None:
    """Move what is still in the folder to the log's database, where it belongs there. Raises SetupError."""
    if (home := _home_in_log(origin, place)) is not None:
        with closing(home):
            home.settle(FolderHome(data))


def _home_in_log(origin: str, place: str) -> postgres.PostgresHome | None:
    if not origin or not place.startswith(SCHEME):
        return None
    with _its_library():
        from issuer.service.log.database import postgres
    return postgres.PostgresHome(place, origin)


@contextmanager
def _its_library() -> Iterator[None]:
    """Say what to install where a module of ours cannot be imported."""
    try:
        yield
    except ImportError as error:
        detail = f"psycopg cannot be used ({error}): in the checkout, run `pip install '.[postgresql]'`"
        raise SetupError(Code.SETTINGS_INVALID, detail) from None
