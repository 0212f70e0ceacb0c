"""A real nginx in front of the service, configured for WebSockets as its documentation shows.

It passes `Upgrade` from any client, and reads the body of such a request as a body. The service must do the same.
"""

import contextlib
import socket
import subprocess
from collections.abc import Iterator

import httpx
import msgspec
import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from tests.support.fronted import until_it_listens
from tests.support.http_load import request
from tests.support.running import BODY, Running, running

pytestmark = pytest.mark.needs_tool("nginx")

CONFIG = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
  access_log {folder}/access.log;
  client_body_temp_path {folder}/1; proxy_temp_path {folder}/2; fastcgi_temp_path {folder}/3; uwsgi_temp_path {folder}/4;
  scgi_temp_path {folder}/5;
  proxy_http_version 1.1;
  proxy_set_header Upgrade $http_upgrade;
  proxy_set_header Connection "upgrade";
  proxy_set_header Host $host;
  proxy_set_header X-Forwarded-For $remote_addr;
  server {{ listen 127.0.0.1:{open}; location / {{ proxy_pass http://127.0.0.1:{service}; }} }}
  server {{
    listen 127.0.0.1:{closed};
    location / {{ proxy_pass http://127.0.0.1:{service}; }}
    location /tokens {{ deny all; }}
  }}
}}
"""


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[tuple[Running, int, int]]:
    """Yield a service, and two ports of an nginx in front of it: one for all paths, one that denies `/tokens`."""
    folder, opened, closed = tmp_path_factory.mktemp("nginx"), free_port(), free_port()
    with running(tmp_path_factory.mktemp("behind"), provider, listen_trusted_proxies="127.0.0.1") as live:
        config = folder / "nginx.conf"
        config.write_text(CONFIG.format(folder=folder, open=opened, closed=closed, service=live.settings.listen.port))
        process = subprocess.Popen(["nginx", "-c", config, "-p", folder, "-e", folder / "error.log"])
        try:
            until_it_listens(process, opened, folder / "error.log")
            yield live, opened, closed
        finally:
            process.terminate()
            process.wait(60)


def exchange(port: int, sent: bytes) -> bytes:
    """Send a request that ends its connection, and return all that comes."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(sent)
        received = b""
        with contextlib.suppress(ConnectionError):
            while data := connection.recv(65536):
                received += data
        return received


def carrying(hidden: bytes, *lines: str) -> bytes:
    first = ("GET /health/live HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(hidden)}")
    head = (*first, *lines, "", "")
    return "\r\n".join(head).encode() + hidden


def test_a_request_in_the_body_of_an_upgrade_is_not_read_and_an_honest_one_is(behind: tuple[Running, int, int]) -> None:
    live, opened, closed = behind
    decided = live.log_text().count('"decision"')
    body = msgspec.json.encode(BODY)
    direct = httpx.post(f"http://127.0.0.1:{closed}/tokens", content=body)
    assert direct.status_code == 403, "nginx denies it"
    for protocol in ("websocket", "h2c", "anything"):
        smuggled = b"\r\n" * 50_000 + request("/tokens", live.token(), body, "X-Forwarded-For: 192.0.2.7")
        received = exchange(closed, carrying(smuggled, f"Upgrade: {protocol}"))
        assert received.count(b"HTTP/1.1 ") == 1
        assert received.startswith(b"HTTP/1.1 400 ")
        assert b'"request.framing"' in received
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {live.token()}"}
    assert httpx.post(f"http://127.0.0.1:{opened}/tokens", content=body, headers=headers).status_code == 201
    assert live.log_text().count('"decision"') - decided == 1, "a hidden request before it would have been decided"
