"""By what a relying party judged many results, and when: the head of a table and of a leaderboard. Pure.

Neither is signed: it is believed only as this party's own word, and says by which trust file it was made.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

import msgspec
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.formats.times import show_time
from issuer.verify.reproduction import EXACTLY, Tolerance
from issuer.verify.trust import Trust

TABLE_VERSION: Final = "2"
_AGAIN = "make it with `issuer verify DIR --to FILE.parquet` of this release"


class IssuerKeys(Struct, frozen=True):
    """A trusted issuer, and when its keys were last confirmed (Unix seconds; None: they are from a file)."""

    issuer: str
    keys_fetched_at: int | None


class Basis(Struct, frozen=True):
    """By what it was judged, and when (Unix seconds). `trust` is the digest of the trust file, `absent` what of that
    was not at hand and why, `release` the one that judged."""

    trust: str
    audience: str
    judged_at: int
    issuers: tuple[IssuerKeys, ...] = ()
    absent: tuple[str, ...] = ()
    release: str = ""

    @classmethod
    def of(cls, trust: Trust, now: int) -> Basis:
        """Say by what is judged with this trust at `now` (Unix seconds)."""
        issuers = tuple(IssuerKeys(name, issuer.keys_fetched_at) for name, issuer in trust.issuers.items())
        absent = tuple(f"{absence.pointer}: {absence.reason}" for absence in trust.absent)
        return cls(trust.digest, trust.audience, now, issuers, absent, version("eval-token-issuer"))


class TableHead(Struct, frozen=True):
    """What a table says of itself: by what it was judged, the `tolerance` of the trust file, and how many files."""

    basis: Basis
    tolerance: Tolerance = EXACTLY
    files: int = 0

    def as_text(self) -> dict[str, str]:
        """Return the key-value metadata of a Parquet file (TABLE.md)."""
        basis = self.basis
        return {
            "table_version": TABLE_VERSION, "trust_digest": basis.trust, "audience": basis.audience,
            "judged_at": show_time(basis.judged_at), "release": basis.release, "issuers": _json(basis.issuers),
            "absent": _json(basis.absent), "tolerance": _json(self.tolerance.absolute), "files": _json(self.files),
        }  # fmt: skip


def read_head(text: Mapping[str, str]) -> TableHead:
    """Read the metadata of a table. Raises FormatError (`file.rule`) where it has none, or another version."""
    made_as = text.get("table_version")
    if made_as is None:
        raise FormatError(Code.FILE_RULE, f"is no table of results: {_AGAIN}")
    if made_as != TABLE_VERSION:
        rule = f"is a table of another version than {TABLE_VERSION}, which is what this release reads: {_AGAIN}"
        raise FormatError(Code.FILE_RULE, rule)
    try:
        basis = Basis(
            text["trust_digest"], text["audience"], _read_time(text["judged_at"]),
            _read(text["issuers"], tuple[IssuerKeys, ...]), _read(text["absent"], tuple[str, ...]), text["release"],
        )  # fmt: skip
        tolerance = Tolerance(_read(text["tolerance"], dict[str, float]))
        return TableHead(basis, tolerance, _read(text["files"], int))
    except (KeyError, ValueError):  # msgspec's errors are such
        raise FormatError(Code.FILE_RULE, f"has metadata that no table has: {_AGAIN}") from None


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _read(text: str, kind: Any) -> Any:
    return msgspec.json.decode(text, type=kind)


def _read_time(text: str) -> int:
    moment = int(datetime.datetime.fromisoformat(text).timestamp())
    if show_time(moment) != text:
        raise ValueError
    return moment
