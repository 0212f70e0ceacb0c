"""The key of the list of revocations: one PEM under `keys/revocation/`, which signs nothing else.

It need not lie on a host that serves. Who has it can take anything back, and nothing else; it never signs tokens, or
their thief could also clear them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer import files, keyfile
from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.service.home import Home
from issuer.service.signing.token_kids import kid_of, token_kids

FOLDER = "revocation"


def find_key(keys: Path, home: Home, passphrase: Callable[[], bytes | None]) -> Ed25519PrivateKey | None:
    """Read the key in a folder of keys; None where there is none. Raises SetupError and OSError.

    One that signs tokens, or that did by the history, is not taken. The passphrase is asked for only where
    there is a key.
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
    opens = passphrase()
    key = keyfile.read(paths[0], opens)
    if kid_of(key) in token_kids(keys, home, opens, FOLDER):
        raise SetupError(
            Code.KEY_UNUSABLE,
            f"{paths[0]} signs tokens, or did: relying parties would believe no list of it. Take it out of there, and "
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
    files.make_folder(folder, follow=False, shared=True)
    path = folder / f"key-{kid_of(key)}.pem"
    keyfile.write(path, key, passphrase)
    return path
