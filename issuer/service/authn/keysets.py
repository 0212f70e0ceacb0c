"""The key sets of identity providers, kept in memory and shared by all requests that wait.

Knows when a set is good and when another may be fetched. `fetch.py` knows how, `jose.parse_key_set` which keys are
usable, and the caller's closed table which providers exist.

Weighed: PyJWKClient, which blocks the event loop, and pyjwt-key-fetcher. Both bound how often they fetch, and until
they may fetch again refuse a key that is really new: here that is a 503, for nobody can know.
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
from issuer.service.authn.fetch import FAILURES, Fetcher, ReportFailure, reason
from issuer.service.authn.single_flight import SingleFlight
from issuer.service.authn.sources import Allowance
from issuer.service.bounds import (
    FETCH_PAUSE_S,
    FETCHES_A_MINUTE,
    HARD_AGE_S,
    MINUTE_S,
    RENEWAL_PAUSE_S,
    SOFT_AGE_S,
)


class KeySets:
    """The keys of all registered providers. Belongs to one event loop; `aclose` ends what is still under way.

    `report` gets the provider and the reason of every fetch that failed. `monotonic` counts seconds.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        report: ReportFailure = lambda _provider, _reason: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetcher = fetcher
        self._report = report
        self._monotonic = monotonic
        self._providers: dict[str, ProviderKeys] = {}

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
        return FetchedKeys(provider, self._fetcher, self._monotonic, self._report)

    async def aclose(self) -> None:
        """Cancel the fetches that are under way and wait until their connections are closed."""
        for keys in self._providers.values():
            await keys.aclose()


class ProviderKeys(Protocol):
    """One provider's keys."""

    provider: Provider

    async def find(self, kid: str, allowance: Allowance) -> jose.Key:
        """As `KeySets.find`."""
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

    async def aclose(self) -> None:
        """Nothing is ever under way."""


class FetchedKeys:
    """One provider's key set: the last good one, how old it is, and when it may be fetched again."""

    def __init__(
        self, provider: Provider, fetcher: Fetcher, monotonic: Callable[[], float], report: ReportFailure
    ) -> None:
        self.provider = provider
        self._fetcher = fetcher
        self._monotonic = monotonic
        self._report = report
        self._good: jose.KeySet | None = None
        self._good_at = -math.inf
        self._ended_at = -math.inf
        self._starts: deque[float] = deque(maxlen=FETCHES_A_MINUTE)
        self._fetches: SingleFlight[str, jose.KeySet | None] = SingleFlight()
        self._is_asked_for = False

    async def find(self, kid: str, allowance: Allowance) -> jose.Key:
        """As `KeySets.find`."""
        now = self._monotonic()
        if (key := self._key(kid, now)) is not None:
            self._renew(now)
            return key
        allowance.demand()
        fetch = self._fetches.find(self.provider.issuer) or self._start(now)
        # A set requested before this request arrived may be older than the key that signed its token.
        current = not self._is_asked_for
        if self._fetches.is_full:
            raise self._undecided()
        fetched = await self._fetches.wait(fetch)
        if (key := self._key(kid, self._monotonic())) is not None:
            return key
        if current and fetched is not None:
            raise Refused(Code.IDENTITY_KEY_UNKNOWN)
        raise self._undecided()

    def _key(self, kid: str, now: float) -> jose.Key | None:
        return self._good.get(kid) if self._good is not None and now - self._good_at <= HARD_AGE_S else None

    def _renew(self, now: float) -> None:
        """Fetch in the background where the set is past its soft age.

        Also for a source over its limit: age causes this fetch, not the request, and no source can cause two.
        """
        due = now - self._good_at > SOFT_AGE_S and now - self._ended_at > RENEWAL_PAUSE_S
        if due and not self._fetches and self._wait_s(now) < 0:
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
        try:
            self._good, self._good_at = await self._fetcher.fetch(self.provider, self._note_asking), started
        except FAILURES as failure:
            self._report(self.provider, reason(failure))
            return None
        finally:
            self._ended_at = self._monotonic()
        return self._good

    def _note_asking(self) -> None:
        """Note that the key set is being requested: a later request cannot rely on what this set will lack."""
        self._is_asked_for = True

    def _undecided(self) -> Undecided:
        now = self._monotonic()
        # The next fetch finds a key that is really new; without a good set nobody could have sent a better kid.
        kind = Charged if now - self._good_at <= HARD_AGE_S else Undecided
        return kind(Code.DEPENDENCY_ISSUER_KEYS, retry_after_s=math.floor(max(0.0, self._wait_s(now))) + 1)

    async def aclose(self) -> None:
        """Cancel the fetch that is under way."""
        await self._fetches.aclose()
