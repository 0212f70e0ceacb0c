"""An issuer's revocation list (contract section 5, `revocations.json`). Pure.

A JWS, `typ` `eval-revocations+jwt`, by a key listed under `revocation_keys`. Payload, a closed set: `ver` 1, `iss`,
`iat`, `number` (which only grows), `jti` (a list of token ids), `sub` (a list of `{sub, from, until}`: what the
integration got signed in that interval is bad), `next_update` (Unix seconds, at most 7 days after `iat`: after it the
list no longer clears what it does not name). Who has seen a newer list refuses an older one: see `objection`. An
issuer writes it here, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal

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
# How long a list may clear what it does not name: who can hold back newer ones gains as much and no more.
LONGEST_S = 7 * 86_400
# How far the issuer's clock may run ahead of the relying party's.
LEEWAY_S = 60


class RevokedInterval(Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """The tokens of `sub` with an `iat` from `from` to `until`, both included; without `until`, all since `from`."""

    sub: Text
    from_: UnixTime
    until: UnixTime | UnsetType = UNSET

    def has(self, iat: int) -> bool:
        """Say whether a token of this moment, Unix seconds, is among them."""
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
    """What is revoked: tokens by their `jti`, and intervals by the integration that had something signed in them."""

    jtis: frozenset[str]
    intervals: Mapping[str, tuple[RevokedInterval, ...]]

    def revoked(self, jti: str, sub: str, iat: int) -> str:
        """Return why a token is revoked, or "" where it is not among these."""
        if jti in self.jtis:
            return "the issuer has revoked this jti"
        if any([interval.has(iat) for interval in self.intervals.get(sub, ())]):  # noqa: C419 (a list is faster here)
            return f"the issuer has revoked what {sub} had signed at that time"
        return ""

    def missing(self, other: Items) -> int:
        """Return how many of another's items these lack."""
        found = sum(len({*had} - {*self.intervals.get(sub, ())}) for sub, had in other.intervals.items())
        return found + len(other.jtis - self.jtis)

    def with_those_of(self, other: Items) -> Items:
        """Return both together."""
        both = (one for items in (self, other) for of_one in items.intervals.values() for one in of_one)
        return items_of(self.jtis | other.jtis, both)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.jtis) + sum(map(len, self.intervals.values()))


def items_of(jtis: Iterable[str], intervals: Iterable[RevokedInterval]) -> Items:
    """Put items together, each once, intervals in the order in which they come."""
    by_sub: defaultdict[str, list[RevokedInterval]] = defaultdict(list)
    for interval in dict.fromkeys(intervals):
        by_sub[interval.sub].append(interval)
    return Items(frozenset(jtis), {sub: tuple(found) for sub, found in by_sub.items()})


class Revocations(Items, frozen=True):
    """What one issuer has revoked. A list that is past `next_update` still revokes what it names. `kid` names the key
    that signed it. A list that is `held` was seen before, and the one of today is not to be had: it revokes what it
    names and clears nothing."""

    iat: int
    number: int
    next_update: int
    kid: str
    held: bool = False


def objection(newer: Revocations, seen: Revocations) -> str:
    """Return why who has seen one list must refuse another one of the same issuer, or "": it was rolled back."""
    if newer.number < seen.number:
        return f"its number is {newer.number}, and {seen.number} has been seen"
    if newer.iat < seen.iat:
        return f"it was issued {show_span(seen.iat - newer.iat)} before one that has been seen"
    lost = newer.missing(seen)
    return f"it lacks {lost} of the items of one that has been seen" if lost else ""


def newest(found: Revocations | None, seen: Sequence[Revocations], now: int) -> tuple[Revocations | None, str]:
    """Return the list that counts where others of this issuer have been seen, and why the one found was refused, or "".
    None is a list that is not to be had: the last one seen is then `held`. A list from the future could outlive every
    good one, and is refused, too."""
    last = max(seen, key=lambda each: (each.number, each.iat), default=None)
    if found is None or found.iat > now + LEEWAY_S:
        reason = "" if found is None else f"it is dated {show_span(found.iat - now)} in the future"
        return (None if last is None else replace(last, held=True)), reason
    reason = next(filter(None, (objection(found, each) for each in seen)), "")
    return (last, reason) if reason else (found, "")


def parse_revocations(raw: bytes, issuer: str, keys: jose.KeySet) -> Revocations:
    """Read an issuer's list of at most 4 MiB. Raises FormatError for another issuer's, or one not signed by them."""
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
    """Sign an issuer's list, in one order whatever theirs. Whoever publishes it must read it back: it may be too large
    for `parse_revocations`. Times are Unix seconds."""
    intervals = (one for of_one in items.intervals.values() for one in of_one)
    listed: list[JSON] = [_written(one) for one in sorted(intervals, key=_in_order)]
    payload: dict[str, JSON] = {
        "ver": 1, "iss": issuer, "iat": iat, "number": number, "next_update": next_update, "jti": [*sorted(items.jtis)],
        "sub": listed,
    }  # fmt: skip
    return write_statement(REVOCATIONS_TYPE, payload, key)


def _in_order(interval: RevokedInterval) -> tuple[str, int, int]:
    return interval.sub, interval.from_, MAX_UNIX_S + 1 if interval.until is UNSET else interval.until


def _written(interval: RevokedInterval) -> JSON:
    ends: dict[str, JSON] = {} if interval.until is UNSET else {"until": interval.until}
    return {"sub": interval.sub, "from": interval.from_, **ends}


def check_form(raw: bytes) -> None:
    """Raise FormatError for bytes that cannot be a list under any key."""
    jose.parse_compact(_text(raw), MAX_BYTES)


def _text(raw: bytes) -> str:
    """Read the text of a list, which is ASCII; a file may end with a line break."""
    if len(raw) > MAX_BYTES or not raw.isascii():
        raise FormatError(Code.JWS_MALFORMED, f"not a JWS in ASCII of at most {MAX_BYTES} bytes")
    return raw.decode("ascii").strip("\r\n")
