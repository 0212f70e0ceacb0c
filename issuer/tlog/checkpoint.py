"""Checkpoints (c2sp.org/tlog-checkpoint): the text that a log signs about its tree. Pure.

Knows the text alone. Who signed it is the matter of `note.py`; whether two of them agree is that of `merkle.py`.
"""

from __future__ import annotations

import re

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.tlog.base64 import decode_base64, encode_base64

ROOT_BYTES = 32
MAX_SIZE = 2**63 - 1  # leaves; the largest number that every reader of C2SP formats holds
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")
_LINE = re.compile(r"[^\x00-\x1f\ud800-\udfff]+")  # what a line of a signed note may hold


class Checkpoint(Struct, frozen=True):
    """A tree head: `root` (32 bytes) of the first `size` leaves of the log `origin`.

    `extensions` are opaque lines, which an ML-DSA-44 cosignature does not cover. Raises FormatError(`log.malformed`)
    for values that have no text.
    """

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _LINE.fullmatch(self.origin):
            raise malformed("the origin of a checkpoint is one line that is not empty")
        if not 0 <= self.size <= MAX_SIZE:
            raise malformed("the size of a checkpoint is a number from 0 to 2^63 - 1")
        if len(self.root) != ROOT_BYTES:
            raise malformed("the root of a checkpoint has 32 bytes")
        if not all(_LINE.fullmatch(line) for line in self.extensions):
            raise malformed("an extension of a checkpoint is one line that is not empty")

    def to_text(self) -> str:
        """Write the note text, which ends in LF."""
        lines = (self.origin, str(self.size), encode_base64(self.root), *self.extensions)
        return "".join(f"{line}\n" for line in lines)


def parse_checkpoint(text: str) -> Checkpoint:
    """Read the text of a note as a checkpoint. Its signatures are still to be verified.

    Raises FormatError(`log.malformed`) with the line.
    """
    *lines, rest = text.split("\n")
    if rest or len(lines) < 3:
        raise malformed("a checkpoint has at least three lines (origin, size, root), each ending in LF")
    origin, size, root, *extensions = lines
    if not _SIZE.fullmatch(size):
        raise malformed("the size of a checkpoint is decimal, without sign or leading zeros", line=2)
    hashed = decode_base64(root)
    if hashed is None or len(hashed) != ROOT_BYTES:
        raise malformed("the root of a checkpoint is the canonical base64 of 32 bytes", line=3)
    return Checkpoint(origin, int(size), hashed, tuple(extensions))


def malformed(detail: str, *, line: int = 0) -> FormatError:
    """Return the error for what does not parse as a format of the log."""
    return FormatError(Code.LOG_MALFORMED, detail, line=line)
