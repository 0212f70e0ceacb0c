"""An issuer's revocation list (contract section 5, `revocations.json`). Pure.

A JWS, `typ` `eval-revocations+jwt`, by a key listed under `revocation_keys`. Payload, a closed set: `ver` 1, `iss`,
`iat`, `number` (which only grows), `jti` (a list of token ids), `sub` (a list of `{sub, from, until}`: what the
integration got signed in that interval is bad), `next_update` (Unix seconds, at most 7 days after `iat`: after it the
list no longer clears what it does not name). Who has seen a newer list refuses an older one: see `objection`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.formats import jose
from issuer.formats.strict_json import Text, convert
from issuer.formats.times import UnixTime
from issuer.verify.statement import read_statement

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


class _Payload(Struct, frozen=True, forbid_unknown_fields=True):
    ver: Literal[1]
    iss: Text
    iat: UnixTime
    number: Annotated[int, Meta(ge=0)]
    next_update: UnixTime
    jti: list[Text]
    sub: list[RevokedInterval]


class Revocations(Struct, frozen=True):
    """What one issuer has revoked. A list that is past `next_update` still revokes what it names.

    `kid` names the key that signed it. A list that is `held` was seen before, and the one of today is not to be had: it
    revokes what it names and clears nothing.
    """

    jtis: frozenset[str]
    intervals: Mapping[str, tuple[RevokedInterval, ...]]
    iat: int
    number: int
    next_update: int
    kid: str
    held: bool = False

    def revoked(self, jti: str, sub: str, iat: int) -> str:
        """Return why a token is revoked, or "" where this list does not name it."""
        if jti in self.jtis:
            return "the issuer has revoked this jti"
        for interval in self.intervals.get(sub, ()):
            if interval.from_ <= iat and (interval.until is UNSET or iat <= interval.until):
                return f"the issuer has revoked what {sub} had signed at that time"
        return ""


def objection(newer: Revocations, seen: Revocations) -> str:
    """Return why who has seen one list must refuse another one of the same issuer, or "": it was rolled back."""
    if newer.number < seen.number:
        return f"its number is {newer.number}, and {seen.number} has been seen"
    if newer.iat < seen.iat:
        return f"it was issued {seen.iat - newer.iat} s before one that has been seen"
    lost = len(seen.jtis - newer.jtis)
    lost += sum(len({*found} - {*newer.intervals.get(sub, ())}) for sub, found in seen.intervals.items())
    return f"it lacks {lost} of the items of one that has been seen" if lost else ""


def newest(found: Revocations | None, seen: Sequence[Revocations], now: int) -> tuple[Revocations | None, str]:
    """Return the list that counts where others of this issuer have been seen, and why the one found was refused, or "".

    None is a list that is not to be had: the last one seen is then `held`. A list from the future could outlive every
    good one, and is refused, too.
    """
    last = max(seen, key=lambda each: (each.number, each.iat), default=None)
    if found is None or found.iat > now + LEEWAY_S:
        reason = "" if found is None else f"it is dated {found.iat - now} s in the future"
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
    intervals: defaultdict[str, list[RevokedInterval]] = defaultdict(list)
    for index, interval in enumerate(payload.sub):
        if interval.until is not UNSET and interval.until < interval.from_:
            raise FormatError(Code.FILE_RULE, "ends before it begins", f"/sub/{index}/until")
        intervals[interval.sub].append(interval)
    by_sub = {sub: tuple(found) for sub, found in intervals.items()}
    kid = str(jose.parse_compact(text, MAX_BYTES).header["kid"])
    return Revocations(frozenset(payload.jti), by_sub, payload.iat, payload.number, payload.next_update, kid)


def check_form(raw: bytes) -> None:
    """Raise FormatError for bytes that cannot be a list under any key."""
    jose.parse_compact(_text(raw), MAX_BYTES)


def _text(raw: bytes) -> str:
    """Read the text of a list, which is ASCII; a file may end with a line break."""
    if len(raw) > MAX_BYTES or not raw.isascii():
        raise FormatError(Code.JWS_MALFORMED, f"not a JWS in ASCII of at most {MAX_BYTES} bytes")
    return raw.decode("ascii").strip("\r\n")
