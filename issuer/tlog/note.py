"""Signed notes (c2sp.org/signed-note): a text, and lines with signatures of it. Pure.

Reads and writes the bytes, verifies the lines of known keys and signs. Which keys are known, and how many of them must
have signed, is not decided here (`witness_policy.py`); the text is opaque, but for a cosignature, which is one of a
checkpoint (c2sp.org/tlog-cosignature).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.tlog.base64 import decode_base64, encode_base64
from issuer.tlog.checkpoint import malformed, parse_checkpoint
from issuer.tlog.vkey import (
    KEY_ID_BYTES,
    KEY_NAME,
    MAX_TIMESTAMP,
    Kind,
    Verified,
    Verifier,
    cosigned_text,
    key_id,
    parse_vkey,
    verifiable_kinds,
    vkey_of,
)

__all__ = [
    "MAX_NOTE_BYTES",
    "Cosigner",
    "Kind",
    "Note",
    "NoteSigner",
    "SignatureLine",
    "Verified",
    "Verifier",
    "parse_note",
    "parse_signatures",
    "parse_vkey",
    "verifiable_kinds",
    "verify_note",
    "vkey_of",
]

# At least 16 are demanded. 32 logs and 32 witnesses are what a policy here may name; every line may cost 130 us.
MAX_SIGNATURES = 64
MAX_NOTE_BYTES = 256 * 1024  # 64 lines of ML-DSA-44 are 208 KiB
_NAME = re.compile(KEY_NAME)
_TEXT = re.compile(r"[^\x00-\x09\x0b-\x1f\ud800-\udfff]*\n")
_LINE = re.compile(rf"— ({KEY_NAME}) ([A-Za-z0-9+/]+={{0,2}})")


class SignatureLine(Struct, frozen=True):
    """What one key says of the text: the key's name, its id (4 bytes), and at least one byte of signature."""

    name: str
    key_id: bytes
    signature: bytes

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.key_id) != KEY_ID_BYTES or not self.signature:
            raise malformed("a signature line has a name without space and plus, a key id of 4 bytes, and a signature")

    def to_text(self) -> str:
        """Write the line, with its LF: em dash, name, base64(key id || signature)."""
        return f"— {self.name} {encode_base64(self.key_id + self.signature)}\n"


class Note(Struct, frozen=True):
    """A text, which ends in LF, and its signature lines: 1 to 64. Raises FormatError(`log.malformed`)."""

    text: str
    signatures: tuple[SignatureLine, ...]

    def __post_init__(self) -> None:
        if not _TEXT.fullmatch(self.text):
            raise malformed("the text of a note ends in LF and has no other control character")
        if not 1 <= len(self.signatures) <= MAX_SIGNATURES:
            raise malformed(f"a note has 1 to {MAX_SIGNATURES} signature lines")

    def to_bytes(self) -> bytes:
        """Write the note: the text, an empty line, the signature lines."""
        return "".join((self.text, "\n", *(line.to_text() for line in self.signatures))).encode()

    def with_lines(self, lines: Iterable[SignatureLine]) -> Note:
        """Return the note with these lines behind its own, each once."""
        return Note(self.text, tuple(dict.fromkeys((*self.signatures, *lines))))


def parse_note(raw: bytes, max_bytes: int = MAX_NOTE_BYTES) -> Note:
    """Read a signed note; `note.to_bytes()` gives these very bytes. Nothing of it is verified.

    The text may have empty lines: the last one is what parts it from the signatures. Raises FormatError
    (`log.malformed`).
    """
    text, blank, lines = _decode(raw, max_bytes).rpartition("\n\n")
    if not blank:
        raise malformed("a signed note has a text, an empty line, and signature lines")
    return Note(f"{text}\n", _parse_lines(lines))


def parse_signatures(raw: bytes, max_bytes: int = MAX_NOTE_BYTES) -> tuple[SignatureLine, ...]:
    """Read signature lines alone, as a witness answers them. Raises FormatError(`log.malformed`)."""
    return _parse_lines(_decode(raw, max_bytes))


