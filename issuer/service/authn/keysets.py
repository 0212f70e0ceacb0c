"""The key sets of identity providers, kept in memory, renewed by a timer and shared by all requests that wait.

Knows what a provider's metadata must say (OpenID Connect Discovery 1.0, RFC 8414), when a key set is good, and when the
service may fetch another. No set is older than `UNTRIED_AGE_S` without a try to renew it, so that a key which its
provider withdrew stops verifying: the guarantee is in `find`, the timer keeps requests from waiting.

We considered PyJWKClient and pyjwt-key-fetcher. Neither checks an address, the first blocks the event loop, and the
second does not check whose discovery document it received. Both refuse a really new key until they may fetch again;
here that is a 503, because nobody can know.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol
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
    """The provider publishes a key set, and no key of it may verify anything."""


class ProviderFetcher(Fetcher):
    """Fetches what a registered provider publishes; `deadline_s` covers all fetches for one request."""

    async def fetch(self, provider: Provider, asking: Callable[[], None]) -> jose.KeySet:
        """Return the key set that the provider publishes now; `asking` is called just before it is requested."""
        async with asyncio.timeout(self.deadline_s), self._pool() as pool:
            uri = await self._jwks_uri(pool, provider)
            asking()
            key_set = jose.parse_key_set(await self._get(pool, uri))
        if not key_set.keys:
            raise NoUsableKey("the key set has no usable key")
        return key_set

    async def discover(self, provider: Provider, member: str) -> str:
        """Return the URL in a member of the provider's metadata."""
        async with asyncio.timeout(self.deadline_s), self._pool() as pool:
            return await self._discover(pool, provider, member)

    async def _jwks_uri(self, pool: Pool, provider: Provider) -> str:
        """Return the URL of the key set: the registered one, or the discovered one."""
        if isinstance(provider.keys, KeySource) and provider.keys.jwks_uri is not UNSET:
            return provider.keys.jwks_uri
        return await self._discover(pool, provider, "jwks_uri")

    async def _discover(self, pool: Pool, provider: Provider, member: str) -> str:
        """Get the metadata: OpenID Connect's (Discovery 1.0, 4.1 to 4.3), or else those of OAuth (RFC 8414)."""
        try:
            raw = await self._get(pool, provider.issuer.removesuffix("/") + WELL_KNOWN)
        except NotServed:
            if not provider.rules.reusable:
                raise
            raw = await self._get(pool, oauth_metadata_url(provider.issuer))
        return find_in_metadata(raw, provider.issuer, member)


def oauth_metadata_url(issuer: str) -> str:
    """Return the URL of an OAuth server's metadata: its own path comes last (RFC 8414, section 3.1)."""
    parts = urlsplit(issuer)
    return f"{parts.scheme}://{parts.netloc}{OAUTH_WELL_KNOWN}{parts.path.removesuffix('/')}"


def find_in_metadata(raw: bytes, issuer: str, member: str) -> str:
    """Return a URL of a discovery document, which must be the issuer's and on the issuer's host."""
    document = loads(raw, max_bytes=MAX_DOCUMENT_BYTES, max_depth=8)
    if not isinstance(document, dict):
        raise FetchRefused("the discovery document is not an object")
    # Byte for byte, before Authlib looks at it: only the issuer itself may name its keys (Discovery 4.3).
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

    fetcher: ProviderFetcher
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
        fetcher: ProviderFetcher,
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
        self._fetches: SharedAnswers[str, jose.KeySet | None] = SharedAnswers(Code.DEPENDENCY_ISSUER_KEYS)
        self._is_asked_for = False

    async def find(self, kid: str, allowance: Allowance) -> jose.Key:
        """As `KeySets.find`."""
        now = self._asked_at = self._world.monotonic()
        if (key := self._key(kid, now)) is not None:
            return key
        if self._good is None or self._good.get(kid) is None:
            allowance.demand()  # else age causes the fetch, not the request, and no source can cause two
        if not self._fetches.under_way(self.provider.issuer):
            self._start(now)
        # A set requested before this request arrived may be older than the key that signed its token.
        current = not self._is_asked_for
        if self._fetches.load() >= MAX_WAITING:
            raise self._undecided()
        fetched = await self._fetches.wait(self.provider.issuer)
        if (key := self._key(kid, self._world.monotonic())) is not None:
            return key
        if current and isinstance(fetched, jose.KeySet):
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
        if used and now >= self._due_at and not self._fetches.load() and self._wait_s(now) < 0:
            self._start(now)

    def _wait_s(self, now: float) -> float:
        """Return the seconds until the bounds allow a fetch; below 0 if they do now."""
        full = len(self._starts) == FETCHES_A_MINUTE
        return max(self._ended_at + FETCH_PAUSE_S - now, self._starts[0] + MINUTE_S - now if full else -math.inf)

    def _start(self, now: float) -> None:
        if self._wait_s(now) >= 0:
            raise self._undecided()
        self._starts.append(now)
        self._is_asked_for = False
        self._fetches.start(self.provider.issuer, partial(self._fetch, now))

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
