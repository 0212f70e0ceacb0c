"""deploy/nginx/nginx.conf before a service: which of a caller's headers it passes on, and which requests it refuses."""

import contextlib
import itertools
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from tests.support.fronted import fronted
from tests.support.running import BODY, Running, bring_to_its_limit, running
from tests.support.waiting import eventually

pytestmark = [pytest.mark.needs_tool("nginx"), pytest.mark.long]
JSON = {"Content-Type": "application/json"}
# nginx takes the address of a caller from a header, as it does behind another proxy; and answers without TLS, too.
REAL_IP = "set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP; listen 127.0.0.1:{};"
HELD = 256


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, httpx.Client]]:
    """Yield a service, and a client of the nginx before it."""
    folder, port = tmp_path_factory.mktemp("fronted"), free_port()
    with (
        LocalProvider() as provider,
        running(folder, provider, listen_trusted_proxies="127.0.0.1") as live,
        fronted(folder, port, live.settings.listen.port) as place,
    ):
        tls = ssl.create_default_context(cafile=place / "ca.pem")
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=tls, timeout=60) as http:
            yield live, http


def test_nginx_passes_requests_on_even_large_ones_but_not_for_readiness(behind: tuple[Running, httpx.Client]) -> None:
    live, http = behind
    identity = {**JSON, "Authorization": f"Bearer {live.token()}"}
    answer = http.post("/tokens", content=msgspec.json.encode(BODY), headers=identity)
    assert answer.status_code == 201
    assert answer.headers["Strict-Transport-Security"]
    assert http.get("/.well-known/jwks.json").json()["keys"]
    for ready in ("/health/ready/", "//health/ready//", "/health/./ready?x", "/health%2Fready", "/%68ealth/ready/"):
        assert http.get(ready).status_code in {403, 404}, ready
    assert (http.get("/health/ready").status_code, live.http.get("/health/ready").status_code) == (403, 200)
    known = {**JSON, "Authorization": f"Bearer {live.token()}"}
    large = http.post("/tokens/batch", content=b" " * (1024 * 1024 + 1), headers=known)
    assert (large.status_code, large.json()["code"]) == (413, "request.too_large")
    long = http.post("/tokens", content=b"{}", headers={**JSON, "Authorization": f"Bearer {'a' * 16_000}"})
    assert (long.status_code, long.headers["Content-Type"]) == (401, "application/problem+json")


def test_a_stranger_is_refused_before_its_body_has_come(behind: tuple[Running, httpx.Client]) -> None:
    """With nginx's buffering the answer would wait for the body, of which a part never comes."""
    _, http = behind
    head = "POST /tokens HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\nContent-Type: application/json\r\nContent-Length: 60000"
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    address = (http.base_url.host, http.base_url.port)
    with socket.create_connection(address, timeout=5) as plain, tls.wrap_socket(plain) as connection:
        connection.sendall(f"{head}\r\n\r\n{{".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")


def test_the_addresses_of_a_network_are_one_source_and_half_a_body_stays_in_nginx(tmp_path: Path) -> None:
    port, plain = free_port(), free_port()

    def status(address: str) -> int:
        return httpx.get(f"http://127.0.0.1:{plain}/health/live", headers={"X-Real-IP": address}).status_code

    with (
        LocalProvider() as provider,
        running(tmp_path, provider, listen_trusted_proxies="127.0.0.1") as live,
        fronted(tmp_path, port, live.settings.listen.port, REAL_IP.format(plain)),
        contextlib.ExitStack() as stack,
    ):
        for number in range(HELD):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", plain)))
            half = (
                "POST /verify HTTP/1.1", "Host: x", f"X-Real-IP: 2001:db8::{number:x}", "Content-Length: 9", "", "{",
            )  # fmt: skip
            connection.sendall("\r\n".join(half).encode())
        eventually(lambda: status("2001:db8::ffff:ffff:ffff:ffff") == 429)
        assert [status(other) for other in ("2001:db8:0:1::1", "192.0.2.1", "192.0.2.2")] == [200] * 3
        assert 0 < connections_to(live.settings.listen.port) < HELD / 8


def connections_to(port: int) -> int:
    """Count the established connections that a local port has accepted (proc(5), state 01)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


def test_an_address_that_a_caller_claims_is_ignored(behind: tuple[Running, httpx.Client]) -> None:
    live, http = behind
    addresses = itertools.count(1)

    def refused() -> bool:
        claimed = {"X-Forwarded-For": f"198.51.100.{next(addresses) % 250}", "Authorization": "Bearer x"}
        return http.post("/tokens", content=b"{}", headers={**JSON, **claimed}).status_code == 429

    bring_to_its_limit(live, "X-Forwarded-For: 127.0.0.1")
    eventually(refused)
