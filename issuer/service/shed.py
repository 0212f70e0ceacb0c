"""What a source above its limit gets for everything that does not verify: one 429, ready to send (contract section 5).

A flood of bad tokens shares a process with good callers: whatever it is answered with is time that they wait. So its
bodies are not read, its problem document is written once, and the log stream counts it instead of a line for each.
"""

from __future__ import annotations

import asyncio
import uuid

import structlog

from issuer.errors import Code, Refused
from issuer.service.answer import Answer
from issuer.service.problems import problem_response

# How often the log stream tells how many were turned away.
TELL_S = 1.0

_ID = str(uuid.UUID(int=0))
_log = structlog.get_logger("issuer")


class Shed:
    """Answers for one process. Belongs to one event loop."""

    def __init__(self, issuer_url: str) -> None:
        # A slot of the table is free again well within a second, however hard a source tries: nothing is added above.
        self._made = problem_response(Refused(Code.RATE_SOURCE, retry_after_s=1), issuer_url, _ID)
        self._parts = self._made.body.split(_ID.encode())
        self._count = 0

    def answer(self, request_id: str) -> Answer:
        """Return the answer to one more request."""
        if not self._count:
            asyncio.get_running_loop().call_later(TELL_S, self._tell)
        self._count += 1
        return Answer(self._made.status, self._made.headers, request_id.encode().join(self._parts))

    def _tell(self) -> None:
        _log.warning("turned away", code=str(Code.RATE_SOURCE), requests=self._count)
        self._count = 0
