"""A caller whose credential has been verified. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TypeGuard

from msgspec import Struct

from issuer.formats import jcs
from issuer.formats.strict_json import JSON
from issuer.identity.profiles import Profile
from issuer.identity.provider import Provider

Scalar = str | bool | int


class Caller(Struct, frozen=True):
    """An authenticated machine identity: its signature, times, audience and type have been checked.

    `claims` are what is verified of it. `use_parts` name its use record (contract section 5): ("use", iss, jti) or
    ("input", hex SHA-256) of an identity token; ("nonce", provider id, credential id) of a reusable identity, where the
    credential's id is public and stays the same when it is renewed. Times are Unix seconds.
    """

    provider: Provider
    claims: Mapping[str, JSON]
    use_parts: tuple[str, ...]
    issued_at: int
    expires_at: int

    @classmethod
    def supposed(cls, provider: Provider, claims: Mapping[str, JSON], now: int) -> Caller:
        """Suppose that a good credential has these claims, derived ones among them, at `now` (Unix seconds).

        For those who ask offline what policies say: it has no use record, so nothing can be issued to it.
        """
        return cls(provider, claims, (), now, now)

    def use_record(self, nonce: str) -> str:
        """Name the use record, the token's own or that of a reusable identity's nonce, as lowercase hex SHA-256."""
        parts = [*self.use_parts, nonce] if self.provider.rules.reusable else [*self.use_parts]
        return hashlib.sha256(jcs.canonical(parts)).hexdigest()

    def provenance(self) -> dict[str, JSON]:
        """Return what of the caller is public: provider, issuer and allow-listed immutable ids."""
        return {
            "provider": self.provider.id,
            "issuer": self.provider.issuer,
            **self.shown(self.provider.rules.provenance),
        }

    def shown(self, names: Iterable[str]) -> dict[str, Scalar]:
        """Return the named claims that are there, are scalars and are short."""
        held = ((name, self.claims.get(name)) for name in names)
        return {name: value for name, value in held if _is_short(value)}


def _is_short(value: JSON) -> TypeGuard[Scalar]:
    return isinstance(value, str | int) and len(value if isinstance(value, str) else str(value)) <= 512


class ClaimNames(Struct, frozen=True):
    """Which claims of a caller are `read` on the way to a decision, once each, and which of them the audit keeps:
    those that were read, those that they were derived from, and those that the verify token names."""

    read: tuple[str, ...]
    audited: tuple[str, ...]

    @classmethod
    def of(cls, rules: Profile, registered: Iterable[str] = ()) -> ClaimNames:
        """Name the claims of a profile's callers; `registered` are those that a registered identity asks for."""
        foreign = (rules.foreign.claims[0], rules.foreign.home, rules.foreign.commit) if rules.foreign else ()
        event = (rules.event_claim,) if rules.event_claim else ()
        scope = ("scope",) if rules.scope else ()
        names = (*rules.pins, *rules.names, *event, *scope, *rules.demands, *foreign, *registered)
        read = tuple(dict.fromkeys(names))
        sources = (rules.derived[name].path[0] for name in read if name in rules.derived)
        return cls(read, tuple(dict.fromkeys((*read, *sources, *rules.provenance))))
