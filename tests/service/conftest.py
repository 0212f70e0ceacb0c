"""One service for all black-box tests of a session; when it ends, its logs are searched for secrets."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from issuer.dev.provider import LocalProvider
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.settings.background import Background
from tests.support.leaks import assert_nothing_secret
from tests.support.running import Running, running


@pytest.fixture(scope="session")
def provider() -> Iterator[LocalProvider]:
    with LocalProvider() as local:
        yield local


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("service"), provider) as live:
        yield live
        live.process.terminate()
        assert live.process.wait(60) == 0, "SIGTERM ends the service with 0"
        assert_nothing_secret(live)


@pytest.fixture
def store() -> Iterator[str]:
    """A store that outlives a service, so that earlier requests may be repeated."""
    with EmbeddedValkey() as url:
        yield url


@pytest.fixture
def server() -> Iterator[Any]:
    """A PostgreSQL server. Most tests do not load its driver."""
    from tests.support.postgresql import postgresql

    with postgresql() as made:
        yield made


@pytest.fixture
async def background() -> AsyncIterator[Background]:
    """Background tasks whose early end fails the test. By default it would end the process that runs all tests.

    Without this, a test that fails before `aclose` leaves tasks that the closing event loop cancels, and the default
    `leave` then calls os._exit(1): the failure itself is never reported.
    """
    ended: list[str] = []
    background = Background(leave=lambda: ended.append("a task"))
    yield background
    await background.aclose()
    assert ended == []
