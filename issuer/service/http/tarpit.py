"""The answer to a source above its limit for all that does not verify: one 429, written once (contract section 5).

A flood of bad tokens shares a process with good callers, who wait while it is answered. So its bodies are not read, its
problem document is written once, and the log stream counts refusals instead of a line for each. And the answer is
delayed: a connection that is answered late asks less often.
"""

from __future__ import annotations

import asyncio

import structlog
from litestar.types import Receive, Scope, Send

from issuer.codes import Code
from issuer.errors import Refused
from issuer.service.bounds import COUNT_S, HELD_S, MAX_HELD
from issuer.service.http.answer import Answer, Headers
from issuer.service.http.problems import WrittenProblem

_log = structlog.get_logger("issuer")


class Tarpit:
    """Answers for one process. Belongs to one event loop."""

    def __init__(self, issuer_url: str) -> None:
        # A slot of the table is free again well within a second, however hard a source tries: nothing is added above.
        self._problem = WrittenProblem(Refused(Code.RATE_SOURCE, retry_after_s=1), issuer_url)
        self._count = 0
        self.held = 0

    def answer(self, request_id: str) -> TarpitAnswer:
        """Return the answer to one more request."""
        if not self._count:
            asyncio.get_running_loop().call_later(COUNT_S, self._log_count)
        self._count += 1
        seconds = HELD_S * (1 + int(request_id[:2], 16) / 256)
        return TarpitAnswer(self, seconds, self._problem.headers, self._problem.body(request_id))

    def _log_count(self) -> None:
        _log.warning("turned away", code=str(Code.RATE_SOURCE), requests=self._count)
        self._count = 0


class TarpitAnswer(Answer):
    """An answer that waits before it is sent. Nothing of its request is kept until then."""

    __slots__ = ("_seconds", "_tarpit")

    def __init__(self, tarpit: Tarpit, seconds: float, headers: Headers, body: bytes) -> None:
        super().__init__(429, headers, body)
        self._tarpit = tarpit
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it when it is due; at once where too many others already wait."""
        if self._tarpit.held < MAX_HELD:
            self._tarpit.held += 1
            try:
                await asyncio.sleep(self._seconds)
            finally:
                self._tarpit.held -= 1
        await super().__call__(scope, receive, send)
