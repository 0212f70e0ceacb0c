"""Listening sockets: the addresses of a name, and one worker's own sockets on them."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.io.bounds import MAX_ACCEPTED

Address = tuple[socket.AddressFamily, tuple[str, int]]


def listen_addresses(host: str, port: int) -> list[Address]:
    """Return every address of a name, after making sure that nobody listens there: SO_REUSEPORT would share it.

    Raises SetupError (`service.address`).
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        addresses: list[Address] = sorted(
            {(family, (str(address[0]), int(address[1]))) for family, _, _, _, address in found}
        )
        for family, address in addresses:
            socket.create_server(address, family=family).close()
    except (OSError, UnicodeError) as error:
        raise SetupError(Code.SERVICE_ADDRESS, f"cannot listen on {host} port {port}: {why_not(error)}") from None
    return addresses


def why_not(error: OSError | UnicodeError) -> str:
    """Return the system's words for it; Python adds the address to those of a socket that it makes. What Python cannot
    write as a name of DNS (a label is empty, or too long) has none."""
    return "no such name" if isinstance(error, UnicodeError) else str(error.strerror).partition(" (while")[0]


def bind(addresses: Sequence[Address]) -> list[socket.socket]:
    """Bind one worker's own sockets. They get no connection before it listens on them, once it is ready."""
    sockets = []
    for family, address in addresses:
        sock = socket.socket(family)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
        sockets.append(sock)
    return in_bursts(sockets)


def in_bursts(sockets: Sequence[socket.socket]) -> list[socket.socket]:
    """Add descriptors to each socket, so that a worker takes up to `MAX_ACCEPTED` connections in one turn.

    libuv takes one by each descriptor. With a single one, the last of 32 callers that came at once waited until the
    first had three answers each: the slowest percent took 2.5 times the median, and takes 1.3 times.
    """
    return [*sockets, *(each.dup() for each in sockets for _ in range(MAX_ACCEPTED - 1))]
