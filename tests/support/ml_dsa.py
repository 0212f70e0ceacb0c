"""A witness with an ML-DSA-44 key, and keys of notes, spelt out of the specifications: no line of the package signs here."""

import base64
import hashlib
import struct

import pytest

from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.note import Kind, SignatureLine, verifiable_kinds

needs_ml_dsa = pytest.mark.skipif(
    Kind.COSIGNATURE_ML_DSA_44 not in verifiable_kinds(), reason="this installation has no ML-DSA-44"
)


def key_id(name: str, key: bytes) -> bytes:
    """Return the id of a key, which begins with its type."""
    return hashlib.sha256(name.encode() + b"\n" + key).digest()[:4]


def spell_vkey(name: str, key: bytes) -> str:
    """Write a vkey without a look at the key, which begins with its type (c2sp.org/signed-note)."""
    return f"{name}+{key_id(name, key).hex()}+{base64.b64encode(key).decode()}"


class MlDsaWitness:
    """Signs the `cosigned_message` of c2sp.org/tlog-cosignature."""

    def __init__(self, name: str, seed: int = 1) -> None:
        module = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.mldsa")
        self.name = name
        self._private = module.MLDSA44PrivateKey.from_seed_bytes(bytes([seed]) * 32)
        self._key = b"\x06" + self._private.public_key().public_bytes_raw()

    @property
    def vkey(self) -> str:
        return spell_vkey(self.name, self._key)

    def cosign(
        self, checkpoint: Checkpoint, time: int, *, start: int = 0, label: bytes = b"subtree/v1\n\0"
    ) -> SignatureLine:
        """Cosign the leaves from `start` to the checkpoint's size."""
        name, origin = self.name.encode(), checkpoint.origin.encode()
        message = struct.pack(
            f">12sB{len(name)}sQB{len(origin)}sQQ32s",
            label, len(name), name, time, len(origin), origin, start, checkpoint.size, checkpoint.root,
        )  # fmt: skip
        signature = struct.pack(">Q", time) + self._private.sign(message)
        return SignatureLine(self.name, key_id(self.name, self._key), signature)
