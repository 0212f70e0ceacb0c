"""A service of two workers whose metrics are scraped."""

from collections.abc import Iterator

import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from tests.support.backing_up import backup
from tests.support.running import Running, listening, running, serve
from tests.support.scraping import until_scraped
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("scraped")
    with running(folder, provider, command=serve(2), metrics_port=free_port()) as service:
        eventually(lambda: listening(service) == 2)
        until_scraped(service, "issuer_workers", 2)
        backup(service, folder / "backup", folder / "bin")
        yield service
