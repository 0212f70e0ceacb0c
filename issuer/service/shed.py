"""What a source above its limit gets for everything that does not verify: one 429, ready to send (contract section 5).

A flood of bad tokens shares a process with good callers: whatever it is answered with is time that they wait. So its
bodies are not read, its problem document is written once, and the log stream counts it instead of a line for each. And
it waits: a connection that is answered late asks less often.
"""

from __future__ import annotations

import asyncio
import uuid

import structlog

from issuer.errors import Code, Refused
from issuer.service.answer import Answer
from issuer.service.problems import problem_response

# How often the log stream tells how many of a kind there were.
TELL_S = 1.0

# How long an answer is held back at least, at most twice as long: those who came together must not come again together.
# And how many at once: of 800 connections a quarter stays free to move; beyond these an answer leaves at once.
HELD_S = 1.0
MAX_HELD = 600

_ID = str(uuid.UUID(int=0))
_log = structlog.get_logger("issuer")


class Shed:
    """Answers for one process. Belongs to one event loop."""

    def __init__(self, issuer_url: str) -> None:
        # A slot of the table is free again well within a second, however hard a source tries: nothing is added above.
        self._made = problem_response(Refused(Code.RATE_SOURCE, retry_after_s=1), issuer_url, _ID)
        self._parts = self._made.body.split(_ID.encode())
        self._count = self._held = 0

    async def answer(self, request_id: str) -> Answer:
        """Return the answer to one more request, in its time."""
        if not self._count:
            asyncio.get_running_loop().call_later(TELL_S, self._tell)
        self._count += 1
        if self._held < MAX_HELD:
            self._held += 1
            try:
                await asyncio.sleep(HELD_S * (1 + int(request_id[:2], 16) / 256))
            finally:
                self._held -= 1
        return Answer(self._made.status, self._made.headers, request_id.encode().join(self._parts))

    def _tell(self) -> None:
        _log.warning("turned away", code=str(Code.RATE_SOURCE), requests=self._count)
        self._count = 0
