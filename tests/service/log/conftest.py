"""A fresh database of each engine for a log: SQLite in `make test`, PostgreSQL in `make check` too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.log_store import ENGINES, POSTGRESQL, Place


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.long] * (name == POSTGRESQL)) for name in sorted(ENGINES)]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with ENGINES[request.param](tmp_path) as fresh:
        yield fresh
