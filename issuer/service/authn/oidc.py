"""OIDC identity tokens (RFC 7519 under RFC 8725; OpenID Connect Core 2): an unknown bearer in, a Caller out.

The numbered order is contract section 5's: cheap first, the closed table before any network, nothing believed before
the signature. Before it, a refusal is a code and nothing else. Who the caller may speak for is not decided here, nor
is a refusal counted against its source here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from issuer import jcs, jose
from issuer.errors import Code, Refused
from issuer.identity_token import check_audience, read_header, read_times, read_token
from issuer.limits import Sources
from issuer.policy.model import Caller, Provider
from issuer.policy.profiles import derived
from issuer.service.authn.keysets import KeySets
from issuer.strict_json import JSON

MAX_JTI_CHARS = 256


class OidcAuthenticator:
    """Implements `issue.Authenticator` for identity tokens of registered providers.

    `providers` is the closed table by issuer (`PolicySet.providers`). `clock_us` is the clock of `sources`, in
    microseconds. The caller of `authenticate` counts refusals with `sources.refuse`.
    """

    def __init__(
        self, providers: Mapping[str, Provider], keysets: KeySets, sources: Sources, clock_us: Callable[[], int]
    ) -> None:
        self._providers = providers
        self._keysets = keysets
        self._sources = sources
        self._clock_us = clock_us

    async def authenticate(self, bearer: str, source: str, now: int) -> Caller:
        """Verify an identity token at `now`, Unix seconds. Raises Refused (401, 429 `rate.source`) and Undecided (503).

        Above its limit a source's genuine tokens are still served, under kept keys: thousands of honest jobs share an
        address. What does not verify learns only that.
        """
        retry_after_s = -(-self._sources.retry_us(source, self._clock_us()) // 1_000_000)
        try:
            return await self._verify(bearer, now, retry_after_s)
        except Refused as refusal:
            if retry_after_s > 0:
                raise Refused(Code.RATE_SOURCE, retry_after_s=retry_after_s) from refusal
            raise

    async def _verify(self, bearer: str, now: int, retry_after_s: int) -> Caller:
        jws, unverified_claims = read_token(bearer)  # (1) size, form, a payload object
        provider = self._provider_of(unverified_claims.get("iss"))  # (2) registered issuer
        algorithm, kid = read_header(jws.header, provider)  # (3) header
        key = await self._keysets.find(provider, kid, retry_after_s=retry_after_s)  # (4) key
        check_signature(jws, key, algorithm)  # (5) signature
        claims = unverified_claims
        issued_at, expires_at = read_times(claims, provider, now)  # (6) times
        check_audience(claims.get("aud"), provider.audience)  # (7) audience
        record = use_record(claims, jws.signing_input)
        return Caller(provider, derived(provider.rules, claims), record, issued_at, expires_at)

    def _provider_of(self, issuer: JSON) -> Provider:
        """Look the issuer up as it is: no slash, case or port is forgiven, and nothing is fetched to find out."""
        provider = self._providers.get(issuer) if isinstance(issuer, str) else None
        if provider is None:
            raise Refused(Code.IDENTITY_ISSUER_UNKNOWN)
        return provider


def check_signature(jws: jose.UnverifiedJws, key: jose.Key, algorithm: str) -> None:
    """Verify under the registered algorithm, which must be the key's own too (RFC 8725 3.1). Raises Refused."""
    if algorithm not in key.algorithms:
        raise Refused(Code.IDENTITY_ALGORITHM_REFUSED)
    if not key.verifies(algorithm, jws.signing_input, jws.signature):
        raise Refused(Code.IDENTITY_SIGNATURE_INVALID)


def use_record(claims: Mapping[str, JSON], signing_input: bytes) -> str:
    """Name the token's use record (contract section 5): by issuer and `jti`, or by what was signed where it has none.

    The signature is not part of it: ES256 signs the same token in many ways. Raises Refused for a malformed `jti`.
    """
    jti = claims.get("jti")
    if "jti" not in claims:
        parts: list[JSON] = ["input", hashlib.sha256(signing_input).hexdigest()]
    elif isinstance(jti, str) and 0 < len(jti) <= MAX_JTI_CHARS:
        parts = ["use", claims["iss"], jti]
    else:
        raise Refused(Code.IDENTITY_MALFORMED)
    return hashlib.sha256(jcs.canonical(parts)).hexdigest()
