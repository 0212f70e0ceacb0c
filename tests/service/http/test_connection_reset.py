"""Connections in one process with the server: one that its client resets, and one that makes room for a new one."""

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
import uvloop
from litestar import Litestar, post
from uvicorn.server import ServerState

from issuer.service.http.messages import Answer
from issuer.service.http.protocol import BoundedProtocol, protocol_for
from issuer.service.http.request_limits import Tarpit
from issuer.service.settings.bounds import KEEP_ALIVE_S
from tests.support.http_load import request
from tests.support.running import Running
from tests.support.waiting import until

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
_opened: list[socket.socket] = []
RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: closing sends RST


async def empty(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def serving(
    app: Any = empty,
    note_early_close: Callable[[], object] = lambda: None,
    places: int = 100,
    proxy: str = "",
    fresh_s: float = 0,
) -> AsyncIterator[tuple[ServerState, tuple[str, int]]]:
    """Serve on a fresh socket; yield the server's state and address. It trusts one proxy, and has this many places."""
    protocol = protocol_for("https://issuer.example", note_early_close=note_early_close)
    protocol.max_connections, protocol.fresh_s = places, fresh_s
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        timeout_keep_alive=KEEP_ALIVE_S,
        proxy_headers=bool(proxy),
        forwarded_allow_ips=proxy,
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0)
    try:
        yield state, server.sockets[0].getsockname()
    finally:
        server.close()
        while _opened:
            _opened.pop().close()


async def ask(address: tuple[str, int], source: str = "127.0.0.1") -> socket.socket:
    """Return a connection that has got an answer, and may send its next request."""
    client = await begin(address, source, REQUEST)
    assert (await asyncio.get_running_loop().sock_recv(client, 1024)).startswith(b"HTTP/1.1 200")
    return client


async def begin(address: tuple[str, int], source: str, sent: bytes) -> socket.socket:
    """Return a connection from this address that has sent something, later than any before: the clock has milliseconds."""
    client = socket.socket()
    _opened.append(client)
    client.setblocking(False)
    client.bind((source, 0))
    loop = asyncio.get_running_loop()
    before = loop.time()
    await until(lambda: loop.time() > before)
    await loop.sock_connect(client, address)
    await loop.sock_sendall(client, sent)
    return client


async def timer_after_reset() -> asyncio.TimerHandle | None:
    """Reset a connection between two requests, and return the keep-alive timer that is left."""
    async with serving() as (state, address):
        client = await ask(address)
        (protocol,) = state.connections
        assert isinstance(protocol, BoundedProtocol)
        assert protocol.timeout_keep_alive_task is not None
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.close()
        await until(lambda: not state.connections)
        return protocol.timeout_keep_alive_task


def test_a_connection_that_is_reset_between_two_requests_keeps_no_timer() -> None:
    """uvicorn's keep-alive timer would hold its protocol, scope and headers for five seconds more, beyond the cap."""
    assert uvloop.run(timer_after_reset()) is None


async def large(scope: Any, receive: Any, send: Any) -> None:
    """Answer every request with more than the kernel buffers for a client that does not read."""
    piece, pieces = bytes(1_000_000), 30
    length = b"%d" % (pieces * len(piece))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    for number in range(pieces):
        await send({"type": "http.response.body", "body": piece, "more_body": number < pieces - 1})


async def close_before_the_answer(caplog: pytest.LogCaptureFixture) -> int:
    """Close a connection with two pipelined requests in the middle of the first answer; return how many were counted.

    The pipeline matters: uvicorn marks only the last request of a connection as disconnected.
    """
    closed: list[int] = []
    async with serving(large, lambda: closed.append(1)) as (state, address):
        client = socket.create_connection(address)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.sendall(REQUEST * 2)
        await until(lambda: any(one.flow.write_paused for one in state.connections if isinstance(one, BoundedProtocol)))
        client.close()
        await until(lambda: not state.connections and not state.tasks)
    assert all(record.levelno <= logging.INFO for record in caplog.records)  # uvicorn's access log may be on
    return len(closed)


def test_a_client_that_closes_before_its_answer_is_counted_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert uvloop.run(close_before_the_answer(caplog)) == 1


def test_the_log_stream_counts_the_clients_that_close_early(service: Running) -> None:
    address = (service.settings.listen.host, service.settings.listen.port)
    with socket.create_connection(address) as client:
        client.sendall(request("/tokens", service.token(), b"{}").replace(b"Content-Length: 2", b"Content-Length: 9"))
    assert '"requests":' in service.until_log_says("clients closed early")


# -- making room ----------------------------------------------------------------------------------------------------------


