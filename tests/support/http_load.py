"""A load generator that can saturate the service: bytes made beforehand, over plain sockets and epoll, in this process.

It costs 15 to 20 us a request, most of it the kernel's: on shared cores it takes that from the service. `Run.cpu_s`
says how much it was.
"""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from issuer.service.http.bounds import BODY_DEADLINE_S, MAX_CONNECTIONS

# More connections than a process of the service accepts.
CROWD = MAX_CONNECTIONS + 100


@dataclass
class Run:
    """The figures of one run: seconds of wall time and of the generator's CPU, seconds of each answer, and statuses."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    taken_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def per_s(self) -> float:
        return len(self.taken_s) / self.wall_s

    def quantile_ms(self, share: float) -> float:
        ordered = sorted(self.taken_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000

    def __iadd__(self, other: Run) -> Run:
        self.wall_s += other.wall_s
        self.cpu_s += other.cpu_s
        self.taken_s += other.taken_s
        self.statuses += other.statuses
        return self


class Connection:
    """One keep-alive connection with at most one request under way."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), source_address=(source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent = 0.0
        self._buffer = b""

    def send(self, requests: Iterator[bytes]) -> bool:
        """Send the next request; False when all are sent."""
        request = next(requests, None)
        if request is None:
            return False
        self.sent = time.perf_counter()
        self.socket.sendall(request)
        return True

    def receive(self) -> int:
        """Read what has arrived: the status of a complete answer, 0 while more of it is due, -1 when none will come."""
        data = self.socket.recv(262144)
        if not data:
            return -1
        buffer = self._buffer = self._buffer + data
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            return 0
        at = buffer[:end].lower().find(b"content-length: ") + 16
        if len(buffer) < end + 4 + int(buffer[at : buffer.index(b"\r", at)]):
            return 0
        self._buffer = b""
        return int(buffer[9:12])


def drive(port: int, requests: Iterable[bytes], connections: int, pause_s: float = 0.0) -> Run:
    """Send every request once over a number of connections, each of which sends the next one after the last answer.

    Each waits `pause_s` in between.
    """
    with contextlib.ExitStack() as stack:
        driver = _Driver(stack.enter_context(select.epoll()), iter(requests), pause_s)
        run, cpu, began = driver.run, time.process_time(), time.perf_counter()
        for connection in [Connection(port) for _ in range(connections)]:
            stack.enter_context(connection.socket)
            driver.open(connection)
        while driver.opened:
            for number, _ in driver.ready.poll(driver.rest_s()):
                driver.receive(number)
            driver.resume()
        run.wall_s, run.cpu_s = time.perf_counter() - began, time.process_time() - cpu
    return run


class _Driver:
    """The connections of one run: those that wait for an answer, and those that pause before the next request."""

    def __init__(self, ready: select.epoll, left: Iterator[bytes], pause_s: float) -> None:
        self.run = Run()
        self.ready = ready
        self.opened: dict[int, Connection] = {}
        self._left = left
        self._pause_s = pause_s
        self._resting: deque[tuple[float, Connection]] = deque()

    def open(self, connection: Connection) -> None:
        self.ready.register(connection.socket, select.EPOLLIN)
        if connection.send(self._left):
            self.opened[connection.socket.fileno()] = connection

    def rest_s(self) -> float | None:
        """Return how long until the next request is due; None where no connection pauses."""
        return max(0.0, self._resting[0][0] - time.perf_counter()) if self._resting else None

    def receive(self, number: int) -> None:
        """Read from a socket; if that completes an answer, note it and go on."""
        if number not in self.opened:  # the service closed a connection that has sent everything
            self.ready.unregister(number)
            return
        connection = self.opened[number]
        status = connection.receive()
        now = time.perf_counter()
        if status > 0:
            self.run.taken_s.append(now - connection.sent)
            self.run.statuses[status] += 1
            if self._pause_s:
                self._resting.append((now + self._pause_s, connection))
            elif not connection.send(self._left):
                del self.opened[number]
        elif status < 0:
            self.ready.unregister(number)
            del self.opened[number]

    def resume(self) -> None:
        """Let connections send again whose pause is over."""
        while self._resting and self._resting[0][0] <= time.perf_counter():
            _, connection = self._resting.popleft()
            if not connection.send(self._left):
                self.opened.pop(connection.socket.fileno(), None)


def answer_to_head(port: int, path: str, identity: str, body: bytes) -> bytes:
    """Send the head of one POST whose body never comes, and return the answer, which must not wait for the body."""
    with socket.create_connection(("127.0.0.1", port), timeout=BODY_DEADLINE_S - 2) as connection:
        connection.sendall(request(path, identity, body).removesuffix(body))
        return connection.recv(65536)


def request(path: str, identity: str, body: bytes, *lines: str) -> bytes:
    head = (f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(body)}",
            f"Authorization: Bearer {identity}", *lines, "", "")  # fmt: skip
    return "\r\n".join(head).encode("latin-1") + body


def crowd(port: int, first: bytes, sources: Sequence[str], seconds: float) -> int:
    """Keep CROWD connections open that send these bytes, read nothing, and come back when they are closed.

    Run this in a separate process. Returns the number of connections made.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * CROWD)), hard))
    opened: dict[int, socket.socket] = {}
    made, ends = 0, time.monotonic() + seconds
    with select.epoll() as closed:
        while time.monotonic() < ends:
            for _ in range(min(CROWD - len(opened), 20)):
                made += 1
                with contextlib.suppress(OSError):  # it was closed at once
                    connection = _join(port, first, sources[made % len(sources)])
                    opened[connection.fileno()] = connection
                    closed.register(connection, select.EPOLLRDHUP)
            for number, _ in closed.poll(0.01):
                closed.unregister(number)
                opened.pop(number).close()
    for connection in opened.values():
        connection.close()
    return made


def _join(port: int, first: bytes, source: str) -> socket.socket:
    connection = socket.socket()
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.bind((source, 0))
        connection.settimeout(1)
        connection.connect(("127.0.0.1", port))
        connection.send(first)
    except OSError:
        connection.close()
        raise
    return connection


def ask_once(port: int, sent: bytes, source: str) -> tuple[int, float]:
    """Send one request on a new connection. Return the status (0: no whole answer) and the seconds that it took."""
    began, status = time.perf_counter(), 0
    with contextlib.suppress(OSError):
        connection = Connection(port, source)
        with connection.socket:
            connection.socket.settimeout(30)
            connection.socket.sendall(sent)
            while not (status := connection.receive()):
                pass
    return max(status, 0), time.perf_counter() - began
