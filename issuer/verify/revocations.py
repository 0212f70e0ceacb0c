"""An issuer's revocation list (contract section 6, `revocations.json`): reading and writing it. Pure.

A JWS with `typ` `eval-revocations+jwt`, signed by a key that `revocation_keys` lists. The payload has exactly: `ver` 1,
`iss`, `iat`, `number` (which only grows), `jti` (token ids), `sub` (a list of `{sub, from, until}`, which revokes the
tokens that an integration got in that interval) and `next_update` (Unix seconds, at most 7 days after `iat`; after it,
the list no longer shows that other tokens are good). A relying party that has seen a newer list refuses an older one:
see `objection`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Annotated, Final, Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.formats import jose
from issuer.formats.strict_json import JSON, Text, convert
from issuer.formats.times import MAX_UNIX_S, UnixTime, show_span
from issuer.verify.signed_statement import read_statement, write_statement

REVOCATIONS_TYPE: Final = "eval-revocations+jwt"
MAX_BYTES = 4 * 1024 * 1024
# How long a list may show that other tokens are good. An attacker who can hold back newer lists gains at most this
# time.
LONGEST_S = 7 * 86_400
# How far the issuer's clock may run ahead of the relying party's.
LEEWAY_S = 60


class RevokedInterval(Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """The tokens of `sub` with an `iat` from `from` to `until`, both included; without `until`, all from `from` on."""

    sub: Text
    from_: UnixTime
    until: UnixTime | UnsetType = UNSET

    def has(self, iat: int) -> bool:
        """Say whether the interval has a token with this `iat` (Unix seconds)."""
        return self.from_ <= iat and (self.until is UNSET or iat <= self.until)


class _Payload(Struct, frozen=True, forbid_unknown_fields=True):
    ver: Literal[1]
    iss: Text
    iat: UnixTime
    number: Annotated[int, Meta(ge=0)]
    next_update: UnixTime
    jti: list[Text]
    sub: list[RevokedInterval]


class Items(Struct, frozen=True):
    """Revoked tokens by `jti`, and revoked intervals by integration."""

    jtis: frozenset[str]
    intervals: Mapping[str, tuple[RevokedInterval, ...]]

    def revoked(self, jti: str, sub: str, iat: int) -> str:
        """Return why a token is revoked, or "" if it is not."""
        if jti in self.jtis:
            return "the issuer has revoked this jti"
        if any([interval.has(iat) for interval in self.intervals.get(sub, ())]):  # noqa: C419 (a list is faster here)
            return f"the issuer has revoked what {sub} had signed at that time"
        return ""

    def missing(self, other: Items) -> int:
        """Return how many items of `other` are missing here."""
        found = sum(len({*had} - {*self.intervals.get(sub, ())}) for sub, had in other.intervals.items())
        return found + len(other.jtis - self.jtis)

    def with_those_of(self, other: Items) -> Items:
        """Return the items of both."""
        both = chain(*self.intervals.values(), *other.intervals.values())
        return items_of(self.jtis | other.jtis, both)

    @property
    def count(self) -> int:
        """The number of items."""
        return len(self.jtis) + sum(map(len, self.intervals.values()))


def items_of(jtis: Iterable[str], intervals: Iterable[RevokedInterval]) -> Items:
    """Collect items without duplicates; intervals keep their order."""
    by_sub: defaultdict[str, list[RevokedInterval]] = defaultdict(list)
    for interval in dict.fromkeys(intervals):
        by_sub[interval.sub].append(interval)
    return Items(frozenset(jtis), {sub: tuple(found) for sub, found in by_sub.items()})


class Revocations(Items, frozen=True):
    """One issuer's revocations. A list past `next_update` still revokes the tokens that it names. `kid` names the key
    that signed it. `held`: an earlier list, used because today's is unavailable; it revokes the tokens that it names,
    but does not show that other tokens are good."""

    iat: int
    number: int
    next_update: int
    kid: str
    held: bool = False


def objection(newer: Revocations, seen: Revocations) -> str:
    """Return why `newer` must be refused by a party that has seen the list `seen` of the same issuer (a rollback), or
    ""."""
    if newer.number < seen.number:
        return f"its number is {newer.number}, but list {seen.number} was seen before"
    if newer.iat < seen.iat:
        return f"it was issued {show_span(seen.iat - newer.iat)} before a list that was seen earlier"
    lost = newer.missing(seen)
    return f"it lacks {lost} of the items of a list that was seen earlier" if lost else ""


def newest(found: Revocations | None, seen: Sequence[Revocations], now: int) -> tuple[Revocations | None, str]:
    """Return the list that counts, given the lists of this issuer seen before, and why `found` was refused, or "". If
    `found` is None (unavailable), the last list seen counts, as `held`. A list from the future is refused as well: it
    could outlive every good one."""
    last = max(seen, key=lambda earlier: (earlier.number, earlier.iat), default=None)
    if found is None or found.iat > now + LEEWAY_S:
        reason = "" if found is None else f"it is dated {show_span(found.iat - now)} in the future"
        return (None if last is None else replace(last, held=True)), reason
    reason = next(filter(None, (objection(found, earlier) for earlier in seen)), "")
    return (last, reason) if reason else (found, "")


def parse_revocations(raw: bytes, issuer: str, keys: jose.KeySet) -> Revocations:
    """Read an issuer's list of at most 4 MiB. Raises FormatError if it is another issuer's or not signed by one of the
    keys."""
    text = _text(raw)
    payload = convert(read_statement(text, REVOCATIONS_TYPE, keys, MAX_BYTES), _Payload)
    if payload.iss != issuer:
        raise FormatError(Code.FILE_RULE, "it is another issuer's list", "/iss")
    if not 0 <= payload.next_update - payload.iat <= LONGEST_S:
        raise FormatError(Code.FILE_RULE, f"not within {LONGEST_S} s after iat", "/next_update")
    for index, interval in enumerate(payload.sub):
        if interval.until is not UNSET and interval.until < interval.from_:
            raise FormatError(Code.FILE_RULE, "ends before it begins", f"/sub/{index}/until")
    items = items_of(payload.jti, payload.sub)
    kid = str(jose.parse_compact(text, MAX_BYTES).header["kid"])
    return Revocations(items.jtis, items.intervals, payload.iat, payload.number, payload.next_update, kid)


def write_revocations(
    items: Items, issuer: str, key: Ed25519PrivateKey, *, number: int, iat: int, next_update: int
) -> bytes:
    """Sign an issuer's list; the order of items does not depend on their order in `items`. The publisher must read it
    back, because it may be too large for `parse_revocations`. Times are Unix seconds."""
    intervals = sorted(chain.from_iterable(items.intervals.values()), key=_in_order)
    listed: list[JSON] = msgspec.to_builtins(intervals)
    times = {"iat": iat, "number": number, "next_update": next_update}
    return write_statement(
        REVOCATIONS_TYPE, {"ver": 1, "iss": issuer, **times, "jti": [*sorted(items.jtis)], "sub": listed}, key
    )


def _in_order(interval: RevokedInterval) -> tuple[str, int, int]:
    return interval.sub, interval.from_, MAX_UNIX_S + 1 if interval.until is UNSET else interval.until


def check_form(raw: bytes) -> None:
    """Raise FormatError if the bytes cannot be a revocation list, whatever the key."""
    jose.parse_compact(_text(raw), MAX_BYTES)


def _text(raw: bytes) -> str:
    """Decode a list, which is ASCII; a file may end with a line break."""
    if len(raw) > MAX_BYTES or not raw.isascii():
        raise FormatError(Code.JWS_MALFORMED, f"not a JWS in ASCII of at most {MAX_BYTES} bytes")
    return raw.decode("ascii").strip("\r\n")
