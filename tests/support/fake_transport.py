"""A connection to an application in this process: the server's own protocol on a transport without a socket."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from uvicorn.server import Server

from issuer.service.admission.redis import RedisAdmission


async def begin_epoch(store: str) -> None:
    """Begin the epoch of a store: it refuses identity tokens from before."""
    admission = RedisAdmission(store, leeway_s=0)
    await admission.start()
    await admission.aclose()


class Wire(asyncio.Transport):
    """A transport without a socket: `answered` gets the bytes of one turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.answered.set_result(bytes(data))

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(pieces))

    def close(self) -> None:
        """Stay open: the client is always there."""

    write_eof = pause_reading = resume_reading = close

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: object = None) -> Any:
        return {"sockname": ("127.0.0.1", 80), "peername": ("127.0.0.1", 5000)}.get(name, default)


async def answer_to(running: Server, sent: bytes) -> bytes:
    """Return the answer of the running application to one request, on a new connection."""
    wire = Wire()
    make: Any = running.config.http_protocol_class
    protocol = make(running.config, running.server_state, {})
    protocol.connection_made(wire)
    protocol.data_received(sent)
    answer = await wire.answered
    protocol.connection_lost(None)
    return answer


class Client:
    """One connection of the running application, and requests that were made beforehand."""

    def __init__(self, running: Server, requests: Iterator[bytes]) -> None:
        self._requests = requests
        self._wire = Wire()
        make: Any = running.config.http_protocol_class
        self._protocol = make(running.config, running.server_state, {})
        self._protocol.connection_made(self._wire)

    async def send(self, count: int = 1) -> None:
        """Send the next requests, each after the answer to the one before. Raises AssertionError for another status than 201."""
        for _ in range(count):
            self._wire.answered = asyncio.get_running_loop().create_future()
            self._protocol.data_received(next(self._requests))
            answer = await self._wire.answered
            assert answer.startswith(b"HTTP/1.1 201 "), answer
