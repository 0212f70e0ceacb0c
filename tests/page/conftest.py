"""A service whose pages a browser looks at, and a folder for what it saw."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from tests.support.running import Running, running


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalProvider() as provider, running(tmp_path_factory.mktemp("pages"), provider) as service:
        yield service


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")
