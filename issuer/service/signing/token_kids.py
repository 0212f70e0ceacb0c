"""Which keys sign tokens, or ever did: no other key of the issuer may be one of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer import keyfile
from issuer.errors import IssuerError
from issuer.formats import jose
from issuer.service.home import Home
from issuer.service.signing.history import KeyHistory


def kid_of(key: Ed25519PrivateKey) -> str:
    """Return a key's RFC 7638 thumbprint."""
    return str(jose.public_jwk(key.public_key())["kid"])


def token_kids(keys: Path, home: Home, passphrase: bytes | None, besides: str) -> set[str]:
    """Return the keys in the folders of `keys`, but for the one named `besides`, and those of the history.

    What cannot be read says nothing: one key does not wait for another to be fit.
    """
    kids: set[str] = set()
    with suppress(IssuerError, OSError):
        kids |= KeyHistory(home).read().keys()
    for path in keys.glob("*/*.pem"):
        if path.parent.name != besides:
            with suppress(IssuerError, OSError):
                kids.add(kid_of(keyfile.read(path, passphrase)))
    return kids
