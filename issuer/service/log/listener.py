"""The sequencer process's end of its socket: reads questions, and writes answers that nobody waits for.

Nobody's leaf or proof waits for a slow client: what a client does not read is kept up to a bound, then it is closed.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import cast

import structlog

from issuer.errors import FormatError
from issuer.service.bounds import LOG_ASKED, LOG_UNREAD_BYTES
from issuer.service.log.batch import Placed
from issuer.service.log.desk import Desk
from issuer.service.log.entries import entry_of
from issuer.service.log.messages import (
    Answer,
    Append,
    Failed,
    Frames,
    Newest,
    NotAMessage,
    Places,
    framed,
    read_question,
)

_log = structlog.get_logger("issuer")


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over a new connection."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Forget the connection. What it has asked for is done, and answered to nobody."""
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        try:
            for raw in self._frames.feed(data):
                self._take(raw)
        except NotAMessage as error:
            self._close(str(error))

    def _take(self, raw: bytes) -> None:
        question = read_question(raw)
        self._asked += 1
        if self._asked > LOG_ASKED:
            raise NotAMessage(f"more than {LOG_ASKED} questions without an answer")
        if not isinstance(question, Append):
            self._desk.add((), partial(self._newest, question.number))
            return
        try:
            entries = tuple(map(entry_of, question.leaves))
        except FormatError as error:  # a fault of ours: the leaves of others are none the worse for it
            _log.error("log leaf refused", reason=str(error))
            self._answer(Failed(question.number))
        else:
            self._desk.add(entries, partial(self._places, question.number))

    def _places(self, number: int, places: tuple[Placed, ...] | None) -> None:
        self._answer(self._failed(number) if places is None else Places(number, places))

    def _newest(self, number: int, places: tuple[Placed, ...] | None) -> None:
        published = None if places is None else self._desk.newest
        found = self._failed(number) if published is None else Newest(number, published.note, self._desk.standing)
        self._answer(found)

    def _failed(self, number: int) -> Failed:
        return Failed(number, self._desk.is_latched)

    def _answer(self, answer: Answer) -> None:
        self._asked -= 1
        if (transport := self._transport) is None or transport.is_closing():
            return
        transport.write(framed(answer))
        if transport.get_write_buffer_size() > LOG_UNREAD_BYTES:
            self._close("it does not read its answers")

    def _close(self, why: str) -> None:
        if self._transport is not None:
            _log.error("log client closed", reason=why)
            self._transport.abort()
            self._transport = None
