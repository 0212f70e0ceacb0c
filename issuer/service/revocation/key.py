"""The key of the list of revocations: one PEM under `keys/revocation/`, which signs nothing else.

It need not lie on a host that serves. Who has it can take anything back, and nothing else; it never signs tokens, or
their thief could also clear them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer import files, keyfile
from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.formats import jose

FOLDER = "revocation"


def kid_of(key: Ed25519PrivateKey) -> str:
    """Return a key's RFC 7638 thumbprint."""
    return str(jose.public_jwk(key.public_key())["kid"])


def find_key(
    keys: Path, passphrase: Callable[[], bytes | None], token_kids: Callable[[], Collection[str]]
) -> Ed25519PrivateKey | None:
    """Read the key in a folder of keys; None where there is none. Raises SetupError and OSError.

    `token_kids` are the keys that sign tokens: none of them is taken. Both are asked only where there is a key.
    """
    folder = keys / FOLDER
    paths = sorted(folder.glob("*.pem"))
    if not paths:
        return None
    if len(paths) > 1:
        raise SetupError(Code.KEY_UNUSABLE, f"{folder} holds {len(paths)} keys; keep the one that signs the list")
    try:
        for path in (keys, folder):
            files.demand_guarded(path, group=False)
    except InputError as error:
        raise SetupError(Code.KEY_UNSAFE, f"{error.place}: {error.detail}") from None
    key = keyfile.read(paths[0], passphrase())
    if kid_of(key) in token_kids():
        raise SetupError(
            Code.KEY_UNUSABLE,
            f"{paths[0]} signs tokens: relying parties would believe no list of it. Move it back to its folder, and "
            "make one for the list with `issuer revocations init`",
        )
    return key


def make_key(keys: Path, passphrase: bytes | None) -> Path:
    """Make the key where there is none, and return its file. Raises SetupError and OSError."""
    folder = keys / FOLDER
    if found := sorted(folder.glob("*.pem")):
        raise SetupError(Code.KEY_UNUSABLE, f"{found[0]} is there already: move it away first if it is to be replaced")
    if passphrase == b"":
        raise SetupError(Code.KEY_UNUSABLE, "the passphrase is empty: the key would not be encrypted")
    key = keyfile.generate()
    files.make_folder(folder, follow=False)
    path = folder / f"{kid_of(key)}.pem"
    keyfile.write(path, key, passphrase)
    return path
