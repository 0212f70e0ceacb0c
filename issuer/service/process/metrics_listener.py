"""The listener for Prometheus and the operator's view. It runs in threads of the helper, beside the workers.

So a scrape delays no request, and is answered even if no worker answers. The supervisor holds the socket and never
closes it: while the helper restarts, new scrapes wait in the socket's queue. Every client that reaches the address
may read everything, so it must be loopback or a network of the operator.
"""

from __future__ import annotations

import io
import re
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from threading import BoundedSemaphore, Thread, Timer
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, MetricsHandler

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.io.sockets import why_not
from issuer.page.operator import AGAIN_S, HEADERS, loaded, write_overview
from issuer.service.metrics.counts import Board
from issuer.service.metrics.expose import BoardCollector
from issuer.service.metrics.history import History
from issuer.service.metrics.idle_rules import AuditWatch
from issuer.service.metrics.limit_usage import StoreLook
from issuer.service.metrics.state import BoardReader
from issuer.service.policies.watcher import Follower
from issuer.service.process.bounds import MAX_SCRAPES, SCRAPE_ENDS_S, SCRAPE_S
from issuer.service.process.overview import View
from issuer.service.settings.bounds import BEAT_S

# -- rebinding ---------------------------------------------------------------------------------------------------------

# An attacker's page, in the browser of a person who can reach this address, can make its own name resolve to it (DNS
# rebinding) and then read the answers. It cannot choose the Host that the browser sends: that is the page's name. That
# may be a name without a dot: a top-level domain can have an address, and a host of the local network can claim a name.

# RFC 3986 3.2.2 without escapes, and 3.2.3: an IPv6 address in brackets, a name or an IPv4 address.
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{0,5})?")


def is_own(host: str, names: Collection[str]) -> bool:
    """Return whether a Host is an IP address, `localhost` or one of these lowercase names."""
    found = _HOST.fullmatch(host.lower())
    if found is None:
        return False
    address, name = found.groups()
    return address is not None or name == "localhost" or name in names or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        IPv4Address(name)
    except ValueError:
        return False
    return True


# -- listener ----------------------------------------------------------------------------------------------------------

_HTML = "text/html; charset=utf-8"
_FOREIGN = (
    b"This address does not answer to the name in the Host header.\n"
    b"Use its IP address, or add the name to the setting metrics.names.\n"
)


class MetricsListener:
    """The listener at `host`. It answers to `host`, to `names`, and to Hosts that no attacker can send (`is_own`).

    `sources` are the board, the URL of the store and the audit file. Raises SetupError (`service.address`) if it cannot
    bind the address.
    """

    def __init__(self, host: str, port: int, names: Collection[str], sources: tuple[Board, str, Path]) -> None:
        self._sources = sources
        self._names = frozenset(name.lower() for name in (host, *names))
        self._turns = self._turns_before = 0
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
                0
            ]
            self._socket = socket.create_server((str(address[0]), int(address[1])), family=family)
        except (OSError, UnicodeError) as error:
            detail = f"cannot listen on {host} port {port} for metrics: {why_not(error)}"
            raise SetupError(Code.SERVICE_ADDRESS, detail) from None

    def start(self, policies: Follower) -> None:
        """Begin to answer, in threads."""
        board, store_url, audit_file = self._sources
        reader = BoardReader(board)
        registry, history = CollectorRegistry(auto_describe=False), History(reader)
        registry.register(BoardCollector(reader))
        integrations = lambda: policies.state.policies.policies  # noqa: E731
        watch = AuditWatch(audit_file, integrations)
        view = View(reader, history, policies, StoreLook(store_url, integrations), watch)
        watch.start()

        def turn() -> None:
            history.turn()
            self._turns += 1

        server = _Server(self._socket, partial(_Handler.factory(registry), view, self._names), turn)
        Thread(target=server.serve_forever, args=(BEAT_S / 2,), daemon=True, name="metrics").start()

    def turned(self) -> bool:
        """Return whether the listener has been alive since the last call."""
        before, self._turns_before = self._turns_before, self._turns
        return self._turns != before

    def close(self) -> None:
        """Close the socket, in a process that does not answer scrapes."""
        self._socket.close()


class _Server(ThreadingHTTPServer):
    """Answers up to MAX_SCRAPES at once, each in a thread, and ends each after SCRAPE_S. One more ends the first."""

    daemon_threads = True

    def __init__(
        self, listening: socket.socket, handler: Callable[..., BaseHTTPRequestHandler], turn: Callable[[], None]
    ) -> None:
        super().__init__(("", 0), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self._free = BoundedSemaphore(MAX_SCRAPES)
        self._scrapes: dict[Any, None] = {}
        self.service_actions = turn  # type: ignore[method-assign]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a scrape. If there are too many, end the first of them, so silent clients keep no scrape out."""
        if not self._free.acquire(blocking=False):
            for first in list(self._scrapes)[:1]:
                _hang_up(first)
            if not self._free.acquire(timeout=SCRAPE_ENDS_S):
                self.shutdown_request(request)
                return
        self._scrapes[request] = None
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system has no thread left
            self._end(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a scrape, and close it after SCRAPE_S."""
        ends = Timer(SCRAPE_S, _hang_up, (request,))
        ends.daemon = True
        try:
            ends.start()
            super().process_request_thread(request, client_address)
        finally:
            ends.cancel()
            self._end(request)

    def _end(self, request: Any) -> None:
        del self._scrapes[request]
        self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that closed its connection."""


def _hang_up(request: socket.socket) -> None:
    """End the reads and writes of another thread on this connection; `close` would end neither."""
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Handler(MetricsHandler):
    server_version, sys_version = "issuer", ""
    timeout = SCRAPE_S

    def __init__(self, view: View, names: Collection[str], *given: Any) -> None:
        self._view, self._names = view, names
        super().__init__(*given)

    def do_GET(self) -> None:  # noqa: N802 (http.server's own name)
        """Answer a scrape or a page; other paths get 404."""
        if not all(is_own(host, self._names) for host in self.headers.get_all("Host", ())):
            self._say(_FOREIGN, "text/plain; charset=utf-8", 421)
            return
        asked = urlsplit(self.path)
        match asked.path:
            case "/metrics":
                super().do_GET()
            case "/":
                overview = self._view.overview(int(time.time()))
                self._say(write_overview(overview, AGAIN_S if asked.query else None), _HTML)
            case path if (found := loaded().get(path[1:])) is not None:
                self._say(*found)
            case _:
                self.send_error(404)

    do_HEAD = do_GET  # noqa: N815 (http.server's own name)

    def end_headers(self) -> None:
        """End the head. In answer to a HEAD, drop the body (RFC 9110 9.3.2)."""
        super().end_headers()
        if self.command == "HEAD":
            self.wfile = io.BytesIO()

    def _say(self, body: bytes, media_type: str, status: int = 200) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", media_type), ("Content-Length", str(len(body))), *HEADERS):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
