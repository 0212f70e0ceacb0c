"""The look-up of a caller's registered identity. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats.strict_json import JSON
from issuer.identity.table import Provider
from issuer.identity.token import Caller
from issuer.policy.disclose import refusal_for_stranger
from issuer.policy.impersonation import NameIndex
from issuer.policy.model import Identity, Policy, exact_values, is_met
from issuer.policy.registration import Registration

# The index of identities: a provider's id, and the value of its profile's first pin, which is never empty.
Key = tuple[str, str]


class PolicySet(Struct, frozen=True):
    """A directory of policies, indexed for one look-up per request.

    `providers` are by issuer, `registrations` by `Key`, and `named` has them by readable name. `digests` has each
    policy value by its digest, for the operator, and `benchmarks` each registered `eval.yaml` that these values name,
    by its digest. `digest` covers the whole directory.
    """

    providers: Mapping[str, Provider]
    policies: Mapping[str, Policy]
    registrations: Mapping[Key, tuple[Registration, ...]]
    digests: Mapping[str, bytes]
    digest: str
    benchmarks: Mapping[str, bytes] = {}
    named: NameIndex = NameIndex()


def resolve(policies: PolicySet, caller: Caller) -> Registration:
    """Return the registered identity that a caller is, or the nearest one. Raises Refused.

    The pins decide. If several identities share the caller's pins, their requirements decide among them. If the caller
    meets the requirements of none, and all belong to one integration, return the nearest: then `decide` can say what
    failed. Otherwise the refusal shows only the caller's own public claims (contract section 5).
    """
    bucket = policies.registrations.get(key_of_caller(caller), ())
    pinned = [registration for registration in bucket if pins_match(registration.identity, caller.claims)]
    if len(pinned) == 1:
        return pinned[0]
    meeting = [registration for registration in pinned if requirements_met(registration.identity, caller.claims)]
    if len(meeting) > 1:
        raise Refused(Code.INTEGRATION_AMBIGUOUS)
    if meeting:
        return meeting[0]
    if len({registration.policy.integration for registration in pinned}) != 1:
        raise refusal_for_stranger(caller)
    return min(pinned, key=lambda registration: _count_unmet(registration.identity, caller.claims))


def key_of_caller(caller: Caller) -> Key:
    """Return the key of identities that may match a caller. No identity has the key if the first pin is not text."""
    pin = caller.claims.get(caller.provider.rules.pins[0])
    return caller.provider.id, pin if isinstance(pin, str) else ""


def key_of_identity(identity: Identity, provider: Provider) -> Key:
    """Return the key of an identity of this provider."""
    return provider.id, identity.pins[provider.rules.pins[0]]


# Loops, because `all` is slower: these run for every identity that shares a pin, in every request.
def pins_match(identity: Identity, claims: Mapping[str, JSON]) -> bool:
    """Return whether every pinned claim is present and equal."""
    for name, value in identity.pins.items():  # noqa: SIM110
        if claims.get(name) != value:  # pins are text, so only equal text passes
            return False
    return True


def requirements_met(identity: Identity, claims: Mapping[str, JSON]) -> bool:
    """Return whether every requirement is met."""
    for name, rule in identity.require.items():  # noqa: SIM110
        if not is_met(claims, name, rule):
            return False
    return True


def _count_unmet(identity: Identity, claims: Mapping[str, JSON]) -> int:
    return sum(not is_met(claims, name, rule) for name, rule in identity.require.items())


def are_disjoint(one: Identity, other: Identity) -> bool:
    """Return whether no token can match both identities: for some claim both have exact values, and share none.

    The absence of a claim counts as an exact value. Patterns are not compared.
    """
    first, second = _exact_values(one), _exact_values(other)
    return any(first[name].isdisjoint(second[name]) for name in first.keys() & second.keys())


def _exact_values(identity: Identity) -> dict[str, frozenset[tuple[type, object]]]:
    """Return the exact values of each claim that has some, in pins or requirements."""
    allowed = {name: (value,) for name, value in identity.pins.items()}
    named = {name: exact_values(rule) for name, rule in identity.require.items()}
    return {name: frozenset((type(v), v) for v in values) for name, values in {**named, **allowed}.items() if values}
