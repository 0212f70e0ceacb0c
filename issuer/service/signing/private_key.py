"""What a backend gives: a private Ed25519 key, wherever it lies. One backend, one file beside this one."""

from __future__ import annotations

from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class PrivateKey(Protocol):
    """A private Ed25519 key (RFC 8032): one message has one signature, 64 bytes, whenever and wherever it is made."""

    @property
    def max_message_bytes(self) -> int:
        """The largest message that it signs."""
        ...

    def public_key(self) -> Ed25519PublicKey:
        """Return its public half."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Sign a message. May block; raises KeyFault."""
        ...


class KeyFault(Exception):
    """A key cannot be asked, or did not sign. The text is ours: what is wrong, and what to do; nothing secret."""
