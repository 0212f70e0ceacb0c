"""Whose readable name a caller has that is nobody registered. Pure.

Names decide nothing: who gives one up may see another take it. The operator is told of that, the caller is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct

from issuer.formats.strict_json import JSON
from issuer.identity.table import Provider
from issuer.identity.token import Caller
from issuer.policy.registration import Registration
from issuer.policy.requirement import is_met

# A provider's id, the claim that holds the name, and the name as it is compared.
_Named: TypeAlias = tuple[str, str, str]
_Part: TypeAlias = Mapping[_Named, tuple[Registration, ...]]
# A change of one policy in ten thousand copies the parts that its names are in, some hundred entries, and no more.
_PARTS = 256


class NameIndex(Struct, frozen=True):
    """The registered identities of a folder by the first of their names, in the order of their profile; of one name in
    the order of their ids."""

    parts: tuple[_Part, ...] = ({},) * _PARTS

    def find(self, caller: Caller) -> tuple[Registration, ...]:
        """Return the registrations that have all their names in common with a caller, and not all their pins."""
        found: list[Registration] = []
        for claim in caller.provider.rules.names:
            key = _key(caller.provider, claim, caller.claims.get(claim))
            if key is not None:
                found += self.parts[hash(key) % _PARTS].get(key, ())
        return tuple(one for one in found if _has_its_names(caller, one) and not _has_its_pins(caller, one))

    def replaced(self, old: Collection[Registration], new: Iterable[Registration]) -> NameIndex:
        """Return the index without the `old` registrations, which are in it, and with the `new` ones; one may be
        both."""
        gone, added = {id(one) for one in old}, dict[_Named, list[Registration]]()
        for one in old:
            if key := _first(one):
                added.setdefault(key, [])
        for one in new:
            if key := _first(one):
                added.setdefault(key, []).append(one)
        changed: dict[int, dict[_Named, tuple[Registration, ...]]] = {}
        for key, ones in added.items():
            number = hash(key) % _PARTS
            part = changed.get(number) or changed.setdefault(number, dict(self.parts[number]))
            kept = (one for one in part.pop(key, ()) if id(one) not in gone)
            if bucket := sorted((*kept, *ones), key=_place):
                part[key] = tuple(bucket)
        return NameIndex(tuple(changed.get(number, part) for number, part in enumerate(self.parts)))


def _place(registration: Registration) -> tuple[str, str]:
    return registration.policy.integration, registration.identity.id


def first_name(registration: Registration) -> str:
    """Return the claim of the name by which an identity is found; "" where it has none that its profile knows."""
    names = registration.identity.names
    return next((claim for claim in registration.provider.rules.names if claim in names), "")


def _first(registration: Registration) -> _Named | None:
    claim = first_name(registration)
    return _key(registration.provider, claim, registration.identity.names.get(claim))


def _key(provider: Provider, claim: str, name: JSON) -> _Named | None:
    return (provider.id, claim, _compared(provider, name)) if isinstance(name, str) else None


def _compared(provider: Provider, name: str) -> str:
    lower = name.lower() if provider.rules.names_any_case else name
    return name if lower == name else lower  # one object where the policy's own will do


def _has_its_names(caller: Caller, registration: Registration) -> bool:
    """Say whether each registered name is the caller's, where names are one's own: the claims within which they are, if
    they are required, are met."""
    identity, rules = registration.identity, registration.provider.rules
    same = (
        isinstance(held := caller.claims.get(claim), str)
        and _compared(caller.provider, held) == _compared(caller.provider, name)
        for claim, name in identity.names.items()
    )
    places = rules.names_within & identity.require.keys()
    return all(same) and all(is_met(caller.claims, claim, identity.require[claim]) for claim in places)


def _has_its_pins(caller: Caller, registration: Registration) -> bool:
    return all(caller.claims.get(claim) == value for claim, value in registration.identity.pins.items())
