"""The key sets of identity providers, kept in memory and shared by everybody who waits.

Knows when a set is good and when another may be fetched; how to fetch one is `fetch.py`'s. Which keys are usable,
`jose.parse_key_set` alone judges; which providers there are, the closed table that the caller looked the provider up
in.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from msgspec import UNSET

from issuer.codes import Code
from issuer.errors import Charged, Refused, Undecided
from issuer.formats import jose
from issuer.identity.provider import KeySource, Provider
from issuer.service.authn.fetch import FAILURES, Fetcher, reason
from issuer.service.authn.sources import Allowance
from issuer.service.bounds import (
    FETCH_PAUSE_S,
    FETCHES_A_MINUTE,
    HARD_AGE_S,
    MAX_WAITING,
    MINUTE_S,
    RENEWAL_PAUSE_S,
    SOFT_AGE_S,
)

Report = Callable[[Provider, str], None]


class KeySets:
    """The keys of all registered providers. Belongs to one event loop; `aclose` ends what is still under way.

    `report` is told the provider and the reason of every fetch that failed. `monotonic` counts seconds.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        report: Report = lambda _provider, _reason: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetcher = fetcher
        self._report = report
        self._monotonic = monotonic
        self._kept: dict[str, Kept] = {}

    async def find(self, provider: Provider, kid: str, allowance: Allowance) -> jose.Key:
        """Return a registered provider's key, from memory or else fetched, as far as `allowance` goes.

        Raises Refused (`identity.key_unknown` only where a set that was asked for after this call lacks the kid;
        `rate.source`) and Undecided (`dependency.issuer_keys`; Charged where other keys are kept).
        """
        return await self._of(provider).find(kid, allowance)

    def _of(self, provider: Provider) -> Kept:
        kept = self._kept.get(provider.issuer)
        if kept is None or (kept.provider is not provider and kept.provider.keys != provider.keys):
            kept = self._keep(provider)
            self._kept[provider.issuer] = kept
        kept.provider = provider  # loaded anew, and the same keys: a set that is kept survives
        return kept

    def _keep(self, provider: Provider) -> Kept:
        if isinstance(provider.keys, KeySource) and provider.keys.static is not UNSET:
            return StaticKeys(provider, provider.keys.static)
        return FetchedKeys(provider, self._fetcher, self._monotonic, self._report)

    async def aclose(self) -> None:
        """Cancel the fetches that are under way and wait until their connections are closed."""
        for kept in self._kept.values():
            await kept.aclose()


class Kept(Protocol):
    """One provider's keys."""

    provider: Provider

    async def find(self, kid: str, allowance: Allowance) -> jose.Key:
        """As `KeySets.find`."""
        ...

    async def aclose(self) -> None:
        """End what is under way."""
        ...


class StaticKeys:
    """Keys that the operator wrote down: always current, so that an unknown kid is decided at once."""

    def __init__(self, provider: Provider, jwks: Sequence[dict[str, object]]) -> None:
        self.provider = provider
        self._set = jose.parse_key_set(msgspec.json.encode({"keys": jwks}))

    async def find(self, kid: str, _allowance: Allowance) -> jose.Key:
        """As `KeySets.find`."""
        if (key := self._set.get(kid)) is None:
            raise Refused(Code.IDENTITY_KEY_UNKNOWN)
        return key

    async def aclose(self) -> None:
        """Nothing is ever under way."""


class Flight:
    """One fetch under way, whoever waits for it. `asked`: the key set itself has been asked for."""

    def __init__(self) -> None:
        self.asked = False
        self.landed: jose.KeySet | None = None

    def ask(self) -> None:
        """Note that the key set is being asked for: from now on a newcomer cannot know what it will miss."""
        self.asked = True


class FetchedKeys:
    """One provider's key set: the last good one, how old it is, and when it may be fetched again."""

    def __init__(self, provider: Provider, fetcher: Fetcher, monotonic: Callable[[], float], report: Report) -> None:
        self.provider = provider
        self._fetcher = fetcher
        self._monotonic = monotonic
        self._report = report
        self._good: jose.KeySet | None = None
        self._good_at = -math.inf
        self._ended_at = -math.inf
        self._starts: deque[float] = deque(maxlen=FETCHES_A_MINUTE)
        self._waiting = 0
        self._flight: Flight | None = None
        self._task: asyncio.Task[None] | None = None

    async def find(self, kid: str, allowance: Allowance) -> jose.Key:
        """As `KeySets.find`."""
        now = self._monotonic()
        if (key := self._key(kid, now)) is not None:
            self._renew(now)
            return key
        allowance.demand()
        flight = self._flight or self._take_off(now)
        # A set that was asked for before this request arrived may be older than the key that the token was signed with.
        current = not flight.asked
        if self._waiting >= MAX_WAITING:
            raise self._undecided()
        self._waiting += 1
        try:
            await self._landing()
        finally:
            self._waiting -= 1
        if (key := self._key(kid, self._monotonic())) is not None:
            return key
        if current and flight.landed is not None:
            raise Refused(Code.IDENTITY_KEY_UNKNOWN)
        raise self._undecided()

    def _key(self, kid: str, now: float) -> jose.Key | None:
        return self._good.get(kid) if self._good is not None and now - self._good_at <= HARD_AGE_S else None

    def _renew(self, now: float) -> None:
        """Fetch in the background where the set is past its soft age.

        Also for a source over its limit: age causes this fetch, not the request, and no source can cause two.
        """
        due = now - self._good_at > SOFT_AGE_S and now - self._ended_at > RENEWAL_PAUSE_S
        if due and self._flight is None and self._wait_s(now) < 0:
            self._take_off(now)

    def _wait_s(self, now: float) -> float:
        """Return the seconds until the bounds let a fetch start; below 0 where they do now."""
        full = len(self._starts) == FETCHES_A_MINUTE
        return max(self._ended_at + FETCH_PAUSE_S - now, self._starts[0] + MINUTE_S - now if full else -math.inf)

    def _take_off(self, now: float) -> Flight:
        if self._wait_s(now) >= 0:
            raise self._undecided()
        self._starts.append(now)
        self._flight = flight = Flight()
        self._task = asyncio.create_task(self._fly(flight, now))
        return flight

    async def _fly(self, flight: Flight, started: float) -> None:
        try:
            flight.landed = await self._fetcher.fetch(self.provider, flight.ask)
            self._good, self._good_at = flight.landed, started
        except FAILURES as failure:
            self._report(self.provider, reason(failure))
        finally:
            self._ended_at = self._monotonic()
            self._flight = None

    async def _landing(self) -> None:
        """Wait for the flight. `asyncio.wait` neither cancels it with one of those who wait, nor raises its errors."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def _undecided(self) -> Undecided:
        now = self._monotonic()
        # The next fetch finds a key that is really new; without a set that is good nobody could have sent a better kid.
        kind = Charged if now - self._good_at <= HARD_AGE_S else Undecided
        return kind(Code.DEPENDENCY_ISSUER_KEYS, retry_after_s=math.floor(max(0.0, self._wait_s(now))) + 1)

    async def aclose(self) -> None:
        """Cancel the fetch that is under way."""
        if self._task is not None:
            self._task.cancel()
            await self._landing()
