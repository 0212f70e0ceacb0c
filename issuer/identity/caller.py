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

    `claims` are the verified ones. `use_parts` name its use record (contract section 5): ("use", iss, jti) or
    ("input", hex SHA-256) of an identity token; ("nonce", provider id, credential id) of a reusable identity, where the
    credential's id is public and stays the same when it is renewed. Times are Unix seconds.
    """

    provider: Provider
    claims: Mapping[str, JSON]
    use_parts: tuple[str, ...]
    issued_at: int
    expires_at: int

    @classmethod
    def suppose(cls, provider: Provider, claims: Mapping[str, JSON], now: int) -> Caller:
        """Return the caller of a supposed credential with these claims, derived ones included, at `now` (Unix seconds).

        For evaluating policies offline: it has no use record, so nothing can be issued to it.
        """
        return cls(provider, claims, (), now, now)

    def use_record(self, nonce: str) -> str:
        """Name the use record, of the token itself or of a reusable identity's nonce, as lowercase hex SHA-256."""
        parts = [*self.use_parts, nonce] if self.provider.rules.reusable else [*self.use_parts]
        return hashlib.sha256(jcs.canonical(parts)).hexdigest()

    def provenance(self) -> dict[str, JSON]:
        """Return the public part of the caller: provider, issuer and allow-listed immutable ids."""
        return {
            "provider": self.provider.id,
            "issuer": self.provider.issuer,
            **self.short_claims(self.provider.rules.provenance),
        }

    def short_claims(self, names: Iterable[str]) -> dict[str, Scalar]:
        """Return those of the named claims that are present and short scalars."""
        return {name: value for name in names if _is_short(value := self.claims.get(name))}


def _is_short(value: JSON) -> TypeGuard[Scalar]:
    return len(value) <= 512 if type(value) is str else isinstance(value, int) and len(str(value)) <= 512


class ClaimNames(Struct, frozen=True):
    """The claims of a caller that are `read` for a decision, each once, and those that are `audited`: the read ones,
    those that they are derived from, and those that the verify token names."""

    read: tuple[str, ...]
    audited: tuple[str, ...]

    @classmethod
    def of(cls, rules: Profile, registered: Iterable[str] = ()) -> ClaimNames:
        """Name the claims of a profile's callers; `registered` are those that a registered identity requires."""
        foreign = (rules.foreign.claims[0], rules.foreign.home, rules.foreign.commit) if rules.foreign else ()
        event = (rules.event_claim,) if rules.event_claim else ()
        scope = ("scope",) if rules.scope else ()
        names = (*rules.pins, *rules.names, *event, *scope, *rules.demands, *foreign, *registered)
        read = tuple(dict.fromkeys(names))
        sources = (rules.derived[name].path[0] for name in read if name in rules.derived)
        return cls(read, tuple(dict.fromkeys((*read, *sources, *rules.provenance))))
