"""The public keys of signed notes: their text, their ids, and what a key of each type signs. Pure.

Verifier keys and plain Ed25519 signatures are those of c2sp.org/signed-note, timestamped ones those of
c2sp.org/tlog-cosignature. Knows three types, and no key that signs.
"""

from __future__ import annotations

import enum
import hashlib
import re
from functools import cache

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec import Struct

from issuer.formats.ed25519 import is_good_point
from issuer.tlog.base64 import decode_base64, encode_base64
from issuer.tlog.checkpoint import Checkpoint, malformed, parse_checkpoint

try:
    from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PublicKey
except ImportError:  # a library from before FIPS 204
    MLDSA44PublicKey = None  # type: ignore[assignment,misc]

KEY_ID_BYTES = 4
MAX_TIMESTAMP = 2**63 - 1
# No space of Unicode, no plus, no control character, no half of a surrogate pair.
KEY_NAME = r"[^\s+\x00-\x1f\ud800-\udfff]+"
_NAME = re.compile(KEY_NAME)
_VKEY = re.compile(rf"({KEY_NAME})\+([0-9a-f]{{8}})\+([A-Za-z0-9+/]+={{0,2}})")
_TIME_BYTES = 8


class Kind(enum.IntEnum):
    """The signature types that are known here, by their identifier byte."""

    ED25519 = 0x01
    COSIGNATURE = 0x04
    COSIGNATURE_ML_DSA_44 = 0x06


KEY_BYTES = {Kind.ED25519: 32, Kind.COSIGNATURE: 32, Kind.COSIGNATURE_ML_DSA_44: 1312}


class Verified(Struct, frozen=True):
    """One signature that verified. `timestamp` is a cosignature's, in Unix seconds (0: it names no time), else None."""

    verifier: Verifier
    timestamp: int | None = None


class Verifier(Struct, frozen=True):
    """A key that signs notes as `name`: `public_key` as its type encodes it (32 bytes; ML-DSA-44: 1312).

    Raises FormatError(`log.malformed`) for a name or a key that its type does not have, and for an Ed25519 key of low
    order, under which one signature fits every text.
    """

    name: str
    kind: Kind
    public_key: bytes

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise malformed("the name of a key is not empty, and has no space, no plus and no control character")
        if len(self.public_key) != KEY_BYTES[self.kind]:
            raise malformed(f"a key of type 0x{self.kind:02x} has {KEY_BYTES[self.kind]} bytes")
        if self.kind is not Kind.COSIGNATURE_ML_DSA_44 and not is_good_point(self.public_key):
            raise malformed("the key is no point of Ed25519, or one of low order")

    @property
    def key_id(self) -> bytes:
        """The 4 bytes that, with the name, say in a note which key signed."""
        return key_id(self.name, self.public_key, self.kind)

    def to_text(self) -> str:
        """Write the key as a vkey: `name+key id in hex+base64(type || key)`."""
        return f"{self.name}+{self.key_id.hex()}+{encode_base64(bytes([self.kind]) + self.public_key)}"

    def verify(self, text: str, signature: bytes) -> Verified | None:
        """Verify a signature line's bytes (after the key id) over a note's text; None where they do not fit.

        Raises FormatError(`log.malformed`) where a cosignature is of a text that is no checkpoint, and where this
        installation cannot verify the key's type.
        """
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


def key_id(name: str, public_key: bytes, kind: Kind) -> bytes:
    """Return the id of a key. It names a key and proves nothing: two keys with one name and id are made in a second."""
    return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + public_key).digest()[:KEY_ID_BYTES]


def parse_vkey(text: str) -> Verifier:
    """Read a verifier key, `name+key id in hex+base64(type || key)`. Raises FormatError(`log.malformed`)."""
    if not (parts := _VKEY.fullmatch(text)):
        raise malformed("a verifier key reads `name+8 lowercase hex digits+base64`")
    name, hashed, encoded = parts.groups()
    key = decode_base64(encoded)
    if not key:
        raise malformed("the last part of a verifier key is canonical base64 of its type and the key")
    if key[0] not in {*Kind}:
        known = ", ".join(f"0x{kind:02x}" for kind in Kind)
        raise malformed(f"the type of the verifier key is 0x{key[0]:02x}; known here: {known}")
    verifier = Verifier(name, Kind(key[0]), key[1:])
    if verifier.key_id.hex() != hashed:
        raise malformed("the key id in the verifier key is not that of its name and key; one of them was changed")
    return verifier


def vkey_of(name: str, public_key: bytes, kind: Kind) -> str:
    """Write a verifier key as text. Raises FormatError(`log.malformed`) as `Verifier`."""
    return Verifier(name, kind, public_key).to_text()


@cache
def verifiable_kinds() -> frozenset[Kind]:
    """Return the types whose signatures this installation can verify: ML-DSA-44 only with a library that has it."""
    without = frozenset(Kind) - {Kind.COSIGNATURE_ML_DSA_44}
    if MLDSA44PublicKey is None:
        return without
    try:
        MLDSA44PublicKey.from_public_bytes(bytes(KEY_BYTES[Kind.COSIGNATURE_ML_DSA_44]))
    except UnsupportedAlgorithm:
        return without
    return frozenset(Kind)


def cosigned_text(text: str, timestamp: int) -> bytes:
    """Return what an Ed25519 cosignature signs: two lines of its own, then the whole text of the checkpoint."""
    return f"cosignature/v1\ntime {timestamp}\n{text}".encode()


def fits_ed25519(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Say whether an Ed25519 signature (RFC 8032) of this key fits the message."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _fits_ml_dsa(verifier: Verifier, signature: bytes, checkpoint: Checkpoint, timestamp: int) -> bool:
    """Verify an ML-DSA-44 cosignature. It covers no extension lines, so a checkpoint that has some is not cosigned."""
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
    """Return the `cosigned_message` of a whole tree, from leaf 0 to its size; None where a name has over 255 bytes."""
    name, origin = cosigner.encode(), checkpoint.origin.encode()
    if max(len(name), len(origin)) > 255:
        return None
    parts = (
        b"subtree/v1\n\0",
        bytes([len(name)]) + name,
        timestamp.to_bytes(8),
        bytes([len(origin)]) + origin,
        (0).to_bytes(8),
        checkpoint.size.to_bytes(8),
        checkpoint.root,
    )
    return b"".join(parts)
