"""From an unknown bearer credential to a Caller: finds its registered provider, and verifies it as its kind demands.

The numbered order is contract section 5's. The closed table of providers comes before any network, and a credential
goes to one provider at most: a stranger that sees a token can use it. Signed tokens are verified here (RFC 7519, 8725,
9068): nothing is believed before the signature, and before it a refusal is a code and nothing else. Opaque credentials
are verified in the module of their kind. Above its limit a source learns only that, unless its credential is good.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

from authlib.oauth2.rfc6750 import InvalidTokenError  # type: ignore[import-untyped]
from authlib.oauth2.rfc9068 import JWTBearerTokenValidator  # type: ignore[import-untyped]
from authlib.oauth2.rfc9068.claims import JWTAccessTokenClaims  # type: ignore[import-untyped]
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats import jcs, jose
from issuer.formats.strict_json import JSON
from issuer.formats.times import LEEWAY_S
from issuer.identity.profiles import TOKEN_PREFIXES, Kind, derive
from issuer.identity.table import SIGNED, Provider, ProviderIndex
from issuer.identity.token import Caller, demand_claims, is_jwt, read_header, read_jti, read_token, read_unix_s
from issuer.limits.sources import Allowance, Sources
from issuer.service.authn.bounds import MAX_RECYCLED, RECYCLED_S
from issuer.service.authn.keysets import KeySets

# -- OAuth access tokens -----------------------------------------------------------------------------------------------

# Authlib's validator (RFC 9068, section 4) is a second opinion: `issuer.identity.token` has passed the same claims.
# Beyond it Authlib refuses a malformed `auth_time` or `amr`, which nothing here reads. It never sees a token: header
# and claims have been parsed strictly, and the signature verified under the provider's registered algorithms.

_ESSENTIAL = ("exp", "sub", "client_id", "iat", "jti")  # RFC 9068, section 2.2, with iss and aud


class _Claims(JWTAccessTokenClaims):  # type: ignore[misc]
    """Claims that are judged at the request's time, not by the system's clock."""

    def validate(self) -> None:
        super().validate(now=self.params["now"], leeway=LEEWAY_S)


def validate_access_token(header: Mapping[str, JSON], claims: Mapping[str, JSON], provider: Provider, now: int) -> None:
    """Validate verified claims of an access token at `now`, Unix seconds. Raises Refused."""
    options = {
        **{name: {"essential": True} for name in _ESSENTIAL},
        "iss": {"essential": True, "value": provider.issuer},
        "aud": {"essential": True, "value": provider.audience},
    }
    validator = JWTBearerTokenValidator(provider.issuer, provider.audience)
    try:
        validator.validate_token(_Claims(dict(claims), dict(header), options, {"now": now}), scopes=None, request=None)
    except InvalidTokenError:
        raise Refused(Code.IDENTITY_MALFORMED) from None  # it quotes the claim


def credential_of(claims: Mapping[str, JSON]) -> str:
    """Name the credential behind an OAuth token: client and subject, which a fresh token of the same client shares."""
    return jcs.canonical([claims["client_id"], claims.get("sub")]).decode()


# -- signed tokens -----------------------------------------------------------------------------------------------------


class SignedTokens:
    """Verifies tokens that registered providers sign, under the keys that they publish."""

    def __init__(self, keysets: KeySets) -> None:
        self._keysets = keysets

    async def verify(
        self,
        jws: jose.UnverifiedJws,
        unverified_claims: Mapping[str, JSON],
        provider: Provider,
        now: int,
        allowance: Allowance,
    ) -> Caller:
        """Verify a token at `now`, Unix seconds. Raises Refused (401, 429 `rate.source`) and Undecided (503)."""
        rules = provider.rules
        algorithm, kid = read_header(jws.header, provider)  # (3) header
        key = await self._keysets.find(provider, kid, allowance)  # (4) key
        check_signature(jws, key, algorithm)  # (5) signature
        claims = unverified_claims
        demand_claims(claims, provider, now)  # (6) times, (7) audience, (8) what its kind must say
        if rules.reusable:
            validate_access_token(jws.header, claims, provider, now)
        parts = use_parts(provider, claims, jws.signing_input)
        times = read_unix_s(claims["iat"]), read_unix_s(claims["exp"])
        return Caller(provider, derive(rules, claims), parts, *times)


def check_signature(jws: jose.UnverifiedJws, key: jose.Key, algorithm: str) -> None:
    """Verify under the registered algorithm, which must be the key's own too (RFC 8725 3.1). Raises Refused."""
    if algorithm not in key.algorithms:
        raise Refused(Code.IDENTITY_ALGORITHM_REFUSED)
    if not key.verifies(algorithm, jws.signing_input, jws.signature):
        raise Refused(Code.IDENTITY_SIGNATURE_INVALID)


