"""Detection of callers that use a registered readable name with other ids. Pure.

Names decide nothing, because another owner can take a name that was given up. The operator learns of such a caller; the
caller does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct

from issuer.formats.strict_json import JSON
from issuer.identity.table import Provider
from issuer.identity.token import Caller
from issuer.policy.model import is_met
from issuer.policy.registration import Registration

# A provider's id, the claim of the name, and the name in the form that is compared.
_Named: TypeAlias = tuple[str, str, str]
_Part: TypeAlias = Mapping[_Named, tuple[Registration, ...]]
# A change of one policy in ten thousand copies only the parts with its names, which have some hundred entries.
_PARTS = 256


class NameIndex(Struct, frozen=True):
    """The registered identities of a folder, by the first of their names in the order of the profile's claims.
    Identities with the same name are sorted by integration and id."""

    parts: tuple[_Part, ...] = ({},) * _PARTS

    def find(self, caller: Caller) -> tuple[Registration, ...]:
        """Return the registrations that share all their names with a caller, but not all their pins."""
        found: list[Registration] = []
        for claim in caller.provider.rules.names:
            key = _key(caller.provider, claim, caller.claims.get(claim))
            if key is not None:
                found += self.parts[hash(key) % _PARTS].get(key, ())
        return tuple(one for one in found if _has_its_names(caller, one) and not _has_its_pins(caller, one))

    def replaced(self, old: Collection[Registration], new: Iterable[Registration]) -> NameIndex:
        """Return the index without the registrations `old`, which are in it, and with `new`. One may be in both."""
        removed = {id(one) for one in old}
        added: dict[_Named, list[Registration]] = {key: [] for one in old if (key := _first(one))}
        for one in new:
            if key := _first(one):
                added.setdefault(key, []).append(one)
        changed: dict[int, dict[_Named, tuple[Registration, ...]]] = {}
        for key, ones in added.items():
            number = hash(key) % _PARTS
            part = changed.get(number) or changed.setdefault(number, dict(self.parts[number]))
            kept = (one for one in part.pop(key, ()) if id(one) not in removed)
            if bucket := sorted((*kept, *ones), key=lambda one: (one.policy.integration, one.identity.id)):
                part[key] = tuple(bucket)
        return NameIndex(tuple(changed.get(number, part) for number, part in enumerate(self.parts)))


def first_name(registration: Registration) -> str:
    """Return the claim whose name indexes an identity; "" if the profile knows none of the identity's names."""
    names = registration.identity.names
    return next((claim for claim in registration.provider.rules.names if claim in names), "")


def _first(registration: Registration) -> _Named | None:
    claim = first_name(registration)
    return _key(registration.provider, claim, registration.identity.names.get(claim))


def _key(provider: Provider, claim: str, name: JSON) -> _Named | None:
    return (provider.id, claim, _compared(provider, name)) if isinstance(name, str) else None


def _compared(provider: Provider, name: str) -> str:
    lower = name.lower() if provider.rules.names_any_case else name
    return name if lower == name else lower  # reuse the policy's own text if it is lowercase


def _has_its_names(caller: Caller, registration: Registration) -> bool:
    """Return whether a caller has each registered name.

    Some names are unique only within the values of other claims (`names_within`). If the identity requires such a
    claim, the caller must meet the requirement.
    """
    identity, rules = registration.identity, registration.provider.rules
    same = (
        isinstance(actual := caller.claims.get(claim), str)
        and _compared(caller.provider, actual) == _compared(caller.provider, name)
        for claim, name in identity.names.items()
    )
    places = rules.names_within & identity.require.keys()
    return all(same) and all(is_met(caller.claims, claim, identity.require[claim]) for claim in places)


def _has_its_pins(caller: Caller, registration: Registration) -> bool:
    return all(caller.claims.get(claim) == value for claim, value in registration.identity.pins.items())
