"""The log stream: how an event becomes a line, and how one line counts many events."""

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
    """Reports failed questions: the first at once, then at most one line a second for each provider.

    A stranger causes one with every made-up credential. Belongs to one event loop.
    """

    def __init__(self) -> None:
        self._more: dict[str, list[str]] = {}

    def report(self, provider_id: str, reason: str) -> None:
        """Report one, now or with the next line."""
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
    """Send the log stream to standard error, one JSON object a line, tracebacks without local variables."""
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
    # Libraries log the same way, warnings and above; uvicorn's access lines would repeat ours.
    library = logging.StreamHandler(sys.stderr)
    text = structlog.processors.JSONRenderer()
    library.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[_library_event, *shared, text]))
    logging.basicConfig(level=logging.WARNING, handlers=[library], force=True)


_log = structlog.get_logger("issuer")


class LogStream:
    """The sink of structlog. One write a line, so that those of several workers never mix.

    A stream that is full, or whose reader has stalled, stops nothing: the record of decisions is the audit (contract
    section 5).
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        if not os.isatty(descriptor):  # a terminal is shared with the shell, which would become non-blocking too
            os.set_blocking(descriptor, False)

    def msg(self, line: bytes) -> None:
        """Write a line, or lose it."""
        with contextlib.suppress(OSError):
            os.write(self._descriptor, line)

    info = warning = error = critical = msg


def _with_pid(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Say which process writes; where another one's pid is told, as by the parent of workers, that one stays."""
    event.setdefault("pid", os.getpid())
    return event


def _line(_: object, __: str, event: MutableMapping[str, Any]) -> bytes:
    """Write an event as a line of JSON; `json` writes what msgspec does not, such as half a surrogate pair."""
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
