"""The checks of a token that a provider signed, in the order of contract section 5. Pure.

The service stops at the first that fails (`read_header`, `demand_claims`); `issuer policy explain` lists all of them
(`check_token`). Both walk one table, so that a check is added once. Key and signature come between the header and the
claims, and only the service has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ParamSpec

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats.show import show_value
from issuer.formats.strict_json import JSON
from issuer.formats.times import MAX_UNIX_S, show_span, show_time
from issuer.identity.profiles import Kind
from issuer.identity.provider import Provider
from issuer.identity.token import check_access_token, check_audience, read_header, read_jti, read_times

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
