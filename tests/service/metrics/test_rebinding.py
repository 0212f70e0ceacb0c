"""By which names the metrics' address answers: by none that a stranger can have lead there."""

import socket

import httpx
import pytest

from issuer.service.process.metrics_listener import is_own
from tests.support.running import Running

OWN = frozenset({"issuer.inside.example"})


GOOD_HOSTS = (
    "127.0.0.1", "127.0.0.1:9464", "[::1]:9464", "[fd00::7]", "10.244.1.17:9464", "localhost:9464", "LOCALHOST",
    "issuer:9464", "issuer-0", "issuer.inside.example:9464", "Issuer.Inside.Example",
)  # fmt: skip
OTHER_HOSTS = (
    "evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example:9464", "issuer.inside.example.",
    "x.issuer.inside.example", "127.0.0.1@evil.example", "evil.example/127.0.0.1", "127.1", "0x7f.0.0.1", "evil.", ".", "",
    "[::1", "[::1]evil.example", "[evil.example]", "127.0.0.1:x", "evil\u3002example", "evil.example#.localhost", "a b",
)  # fmt: skip


def test_it_answers_by_addresses_by_names_without_a_dot_and_by_its_own() -> None:
    assert [host for host in GOOD_HOSTS if not is_own(host, OWN)] == []
    assert [host for host in OTHER_HOSTS if is_own(host, OWN)] == []


@pytest.mark.long
@pytest.mark.parametrize("path", ["/", "/metrics", "/style.css", "/nowhere"])
def test_a_page_whose_name_was_led_here_reads_nothing(live: Running, path: str) -> None:
    url = f"http://127.0.0.1:{live.settings.metrics.port}{path}"
    refused = httpx.get(url, headers={"Host": f"evil.example:{live.settings.metrics.port}"})
    assert refused.status_code == 421
    assert refused.headers["content-type"] == "text/plain; charset=utf-8"
    assert refused.text.endswith("or add the name to the setting metrics.names.\n")
    assert httpx.get(url, headers={"Host": "issuer:9464"}).status_code == (404 if path == "/nowhere" else 200)


@pytest.mark.long
def test_each_host_of_several_counts_and_who_names_none_is_no_browser(live: Running) -> None:
    assert asked(live, b"Host: localhost\r\nHost: evil.example\r\n") == b"421"
    assert asked(live, b"") == b"200"


def asked(live: Running, headers: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", live.settings.metrics.port), 20) as there:
        there.sendall(b"GET /metrics HTTP/1.0\r\n%b\r\n" % headers)
        return there.recv(65536).split()[1]
