"""The record of what was revoked: who did it, when and why. A file of JSON Lines, which only grows.

Relying parties read the signed list, which has neither names nor reasons. The record is the operators'.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct

from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place
from issuer.formats.strict_json import convert
from issuer.formats.times import UnixTime
from issuer.formats.versions import VersionOne
from issuer.policy.stops import is_what
from issuer.service.bounds import MAX_REASON_CHARS
from issuer.verify.revocations import Items, RevokedInterval, items_of
from issuer.verify_token import is_jti

JTI_RULE = "a jti is 22 characters of base64url, as the token and the audit have it"
SUB_RULE = "an integration's id is lowercase words joined by `-`"


class Act(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="version", tag=1):
    """A line of the record, which begins with its `version`: `who` revoked these tokens or intervals at `time` (Unix
    seconds), and `why`."""

    time: UnixTime
    who: str
    why: Annotated[str, Meta(max_length=MAX_REASON_CHARS)]
    jti: tuple[str, ...] = ()
    sub: tuple[RevokedInterval, ...] = ()

    @property
    def items(self) -> Items:
        """What was revoked."""
        return items_of(self.jti, self.sub)


def check_act(act: Act) -> None:
    """Raise FormatError for an act that revokes nothing, or what no token can have, or for no reason; and for one that
    would not be read again."""
    convert(msgspec.to_builtins(act), Act)
    _check(act)


def _check(act: Act) -> None:
    if not act.why.strip():
        raise FormatError(Code.FILE_RULE, "a reason is not empty", "/why")
    if not act.jti and not act.sub:
        raise FormatError(Code.FILE_RULE, "it revokes nothing")
    for index, jti in enumerate(act.jti):
        if not is_jti(jti):
            raise FormatError(Code.FILE_RULE, JTI_RULE, f"/jti/{index}")
    for index, interval in enumerate(act.sub):
        if not is_what(f"integration:{interval.sub}"):
            raise FormatError(Code.FILE_RULE, SUB_RULE, f"/sub/{index}/sub")
        if interval.until is not UNSET and interval.until < interval.from_:
            raise FormatError(Code.FILE_RULE, "it ends before it begins", f"/sub/{index}/until")


def items_in(acts: Iterable[Act]) -> Items:
    """Return all that these acts revoke."""
    listed = [*acts]
    jtis = (jti for act in listed for jti in act.jti)
    return items_of(jtis, (interval for act in listed for interval in act.sub))


_read_version = msgspec.json.Decoder(VersionOne).decode
_read = msgspec.json.Decoder(Act).decode


def read_acts(raw: bytes, name: str) -> tuple[tuple[Act, ...], InputError | None]:
    """Return the lines of a record that are good, and what is wrong with the first one that is not."""
    acts: list[Act] = []
    first: InputError | None = None
    for number, line in enumerate(raw.splitlines(), 1):
        try:
            _read_version(line)
            act = _read(line)
            _check(act)
            acts.append(act)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            code = Code.FILE_SCHEMA if isinstance(error, msgspec.ValidationError) else Code.FILE_SYNTAX
            first = first or InputError(code, f"no line of a record: {error}", Place(name, number, 1))
        except FormatError as error:
            first = first or error.located(Place(name, number, 1))
    return tuple(acts), first


def write_acts(acts: Iterable[Act]) -> bytes:
    """Write a record."""
    return b"".join(msgspec.json.encode(act) + b"\n" for act in acts)
