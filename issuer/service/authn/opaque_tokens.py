"""Questions to providers about opaque credentials, with a short-lived cache that all waiting requests share.

It bounds how long a good answer serves, and how many questions are open at once. The verifier of each kind (see
`introspection` and `huggingface`) asks, and checks an answer again at every use. The cache keeps the SHA-256 of a
credential, never the credential.

We considered cachetools.TTLCache. Here an answer also ends when its credential expires, by another clock.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypedDict

import httpx2
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Charged, Refused, Undecided
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

# A provider with its settings: a new endpoint or client under the same id must not get the old one's answers.
Asked = tuple[str, str, Introspection | None]
# The SHA-256 of a credential.
Digest = bytes
Ask = Callable[[], Awaitable["ProviderAnswer"]]


class ProviderAnswer(Struct, frozen=True):
    """A provider's answer about a good credential, which expires at `expires_at` (Unix seconds), or never if None."""

    claims: Mapping[str, JSON]
    expires_at: int | None

    def is_good(self, now: int) -> bool:
        """Return whether the credential is unexpired at `now` (Unix seconds)."""
        return self.expires_at is None or now < self.expires_at


class AnswerCache:
    """The good answers of all providers, for one event loop."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic, capacity: int = MAX_ANSWERS) -> None:
        # ANSWER_KEPT_S counts from the question, so a revocation after the answer takes effect within that time.
        self._answers: SharedAnswers[tuple[Asked, Digest], ProviderAnswer] = SharedAnswers(
            Code.DEPENDENCY_INTROSPECTION,
            kept_s=ANSWER_KEPT_S,
            keeps=lambda answer: isinstance(answer, ProviderAnswer),
            capacity=capacity,
            monotonic=monotonic,
        )
        self._sources: Counter[str] = Counter()

    async def find(
        self, provider: Provider, credential: str, now: int, allowance: Allowance, ask: Ask
    ) -> ProviderAnswer:
        """Return the kept answer, or else ask once for all waiting requests, if `allowance` permits.

        `now` is in Unix seconds. If `ask` raises an error, every waiting request gets its code, and the error is not
        kept. Raises Refused and Charged.
        """
        asked = (provider.id, provider.issuer, provider.introspection)
        key = (asked, hashlib.sha256(credential.encode()).digest())
        kept = self._answers.kept(key)
        # No leeway: after its expiry only the provider, by the provider's clock, may still call a credential good.
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
        """Return whether too many requests wait for this provider, or for all providers together."""
        of_provider = self._answers.load(lambda key: key[0] == asked)
        return of_provider >= MAX_WAITING or self._answers.load() >= MAX_WAITING_IN_ALL

    def _count(self, source: str, question: asyncio.Task[Any]) -> None:
        """Count a question for its source until the answer."""
        self._sources[source] += 1

        def end(_: object) -> None:
            self._sources[source] -= 1
            if not self._sources[source]:  # any address may be a source, so zeros would pile up
                del self._sources[source]

        question.add_done_callback(end)

    async def aclose(self) -> None:
        """Cancel the open questions and wait until their connections are closed."""
        await self._answers.aclose()


# -- transport ---------------------------------------------------------------------------------------------------------


class CheckedTransport(httpx2.AsyncBaseTransport):
    """An httpx transport that sends each request over a new connection to a checked address, as for key sets.

    It enforces the rules for a request with a credential (SECURITY.md), which users of httpx could forget: no redirect,
    no proxy, no cookie, no compression, and a bounded answer.
    """

    def __init__(self, fetcher: ProviderFetcher) -> None:
        self._fetcher = fetcher

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send only the headers `Authorization` and `Content-Type`, and return none. Raises one of FAILURES."""
        own = [(name, request.headers[name]) for name in ("Authorization", "Content-Type") if name in request.headers]
        content = await request.aread()
        status, body = await self._fetcher.send(request.method, str(request.url), own, content, MAX_ANSWER_BYTES)
        return httpx2.Response(status, content=body)


def read_object(response: httpx2.Response) -> Mapping[str, JSON]:
    """Return the JSON object of a 200 answer, of any media type. Raises one of FAILURES."""
    if response.status_code != 200:
        raise FetchRefused(f"the provider answered {response.status_code}")
    value = loads(response.content, max_bytes=MAX_ANSWER_BYTES, max_depth=MAX_ANSWER_DEPTH)
    if not isinstance(value, dict) or len(value) > MAX_ANSWER_MEMBERS:
        raise FetchRefused("the answer is not an object, or has too many members")
    return value


# -- verifiers ---------------------------------------------------------------------------------------------------------


class VerifierOptions(TypedDict, total=False):
    """`report` gets the provider and the reason of every failed question, `note_answer` the provider of every answer.
    `monotonic` counts seconds."""

    report: ReportFailure
    note_answer: NoteAnswer
    monotonic: Callable[[], float]


class OpaqueVerifier(ABC):
    """The base of the verifiers that ask a provider, for one event loop. `VerifierOptions` has its keywords."""

    def __init__(
        self,
        fetcher: ProviderFetcher,
        *,
        report: ReportFailure = lambda _provider, _reason: None,
        note_answer: NoteAnswer = lambda _provider: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetcher = fetcher
        self._transport = CheckedTransport(fetcher)
        self._report, self._note_answer = report, note_answer
        self._monotonic = monotonic
        self._answers = AnswerCache(monotonic=monotonic)

    @abstractmethod
    async def _ask(self, bearer: str, provider: Provider, now: int) -> ProviderAnswer:
        """Ask the provider about a credential. Raises Refused and Undecided."""

    async def _find(self, bearer: str, provider: Provider, now: int, allowance: Allowance) -> ProviderAnswer:
        return await self._answers.find(provider, bearer, now, allowance, partial(self._ask, bearer, provider, now))

    @asynccontextmanager
    async def _asking(self, provider: Provider) -> AsyncIterator[None]:
        """Limit the time of the requests in the block, and report their result. Raises Undecided if one fails."""
        try:
            async with asyncio.timeout(self._fetcher.deadline_s):
                yield
        except (*FAILURES, httpx2.HTTPError, httpx2.InvalidURL) as failure:
            self._report(provider, reason(failure))
            raise Undecided(Code.DEPENDENCY_INTROSPECTION) from None  # the failure may quote the request or the answer
        except Refused:
            self._note_answer(provider)
            raise
        self._note_answer(provider)

    async def aclose(self) -> None:
        """Cancel the open questions and wait until their connections are closed."""
        await self._answers.aclose()
