"""A service whose pages a browser looks at, a folder for what it saw, and the engines that run the verifier."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from tests.support import firefox
from tests.support.javascript import NODE, Engine
from tests.support.running import Running, running


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalProvider() as provider, running(tmp_path_factory.mktemp("pages"), provider) as service:
        yield service


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


_IN_FIREFOX = pytest.param("firefox", marks=[pytest.mark.long, pytest.mark.needs_tool("firefox-esr", "npm")])


@pytest.fixture(scope="session", params=["node", _IN_FIREFOX])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return NODE if request.param == "node" else firefox.engine(tmp_path_factory.mktemp("firefox"))
