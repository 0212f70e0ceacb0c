"""Good callers beside 900 connections that only occupy places: 40 s of each flood, in `make attack` alone."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from issuer.tlog.checkpoint import ADD_CHECKPOINT_PATH
from tests.support.fronted import fronted
from tests.support.http_load import CROWD, ask_once, crowd, request
from tests.support.running import Running, running, singles
from tests.support.tree import write_trust
from tests.support.waiting import eventually
from tests.support.witnessing import TestLog, witnessing

pytestmark = pytest.mark.attack
SECONDS, GOOD = 40, 200
ONE, MANY, GOOD_SOURCE = ["127.0.0.2"], [f"127.0.1.{number}" for number in range(1, 51)], "127.0.0.3"
UNREAD = b"GET /errors HTTP/1.1\r\nHost: x\r\n\r\n" * 40


def head(path: str) -> bytes:
    """Return a request of which nearly all of the body never comes."""
    lines = (f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", "Content-Length: 1000", "", "{")
    return "\r\n".join(lines).encode()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("flooded")
    with running(folder, provider, trust=str(write_trust(folder)), listen_trusted_proxies="127.0.0.1") as service:
        assert service.post(service.token()).status_code == 201  # the key set is known
        yield service
        assert "Exception" not in service.log_text()


def beside(port: int, first: bytes, sources: list[str], good: list[bytes], source: str) -> None:
    """Send good requests at a steady rate beside a crowd: none is lost, and the answers come soon."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(abs, (1,))  # it has started
        flooding = pool.apply_async(crowd, (port, first, sources, SECONDS + 4))
        began = time.monotonic() + 3  # the crowd is complete
        answers = []
        for number, each in enumerate(good):
            due = began + number * SECONDS / len(good)
            eventually(lambda due=due: time.monotonic() >= due)  # type: ignore[misc]
            answers.append(ask_once(port, each, source))
        assert flooding.get() >= CROWD
    p99_s = sorted(taken_s for _, taken_s in answers)[int(len(good) * 0.99)]
    statuses = Counter(status for status, _ in answers)
    print(statuses, f"p99 {p99_s * 1000:.0f} ms")
    assert statuses.keys() <= {200, 201}
    assert p99_s < 1


@pytest.mark.parametrize(
    ("first", "sources", "source"),
    [
        pytest.param(UNREAD, ONE, GOOD_SOURCE, id="unread answers"),
        pytest.param(UNREAD, MANY, GOOD_SOURCE, id="unread answers, of many sources"),
        pytest.param(UNREAD, ONE, ONE[0], id="unread answers, of the good callers' source"),
        pytest.param(head("/verify"), ONE, GOOD_SOURCE, id="heads of questions"),
        pytest.param(head("/verify"), MANY, GOOD_SOURCE, id="heads of questions, of many sources"),
    ],
)
def test_good_callers_of_a_service_that_is_flooded_get_their_tokens(
    live: Running, first: bytes, sources: list[str], source: str
) -> None:
    beside(live.settings.listen.port, first, sources, singles(live, "RS256", GOOD), source)


@pytest.mark.parametrize("sources", [ONE, MANY], ids=["one source", "many sources"])
def test_good_logs_of_a_witness_that_is_flooded_get_their_cosignatures(tmp_path: Path, sources: list[str]) -> None:
    logs = [TestLog(f"log.example/{number}") for number in range(20)]
    good = [request(ADD_CHECKPOINT_PATH, "none", log.submission(size, size + 1)) for size in range(10) for log in logs]
    with witnessing(tmp_path / "w", [log.vkey for log in logs]) as witness:
        beside(witness.port, head(ADD_CHECKPOINT_PATH), sources, good, GOOD_SOURCE)


@pytest.mark.needs_tool("nginx")
@pytest.mark.parametrize("first", [UNREAD, head("/verify")], ids=["unread answers", "heads of questions"])
@pytest.mark.parametrize("sources", [ONE, MANY], ids=["one source", "many sources"])
def test_good_callers_behind_a_flooded_nginx_get_their_tokens(
    live: Running, tmp_path: Path, first: bytes, sources: list[str]
) -> None:
    """Without TLS: 900 handshakes at once would measure those."""
    port, plain = free_port(), free_port()
    with fronted(tmp_path, port, live.settings.listen.port, f"listen 127.0.0.1:{plain};"):
        beside(plain, first, sources, singles(live, "RS256", GOOD), GOOD_SOURCE)
