"""A line between two processes, on which descriptors of files are passed on; neither end ever waits."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator


class Line:
    """One end of it."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        end.setblocking(False)

    def take(self) -> Iterator[int]:
        """Yield each descriptor that has come; it is open until the next one is asked for."""
        while True:
            try:
                _, descriptors, _, _ = socket.recv_fds(self._end, 1, 1)
            except BlockingIOError:
                return
            for descriptor in descriptors:
                try:
                    yield descriptor
                finally:
                    os.close(descriptor)

    def tell(self, descriptor: int) -> None:
        """Pass a descriptor on. Raises OSError where the other end is gone, or has left too many untaken."""
        socket.send_fds(self._end, [b"."], [descriptor])  # a datagram needs a byte

    def close(self) -> None:
        """Close this end."""
        self._end.close()


def line() -> tuple[Line, Line]:
    """Make a line, and return its two ends."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return Line(one), Line(other)
