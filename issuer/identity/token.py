"""What a provider's token says, and whether it suits the provider's registration (RFC 7519 under RFC 8725). Pure.

Nothing here checks a signature: `service/authn/oidc.py` does. The order of the checks, for the service and for `issuer
policy explain`, is that of `check_token`. A refusal never quotes the token.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from functools import lru_cache

from issuer.codes import Code
from issuer.errors import FormatError, Refused
from issuer.formats import jose
from issuer.formats.strict_json import JSON, loads
from issuer.formats.times import MAX_UNIX_S
from issuer.identity.provider import Provider

# How far a provider's clock may be off: one constant for the decoder and for the life of the use record.
LEEWAY_S = 30
MAX_CLAIMS = 200
MAX_DEPTH = 8
MAX_ID_CHARS = 512
MAX_JTI_CHARS = 256

# How a JSON object begins (RFC 8259, section 2), so that hardly any text by chance does.
_OBJECT = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*["}]')
# Members that bring a key along, say where to fetch one, or change what the signature covers (RFC 7515 4.1, 7797).
_REFUSED_MEMBERS = frozenset({"b64", "crit", "enc", "jku", "jwk", "x5c", "x5u", "zip"})


def is_jwt(bearer: str) -> bool:
    """Say whether a credential has the form of a JWT: a JSON object and two more parts, or four if it is encrypted.

    Not by `eyJ`: white space is allowed in the object (RFC 7515, section 3), and what passes for opaque is shown to
    another provider.
    """
    head, _, rest = bearer.partition(".")
    _, dot, last = rest.partition(".")
    return dot == "." and last.count(".") in {0, 2} and _begins_object(head)


@lru_cache(64)
def _begins_object(header: str) -> bool:
    """Decode what may be base64url leniently: a JWT in a bad spelling is still one. Tokens under one key share it."""
    whole = header + "AAA"  # of whatever length it is
    try:
        return _OBJECT.match(base64.urlsafe_b64decode(whole[: len(whole) // 4 * 4])) is not None
    except ValueError:
        return False


def read_token(bearer: str) -> tuple[jose.UnverifiedJws, Mapping[str, JSON]]:
    """Take a token apart strictly; its claims are not verified. Raises Refused, without a word of the token."""
    try:
        jws = jose.parse_compact(bearer)
        unverified_claims = loads(jws.unverified_payload, max_bytes=jose.MAX_TOKEN_BYTES, max_depth=MAX_DEPTH)
    except FormatError:
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
    # RFC 9068, section 4: an access token must say what it is, so that an ID token of the same client does not pass.
    typed = "typ" in header or provider.rules.kind == "access-token"
    if typed and not _is_type(header.get("typ"), provider.rules.types):
        raise Refused(Code.IDENTITY_TYPE_REFUSED)
    if not isinstance(kid, str) or not jose.KID.fullmatch(kid):
        raise Refused(Code.IDENTITY_MALFORMED)
    return algorithm, kid


def _is_type(typ: JSON, types: tuple[str, ...]) -> bool:
    """Compare as a media type: in any case, `application/` understood (RFC 7515 4.1.9)."""
    if not isinstance(typ, str) or not typ.isascii():
        return False
    return typ in types or typ.lower().removeprefix("application/") in [allowed.lower() for allowed in types]


def read_times(claims: Mapping[str, JSON], provider: Provider, now: int) -> tuple[int, int]:
    """Return `iat` and `exp`, Unix seconds, of a token that is good at `now` (RFC 7519 4.1.4 to 4.1.6). Raises Refused.

    `iat` and `exp` are required. The leeway is for clocks that differ; a lifetime is one clock's and gets none.
    """
    issued_at, expires_at = read_unix_s(claims.get("iat")), read_unix_s(claims.get("exp"))
    not_before = read_unix_s(claims["nbf"]) if "nbf" in claims else issued_at
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


def read_unix_s(value: JSON) -> int:
    """Return a time in whole Unix seconds. Raises Refused for anything else."""
    # `type`, not isinstance: True is an int to Python.
    if type(value) is not int or not 0 <= value <= MAX_UNIX_S:
        raise Refused(Code.IDENTITY_MALFORMED)
    return value


def read_jti(claims: Mapping[str, JSON]) -> str | None:
    """Return the `jti` of an identity token, None where it has none. Raises Refused for a malformed one."""
    if "jti" not in claims:
        return None
    jti = claims["jti"]
    if not isinstance(jti, str) or not 0 < len(jti) <= MAX_JTI_CHARS:
        raise Refused(Code.IDENTITY_MALFORMED)
    return jti


def check_audience(audience: JSON, registered: str) -> None:
    """Demand a token for this service alone: any other audience could pass the token on to us. Raises Refused."""
    if audience != registered and audience != [registered]:
        raise Refused(Code.IDENTITY_AUDIENCE_MISMATCH)


# -- OAuth ------------------------------------------------------------------------------------------------------------


def check_access_token(claims: Mapping[str, JSON]) -> None:
    """Demand the ids of an access token (RFC 9068 2.2), and that its bearer may use it. Raises Refused.

    Its `scope` is judged by the policy.
    """
    for name in ("client_id", "sub", "jti"):
        check_id(claims.get(name))
    check_unbound(claims)


def check_id(value: JSON) -> None:
    """Demand an id: a text that is neither empty nor long. Raises Refused."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARS:
        raise Refused(Code.IDENTITY_MALFORMED)


def check_unbound(claims: Mapping[str, JSON]) -> None:
    """Refuse a token that is bound to a key of its client (RFC 7800, 8705, 9449): a bearer proves nothing of it."""
    if "cnf" in claims:
        raise Refused(
            Code.IDENTITY_TYPE_REFUSED, "The token is bound to its client's key, of which a bearer has no proof."
        )
