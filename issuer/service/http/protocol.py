"""HTTP/1.1 at the edge: what a connection may send, how long it may take, and how many there may be.

uvicorn's httptools protocol (RFC 9112) with the bounds that it lacks. What two readers could take for two different
requests is refused, here or by the parser: with a bare 400 without a code, and the connection is closed.

Weighed: a reverse proxy, which does most of this, but is not in front of every deployment; granian and hypercorn, which
have no deadline for a body as a whole either.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from issuer.service.bounds import BODY_S, HEAD_S, MAX_CONNECTIONS, MAX_HEAD_BYTES, READ_S

_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")


class JoinedTransport(asyncio.Transport):
    """A transport that joins the writes of one turn of the loop into one.

    uvicorn writes an answer's head and body separately: two system calls, two packets, a client that wakes up twice.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._held = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Hold the first piece until the second, or the next turn: nothing waits for a piece that may never come."""
        if self._held:
            held, self._held = self._held, b""
            self._transport.writelines((held, data))
        elif data:
            self._held = bytes(data)
            self._loop.call_soon(self._let_go)

    def _let_go(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def close(self) -> None:
        """Close it after what was written."""
        self._let_go()
        self._transport.close()

    def abort(self) -> None:
        """Close it at once."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Say whether it closes."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: object = None) -> Any:
        """Return what the transport knows about its socket."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Read no more for now."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._transport.resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with the deadlines and bounds that it lacks.

    Without them a connection that sends half a head stays open for ever, and an endless head stops every other request:
    its pieces are joined one by one (others waited 4 s, measured). Idle connections make room for new ones, the one
    idle the longest first: a client that holds many open cannot keep others out.
    """

    _due: asyncio.TimerHandle | None = None
    _owed_s: float | None = None
    _owes_anew = False
    _reader_due: asyncio.TimerHandle | None = None
    _in_message = False
    _in_head = False
    _head_bytes = 0
    idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head, and close another connection where this is one too many."""
        super().connection_made(JoinedTransport(transport, self.loop))
        self.idle_since = self.loop.time()
        self._await(HEAD_S)
        self._set_clock()
        if len(self.connections) > MAX_CONNECTIONS:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all waiting."""
        self._await(None)
        self._set_clock()
        self.resume_writing()
        super().connection_lost(exc)
        # uvicorn does so only where `exc` is None: after a reset its timer held all of this for five seconds more.
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Feed the parser; refuse a head that is too long, even before its end."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("Request head too large.")
        elif not self._in_message and self._due is None and not self._owes_anew:
            self._await(HEAD_S)  # line breaks between requests have just stopped uvicorn's own timer
        self._set_clock()

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._in_message = self._in_head = True
        self._head_bytes = 0
        self._await(HEAD_S)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. A trailer is ignored (RFC 9110 6.5.1): Authorization after the body does not count."""
        if not self._in_head:
            return
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """End the head, judge it, and begin to wait for the body."""
        self._in_head = False
        check_head(self.parser.get_http_version(), self.url, self.headers)
        super().on_headers_complete()
        self._await(BODY_S)

    def on_message_complete(self) -> None:
        """End the message: how long the answer takes is ours."""
        super().on_message_complete()
        self._in_message = False
        self._await(None)

    def on_response_complete(self) -> None:
        """Become idle."""
        self.idle_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Begin to wait for a client that does not read."""
        super().pause_writing()
        self._reader_due = self.loop.call_later(READ_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop waiting: it reads."""
        super().resume_writing()
        if self._reader_due is not None:
            self._reader_due.cancel()
            self._reader_due = None

    def _make_room(self) -> None:
        """Close the connection that has been idle the longest; if none is, this new one."""
        idle = (other for other in self.connections if isinstance(other, BoundedProtocol) and other.is_idle)
        oldest = min(idle, key=lambda other: other.idle_since)
        self.connections.discard(oldest)  # at once: the next newcomer must not count on this place, too
        oldest.transport.close()

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for an answer: between two of them, or in the middle of a head."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # uvicorn's type lacks the initial None
        return cycle is None or cycle.response_complete

    def _await(self, seconds: float | None) -> None:
        """Give the connection a new deadline for what it has to send or read; None: nothing is due."""
        self._owed_s, self._owes_anew = seconds, True

    def _set_clock(self) -> None:
        """Close the connection unless what is due comes in time. A request that arrives whole needs no timer."""
        if not self._owes_anew:
            return
        self._owes_anew = False
        if self._due is not None:
            self._due.cancel()
        self._due = None if self._owed_s is None else self.loop.call_later(self._owed_s, self.transport.close)

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: a stranger's header is not an event, and the advice to install WebSockets is wrong here."""


def check_head(version: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse by ValueError what the parser lets through (names are in lowercase): the caller sees the parser's 400.

    Size; a version that is not HTTP/1 (RFC 9112 2.3); no Host, two, or an invalid one (3.2); a transfer coding other
    than chunked alone, or any in HTTP/1.0 (6.1).
    """
    size, hosts, codings = len(target), [], []
    for name, value in headers:
        size += len(name) + len(value)
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding":
            codings.append(value.lower())
    if size > MAX_HEAD_BYTES:
        raise ValueError("the head is too large")
    if version not in {"1.0", "1.1"}:
        raise ValueError("not HTTP/1")
    if len(hosts) > 1 or (version == "1.1" and not hosts) or (hosts and not _HOST.fullmatch(hosts[0])):
        raise ValueError("not one host")
    if codings and (version == "1.0" or codings != [b"chunked"]):
        raise ValueError("not chunked")
