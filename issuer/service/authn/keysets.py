"""Key sets of identity providers, kept in memory, renewed by a timer and shared by all waiting requests.

This file has the rules for a provider's metadata (OpenID Connect Discovery 1.0, RFC 8414), for a good key set, and for
the time of the next fetch. `find` guarantees that no set is used past `UNTRIED_AGE_S` without a try to renew it, so a
key that the provider revoked stops verifying. The timer only keeps requests from waiting.

We considered PyJWKClient and pyjwt-key-fetcher. Neither checks addresses, the first blocks the event loop, and the
second does not check the issuer of a discovery document. Both refuse a new key until they may fetch again. Here that is
a 503, because the service cannot know yet whether the key exists.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from urllib.parse import urlsplit

import msgspec
from authlib.oidc.discovery import OpenIDProviderMetadata  # type: ignore[import-untyped]
from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import Charged, Refused, Undecided
from issuer.formats import jose
from issuer.formats.strict_json import loads
from issuer.identity.table import KeySource, Provider
from issuer.io.fetch import FAILURES, MAX_DOCUMENT_BYTES, Fetcher, FetchRefused, NotServed, Pool, reason
from issuer.io.shared_answers import SharedAnswers
from issuer.limits.sources import Allowance
from issuer.service.authn.bounds import (
    FETCH_PAUSE_S,
    FETCHES_A_MINUTE,
    HARD_AGE_S,
    JITTER,
    MAX_WAITING,
    MINUTE_S,
    RENEW_S,
    RETRY_S,
    TIMER_S,
    TRY_SERVES_S,
    UNTRIED_AGE_S,
    UNUSED_S,
)

WELL_KNOWN = "/.well-known/openid-configuration"
OAUTH_WELL_KNOWN = "/.well-known/oauth-authorization-server"

ReportFailure = Callable[[Provider, str], None]
NoteAnswer = Callable[[Provider], None]


class NoUsableKey(FetchRefused):
    """The provider publishes a key set without a usable key."""


class ProviderFetcher(Fetcher):
    """Fetches the documents of a registered provider; `deadline_s` covers all fetches for one request."""

    async def fetch(self, provider: Provider, asking: Callable[[], None]) -> jose.KeySet:
        """Return the provider's current key set. `asking` is called just before the request for it."""
        async with asyncio.timeout(self.deadline_s), self._pool() as pool:
            if isinstance(provider.keys, KeySource) and provider.keys.jwks_uri is not UNSET:
                uri = provider.keys.jwks_uri
            else:
                uri = await self._discover(pool, provider, "jwks_uri")
            asking()
            key_set = jose.parse_key_set(await self._get(pool, uri))
        if not key_set.keys:
            raise NoUsableKey("the key set has no usable key")
        return key_set

    async def discover(self, provider: Provider, member: str) -> str:
        """Return the URL in a member of the provider's metadata."""
        async with asyncio.timeout(self.deadline_s), self._pool() as pool:
            return await self._discover(pool, provider, member)

    async def _discover(self, pool: Pool, provider: Provider, member: str) -> str:
        """Read OpenID Connect metadata (Discovery 1.0, 4.1 to 4.3), or else OAuth metadata (RFC 8414)."""
        try:
            raw = await self._get(pool, provider.issuer.removesuffix("/") + WELL_KNOWN)
        except NotServed:
            if not provider.rules.reusable:
                raise
            raw = await self._get(pool, oauth_metadata_url(provider.issuer))
        return find_in_metadata(raw, provider.issuer, member)


def oauth_metadata_url(issuer: str) -> str:
    """Return the URL of an OAuth server's metadata, with the issuer's path at the end (RFC 8414, section 3.1)."""
    parts = urlsplit(issuer)
    return f"{parts.scheme}://{parts.netloc}{OAUTH_WELL_KNOWN}{parts.path.removesuffix('/')}"


def find_in_metadata(raw: bytes, issuer: str, member: str) -> str:
    """Return a URL from the issuer's discovery document. It must be on the issuer's host."""
    document = loads(raw, max_bytes=MAX_DOCUMENT_BYTES, max_depth=8)
    if not isinstance(document, dict):
        raise FetchRefused("the discovery document is not an object")
    # Compare exactly, before Authlib does: only the issuer itself may name its keys (Discovery 4.3).
    if document.get("issuer") != issuer:
        raise FetchRefused("the discovery document is of another issuer")
    if not isinstance(uri := document.get(member), str):
        raise FetchRefused(f"the discovery document has no {member}")
    metadata = OpenIDProviderMetadata(document)
    metadata.validate_issuer()
    getattr(metadata, f"validate_{member}")()
    if urlsplit(uri).hostname != urlsplit(issuer).hostname:
        raise FetchRefused(f"the {member} is on another host than the issuer: register it in providers.yaml")
    return uri


