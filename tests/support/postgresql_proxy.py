"""A proxy in front of a PostgreSQL that reads what the server says, and can act in the moment between a COMMIT and its
answer: the server has written it, and the client does not know yet.

PostgreSQL's protocol, version 3: each message of the server is one byte of type, four of length (itself included), and
its content; `C` is CommandComplete, which names the command that ended, `Z` says that the next one may come.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

from tests.support.postgresql import PostgreSQL

COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"
READY = b"Z"
# The protocol numbers of the two requests that a client may send first: for TLS, and for GSSAPI.
ASKS_FOR_TLS, ASKS_FOR_GSSAPI = 80877103, 80877104


def passes() -> bool:
    return True


def is_cut() -> bool:
    """Cut the connection instead of answering."""
    return False


class Proxy:
    """Listens on a socket in the server's folder, or on loopback (`tcp`), there with TLS where it is given.

    `at_commit` is called when the server has answered a COMMIT, in a thread of the connection; the answer is passed on
    if it returns True, else the connection is cut. It may take its time, and hurt the server.
    """

    def __init__(self, server: PostgreSQL, *, tcp: bool = False, tls: ssl.SSLContext | None = None) -> None:
        self.server = server
        self.at_commit: Callable[[], bool] = passes
        self.commits = 0
        self.tls = tls
        self._links: list[_Link] = []
        self._path = _path(server, 6432)
        if tcp:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self._at: dict[str, str | int] = {"host": "localhost", "port": self._listener.getsockname()[1]}
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._at = {"host": str(server.folder), "port": 6432}
            self._listener.bind(self._path)
            self._listener.listen()

    def url(self, **parameters: str) -> str:
        place = urlencode({**self._at, **parameters}, quote_via=quote)
        return f"postgresql://postgres@/postgres?{place}"

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        Path(self._path).unlink(missing_ok=True)
        self.cut()

    def cut(self) -> None:
        for link in self._links:
            link.cut()

    def lead_to(self, server: PostgreSQL) -> None:
        """Cut every connection, and lead new ones to another server: as a name or an address does after a failover."""
        self.server = server
        self.cut()

    def switch(self, server: PostgreSQL) -> None:
        """Lead everybody to another server, on the connections that they have: as a pooler does after a failover."""
        self.server = server
        for link in self._links:
            link.switch(server)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError), near:
            near, startup = _begun(near, self.tls)
            link = _Link(near, startup, self._hears)
            with near, contextlib.closing(link):
                link.connect(self.server)
                self._links.append(link)
                link.run()

    def _hears(self, message: bytes) -> bool:
        if message != COMMITTED:
            return True
        self.commits += 1
        return self.at_commit()


class _Link:
    """A client's connection, and the one to the server behind it."""

    def __init__(self, near: socket.socket, startup: bytes, hears: Callable[[bytes], bool]) -> None:
        self._near = near
        self._startup = startup
        self._hears = hears
        self._far = socket.socket(socket.AF_UNIX)

    def connect(self, server: PostgreSQL) -> None:
        self._far.connect(_path(server, server.port))
        self._far.sendall(self._startup)

    def switch(self, server: PostgreSQL) -> None:
        before, self._far = self._far, socket.socket(socket.AF_UNIX)
        self.connect(server)
        for message in _messages(self._far):
            if message[:1] == READY:
                break
        _shut(before)

    def run(self) -> None:
        asking = threading.Thread(target=self._ask, daemon=True)
        asking.start()
        far: socket.socket | None = None
        while far is not self._far:
            far = self._far
            with far, contextlib.suppress(OSError):
                self._answer(far)
        self.cut()
        asking.join()

    def cut(self) -> None:
        _shut(self._near)
        _shut(self._far)

    def close(self) -> None:
        self._far.close()

    def _ask(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._near.recv(65536):
                self._far.sendall(data)
        _shut(self._far)

    def _answer(self, far: socket.socket) -> None:
        for message in _messages(far):
            if not self._hears(message):
                return
            self._near.sendall(message)


def _begun(near: socket.socket, tls: ssl.SSLContext | None) -> tuple[socket.socket, bytes]:
    """Return the connection, with TLS if the client asked for it and there is some, and the message that it began with."""
    while True:
        length = near.recv(4)
        rest = near.recv(int.from_bytes(length) - 4) if length else b""
        number = int.from_bytes(rest[:4])
        if number not in {ASKS_FOR_TLS, ASKS_FOR_GSSAPI}:
            return near, length + rest
        agreed = number == ASKS_FOR_TLS and tls is not None
        near.sendall(b"S" if agreed else b"N")
        if agreed and tls is not None:
            near = tls.wrap_socket(near, server_side=True)


def _messages(server: socket.socket) -> Iterator[bytes]:
    """Yield whole messages of a server until it hangs up."""
    held = b""
    while data := server.recv(65536):
        held += data
        while len(held) >= 5 and len(held) > (length := int.from_bytes(held[1:5])):
            message, held = held[: length + 1], held[length + 1 :]
            yield message


def _path(server: PostgreSQL, port: int) -> str:
    return str(server.folder / f".s.PGSQL.{port}")


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
