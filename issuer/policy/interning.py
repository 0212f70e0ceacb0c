"""One object for values that are equal in many policies. Pure.

Ten thousand integrations say the same of frameworks, refs and metrics. As one object each of these is in the memory
once, and in the processor's cache when the next integration asks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from issuer.policy.model import Identity, Policy

T = TypeVar("T")

# Above it all are forgotten, and later ones made anew: nothing depends on there being only one.
MAX_KEPT = 65_536
_made: dict[Hashable, Any] = {}
_write = msgspec.msgpack.Encoder().encode


def once(make: Callable[[], T], kind: str, *given: object) -> T:
    """Return what `make` makes of the values `given`, the same object for equal ones."""
    key = kind, _write(given)
    found: T | None = _made.get(key)
    if found is None:
        if len(_made) >= MAX_KEPT:
            _made.clear()
        found = _made[key] = make()
    return found


# A text that is equal to an earlier one becomes that one.
_same = lru_cache(MAX_KEPT)(str)


def shared(policy: Policy) -> Policy:
    """Return an equal policy, whose parts are those of other policies where they are equal."""
    grants, own = policy.grants, dict[bytes, Any]()
    return replace(
        policy,
        identities=[_shared_identity(identity, own) for identity in policy.identities],
        grants=replace(
            grants,
            frameworks=once(lambda: grants.frameworks, "frameworks", grants.frameworks),
            metrics=once(lambda: grants.metrics, "metrics", grants.metrics),
        ),
        token=once(lambda: policy.token, "token", policy.token),
        limits=once(lambda: policy.limits, "limits", policy.limits),
        abuse=once(lambda: policy.abuse, "abuse", policy.abuse),
        disclose=once(lambda: policy.disclose, "disclose", policy.disclose),
    )


def _shared_identity(identity: Identity, own: dict[bytes, Any]) -> Identity:
    """Share what an identity requires with all others, and its pins and names with those of its file (`own`)."""
    require = once(lambda: _named(identity.require), "require", identity.require)
    pins, names = (own.setdefault(_write(part), _named(part)) for part in (identity.pins, identity.names))
    ids = {"id": _same(identity.id), "provider": _same(identity.provider)}
    return replace(identity, **ids, pins=pins, names=names, require=require)


def _named(members: dict[str, T]) -> dict[str, T]:
    return {_same(name): value for name, value in members.items()}
