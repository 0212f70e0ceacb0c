"""What a monitor has verified so far, in one file: the last signed checkpoint, and what was announced up to there.

The checkpoint is kept as it was signed: with a second one that contradicts it, it shows anyone that the log is forked.
"""

from __future__ import annotations

import binascii
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from issuer import files
from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place
from issuer.relying.log_checkpoint import Head
from issuer.tlog.checkpoint import parse_checkpoint
from issuer.tlog.leaf import KeyState
from issuer.tlog.note import parse_note
from issuer.tlog.watch import MAX_ANNOUNCED, MAX_UNMATCHED, Announced

# At most 55 bytes of an announcement in this form.
_MAX_BYTES = 64 * (MAX_ANNOUNCED + MAX_UNMATCHED) + 512 * 1024


class _Kept(Struct, frozen=True, forbid_unknown_fields=True):
    """The file. Digests are in base64; `compared` is the integration whose tokens were compared, or ""."""

    version: Literal[1]
    note: str
    time: int | None
    compared: str
    keys: dict[str, KeyState]
    policies: list[bytes]
    unmatched: list[bytes]


class Followed(Struct, frozen=True):
    """How far a log has been followed: to `head`, None before the first time."""

    head: Head | None
    compared: str
    announced: Announced


def read_followed(path: Path) -> Followed | None:
    """Read the state file; None where there is none. Raises InputError: without it nothing older is compared, so a
    damaged one is not passed over."""
    if not path.is_symlink() and not path.exists():
        return None
    try:
        kept = msgspec.json.decode(files.read(path, _MAX_BYTES, private=True), type=_Kept)
        note = parse_note(kept.note.encode())
        head = Head(note, parse_checkpoint(note.text), kept.time)
        keys = {binascii.a2b_base64(name, strict_mode=True): state for name, state in kept.keys.items()}
    except (msgspec.MsgspecError, FormatError, ValueError):
        rule = "it is no state of `issuer log monitor`, or damaged"
        raise InputError(Code.FILE_SYNTAX, rule, Place(str(path))) from None
    return Followed(head, kept.compared, Announced(keys, set(kept.policies), set(kept.unmatched)))


def write_followed(path: Path, head: Head, compared: str, announced: Announced) -> None:
    """Replace the state file, 0600, on the disk before this returns. Raises OSError."""
    kept = _Kept(
        1, head.note.to_bytes().decode(), head.time, compared,
        {binascii.b2a_base64(digest, newline=False).decode(): state for digest, state in announced.keys.items()},
        sorted(announced.policies), sorted(announced.unmatched),
    )  # fmt: skip
    files.make_folder(path.parent)
    files.replace(path, msgspec.json.encode(kept), mode=0o600, durable=True)
