"""A provider's token, judged by the provider's registration (RFC 7519 under RFC 8725), and a verified caller. Pure.

Nothing here checks a signature: `service/authn/authenticator.py` does. The order of the checks, for the service and for
`issuer policy explain`, is that of `check_token`. A refusal never quotes the token.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import ParamSpec, TypeGuard

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


# -- all checks --------------------------------------------------------------------------------------------------------

# The checks of a token that a provider signed, in the order of contract section 5.
#
# The service stops at the first that fails (`read_header`, `demand_claims`); `issuer policy explain` lists all of them
# (`check_token`). Both walk one table, so that a check is added once. Key and signature come between the header and the
# claims, and only the service has them.

Claims = Mapping[str, JSON]
P = ParamSpec("P")


class ClaimCheck(Struct, frozen=True):
    """One check of a token's claims: `demand` raises Refused; the words are made only for a list.

    `code` is used where the check passes; a refusal has its own. `member` is the member of the provider's entry that
    says what is expected. The time is in Unix seconds.
    """

    code: Code
    member: str
    demand: Callable[[Claims, Provider, int], object]
    actual: Callable[[Claims, int], str]
    expected: Callable[[Provider], str]


class TokenOutcome(Struct, frozen=True):
    """How one check went, in words; `place` leads into `providers.yaml`."""

    code: Code
    place: str
    passed: bool
    actual: str
    expected: str


def demand_claims(claims: Claims, provider: Provider, now: int) -> None:
    """Make checks (6) and later of a token whose signature is good. Raises Refused at the first that fails."""
    for check in CLAIM_CHECKS[provider.rules.kind]:
        check.demand(claims, provider, now)


def check_token(header: Claims, claims: Claims, provider: Provider, now: int) -> Iterator[TokenOutcome]:
    """Make all checks except key and signature, and yield the outcome of each. `provider` was found by the `iss`."""
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


def _failure_of(demand: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Code | None:
    try:
        demand(*args, **kwargs)
    except Refused as refusal:
        return refusal.code
    return None


# -- the claims, by the numbers of contract section 5 ------------------------------------------------------------------


def _show_times(claims: Claims, now: int) -> str:
    issued, expires = (_show_claimed_time(claims.get(name)) for name in ("iat", "exp"))
    return f"issued {issued}, expires {expires}, judged at {show_time(now)}"


def _show_claimed_time(value: JSON) -> str:
    return show_time(value) if type(value) is int and 0 <= value < MAX_UNIX_S else show_value(value)


_TIMES = ClaimCheck(  # (6)
    Code.IDENTITY_EXPIRED, "max_age_s", read_times, _show_times,
    lambda provider: (
        f"a life of at most {show_span(provider.max_lifetime_s)}, an age of at most {show_span(provider.max_age_s)}"
    ),
)  # fmt: skip
_AUDIENCE = ClaimCheck(  # (7)
    Code.IDENTITY_AUDIENCE_MISMATCH, "audience",
    lambda claims, provider, _: check_audience(claims.get("aud"), provider.audience),
    lambda claims, _: f"the token's aud is {show_value(claims.get('aud'))}",
    lambda provider: provider.audience,
)  # fmt: skip
_JTI = ClaimCheck(  # (8) the name of its use record
    Code.IDENTITY_MALFORMED, "profile",
    lambda claims, _, __: read_jti(claims),
    lambda claims, _: f"the token's jti is {show_value(claims.get('jti'))}",
    lambda _: "absent, or a text that is neither empty nor long",
)  # fmt: skip
_ACCESS_TOKEN = ClaimCheck(  # (8) what else an access token must say
    Code.IDENTITY_MALFORMED, "profile",
    lambda claims, _, __: check_access_token(claims),
    lambda claims, _: "of the token " + ", ".join(
        f"{name} {show_value(claims.get(name))}" for name in ("client_id", "sub", "jti", "cnf")
    ),
    lambda _: "the first three, and no cnf",
)  # fmt: skip
CLAIM_CHECKS: Mapping[Kind, tuple[ClaimCheck, ...]] = {
    "identity-token": (_TIMES, _AUDIENCE, _JTI),
    "access-token": (_TIMES, _AUDIENCE, _ACCESS_TOKEN),
}

# -- the caller --------------------------------------------------------------------------------------------------------


class Caller(Struct, frozen=True):
    """An authenticated machine identity: its signature, times, audience and type have been checked.

    `claims` are the verified ones. `use_parts` name its use record (contract section 5): ("use", iss, jti) or
    ("input", hex SHA-256) of an identity token; ("nonce", provider id, credential id) of a reusable identity, where the
    credential's id is public and stays the same when it is renewed. Times are Unix seconds.
    """

    provider: Provider
    claims: Mapping[str, JSON]
    use_parts: tuple[str, ...]
    issued_at: int
    expires_at: int

    @classmethod
    def suppose(cls, provider: Provider, claims: Mapping[str, JSON], now: int) -> Caller:
        """Return the caller of a supposed credential with these claims, derived ones included, at `now` (Unix seconds).

        For evaluating policies offline: it has no use record, so nothing can be issued to it.
        """
        return cls(provider, claims, (), now, now)

    def use_record(self, nonce: str) -> str:
        """Name the use record, of the token itself or of a reusable identity's nonce, as lowercase hex SHA-256."""
        parts = [*self.use_parts, nonce] if self.provider.rules.reusable else [*self.use_parts]
        return hashlib.sha256(jcs.canonical(parts)).hexdigest()

    def provenance(self) -> dict[str, JSON]:
        """Return the public part of the caller: provider, issuer and allow-listed immutable ids."""
        return {
            "provider": self.provider.id,
            "issuer": self.provider.issuer,
            **self.short_claims(self.provider.rules.provenance),
        }

    def short_claims(self, names: Iterable[str]) -> dict[str, Scalar]:
        """Return those of the named claims that are present and short scalars."""
        return {name: value for name in names if _is_short(value := self.claims.get(name))}


def _is_short(value: JSON) -> TypeGuard[Scalar]:
    return len(value) <= 512 if type(value) is str else isinstance(value, int) and len(str(value)) <= 512


class ClaimNames(Struct, frozen=True):
    """The claims of a caller that are `read` for a decision, each once, and those that are `audited`: the read ones,
    those that they are derived from, and those that the verify token names."""

    read: tuple[str, ...]
    audited: tuple[str, ...]

    @classmethod
    def of(cls, rules: Profile, registered: Iterable[str] = ()) -> ClaimNames:
        """Name the claims of a profile's callers; `registered` are those that a registered identity requires."""
        foreign = (rules.foreign.claims[0], rules.foreign.home, rules.foreign.commit) if rules.foreign else ()
        event = (rules.event_claim,) if rules.event_claim else ()
        scope = ("scope",) if rules.scope else ()
        names = (*rules.pins, *rules.names, *event, *scope, *rules.demands, *foreign, *registered)
        read = tuple(dict.fromkeys(names))
        sources = (rules.derived[name].path[0] for name in read if name in rules.derived)
        return cls(read, tuple(dict.fromkeys((*read, *sources, *rules.provenance))))
