"""Proofs that a leaf is in a log, for a file of their own (c2sp.org/tlog-proof). Pure.

Reads and writes the text. Whether the hashes lead to the checkpoint's root is the matter of `merkle.py`, and who signed
that checkpoint is the matter of `witness_policy.py`.
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
    """The leaf's `index` (from 0), `hashes` (32 bytes each) from its sibling up to the root's child, and the bytes of
    the signed checkpoint, for `parse_note`. `extra` is what a stranger may have written: nothing vouches for it. Raises
    FormatError(`log.malformed`) for values that have no text."""

    index: int
    hashes: tuple[bytes, ...]
    checkpoint: bytes
    extra: bytes = b""

    def __post_init__(self) -> None:
        if not 0 <= self.index < MAX_SIZE:
            raise malformed("the index of a proof is a number from 0 to 2^63 - 2")
        if len(self.hashes) > MAX_HASHES or any(len(hashed) != HASH_BYTES for hashed in self.hashes):
            raise malformed(f"a proof has at most {MAX_HASHES} hashes, of 32 bytes each")
        if len(self.extra) > MAX_EXTRA_BYTES:
            raise malformed(f"the extra data of a proof has over {MAX_EXTRA_BYTES} bytes")
        if b"\n\n" not in self.checkpoint[:-2] or self.checkpoint[-1:] != b"\n" or self.checkpoint[-2:] == b"\n\n":
            raise malformed("the checkpoint of a proof is signed: a text, an empty line, and lines that end in LF")

    def to_bytes(self) -> bytes:
        """Write the proof; the checkpoint goes in as it is."""
        extra = f"extra {encode_base64(self.extra)}\n" if self.extra else ""
        hashes = "".join(map(_line_of, self.hashes))
        return f"{_HEADER}\n{extra}index {self.index}\n{hashes}\n".encode() + self.checkpoint


class ProofWriter:
    """Writes the proofs of many leaves under one signed checkpoint, that of the tree of `size` leaves: what they share
    is hashed and written once. `node` is asked as `merkle.inclusion_proof` asks it."""

    def __init__(self, size: int, node: Node, checkpoint: bytes) -> None:
        self._size = size
        self._node = node
        self._checkpoint = checkpoint
        self._above: dict[tuple[int, int], str] = {}

    def write(self, index: int) -> bytes:
        """Write the proof of one leaf, 0 <= index < size, as `Proof.to_bytes` does."""
        return f"{_HEADER}\nindex {index}\n{self._lines(0, index)}\n".encode() + self._checkpoint

    def _lines(self, level: int, index: int) -> str:
        """Return the hashes beside the way from a subtree up to the head, which leaves below it share."""
        if not (self._size - 1) >> level:
            return ""
        lines = self._above.get((level, index))
        if lines is None:
            beside = sibling(level, index, self._size, self._node)
            own = "" if beside is None else _line_of(beside)
            lines = self._above[level, index] = own + self._lines(level + 1, index >> 1)
        return lines


def parse_proof(raw: bytes) -> Proof:
    """Read a proof; `proof.to_bytes()` gives these very bytes. Nothing of it is verified. Raises
    FormatError(`log.malformed`), where it can with the line."""
    proof = split_proof(raw)
    parse_checkpoint(parse_note(proof.checkpoint).text)
    return proof


def split_proof(raw: bytes) -> Proof:
    """Do the same, and leave the checkpoint unread: to read it takes as long as all the rest, and the proofs of many
    leaves have one checkpoint, whose bytes the caller may know."""
    if len(raw) > MAX_PROOF_BYTES:
        raise malformed(f"the proof has over {MAX_PROOF_BYTES} bytes")
    head, blank, checkpoint = raw.partition(b"\n\n")
    if not blank or not head.isascii():
        raise malformed("a proof has ASCII lines, an empty line, and a signed checkpoint")
    header, *lines = head.decode().split("\n")
    if header != _HEADER:
        raise malformed(f"the first line of a proof is `{_HEADER}`", line=1)
    extra = _parse_extra(lines.pop(0)) if lines and lines[0].startswith("extra ") else b""
    first = 3 if extra else 2
    if not lines or not (index := _INDEX.fullmatch(lines[0])):
        raise malformed("the line after the header, or after `extra`, is `index` and a decimal number", line=first)
    hashes = tuple(
        parse_hash(line, "a hash of a proof", line=number) for number, line in enumerate(lines[1:], first + 1)
    )
    return Proof(int(index[1]), hashes, checkpoint, extra)


def _line_of(hashed: bytes) -> str:
    return f"{encode_base64(hashed)}\n"


def _parse_extra(line: str) -> bytes:
    if not (extra := decode_base64(line.removeprefix("extra "))):
        raise malformed("the extra data of a proof is canonical base64 of at least one byte", line=2)
    return extra
