"""The HTTP server around the application, and the shape of the log stream.

uvicorn with httptools only: with h11 it accepts Content-Length beside Transfer-Encoding and serves the rest as a second
request. Proxy headers are not trusted. What uvicorn leaves unbounded, `BoundedProtocol` bounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any

import structlog
import uvicorn
from msgspec.structs import replace
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from issuer.errors import Code, SetupError
from issuer.issue import Log
from issuer.service.app import build
from issuer.service.embedded import EmbeddedValkey
from issuer.service.settings import EMBEDDED, Settings

GRACE_S = 20
STOPS = (signal.SIGTERM, signal.SIGINT)
# How long a connection may take to send a request's head, then its body, or to read an answer. The endpoints answer a
# slow body themselves after 10 s; a connection that is still in the middle of one later than this is closed.
HEAD_S = 10.0
BODY_S = 15.0
READ_S = 15.0
# Request line and headers. An identity token has at most 16 KiB.
MAX_HEAD_BYTES = 64 * 1024


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with deadlines and a bound for the head, none of which it has.

    A connection that sends half a head stays open for ever otherwise, and an endless head stops every other request:
    its pieces are joined one by one (others waited 4 s, measured). Refused as by the parser: a bare 400, and closed.
    """

    _due: asyncio.TimerHandle | None = None
    _reader_due: asyncio.TimerHandle | None = None
    _in_message = False
    _in_head = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head."""
        super().connection_made(transport)
        self._await(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._await(None)
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; refuse a head that is longer than a head can be, before its end has come."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("Request head too large.")
        elif not self._in_message and self._due is None:
            self._await(HEAD_S)  # line breaks between requests have just stopped uvicorn's own clock

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._in_message = self._in_head = True
        self._head_bytes = 0
        self._await(HEAD_S)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. A trailer is none (RFC 9110 6.5.1): Authorization behind the body is not looked at."""
        if not self._in_head:
            return
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """End the head, and begin to wait for the body."""
        self._in_head = False
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD_BYTES:
            raise ValueError("the head is too large")  # the parser's 400
        super().on_headers_complete()
        self._await(BODY_S)

    def on_message_complete(self) -> None:
        """End the message: how long the answer takes is ours."""
        super().on_message_complete()
        self._in_message = False
        self._await(None)

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

    def _await(self, seconds: float | None) -> None:
        """Close the connection unless what it owes comes in time; None: it owes nothing."""
        if self._due is not None:
            self._due.cancel()
        self._due = None if seconds is None else self.loop.call_later(seconds, self.transport.close)

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: a stranger's header is no event, and the advice to install WebSockets is wrong here."""


def configure_logging() -> None:
    """Send the log stream to standard error, one JSON object a line, tracebacks without local variables."""
    tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    shared: list[structlog.typing.Processor] = [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(tracebacks),
        structlog.processors.JSONRenderer(),
    ]
    structlog.configure(
        processors=[structlog.processors.add_log_level, *shared],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # What libraries say goes the same way, warnings and above; uvicorn's access lines would repeat ours.
    library = logging.StreamHandler(sys.stderr)
    library.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[_library_event, *shared]))
    logging.basicConfig(level=logging.WARNING, handlers=[library], force=True)


def _library_event(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Name the library; drop what ProcessorFormatter keeps for itself."""
    record: logging.LogRecord = event.pop("_record")
    event.pop("_from_structlog", None)
    event["logger"] = record.name
    return event


@contextlib.contextmanager
def store(settings: Settings) -> Iterator[str]:
    """Yield the URL of the store: the operator's, or that of an embedded Valkey that lives as long as this block."""
    if settings.redis_url != EMBEDDED:
        yield settings.redis_url
        return
    with EmbeddedValkey() as url:
        yield url


def server(settings: Settings, log: Log | None = None) -> uvicorn.Server:
    """Make the server of one worker. Raises SetupError and InputError where it must not start."""
    config = uvicorn.Config(
        build(settings, log),
        host=settings.host,
        port=settings.port,
        http=BoundedProtocol,
        loop="uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    return uvicorn.Server(config)


def serve(settings: Settings, log: Log | None = None) -> None:
    """Serve until SIGTERM or SIGINT; requests in flight are finished first. SIGHUP reloads the policies.

    Raises SetupError and InputError.
    """
    configure_logging()
    for number in STOPS:
        signal.signal(number, _stopped)  # uvicorn takes these over while it runs, then raises them again
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until `reload` takes it: before that, all is loaded anyway
    with store(settings) as redis_url:
        running = server(replace(settings, redis_url=redis_url), log)
        try:
            running.run()
        except SystemExit as end:
            if end.code:  # uvicorn's own, where the store or the port was not to be had
                raise SetupError(Code.SETTINGS_INVALID, "the service did not start; the reason stands above") from None


def _stopped(_number: int, _frame: object) -> None:
    """End for a signal that came before the server ran, or that it raised again; another one disturbs nothing."""
    for stop in STOPS:
        signal.signal(stop, signal.SIG_IGN)
    raise SystemExit(0)
