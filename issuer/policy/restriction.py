"""What still counts of a folder of policies that does not load: only what takes something away. Pure.

An integration that is suspended, an identity that is taken out, an earlier end of a registration and a file that is
gone must not wait until some other file is right. Nothing else of such a folder counts: what an active policy does not
grant, no narrowed one does. A narrowed registration keeps the digest of the policy that grants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from issuer.policy.compiled import compile_identity
from issuer.policy.impersonation import NameIndex
from issuer.policy.match import PolicySet
from issuer.policy.model import Identity, Policy
from issuer.policy.registration import Registration

_STRICTER = ("active", "staged", "suspended")


def narrow(active: PolicySet, found: Mapping[str, Policy | None]) -> PolicySet:
    """Return the active policies without what the files that are `found` take away; the same set where that is nothing.

    `found` has each integration with a file: its policy where that fits its type, None where it does not, and then
    nothing of it counts. An integration without a file is taken away.
    """
    registrations = {
        key: tuple(kept)
        for key, bucket in active.registrations.items()
        if (kept := [one for registration in bucket for one in _narrowed(registration, found)])
    }
    if registrations == active.registrations:
        return active
    policies = {name: policy for name, policy in active.policies.items() if name in found}
    named = NameIndex().replaced((), [one for bucket in registrations.values() for one in bucket])
    return replace(active, policies=policies, registrations=registrations, named=named)


def narrowed_names(whole: PolicySet, narrowed: PolicySet) -> list[str]:
    """Return the integrations from which something was taken away."""
    if narrowed is whole:
        return []
    kept = {id(one) for bucket in narrowed.registrations.values() for one in bucket}
    lost = (one for bucket in whole.registrations.values() for one in bucket if id(one) not in kept)
    return sorted({one.policy.integration for one in lost})


def _narrowed(registration: Registration, found: Mapping[str, Policy | None]) -> Iterator[Registration]:
    """Yield the registration with what was taken away, or nothing."""
    old, name = registration.identity, registration.policy.integration
    if name not in found:
        return
    policy = found[name]
    if policy is None or policy is registration.policy:
        yield registration
        return
    new = next((identity for identity in policy.identities if _is_same(identity, old)), None)
    if new is None:
        return
    mode = max(registration.policy.mode, policy.mode, key=_STRICTER.index)
    expires = _earlier(old.expires, new.expires)
    if (mode, expires) == (registration.policy.mode, old.expires):
        yield registration
        return
    identity = replace(old, expires=expires)
    yield replace(
        registration,
        policy=replace(registration.policy, mode=mode),
        identity=identity,
        identity_rules=compile_identity(identity),
    )


def _is_same(one: Identity, other: Identity) -> bool:
    """Say whether two entries are about the same callers: with another pin it is another identity."""
    return (one.id, one.provider, one.pins) == (other.id, other.provider, other.pins)


def _earlier(one: str | UnsetType, other: str | UnsetType) -> str | UnsetType:
    """Return the earlier of two ISO dates; none is never."""
    return min((day for day in (one, other) if day is not UNSET), default=UNSET)
