"""A proxy in front of a PostgreSQL that reads what the server says, and can act in the moment between a COMMIT and its
answer: the server has written it, and the client does not know yet.

PostgreSQL's protocol, version 3, without TLS: each message of the server is one byte of type, four of length (itself
included), and its content; `C` is CommandComplete, which names the command that ended.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from urllib.parse import quote, urlencode

from tests.support.postgresql import PostgreSQL

COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"


def passes() -> bool:
    """Let the answer through."""
    return True


def is_cut() -> bool:
    """Cut the connection instead of answering."""
    return False


class Proxy:
    """Listens on a socket in the server's folder, at a port of its own.

    `at_commit` is called when the server has answered a COMMIT, in a thread of the connection; the answer is passed on
    if it returns True, else the connection is cut. It may take its time, and hurt the server.
    """

    def __init__(self, server: PostgreSQL, port: int = 6432) -> None:
        self.server = server
        self.port = port
        self.at_commit: Callable[[], bool] = passes
        self.commits = 0
        self._path = str(server.folder / f".s.PGSQL.{port}")
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._path)
        self._listener.listen()

    def url(self, database: str = "postgres", **parameters: str) -> str:
        place = urlencode({"host": str(self.server.folder), "port": self.port, **parameters}, quote_via=quote)
        return f"postgresql://postgres@/{database}?{place}"

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        Path(self._path).unlink()
        self.cut()

    def cut(self) -> None:
        """Cut every connection."""
        for end in self._open:
            _shut(end)

    def to(self, server: PostgreSQL) -> None:
        """Lead new connections to another server, as a name or an address does that moves after a failover."""
        self.server = server

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        with near, socket.socket(socket.AF_UNIX) as far, contextlib.suppress(OSError):
            far.connect(str(self.server.folder / f".s.PGSQL.{self.server.port}"))
            self._open += [near, far]
            asking = threading.Thread(target=_copy, args=(near, far), daemon=True)
            asking.start()
            self._answer(far, near)
            _shut(near)
            _shut(far)
            asking.join()

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        """Pass on whole messages of the server until one end closes, or `at_commit` says to cut."""
        held = b""
        while data := server.recv(65536):
            held += data
            while len(held) >= 5 and len(held) > (length := int.from_bytes(held[1:5])):
                message, held = held[: length + 1], held[length + 1 :]
                if message == COMMITTED:
                    self.commits += 1
                    if not self.at_commit():
                        return
                client.sendall(message)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    _shut(sink)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
