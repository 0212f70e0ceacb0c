"""The HTTP/1.1 protocol of the edge: uvicorn's httptools protocol (RFC 9112) with the bounds that it lacks.

The bounds are on the size and time of each message, and on the number of connections. Each message gets one answer, in
the order of arrival. A message that two readers could parse as different requests is refused, here or by the parser,
with 400 `request.framing`. That is the last answer of its connection.

We considered a reverse proxy: it does most of this, but not every deployment has one. We considered granian and
hypercorn: they have no deadline for a whole body either.
"""

from __future__ import annotations

import asyncio
import functools
import re
import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, cast, get_args

import uvicorn
from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from issuer.codes import Code
from issuer.errors import Refused, SetupError
from issuer.service.http.bounds import (
    BODY_S,
    FRESH_S,
    HEAD_S,
    LINGER_S,
    MAX_BEGUN,
    MAX_CONNECTIONS,
    MAX_FRAMING_BYTES,
    MAX_HEADER_LINES,
    MAX_LARGE_BEGUN,
    MAX_LIST_BYTES,
    MAX_TARGET_BYTES,
    PIECE_BYTES,
    READ_S,
    SMALL_BODY_BYTES,
)
from issuer.service.http.messages import REFUSED, problem_response, source_of
from issuer.token.wire import EXCHANGE_PATH, Endpoint

_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")

# Methods of uvicorn that `BoundedProtocol` overrides or calls, and that uvicorn does not document.
_HOOKS = ("_start_asgi_task", "_unset_keepalive_if_required")
# A request to /oauth/token is not among them: it is a stranger's until its body has come.
_TOKEN_PATHS = frozenset(get_args(Endpoint)) - {EXCHANGE_PATH}
# Headers whose parts cost time: uvicorn splits Connection and X-Forwarded-For, and we the others.
_LISTS = {b"accept", b"connection", b"host", b"if-none-match", b"x-forwarded-for"}
_NO_TRAILERS = {b"connection", b"proxy-connection", b"upgrade", b"content-length", b"transfer-encoding"}


class JoinedTransport(asyncio.Transport):
    """A transport that joins the writes of one turn of the loop, and delivers the last answer before it closes.

    uvicorn writes an answer's head and body separately. That is two system calls and two packets, and wakes the client
    twice. `lingers` is true while the client may be in the middle of a message. If a socket is closed before all input
    was read, it resets the connection and the answer may be lost (RFC 9112 9.6): nginx turned a 400 into a 502.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.lingers = False
        self._transport = transport
        self._loop = loop
        self._buffered = b""
        self._paused = False
        self._due: asyncio.TimerHandle | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Buffer the first piece until the second comes, or at most until the next turn of the loop.

        After the client has closed the connection, drop the data: uvloop would raise, and uvicorn would log that with a
        traceback. The protocol counts the client instead.
        """
        if self.is_closing():
            self._buffered = b""
        elif self._buffered:
            buffered, self._buffered = self._buffered, b""
            self._transport.writelines((buffered, data))
        elif data:
            self._buffered = bytes(data)
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        buffered, self._buffered = self._buffered, b""
        if buffered and not self._transport.is_closing():
            self._transport.write(buffered)

    def close(self) -> None:
        """Close after all written data. If the transport lingers, wait for the client to close, at most LINGER_S."""
        self._flush()
        if not self.lingers or self._transport.is_closing():
            self._transport.close()
        elif self._due is None:
            self._transport.write_eof()
            self._due = self._loop.call_later(LINGER_S, self._transport.close)
            self.resume_reading()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Return whether the transport is closing. Input that still arrives is then dropped."""
        return self._due is not None or self._transport.is_closing()

    def get_extra_info(self, name: str, default: object = None) -> Any:
        """Return information about the socket."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Stop reading, until `resume_reading`."""
        self._paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._paused:
            self._paused = False
            self._transport.resume_reading()


class PatientFlow(FlowControl):
    """Flow control that stops reading while pipelined requests wait.

    uvicorn resumes reading after each answer, and can begin thousands of requests from one read: a client that
    pipelines could fill the memory. A request waits only behind complete messages, so no input is needed meanwhile.
    """

    def __init__(self, transport: asyncio.Transport, waiting: deque[Any]) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        """Read again, unless a request waits."""
        if not self._waiting:
            super().resume_reading()


class StartQueue:
    """A queue that begins `many` requests in each turn of the event loop. It belongs to one loop."""

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


