"""Sockets that a supervisor listens on and hands over: systemd's protocol, sd_listen_fds(3).

They outlive a service that is started again: callers wait in their queue, and none is refused.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

from issuer.codes import Code
from issuer.errors import SetupError

_FIRST = 3


def handed_over(environ: MutableMapping[str, str] = os.environ) -> list[socket.socket]:
    """Take the sockets that were handed to this process; none where they were meant for another, or nobody listens.

    The variables are taken away, so that no child takes the sockets for its own. Raises SetupError
    (`service.address`) for what is no listening TCP socket.
    """
    meant_for, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    if meant_for != str(os.getpid()) or not count.isdecimal():
        return []
    return [_listening(descriptor) for descriptor in range(_FIRST, _FIRST + int(count))]


def _listening(descriptor: int) -> socket.socket:
    try:
        taken = socket.socket(fileno=descriptor)
    except OSError:
        raise _no_listener(descriptor) from None
    is_tcp = taken.family in (socket.AF_INET, socket.AF_INET6) and taken.type == socket.SOCK_STREAM
    if not is_tcp or not taken.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        taken.close()
        raise _no_listener(descriptor)
    taken.set_inheritable(False)
    return taken


def _no_listener(descriptor: int) -> SetupError:
    detail = f"descriptor {descriptor} is no listening TCP socket: in the socket unit, say ListenStream=ADDRESS:PORT"
    return SetupError(Code.SERVICE_ADDRESS, detail)
