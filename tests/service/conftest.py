"""One service for all black-box tests of a session; when it ends, its logs are searched for secrets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from issuer.dev.provider import LocalProvider
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