class WaitingLine:
    """The connections of one server that wait for their clients, in the order in which their waits began.

    One sort serves many new connections, because a wait that begins later has its place at the end.
    """

    def __init__(self) -> None:
        self._line: list[tuple[BoundedProtocol, float]] = []

    def take_first(self, connections: Collection[Any], before: float) -> BoundedProtocol | None:
        """Return the connection that has waited longest, if its wait began before this time of the loop."""
        for _ in range(2):
            while self._line:
                first, since = self._line[-1]
                if first in connections and first.waits_since == since:
                    return self._line.pop()[0] if since < before else None
                self._line.pop()
            waiting = [(each, each.waits_since) for each in connections if each.waits_since is not None]
            self._line = sorted(waiting, key=itemgetter(1), reverse=True)
        return None


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with deadlines and bounds.

    Without them a connection that sends half a head would stay open for ever. An endless head or trailer would stop all
    other requests, because uvicorn joins its pieces one by one (others waited 4 s, measured). A new connection replaces
    the one that has waited longest for its client, so a client with many open connections cannot keep others out.
    """

    transport: JoinedTransport
    issuer_url = ""
    note_request: Callable[[], object] = staticmethod(lambda: None)
    note_refusal: Callable[[Refused], object] = staticmethod(lambda _: None)
    note_early_close: Callable[[], object] = staticmethod(lambda: None)
    starts = StartQueue(MAX_BEGUN)
    large_starts = StartQueue(MAX_LARGE_BEGUN)
    line = WaitingLine()
    max_connections = MAX_CONNECTIONS
    fresh_s = FRESH_S
    source = ""
    _due: asyncio.TimerHandle | None = None
    _deadline_s: float | None = None
    _has_new_deadline = False
    _reader_due: asyncio.TimerHandle | None = None
    _in_message = False
    _in_head = False
    _framing_bytes = 0
    _lines = 0
    _unread = b""
    _ended = False
    since = 0.0
    blocked_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Set the deadline of the first head. If there are too many connections, close one.

        Connections of a trusted proxy have no source: the proxy itself bounds those of its clients.
        """
        super().connection_made(JoinedTransport(transport, self.loop))
        self.flow = PatientFlow(self.transport, self.pipeline)
        transport.set_write_buffer_limits(0)  # so `pause_writing` comes as soon as the kernel takes no more bytes
        self.since = self.loop.time()
        if self.client and self.client[0] not in getattr(self.app, "trusted_hosts", ()):
            self.source = source_of(self.client[0])
        self._await(HEAD_S)
        self._set_clock()
        if len(self.connections) > self.max_connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers. Count a client that did not wait for its answers."""
        if not self.is_idle and self in self.connections:
            self.note_early_close()
        self._await(None)
        self._set_clock()
        self._unread = b""
        self.resume_writing()
        super().connection_lost(exc)
        # uvicorn does this only if `exc` is None. After a reset, its timer would keep this protocol for five seconds.
        self._unset_keepalive_if_required()

    # -- reading ------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Feed the parser piece by piece, until the input ends, a request has to wait, or a piece is refused."""
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
        elif not self._in_message and self._due is None and not self._has_new_deadline:
            self._await(HEAD_S)  # only line breaks came, and `_unset_keepalive_if_required` has stopped uvicorn's timer
        self._set_clock()

    def _feed(self, piece: bytes) -> None:
        """Feed one piece. Raises Refused if its message must be the connection's last.

        Everything in a message except its body is counted: head, chunk sizes and extensions, trailers. The count begins
        at minus one piece, because a part of the first piece may belong to the message before.
        """
        try:
            self.parser.feed_data(piece)
        except HttpParserUpgrade:  # the client continues in another protocol, which we do not speak (RFC 9110 7.8)
            self._end()
        except HttpParserError as error:
            if isinstance(error.__context__, Refused):
                raise error.__context__ from None
            raise Refused(Code.REQUEST_FRAMING) from None
        self._framing_bytes += len(piece)
        if self._in_message and self._framing_bytes > MAX_FRAMING_BYTES:
            raise Refused(Code.REQUEST_FRAMING, "The message's headers, trailers and chunk framing are too large")

    def on_message_begin(self) -> None:
        """Begin a head, and set its deadline."""
        super().on_message_begin()
        self._in_message = self._in_head = self.transport.lingers = True
        self._framing_bytes = -PIECE_BYTES
        self._lines = 0
        self._await(HEAD_S)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Ignore a trailer (RFC 9110 6.5.1): Authorization after the body does not count.

        Raises Refused for too many lines, and for a trailer that the parser would treat as a header: it would misread
        the next message.
        """
        self._lines += 1
        if self._lines > MAX_HEADER_LINES:
            detail = f"The message has too many headers and trailers: more than {MAX_HEADER_LINES}"
            raise Refused(Code.REQUEST_FRAMING, detail)
        if self._in_head:
            super().on_header(name, value)
        elif name.lower() in _NO_TRAILERS:
            raise Refused(Code.REQUEST_FRAMING, "A trailer must not be about the connection or the framing")

    def on_headers_complete(self) -> None:
        """End the head, check it, and set the deadline of the body."""
        self.note_request()
        version = self.parser.get_http_version()
        check_head(version, self.url, self.headers, upgrades=self.parser.should_upgrade())
        if version == "1.0":
            self.expect_100_continue = False  # RFC 9110 10.1.1: an HTTP/1.0 client expects a single answer
        super().on_headers_complete()
        self._in_head = False
        self.since = self.loop.time()
        self._await(BODY_S)

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body. Its bytes do not count as framing."""
        self._framing_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the message, and its deadline: the client does not control how long the answer takes."""
        super().on_message_complete()
        self._in_message = self.transport.lingers = False
        self._await(None)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Begin a request: one for tokens at once, others in turn.

        A request for tokens is charged to a source, but a refused method or path is not, so those wait for a turn.
        Requests for tokens with a large body begin a few in each turn, so small ones do not wait for all of them.
        """
        start = functools.partial(super()._start_asgi_task, cycle, app)
        if not is_for_tokens(cycle.scope):
            self.starts.begin(start)
        elif is_large(self.headers):
            self.large_starts.begin(start)
        else:
            start()

    # -- answering ----------------------------------------------------------------------------------------------------

    def _refuse(self, error: Refused) -> None:
        """Make this the last answer of the connection, after the answers to earlier messages (RFC 9112 9.3.2)."""
        if self._in_message and not self._in_head:
            if self.cycle.response_started:
                self._end()
                return
            self._withdraw(self.cycle)
        self.note_refusal(error)
        self.transport.lingers = True
        self.app = problem_response(error, self.issuer_url, str(uuid.uuid4()))
        super().on_message_begin()
        self.url = b"/"
        super().on_headers_complete()
        self._end()

    def _withdraw(self, cycle: RequestResponseCycle) -> None:
        """Cancel a request that has no answer yet, as if its client had hung up."""
        if self.pipeline:
            self.pipeline.popleft()
            return
        cycle.disconnected = True
        cycle.message_event.set()
        self.cycle = None  # type: ignore[assignment]

    def _end(self) -> None:
        """Read no more, and close the connection after its outstanding answers."""
        self._ended = True
        if self.is_idle:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """Become idle, or continue with input that was received but not yet parsed."""
        self.since = self.loop.time()
        super().on_response_complete()
        if self._unread:
            self.data_received(b"")

    def pause_writing(self) -> None:
        """Set a deadline for a client that does not read."""
        super().pause_writing()
        self.blocked_since = self.loop.time()
        self._reader_due = self.loop.call_later(READ_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel that deadline: the client reads."""
        super().resume_writing()
        self.blocked_since = None
        if self._reader_due is not None:
            self._reader_due.cancel()
            self._reader_due = None

    def _make_room(self) -> None:
        """Close the connection that has waited longest for its client, but a fresh one only after `_busy_one`."""
        first = self.line.take_first(self.connections, self.since - self.fresh_s) or self._busy_one()
        first = first or self.line.take_first(self.connections, self.since) or self
        self.connections.discard(first)  # at once: the next new connection must close another one
        first.transport.lingers = False
        if first.is_idle and first.blocked_since is None:
            first.transport.close()
        else:
            first.transport.abort()

    def _busy_one(self) -> BoundedProtocol | None:
        """Return the connection that makes room if no client has kept the service waiting: see deploy/README.md."""
        ours = [other for other in self.connections if isinstance(other, BoundedProtocol) and other is not self]
        idle = [other for other in ours if other.is_idle and not other.source]
        if len(idle) > self.max_connections / 2:
            return min(idle, key=attrgetter("since"))
        source, count = Counter(other.source for other in ours).most_common(1)[0]
        if source and count > self.max_connections / 2:
            return max((other for other in ours if other.source == source), key=attrgetter("since"))
        busy = [other for other in ours if not other.is_idle]
        public = [other for other in busy if not is_for_tokens(other.cycle.scope)]
        return min(public or [other for other in busy if other.awaits_body], key=attrgetter("since"), default=None)

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for an answer: the connection is between requests, or in the middle of a head."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # uvicorn's type lacks the initial None
        return cycle is None or cycle.response_complete

    @property
    def waits_since(self) -> float | None:
        """The loop's time since which the client has not read an answer, or has not sent the next head. Else None.

        A client that has sent several requests waits, too: it could send one at a time. A trusted proxy may answer 502
        if it just uses an idle connection that we close, so these make room only if they are more than half of all.
        """
        if self.blocked_since is not None:
            return self.blocked_since
        return self.since if self.source and (self.is_idle or self.pipeline) else None

    @property
    def awaits_body(self) -> bool:
        """Whether a request that is owed an answer lacks a part of its body, and only the client can continue.

        Such a request may have a place in flight. Those are bounded, so it makes room last.
        """
        is_due = self._in_message and not self._in_head and not self.is_idle and not self.flow.read_paused
        return is_due and not self.cycle.waiting_for_100_continue

    def _await(self, seconds: float | None) -> None:
        """Record the client's new deadline in seconds from now, or None for no deadline. `_set_clock` starts it."""
        self._deadline_s, self._has_new_deadline = seconds, True

    def _set_clock(self) -> None:
        """Start the timer of the new deadline, if any. So a request that arrives in one piece needs no timer."""
        if not self._has_new_deadline:
            return
        self._has_new_deadline = False
        if self._due is not None:
            self._due.cancel()
        self._due = None if self._deadline_s is None else self.loop.call_later(self._deadline_s, self._end)


def check_head(version: str, target: bytes, headers: Sequence[tuple[bytes, bytes]], *, upgrades: bool = False) -> None:
    """Raise Refused (`request.framing`) for invalid heads that the parser accepts. Names of headers are in lowercase.

    These are: a head that is too large, or a part of it that takes long to read; a version other than HTTP/1 (RFC 9112
    2.3); no Host, two of them, or an invalid one (3.2); a transfer coding except chunked alone, or any in HTTP/1.0
    (6.1); and a body after `Connection: Upgrade`, which the parser reads as the next request, or as data of another
    protocol (RFC 9110 7.8).
    """
    size, listed, hosts, codings, lengths = len(target), 0, [], [], []
    for name, value in headers:
        size += len(name) + len(value)
        if name in _LISTS:
            listed += len(value)
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding":
            codings.append(value.lower())
        elif name == b"content-length":
            lengths.append(value)
    if size > MAX_FRAMING_BYTES:
        raise Refused(Code.REQUEST_FRAMING, "The head is too large")
    if len(target) > MAX_TARGET_BYTES:
        raise Refused(Code.REQUEST_FRAMING, f"The request target is longer than {MAX_TARGET_BYTES} bytes")
    if listed > MAX_LIST_BYTES:
        headers_of_lists = "Accept, Connection, Host, If-None-Match and X-Forwarded-For"
        raise Refused(Code.REQUEST_FRAMING, f"{headers_of_lists} together are longer than {MAX_LIST_BYTES} bytes")
    if version not in {"1.0", "1.1"}:
        raise Refused(Code.REQUEST_FRAMING, "The version is not HTTP/1")
    if len(hosts) > 1 or (version == "1.1" and not hosts) or (hosts and not _HOST.fullmatch(hosts[0])):
        raise Refused(Code.REQUEST_FRAMING, "The head must have exactly one valid Host")
    if codings and (version == "1.0" or codings != [b"chunked"]):
        raise Refused(Code.REQUEST_FRAMING, "The only valid transfer coding is chunked, in HTTP/1.1")
    if upgrades and (codings or any(length.strip(b"0") for length in lengths)):
        raise Refused(Code.REQUEST_FRAMING, "A request with an Upgrade must not have a body")


def is_for_tokens(scope: Mapping[str, Any]) -> bool:
    """Return whether a request is one for tokens that may still get some. Any other one is a stranger's."""
    return scope["method"] == "POST" and scope["path"] in _TOKEN_PATHS and REFUSED not in scope


def is_large(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether a head announces a large body, or does not announce its size."""
    lengths = [value for name, value in headers if name == b"content-length"]
    return len(lengths) != 1 or int(lengths[0]) > SMALL_BODY_BYTES


def protocol_for(
    issuer_url: str,
    note_request: Callable[[], object] = lambda: None,
    note_refusal: Callable[[Refused], object] = lambda _: None,
    note_early_close: Callable[[], object] = lambda: None,
) -> type[BoundedProtocol]:
    """Return the protocol class of one service. Problem documents link to pages under `issuer_url`.

    The protocol calls `note_request` for each complete head, `note_refusal` for each refusal that never reaches an
    endpoint, and `note_early_close` for each connection that closes before its answers are written. Raises SetupError
    (`package.missing`) for a version of uvicorn without the undocumented methods.
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
            "note_early_close": staticmethod(note_early_close),
            "starts": StartQueue(MAX_BEGUN),
            "large_starts": StartQueue(MAX_LARGE_BEGUN),
            "line": WaitingLine(),
        },
    )
