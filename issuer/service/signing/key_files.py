"""Every file of a key, in whatever state, and what is known of it: also where it cannot be opened.

The keys in next, active and retiring are in the key set (keyring.py). Those in archived and revoked are not any more:
they are kept, or destroyed. Those in revocation and receipt never sign a token.
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
from issuer.service.signing.keyring import SUFFIXES, Opener, made
from issuer.service.signing.lifecycle import STATES, Lives


def kid_of(key: Ed25519PrivateKey) -> str:
    """Return a key's RFC 7638 thumbprint."""
    return str(jose.public_jwk(key.public_key())["kid"])


def token_kids(keys: Path, home: Home, passphrase: bytes | None, besides: str) -> set[str]:
    """Return the keys that sign tokens, or ever did: those in the folders of `keys`, but for the one named `besides`,
    and those of the history. What cannot be read says nothing: one key does not wait for another to be fit."""
    kids: set[str] = set()
    with suppress(IssuerError, OSError):
        kids |= KeyHistory(home).read().keys()
    for path in keys.glob("*/*.pem"):
        if path.parent.name != besides:
            with suppress(IssuerError, OSError):
                kids.add(kid_of(keyfile.read(path, passphrase)))
    return kids


PUT_AWAY = ("archived", "revoked")
# Of keys that are none of the service's token keys.
OTHERS = ("revocation", "receipt")
FOLDERS = (*STATES, *PUT_AWAY, *OTHERS)

_NAMED = re.compile(r"(?:key-)?([A-Za-z0-9_-]{43})")

Passphrase = Callable[[], bytes | None]


class KeyFile(Struct, frozen=True):
    """The file of a private key, PEM or YAML (keyring.py); `state` is its folder, `made` its time in Unix seconds.

    Where it is not `opened`, `kid` is what the file is named after, or "", and `x`, its public half, what the history
    has of that; `why` says what is wrong, "" where nothing but the passphrase is missing.
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
        """Return the name that says which key it is; none begins with `-`, as a kid may."""
        return f"key-{self.kid}{self.path.suffix}"


def find_files(folder: Path, passphrase: Passphrase, opener: Opener, lives: Lives) -> list[KeyFile]:
    """Look at every key file of an issuer. Raises OSError for a folder that cannot be read."""
    return [find_file(path, state, passphrase, opener, lives) for state in FOLDERS for path in _paths(folder / state)]


def make_file(folder: Path, passphrase: bytes | None) -> KeyFile:
    """Make a key, and a file of it in the folder of its state. Raises SetupError and OSError."""
    private = keyfile.generate()
    jwk = jose.public_jwk(private.public_key())
    path = folder / f"key-{jwk['kid']}.pem"  # no name begins with `-`, as a kid may
    files.make_folder(folder, follow=False, shared=True)
    keyfile.write(path, private, passphrase)
    return KeyFile(path, folder.name, made(path), str(jwk["kid"]), str(jwk["x"]), opened=True)


def find_file(path: Path, state: str, passphrase: Passphrase, opener: Opener, lives: Lives) -> KeyFile:
    """Look at one key file. What lies elsewhere is asked for no key that is put away."""
    named = _NAMED.fullmatch(path.stem)
    kid = named[1] if named else ""
    closed = KeyFile(path, state, made(path), kid, lives[kid].x if kid in lives else "")
    if path.suffix == ".yaml" and state in PUT_AWAY:
        return closed
    try:
        if path.suffix == ".yaml":
            public = opener.open(path).public_key()
        else:
            encrypted = keyfile.is_encrypted(path)
            opens = passphrase() if encrypted else None
            closed = replace(closed, encrypted=encrypted)
            if encrypted and opens is None:
                return closed
            public = keyfile.read(path, opens).public_key()
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
    """Return the files of the key set."""
    return [file for file in found if file.state in STATES]


def states_of(found: Sequence[KeyFile]) -> dict[str, str]:
    """Return the state of each key of the key set, by kid."""
    return {file.kid: file.state for file in published(found) if file.kid}
