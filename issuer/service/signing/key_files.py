"""Every file of a key, in whatever state, and what is known of it: also where it cannot be opened.

The keys in next, active and retiring are in the key set (keyring.py). Those in archived and revoked are not any more:
they are kept, or destroyed. Those in revocation and receipt never sign a token.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec import Struct
from msgspec.structs import replace

from issuer import keyfile
from issuer.errors import IssuerError
from issuer.formats import jose
from issuer.service.signing.keyring import STATES, SUFFIXES
from issuer.service.signing.life import Lives
from issuer.service.signing.opener import Opener

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


def find_file(path: Path, state: str, passphrase: Passphrase, opener: Opener, lives: Lives) -> KeyFile:
    """Look at one key file. What lies elsewhere is asked for no key that is put away."""
    named = _NAMED.fullmatch(path.stem)
    kid = named[1] if named else ""
    closed = KeyFile(path, state, _made(path), kid, lives[kid].x if kid in lives else "")
    if path.suffix == ".yaml":
        return closed if state in PUT_AWAY else _opened(closed, lambda: opener.open(path).public_key())
    try:
        encrypted = keyfile.is_encrypted(path)
        opens = passphrase() if encrypted else None
    except IssuerError as error:
        return replace(closed, why=error.detail)
    except OSError as error:
        return replace(closed, why=f"{path}: {error.strerror}")
    closed = replace(closed, encrypted=encrypted)
    if encrypted and opens is None:
        return closed
    return _opened(closed, lambda: keyfile.read(path, opens).public_key())


def _opened(closed: KeyFile, public_key: Callable[[], Ed25519PublicKey]) -> KeyFile:
    try:
        jwk = jose.public_jwk(public_key())
    except IssuerError as error:
        return replace(closed, why=error.detail)
    except OSError as error:
        return replace(closed, why=f"{closed.path}: {error.strerror}")
    return replace(closed, kid=str(jwk["kid"]), x=str(jwk["x"]), opened=True)


def _paths(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in map(folder.joinpath, os.listdir(folder)) if path.suffix in SUFFIXES)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _made(path: Path) -> int:
    """Return the time of a key's file; that of one that is gone says nothing."""
    try:
        return int(path.lstat().st_mtime)
    except OSError:
        return 0


def in_state(found: Sequence[KeyFile], state: str) -> list[KeyFile]:
    """Return the files in a state's folder."""
    return [file for file in found if file.state == state]


def published(found: Sequence[KeyFile]) -> list[KeyFile]:
    """Return the files of the key set."""
    return [file for file in found if file.state in STATES]


def states_of(found: Sequence[KeyFile]) -> dict[str, str]:
    """Return the state of each key of the key set, by kid."""
    return {file.kid: file.state for file in published(found) if file.kid}
