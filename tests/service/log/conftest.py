"""A fresh database of each engine for a log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.log_store import ENGINES, Place


@pytest.fixture(params=sorted(ENGINES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with ENGINES[request.param](tmp_path) as fresh:
        yield fresh
