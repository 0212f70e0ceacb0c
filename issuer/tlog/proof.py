"""Reader and writer of proof files, which show that a leaf is in a log (c2sp.org/tlog-proof). Pure.

`merkle.py` verifies that the hashes lead to the checkpoint's root, and `witness_policy.py` verifies the checkpoint.
"""

from __future__ import annotations

import re

from msgspec import Struct

from issuer.tlog.checkpoint import MAX_SIZE, decode_base64, encode_base64, malformed, parse_checkpoint, parse_hash
from issuer.tlog.merkle import HASH_BYTES, Node, sibling
from issuer.tlog.note import MAX_NOTE_BYTES, parse_note

MAX_HASHES = 63  # the height of a tree of 2^63 leaves
MAX_EXTRA_BYTES = 16 * 1024
MAX_PROOF_BYTES = MAX_NOTE_BYTES + 32 * 1024
_HEADER = "c2sp.org/tlog-proof@v1"
_INDEX = re.compile(r"index (0|[1-9][0-9]{0,18})")


class Proof(Struct, frozen=True):
    """A proof: the leaf's `index` (from 0), the `hashes` (32 bytes each) from its sibling up to the root's child, and
    the bytes of the signed checkpoint, for `parse_note`. Anyone may have written `extra`, which the proof does not
    cover. Raises FormatError(`log.malformed`) for values that cannot be written as a proof."""

    index: int
    hashes: tuple[bytes, ...]
    checkpoint: bytes
    extra: bytes = b""

    def __post_init__(self) -> None:
        if not 0 <= self.index < MAX_SIZE:
            raise malformed("the index of a proof must be a number from 0 to 2^63 - 2")
        if len(self.hashes) > MAX_HASHES or any(len(hashed) != HASH_BYTES for hashed in self.hashes):
            raise malformed(f"a proof may have at most {MAX_HASHES} hashes, of 32 bytes each")
        if len(self.extra) > MAX_EXTRA_BYTES:
            raise malformed(f"the extra data of a proof has over {MAX_EXTRA_BYTES} bytes")
        if b"\n\n" not in self.checkpoint[:-2] or self.checkpoint[-1:] != b"\n" or self.checkpoint[-2:] == b"\n\n":
            raise malformed("the checkpoint of a proof must have a text, an empty line, and lines that end in LF")

    def to_bytes(self) -> bytes:
        """Return the text of the proof; the checkpoint's bytes are unchanged."""
        extra = f"extra {encode_base64(self.extra)}\n" if self.extra else ""
        hashes = "".join(map(_line_of, self.hashes))
        return f"{_HEADER}\n{extra}index {self.index}\n{hashes}\n".encode() + self.checkpoint


class ProofWriter:
    """Writer of proofs of many leaves under one signed checkpoint of a tree of `size` leaves. Hashes that proofs
    share are computed and encoded once. `node` is called as in `merkle.inclusion_proof`."""

    def __init__(self, size: int, node: Node, checkpoint: bytes) -> None:
        self._size = size
        self._node = node
        self._checkpoint = checkpoint
        self._lines_above: dict[tuple[int, int], str] = {}

    def write(self, index: int) -> bytes:
        """Return the proof of one leaf, 0 <= index < size, as `Proof.to_bytes` does."""
        return f"{_HEADER}\nindex {index}\n{self._lines(0, index)}\n".encode() + self._checkpoint

    def _lines(self, level: int, index: int) -> str:
        """Return the lines of the siblings from a subtree up to the head. All leaves below the subtree share them."""
        if not (self._size - 1) >> level:
            return ""
        lines = self._lines_above.get((level, index))
        if lines is None:
            hashed = sibling(level, index, self._size, self._node)
            line = "" if hashed is None else _line_of(hashed)
            lines = self._lines_above[level, index] = line + self._lines(level + 1, index >> 1)
        return lines


def parse_proof(raw: bytes) -> Proof:
    """Read a proof without verifying it; `proof.to_bytes()` returns the same bytes. Raises FormatError(`log.malformed`)
    with the line, if it is known."""
    proof = split_proof(raw)
    parse_checkpoint(parse_note(proof.checkpoint).text)
    return proof


def split_proof(raw: bytes) -> Proof:
    """Read a proof without parsing its checkpoint, which takes as long as all the rest. Many proofs have the same
    checkpoint, so the caller may know its bytes already."""
    if len(raw) > MAX_PROOF_BYTES:
        raise malformed(f"the proof has over {MAX_PROOF_BYTES} bytes")
    head, blank, checkpoint = raw.partition(b"\n\n")
    if not blank or not head.isascii():
        raise malformed("a proof must have ASCII lines, an empty line, and a signed checkpoint")
    header, *lines = head.decode().split("\n")
    if header != _HEADER:
        raise malformed(f"the first line of a proof must be `{_HEADER}`", line=1)
    extra, first = b"", 2
    if lines and lines[0].startswith("extra "):
        extra, first = decode_base64(lines.pop(0).removeprefix("extra ")) or b"", 3
        if not extra:
            raise malformed("the extra data of a proof must be canonical base64 of at least one byte", line=2)
    if not lines or not (index := _INDEX.fullmatch(lines[0])):
        raise malformed("the line after the header, or after `extra`, must be `index` and a decimal number", line=first)
    hashes = tuple(
        parse_hash(line, "a hash of a proof", line=number) for number, line in enumerate(lines[1:], first + 1)
    )
    return Proof(int(index[1]), hashes, checkpoint, extra)


def _line_of(hashed: bytes) -> str:
    return f"{encode_base64(hashed)}\n"
