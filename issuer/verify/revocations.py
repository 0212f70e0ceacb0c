"""An issuer's revocation list (contract section 5, `revocations.json`). Pure.

A JWS, `typ` `eval-revocations+jwt`, by a key listed under `revocation_keys`. Payload, a closed set: `ver` 1, `iss`,
`jti` (a list of token ids), `sub` (a list of `{sub, from, until}`: what the integration got signed in that interval is
bad), `next_update` (Unix seconds: after it the list no longer clears what it does not name).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final, Literal

from msgspec import UNSET, Struct, UnsetType

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.formats import jose
from issuer.formats.strict_json import Text, convert
from issuer.formats.times import UnixTime
from issuer.verify.statement import read_statement

REVOCATIONS_TYPE: Final = "eval-revocations+jwt"
MAX_BYTES = 4 * 1024 * 1024


class RevokedInterval(Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """The tokens of `sub` with an `iat` from `from` to `until`, both included; without `until`, all since `from`."""

    sub: Text
    from_: UnixTime
    until: UnixTime | UnsetType = UNSET


class _Payload(Struct, frozen=True, forbid_unknown_fields=True):
    ver: Literal[1]
    iss: Text
    next_update: UnixTime
    jti: list[Text]
    sub: list[RevokedInterval]


class Revocations(Struct, frozen=True):
    """What one issuer has revoked. A list that is past `next_update` still revokes what it names."""

    jtis: frozenset[str]
    intervals: Mapping[str, tuple[RevokedInterval, ...]]
    next_update: int

    def revoked(self, jti: str, sub: str, iat: int) -> str:
        """Return why a token is revoked, or "" where this list does not name it."""
        if jti in self.jtis:
            return "the issuer has revoked this jti"
        for interval in self.intervals.get(sub, ()):
            if interval.from_ <= iat and (interval.until is UNSET or iat <= interval.until):
                return f"the issuer has revoked what {sub} had signed at that time"
        return ""


def parse_revocations(raw: bytes, issuer: str, keys: jose.KeySet) -> Revocations:
    """Read an issuer's list of at most 4 MiB. Raises FormatError for another issuer's, or one not signed by them."""
    payload = convert(read_statement(_text(raw), REVOCATIONS_TYPE, keys, MAX_BYTES), _Payload)
    if payload.iss != issuer:
        raise FormatError(Code.FILE_RULE, "it is another issuer's list", "/iss")
    intervals: defaultdict[str, list[RevokedInterval]] = defaultdict(list)
    for index, interval in enumerate(payload.sub):
        if interval.until is not UNSET and interval.until < interval.from_:
            raise FormatError(Code.FILE_RULE, "ends before it begins", f"/sub/{index}/until")
        intervals[interval.sub].append(interval)
    by_sub = {sub: tuple(found) for sub, found in intervals.items()}
    return Revocations(frozenset(payload.jti), by_sub, payload.next_update)


def check_form(raw: bytes) -> None:
    """Raise FormatError for bytes that cannot be a list under any key."""
    jose.parse_compact(_text(raw), MAX_BYTES)


def _text(raw: bytes) -> str:
    """Read the text of a list, which is ASCII; a file may end with a line break."""
    if len(raw) > MAX_BYTES or not raw.isascii():
        raise FormatError(Code.JWS_MALFORMED, f"not a JWS in ASCII of at most {MAX_BYTES} bytes")
    return raw.decode("ascii").strip("\r\n")
