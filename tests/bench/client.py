"""A load generator that can saturate the service: raw HTTP/1.1 over asyncio sockets, in processes of its own."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import uvloop


@dataclass
class Run:
    """What one run gave: seconds of wall time, seconds of each answer in order of size, and statuses."""

    wall_s: float = 0.0
    taken_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def per_s(self) -> float:
        return len(self.taken_s) / self.wall_s

    def quantile_ms(self, share: float) -> float:
        return self.taken_s[min(len(self.taken_s) - 1, int(len(self.taken_s) * share))] * 1000


class Connection(asyncio.Protocol):
    """One keep-alive connection that sends its next request when the last one was answered."""

    def __init__(self, requests: Iterator[bytes], run: Run, pause_s: float) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._run = run
        self._pause_s = pause_s
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._next()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        self._run.taken_s.append(time.perf_counter() - self._sent)
        self._run.statuses[int(head[9:12])] += 1
        if self._pause_s:
            asyncio.get_running_loop().call_later(self._pause_s, self._next)
        else:
            self._next()

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            return
        self._sent = time.perf_counter()
        self._transport.write(request)


async def _drive(port: int, requests: Iterator[bytes], connections: int, pause_s: float) -> Run:
    run, loop = Run(), asyncio.get_running_loop()
    began = time.perf_counter()
    waiting = []
    for _ in range(connections):
        _, protocol = await loop.create_connection(lambda: Connection(requests, run, pause_s), "127.0.0.1", port)
        waiting.append(protocol.ended)
    await asyncio.gather(*waiting)
    run.wall_s = time.perf_counter() - began
    return run


def drive_here(port: int, requests: Iterable[bytes], connections: int, pause_s: float = 0.0) -> Run:
    """Send every request once, over so many connections, from this very process."""
    return uvloop.run(_drive(port, iter(requests), connections, pause_s))


def drive(port: int, requests: Sequence[bytes], connections: int, *, processes: int = 1, pause_s: float = 0.0) -> Run:
    """Send every request once, over so many connections, from so many processes; each connection pauses in between."""
    shares = [
        (port, list(requests[number::processes]), len(range(number, connections, processes)), pause_s)
        for number in range(min(processes, connections))
    ]
    with multiprocessing.get_context("spawn").Pool(len(shares)) as pool:
        pool.map(abs, range(len(shares) * 4))  # they have started
        runs = pool.starmap(drive_here, shares)
    whole = Run(wall_s=max(run.wall_s for run in runs))
    for run in runs:
        whole.taken_s += run.taken_s
        whole.statuses += run.statuses
    whole.taken_s.sort()
    return whole


def request(path: str, identity: str, body: bytes, *lines: str) -> bytes:
    """Write one POST."""
    head = (f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(body)}",
            f"Authorization: Bearer {identity}", *lines, "", "")  # fmt: skip
    return "\r\n".join(head).encode("latin-1") + body
