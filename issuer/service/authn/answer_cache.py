"""Providers' answers about credentials, kept for a short while and shared by all requests that wait.

Knows how long a good answer may serve, and how many questions may be open at once. The caller knows what is asked and
what a good answer is: it judges an answer again at every use. A credential itself is never kept, only its SHA-256.

cachetools.TTLCache was weighed: an answer ends by two clocks here, its own and its credential's.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Charged, IssuerError, Refused
from issuer.formats.strict_json import JSON
from issuer.identity.provider import Introspection, Provider
from issuer.service.authn.single_flight import SingleFlight
from issuer.service.authn.sources import Allowance
from issuer.service.bounds import ANSWER_KEPT_S, MAX_ANSWERS, MAX_ASKED_FOR_SOURCE, MAX_WAITING_IN_ALL

# Who is asked: another endpoint or client under the same name is somebody else.
Asked = tuple[str, str, Introspection | None]
# The credential that it is asked about: its SHA-256.
Digest = bytes
Ask = Callable[[], Awaitable["ProviderAnswer"]]
Flights = SingleFlight[Digest, "ProviderAnswer | Code"]


class ProviderAnswer(Struct, frozen=True):
    """What a provider says about a good credential. `expires_at`: its end in Unix seconds, None without one."""

    claims: Mapping[str, JSON]
    expires_at: int | None


class KeptAnswer(Struct, frozen=True):
    """An answer, and until when it may serve on the monotonic clock."""

    answer: ProviderAnswer
    until: float


class AnswerCache:
    """The good answers of all providers. Belongs to one event loop; `aclose` ends what is still under way."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic, capacity: int = MAX_ANSWERS) -> None:
        self._monotonic = monotonic
        self._capacity = capacity
        self._kept: OrderedDict[tuple[Asked, Digest], KeptAnswer] = OrderedDict()
        self._questions: defaultdict[Asked, Flights] = defaultdict(SingleFlight)
        self._sources: Counter[str] = Counter()

    async def find(
        self, provider: Provider, credential: str, now: int, allowance: Allowance, ask: Ask
    ) -> ProviderAnswer:
        """Return the answer that is kept, or else ask, once for all who wait, as far as `allowance` goes.

        `now` is Unix seconds. An error of `ask` goes, with its code alone, to all who wait, and is not kept. Raises
        Refused and Charged.
        """
        asked = (provider.id, provider.issuer, provider.introspection)
        digest = hashlib.sha256(credential.encode()).digest()
        if (answer := self._good((asked, digest), now)) is not None:
            return answer
        allowance.demand()
        questions = self._questions[asked]
        question = questions.find(digest)
        is_one_too_many = question is None and self._sources[allowance.source] >= MAX_ASKED_FOR_SOURCE
        if is_one_too_many or questions.is_full or self._is_full():
            raise Charged(Code.DEPENDENCY_INTROSPECTION)
        if question is None:
            question = questions.start(digest, self._ask((asked, digest), ask))
            self._count(allowance.source, question)
        outcome = await questions.wait(question) or Code.DEPENDENCY_INTROSPECTION
        if isinstance(outcome, ProviderAnswer):
            return outcome
        raise (Charged if outcome.meaning.status >= 500 else Refused)(outcome)

    def _is_full(self) -> bool:
        """Say whether no further request may wait, all providers together."""
        every = self._questions.values()
        return max(sum(each.waiting for each in every), sum(map(len, every))) >= MAX_WAITING_IN_ALL

    def _good(self, key: tuple[Asked, Digest], now: int) -> ProviderAnswer | None:
        kept = self._kept.get(key)
        if kept is None or self._monotonic() >= kept.until:
            return None
        # No leeway: from its end on only its provider, by its own clock, may still call it good.
        if kept.answer.expires_at is not None and now >= kept.answer.expires_at:
            return None
        self._kept.move_to_end(key)
        return kept.answer

    def _count(self, source: str, question: asyncio.Task[ProviderAnswer | Code]) -> None:
        """Count a question for its source while it is under way."""
        self._sources[source] += 1

        def end(_: object) -> None:
            self._sources[source] -= 1
            if not self._sources[source]:  # anybody may be one
                del self._sources[source]

        question.add_done_callback(end)

    async def _ask(self, key: tuple[Asked, Digest], ask: Ask) -> ProviderAnswer | Code:
        # From the question on: what the provider revokes after its answer is then never served for longer.
        until = self._monotonic() + ANSWER_KEPT_S
        try:
            answer = await ask()
        except IssuerError as error:
            return error.code
        self._kept[key] = KeptAnswer(answer, until)
        self._kept.move_to_end(key)
        if len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
        return answer

    async def aclose(self) -> None:
        """Cancel the questions that are under way and wait until their connections are closed."""
        for questions in self._questions.values():
            await questions.aclose()
