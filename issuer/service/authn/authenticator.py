"""The authenticator: find the registered provider of a bearer credential, verify it by its kind, and return a Caller.

The order is numbered as in contract section 5. The closed table of providers comes before any network access, and a
credential goes to one provider at most, because anyone who sees a token can use it. This file verifies signed tokens
(RFC 7519, 8725, 9068). It trusts no claim before it has verified the signature, and an earlier refusal is only a code.
An opaque credential goes to the module of its kind. A source over its limit gets only the answer `rate.source`, unless
its credential is good.
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

# Authlib's validator (RFC 9068, section 4) is a second opinion, after `issuer.identity.token` has accepted the claims.
# It also refuses a malformed `auth_time` or `amr`, which this project does not read. It never gets a token: header and
# claims are parsed strictly before, and the signature is verified with the provider's registered algorithms.

_ESSENTIAL = ("exp", "sub", "client_id", "iat", "jti")  # RFC 9068, section 2.2, with iss and aud


class _Claims(JWTAccessTokenClaims):  # type: ignore[misc]
    """Claims that are validated at the request's time instead of the system clock's."""

    def validate(self) -> None:
        super().validate(now=self.params["now"], leeway=LEEWAY_S)


def validate_access_token(header: Mapping[str, JSON], claims: Mapping[str, JSON], provider: Provider, now: int) -> None:
    """Validate the verified claims of an access token at `now` (Unix seconds). Raises Refused."""
    options = {
        **{name: {"essential": True} for name in _ESSENTIAL},
        "iss": {"essential": True, "value": provider.issuer},
        "aud": {"essential": True, "value": provider.audience},
    }
    validator = JWTBearerTokenValidator(provider.issuer, provider.audience)
    try:
        validator.validate_token(_Claims(dict(claims), dict(header), options, {"now": now}), scopes=None, request=None)
    except InvalidTokenError:
        raise Refused(Code.IDENTITY_MALFORMED) from None  # Authlib's error quotes the claim


def credential_of(claims: Mapping[str, JSON]) -> str:
    """Return client and subject of an OAuth token as text. Every new token of the same client has the same ones."""
    return jcs.canonical([claims["client_id"], claims.get("sub")]).decode()


# -- signed tokens -----------------------------------------------------------------------------------------------------


class SignedTokens:
    """Verifies tokens that registered providers sign, with the keys that they publish."""

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
        """Verify a token at `now` (Unix seconds). Raises Refused (401, 429 `rate.source`) and Undecided (503)."""
        algorithm, kid = read_header(jws.header, provider)  # (3) header
        key = await self._keysets.find(provider, kid, allowance)  # (4) key
        check_signature(jws, key, algorithm)  # (5) signature
        claims = unverified_claims
        demand_claims(claims, provider, now)  # (6) times, (7) audience, (8) the claims that its kind requires
        if provider.rules.reusable:
            validate_access_token(jws.header, claims, provider, now)
        parts = use_parts(provider, claims, jws.signing_input)
        times = read_unix_s(claims["iat"]), read_unix_s(claims["exp"])
        return Caller(provider, derive(provider.rules, claims), parts, *times)


def check_signature(jws: jose.UnverifiedJws, key: jose.Key, algorithm: str) -> None:
    """Verify with the registered algorithm, which the key must allow, too (RFC 8725 3.1). Raises Refused."""
    if algorithm not in key.algorithms:
        raise Refused(Code.IDENTITY_ALGORITHM_REFUSED)
    if not key.verifies(algorithm, jws.signing_input, jws.signature):
        raise Refused(Code.IDENTITY_SIGNATURE_INVALID)


def use_parts(provider: Provider, claims: Mapping[str, JSON], signing_input: bytes) -> tuple[str, ...]:
    """Return the parts of a use record's name: issuer and `jti` of an identity token, or without a `jti` the digest of
    its signing input; for an access token the client and subject, with its nonce (contract section 5).

    The signature is left out, because ES256 has many signatures for one token. Raises Refused for a malformed `jti`.
    """
    if provider.rules.reusable:
        return ("nonce", provider.id, credential_of(claims))
    jti = read_jti(claims)
    if jti is None:
        return ("input", hashlib.sha256(signing_input).hexdigest())
    return ("use", provider.issuer, jti)


# -- any credential ----------------------------------------------------------------------------------------------------


class CredentialVerifier(Protocol):
    """Verifies the opaque credentials of one kind of provider."""

    async def verify(self, bearer: str, provider: Provider, now: int, allowance: Allowance) -> Caller:
        """Verify a credential of this provider at `now` (Unix seconds). Raises Refused and Undecided. An implementation
        calls `allowance.demand()` before it asks the provider."""
        ...


class ProviderAuthenticator:
    """Implements `issuance.ports.Authenticator` for every kind of credential.

    `providers` is the closed table by issuer (`PolicySet.providers`). `clock_ns` is the clock of `sources`, in
    nanoseconds. `check_provider` raises Refused for a stopped provider. Callers of `authenticate` count refusals with
    `sources.refuse`.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        signed: SignedTokens,
        verifiers: Mapping[Kind, CredentialVerifier],
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
        """Verify a credential at `now` (Unix seconds). Raises as `ports.Authenticator` says.

        Good credentials of a source over its limit are still accepted if no provider must be asked, because thousands
        of honest jobs can share an address. Every other credential of such a source is answered only with the limit.
        """
        allowance = self._sources.allowance(source, self._clock_ns() // 1000)
        try:
            return await self._verify(bearer, now, allowance)
        except Refused:
            allowance.demand()
            raise

    def is_over_limit(self, source: str) -> bool:
        """Return whether an address was refused too often recently."""
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
                is_token = bearer.startswith(TOKEN_PREFIXES)  # of a provider that is not registered here
                raise Refused(Code.IDENTITY_ISSUER_UNKNOWN if is_token else Code.IDENTITY_MALFORMED)
            self._check_provider(provider)
        return await self._verifiers[provider.rules.kind].verify(bearer, provider, now, allowance)


# -- registered names under other ids ----------------------------------------------------------------------------------

# The identity that has the name, and the caller that uses it: its provider and its short ids.
_Pair = tuple[Hashable, str, tuple[object, ...]]


class _Report(Struct):
    """The time of the last report (Unix seconds), and the number of requests since."""

    time: int
    since: int = 0


class RecycledNames:
    """Implements `issuance.ports.Recycled`. A full table does not report new callers; the audit has their refusals."""

    def __init__(self, capacity: int = MAX_RECYCLED) -> None:
        self._capacity = capacity
        self._reports: OrderedDict[_Pair, _Report] = OrderedDict()  # oldest first

    def __len__(self) -> int:
        return len(self._reports)

    def count(self, payer: Hashable, caller: Caller, now: int) -> int:
        """Count a request. Return how many requests to report now: 0 if the last report is less than an hour old."""
        pair = payer, caller.provider.id, tuple(caller.short_claims(caller.provider.rules.pins).values())
        last = self._reports.get(pair)
        if last is not None and now < last.time + RECYCLED_S:
            last.since += 1
            return 0
        self._drop_old(now)
        if last is None and len(self._reports) >= self._capacity:
            return 0
        self._reports[pair] = _Report(now)
        self._reports.move_to_end(pair)
        return 1 + (last.since if last else 0)

    def _drop_old(self, now: int) -> None:
        """Drop the reports that are two hours old: their callers have sent nothing since a new report was due."""
        while self._reports:
            first = next(iter(self._reports))
            if now < self._reports[first].time + 2 * RECYCLED_S:
                return
            del self._reports[first]
