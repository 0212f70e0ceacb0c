"""The key files of an issuer in all states, also those that cannot be opened.

The keys in next, active and retiring are in the key set (keyring.py). The keys in archived and revoked have left it:
the operator keeps or destroys them. The keys in revocation and receipt never sign a token.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct
from msgspec.structs import replace

from issuer.errors import IssuerError
from issuer.formats import jose
from issuer.io import files, keyfile
from issuer.io.common_documents import Home
from issuer.service.signing.history import KeyHistory
from issuer.service.signing.keyring import SUFFIXES, Opener, file_mtime
from issuer.service.signing.lifecycle import STATES, Lives


def kid_of(key: Ed25519PrivateKey) -> str:
    """Return a key's RFC 7638 thumbprint."""
    return str(jose.public_jwk(key.public_key())["kid"])


def token_kids(keys: Path, home: Home, passphrase: bytes | None, besides: str) -> set[str]:
    """Return the kids of all keys that sign tokens, or ever did: of the history, and of the folders in `keys` except
    the one named `besides`. Files that cannot be read are skipped: one key must not depend on another."""
    kids: set[str] = set()
    with suppress(IssuerError, OSError):
        kids |= KeyHistory(home).read().keys()
    for path in keys.glob("*/*.pem"):
        if path.parent.name != besides:
            with suppress(IssuerError, OSError):
                kids.add(kid_of(keyfile.read(path, passphrase)))
    return kids


PUT_AWAY = ("archived", "revoked")
# Folders of keys that never sign tokens.
OTHERS = ("revocation", "receipt")
FOLDERS = (*STATES, *PUT_AWAY, *OTHERS)

_NAMED = re.compile(r"(?:key-)?([A-Za-z0-9_-]{43})")

Passphrase = Callable[[], bytes | None]


class KeyFile(Struct, frozen=True):
    """The file of a private key, PEM or YAML (keyring.py); `state` is its folder, `made` its mtime in Unix seconds.

    If the file is not `opened`, `kid` is from its name and `x`, the public half, from the history, or each is "". `why`
    then says what is wrong; it is "" if only the passphrase is missing.
    """

    path: Path
    state: str
    made: int
    kid: str = ""
    x: str = ""
    opened: bool = False
    encrypted: bool | None = None
    why: str = ""

    @property
    def named(self) -> str:
        """Return a file name with the kid. The prefix is there because a kid may begin with `-`."""
        return f"key-{self.kid}{self.path.suffix}"


def find_files(folder: Path, passphrase: Passphrase, opener: Opener, lives: Lives) -> list[KeyFile]:
    """Return every key file of an issuer. Raises OSError for a folder that cannot be read."""
    return [find_file(path, state, passphrase, opener, lives) for state in FOLDERS for path in _paths(folder / state)]


def make_file(folder: Path, passphrase: bytes | None) -> KeyFile:
    """Make a key and its file in `folder`, which is named after the key's state. Raises SetupError and OSError."""
    private = keyfile.generate()
    jwk = jose.public_jwk(private.public_key())
    path = folder / f"key-{jwk['kid']}.pem"
    files.make_folder(folder, follow=False, shared=True)
    keyfile.write(path, private, passphrase)
    return KeyFile(path, folder.name, file_mtime(path), str(jwk["kid"]), str(jwk["x"]), opened=True)


def find_file(path: Path, state: str, passphrase: Passphrase, opener: Opener, lives: Lives) -> KeyFile:
    """Read one key file. The YAML file of an archived or revoked key stays closed: no backend is asked for that key."""
    named = _NAMED.fullmatch(path.stem)
    kid = named[1] if named else ""
    closed = KeyFile(path, state, file_mtime(path), kid, lives[kid].x if kid in lives else "")
    if path.suffix == ".yaml" and state in PUT_AWAY:
        return closed
    try:
        if path.suffix == ".yaml":
            public = opener.open(path).public
        else:
            encrypted = keyfile.is_encrypted(path)
            secret = passphrase() if encrypted else None
            closed = replace(closed, encrypted=encrypted)
            if encrypted and secret is None:
                return closed
            public = keyfile.read(path, secret).public_key()
    except (IssuerError, OSError) as error:
        why = error.detail if isinstance(error, IssuerError) else f"{path}: {error.strerror}"
        return replace(closed, why=why)
    jwk = jose.public_jwk(public)
    return replace(closed, kid=str(jwk["kid"]), x=str(jwk["x"]), opened=True)


def _paths(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in map(folder.joinpath, os.listdir(folder)) if path.suffix in SUFFIXES)
    except (FileNotFoundError, NotADirectoryError):
        return []


def in_state(found: Sequence[KeyFile], state: str) -> list[KeyFile]:
    """Return the files in a state's folder."""
    return [file for file in found if file.state == state]


def published(found: Sequence[KeyFile]) -> list[KeyFile]:
    """Return the files whose keys are in the key set."""
    return [file for file in found if file.state in STATES]


def states_of(found: Sequence[KeyFile]) -> dict[str, str]:
    """Return the state of each key of the key set, by kid."""
    return {file.kid: file.state for file in published(found) if file.kid}
