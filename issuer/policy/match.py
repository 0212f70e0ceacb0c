"""Which registered identity a caller is, and whether a value meets a requirement. Pure.

Values match exactly and type-strictly. A glob is matched against the whole value, and its `*` does not cross `/`, `@`
or `:`, so that `org/*` cannot be met by `org/a/b` nor `main*` by `main@evil`. An absent claim matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import UNSET, Struct

from issuer.errors import Code, Fault, Refused
from issuer.policy.model import Caller, Identity, Matcher, Party, Policy, Provider, Requirement
from issuer.strict_json import JSON


class PolicySet(Struct, frozen=True):
    """Everything that a directory of policies says, indexed for one look-up per request.

    `providers` by issuer string. `parties` by (provider id, value of the profile's first pin). `digests` holds each
    policy value under its digest, for the operator.
    """

    providers: Mapping[str, Provider]
    policies: Mapping[str, Policy]
    parties: Mapping[tuple[str, str], tuple[Party, ...]]
    digests: Mapping[str, bytes]


def resolve(policies: PolicySet, caller: Caller) -> Party:
    """Find the one registered identity that this caller is. Raises Refused.

    By pins first; where several share their pins, by their requirements. What does not resolve is a refusal that shows
    the caller its own public claims and nothing of any policy (the disclosure ladder of contract section 5).
    """
    pin = caller.claims.get(caller.provider.rules.pins[0])
    bucket = policies.parties.get((caller.provider.id, pin), ()) if isinstance(pin, str) else ()
    candidates = [party for party in bucket if pins_match(party.identity, caller.claims)]
    if len(candidates) > 1:
        candidates = [party for party in candidates if requirements_match(party.identity, caller.claims)]
        if len(candidates) > 1:
            raise Refused(Code.INTEGRATION_AMBIGUOUS)
    if not candidates:
        raise _unknown(caller)
    return candidates[0]


def _unknown(caller: Caller) -> Refused:
    rules = caller.provider.rules
    shown = caller.shown((*rules.pins, *rules.names))
    told = ", ".join(f"{name}={value}" for name, value in shown.items())
    detail = f"{Code.INTEGRATION_UNKNOWN.meaning.title} The token says: {told or 'none of the ids that are matched'}."
    return Refused(Code.INTEGRATION_UNKNOWN, detail, (Fault(Code.INTEGRATION_UNKNOWN, "", detail),))


def pins_match(identity: Identity, claims: Mapping[str, JSON]) -> bool:
    """Say whether every pinned claim is there and equal."""
    return all(equal(claims.get(name), value) for name, value in identity.pins.items())


def requirements_match(identity: Identity, claims: Mapping[str, JSON]) -> bool:
    """Say whether every requirement is met."""
    return all(name in claims and meets(claims[name], rule) for name, rule in identity.require.items())


def equal(actual: JSON, expected: str | bool | int) -> bool:
    """Compare type-strictly: "1" is not 1, and True is not 1."""
    return type(actual) is type(expected) and actual == expected


def meets(actual: JSON, rule: Requirement) -> bool:
    """Say whether a claim's value meets a requirement."""
    if not isinstance(rule, Matcher):
        return equal(actual, rule)
    if rule.any_of is not UNSET:
        return any(equal(actual, value) for value in rule.any_of)
    return isinstance(actual, str) and glob_matches(str(rule.glob), actual)


def glob_matches(pattern: str, value: str) -> bool:
    """Match a whole value against a glob in which only `*` is special."""
    return _compiled(pattern).fullmatch(value) is not None


# Control characters and Unicode's line breaks are excluded, so that no `*` swallows what a log or a file would show as
# an end.
_STAR = r"[^/@:\x00-\x1f\x7f-\x9f\u2028\u2029]*"


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    # Each part between two stars takes its first place and never gives it back: a glob needs no second try, and trying
    # is what lets a caller's long value stall the service (128 `_` against `*_*_*_*_*_*x`: a minute).
    first, *parts = (re.escape(part) for part in pattern.split("*"))
    between = "".join(f"(?>{_STAR}?{part})" for part in parts[:-1])
    return re.compile(first + between + (_STAR + parts[-1] if parts else ""))


def told_apart(one: Identity, other: Identity) -> bool:
    """Say whether no token can match both: a claim for which both name exact values, without a common one."""
    first, second = _exact_values(one), _exact_values(other)
    return any(first[name].isdisjoint(second[name]) for name in first.keys() & second.keys())


def _exact_values(identity: Identity) -> dict[str, frozenset[tuple[type, object]]]:
    """Return, for each claim with exact values, the values that it may have; pins and requirements alike."""
    values = {name: frozenset({(str, value)}) for name, value in identity.pins.items()}
    exact: dict[str, frozenset[tuple[type, object]]] = dict(values)
    for name, rule in identity.require.items():
        allowed = [rule] if not isinstance(rule, Matcher) else [] if rule.any_of is UNSET else rule.any_of
        if allowed:
            exact[name] = frozenset((type(value), value) for value in allowed)
    return exact
