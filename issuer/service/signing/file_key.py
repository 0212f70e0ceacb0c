"""A private key in this process, read from a file (keyfile.py). It signs at once: in 40 microseconds."""

from __future__ import annotations

from functools import partial

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from issuer.formats import jose


class FileKey:
    """Implements `PrivateKey`; signs any message that a token can have."""

    max_message_bytes = jose.MAX_TOKEN_BYTES

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._public = private.public_key()
        self.sign = partial(jose.sign, private)

    def public_key(self) -> Ed25519PublicKey:
        """Return its public half."""
        return self._public