def use_parts(provider: Provider, claims: Mapping[str, JSON], signing_input: bytes) -> tuple[str, ...]:
    """Name the use record of an identity token by issuer and `jti`, or without one by its signing input; an access
    token's is that of the nonce (contract section 5).

    The signature is not part of it: ES256 can sign the same token in many ways. Raises Refused for a malformed `jti`.
    """
    if provider.rules.reusable:
        return ("nonce", provider.id, credential_of(claims))
    jti = read_jti(claims)
    if jti is None:
        return ("input", hashlib.sha256(signing_input).hexdigest())
    return ("use", provider.issuer, jti)


# -- any credential ----------------------------------------------------------------------------------------------------


class Verifier(Protocol):
    """Verifies the opaque credentials of one kind of provider."""

    async def verify(self, bearer: str, provider: Provider, now: int, allowance: Allowance) -> Caller:
        """Verify a credential of this provider at `now`, Unix seconds; ask about it only after `allowance.demand()`.

        Raises Refused and Undecided.
        """
        ...


class ProviderAuthenticator:
    """Implements `issuance.ports.Authenticator` for every kind of credential.

    `providers` is the closed table by issuer (`PolicySet.providers`). `clock_ns` is the clock of `sources`, in
    nanoseconds. `check_provider` raises Refused for a provider of which nothing is taken now. The caller of
    `authenticate` counts refusals with `sources.refuse`.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        signed: SignedTokens,
        verifiers: Mapping[Kind, Verifier],
        sources: Sources,
        clock_ns: Callable[[], int],
        check_provider: Callable[[Provider], None] = lambda _: None,
    ) -> None:
        self._providers = ProviderIndex(providers)
        self._signed = signed
        self._verifiers = verifiers
        self._sources = sources
        self._clock_ns = clock_ns
        self._check_provider = check_provider

    async def authenticate(self, bearer: str, source: str, now: int) -> Caller:
        """Verify a credential at `now`, Unix seconds. Raises as `ports.Authenticator` says.

        Above its limit a source's good credentials are still served, as far as no provider must be asked: thousands of
        honest jobs share an address. What does not verify learns only the limit.
        """
        allowance = self._sources.allowance(source, self._clock_ns() // 1000)
        try:
            return await self._verify(bearer, now, allowance)
        except Refused:
            allowance.demand()
            raise

    def is_over_limit(self, source: str) -> bool:
        """Say whether an address was refused too often recently."""
        return self._sources.retry_us(source, self._clock_ns() // 1000) > 0

    async def _verify(self, bearer: str, now: int, allowance: Allowance) -> Caller:
        if is_jwt(bearer):
            jws, unverified_claims = read_token(bearer)  # (1) size, form, a payload object
            provider = self._providers.of_jwt(unverified_claims.get("iss"))  # (2) registered issuer
            if provider is None:
                raise Refused(Code.IDENTITY_ISSUER_UNKNOWN)
            self._check_provider(provider)
            if provider.rules.kind in SIGNED:
                return await self._signed.verify(jws, unverified_claims, provider, now, allowance)
        else:
            provider = self._providers.of_opaque(bearer)
            if provider is None:
                known = bearer.startswith(TOKEN_PREFIXES)  # of a provider that is not registered here
                raise Refused(Code.IDENTITY_ISSUER_UNKNOWN if known else Code.IDENTITY_MALFORMED)
            self._check_provider(provider)
        return await self._verifiers[provider.rules.kind].verify(bearer, provider, now, allowance)


# -- registered names under other ids ----------------------------------------------------------------------------------

# Whose name, and who has it: the ids of its provider, as far as they are short.
_Seen = tuple[Hashable, str, tuple[object, ...]]


class _Times(Struct):
    """When it was told last, Unix seconds, and how often it has come since."""

    told_at: int
    since: int = 0


class RecycledNames:
    """Implements `issuance.ports.Recycled`. A caller for whom there is no room is not told: its refusals are in the
    audit all the same."""

    def __init__(self, capacity: int = MAX_RECYCLED) -> None:
        self._capacity = capacity
        self._seen: OrderedDict[_Seen, _Times] = OrderedDict()  # who was told first, first

    def __len__(self) -> int:
        return len(self._seen)

    def count(self, payer: Hashable, caller: Caller, now: int) -> int:
        """Count one, and return how many to tell now."""
        ids = tuple(caller.short_claims(caller.provider.rules.pins).values())
        seen = payer, caller.provider.id, ids
        times = self._seen.get(seen)
        if times is not None and now < times.told_at + RECYCLED_S:
            times.since += 1
            return 0
        self._forget(now)
        if times is None and len(self._seen) >= self._capacity:
            return 0
        self._seen[seen] = _Times(now)
        self._seen.move_to_end(seen)
        return 1 + (times.since if times else 0)

    def _forget(self, now: int) -> None:
        """Forget who has not come for another hour after it could have been told again."""
        while self._seen:
            first = next(iter(self._seen))
            if now < self._seen[first].told_at + 2 * RECYCLED_S:
                return
            del self._seen[first]
