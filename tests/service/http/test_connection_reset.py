"""A connection that its client resets, in one process with the server: nothing of it is left a moment later."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
import uvloop
from uvicorn.server import ServerState

from issuer.service.http.protocol import BoundedProtocol
from issuer.service.settings.bounds import KEEP_ALIVE_S

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: closing sends RST


async def empty(scope: Any, receive: Any, send: Any) -> None:
    """Answer every request with nothing."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[ServerState, tuple[str, int]]]:
    """Serve on a fresh socket; yield the server's state and address."""
    config = uvicorn.Config(empty, lifespan="off", log_config=None, timeout_keep_alive=KEEP_ALIVE_S)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BoundedProtocol(config, state, {}), "127.0.0.1", 0)
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


async def left_after_reset(seconds: float) -> bool:
    """Say whether the protocol of a connection that was reset still exists this many seconds later."""
    async with serving() as (state, address):
        client = await ask(address)
        protocol = weakref.ref(next(iter(state.connections)))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.close()
        await asyncio.sleep(seconds)
        gc.collect()
        assert not state.connections
        return protocol() is not None


def test_a_connection_that_is_reset_between_two_requests_is_forgotten_at_once() -> None:
    """uvicorn's keep-alive timer would hold its protocol, scope and headers for five seconds more, beyond the cap."""
    assert not uvloop.run(left_after_reset(0.5))


async def write_after_the_end() -> None:
    """Write an answer to a connection that is gone: uvloop's own transport raises."""
    async with serving() as (state, address):
        client = await ask(address)
        protocol = next(iter(state.connections))
        assert isinstance(protocol, BoundedProtocol)
        protocol.transport.abort()
        await asyncio.sleep(0.2)
        assert not state.connections
        for _ in range(2):
            protocol.transport.write(b"an answer")
        await asyncio.sleep(0)
        client.close()


def test_an_answer_that_nobody_waits_for_is_dropped_without_an_error() -> None:
    uvloop.run(write_after_the_end())
