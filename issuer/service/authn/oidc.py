"""OIDC identity tokens (RFC 7519 under RFC 8725; OpenID Connect Core 2): an unknown bearer in, a Caller out.

The numbered order is contract section 5's: cheap first, the closed table before any network, nothing believed before
the signature. Before it, a refusal is a code and nothing else. Who the caller may speak for is not decided here, nor
is a refusal counted against its source here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping

from issuer import jcs, jose
from issuer.errors import Code, InputError, Refused
from issuer.issue import LEEWAY_S
from issuer.limits import Sources
from issuer.policy.model import Caller, Provider
from issuer.service.authn.keysets import KeySets
from issuer.strict_json import JSON, loads

MAX_CLAIMS = 200
MAX_DEPTH = 8
MAX_JTI_CHARS = 256
MAX_UNIX_S = 2**33  # the year 2242; a time in milliseconds lies beyond it

_KID = re.compile(r"[\x21-\x7e]{1,256}")
# Members that bring a key along, say where to fetch one, or change what the signature covers (RFC 7515 4.1, 7797).
_REFUSED_MEMBERS = frozenset({"b64", "crit", "enc", "jku", "jwk", "x5c", "x5u", "zip"})


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
        return Caller(provider, claims, use_record(claims, jws.signing_input), issued_at, expires_at)

    def _provider_of(self, issuer: JSON) -> Provider:
        """Look the issuer up as it is: no slash, case or port is forgiven, and nothing is fetched to find out."""
        provider = self._providers.get(issuer) if isinstance(issuer, str) else None
        if provider is None:
            raise Refused(Code.IDENTITY_ISSUER_UNKNOWN)
        return provider


def read_token(bearer: str) -> tuple[jose.UnverifiedJws, Mapping[str, JSON]]:
    """Take a token apart strictly; its claims are not verified. Raises Refused, without a word of the token."""
    try:
        jws = jose.parse_compact(bearer)
        unverified_claims = loads(jws.unverified_payload, max_bytes=jose.MAX_TOKEN_BYTES, max_depth=MAX_DEPTH)
    except InputError:
        raise Refused(Code.IDENTITY_MALFORMED) from None
    if not isinstance(unverified_claims, dict) or len(unverified_claims) > MAX_CLAIMS:
        raise Refused(Code.IDENTITY_MALFORMED)
    return jws, unverified_claims


def read_header(header: Mapping[str, JSON], provider: Provider) -> tuple[str, str]:
    """Return `alg` and `kid` of a header that fits the provider's registration. Raises Refused."""
    if not _REFUSED_MEMBERS.isdisjoint(header):
        raise Refused(Code.IDENTITY_MALFORMED)
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in provider.algorithms:
        raise Refused(Code.IDENTITY_ALGORITHM_REFUSED)
    if "typ" in header and not _is_type(header["typ"], provider.rules.types):
        raise Refused(Code.IDENTITY_TYPE_REFUSED)
    if not isinstance(kid, str) or not _KID.fullmatch(kid):
        raise Refused(Code.IDENTITY_MALFORMED)
    return algorithm, kid


def _is_type(typ: JSON, types: tuple[str, ...]) -> bool:
    """Compare as a media type: in any case, `application/` understood (RFC 7515 4.1.9)."""
    if not isinstance(typ, str) or not typ.isascii():
        return False
    return typ in types or typ.lower().removeprefix("application/") in [allowed.lower() for allowed in types]


def check_signature(jws: jose.UnverifiedJws, key: jose.Key, algorithm: str) -> None:
    """Verify under the registered algorithm, which must be the key's own too (RFC 8725 3.1). Raises Refused."""
    if algorithm not in key.algorithms:
        raise Refused(Code.IDENTITY_ALGORITHM_REFUSED)
    if not key.verifies(algorithm, jws.signing_input, jws.signature):
        raise Refused(Code.IDENTITY_SIGNATURE_INVALID)


def read_times(claims: Mapping[str, JSON], provider: Provider, now: int) -> tuple[int, int]:
    """Return `iat` and `exp`, Unix seconds, of a token that is good at `now` (RFC 7519 4.1.4 to 4.1.6). Raises Refused.

    `iat` and `exp` are required. The leeway is for clocks that differ; a lifetime is one clock's and gets none.
    """
    issued_at, expires_at = _unix_s(claims.get("iat")), _unix_s(claims.get("exp"))
    not_before = _unix_s(claims["nbf"]) if "nbf" in claims else issued_at
    if expires_at <= issued_at:
        raise Refused(Code.IDENTITY_MALFORMED)
    if now - LEEWAY_S >= expires_at:
        raise Refused(Code.IDENTITY_EXPIRED)
    if max(issued_at, not_before) > now + LEEWAY_S:
        raise Refused(Code.IDENTITY_NOT_YET_VALID)
    if expires_at - issued_at > provider.max_lifetime_s:
        raise Refused(Code.IDENTITY_LIFETIME_TOO_LONG)
    if now - issued_at > provider.max_age_s + LEEWAY_S:
        raise Refused(Code.IDENTITY_TOO_OLD)
    return issued_at, expires_at


def _unix_s(value: JSON) -> int:
    # `type`, not isinstance: True is an int to Python.
    if type(value) is not int or not 0 <= value <= MAX_UNIX_S:
        raise Refused(Code.IDENTITY_MALFORMED)
    return value


def check_audience(audience: JSON, registered: str) -> None:
    """Demand a token for this service and for nobody else: who shares a token can pass it on. Raises Refused."""
    if audience != registered and audience != [registered]:
        raise Refused(Code.IDENTITY_AUDIENCE_MISMATCH)


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
