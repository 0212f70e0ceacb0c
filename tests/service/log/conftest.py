"""A fresh database of each engine for a log. What tests the database alone runs on every one in `make test`, the rest on
all in `make check`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.log_store import ENGINES, POSTGRESQL, Place


@pytest.fixture(params=sorted(ENGINES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with ENGINES[request.param](tmp_path) as fresh:
        yield fresh


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is for `make check`, before the marks are looked at."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if (
            callspec is not None
            and callspec.params.get("place") == POSTGRESQL
            and item.path.name != "tests/service/log/database/test_store.py"
        ):
            item.add_marker(pytest.mark.long)