async def mute(scope: Any, receive: Any, send: Any) -> None:
    """Wait for the body, and then for the end of the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def by_path(scope: Any, receive: Any, send: Any) -> None:
    await {"/": empty, "/large": large}.get(scope["path"], mute)(scope, receive, send)


def to(path: bytes, *lines: bytes) -> bytes:
    return b"\r\n".join((b"POST " + path + b" HTTP/1.1", b"Host: x", *lines, b"", b""))


def ports(state: ServerState) -> set[int]:
    return {one.client[1] for one in state.connections if isinstance(one, BoundedProtocol) and one.client}


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1_000_000) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def port(client: socket.socket) -> int:
    return int(client.getsockname()[1])


async def make_room_in_the_order_of_waits() -> None:
    closed: list[int] = []
    async with serving(by_path, lambda: closed.append(1), places=5) as (state, address):
        unread = await begin(address, "127.0.0.2", to(b"/large"))
        await until(lambda: any(one.flow.write_paused for one in state.connections if isinstance(one, BoundedProtocol)))
        pipelined = await begin(address, "127.0.0.3", 2 * to(b"/mute"))
        await until(lambda: len(state.tasks) == 2)
        public = await begin(address, "127.0.0.4", to(b"/mute"))
        bodiless = await begin(address, "127.0.0.5", to(b"/tokens", b"Content-Length: 9"))
        await until(lambda: len(state.tasks) == 4)
        silent = await begin(address, "127.0.0.6", b"")
        await until(lambda: len(state.connections) == 5)
        for number, first in enumerate((unread, pipelined, silent, public, bodiless)):
            assert port(first) in ports(state)
            client = await ask(address, f"127.0.1.{number}")
            assert port(first) not in ports(state)
            await until(lambda first=first: is_closed(first))  # type: ignore[misc]
            begun = len(state.tasks)
            await asyncio.get_running_loop().sock_sendall(client, to(b"/tokens"))
            await until(lambda begun=begun: len(state.tasks) > begun)  # type: ignore[misc]
        assert not closed, "the service closed them, not the clients"


def test_the_connection_that_has_waited_longest_for_its_client_makes_room() -> None:
    """First of a client that does not read, that pipelines, that is silent; then a request that is not for tokens, and
    a request for tokens without its body."""
    uvloop.run(make_room_in_the_order_of_waits())


async def under_work(address: tuple[str, int], state: ServerState, *sources: str) -> list[socket.socket]:
    """Have the service work on a request of each source, one after the other."""
    made: list[socket.socket] = []
    for source in sources:
        made.append(await begin(address, source, to(b"/tokens")))
        await until(lambda: len(state.tasks) == len(made))
    return made


async def make_room_while_none_waits() -> None:
    async with serving(by_path, places=3) as (state, address):
        first, newest, other = await under_work(address, state, "127.0.0.2", "127.0.0.2", "127.0.0.3")
        client = await ask(address, "127.0.0.4")
        left = {port(first), port(other), port(client)}
        assert ports(state) == left
        await asyncio.get_running_loop().sock_sendall(client, to(b"/tokens"))
        await until(lambda: is_closed(newest) and len(state.tasks) == 3)
        late = await begin(address, "127.0.0.5", b"")
        await until(lambda: is_closed(late))
        assert ports(state) == left, "no source has more than half"


def test_while_no_client_is_waited_for_a_source_with_more_than_half_makes_room() -> None:
    uvloop.run(make_room_while_none_waits())


async def make_room_behind_a_proxy() -> None:
    async with serving(by_path, places=3, proxy="127.0.0.2", fresh_s=60) as (state, address):
        (working,) = await under_work(address, state, "127.0.0.3")
        first, second = [await ask(address, "127.0.0.2") for _ in range(2)]
        waiting = await begin(address, "127.0.0.4", b"")
        await until(lambda: is_closed(first))
        late = await begin(address, "127.0.0.5", b"")
        await until(lambda: is_closed(waiting))
        assert ports(state) == set(map(port, [working, second, late])), "the proxy's are fewer than half"


def test_idle_connections_of_a_trusted_proxy_make_room_if_they_are_more_than_half() -> None:
    uvloop.run(make_room_behind_a_proxy())


async def make_room_before_a_fresh_one() -> None:
    tarpit = Tarpit("https://issuer.example")

    @post("/tokens", status_code=200)
    async def refuse() -> Answer:
        return tarpit.answer("00")

    refusing = Litestar([refuse], openapi_config=None)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (by_path if scope["path"] == "/mute" else refusing)(scope, receive, send)

    async with serving(app, places=3, fresh_s=60) as (state, address):
        held = await begin(address, "127.0.0.2", to(b"/tokens", b"Content-Length: 0"))
        await until(lambda: tarpit.waiting)
        public = await begin(address, "127.0.0.3", to(b"/mute"))
        await until(lambda: len(state.tasks) == 2)
        fresh = await begin(address, "127.0.0.4", b"")
        for first in (held, public):
            late = await begin(address, "127.0.0.5", b"")
            await until(lambda late=late: port(late) in ports(state))  # type: ignore[misc]
            assert port(first) not in ports(state)
            assert port(fresh) in ports(state)


def test_delayed_refusals_and_public_requests_make_room_before_fresh_connections() -> None:
    uvloop.run(make_room_before_a_fresh_one())
