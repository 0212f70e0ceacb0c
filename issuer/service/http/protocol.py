"""HTTP/1.1 at the edge: what a connection may send, how long it may take, and how many there may be.

uvicorn's httptools protocol (RFC 9112) with the bounds that it lacks. Each message gets one answer, in the order in
which they came. What two readers could take for two different requests is refused, here or by the parser: that answer,
400 `request.framing`, is the last one of its connection.

Weighed: a reverse proxy, which does most of this, but is not in front of every deployment; granian and hypercorn, which
have no deadline for a body as a whole either.
"""

from __future__ import annotations

import asyncio
import functools
import re
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast, get_args

import uvicorn
from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from issuer.codes import Code
from issuer.errors import Refused, SetupError
from issuer.service.http.bounds import (
    BODY_S,
    HEAD_S,
    LINGER_S,
    MAX_BEGUN,
    MAX_CONNECTIONS,
    MAX_FRAMING_BYTES,
    MAX_LARGE_BEGUN,
    PIECE_BYTES,
    READ_S,
    SMALL_BODY_BYTES,
)
from issuer.service.http.messages import problem_response
from issuer.token.wire import Endpoint

_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")

# What `BoundedProtocol` overrides or calls and uvicorn does not document.
_HOOKS = ("_start_asgi_task", "_unset_keepalive_if_required")
_TOKEN_PATHS = frozenset(get_args(Endpoint))
_NO_TRAILERS = {b"connection", b"proxy-connection", b"upgrade", b"content-length", b"transfer-encoding"}


class JoinedTransport(asyncio.Transport):
    """A transport that joins the writes of one turn of the loop into one, and closes so that the last one arrives.

    uvicorn writes an answer's head and body separately: two system calls, two packets, a client that wakes up twice.
    `lingers`: the other side may be in the middle of a message. A socket that is closed with something unread resets
    the connection, and an answer that is on its way is lost (RFC 9112 9.6): nginx made 502 of a 400.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.lingers = False
        self._transport = transport
        self._loop = loop
        self._held = b""
        self._paused = False
        self._due: asyncio.TimerHandle | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Hold the first piece until the second, or the next turn: nothing waits for a piece that may never come.

        What is written after the client has closed the connection is dropped: uvloop would raise, and uvicorn log it.
        """
        if self.is_closing():
            self._held = b""
        elif self._held:
            held, self._held = self._held, b""
            self._transport.writelines((held, data))
        elif data:
            self._held = bytes(data)
            self._loop.call_soon(self._let_go)

    def _let_go(self) -> None:
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():
            self._transport.write(held)

    def close(self) -> None:
        """Close it after what was written; where it lingers, when the other side has closed it, or LINGER_S later."""
        self._let_go()
        if not self.lingers or self._transport.is_closing():
            self._transport.close()
        elif self._due is None:
            self._transport.write_eof()
            self._due = self._loop.call_later(LINGER_S, self._transport.close)
            self.resume_reading()

    def abort(self) -> None:
        """Close it at once."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Say whether it closes: what is still read is dropped."""
        return self._due is not None or self._transport.is_closing()

    def get_extra_info(self, name: str, default: object = None) -> Any:
        """Return what the transport knows about its socket."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Read no more for now."""
        self._paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._paused:
            self._paused = False
            self._transport.resume_reading()


class PatientFlow(FlowControl):
    """Reads no more while requests wait for their turn.

    uvicorn reads on after each answer, and begins thousands of requests out of one read: a client that pipelines fills
    the memory. While one waits, every message before it is complete: nobody needs what would be read.
    """

    def __init__(self, transport: asyncio.Transport, waiting: deque[Any]) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        """Read again, unless a request waits."""
        if not self._waiting:
            super().resume_reading()


