"""A service with pages for a browser, a folder for screenshots, and the engines that run the verifier."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from tests.support.javascript import NODE, Engine, firefox, webkit
from tests.support.running import Running, running


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalProvider() as provider, running(tmp_path_factory.mktemp("pages"), provider) as service:
        yield service


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


_BROWSERS = [
    pytest.param(firefox, marks=[pytest.mark.long, pytest.mark.needs_tool("firefox-esr")], id="firefox"),
    pytest.param(webkit, marks=[pytest.mark.long, pytest.mark.needs_tool("WebKitWebDriver", "xvfb-run")], id="webkit"),
]


@pytest.fixture(scope="session", params=[pytest.param(lambda _: NODE, id="node"), *_BROWSERS])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A command that makes calls of the verifier: in Node, and in the engines of Firefox and of Safari."""
    made: Engine = request.param(tmp_path_factory.mktemp("engine"))
    return made
