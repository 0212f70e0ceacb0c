"""The stores of these tests, one for a file and one that a test may hurt; and an event loop whose time stands still."""

import asyncio
from collections.abc import Iterator

import pytest

from issuer.service.admission.embedded import EmbeddedValkey
from tests.support.clock import Clock


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with EmbeddedValkey() as address:
        yield address


@pytest.fixture
def own_url() -> Iterator[str]:
    with EmbeddedValkey() as address:
        yield address


@pytest.fixture
async def loop_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of the event loop, which passes only when a test says so: no deadline depends on the machine's speed."""
    loop, clock = asyncio.get_running_loop(), Clock()
    clock.s = loop.time()
    monkeypatch.setattr(loop, "time", clock)
    return clock
