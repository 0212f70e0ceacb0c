"""Checkpoints, the text that a log signs about its tree, and the messages between a log and a witness. Pure.

Implements c2sp.org/tlog-checkpoint and the messages of c2sp.org/tlog-witness, with the base64 (RFC 4648 section 4) of
all C2SP formats. `note.py` verifies signatures, `merkle.py` verifies proofs, `witness/witness.py` judges submissions.
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
    """Return the base64 of bytes: standard alphabet, padded, one line."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def decode_base64(text: str) -> bytes | None:
    """Read canonical base64; return None for another alphabet, missing padding, stray bits or line ends. If a value had
    two texts, one statement would have two notes or proofs (RFC 4648 3.5)."""
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # also for text that is not ASCII
        return None
    return data if encode_base64(data) == text else None


MAX_SIZE = 2**63 - 1  # leaves; the largest number that every reader of C2SP formats can represent
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")
_LINE = re.compile(r"[^\x00-\x1f\ud800-\udfff]+")  # the characters that a line of a signed note may have


class Checkpoint(Struct, frozen=True):
    """A log's `origin`, the number of its leaves, and the root hash (32 bytes) of their tree. `extensions` are opaque
    lines, which an ML-DSA-44 cosignature does not cover. Raises FormatError(`log.malformed`) for values that cannot be
    written as a checkpoint."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _LINE.fullmatch(self.origin):
            raise malformed("the origin of a checkpoint must be one line that is not empty")
        if not 0 <= self.size <= MAX_SIZE:
            raise malformed("the size of a checkpoint must be a number from 0 to 2^63 - 1")
        if len(self.root) != HASH_BYTES:
            raise malformed("the root of a checkpoint must have 32 bytes")
        if not all(_LINE.fullmatch(line) for line in self.extensions):
            raise malformed("an extension of a checkpoint must be one line that is not empty")

    def to_text(self) -> str:
        """Return the text of the note, which ends in LF."""
        lines = (self.origin, str(self.size), encode_base64(self.root), *self.extensions)
        return "".join(f"{line}\n" for line in lines)


def parse_checkpoint(text: str) -> Checkpoint:
    """Read the text of a note as a checkpoint; the caller verifies the note's signatures. Raises
    FormatError(`log.malformed`) with the line."""
    *lines, rest = text.split("\n")
    if rest or len(lines) < 3:
        raise malformed("a checkpoint must have at least three lines (origin, size, root), each ending in LF")
    origin, size, root, *extensions = lines
    if not _SIZE.fullmatch(size):
        raise malformed("the size of a checkpoint must be decimal, without sign or leading zeros", line=2)
    return Checkpoint(origin, int(size), parse_hash(root, "the root of a checkpoint", line=3), tuple(extensions))


def parse_hash(text: str, what: str, *, line: int = 0) -> bytes:
    """Read the base64 of a hash. Raises FormatError(`log.malformed`) with a message about `what`."""
    hashed = decode_base64(text)
    if hashed is None or len(hashed) != HASH_BYTES:
        raise malformed(f"{what} must be the canonical base64 of {HASH_BYTES} bytes", line=line)
    return hashed


def malformed(detail: str, pointer: str = "", *, line: int = 0) -> FormatError:
    """Return the error for text that breaks one of the log's formats."""
    return FormatError(Code.LOG_MALFORMED, detail, pointer, line=line)


ADD_CHECKPOINT_PATH = "/add-checkpoint"  # relative to a witness's submission prefix
SIZE_TYPE = "text/x.tlog.size"
MAX_PROOF_LINES = 63
MAX_SUBMISSION_BYTES = 64 * 1024  # 63 proof lines, and a note with twenty signatures of the largest kind

_DECIMAL = r"(0|[1-9][0-9]{0,18})"
_OLD_LINE = re.compile(rf"old {_DECIMAL}")
_SIZE_BODY = re.compile(rf"{_DECIMAL}\n".encode())


class WitnessSubmission(Struct, frozen=True):
    """A checkpoint for a witness. `note` has the bytes of the signed checkpoint. `proof` shows that the tree of `old`
    leaves, which the witness cosigned last, is a prefix of the checkpoint's tree. It is empty if `old` is 0."""

    old: int
    proof: tuple[bytes, ...]
    note: bytes

    def to_bytes(self) -> bytes:
        """Return the body of the request."""
        lines = [f"old {self.old}", *map(encode_base64, self.proof), "", ""]
        return "\n".join(lines).encode() + self.note


def read_submission(raw: bytes) -> WitnessSubmission:
    """Read the body of a request; the caller parses its note. Raises FormatError(`log.malformed`)."""
    head, blank, note = raw.partition(b"\n\n")
    if not blank:
        raise malformed("a submission must have an empty line before its checkpoint")
    try:
        first, *lines = head.decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise malformed("the lines before a submission's checkpoint must be ASCII") from None
    if not (old := _OLD_LINE.fullmatch(first)):
        raise malformed("the first line of a submission must be `old N`, N decimal without leading zeros", line=1)
    if len(lines) > MAX_PROOF_LINES:
        raise malformed(f"a consistency proof may have at most {MAX_PROOF_LINES} lines")
    proof = tuple(parse_hash(line, "a line of a consistency proof") for line in lines)
    return WitnessSubmission(int(old[1]), proof, note)


def size_body(size: int) -> bytes:
    """Return the body of a 409: the size that the witness cosigned last."""
    return b"%d\n" % size


def read_size(raw: bytes) -> int | None:
    """Read the body of a 409, which is not signed; return None if it is not a size."""
    found = _SIZE_BODY.fullmatch(raw)
    return int(found[1]) if found else None


def checkpoint_path(origin: str) -> str:
    """Return the path, under a witness's monitoring prefix, of the checkpoint of a log that it cosigned last."""
    return f"/{hashlib.sha256(origin.encode()).hexdigest()}/checkpoint"
