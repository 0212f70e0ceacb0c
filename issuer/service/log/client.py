"""A worker's way to the sequencer process: questions over its socket, and an answer or 503 in time.

A connection that is lost fails what was under way: nobody knows what became of it, and the same request may come again.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from pathlib import Path
from typing import cast

import structlog

from issuer.codes import Code
from issuer.errors import Undecided
from issuer.service.bounds import LOG_AGAIN_S, LOG_CALL_S
from issuer.service.log.messages import (
    Answer,
    Append,
    Failed,
    Frames,
    Look,
    Newest,
    NotAMessage,
    Places,
    Question,
    framed,
    read_answer,
)
from issuer.wire import LogEntry

# Which log, and what it was compared with, is in the log stream.
LATCHED = "The transparency log is not the one that was published: it waits for its operator"
_log = structlog.get_logger("issuer")


class SequencerLog:
    """Asks the sequencer process behind a socket, which has `answer_s` for each answer. Belongs to one event loop."""

    def __init__(self, socket: Path, origin: str, answer_s: float = LOG_CALL_S) -> None:
        self._socket = socket
        self._origin = origin
        self._answer_s = answer_s
        self._line: _Line | None = None
        self._connecting = asyncio.Lock()
        self._numbers = itertools.count(1)

    @property
    def origin(self) -> str:
        """The log's origin line, which tokens name."""
        return self._origin

    async def append(self, leaves: tuple[bytes, ...], /) -> tuple[LogEntry, ...]:
        """Make leaves durable and return the place of each, with its proof. A leaf that is there stays where it is.

        Raises Undecided(`dependency.log`).
        """
        answer = await self._ask(Append(next(self._numbers), leaves))
        if not isinstance(answer, Places) or len(answer.places) != len(leaves):
            raise Undecided(Code.DEPENDENCY_LOG)
        return tuple(LogEntry(self._origin, place.index, place.proof.decode()) for place in answer.places)

    async def announce(self, leaves: tuple[bytes, ...], /) -> None:
        """Make announcements durable, each once however often it is made. Raises Undecided(`dependency.log`)."""
        await self.append(leaves)

    async def look(self) -> Newest:
        """Return the newest checkpoint, signed by the log, and how the log is.

        Raises Undecided(`dependency.log`), also where nothing could be appended now: so this says whether it is ready.
        """
        answer = await self._ask(Look(next(self._numbers)))
        if not isinstance(answer, Newest):
            raise Undecided(Code.DEPENDENCY_LOG, LATCHED if isinstance(answer, Failed) and answer.latched else "")
        return answer

    async def aclose(self) -> None:
        """Disconnect. What is under way fails."""
        if self._line is not None:
            self._line.close()

    async def _ask(self, question: Question) -> Answer:
        until = asyncio.get_running_loop().time() + self._answer_s
        try:
            if (line := self._line) is None or line.is_closed:
                line = await self._connect(until)
            return await line.ask(question, until)
        except (OSError, TimeoutError, NotAMessage) as error:
            raise Undecided(Code.DEPENDENCY_LOG) from error

    async def _connect(self, until: float) -> _Line:
        """Return the open connection, or a new one as soon as somebody listens: the process may be on its way back."""
        async with asyncio.timeout_at(until), self._connecting:
            while self._line is None or self._line.is_closed:
                with suppress(OSError):
                    loop = asyncio.get_running_loop()
                    _, self._line = await loop.create_unix_connection(_Line, str(self._socket))
                    break
                await asyncio.sleep(LOG_AGAIN_S)
            return self._line


class _Line(asyncio.Protocol):
    """One connection, and what was asked on it."""

    def __init__(self) -> None:
        self._frames = Frames()
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._transport: asyncio.Transport | None = None

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be asked here any more."""
        return self._transport is None or self._transport.is_closing()

    async def ask(self, question: Question, until: float) -> Answer:
        """Ask, and wait for the answer until a time of the event loop.

        Raises TimeoutError, and OSError where the connection ends before.
        """
        if self._transport is None:
            raise ConnectionError("the connection has ended")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._transport.write(framed(question))
        self._asked[question.number] = answer
        late = loop.call_at(until, _give_up, answer)  # a third of the cost of asyncio.timeout
        try:
            return await answer
        finally:
            late.cancel()
            self._asked.pop(question.number, None)

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the new connection."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Fail what is under way."""
        self._transport = None
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the sequencer has ended"))
                answer.exception()  # who asked may have given up

    def data_received(self, data: bytes) -> None:
        """Give each answer to who asked; who has given up gets none."""
        try:
            for raw in self._frames.feed(data):
                answer = read_answer(raw)
                asked = self._asked.get(answer.number)
                if asked is not None and not asked.done():
                    asked.set_result(answer)
        except NotAMessage as error:
            _log.error("log answer not read", reason=str(error))
            self.close()


def _give_up(answer: asyncio.Future[Answer]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())
