"""The log stream of the service: JSON lines on standard error, some of which count many events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import MutableMapping
from typing import Any

import msgspec
import structlog

from issuer.io.bounds import COUNT_S


class Failures:
    """A reporter of failed requests to providers: the first at once, then at most one line a second for each provider.

    Anyone can cause such a failure with a made-up credential. A reporter belongs to one event loop.
    """

    def __init__(self) -> None:
        self._more: dict[str, list[str]] = {}

    def report(self, provider_id: str, reason: str) -> None:
        """Report a failure, now or in the provider's next line."""
        if provider_id in self._more:
            self._more[provider_id].append(reason)
        else:
            _log.warning("provider not asked", provider=provider_id, reason=reason)
            self._wait(provider_id)

    def _wait(self, provider_id: str) -> None:
        self._more[provider_id] = []
        asyncio.get_running_loop().call_later(COUNT_S, self._log_more, provider_id)

    def _log_more(self, provider_id: str) -> None:
        if reasons := self._more.pop(provider_id):
            _log.warning("provider not asked", provider=provider_id, reason=reasons[-1], more=len(reasons))
            self._wait(provider_id)


def configure_logging() -> None:
    """Send the log stream to standard error: one JSON object a line, and tracebacks without local variables."""
    tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    shared: list[structlog.typing.Processor] = [
        _with_pid,
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
    # Libraries log in the same form, but only warnings and above: uvicorn's access lines would repeat our events.
    library = logging.StreamHandler(sys.stderr)
    text = structlog.processors.JSONRenderer()
    library.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[_library_event, *shared, text]))
    logging.basicConfig(level=logging.WARNING, handlers=[library], force=True)


_log = structlog.get_logger("issuer")


class LogStream:
    """The sink of structlog. It makes one write for each line, so the lines of several workers never mix.

    If the stream is full, or its reader has stalled, lines are lost and the service goes on. The record of decisions is
    the audit file (contract section 5).
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        if not os.isatty(descriptor):  # the shell shares a terminal, and would become non-blocking too
            os.set_blocking(descriptor, False)

    def msg(self, line: bytes) -> None:
        """Write a line, or drop it on an error."""
        with contextlib.suppress(OSError):
            os.write(self._descriptor, line)

    info = warning = error = critical = msg


def _with_pid(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the pid of this process, unless the event has a pid: the supervisor logs events about its workers."""
    event.setdefault("pid", os.getpid())
    return event


def _line(_: object, __: str, event: MutableMapping[str, Any]) -> bytes:
    """Return an event as a line of JSON. `json` encodes values that msgspec does not, such as half a surrogate pair."""
    try:
        return msgspec.json.encode(event) + b"\n"
    except (TypeError, ValueError):
        return json.dumps(event, default=repr).encode() + b"\n"


def _library_event(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the library's logger name, and remove ProcessorFormatter's internal members."""
    record: logging.LogRecord = event.pop("_record")
    event.pop("_from_structlog", None)
    event["logger"] = record.name
    return event