class StartQueue:
    """Begins requests, so `many` in each turn of the event loop. Belongs to one loop."""

    def __init__(self, many: int) -> None:
        self._many = many
        self._waiting: deque[Callable[[], None]] = deque()

    def begin(self, request: Callable[[], None]) -> None:
        """Begin a request in one of the next turns."""
        self._waiting.append(request)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(min(self._many, len(self._waiting))):
            loop.call_soon(self._waiting.popleft())
        if self._waiting:
            loop.call_soon(self._take)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with the deadlines and bounds that it lacks.

    Without them a connection that sends half a head stays open for ever, and an endless head or trailer stops every
    other request: its pieces are joined one by one (others waited 4 s, measured). Idle connections make room for new
    ones, the one idle the longest first: a client that holds many open cannot keep others out.
    """

    transport: JoinedTransport
    issuer_url = ""
    note_request: Callable[[], object] = staticmethod(lambda: None)
    note_refusal: Callable[[Refused], object] = staticmethod(lambda _: None)
    starts = StartQueue(MAX_BEGUN)
    large_starts = StartQueue(MAX_LARGE_BEGUN)
    _due: asyncio.TimerHandle | None = None
    _owed_s: float | None = None
    _owes_anew = False
    _reader_due: asyncio.TimerHandle | None = None
    _in_message = False
    _in_head = False
    _framing_bytes = 0
    _unread = b""
    _ended = False
    idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head, and close another connection where this is one too many."""
        super().connection_made(JoinedTransport(transport, self.loop))
        self.flow = PatientFlow(self.transport, self.pipeline)
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

    # -- what is read -------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Feed the parser piece by piece: to the end, or until a request waits, or a piece is refused."""
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        unread, fed = self._unread + data, 0
        try:
            while fed < len(unread) and not self.pipeline and not self._ended:
                piece = unread[fed : fed + PIECE_BYTES]
                fed += PIECE_BYTES
                self._feed(piece)
        except Refused as error:
            self._refuse(error)
        self._unread = unread[fed:]
        if self._ended:
            self._await(None)
        elif not self._in_message and self._due is None and not self._owes_anew:
            self._await(HEAD_S)  # line breaks between requests have just stopped uvicorn's own timer
        self._set_clock()

    def _feed(self, piece: bytes) -> None:
        """Feed one piece. Raises Refused for what must be the connection's last message.

        What a message has beside its body is counted: head, chunk sizes and extensions, trailers. It begins with a
        piece to its credit, because a part of the first one may belong to the message before.
        """
        try:
            self.parser.feed_data(piece)
        except HttpParserUpgrade:  # what follows is no HTTP/1.1 for its sender, and nothing for us (RFC 9110 7.8)
            self._end()
        except HttpParserError as error:
            if isinstance(error.__context__, Refused):
                raise error.__context__ from None
            raise Refused(Code.REQUEST_FRAMING) from None
        self._framing_bytes += len(piece)
        if self._in_message and self._framing_bytes > MAX_FRAMING_BYTES:
            raise Refused(Code.REQUEST_FRAMING, "The message has too much beside its body")

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._in_message = self._in_head = self.transport.lingers = True
        self._framing_bytes = -PIECE_BYTES
        self._await(HEAD_S)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. A trailer is ignored (RFC 9110 6.5.1): Authorization after the body does not count.

        The parser takes some trailers for headers, and the next message for another protocol, or for none: refused.
        """
        if self._in_head:
            super().on_header(name, value)
        elif name.lower() in _NO_TRAILERS:
            raise Refused(Code.REQUEST_FRAMING, "A trailer is about the connection or the framing")

    def on_headers_complete(self) -> None:
        """End the head, judge it, and begin to wait for the body."""
        self.note_request()
        version = self.parser.get_http_version()
        check_head(version, self.url, self.headers, upgrades=self.parser.should_upgrade())
        if version == "1.0":
            self.expect_100_continue = False  # RFC 9110 10.1.1: its sender takes one answer only
        super().on_headers_complete()
        self._in_head = False
        self._await(BODY_S)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._framing_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the message: how long the answer takes is ours."""
        super().on_message_complete()
        self._in_message = self.transport.lingers = False
        self._await(None)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Begin a request: one for tokens at once, others in their turn, so that many of them hold nobody up.

        At once only where a source is charged for it: another method, or a path below, is refused and costs nobody. Of
        those that announce a large body a few begin in each turn: small requests do not wait for all of them.
        """
        start = functools.partial(super()._start_asgi_task, cycle, app)
        if cycle.scope["method"] != "POST" or cycle.scope["path"] not in _TOKEN_PATHS:
            self.starts.begin(start)
        elif is_large(self.headers):
            self.large_starts.begin(start)
        else:
            start()

    # -- what is answered ---------------------------------------------------------------------------------------------

    def _refuse(self, error: Refused) -> None:
        """Make this the last answer of the connection, after those to earlier messages (RFC 9112 9.3.2)."""
        own = self.cycle if self._in_message and not self._in_head else None
        if own is not None and own.response_started:
            self._end()
            return
        if own is not None:
            self._withdraw(own)
        self.note_refusal(error)
        self.transport.lingers = True
        self.app = problem_response(error, self.issuer_url, str(uuid.uuid4()))
        super().on_message_begin()
        self.url = b"/"
        super().on_headers_complete()
        self._end()

    def _withdraw(self, own: RequestResponseCycle) -> None:
        """Take back a request that got no answer yet, as if its client had hung up."""
        if self.pipeline:
            self.pipeline.popleft()
            return
        own.disconnected = True
        own.message_event.set()
        self.cycle = None  # type: ignore[assignment]

    def _end(self) -> None:
        """Read no more, and close the connection after the answers that it is owed."""
        self._ended = True
        if self.is_idle:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """Become idle, or go on with what was not read yet."""
        self.idle_since = self.loop.time()
        super().on_response_complete()
        if self._unread:
            self.data_received(b"")

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
        idle: list[BoundedProtocol] = [
            other for other in self.connections if isinstance(other, BoundedProtocol) and other.is_idle
        ]
        oldest = min(idle, key=lambda other: other.idle_since)
        self.connections.discard(oldest)  # at once: the next newcomer must not count on this place, too
        oldest.transport.lingers = False
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
        self._due = None if self._owed_s is None else self.loop.call_later(self._owed_s, self._end)


def check_head(version: str, target: bytes, headers: Sequence[tuple[bytes, bytes]], *, upgrades: bool = False) -> None:
    """Refuse what the parser lets through (names are in lowercase). Raises Refused (`request.framing`).

    Size; a version that is not HTTP/1 (RFC 9112 2.3); no Host, two, or an invalid one (3.2); a transfer coding other
    than chunked alone, or any in HTTP/1.0 (6.1); a body behind `Connection: Upgrade`, which the parser takes for the
    next request, or for one in the protocol that nobody speaks here (RFC 9110 7.8).
    """
    size, hosts, codings, lengths = len(target), [], [], []
    for name, value in headers:
        size += len(name) + len(value)
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding":
            codings.append(value.lower())
        elif name == b"content-length":
            lengths.append(value)
    if size > MAX_FRAMING_BYTES:
        raise Refused(Code.REQUEST_FRAMING, "The head is too large")
    if version not in {"1.0", "1.1"}:
        raise Refused(Code.REQUEST_FRAMING, "The version is not HTTP/1")
    if len(hosts) > 1 or (version == "1.1" and not hosts) or (hosts and not _HOST.fullmatch(hosts[0])):
        raise Refused(Code.REQUEST_FRAMING, "There is not one valid Host")
    if codings and (version == "1.0" or codings != [b"chunked"]):
        raise Refused(Code.REQUEST_FRAMING, "The transfer coding is not chunked alone")
    if upgrades and (codings or any(length.strip(b"0") for length in lengths)):
        raise Refused(Code.REQUEST_FRAMING, "A request that offers another protocol has a body")


def is_large(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Say whether a head announces a large body, or does not say how large it is."""
    lengths = [value for name, value in headers if name == b"content-length"]
    return len(lengths) != 1 or int(lengths[0]) > SMALL_BODY_BYTES


def protocol_for(
    issuer_url: str,
    note_request: Callable[[], object] = lambda: None,
    note_refusal: Callable[[Refused], object] = lambda _: None,
) -> type[BoundedProtocol]:
    """Return the protocol of one service, whose problem documents have their pages under `issuer_url`. It notes each
    request whose head was read, and each refusal that reaches no endpoint.

    Raises SetupError (`package.missing`) for a version of uvicorn that would never call `_start_asgi_task`.
    """
    if missing := [hook for hook in _HOOKS if not hasattr(HttpToolsProtocol, hook)]:
        detail = f"uvicorn {uvicorn.__version__} lacks {', '.join(missing)}; run `pip install 'uvicorn>=0.45,<0.55'`"
        raise SetupError(Code.PACKAGE_MISSING, detail)
    return type(
        "IssuerProtocol",
        (BoundedProtocol,),
        {
            "issuer_url": issuer_url,
            "note_request": staticmethod(note_request),
            "note_refusal": staticmethod(note_refusal),
            "starts": StartQueue(MAX_BEGUN),
            "large_starts": StartQueue(MAX_LARGE_BEGUN),
        },
    )
