"""Signed notes (c2sp.org/signed-note) and checkpoint cosignatures (c2sp.org/tlog-cosignature). Pure.

Reads and writes notes and verifier keys, verifies the signatures of known keys, and signs. `witness_policy.py` decides
which keys are known and how many of them must have signed. A note's text is opaque unless it is cosigned.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Iterable
from functools import cache, cached_property
from typing import ClassVar

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.formats.weak_keys import is_good_point
from issuer.tlog.checkpoint import Checkpoint, decode_base64, encode_base64, malformed, parse_checkpoint

try:
    from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PublicKey
except ImportError:  # a library from before FIPS 204
    MLDSA44PublicKey = None  # type: ignore[assignment,misc]

KEY_ID_BYTES = 4
MAX_TIMESTAMP = 2**63 - 1
KEY_NAME = r"[^\s+\x00-\x1f\ud800-\udfff]+"  # no Unicode space, plus, control character or lone surrogate
_NAME = re.compile(KEY_NAME)
_VKEY = re.compile(rf"({KEY_NAME})\+([0-9a-f]{{8}})\+([A-Za-z0-9+/]+={{0,2}})")
_TIME_BYTES = 8


class Kind(enum.IntEnum):
    """The signature types that this code knows, by their identifier byte."""

    ED25519 = 0x01
    COSIGNATURE = 0x04
    COSIGNATURE_ML_DSA_44 = 0x06


KEY_BYTES = {Kind.ED25519: 32, Kind.COSIGNATURE: 32, Kind.COSIGNATURE_ML_DSA_44: 1312}


class Verified(Struct, frozen=True):
    """A signature that verified. `timestamp` is the time of a cosignature in Unix seconds (0: it states no time), and
    None for other signatures."""

    verifier: Verifier
    timestamp: int | None = None


class Verifier(Struct, frozen=True):
    """A public key that verifies notes signed as `name`. `public_key` is encoded as its type says (32 bytes; ML-DSA-44:
    1312). Raises FormatError(`log.malformed`) for an impossible name or key, and for an Ed25519 key of low order, under
    which one signature fits every text."""

    name: str
    kind: Kind
    public_key: bytes

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise malformed("the name of a key must have a character, and no space, plus or control character")
        if len(self.public_key) != KEY_BYTES[self.kind]:
            raise malformed(f"a key of type 0x{self.kind:02x} must have {KEY_BYTES[self.kind]} bytes")
        if self.kind is not Kind.COSIGNATURE_ML_DSA_44 and not is_good_point(self.public_key):
            raise malformed("the key must be a point of Ed25519 that is not of low order")

    @property
    def key_id(self) -> bytes:
        """The 4 bytes that, with the name, say in a note which key signed. They prove nothing: anyone can make two keys
        with the same name and id in a second."""
        return hashlib.sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.public_key).digest()[:KEY_ID_BYTES]

    def to_text(self) -> str:
        """Return the key as a vkey: `name+key id in hex+base64(type || key)`."""
        return f"{self.name}+{self.key_id.hex()}+{encode_base64(bytes([self.kind]) + self.public_key)}"

    def verify(self, text: str, signature: bytes) -> Verified | None:
        """Verify a signature line's bytes (after the key id) over a note's text; return None if they do not fit. Raises
        FormatError(`log.malformed`) if a cosigned text is not a checkpoint, or if this installation cannot verify
        the key's type."""
        if self.kind is Kind.ED25519:
            return Verified(self) if fits_ed25519(self.public_key, signature, text.encode()) else None
        checkpoint = parse_checkpoint(text)
        timestamp, rest = int.from_bytes(signature[:_TIME_BYTES]), signature[_TIME_BYTES:]
        if timestamp > MAX_TIMESTAMP:
            return None
        if self.kind is Kind.COSIGNATURE:
            fits = fits_ed25519(self.public_key, rest, cosigned_text(text, timestamp))
        else:
            fits = _fits_ml_dsa(self, rest, checkpoint, timestamp)
        return Verified(self, timestamp) if fits else None


