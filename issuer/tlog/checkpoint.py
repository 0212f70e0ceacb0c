"""Checkpoints: the text that a log signs about its tree, and its request to a witness. Pure.

Implements c2sp.org/tlog-checkpoint and the messages of c2sp.org/tlog-witness, with the base64 (RFC 4648 section 4) of
all C2SP formats. `note.py` verifies the signatures, `merkle.py` the hashes, `witness/witness.py` judges a submission.
"""

from __future__ import annotations

import binascii
import hashlib
import re

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.tlog.merkle import HASH_BYTES


def encode_base64(data: bytes) -> str:
    """Write bytes in the standard alphabet, padded, in one line."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def decode_base64(text: str) -> bytes | None:
    """Read canonical base64; None for anything else: another alphabet, no padding, stray bits, line ends. Two texts for
    one value would be two notes, or two proofs, of one statement: RFC 4648 3.5."""
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # also for text that is not ASCII
        return None
    return data if encode_base64(data) == text else None


MAX_SIZE = 2**63 - 1  # leaves; the largest number that every reader of C2SP formats holds
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")
_LINE = re.compile(r"[^\x00-\x1f\ud800-\udfff]+")  # what a line of a signed note may hold


class Checkpoint(Struct, frozen=True):
    """A tree head: `root` (32 bytes) of the first `size` leaves of the log `origin`. `extensions` are opaque lines,
    which an ML-DSA-44 cosignature does not cover. Raises FormatError(`log.malformed`) for values that have no text."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _LINE.fullmatch(self.origin):
            raise malformed("the origin of a checkpoint is one line that is not empty")
        if not 0 <= self.size <= MAX_SIZE:
            raise malformed("the size of a checkpoint is a number from 0 to 2^63 - 1")
        if len(self.root) != HASH_BYTES:
            raise malformed("the root of a checkpoint has 32 bytes")
        if not all(_LINE.fullmatch(line) for line in self.extensions):
            raise malformed("an extension of a checkpoint is one line that is not empty")

    def to_text(self) -> str:
        """Write the note text, which ends in LF."""
        lines = (self.origin, str(self.size), encode_base64(self.root), *self.extensions)
        return "".join(f"{line}\n" for line in lines)


def parse_checkpoint(text: str) -> Checkpoint:
    """Read the text of a note as a checkpoint. Its signatures are still to be verified. Raises
    FormatError(`log.malformed`) with the line."""
    *lines, rest = text.split("\n")
    if rest or len(lines) < 3:
        raise malformed("a checkpoint has at least three lines (origin, size, root), each ending in LF")
    origin, size, root, *extensions = lines
    if not _SIZE.fullmatch(size):
        raise malformed("the size of a checkpoint is decimal, without sign or leading zeros", line=2)
    return Checkpoint(origin, int(size), parse_hash(root, "the root of a checkpoint", line=3), tuple(extensions))


def parse_hash(text: str, what: str, *, line: int = 0) -> bytes:
    """Read the base64 of a hash. Raises FormatError(`log.malformed`), which says `what` it is."""
    hashed = decode_base64(text)
    if hashed is None or len(hashed) != HASH_BYTES:
        raise malformed(f"{what} is the canonical base64 of {HASH_BYTES} bytes", line=line)
    return hashed


def malformed(detail: str, pointer: str = "", *, line: int = 0) -> FormatError:
    """Return the error for text that is not of a format of the log."""
    return FormatError(Code.LOG_MALFORMED, detail, pointer, line=line)


# Relative to a witness's submission prefix.
ADD_CHECKPOINT_PATH = "/add-checkpoint"
SIZE_TYPE = "text/x.tlog.size"
MAX_PROOF_LINES = 63
# 63 lines, and a note with twenty signatures of the largest kind.
MAX_SUBMISSION_BYTES = 64 * 1024

_DECIMAL = r"(0|[1-9][0-9]{0,18})"
_OLD_LINE = re.compile(rf"old {_DECIMAL}")
_SIZE_BODY = re.compile(rf"{_DECIMAL}\n".encode())


class WitnessSubmission(Struct, frozen=True):
    """A checkpoint for a witness. `proof` shows that the tree of `old` leaves, which the witness cosigned last, is a
    prefix of the one in `note` (the bytes of a signed checkpoint); it is empty where `old` is 0."""

    old: int
    proof: tuple[bytes, ...]
    note: bytes

    def to_bytes(self) -> bytes:
        """Write the body of the request."""
        lines = [f"old {self.old}", *map(encode_base64, self.proof), "", ""]
        return "\n".join(lines).encode() + self.note


def read_submission(raw: bytes) -> WitnessSubmission:
    """Read the body of a request; the note in it is still to be parsed. Raises FormatError(`log.malformed`)."""
    head, blank, note = raw.partition(b"\n\n")
    if not blank:
        raise malformed("a submission has an empty line before its checkpoint")
    try:
        first, *lines = head.decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise malformed("what stands before a submission's checkpoint is ASCII") from None
    if not (old := _OLD_LINE.fullmatch(first)):
        raise malformed("the first line of a submission reads `old N`, N decimal without leading zeros", line=1)
    if len(lines) > MAX_PROOF_LINES:
        raise malformed(f"a consistency proof has at most {MAX_PROOF_LINES} lines")
    return WitnessSubmission(
        int(old[1]), tuple(parse_hash(line, "a line of a consistency proof") for line in lines), note
    )


def size_body(size: int) -> bytes:
    """Write the body of a 409: the size that the witness cosigned last."""
    return b"%d\n" % size


def read_size(raw: bytes) -> int | None:
    """Read the body of a 409; None where it is no size. It is signed by nobody."""
    found = _SIZE_BODY.fullmatch(raw)
    return int(found[1]) if found else None


def checkpoint_path(origin: str) -> str:
    """Return where a witness shows the checkpoint of a log that it cosigned last, relative to its monitoring prefix."""
    return f"/{hashlib.sha256(origin.encode()).hexdigest()}/checkpoint"
