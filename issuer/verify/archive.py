"""The keys that an issuer once signed with, and when (contract section 5, `jwks-archive.json`). Pure.

Files outlive tokens and key sets. An archive is a JWK set whose members also say `active_from`, `last_token_exp`
(absent while the key still signs) and `revoked_from`, in Unix seconds. `check_token` judges what a window and a
revocation mean.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, Struct, UnsetType

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.formats import jose
from issuer.formats.strict_json import JSON, convert, loads
from issuer.formats.times import UnixTime

MAX_BYTES = 1024 * 1024
MAX_ARCHIVED = 1024


class _Window(Struct, frozen=True):
    active_from: UnixTime
    last_token_exp: UnixTime | UnsetType = UNSET
    revoked_from: UnixTime | UnsetType = UNSET


class ArchivedKey(Struct, frozen=True):
    """A key with its window: `active_from` to `last_token_exp` (None: no end yet), and since when it is revoked."""

    key: jose.Key
    active_from: int
    last_token_exp: int | None
    revoked_from: int | None

    def covers(self, moment: int, leeway_s: int = 0) -> bool:
        """Say whether a moment lies in the window; `leeway_s` is how far the issuer's clock may run ahead."""
        return self.active_from - leeway_s <= moment and (self.last_token_exp is None or moment <= self.last_token_exp)


Archive = Mapping[str, ArchivedKey]


def parse_archive(raw: bytes) -> Archive:
    """Read an archive set of at most 1 MiB and 1024 keys, by kid.

    Raises FormatError for one that is malformed, names a kid twice, or holds a key that must not verify anything
    (jose.parse_key) or has no good window: a skipped key could be a revoked one.
    """
    value = loads(raw, max_bytes=MAX_BYTES, max_depth=8)
    members = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(members, list) or len(members) > MAX_ARCHIVED:
        raise FormatError(Code.FILE_SCHEMA, f"not a JWK set with a list `keys` of at most {MAX_ARCHIVED}")
    found: dict[str, ArchivedKey] = {}
    for index, member in enumerate(members):
        try:
            archived = _read(member)
        except FormatError as error:
            raise error.within(f"/keys/{index}") from None
        if archived.key.kid in found:
            raise FormatError(Code.FILE_RULE, "this kid stands here twice", f"/keys/{index}/kid")
        found[archived.key.kid] = archived
    return found


def _read(member: JSON) -> ArchivedKey:
    window = convert(member, _Window)
    if (key := jose.parse_key(member)) is None:
        raise FormatError(Code.FILE_RULE, "a key that must not verify anything")
    end, revoked = (None if time is UNSET else time for time in (window.last_token_exp, window.revoked_from))
    if end is not None and end < window.active_from:
        raise FormatError(Code.FILE_RULE, "ends before it begins", "/last_token_exp")
    return ArchivedKey(key, window.active_from, end, revoked)
