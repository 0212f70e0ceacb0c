"""The signing keys: what lies in the folders of keys becomes signers and the published key set.

A key's state is its folder, so that a rotation is a `mv` and `ls` shows it:

    keys/next/       published, does not sign new tokens yet
    keys/active/     exactly one; signs
    keys/retiring/   published until its last token has expired; signs only retries of what it began

A key is a file there: `*.pem`, or `*.yaml` for one that lies elsewhere.
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
from issuer.service.signing.opener import Opener, Unopened
from issuer.service.signing.remote_key import RemoteKey

KeyState = Literal["next", "active", "retiring"]
STATES: tuple[KeyState, ...] = get_args(KeyState)
# Of the files that hold a key, or say where one lies.
SUFFIXES = (".pem", ".yaml")
# No JWS signing input begins with a zero byte: a readiness signature can never be a token's.
_READINESS = b"\x00issuer-readiness"


class SigningKey(Struct, frozen=True):
    """One private key with its state; `kid` is its RFC 7638 thumbprint, `path` the file that it was read from."""

    kid: str
    state: KeyState
    private: FileKey | RemoteKey
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
        private = self._key(kid).private
        if isinstance(private, RemoteKey):
            return await private.sign_all(signing_inputs)
        return tuple(map(private.sign, signing_inputs))

    def max_message_bytes(self, kid: str) -> int:
        """Return the largest signing input that a key signs. Raises Undecided(`dependency.signer`)."""
        return self._key(kid).private.max_message_bytes

    def _key(self, kid: str) -> SigningKey:
        key = self._keys.get(kid)
        if key is None:
            raise Undecided(Code.DEPENDENCY_SIGNER)
        return key

    async def check(self, now: int) -> None:
        """Sign and verify through the published key set; with a key that lies elsewhere at most once a minute. Raises
        Undecided(`dependency.signer`)."""
        message = _READINESS + str(now).encode()
        published = jose.parse_key_set(self.jwks).get(self.active_kid)
        private = self._key(self.active_kid).private
        if isinstance(private, RemoteKey):
            await private.check(message)
        elif published is None or not published.verifies(jose.EDDSA, message, private.sign(message)):
            raise Undecided(Code.DEPENDENCY_SIGNER)


class Found(Struct, frozen=True):
    """What the folders of keys hold: the keys that are fit, and what is wrong with the first file that is not.

    Nothing is known about the files in `unjudged`: the passphrase is not to be had, the disk fails, or a key that lies
    elsewhere could not be opened.
    """

    keys: tuple[SigningKey, ...]
    error: SetupError | OSError | None = None
    unjudged: frozenset[Path] = frozenset()


def key_paths(folder: Path) -> dict[Path, KeyState]:
    """Return the file of every key of the folder, with the state that it lies in."""
    return {
        path: state
        for state in STATES
        for path in sorted(path for suffix in SUFFIXES for path in (folder / state).glob(f"*{suffix}"))
    }


def find_keys(folder: Path, passphrase: Callable[[], bytes | None], opener: Opener | None = None) -> Found:
    """Read every key of the folder, each for itself: one that is not fit hides no other. `opener` has those that lie
    elsewhere and are open already."""
    opener = opener or Opener()
    paths = key_paths(folder)
    keys: list[SigningKey] = []
    errors: list[SetupError | OSError] = [*_unguarded(folder)]
    unjudged: set[Path] = set()
    try:
        opens = passphrase()
    except SetupError as error:
        return Found((), error, frozenset(paths))
    for path, state in paths.items():
        try:
            private = opener.open(path) if path.suffix == ".yaml" else FileKey(keyfile.read(path, opens))
        except (SetupError, OSError) as error:
            errors.append(error)
            unjudged |= {path} if isinstance(error, OSError | Unopened) else set()
            continue
        keys.append(SigningKey(str(jose.public_jwk(private.public_key())["kid"]), state, private, path))
    opener.forget_others()
    return Found(tuple(keys), errors[0] if errors else None, frozenset(unjudged))


def _unguarded(folder: Path) -> Iterator[SetupError]:
    """Yield an error for each folder that others may write to: who moves a key there chooses which one signs."""
    for path in (folder, *(folder / state for state in STATES)):
        try:
            if path.exists():
                files.demand_guarded(path, group=False)
        except InputError as error:
            yield SetupError(Code.KEY_UNSAFE, f"{path}: {error.detail}")


def load_keyring(folder: Path, passphrase: bytes | None = None, opener: Opener | None = None) -> KeyringSigner:
    """Load every key of the folder into a keyring that may sign. Raises SetupError."""
    return fit_keyring(load_keys(folder, passphrase, opener))


def load_keys(folder: Path, passphrase: bytes | None = None, opener: Opener | None = None) -> tuple[SigningKey, ...]:
    """Load every key of the folder; there must be at least one. Raises SetupError and OSError."""
    found = find_keys(folder, lambda: passphrase, opener)
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
