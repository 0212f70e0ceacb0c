"""Checks of a provider's token against its entry in `providers.yaml` (RFC 7519, RFC 8725), and verified callers. Pure.

`service/authn/authenticator.py` checks the signatures. The service and `issuer policy explain` make the same checks, in
the order of `check_token`. A refusal never quotes the token.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TypeGuard

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError, Refused
from issuer.formats import jcs, jose
from issuer.formats.display import show_value
from issuer.formats.strict_json import JSON, Scalar, loads
from issuer.formats.times import LEEWAY_S, MAX_UNIX_S, show_span, show_time
from issuer.identity.profiles import Kind, Profile
from issuer.identity.table import Provider

MAX_CLAIMS = 200
MAX_DEPTH = 8
MAX_ID_CHARS = 512
MAX_JTI_CHARS = 256

# The beginning of a JSON object (RFC 8259, section 2). Other text hardly ever matches it by chance.
_OBJECT = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*["}]')
# Members that contain a key, name the URL of one, or change what the signature covers (RFC 7515 4.1, RFC 7797).
_REFUSED_MEMBERS = frozenset({"b64", "crit", "enc", "jku", "jwk", "x5c", "x5u", "zip"})


def is_jwt(bearer: str) -> bool:
    """Say whether a credential has the form of a JWT: a JSON object and two more parts, or four if it is encrypted.

    Looking for `eyJ` is not enough, because white space is allowed in the object (RFC 7515, section 3). A JWT that
    passed as an opaque credential would be shown to another provider.
    """
    head, _, rest = bearer.partition(".")
    _, dot, last = rest.partition(".")
    return dot == "." and last.count(".") in {0, 2} and _begins_object(head)


@lru_cache(64)
def _begins_object(header: str) -> bool:
    """Say whether a header is a JSON object. Decode leniently, because a JWT in bad base64url is still a JWT. The cache
    helps because all tokens of one key have the same header."""
    padded = header + "AAA"  # cut to a multiple of 4 characters below
    try:
        return _OBJECT.match(base64.urlsafe_b64decode(padded[: len(padded) // 4 * 4])) is not None
    except ValueError:
        return False


def read_token(bearer: str) -> tuple[jose.UnverifiedJws, Mapping[str, JSON]]:
    """Split a token strictly. Return it with its unverified claims. Raises Refused, which never quotes it."""
    try:
        jws = jose.parse_compact(bearer)
        unverified_claims = loads(jws.unverified_payload, max_bytes=jose.MAX_TOKEN_BYTES, max_depth=MAX_DEPTH)
    except FormatError:
        raise Refused(Code.IDENTITY_MALFORMED) from None
    if not isinstance(unverified_claims, dict) or len(unverified_claims) > MAX_CLAIMS:
        raise Refused(Code.IDENTITY_MALFORMED)
    return jws, unverified_claims


def read_header(header: Mapping[str, JSON], provider: Provider) -> tuple[str, str]:
    """Return `alg` and `kid` of a header that the provider's entry allows. Raises Refused."""
    if not _REFUSED_MEMBERS.isdisjoint(header):
        raise Refused(Code.IDENTITY_MALFORMED)
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in provider.algorithms:
        raise Refused(Code.IDENTITY_ALGORITHM_REFUSED)
    # RFC 9068, section 4: an access token must have `typ`. Otherwise an ID token of the same client would be accepted.
    typed = "typ" in header or provider.rules.kind == "access-token"
    if typed and not _is_type(header.get("typ"), provider.rules.types):
        raise Refused(Code.IDENTITY_TYPE_REFUSED)
    if not isinstance(kid, str) or not jose.KID.fullmatch(kid):
        raise Refused(Code.IDENTITY_MALFORMED)
    return algorithm, kid


def _is_type(typ: JSON, types: tuple[str, ...]) -> bool:
    """Compare media types, ignoring case and a leading `application/` (RFC 7515 4.1.9)."""
    if not isinstance(typ, str) or not typ.isascii():
        return False
    return typ in types or typ.lower().removeprefix("application/") in [allowed.lower() for allowed in types]


