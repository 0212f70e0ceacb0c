"""A connection that its client resets, in one process with the server: the server soon frees all its state."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
import uvloop
from uvicorn.server import ServerState

from issuer.service.http.protocol import BoundedProtocol, protocol_for
from issuer.service.settings.bounds import KEEP_ALIVE_S
from tests.support.http_load import request
from tests.support.running import Running
from tests.support.waiting import until

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: closing sends RST


async def empty(scope: Any, receive: Any, send: Any) -> None:
    """Answer every request with nothing."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def serving(
    app: Any = empty, note_early_close: Callable[[], object] = lambda: None
) -> AsyncIterator[tuple[ServerState, tuple[str, int]]]:
    """Serve on a fresh socket; yield the server's state and address."""
    protocol = protocol_for("https://issuer.example", note_early_close=note_early_close)
    config = uvicorn.Config(app, lifespan="off", log_config=None, timeout_keep_alive=KEEP_ALIVE_S)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0)
    try:
        yield state, server.sockets[0].getsockname()
    finally:
        server.close()


async def ask(address: tuple[str, int]) -> socket.socket:
    """Return a connection that has got an answer, and may send its next request."""
    client = socket.socket()
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, address)
    await loop.sock_sendall(client, REQUEST)
    assert (await loop.sock_recv(client, 1024)).startswith(b"HTTP/1.1 200")
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
    assert caplog.records == []
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
