"""A real HTTP/1.1 server on a raw socket with any answer, also a bad one; one request a connection."""

import contextlib
import itertools
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

Action = bytes | Callable[[socket.socket], None]


@dataclass(frozen=True)
class Seen:
    """A request as it arrived, and when (monotonic)."""

    at: float
    line: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def raw(self) -> tuple[str, Mapping[str, str], bytes]:
        return self.line, self.headers, self.body


def reply(status: int, body: object = b"", **headers: str) -> bytes:
    """Return a whole answer; a body that is not bytes becomes JSON, and `_` in a header's name `-`."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content_Length": str(len(raw)), "Connection": "close", **headers}
    lines = [f"HTTP/1.1 {status} Said", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + raw


def hang_up(connection: socket.socket) -> None:
    """Close without an answer."""


def reset(connection: socket.socket) -> None:
    """Break the connection off (RST)."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def stall(connection: socket.socket) -> None:
    """Stay silent until the other side gives up."""
    connection.settimeout(30)
    with contextlib.suppress(OSError):
        connection.recv(1)


def drip(connection: socket.socket) -> None:
    """Send a body that never ends, a byte at a time."""
    with contextlib.suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(300):
            connection.sendall(b" ")
            time.sleep(0.1)  # a slow peer


@dataclass
class Scripted:
    """Answers the requests in turn with `actions`; the last one also all that follow."""

    actions: list[Action]
    seen: list[Seen] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    @property
    def gaps(self) -> list[float]:
        """The seconds between the requests."""
        times = [seen.at for seen in self.seen]
        return [after - before for before, after in itertools.pairwise(times)]

    def action_for(self, seen: Seen) -> Action:  # noqa: ARG002
        """Return the action for a request, which is the last of those seen, or nearly."""
        return self.actions[min(len(self.seen), len(self.actions)) - 1]

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as reader:
            line = reader.readline().decode("latin-1").strip()
            headers = dict(_headers(reader))
            body = reader.read(int(headers.get("content-length", 0)))
            self.seen.append(seen := Seen(time.monotonic(), line, headers, body))
            action = self.action_for(seen)
            connection.sendall(action) if isinstance(action, bytes) else action(connection)


def _headers(reader: Any) -> Iterator[tuple[str, str]]:
    while line := reader.readline().decode("latin-1").strip():
        name, _, value = line.partition(":")
        yield name.lower(), value.strip()