def read_times(claims: Mapping[str, JSON], provider: Provider, now: int) -> tuple[int, int]:
    """Return `iat` and `exp` (Unix seconds, both required) of a token that is valid at `now` (RFC 7519 4.1.4 to 4.1.6).

    The leeway is for the difference of two clocks. The lifetime has none: one clock set both its ends. Raises Refused.
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
    # `type`, not isinstance: in Python, True is an int.
    if type(value) is not int or not 0 <= value <= MAX_UNIX_S:
        raise Refused(Code.IDENTITY_MALFORMED)
    return value


def read_jti(claims: Mapping[str, JSON]) -> str | None:
    """Return the `jti` of an identity token, or None if it is absent. Raises Refused if it is malformed."""
    if "jti" not in claims:
        return None
    jti = claims["jti"]
    if not isinstance(jti, str) or not 0 < len(jti) <= MAX_JTI_CHARS:
        raise Refused(Code.IDENTITY_MALFORMED)
    return jti


def check_identity_token(claims: Mapping[str, JSON]) -> None:
    """Demand a good `jti` or none, and no key binding. Raises Refused."""
    read_jti(claims)
    check_unbound(claims)


def check_audience(audience: JSON, registered: str) -> None:
    """Demand that the token is only for this service: another audience could replay it here. Raises Refused."""
    if audience != registered and audience != [registered]:
        raise Refused(Code.IDENTITY_AUDIENCE_MISMATCH)


# -- OAuth ------------------------------------------------------------------------------------------------------------


def check_access_token(claims: Mapping[str, JSON]) -> None:
    """Demand the ids of an access token (RFC 9068 2.2), and no key binding. Raises Refused. Policies check `scope`."""
    for name in ("client_id", "sub", "jti"):
        check_id(claims.get(name))
    check_unbound(claims)


def check_id(value: JSON) -> None:
    """Demand that an id is text of 1 to MAX_ID_CHARS characters. Raises Refused."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARS:
        raise Refused(Code.IDENTITY_MALFORMED)


def check_unbound(claims: Mapping[str, JSON]) -> None:
    """Refuse a token that is bound to its client's key (RFC 7800, 8705, 9449): a bearer may lack this key."""
    if "cnf" in claims:
        detail = "The token is bound to its client's key, and a bearer request does not prove possession of the key."
        raise Refused(Code.IDENTITY_TYPE_REFUSED, detail)


# -- all checks --------------------------------------------------------------------------------------------------------

# The checks of a token that a provider signed, in the order of contract section 5. The service stops at the first check
# that fails (`read_header`, `demand_claims`); `issuer policy explain` lists all of them (`check_token`). Both use one
# table, so a new check is added once. Only the service checks key and signature, between the header and the claims.

Claims = Mapping[str, JSON]


class ClaimCheck(Struct, frozen=True):
    """One check of a token's claims. `demand` raises Refused with the code of the failure; `code` is for a passed
    check.

    `member` is the member of the provider's entry that has the expected value. `actual` and `expected` return text for
    the list of checks. Times are Unix seconds.
    """

    code: Code
    member: str
    demand: Callable[[Claims, Provider, int], object]
    actual: Callable[[Claims, int], str]
    expected: Callable[[Provider], str]


class TokenOutcome(Struct, frozen=True):
    """The outcome of one check, as text. `place` is the place in `providers.yaml`."""

    code: Code
    place: str
    passed: bool
    actual: str
    expected: str


def demand_claims(claims: Claims, provider: Provider, now: int) -> None:
    """Make checks (6) and later for a token with a good signature. Raises Refused at the first that fails."""
    for check in CLAIM_CHECKS[provider.rules.kind]:
        check.demand(claims, provider, now)


def check_token(header: Claims, claims: Claims, provider: Provider, now: int) -> Iterator[TokenOutcome]:
    """Make all checks except key and signature, and yield the outcome of each. `provider` must be the one of `iss`."""
    at, rules = f"providers.{provider.id}", provider.rules
    actual = f"the token's iss is {provider.issuer}"
    yield TokenOutcome(Code.IDENTITY_ISSUER_UNKNOWN, f"{at}.issuer", True, actual, "")  # (2) registered issuer
    failure = _failure_of(read_header, header, provider)  # (3) header
    actual = f"the token's alg is {show_value(header.get('alg'))}, its typ {show_value(header.get('typ'))}"
    expected = f"{' or '.join(provider.algorithms)}, {' or '.join(rules.types)}"
    code = failure or Code.IDENTITY_ALGORITHM_REFUSED
    yield TokenOutcome(code, f"{at}.algorithms", failure is None, actual, expected)
    for check in CLAIM_CHECKS[rules.kind]:
        failure = _failure_of(check.demand, claims, provider, now)
        words = check.actual(claims, now), check.expected(provider)
        yield TokenOutcome(failure or check.code, f"{at}.{check.member}", failure is None, *words)


def _failure_of(demand: Callable[..., object], *args: object) -> Code | None:
    try:
        demand(*args)
    except Refused as refusal:
        return refusal.code
    return None


# -- the claims, by the numbers of contract section 5 ------------------------------------------------------------------


def _show_times(claims: Claims, now: int) -> str:
    issued, expires = (_show_claimed_time(claims.get(name)) for name in ("iat", "exp"))
    return f"issued {issued}, expires {expires}, checked at {show_time(now)}"


def _show_claimed_time(value: JSON) -> str:
    return show_time(value) if type(value) is int and 0 <= value < MAX_UNIX_S else show_value(value)


