"""Providers' answers about credentials, kept for a short while and shared by all requests that wait.

Knows how long a good answer may serve, and how many questions may be open at once. The caller knows what is asked and
what a good answer is: it judges an answer again at every use. A credential itself is never kept, only its SHA-256.

cachetools.TTLCache was weighed: an answer ends by two clocks here, its own and its credential's.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Charged, IssuerError, Refused, Undecided
from issuer.formats.strict_json import JSON, loads
from issuer.identity.table import Introspection, Provider
from issuer.io.fetch import FAILURES, FetchRefused, reason
from issuer.io.shared_answers import SharedAnswers
from issuer.limits.sources import Allowance
from issuer.service.authn.bounds import (
    ANSWER_KEPT_S,
    MAX_ANSWER_BYTES,
    MAX_ANSWER_DEPTH,
    MAX_ANSWER_MEMBERS,
    MAX_ANSWERS,
    MAX_ASKED_FOR_SOURCE,
    MAX_WAITING,
    MAX_WAITING_IN_ALL,
)
from issuer.service.authn.keysets import NoteAnswer, ProviderFetcher, ReportFailure

# Who is asked: another endpoint or client under the same name is somebody else.
Asked = tuple[str, str, Introspection | None]
# The credential that it is asked about: its SHA-256.
Digest = bytes
Ask = Callable[[], Awaitable["ProviderAnswer"]]


class ProviderAnswer(Struct, frozen=True):
    """What a provider says about a good credential. `expires_at`: its end in Unix seconds, None without one."""

    claims: Mapping[str, JSON]
    expires_at: int | None

    def is_good(self, now: int) -> bool:
        """Say whether the credential has not ended at `now`, Unix seconds."""
        return self.expires_at is None or now < self.expires_at


class AnswerCache:
    """The good answers of all providers. Belongs to one event loop; `aclose` ends what is still under way."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic, capacity: int = MAX_ANSWERS) -> None:
        # From the question on: what the provider revokes after its answer is then never served for longer.
        self._answers: SharedAnswers[tuple[Asked, Digest], ProviderAnswer] = SharedAnswers(
            Code.DEPENDENCY_INTROSPECTION,
            kept_s=ANSWER_KEPT_S,
            keeps=_is_good,
            capacity=capacity,
            monotonic=monotonic,
        )
        self._sources: Counter[str] = Counter()

    async def find(
        self, provider: Provider, credential: str, now: int, allowance: Allowance, ask: Ask
    ) -> ProviderAnswer:
        """Return the answer that is kept, or else ask, once for all who wait, as far as `allowance` goes.

        `now` is Unix seconds. An error of `ask` goes, with its code alone, to all who wait, and is not kept. Raises
        Refused and Charged.
        """
        asked = (provider.id, provider.issuer, provider.introspection)
        key = (asked, hashlib.sha256(credential.encode()).digest())
        kept = self._answers.kept(key)
        # No leeway: from its end on only its provider, by its own clock, may still call it good.
        if kept is not None and isinstance(kept.answer, ProviderAnswer) and kept.answer.is_good(now):
            return kept.answer
        allowance.demand()
        begins = not self._answers.under_way(key)
        is_one_too_many = begins and self._sources[allowance.source] >= MAX_ASKED_FOR_SOURCE
        if is_one_too_many or self._is_full(asked):
            raise Charged(Code.DEPENDENCY_INTROSPECTION)
        if begins:
            self._count(allowance.source, self._answers.start(key, ask))
        answer = await self._answers.wait(key)
        if isinstance(answer, ProviderAnswer):
            return answer
        raise (Charged if answer.code.meaning.status >= 500 else Refused)(answer.code)

    def _is_full(self, asked: Asked) -> bool:
        """Say whether no further request may wait: for this provider, or for all providers together."""
        of_provider = self._answers.load(lambda key: key[0] == asked)
        return of_provider >= MAX_WAITING or self._answers.load() >= MAX_WAITING_IN_ALL

    def _count(self, source: str, question: asyncio.Task[Any]) -> None:
        """Count a question for its source while it is under way."""
        self._sources[source] += 1

        def end(_: object) -> None:
            self._sources[source] -= 1
            if not self._sources[source]:  # anybody may be one
                del self._sources[source]

        question.add_done_callback(end)

    async def aclose(self) -> None:
        """Cancel the questions that are under way and wait until their connections are closed."""
        await self._answers.aclose()


def _is_good(answer: ProviderAnswer | IssuerError) -> bool:
    return isinstance(answer, ProviderAnswer)


# -- transport ---------------------------------------------------------------------------------------------------------

# One request that shows a credential to its identity provider, and the whole answer (SECURITY.md).
#
# An httpx transport over the same checked connections as key sets. What a user of httpx could forget is done here: no
# redirect, proxy or cookie, nothing compressed, a bounded answer.


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Sends each request over its own connection, to a checked address."""

    def __init__(self, fetcher: ProviderFetcher) -> None:
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