def parse_vkey(text: str) -> Verifier:
    """Read a verifier key, `name+key id in hex+base64(type || key)`. Raises FormatError(`log.malformed`)."""
    if not (parts := _VKEY.fullmatch(text)):
        raise malformed("a verifier key must be `name+8 lowercase hex digits+base64`")
    name, hashed, encoded = parts.groups()
    key = decode_base64(encoded)
    if not key:
        raise malformed("the last part of a verifier key must be canonical base64 of its type and the key")
    if key[0] not in {*Kind}:
        known = ", ".join(f"0x{kind:02x}" for kind in Kind)
        raise malformed(f"the type of the verifier key is 0x{key[0]:02x}; known here: {known}")
    verifier = Verifier(name, Kind(key[0]), key[1:])
    if verifier.key_id.hex() != hashed:
        raise malformed("the key id in the verifier key does not match its name and key; one of them was changed")
    return verifier


@cache
def verifiable_kinds() -> frozenset[Kind]:
    """Return the types whose signatures this installation can verify. ML-DSA-44 needs a library that supports it."""
    if MLDSA44PublicKey is not None:
        try:
            MLDSA44PublicKey.from_public_bytes(bytes(KEY_BYTES[Kind.COSIGNATURE_ML_DSA_44]))
            return frozenset(Kind)
        except UnsupportedAlgorithm:
            pass
    return frozenset(Kind) - {Kind.COSIGNATURE_ML_DSA_44}


def cosigned_text(text: str, timestamp: int) -> bytes:
    """Return the bytes that an Ed25519 cosignature signs: two more lines, then the whole text of the checkpoint."""
    return f"cosignature/v1\ntime {timestamp}\n{text}".encode()


