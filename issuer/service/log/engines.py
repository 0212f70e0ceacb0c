"""Which database a log is in: the path of a SQLite file, or the URL of a PostgreSQL database.

The library for PostgreSQL is an extra of the distribution, and is imported only where such a URL is given.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.service.log.sqlite import SqliteDatabase, SqliteReading
from issuer.service.log.store import Database, Reading

if TYPE_CHECKING:
    from types import ModuleType

SCHEME = "postgresql://"


def database_at(place: str) -> Database:
    """Return the connection of a sequencer, not open yet. Raises SetupError (`settings.invalid`)."""
    if not place.startswith(SCHEME):
        return SqliteDatabase(Path(place))
    database: Database = _postgres().PostgresDatabase(place)
    return database


def reading_at(place: str) -> Reading:
    """Return a connection that only reads. Raises SetupError (`settings.invalid`) and StoreFailed."""
    if not place.startswith(SCHEME):
        return SqliteReading(Path(place))
    reading: Reading = _postgres().PostgresReading(place)
    return reading


def _postgres() -> ModuleType:
    try:
        from issuer.service.log import postgres
    except ImportError as error:
        detail = f"psycopg cannot be used ({error}): run `pip install 'eval-token-issuer[postgresql]'`"
        raise SetupError(Code.SETTINGS_INVALID, detail) from None
    return postgres
