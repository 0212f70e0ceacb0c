"""The key sets of identity providers, kept in memory, renewed by a timer and shared by all requests that wait.

Knows when a set is good and when another may be fetched. `fetch.py` knows how, `jose.parse_key_set` which keys are
usable, and the caller's closed table which providers exist. No set is older than `UNTRIED_AGE_S` without a try to renew
it, so that a key which its provider withdrew stops verifying: the guarantee is in `find`, the timer keeps requests from
waiting.

Weighed: PyJWKClient, which blocks the event loop, and pyjwt-key-fetcher. Both bound how often they fetch, and until
they may fetch again refuse a key that is really new: here that is a 503, for nobody can know.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec
from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import Charged, Refused, Undecided
from issuer.formats import jose
from issuer.identity.provider import KeySource, Provider
from issuer.service.authn.fetch import FAILURES, Fetcher, NoteAnswer, NoUsableKey, ReportFailure, reason
from issuer.service.authn.single_flight import SingleFlight
from issuer.service.authn.sources import Allowance
from issuer.service.bounds import (
    FETCH_PAUSE_S,
    FETCHES_A_MINUTE,
    HARD_AGE_S,
    JITTER,
    MINUTE_S,
    RENEW_S,
    RETRY_S,
    TIMER_S,
    TRY_SERVES_S,
    UNTRIED_AGE_S,
    UNUSED_S,
)


class Stale(Struct, frozen=True):
    """Keys of a provider go on verifying past `UNTRIED_AGE_S`, because tries to renew their set fail; or that is over,
    for the provider was reached. `age_s` is how long ago the old set was asked for."""

    provider: Provider
    age_s: int
    over: bool = False


TellStale = Callable[[Stale], Awaitable[None]]


async def _tell_nobody(_stale: Stale) -> None:
    pass


class _World(Struct, frozen=True):
    """What key sets need of the world; see `KeySets`."""

    fetcher: Fetcher
    report: ReportFailure
    note_answer: NoteAnswer
    tell_stale: TellStale
    monotonic: Callable[[], float]
    uniform: Callable[[float, float], float]


class KeySets:
    """The keys of all registered providers. Belongs to one event loop; `aclose` ends what is still under way.

    A provider's set is fetched with its first token, and from then on renewed by a timer, whether or not tokens come:
    one small fetch in ten minutes. After a day without a token it is not, until the next one.

    `report` gets the provider and the reason of every fetch that failed, `note_answer` the provider of every other.
    `tell_stale` is told before old keys serve; it raises Undecided where it cannot write that down, and then they do
    not. `monotonic` counts seconds; `uniform` draws between two numbers, so that the timers of several workers part.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        report: ReportFailure = lambda _provider, _reason: None,
        note_answer: NoteAnswer = lambda _provider: None,
        tell_stale: TellStale = _tell_nobody,
        monotonic: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._world = _World(fetcher, report, note_answer, tell_stale, monotonic, uniform)
        self._providers: dict[str, ProviderKeys] = {}
        self._timer: asyncio.Task[None] | None = None

    async def find(self, provider: Provider, kid: str, allowance: Allowance) -> jose.Key:
        """Return a registered provider's key, from memory or else fetched, as far as `allowance` goes.

        Raises Refused (`identity.key_unknown` only where a set that was asked for after this call lacks the kid;
        `rate.source`) and Undecided (`dependency.issuer_keys`; Charged where other keys are kept).
        """
        return await self._of(provider).find(kid, allowance)

    def _of(self, provider: Provider) -> ProviderKeys:
        keys = self._providers.get(provider.issuer)
        if keys is None or (keys.provider is not provider and keys.provider.keys != provider.keys):
            keys = self._providers[provider.issuer] = self._keys_of(provider)
        keys.provider = provider  # a reloaded entry with the same keys: the set is kept
        return keys

    def _keys_of(self, provider: Provider) -> ProviderKeys:
        if isinstance(provider.keys, KeySource) and provider.keys.static is not UNSET:
            return StaticKeys(provider, provider.keys.static)
        if self._timer is None:
            self._timer = asyncio.create_task(self._renew_for_ever())
        return FetchedKeys(provider, self._world)

    async def _renew_for_ever(self) -> None:
        """Nothing rests on this task: without it, requests wait for the try themselves."""
        while True:
            await asyncio.sleep(TIMER_S)
            self.renew()

    def renew(self) -> None:
        """Begin to fetch the sets that are due."""
        for keys in self._providers.values():
            keys.renew()

    async def aclose(self) -> None:
        """Cancel the fetches that are under way and wait until their connections are closed."""
        if self._timer is not None:
            self._timer.cancel()
        for keys in self._providers.values():
            await keys.aclose()


class ProviderKeys(Protocol):
    """One provider's keys."""

    provider: Provider

    async def find(self, kid: str, allowance: Allowance) -> jose.Key:
        """As `KeySets.find`."""
        ...

    def renew(self) -> None:
        """As `KeySets.renew`."""
        ...

    async def aclose(self) -> None:
        """End what is under way."""
        ...


