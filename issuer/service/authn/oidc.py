"""Signed tokens: OIDC identity tokens (RFC 7519 under RFC 8725; OpenID Connect Core 2) and OAuth access tokens (RFC
9068).

The numbered order is contract section 5's, and goes on where `authenticator.py` has looked the issuer up: nothing is
believed before the signature. Before it, a refusal is a code and nothing else. Who the caller may speak for is not
decided here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats import jose
from issuer.formats.strict_json import JSON
from issuer.identity.caller import Caller
from issuer.identity.profiles import derived
from issuer.identity.provider import Provider
from issuer.identity.token import check_access_token, check_audience, read_header, read_times
from issuer.service.authn.keysets import KeySets
from issuer.service.authn.oauth import credential_of, validate_access_token
from issuer.service.authn.sources import Allowance

MAX_JTI_CHARS = 256


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
        algorithm, kid = read_header(jws.header, provider)  # (3) header
        key = await self._keysets.find(provider, kid, allowance)  # (4) key
        check_signature(jws, key, algorithm)  # (5) signature
        claims = unverified_claims
        issued_at, expires_at = read_times(claims, provider, now)  # (6) times
        check_audience(claims.get("aud"), provider.audience)  # (7) audience
        if provider.rules.reusable:
            check_access_token(claims)  # (8) what else an access token must say
            validate_access_token(jws.header, claims, provider, now)
        parts = use_parts(provider, claims, jws.signing_input)
        return Caller(provider, derived(provider.rules, claims), parts, issued_at, expires_at)


def check_signature(jws: jose.UnverifiedJws, key: jose.Key, algorithm: str) -> None:
    """Verify under the registered algorithm, which must be the key's own too (RFC 8725 3.1). Raises Refused."""
    if algorithm not in key.algorithms:
        raise Refused(Code.IDENTITY_ALGORITHM_REFUSED)
    if not key.verifies(algorithm, jws.signing_input, jws.signature):
        raise Refused(Code.IDENTITY_SIGNATURE_INVALID)


def use_parts(provider: Provider, claims: Mapping[str, JSON], signing_input: bytes) -> tuple[str, ...]:
    """Name the use record of an identity token by issuer and `jti`, or by what was signed where it has none; of an
    access token it is the nonce's (contract section 5).

    The signature is not part of it: ES256 signs the same token in many ways. Raises Refused for a malformed `jti`.
    """
    jti = claims.get("jti")
    if provider.rules.reusable:
        return ("nonce", provider.id, credential_of(claims))
    if "jti" not in claims:
        return ("input", hashlib.sha256(signing_input).hexdigest())
    if isinstance(jti, str) and 0 < len(jti) <= MAX_JTI_CHARS:
        return ("use", provider.issuer, jti)
    raise Refused(Code.IDENTITY_MALFORMED)