# -- key sets ----------------------------------------------------------------------------------------------------------


class Stale(Struct, frozen=True):
    """A provider's keys are used past `UNTRIED_AGE_S`, because tries to renew their set fail. `over`: this has ended,
    because the provider was reached. `age_s` counts from the request for the old set."""

    provider: Provider
    age_s: int
    over: bool = False


RecordStale = Callable[[Stale], Awaitable[None]]


async def _record_nothing(_stale: Stale) -> None:
    pass


class KeySets:
    """The keys of all registered providers, for one event loop.

    The first token of a provider causes a fetch of its set. From then on a timer renews the set with one small fetch in
    ten minutes, even if no tokens come. After a day without a token it stops until the next one.

    `report` gets the provider and the reason of every failed fetch, `note_answer` the provider of every other one.
    `record_stale` is called before old keys are used. If it cannot record that, it raises Undecided, and they are not
    used. `monotonic` counts seconds. `uniform` draws between two numbers, to spread the timers of the workers.
    """

    def __init__(
        self,
        fetcher: ProviderFetcher,
        *,
        report: ReportFailure = lambda _provider, _reason: None,
        note_answer: NoteAnswer = lambda _provider: None,
        record_stale: RecordStale = _record_nothing,
        monotonic: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.fetcher, self.report, self.note_answer = fetcher, report, note_answer
        self.record_stale, self.monotonic, self.uniform = record_stale, monotonic, uniform
        self._providers: dict[str, StaticKeys | FetchedKeys] = {}
        self._timer: asyncio.Task[None] | None = None

    async def find(self, provider: Provider, kid: str, allowance: Allowance) -> jose.Key:
        """Return a registered provider's key from memory, or fetch it if `allowance` permits.

        Raises Refused (`rate.source`; `identity.key_unknown` only if a set that was requested after this call lacks the
        kid) and Undecided (`dependency.issuer_keys`; Charged if the provider has other usable keys).
        """
        return await self._of(provider).find(kid, allowance)

    def _of(self, provider: Provider) -> StaticKeys | FetchedKeys:
        keys = self._providers.get(provider.issuer)
        if keys is None or (keys.provider is not provider and keys.provider.keys != provider.keys):
            keys = self._providers[provider.issuer] = self._keys_of(provider)
        keys.provider = provider  # a reloaded registration with the same keys keeps its set
        return keys

    def _keys_of(self, provider: Provider) -> StaticKeys | FetchedKeys:
        if isinstance(provider.keys, KeySource) and provider.keys.static is not UNSET:
            return StaticKeys(provider, provider.keys.static)
        if self._timer is None:
            self._timer = asyncio.create_task(self._renew_for_ever())
        return FetchedKeys(provider, self)

    async def _renew_for_ever(self) -> None:
        """Renew sets in time. If this task dies, requests wait for the renewal instead."""
        while True:
            await asyncio.sleep(TIMER_S)
            self.renew()

    def renew(self) -> None:
        """Begin to fetch the sets that are due."""
        for keys in self._providers.values():
            keys.renew()

    async def aclose(self) -> None:
        """Cancel the current fetches and wait until their connections are closed."""
        if self._timer is not None:
            self._timer.cancel()
        for keys in self._providers.values():
            await keys.aclose()


class StaticKeys:
    """Keys from the operator's configuration. They are always current, so an unknown kid is refused at once."""

    def __init__(self, provider: Provider, jwks: Sequence[dict[str, object]]) -> None:
        self.provider = provider
        self._set = jose.parse_key_set(msgspec.json.encode({"keys": jwks}))

    async def find(self, kid: str, _allowance: Allowance) -> jose.Key:
        """As `KeySets.find`."""
        if (key := self._set.get(kid)) is None:
            raise Refused(Code.IDENTITY_KEY_UNKNOWN)
        return key

    def renew(self) -> None:
        """Do nothing: static keys are never due."""

    async def aclose(self) -> None:
        """Do nothing: static keys cause no fetch."""


class FetchedKeys:
    """One provider's last good key set, with its age and the time of the next allowed fetch."""

    def __init__(self, provider: Provider, owner: KeySets) -> None:
        self.provider = provider
        self._owner = owner
        self._good: jose.KeySet | None = None
        self._good_at = -math.inf
        self._failed_at = -math.inf
        self._ended_at = -math.inf
        self._used_at = -math.inf
        self._due_at = math.inf
        self._is_stale = False
        self._starts: deque[float] = deque(maxlen=FETCHES_A_MINUTE)
        self._fetches: SharedAnswers[str, jose.KeySet | None] = SharedAnswers(Code.DEPENDENCY_ISSUER_KEYS)
        self._is_requested = False

    async def find(self, kid: str, allowance: Allowance) -> jose.Key:
        """As `KeySets.find`."""
        now = self._used_at = self._owner.monotonic()
        if (key := self._key(kid, now)) is not None:
            return key
        if self._good is None or self._good.get(kid) is None:
            allowance.demand()  # for a known kid the age of the set causes the fetch, and no source can cause a second
        if not self._fetches.under_way(self.provider.issuer):
            self._start(now)
        # A set that was requested before this call may be older than the key that signed the token.
        is_current = not self._is_requested
        if self._fetches.load() >= MAX_WAITING:
            raise self._undecided()
        fetched = await self._fetches.wait(self.provider.issuer)
        if (key := self._key(kid, self._owner.monotonic())) is not None:
            return key
        if is_current and isinstance(fetched, jose.KeySet):
            raise Refused(Code.IDENTITY_KEY_UNKNOWN)
        raise self._undecided()

    def _key(self, kid: str, now: float) -> jose.Key | None:
        return self._good.get(kid) if self._good is not None and self._serves(now) else None

    def _serves(self, now: float) -> bool:
        """Return whether the set may verify: it is young, or a try to renew it has just failed and that is recorded."""
        age_s = now - self._good_at
        if age_s <= UNTRIED_AGE_S:
            return True
        return age_s <= HARD_AGE_S and self._is_stale and now - self._failed_at <= TRY_SERVES_S

    def renew(self) -> None:
        """As `KeySets.renew`."""
        now = self._owner.monotonic()
        is_used = now - self._used_at <= UNUSED_S
        if is_used and now >= self._due_at and not self._fetches.load() and self._wait_s(now) < 0:
            self._start(now)

    def _wait_s(self, now: float) -> float:
        """Return the seconds until the bounds allow a fetch, below 0 if they allow it now."""
        full = len(self._starts) == FETCHES_A_MINUTE
        return max(self._ended_at + FETCH_PAUSE_S - now, self._starts[0] + MINUTE_S - now if full else -math.inf)

    def _start(self, now: float) -> None:
        if self._wait_s(now) >= 0:
            raise self._undecided()
        self._starts.append(now)
        self._is_requested = False
        self._fetches.start(self.provider.issuer, partial(self._fetch, now))

    async def _fetch(self, started: float) -> jose.KeySet | None:
        pause_s = RETRY_S
        try:
            fetched = await self._owner.fetcher.fetch(self.provider, self._note_request)
            await self._end_staleness(started)
            self._good, self._good_at, pause_s = fetched, started, RENEW_S
            self._owner.note_answer(self.provider)
        except FAILURES as failure:
            self._owner.report(self.provider, reason(failure))
            await self._note_failure(failure)
            return None
        finally:
            self._ended_at = self._owner.monotonic()
            self._due_at = self._ended_at + pause_s * self._owner.uniform(1 - JITTER, 1 + JITTER)
        return self._good

    async def _note_failure(self, failure: Exception) -> None:
        """Keep the old set in use, once that is recorded. A provider that publishes no key has revoked all of them."""
        self._failed_at = now = self._owner.monotonic()
        if isinstance(failure, NoUsableKey):
            await self._end_staleness(now)
            self._good, self._good_at = None, -math.inf
        age_s = now - self._good_at
        if not self._is_stale and age_s + TRY_SERVES_S > UNTRIED_AGE_S and age_s <= HARD_AGE_S:
            self._is_stale = await self._record(age_s)

    async def _end_staleness(self, now: float) -> None:
        if self._is_stale:
            await self._record(now - self._good_at, over=True)
            self._is_stale = False

    async def _record(self, age_s: float, *, over: bool = False) -> bool:
        """Record the beginning or end of stale use. Return whether that succeeded."""
        try:
            await self._owner.record_stale(Stale(self.provider, int(age_s), over))
        except Undecided:
            return False
        return True

    def _note_request(self) -> None:
        """Note that the request for the key set begins. Later calls must not conclude from it that a kid is unknown."""
        self._is_requested = True

    def _undecided(self) -> Undecided:
        now = self._owner.monotonic()
        # With a good set, only an invented or a new kid comes here, so the source pays. Without one, any kid does.
        kind = Charged if self._serves(now) else Undecided
        return kind(Code.DEPENDENCY_ISSUER_KEYS, retry_after_s=math.floor(max(0.0, self._wait_s(now))) + 1)

    async def aclose(self) -> None:
        """Cancel the current fetch."""
        await self._fetches.aclose()
