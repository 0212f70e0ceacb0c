"""One service for all black-box tests of a session; when it ends, its logs are searched for secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import AUDIENCE
from tests.support.running import METRIC_VALUE, Running, running


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


def assert_nothing_secret(live: Running) -> None:
    """Search everything that the run wrote for every credential, metric value, private key and issued token."""
    written = live.log_text() + live.settings.audit_file.read_text("utf-8")
    assert "decision" in written
    assert AUDIENCE not in live.log_text()
    assert str(METRIC_VALUE) not in written
    assert "inspect eval" not in written, "a command was written"
    assert "PRIVATE KEY" not in written
    # Longer than a jti, whose random 22 characters may begin like a token.
    assert not re.search(r"eyJ[A-Za-z0-9_-]{20}", written), "something in the form of a token was written"
    for secret in live.secrets:
        for part in (secret, *secret.split(".")):
            assert len(part) < 20 or part not in written, "a credential, or a part of one, was written"
