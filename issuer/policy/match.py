"""Which registered identity a caller is, and whether a value meets a requirement. Pure.

Values match exactly and type-strictly. A glob is matched against the whole value, and its `*` does not cross `/`, `@`
or `:`, so that `org/*` cannot be met by `org/a/b` nor `main*` by `main@evil`. An absent claim matches nothing but
`absent`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import UNSET, Struct

from issuer.errors import Code, Refused
from issuer.policy import regex
from issuer.policy.disclose import unknown
from issuer.policy.model import Caller, Identity, Matcher, Party, Policy, Provider, Requirement
from issuer.strict_json import JSON


class PolicySet(Struct, frozen=True):
    """Everything that a directory of policies says, indexed for one look-up per request.

    `providers` by issuer string. `parties` by (provider id, value of the profile's first pin). `digests` holds each
    policy value under its digest, for the operator; `digest` is over everything that the directory says.
    """

    providers: Mapping[str, Provider]
    policies: Mapping[str, Policy]
    parties: Mapping[tuple[str, str], tuple[Party, ...]]
    digests: Mapping[str, bytes]
    digest: str


def resolve(policies: PolicySet, caller: Caller) -> Party:
    """Find the one registered identity that this caller is, or is nearest to. Raises Refused.

    By pins first. Where several share them, by their requirements; a caller that meets none of those is still known by
    its pins, and where all are one integration's it is taken for the nearest, so that `decide` can say what failed.
    Otherwise the refusal shows the caller its own public claims and nothing of any policy (the disclosure ladder of
    contract section 5).
    """
    pin = caller.claims.get(caller.provider.rules.pins[0])
    bucket = policies.parties.get((caller.provider.id, pin), ()) if isinstance(pin, str) else ()
    pinned = [party for party in bucket if pins_match(party.identity, caller.claims)]
    if len(pinned) == 1:
        return pinned[0]
    meeting = [party for party in pinned if requirements_met(party.identity, caller.claims)]
    if len(meeting) > 1:
        raise Refused(Code.INTEGRATION_AMBIGUOUS)
    if meeting:
        return meeting[0]
    if len({party.policy.integration for party in pinned}) != 1:
        raise unknown(caller)
    return min(pinned, key=lambda party: _unmet(party.identity, caller.claims))


# Loops where `all` would do: these run for every identity that shares a pin, on the way of every request.
def pins_match(identity: Identity, claims: Mapping[str, JSON]) -> bool:
    """Say whether every pinned claim is there and equal."""
    for name, value in identity.pins.items():  # noqa: SIM110
        if claims.get(name) != value:  # pins are text, which nothing but text equals
            return False
    return True


def requirements_met(identity: Identity, claims: Mapping[str, JSON]) -> bool:
    """Say whether every requirement is met."""
    for name, rule in identity.require.items():  # noqa: SIM110
        if not met(claims, name, rule):
            return False
    return True


def _unmet(identity: Identity, claims: Mapping[str, JSON]) -> int:
    return sum(not met(claims, name, rule) for name, rule in identity.require.items())


def met(claims: Mapping[str, JSON], name: str, rule: Requirement) -> bool:
    """Say whether the requirement for one claim is met."""
    if not isinstance(rule, Matcher):
        return equal(claims.get(name), rule)  # no requirement equals null
    if rule.absent is not UNSET:
        return name not in claims
    return name in claims and meets(claims[name], rule)


def equal(actual: JSON, expected: str | bool | int) -> bool:
    """Compare type-strictly: "1" is not 1, and True is not 1."""
    return type(actual) is type(expected) and actual == expected


def meets(actual: JSON, rule: Requirement) -> bool:
    """Say whether the value of a claim that is there meets a requirement. Only text meets a pattern."""
    if not isinstance(rule, Matcher):
        return equal(actual, rule)
    if rule.any_of is not UNSET:
        return any([equal(actual, value) for value in rule.any_of])  # noqa: C419 (a list is faster here)
    if not isinstance(actual, str):
        return False
    if rule.contains_all is not UNSET:
        # RFC 6749 section 3.3: words parted by spaces. Other white space is part of a word.
        return set(rule.contains_all) <= set(actual.split(" "))
    if rule.regex is not UNSET:
        return regex.matches(rule.regex, actual)
    return rule.glob is not UNSET and glob_matches(rule.glob, actual)


def glob_matches(pattern: str, value: str) -> bool:
    """Match a whole value against a glob in which only `*` is special."""
    return pattern == value if "*" not in pattern else _compiled(pattern, _STAR).fullmatch(value) is not None


def deny_matches(pattern: str, value: str) -> bool:
    """Match a whole value against a glob of `deny`, whose `*` is any text, in any case: no sign is a way around."""
    return _compiled(pattern.lower(), _ANYTHING).fullmatch(value.lower()) is not None


# Control characters and Unicode's line breaks are excluded, so that no `*` swallows what a log or a file would show as
# an end.
_STAR = r"[^/@:\x00-\x1f\x7f-\x9f\u2028\u2029]*"
_ANYTHING = r"[\s\S]*"


# Patterns are policies', never callers'. Room for those of thousands: what falls out costs a hundred times as much.
@lru_cache(maxsize=65_536)
def _compiled(pattern: str, star: str) -> re.Pattern[str]:
    # Each part between two stars takes its first place and never gives it back: a glob needs no second try, and trying
    # is what lets a caller's long value stall the service (128 `_` against `*_*_*_*_*_*x`: a minute).
    first, *parts = (re.escape(part) for part in pattern.split("*"))
    between = "".join(f"(?>{star}?{part})" for part in parts[:-1])
    return re.compile(first + between + (star + parts[-1] if parts else ""))


def told_apart(one: Identity, other: Identity) -> bool:
    """Say whether no token can match both: a claim for which both name exact values, without a common one.

    That a claim is absent is such a value. Patterns are not: whether two of them have a value in common is not asked.
    """
    first, second = _exact_values(one), _exact_values(other)
    return any(first[name].isdisjoint(second[name]) for name in first.keys() & second.keys())


def _exact_values(identity: Identity) -> dict[str, frozenset[tuple[type, object]]]:
    """Return, for each claim with exact values, the values that it may have; pins and requirements alike."""
    allowed = {name: (value,) for name, value in identity.pins.items()}
    named = {name: exact_values(rule) for name, rule in identity.require.items()}
    return {name: frozenset((type(v), v) for v in values) for name, values in {**named, **allowed}.items() if values}


def exact_values(rule: Requirement) -> tuple[str | bool | int | None, ...]:
    """Return the exact values that meet a requirement, None for an absent claim; nothing where there is a pattern."""
    if not isinstance(rule, Matcher):
        return (rule,)
    if rule.absent is not UNSET:
        return (None,)
    return tuple(rule.any_of) if rule.any_of is not UNSET else ()
