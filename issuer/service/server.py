"""The HTTP server around the application, and the shape of the log stream.

uvicorn with httptools only: with h11 it accepts Content-Length beside Transfer-Encoding and serves the rest as a second
request. X-Forwarded-For is believed from listed proxies alone. What uvicorn leaves unbounded, `edge.py` bounds.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any

import msgspec
import structlog
import uvicorn
from msgspec.structs import replace

from issuer.errors import Code, SetupError
from issuer.issuance.issue import Log
from issuer.service.app import build
from issuer.service.http.protocol import BoundedProtocol
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.settings import EMBEDDED, Settings
from issuer.service.workers import STOPS, Beat, addresses_of, bound, supervise

GRACE_S = 20


def configure_logging() -> None:
    """Send the log stream to standard error, one JSON object a line, tracebacks without local variables."""
    tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    shared: list[structlog.typing.Processor] = [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(tracebacks),
    ]
    stream = LogStream(sys.stderr.fileno())
    structlog.configure(
        processors=[structlog.processors.add_log_level, *shared, _line],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_: stream,
        cache_logger_on_first_use=True,
    )
    # What libraries say goes the same way, warnings and above; uvicorn's access lines would repeat ours.
    library = logging.StreamHandler(sys.stderr)
    text = structlog.processors.JSONRenderer()
    library.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[_library_event, *shared, text]))
    logging.basicConfig(level=logging.WARNING, handlers=[library], force=True)


class LogStream:
    """Where structlog writes. One write a line, so that those of several workers never mix.

    A stream that takes no more, or whose reader stands still, stops nothing: the record of decisions is the audit
    (contract section 5).
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        if not os.isatty(descriptor):  # of a terminal the shell has the other end, and would not block any more either
            os.set_blocking(descriptor, False)

    def msg(self, line: bytes) -> None:
        """Write a line, or lose it."""
        with contextlib.suppress(OSError):
            os.write(self._descriptor, line)

    info = warning = error = critical = msg


def _line(_: object, __: str, event: MutableMapping[str, Any]) -> bytes:
    """Write an event as a line of JSON; what msgspec does not write, such as half a surrogate pair, `json` does."""
    try:
        return msgspec.json.encode(event) + b"\n"
    except (TypeError, ValueError):
        return json.dumps(event, default=repr).encode() + b"\n"


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


def server(settings: Settings, log: Log | None = None, beat: Beat | None = None) -> uvicorn.Server:
    """Make the server of one worker, which calls `beat` while its event loop turns.

    Raises SetupError and InputError where it must not start.
    """
    config = uvicorn.Config(
        build(settings, log, beat),
        host=settings.host,
        port=settings.port,
        http=BoundedProtocol,
        loop="uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        # uvicorn would believe the header from loopback by itself.
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    return uvicorn.Server(config)


def serve(settings: Settings, log: Log | None = None, workers: int = 1) -> None:
    """Serve until SIGTERM or SIGINT; requests in flight are finished first. SIGHUP reloads the policies.

    One worker is this very process; several are its children, on one port and one store. Raises SetupError and
    InputError.
    """
    configure_logging()
    for number in STOPS:
        signal.signal(number, _stopped)  # uvicorn takes these over while it runs, then raises them again
    if callable(signal.getsignal(signal.SIGHUP)):
        signal.signal(signal.SIGHUP, _hung_up)
    elif signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until `reload` takes it: before that, all is loaded anyway
    with store(settings) as redis_url:
        settings = replace(settings, redis_url=redis_url)
        if workers == 1:
            _run(settings, log)
        else:
            addresses = addresses_of(settings.host, settings.port)
            supervise(workers, lambda beat: _run(settings, log, bound(addresses), beat), GRACE_S + 2)


def _run(
    settings: Settings, log: Log | None, sockets: list[socket.socket] | None = None, beat: Beat | None = None
) -> None:
    running = server(settings, log, beat)
    try:
        running.run(sockets)
    except SystemExit as end:
        if end.code:  # uvicorn's own, where the store or the port was not to be had
            raise SetupError(Code.SETTINGS_INVALID, "the service did not start; the reason stands above") from None


def _hung_up(_number: int, _frame: object) -> None:
    """End as for SIGTERM where a hangup was the end before we ran: raised in the event loop, an exception may hang."""
    signal.raise_signal(signal.SIGTERM)


def _stopped(_number: int, _frame: object) -> None:
    """End for a signal that came before the server ran, or that it raised again; another one disturbs nothing."""
    for stop in STOPS:
        signal.signal(stop, signal.SIG_IGN)
    raise SystemExit(0)