def fits_ed25519(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether an Ed25519 signature (RFC 8032) of this key fits the message."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _fits_ml_dsa(verifier: Verifier, signature: bytes, checkpoint: Checkpoint, timestamp: int) -> bool:
    """Verify an ML-DSA-44 cosignature. It does not cover extension lines, so a checkpoint that has any is refused."""
    if Kind.COSIGNATURE_ML_DSA_44 not in verifiable_kinds():
        raise malformed("this installation cannot verify ML-DSA-44; install a later version of `cryptography`")
    message = _subtree_message(verifier.name, checkpoint, timestamp)
    if checkpoint.extensions or message is None:
        return False
    try:
        MLDSA44PublicKey.from_public_bytes(verifier.public_key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _subtree_message(cosigner: str, checkpoint: Checkpoint, timestamp: int) -> bytes | None:
    """Return the `cosigned_message` of a whole tree, from leaf 0 to its size; None if a name has over 255 bytes."""
    name, origin = cosigner.encode(), checkpoint.origin.encode()
    if max(len(name), len(origin)) > 255:
        return None
    parts = (
        b"subtree/v1\n\0", bytes([len(name)]) + name, timestamp.to_bytes(8), bytes([len(origin)]) + origin,
        (0).to_bytes(8), checkpoint.size.to_bytes(8), checkpoint.root,
    )  # fmt: skip
    return b"".join(parts)


# The specification demands at least 16. A policy may name 32 logs and 32 witnesses. A line may cost 130 us.
MAX_SIGNATURES = 64
MAX_NOTE_BYTES = 256 * 1024  # 64 lines of ML-DSA-44 are 208 KiB
_TEXT = re.compile(r"[^\x00-\x09\x0b-\x1f\ud800-\udfff]*\n")
_LINE = re.compile(rf"— ({KEY_NAME}) ([A-Za-z0-9+/]+={{0,2}})")


class SignatureLine(Struct, frozen=True):
    """One key's signature of a note: the key's name, its id (4 bytes), and at least one byte of signature."""

    name: str
    key_id: bytes
    signature: bytes

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.key_id) != KEY_ID_BYTES or not self.signature:
            raise malformed("a signature line must have a name without space or plus, a 4-byte key id, and a signature")

    def to_text(self) -> str:
        """Return the line, with its LF: em dash, name, base64(key id || signature)."""
        return f"— {self.name} {encode_base64(self.key_id + self.signature)}\n"


class Note(Struct, frozen=True):
    """A text, which ends in LF, and its signature lines: 1 to 64. Raises FormatError(`log.malformed`)."""

    text: str
    signatures: tuple[SignatureLine, ...]

    def __post_init__(self) -> None:
        _check_text(self.text)
        if not 1 <= len(self.signatures) <= MAX_SIGNATURES:
            raise malformed(f"a note must have 1 to {MAX_SIGNATURES} signature lines")

    def to_bytes(self) -> bytes:
        """Return the note: the text, an empty line, the signature lines."""
        return "".join((self.text, "\n", *(line.to_text() for line in self.signatures))).encode()

    def with_lines(self, lines: Iterable[SignatureLine]) -> Note:
        """Return the note with these lines appended, without duplicates."""
        return Note(self.text, tuple(dict.fromkeys((*self.signatures, *lines))))


def parse_note(raw: bytes, max_bytes: int = MAX_NOTE_BYTES) -> Note:
    """Read a signed note without verifying it; `note.to_bytes()` returns the same bytes. The text may have empty lines:
    the last one separates it from the signatures. Raises FormatError(`log.malformed`)."""
    text, blank, lines = _decode(raw, max_bytes).rpartition("\n\n")
    if not blank:
        raise malformed("a signed note must have a text, an empty line, and signature lines")
    return Note(f"{text}\n", _parse_lines(lines))


def parse_signatures(raw: bytes, max_bytes: int = MAX_NOTE_BYTES) -> tuple[SignatureLine, ...]:
    """Read signature lines without a text: a witness's answer. Raises FormatError(`log.malformed`)."""
    return _parse_lines(_decode(raw, max_bytes))


def verify_note(note: Note, verifiers: Iterable[Verifier]) -> tuple[Verified, ...]:
    """Verify the signature lines of known keys, and return them in the note's order. A key that cosigned at two times
    is returned twice. Lines of unknown keys and repeated lines are ignored. Raises FormatError(`log.signature`) if a
    line of a known key does not verify, or if no line is of a known key."""
    known = {(verifier.name, verifier.key_id): verifier for verifier in verifiers}
    verified = []
    for line in dict.fromkeys(note.signatures):
        if not (verifier := known.get((line.name, line.key_id))):
            continue
        if not (signature := verifier.verify(note.text, line.signature)):
            raise FormatError(Code.LOG_SIGNATURE, f"the signature of {line.name} does not fit the note's text")
        verified.append(signature)
    if not verified:
        raise FormatError(Code.LOG_SIGNATURE, "the note has no signature of a known key")
    return tuple(verified)


class _Signer(Struct, frozen=True, dict=True):
    """A named Ed25519 private key."""

    kind: ClassVar[Kind]
    name: str
    private_key: Ed25519PrivateKey

    @property
    def verifier(self) -> Verifier:
        """The public key, with its name."""
        return Verifier(self.name, self.kind, self.private_key.public_key().public_bytes_raw())

    @cached_property
    def _key_id(self) -> bytes:
        return self.verifier.key_id


class NoteSigner(_Signer, frozen=True, dict=True):
    """A log's key, which signs notes."""

    kind = Kind.ED25519

    def sign(self, text: str) -> SignatureLine:
        """Sign a note's text. Raises FormatError(`log.malformed`) for a text that a note cannot have."""
        _check_text(text)
        return SignatureLine(self.name, self._key_id, self.private_key.sign(text.encode()))


class Cosigner(_Signer, frozen=True, dict=True):
    """A witness's key, which signs checkpoints together with the time."""

    kind = Kind.COSIGNATURE

    def cosign(self, text: str, timestamp: int) -> SignatureLine:
        """Sign the statement that at `timestamp` (Unix seconds, from 1) this was the log's largest consistent tree. The
        caller must have checked it. Raises FormatError(`log.malformed`) if the text is not a checkpoint."""
        parse_checkpoint(text)
        if not 1 <= timestamp <= MAX_TIMESTAMP:
            raise malformed("the time of a cosignature must be a number of seconds from 1 to 2^63 - 1")
        signature = self.private_key.sign(cosigned_text(text, timestamp))
        return SignatureLine(self.name, self._key_id, timestamp.to_bytes(_TIME_BYTES) + signature)


def _decode(raw: bytes, max_bytes: int) -> str:
    if len(raw) > max_bytes:
        raise malformed(f"the note has over {max_bytes} bytes")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise malformed("a note must be UTF-8", line=raw.count(b"\n", 0, error.start) + 1) from None
    _check_text(text)
    return text


def _check_text(text: str) -> None:
    if not _TEXT.fullmatch(text):
        raise malformed("a note must end in LF and have no other control character")


def _parse_lines(lines: str) -> tuple[SignatureLine, ...]:
    return tuple(_parse_line(line) for line in lines.removesuffix("\n").split("\n"))


def _parse_line(line: str) -> SignatureLine:
    parts = _LINE.fullmatch(line)
    signed = decode_base64(parts[2]) if parts else None
    if not parts or not signed:
        raise malformed("a signature line must be `— name base64(key id and signature)`, the base64 canonical")
    return SignatureLine(parts[1], signed[:KEY_ID_BYTES], signed[KEY_ID_BYTES:])