_TIMES = ClaimCheck(  # (6)
    Code.IDENTITY_EXPIRED, "max_age_s", read_times, _show_times,
    lambda provider: (
        f"a lifetime of at most {show_span(provider.max_lifetime_s)}, an age of at most {show_span(provider.max_age_s)}"
    ),
)  # fmt: skip
_AUDIENCE = ClaimCheck(  # (7)
    Code.IDENTITY_AUDIENCE_MISMATCH, "audience",
    lambda claims, provider, _: check_audience(claims.get("aud"), provider.audience),
    lambda claims, _: f"the token's aud is {show_value(claims.get('aud'))}",
    lambda provider: provider.audience,
)  # fmt: skip
_IDENTITY_TOKEN = ClaimCheck(  # (8) the jti, which names the use record, and no key binding
    Code.IDENTITY_MALFORMED, "profile",
    lambda claims, _, __: check_identity_token(claims),
    lambda claims, _: f"of the token jti {show_value(claims.get('jti'))}, cnf {show_value(claims.get('cnf'))}",
    lambda _: f"a jti of 1 to {MAX_JTI_CHARS} characters or none, and no cnf",
)  # fmt: skip
_ACCESS_TOKEN = ClaimCheck(  # (8) the ids of an access token
    Code.IDENTITY_MALFORMED, "profile",
    lambda claims, _, __: check_access_token(claims),
    lambda claims, _: "of the token " + ", ".join(
        f"{name} {show_value(claims.get(name))}" for name in ("client_id", "sub", "jti", "cnf")
    ),
    lambda _: "the first three, and no cnf",
)  # fmt: skip
CLAIM_CHECKS: Mapping[Kind, tuple[ClaimCheck, ...]] = {
    "identity-token": (_TIMES, _AUDIENCE, _IDENTITY_TOKEN),
    "access-token": (_TIMES, _AUDIENCE, _ACCESS_TOKEN),
}

# -- the caller --------------------------------------------------------------------------------------------------------


class Caller(Struct, frozen=True):
    """An authenticated machine identity: the signature, times, audience and type of its token have been checked.

    `claims` are verified. `use_parts` name its use record (contract section 5): ("use", iss, jti) or ("input", hex
    SHA-256) for an identity token, ("nonce", provider id, credential id) for a reusable credential. A credential's id
    is public, and a renewed credential keeps its id. Times are Unix seconds.
    """

    provider: Provider
    claims: Mapping[str, JSON]
    use_parts: tuple[str, ...]
    issued_at: int
    expires_at: int

    @classmethod
    def suppose(cls, provider: Provider, claims: Mapping[str, JSON], now: int) -> Caller:
        """Return a supposed caller with these claims, derived ones included, at `now` (Unix seconds).

        Use it to evaluate policies offline. It has no use record, so the service cannot issue a token to it.
        """
        return cls(provider, claims, (), now, now)

    def use_record(self, nonce: str) -> str:
        """Return the name of the use record (lowercase hex SHA-256). Only reusable credentials use the nonce."""
        parts = [*self.use_parts, nonce] if self.provider.rules.reusable else [*self.use_parts]
        return hashlib.sha256(jcs.canonical(parts)).hexdigest()

    def provenance(self) -> dict[str, JSON]:
        """Return the public part of the caller: provider, issuer and the ids that its profile lists in `provenance`."""
        return {
            "provider": self.provider.id,
            "issuer": self.provider.issuer,
            **self.short_claims(self.provider.rules.provenance),
        }

    def short_claims(self, names: Iterable[str]) -> dict[str, Scalar]:
        """Return the named claims that are present and are short scalars."""
        return {name: value for name in names if _is_short(value := self.claims.get(name))}


def _is_short(value: JSON) -> TypeGuard[Scalar]:
    return len(value) <= 512 if type(value) is str else isinstance(value, int) and len(str(value)) <= 512


class ClaimNames(Struct, frozen=True):
    """Names of a caller's claims. A decision uses the claims in `read`. The audit file records those in `audited`: also
    the claims from which they are derived, and those in the verify token."""

    read: tuple[str, ...]
    audited: tuple[str, ...]

    @classmethod
    def of(cls, rules: Profile, registered: Iterable[str] = ()) -> ClaimNames:
        """Return the names for callers with this profile. `registered` are the claims that an identity requires."""
        foreign = (rules.foreign.claims[0], rules.foreign.home, rules.foreign.commit) if rules.foreign else ()
        event = (rules.event_claim,) if rules.event_claim else ()
        scope = ("scope",) if rules.scope else ()
        names = (*rules.pins, *rules.names, *event, *scope, *rules.demands, *foreign, *registered)
        read = tuple(dict.fromkeys(names))
        sources = (rules.derived[name].path[0] for name in read if name in rules.derived)
        return cls(read, tuple(dict.fromkeys((*read, *sources, *rules.provenance))))
