from collections.abc import Iterator

import pytest

from tests.support.hub_server import HubServer


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer() as server:
        yield server
