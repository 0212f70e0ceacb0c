"""Signed tokens: OIDC identity tokens (RFC 7519, RFC 8725; OpenID Connect Core 2) and OAuth access tokens (RFC 9068).

The numbered order is contract section 5's, and continues after `authenticator.py` has found the issuer: nothing is
believed before the signature. Before it, a refusal is a code and nothing else. What the caller may speak for is not
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
from issuer.identity.check_token import demand_claims
from issuer.identity.profiles import derive
from issuer.identity.provider import Provider
from issuer.identity.token import read_header, read_jti, read_unix_s
from issuer.service.authn.keysets import KeySets
from issuer.service.authn.oauth import credential_of, validate_access_token
from issuer.service.authn.sources import Allowance


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