def verify_note(note: Note, verifiers: Iterable[Verifier]) -> tuple[Verified, ...]:
    """Verify the lines of known keys; lines of others are ignored, and so are repetitions of a line.

    Returns what verified, in the note's order: a key that cosigned at two times is there twice. Raises
    FormatError(`log.signature`) if one line of a known key does not verify, or if none is of a known key.
    """
    known = {(verifier.name, verifier.key_id): verifier for verifier in verifiers}
    verified = []
    for line in dict.fromkeys(note.signatures):
        if not (verifier := known.get((line.name, line.key_id))):
            continue
        if not (found := verifier.verify(note.text, line.signature)):
            raise FormatError(Code.LOG_SIGNATURE, f"the signature of {line.name} does not fit the note's text")
        verified.append(found)
    if not verified:
        raise FormatError(Code.LOG_SIGNATURE, "the note has no signature of a known key")
    return tuple(verified)


class NoteSigner(Struct, frozen=True, dict=True):
    """A key that signs notes: a log's. The private key never leaves it."""

    name: str
    private_key: Ed25519PrivateKey

    @property
    def verifier(self) -> Verifier:
        """Its public side."""
        return Verifier(self.name, Kind.ED25519, self.private_key.public_key().public_bytes_raw())

    @cached_property
    def _key_id(self) -> bytes:
        return key_id(self.name, self.private_key.public_key().public_bytes_raw(), Kind.ED25519)

    def sign(self, text: str) -> SignatureLine:
        """Sign a note's text. Raises FormatError(`log.malformed`) for a text that no note has."""
        _check_text(text)
        return SignatureLine(self.name, self._key_id, self.private_key.sign(text.encode()))


class Cosigner(Struct, frozen=True, dict=True):
    """A witness's key: signs checkpoints with the time."""

    name: str
    private_key: Ed25519PrivateKey

    @property
    def verifier(self) -> Verifier:
        """Its public side."""
        return Verifier(self.name, Kind.COSIGNATURE, self.private_key.public_key().public_bytes_raw())

    @cached_property
    def _key_id(self) -> bytes:
        return key_id(self.name, self.private_key.public_key().public_bytes_raw(), Kind.COSIGNATURE)

    def cosign(self, text: str, timestamp: int) -> SignatureLine:
        """State that at `timestamp` (Unix seconds, from 1) this was the log's largest consistent tree.

        The caller has checked that. Raises FormatError(`log.malformed`) for a text that is no checkpoint.
        """
        parse_checkpoint(text)
        if not 1 <= timestamp <= MAX_TIMESTAMP:
            raise malformed("the time of a cosignature is a number of seconds from 1 to 2^63 - 1")
        signature = self.private_key.sign(cosigned_text(text, timestamp))
        return SignatureLine(self.name, self._key_id, timestamp.to_bytes(8) + signature)


def _decode(raw: bytes, max_bytes: int) -> str:
    if len(raw) > max_bytes:
        raise malformed(f"the note has over {max_bytes} bytes")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise malformed("a note is UTF-8", line=raw.count(b"\n", 0, error.start) + 1) from None
    _check_text(text)
    return text


def _check_text(text: str) -> None:
    if not _TEXT.fullmatch(text):
        raise malformed("a note ends in LF and has no other control character")


def _parse_lines(lines: str) -> tuple[SignatureLine, ...]:
    return tuple(_parse_line(line) for line in lines.removesuffix("\n").split("\n"))


def _parse_line(line: str) -> SignatureLine:
    parts = _LINE.fullmatch(line)
    signed = decode_base64(parts[2]) if parts else None
    if not parts or not signed:
        raise malformed("a signature line reads `— name base64(key id and signature)`, the base64 canonical")
    return SignatureLine(parts[1], signed[:KEY_ID_BYTES], signed[KEY_ID_BYTES:])
