"""What a log sends to a witness, and what the witness answers (c2sp.org/tlog-witness), for both ends. Pure.

Knows the form alone: what a witness demands of a checkpoint is in `witness/witness.py`, and what of its answers a log
believes is the log's own affair.
"""

from __future__ import annotations

import hashlib
import re

from msgspec import Struct

from issuer.tlog.base64 import decode_base64, encode_base64
from issuer.tlog.checkpoint import malformed
from issuer.tlog.merkle import HASH_BYTES

# Relative to a witness's submission prefix.
ADD_CHECKPOINT_PATH = "/add-checkpoint"
SIZE_TYPE = "text/x.tlog.size"
MAX_PROOF_LINES = 63
# 63 lines, and a note with twenty signatures of the largest kind.
MAX_SUBMISSION_BYTES = 64 * 1024

_SIZE = r"(0|[1-9][0-9]{0,18})"
_OLD_LINE = re.compile(rf"old {_SIZE}")
_SIZE_BODY = re.compile(rf"{_SIZE}\n".encode())


class Submission(Struct, frozen=True):
    """A checkpoint for a witness. `proof` shows that the tree of `old` leaves, which the witness cosigned last, is a
    prefix of the one in `note` (the bytes of a signed checkpoint); it is empty where `old` is 0."""

    old: int
    proof: tuple[bytes, ...]
    note: bytes

    def to_bytes(self) -> bytes:
        """Write the body of the request."""
        lines = [f"old {self.old}", *map(encode_base64, self.proof), "", ""]
        return "\n".join(lines).encode() + self.note


def read_submission(raw: bytes) -> Submission:
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
    return Submission(int(old[1]), tuple(map(_read_hash, lines)), note)


def _read_hash(line: str) -> bytes:
    hashed = decode_base64(line)
    if hashed is None or len(hashed) != HASH_BYTES:
        raise malformed(f"a line of a consistency proof is the canonical base64 of {HASH_BYTES} bytes")
    return hashed


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
