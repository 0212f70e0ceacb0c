"""One request that shows a credential to its identity provider, and the whole answer (SECURITY.md).

An httpx transport over the same checked connections as key sets. What a user of httpx could forget is done here: no
redirect, proxy or cookie, nothing compressed, a bounded answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx2

from issuer.codes import Code
from issuer.errors import Refused, Undecided
from issuer.formats.strict_json import JSON, loads
from issuer.identity.provider import Provider
from issuer.service.authn.fetch import FAILURES, Fetcher, FetchRefused, NoteAnswer, ReportFailure, reason
from issuer.service.bounds import MAX_ANSWER_BYTES, MAX_ANSWER_DEPTH, MAX_ANSWER_MEMBERS


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Sends each request over its own connection, to a checked address."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send it, with only its own `Authorization` and `Content-Type`. The answer has no headers.

        Raises one of FAILURES.
        """
        own = [(name, request.headers[name]) for name in ("Authorization", "Content-Type") if name in request.headers]
        content = await request.aread()
        status, body = await self._fetcher.send(request.method, str(request.url), own, content, MAX_ANSWER_BYTES)
        return httpx2.Response(status, content=body)


@asynccontextmanager
async def asking(
    provider: Provider, report: ReportFailure, note_answer: NoteAnswer, deadline_s: float
) -> AsyncIterator[None]:
    """Bound the time of the block's requests. Raises Undecided where one fails, only in our own words."""
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except (*FAILURES, httpx2.HTTPError, httpx2.InvalidURL) as failure:
        report(provider, reason(failure))
        raise Undecided(Code.DEPENDENCY_INTROSPECTION) from None  # it may quote the request or the answer
    except Refused:
        note_answer(provider)
        raise
    note_answer(provider)


def read_object(response: httpx2.Response) -> Mapping[str, JSON]:
    """Return the JSON object of a 200 answer, of any media type. Raises one of FAILURES."""
    if response.status_code != 200:
        raise FetchRefused(f"the provider answered {response.status_code}")
    found = loads(response.content, max_bytes=MAX_ANSWER_BYTES, max_depth=MAX_ANSWER_DEPTH)
    if not isinstance(found, dict) or len(found) > MAX_ANSWER_MEMBERS:
        raise FetchRefused("the answer is no object, or has too many members")
    return found
