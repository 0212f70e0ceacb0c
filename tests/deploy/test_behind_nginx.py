"""deploy/nginx/nginx.conf before a service: which of a caller's headers it passes on, and which requests it refuses."""

import itertools
import socket
import ssl
from collections.abc import Iterator

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


def test_an_address_that_a_caller_claims_is_ignored(behind: tuple[Running, httpx.Client]) -> None:
    live, http = behind
    addresses = itertools.count(1)

    def refused() -> bool:
        claimed = {"X-Forwarded-For": f"198.51.100.{next(addresses) % 250}", "Authorization": "Bearer x"}
        return http.post("/tokens", content=b"{}", headers={**JSON, **claimed}).status_code == 429

    bring_to_its_limit(live, "X-Forwarded-For: 127.0.0.1")
    eventually(refused)
