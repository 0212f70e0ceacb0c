"""The process that Prometheus scrapes and an operator looks at, beside the workers: it holds no request up, and answers
while none of them does.

Its socket is the parent's, which never gives up the address: a scrape that comes while this process is started again
waits for it. Whoever reaches the address may read everything, so it is loopback, or a network of the operator's own.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from threading import BoundedSemaphore, Timer
from typing import Any, NoReturn
from urllib.parse import urlsplit

from msgspec import Struct
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
from issuer.service.process.bounds import MAX_SCRAPES, SCRAPE_S
from issuer.service.process.fd_channel import Line
from issuer.service.process.overview import View
from issuer.service.process.policy_process import Following, PolicyKeeper
from issuer.service.process.supervisor import Beat
from issuer.service.settings.bounds import BEAT_S

# -- rebinding ---------------------------------------------------------------------------------------------------------

# By which names the metrics' address answers. Pure.
#
# A page of a stranger's, in the browser of somebody who reaches this address, can have its own name lead here (DNS
# rebinding), and then reads what is answered to it. What it cannot choose is the Host that its browser sends: a name of
# its own, which has a dot, because nobody on the Internet has one without.

# RFC 3986 3.2.2 without escapes, and 3.2.3: an address of IPv6 in brackets, or a name, or an address of IPv4.
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{0,5})?")


def is_own(host: str, names: Collection[str]) -> bool:
    """Say whether a Host is an IP address, a name without a dot, as `localhost` is, or one of these in lowercase."""
    found = _HOST.fullmatch(host.lower())
    if found is None:
        return False
    address, name = found.groups()
    return address is not None or "." not in name or name in names or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        IPv4Address(name)
    except ValueError:
        return False
    return True


# -- listener ----------------------------------------------------------------------------------------------------------

_HTML = "text/html; charset=utf-8"
_FOREIGN = (
    b"This address does not answer to the name that it was asked by (Host).\n"
    b"Ask by its IP address, or write the name into the setting metrics.names.\n"
)


class Shown(Struct, frozen=True):
    """What is shown: what workers count, what the store holds, what was decided, and by which policies."""

    board: Board
    store_url: str
    audit: Path
    keeper: PolicyKeeper


class MetricsListener:
    """`run` answers scrapes of a board, in a process of its own, to who asks for `host`, one of `names`, or by a name
    that no stranger can have (metrics_listener.py).

    Raises SetupError (`service.address`) where the address cannot be had.
    """

    name = "metrics"

    def __init__(self, host: str, port: int, names: Collection[str], shown: Shown) -> None:
        self._shown = shown
        self._names = frozenset(name.lower() for name in (host, *names))
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
                0
            ]
            self._socket = socket.create_server((str(address[0]), int(address[1])), family=family)
        except (OSError, UnicodeError) as error:
            detail = f"cannot listen on {host} port {port} for metrics: {why_not(error)}"
            raise SetupError(Code.SERVICE_ADDRESS, detail) from None

    def run(self, beat: Beat, told: Line) -> NoReturn:
        """Answer scrapes, and show how the issuer is."""
        reader, following = BoardReader(self._shown.board), Following(self._shown.keeper.state, told)
        registry, history = CollectorRegistry(auto_describe=False), History(reader)
        registry.register(BoardCollector(reader))
        view = View(
            reader,
            history,
            following,
            StoreLook(self._shown.store_url, lambda: following.state.policies.policies),
            AuditWatch(self._shown.audit, lambda: following.state.policies.policies),
        )
        view.audit.start()
        handler = partial(_Handler.factory(registry), view, self._names)

        def turn() -> None:
            beat()
            following.follow(False)
            history.turn()

        _Server(self._socket, handler, turn).serve_forever(BEAT_S / 2)
        raise SystemExit(0)

    def close(self) -> None:
        """Give up the address, in a process that does not answer."""
        self._socket.close()


class _Server(ThreadingHTTPServer):
    """Answers MAX_SCRAPES at once, each in a thread, and ends each after SCRAPE_S."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, handler: Callable[..., BaseHTTPRequestHandler], beat: Beat) -> None:
        super().__init__(("", 0), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self._free = BoundedSemaphore(MAX_SCRAPES)
        self.service_actions = beat  # type: ignore[method-assign]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer it, or close it where there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer it in time, or not at all."""
        ends = Timer(SCRAPE_S, _hang_up, (request,))
        ends.daemon = True
        ends.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            ends.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of who has hung up."""


def _hang_up(request: socket.socket) -> None:
    """End a connection that another thread reads from, or writes to: closing it would end neither."""
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Handler(MetricsHandler):
    server_version, sys_version = "issuer", ""
    timeout = SCRAPE_S

    def __init__(self, view: View, names: Collection[str], *given: Any) -> None:
        self._view, self._names = view, names
        super().__init__(*given)

    def do_GET(self) -> None:  # noqa: N802 (http.server's own name)
        """Answer a scrape, or show a page; everything else is not here."""
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

    def _say(self, body: bytes, media_type: str, status: int = 200) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", media_type), ("Content-Length", str(len(body))), *HEADERS):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
