"""The signing keys: what lies in the folders of keys becomes signers and the published key set.

A key's state is its folder, so that a rotation is a `mv` and `ls` shows it:

    keys/next/*.pem       published, does not sign new tokens yet
    keys/active/*.pem     exactly one; signs
    keys/retiring/*.pem   published until its last token has expired; signs only retries of what it began
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from issuer import files, keyfile
from issuer.codes import Code
from issuer.errors import InputError, SetupError, Undecided
from issuer.formats import jose
from issuer.service.signing.file_key import FileKey
from issuer.service.signing.private_key import PrivateKey

KeyState = Literal["next", "active", "retiring"]
STATES: tuple[KeyState, ...] = get_args(KeyState)
# No JWS signing input begins with a zero byte: a readiness signature can never be a token's.
_READINESS = b"\x00issuer-readiness"


class SigningKey(Struct, frozen=True):
    """One private key with its state; `kid` is its RFC 7638 thumbprint, `path` the file that it was read from."""

    kid: str
    state: KeyState
    private: PrivateKey
    path: Path = Path()


class KeyringSigner:
    """A fixed set of keys. Implements `issuance.ports.Signer`."""

    def __init__(self, keys: tuple[SigningKey, ...]) -> None:
        self.keys = keys
        self._keys = {key.kid: key for key in keys}
        self._active = next((key.kid for key in keys if key.state == "active"), None)
        self.states = {key.kid: key.state for key in keys}
        self.usable_kids = tuple(self._keys)
        self.jwks = msgspec.json.encode({"keys": [jose.public_jwk(key.private.public_key()) for key in keys]})

    @property
    def active_kid(self) -> str:
        """The key that signs new templates. Raises Undecided(`dependency.signer`) where it was taken away."""
        if self._active is None:
            raise Undecided(Code.DEPENDENCY_SIGNER)
        return self._active

    def only(self, kids: Collection[str]) -> KeyringSigner:
        """Return the part of the set that is in `kids`. Without its active key it begins no token."""
        return KeyringSigner(tuple(key for key in self.keys if key.kid in kids))

    async def sign(self, kid: str, signing_inputs: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Sign each input. Ed25519 takes 40 microseconds; handing it to a thread costs more than it frees."""
        return tuple(map(self._key(kid).private.sign, signing_inputs))

    def max_message_bytes(self, kid: str) -> int:
        """Return the largest signing input that a key signs. Raises Undecided(`dependency.signer`)."""
        return self._key(kid).private.max_message_bytes

    def _key(self, kid: str) -> SigningKey:
        key = self._keys.get(kid)
        if key is None:
            raise Undecided(Code.DEPENDENCY_SIGNER)
        return key

    async def check(self, now: int) -> None:
        """Sign and verify through the published key set. Raises Undecided(`dependency.signer`)."""
        message = _READINESS + str(now).encode()
        published = jose.parse_key_set(self.jwks).get(self.active_kid)
        (signature,) = await self.sign(self.active_kid, (message,))
        if published is None or not published.verifies(jose.EDDSA, message, signature):
            raise Undecided(Code.DEPENDENCY_SIGNER)


class Found(Struct, frozen=True):
    """What the folders of keys hold: the keys that are fit, and what is wrong with the first file that is not.

    Nothing is known about the files in `unjudged`: the passphrase is not to be had, or the disk fails.
    """

    keys: tuple[SigningKey, ...]
    error: SetupError | OSError | None = None
    unjudged: frozenset[Path] = frozenset()


def find_keys(folder: Path, passphrase: Callable[[], bytes | None]) -> Found:
    """Read every key of the folder, each for itself: one that is not fit hides no other."""
    paths = {path: state for state in STATES for path in sorted((folder / state).glob("*.pem"))}
    keys: list[SigningKey] = []
    errors: list[SetupError | OSError] = [*_unguarded(folder)]
    unjudged: set[Path] = set()
    try:
        opens = passphrase()
    except SetupError as error:
        return Found((), error, frozenset(paths))
    for path, state in paths.items():
        try:
            private = keyfile.read(path, opens)
        except (SetupError, OSError) as error:
            errors.append(error)
            unjudged |= {path} if isinstance(error, OSError) else set()
            continue
        keys.append(SigningKey(str(jose.public_jwk(private.public_key())["kid"]), state, FileKey(private), path))
    return Found(tuple(keys), errors[0] if errors else None, frozenset(unjudged))


def _unguarded(folder: Path) -> Iterator[SetupError]:
    """Yield an error for each folder that others may write to: who moves a key there chooses which one signs."""
    for path in (folder, *(folder / state for state in STATES)):
        try:
            if path.exists():
                files.demand_guarded(path, group=False)
        except InputError as error:
            yield SetupError(Code.KEY_UNSAFE, f"{path}: {error.detail}")


def load_keyring(folder: Path, passphrase: bytes | None = None) -> KeyringSigner:
    """Load every key of the folder into a keyring that may sign. Raises SetupError."""
    return fit_keyring(load_keys(folder, passphrase))


def load_keys(folder: Path, passphrase: bytes | None = None) -> tuple[SigningKey, ...]:
    """Load every key of the folder; there must be at least one. Raises SetupError and OSError."""
    found = find_keys(folder, lambda: passphrase)
    if found.error is not None:
        raise found.error
    if not found.keys:
        raise SetupError(
            Code.KEY_UNUSABLE, f"{folder} holds no key; make one with `issuer keys generate --dir {folder}`"
        )
    return found.keys


def fit_keyring(keys: tuple[SigningKey, ...]) -> KeyringSigner:
    """Make a keyring of keys that are different, and one of them active. Raises SetupError."""
    active = sum(key.state == "active" for key in keys)
    if active != 1:
        raise SetupError(Code.KEY_UNUSABLE, f"there must be exactly one active key; there are {active}")
    if len({key.kid for key in keys}) != len(keys):
        raise SetupError(Code.KEY_UNUSABLE, "the same key lies in two folders; keep one")
    return KeyringSigner(keys)


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
