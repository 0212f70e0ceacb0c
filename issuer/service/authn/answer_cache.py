"""What a provider said of a credential, kept for a short while and shared by everybody who waits.

Knows how long a good answer may serve, and how many may ask at once. What is asked, and what a good answer is, the
caller knows: it judges every answer again whenever it is used. A credential itself is never kept, only its SHA-256.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Charged, IssuerError, Refused
from issuer.formats.strict_json import JSON
from issuer.identity.provider import Introspection, Provider
from issuer.service.authn.sources import Allowance
from issuer.service.bounds import ANSWER_KEPT_S, MAX_ANSWERS, MAX_ASKED_FOR_SOURCE, MAX_WAITING, MAX_WAITING_IN_ALL

# Who is asked: another endpoint or client under the same name is somebody else.
Asked = tuple[str, str, Introspection | None]
Key = tuple[Asked, bytes]
Ask = Callable[[], Awaitable["Answer"]]
Flight = asyncio.Task["Answer | Code"]


class Answer(Struct, frozen=True):
    """What a provider says of a good credential. `expires_at`: the credential's end in Unix seconds, None for none."""

    claims: Mapping[str, JSON]
    expires_at: int | None


class Kept(Struct, frozen=True):
    """An answer, and until when it may serve on the monotonic clock."""

    answer: Answer
    until: float


class Answers:
    """The good answers of all providers. Belongs to one event loop; `aclose` ends what is still under way."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic, capacity: int = MAX_ANSWERS) -> None:
        self._monotonic = monotonic
        self._capacity = capacity
        self._kept: OrderedDict[Key, Kept] = OrderedDict()
        self._flights: dict[Key, Flight] = {}
        self._flying: Counter[Asked] = Counter()
        self._waiting: Counter[Asked] = Counter()
        self._sources: Counter[str] = Counter()

    async def find(self, provider: Provider, credential: str, now: int, allowance: Allowance, ask: Ask) -> Answer:
        """Return the answer that is kept, or else ask, once for all who wait, as far as `allowance` goes.

        `now` is Unix seconds. What `ask` raises, its code alone, is for all who wait and is not kept. Raises Refused
        and Charged.
        """
        asked = (provider.id, provider.issuer, provider.introspection)
        key = (asked, hashlib.sha256(credential.encode()).digest())
        if (answer := self._good(key, now)) is not None:
            return answer
        allowance.demand()
        flight = self._flights.get(key)
        if self._full(asked) or (flight is None and self._sources[allowance.source] >= MAX_ASKED_FOR_SOURCE):
            raise Charged(Code.DEPENDENCY_INTROSPECTION)
        flight = flight or self._take_off(key, allowance.source, ask)
        self._waiting[asked] += 1
        try:
            # It neither cancels the flight with one of those who wait, nor raises its errors.
            await asyncio.wait([flight])
        finally:
            self._waiting[asked] -= 1
        return _outcome(flight)

    def _full(self, asked: Asked) -> bool:
        # Flights, too: one goes on when those who waited for it have hung up.
        of_one = max(self._waiting[asked], self._flying[asked])
        return of_one >= MAX_WAITING or max(self._waiting.total(), len(self._flights)) >= MAX_WAITING_IN_ALL

    def _good(self, key: Key, now: int) -> Answer | None:
        kept = self._kept.get(key)
        if kept is None or self._monotonic() >= kept.until:
            return None
        # No leeway: from its end on only its provider, by its own clock, may still call it good.
        if kept.answer.expires_at is not None and now >= kept.answer.expires_at:
            return None
        self._kept.move_to_end(key)
        return kept.answer

    def _take_off(self, key: Key, source: str, ask: Ask) -> Flight:
        self._flights[key] = flight = asyncio.create_task(self._fly(key, ask))
        self._flying[key[0]] += 1
        self._sources[source] += 1
        flight.add_done_callback(lambda _: self._land(key, source))
        return flight

    async def _fly(self, key: Key, ask: Ask) -> Answer | Code:
        # From the question on: what the provider revokes after its answer is then never served for longer.
        until = self._monotonic() + ANSWER_KEPT_S
        try:
            answer = await ask()
        except IssuerError as error:
            return error.code
        self._kept[key] = Kept(answer, until)
        self._kept.move_to_end(key)
        if len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
        return answer

    def _land(self, key: Key, source: str) -> None:
        del self._flights[key]
        self._flying[key[0]] -= 1
        self._sources[source] -= 1
        if not self._sources[source]:  # anybody may be one
            del self._sources[source]

    async def aclose(self) -> None:
        """Cancel the questions that are under way and wait until their connections are closed."""
        flights = tuple(self._flights.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)


def _outcome(flight: Flight) -> Answer:
    landed = Code.DEPENDENCY_INTROSPECTION if flight.cancelled() else flight.result()
    if isinstance(landed, Answer):
        return landed
    raise (Charged if landed.meaning.status >= 500 else Refused)(landed)