class StaticKeys:
    """Keys from the operator's configuration: always current, so that an unknown kid is decided at once."""

    def __init__(self, provider: Provider, jwks: Sequence[dict[str, object]]) -> None:
        self.provider = provider
        self._set = jose.parse_key_set(msgspec.json.encode({"keys": jwks}))

    async def find(self, kid: str, _allowance: Allowance) -> jose.Key:
        """As `KeySets.find`."""
        if (key := self._set.get(kid)) is None:
            raise Refused(Code.IDENTITY_KEY_UNKNOWN)
        return key

    def renew(self) -> None:
        """Nothing is ever due."""

    async def aclose(self) -> None:
        """Nothing is ever under way."""


class FetchedKeys:
    """One provider's key set: the last good one, how old it is, and when it may be fetched again."""

    def __init__(self, provider: Provider, world: _World) -> None:
        self.provider = provider
        self._world = world
        self._good: jose.KeySet | None = None
        self._good_at = -math.inf
        self._failed_at = -math.inf
        self._ended_at = -math.inf
        self._asked_at = -math.inf
        self._due_at = math.inf
        self._told_stale = False
        self._starts: deque[float] = deque(maxlen=FETCHES_A_MINUTE)
        self._fetches: SingleFlight[str, jose.KeySet | None] = SingleFlight()
        self._is_asked_for = False

    async def find(self, kid: str, allowance: Allowance) -> jose.Key:
        """As `KeySets.find`."""
        now = self._asked_at = self._world.monotonic()
        if (key := self._key(kid, now)) is not None:
            return key
        if self._good is None or self._good.get(kid) is None:
            allowance.demand()  # else age causes the fetch, not the request, and no source can cause two
        fetch = self._fetches.find(self.provider.issuer) or self._start(now)
        # A set requested before this request arrived may be older than the key that signed its token.
        current = not self._is_asked_for
        if self._fetches.is_full:
            raise self._undecided()
        fetched = await self._fetches.wait(fetch)
        if (key := self._key(kid, self._world.monotonic())) is not None:
            return key
        if current and fetched is not None:
            raise Refused(Code.IDENTITY_KEY_UNKNOWN)
        raise self._undecided()

    def _key(self, kid: str, now: float) -> jose.Key | None:
        return self._good.get(kid) if self._good is not None and self._serves(now) else None

    def _serves(self, now: float) -> bool:
        """Say whether the set may verify: it is young, or a try to renew it has just failed and that was told."""
        age_s = now - self._good_at
        if age_s <= UNTRIED_AGE_S:
            return True
        return age_s <= HARD_AGE_S and self._told_stale and now - self._failed_at <= TRY_SERVES_S

    def renew(self) -> None:
        """As `KeySets.renew`."""
        now = self._world.monotonic()
        used = now - self._asked_at <= UNUSED_S
        if used and now >= self._due_at and not self._fetches and self._wait_s(now) < 0:
            self._start(now)

    def _wait_s(self, now: float) -> float:
        """Return the seconds until the bounds allow a fetch; below 0 if they do now."""
        full = len(self._starts) == FETCHES_A_MINUTE
        return max(self._ended_at + FETCH_PAUSE_S - now, self._starts[0] + MINUTE_S - now if full else -math.inf)

    def _start(self, now: float) -> asyncio.Task[jose.KeySet | None]:
        if self._wait_s(now) >= 0:
            raise self._undecided()
        self._starts.append(now)
        self._is_asked_for = False
        return self._fetches.start(self.provider.issuer, self._fetch(now))

    async def _fetch(self, started: float) -> jose.KeySet | None:
        pause_s = RETRY_S
        try:
            fetched = await self._world.fetcher.fetch(self.provider, self._note_asking)
            await self._end_staleness(started)
            self._good, self._good_at, pause_s = fetched, started, RENEW_S
            self._world.note_answer(self.provider)
        except FAILURES as failure:
            self._world.report(self.provider, reason(failure))
            await self._note_failure(failure)
            return None
        finally:
            self._ended_at = self._world.monotonic()
            self._due_at = self._ended_at + pause_s * self._world.uniform(1 - JITTER, 1 + JITTER)
        return self._good

    async def _note_failure(self, failure: Exception) -> None:
        """Let the old set serve on, once that is told; but a provider that publishes no key has withdrawn them all."""
        self._failed_at = now = self._world.monotonic()
        if isinstance(failure, NoUsableKey):
            await self._end_staleness(now)
            self._good, self._good_at = None, -math.inf
        age_s = now - self._good_at
        if not self._told_stale and age_s + TRY_SERVES_S > UNTRIED_AGE_S and age_s <= HARD_AGE_S:
            self._told_stale = await self._tell(age_s)

    async def _end_staleness(self, now: float) -> None:
        if self._told_stale:
            await self._tell(now - self._good_at, over=True)
            self._told_stale = False

    async def _tell(self, age_s: float, *, over: bool = False) -> bool:
        """Tell of a stale set; return whether it was written down."""
        try:
            await self._world.tell_stale(Stale(self.provider, int(age_s), over))
        except Undecided:
            return False
        return True

    def _note_asking(self) -> None:
        """Note that the key set is being requested: a later request cannot rely on what this set will lack."""
        self._is_asked_for = True

    def _undecided(self) -> Undecided:
        now = self._world.monotonic()
        # The next fetch finds a key that is really new; without a good set nobody could have sent a better kid.
        kind = Charged if self._serves(now) else Undecided
        return kind(Code.DEPENDENCY_ISSUER_KEYS, retry_after_s=math.floor(max(0.0, self._wait_s(now))) + 1)

    async def aclose(self) -> None:
        """Cancel the fetch that is under way."""
        await self._fetches.aclose()
