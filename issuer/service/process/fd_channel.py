"""A non-blocking channel that passes file descriptors from one process to another."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator


class Channel:
    """One end of a channel."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        end.setblocking(False)

    def receive(self) -> Iterator[int]:
        """Yield each descriptor that has arrived. It is closed when the caller asks for the next one."""
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

    def send(self, descriptor: int) -> None:
        """Send a descriptor. Raises OSError if the other end is closed, or too many descriptors wait for it."""
        socket.send_fds(self._end, [b"."], [descriptor])  # a datagram needs a byte

    def close(self) -> None:
        """Close this end."""
        self._end.close()


def channel() -> tuple[Channel, Channel]:
    """Make a channel, and return its two ends; each can send and receive."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return Channel(one), Channel(other)
