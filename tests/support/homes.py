"""The homes of an issuer's history and revocations, each fresh. A test holds for every one."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from issuer.io.common_documents import FolderHome, Home
from issuer.service.log.database.postgres import PostgresHome
from tests.support.log_store import ORIGIN, POSTGRESQL, created, postgres_place

# Connects to the same home once more, as another process or host does.
Open = Callable[[], Home]


@contextmanager
def folder(path: Path) -> Iterator[Open]:
    """Files in a folder."""
    yield lambda: FolderHome(path / "data")


@contextmanager
def beside_log(path: Path) -> Iterator[Open]:
    """A log's database in PostgreSQL, in its own schema, before it is settled."""
    with postgres_place(path) as place:
        created(place.connect()).database.close()
        opened: list[PostgresHome] = []

        def connect() -> PostgresHome:
            opened.append(PostgresHome(place.setting, ORIGIN))
            return opened[-1]

        yield connect
        for home in opened:
            home.close()


@contextmanager
def settled(path: Path) -> Iterator[Open]:
    """The same, settled."""
    with beside_log(path) as connect:
        home = connect()
        assert isinstance(home, PostgresHome)
        home.settle(FolderHome(path / "data"))
        yield connect


HOMES: dict[str, Callable[[Path], AbstractContextManager[Open]]] = {"folder": folder, POSTGRESQL: settled}
