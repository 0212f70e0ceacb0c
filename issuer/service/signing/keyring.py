"""The signing keys: PKCS#8 files on disk become signers and the published key set.

A key's state is its folder, so that a rotation is a `mv` and `ls` shows it:

    keys/next/*.pem       published, does not sign new tokens yet
    keys/active/*.pem     exactly one; signs
    keys/retiring/*.pem   published until its last token has expired; signs only retries of what it began
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from issuer import files, keyfile
from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.formats import jose

KeyState = Literal["next", "active", "retiring"]
STATES: tuple[KeyState, ...] = get_args(KeyState)
# No JWS signing input begins with a zero byte: a readiness signature can never be a token's.
_READINESS = b"\x00issuer-readiness"


class SigningKey(Struct, frozen=True):
    """One private key with its state; `kid` is its RFC 7638 thumbprint."""

    kid: str
    state: KeyState
    private: Ed25519PrivateKey


class KeyringSigner:
    """The keys of one process. Implements `issuance.ports.Signer`."""

    def __init__(self, keys: tuple[SigningKey, ...]) -> None:
        active = [key.kid for key in keys if key.state == "active"]
        if len(active) != 1:
            raise SetupError(Code.KEY_UNUSABLE, f"there must be exactly one active key; there are {len(active)}")
        if len({key.kid for key in keys}) != len(keys):
            raise SetupError(Code.KEY_UNUSABLE, "the same key lies in two folders; keep one")
        self._keys = {key.kid: key for key in keys}
        self.active_kid = active[0]
        self.states = {key.kid: key.state for key in keys}
        self.usable_kids = tuple(self._keys)
        self.jwks = msgspec.json.encode({"keys": [jose.public_jwk(key.private.public_key()) for key in keys]})

    async def sign(self, kid: str, signing_inputs: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Sign each input. Ed25519 takes 40 microseconds; handing it to a thread costs more than it frees."""
        key = self._keys.get(kid)
        if key is None:
            raise Undecided(Code.DEPENDENCY_SIGNER)
        return tuple(jose.sign(key.private, signing_input) for signing_input in signing_inputs)

    def check(self, now: int) -> None:
        """Sign and verify through the published key set. Raises Undecided(`dependency.signer`)."""
        message = _READINESS + str(now).encode()
        published = jose.parse_key_set(self.jwks).get(self.active_kid)
        signature = jose.sign(self._keys[self.active_kid].private, message)
        if published is None or not published.verifies(jose.EDDSA, message, signature):
            raise Undecided(Code.DEPENDENCY_SIGNER)


def load_keyring(folder: Path, passphrase: bytes | None = None) -> KeyringSigner:
    """Load every key of the folder into a keyring. Raises SetupError."""
    return KeyringSigner(load_keys(folder, passphrase))


def load_keys(folder: Path, passphrase: bytes | None = None) -> tuple[SigningKey, ...]:
    """Load every key of the folder; there must be at least one. Raises SetupError."""
    keys = tuple(_load(path, state, passphrase) for state in STATES for path in sorted((folder / state).glob("*.pem")))
    if not keys:
        raise SetupError(
            Code.KEY_UNUSABLE, f"{folder} holds no key; make one with `issuer keys generate --dir {folder}`"
        )
    return keys


def _load(path: Path, state: KeyState, passphrase: bytes | None) -> SigningKey:
    private = keyfile.read(path, passphrase)
    return SigningKey(str(jose.public_jwk(private.public_key())["kid"]), state, private)


def generate(folder: Path, state: KeyState, passphrase: bytes | None = None) -> Path:
    """Make a key, named by its kid, and return the file. Folders get mode 0700. Raises SetupError."""
    if passphrase == b"":
        raise SetupError(Code.KEY_UNUSABLE, "the passphrase is empty: the key would not be encrypted")
    private = keyfile.generate()
    kid = str(jose.public_jwk(private.public_key())["kid"])
    files.make_folder(folder / state, follow=False)
    path = folder / state / f"{kid}.pem"
    keyfile.write(path, private, passphrase)
    return path
