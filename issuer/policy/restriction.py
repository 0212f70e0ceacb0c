"""Restriction of the active policies by a folder that does not load: it can only withdraw permissions. Pure.

An operator who suspends an integration, removes an identity or a file, or shortens a registration must not wait until
another file is mended. Everything else in such a folder is ignored. A narrowed registration keeps the digest of the
active policy.
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
    """Return the active policies without the permissions that the files `found` withdraw; the same set if none are.

    `found` has each integration that has a file: its policy, or None if the file is invalid, which withdraws
    nothing. An integration without a file is withdrawn.
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
    """Return the integrations that lost a registration or a part of it."""
    if narrowed is whole:
        return []
    kept = {id(one) for bucket in narrowed.registrations.values() for one in bucket}
    lost = (one for bucket in whole.registrations.values() for one in bucket if id(one) not in kept)
    return sorted({one.policy.integration for one in lost})


def _narrowed(registration: Registration, found: Mapping[str, Policy | None]) -> Iterator[Registration]:
    """Yield the registration, narrowed if need be, unless it was withdrawn."""
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
    """Return whether two entries are about the same callers. With other pins it is another identity."""
    return (one.id, one.provider, one.pins) == (other.id, other.provider, other.pins)


def _earlier(one: str | UnsetType, other: str | UnsetType) -> str | UnsetType:
    """Return the earlier of two ISO dates; UNSET is never."""
    return min((day for day in (one, other) if day is not UNSET), default=UNSET)
