"""Files with private Ed25519 keys: PKCS#8 PEM (RFC 5958, RFC 8410), encrypted or not, that only their owner can read.

Signing keys and a relying party's receipt key are such files. A bad mode is refused, never repaired.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.formats import jose
from issuer.formats.weak_keys import is_good_point
from issuer.io import files

_MAX_BYTES = 16 * 1024
_MAX_PASSPHRASE = 1023  # OpenSSL's bound, in bytes
MAX_PASSPHRASE_FILE = 4 * 1024  # leaves room for the line ends that an editor adds


def generate() -> ed25519.Ed25519PrivateKey:
    """Generate a private key from the operating system's randomness, whose kid no command mistakes for an option."""
    while True:
        private = ed25519.Ed25519PrivateKey.generate()
        if not str(jose.public_jwk(private.public_key())["kid"]).startswith("-"):
            return private


def write(path: Path, key: ed25519.Ed25519PrivateKey, passphrase: bytes | None = None) -> None:
    """Write a new file with mode 0600, encrypted if there is a passphrase. If root writes it, the folder's owner owns
    it.

    Raises FileExistsError if the file exists, OSError for a symbolic link in the path, and SetupError(`key.unusable`)
    for a passphrase that is empty or longer than 1023 bytes.
    """
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        if not 1 <= len(passphrase) <= _MAX_PASSPHRASE:
            raise SetupError(Code.KEY_UNUSABLE, f"a passphrase must have 1 to {_MAX_PASSPHRASE} bytes")
        encryption = serialization.BestAvailableEncryption(passphrase)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    files.create(path, pem, follow=False, shared=True)


def read(path: Path, passphrase: bytes | None = None) -> ed25519.Ed25519PrivateKey:
    """Read a private key file. Raises SetupError: `key.unsafe` if it is not a plain file or others may read it,
    `key.unusable` if it is not exactly one good Ed25519 key that the passphrase decrypts."""
    pem = _read_private(path)
    if pem.count(b"-----BEGIN ") > 1:  # the PEM reader would silently use the first one
        raise SetupError(Code.KEY_UNUSABLE, f"{path} has more than one key; keep one in each file")
    try:
        key = serialization.load_pem_private_key(pem, passphrase)
    except TypeError:
        reason = "not encrypted, but a passphrase was given" if passphrase else "encrypted: give its passphrase"
        raise SetupError(Code.KEY_UNUSABLE, f"{path} is {reason}") from None
    except (ValueError, UnsupportedAlgorithm):
        reason = "it is not a PKCS#8 PEM key, or the passphrase is wrong"
        raise SetupError(Code.KEY_UNUSABLE, f"{path} cannot be used: {reason}") from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise SetupError(Code.KEY_UNUSABLE, f"{path} is not an Ed25519 key; make one with `issuer keys generate`")
    point = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    if not is_good_point(point):
        raise SetupError(Code.KEY_UNUSABLE, f"{path} has a public key of low order")
    return key


def is_encrypted(path: Path) -> bool:
    """Say whether a private key file is encrypted, without decrypting it. Raises SetupError(`key.unsafe`) as `read`."""
    return b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in _read_private(path)


def _read_private(path: Path) -> bytes:
    try:
        return files.read(path, _MAX_BYTES, private=True)
    except InputError as error:
        code = Code.KEY_UNUSABLE if error.code is Code.FILE_TOO_LARGE else Code.KEY_UNSAFE
        raise SetupError(code, f"{path}: {error.detail}") from None
