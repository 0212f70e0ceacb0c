"""The keyring: signers and the published key set, read from the key folders.

The folder of a key is its state. A rotation is a `mv`, and `ls` shows it:

    keys/next/       published, does not sign new tokens yet
    keys/active/     exactly one; signs
    keys/retiring/   published until its last token has expired; signs only repeats of earlier tokens

A key is a `*.pem` file there, or a `*.yaml` file that describes a remote key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import InputError, SetupError, Undecided
from issuer.formats import jose, strict_yaml
from issuer.io import files, keyfile
from issuer.service.settings.background import apart
from issuer.service.signing.aws_kms_key import AwsKmsFile
from issuer.service.signing.bounds import MAX_KEY_FILE_BYTES, SIGNER_AGAIN_S, SIGNER_START_S
from issuer.service.signing.lifecycle import STATES, KeyObservation, KeyState
from issuer.service.signing.pkcs11_key import Pkcs11File
from issuer.service.signing.remote_key import Backend, KeyFault, RemoteKey

SUFFIXES = (".pem", ".yaml")
# No JWS signing input begins with a zero byte, so a readiness signature can never belong to a token.
_READINESS = b"\x00issuer-readiness"


class FileKey:
    """A private key in this process, read from a file (io/keyfile.py). It signs in 40 microseconds."""

    max_message_bytes = jose.MAX_TOKEN_BYTES

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self.public = private.public_key()
        self.sign = partial(jose.sign, private)


class SigningKey(KeyObservation, frozen=True):
    """A private key with its `KeyObservation`. `kid` is its RFC 7638 thumbprint, `path` its file."""

    private: FileKey | RemoteKey
    path: Path

    @classmethod
    def of(cls, private: FileKey | RemoteKey, state: KeyState, path: Path = Path()) -> SigningKey:
        """Return the key with its thumbprint and the mtime of its file."""
        jwk = jose.public_jwk(private.public)
        return cls(str(jwk["kid"]), str(jwk["x"]), state, file_mtime(path), private, path)


class KeyringSigner:
    """A fixed set of keys. Implements `issuance.ports.Signer`."""

    def __init__(self, keys: tuple[SigningKey, ...]) -> None:
        self.keys = keys
        self._keys = {key.kid: key for key in keys}
        self._active = next((key.kid for key in keys if key.state == "active"), None)
        self.states = {key.kid: key.state for key in keys}
        self.usable_kids = tuple(self._keys)
        self.jwks = msgspec.json.encode({"keys": [jose.public_jwk(key.private.public) for key in keys]})

    @property
    def active_kid(self) -> str:
        """The key that signs new templates. Raises Undecided(`dependency.signer`) without an active key."""
        if self._active is None:
            raise Undecided(Code.DEPENDENCY_SIGNER)
        return self._active

    async def demand_live(self, kid: str) -> None:
        """Raise Undecided(`dependency.signer`) unless the key has just signed. A file key always signs."""
        private = self._private(kid)
        if isinstance(private, RemoteKey):
            await private.demand_live()

    async def sign(self, kid: str, signing_inputs: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Sign each input. A file key signs in this thread: it takes 40 microseconds, less than a switch of threads."""
        private = self._private(kid)
        if isinstance(private, RemoteKey):
            return await private.sign_all(signing_inputs)
        return tuple(map(private.sign, signing_inputs))

    def max_message_bytes(self, kid: str) -> int:
        """Return the largest signing input that a key signs. Raises Undecided(`dependency.signer`)."""
        return self._private(kid).max_message_bytes

    def _private(self, kid: str) -> FileKey | RemoteKey:
        if kid not in self._keys:
            raise Undecided(Code.DEPENDENCY_SIGNER)
        return self._keys[kid].private

    async def check(self, now: int) -> None:
        """Sign and verify with the published key set, or demand that a remote key is live. Raises Undecided."""
        message = _READINESS + str(now).encode()
        published = jose.parse_key_set(self.jwks).get(self.active_kid)
        private = self._private(self.active_kid)
        if isinstance(private, RemoteKey):
            await private.demand_live()
        elif published is None or not published.verifies(jose.EDDSA, message, private.sign(message)):
            raise Undecided(Code.DEPENDENCY_SIGNER)


class FolderState(Struct, frozen=True):
    """The contents of the key folders: the good keys, and the first error of the other files or of the folders.

    A file in `unjudged` may be good: the passphrase is unavailable, the disk fails, or a remote key did not open.
    """

    keys: tuple[SigningKey, ...]
    error: SetupError | OSError | None = None
    unjudged: frozenset[Path] = frozenset()

    @property
    def states(self) -> dict[str, KeyState]:
        """The state of each key, by kid."""
        return {key.kid: key.state for key in self.keys}

    def without_lost(self, found: FolderState) -> FolderState:
        """Return the state without the keys that `found` lacks; this same object if it lacks none."""
        there = {key.kid for key in found.keys}
        left = tuple(key for key in self.keys if key.kid in there or key.path in found.unjudged)
        return self if len(left) == len(self.keys) else FolderState(left)


def file_mtime(path: Path) -> int:
    """Return the mtime of a key's file in Unix seconds, 0 if the file is gone."""
    try:
        return int(path.lstat().st_mtime)
    except OSError:
        return 0


def find_keys(folder: Path, passphrase: Callable[[], bytes | None], opener: Opener | None = None) -> FolderState:
    """Read every key of the folder. A bad key does not hide the others. `opener` has the open remote keys."""
    opener = opener or Opener()
    paths = [
        (path, state) for state in STATES for path in sorted((folder / state).glob("*")) if path.suffix in SUFFIXES
    ]
    keys: list[SigningKey] = []
    errors: list[SetupError | OSError] = [*_unguarded(folder)]
    unjudged: set[Path] = set()
    try:
        secret = passphrase()
    except SetupError as error:
        return FolderState((), error, frozenset(path for path, _ in paths))
    for path, state in paths:
        try:
            private = opener.open(path) if path.suffix == ".yaml" else FileKey(keyfile.read(path, secret))
        except (SetupError, OSError) as error:
            errors.append(error)
            unjudged |= {path} if isinstance(error, OSError | Unopened) else set()
            continue
        keys.append(SigningKey.of(private, state, path))
    opener.forget_others()
    errors += _unfit(folder, keys)
    return FolderState(tuple(keys), errors[0] if errors else None, frozenset(unjudged))


def _unguarded(folder: Path) -> Iterator[SetupError]:
    """Yield an error for each folder that another user can write to: such a user could choose the key that signs."""
    for path in (folder, *(folder / state for state in STATES)):
        try:
            if path.exists():
                files.demand_guarded(path, group=False)
        except InputError as error:
            yield SetupError(Code.KEY_UNSAFE, f"{path}: {error.detail}")


def _unfit(folder: Path, keys: Sequence[SigningKey]) -> Iterator[SetupError]:
    """Yield an error unless the keys differ and exactly one of them is active."""
    active = sum(key.state == "active" for key in keys)
    if not keys:
        why = f"{folder} holds no key; make one with `issuer keys generate --dir {folder}`"
        yield SetupError(Code.KEY_UNUSABLE, why)
    elif active != 1:
        yield SetupError(Code.KEY_UNUSABLE, f"there must be exactly one active key; there are {active}")
    if len({key.kid for key in keys}) != len(keys):
        yield SetupError(Code.KEY_UNUSABLE, "the same key is in two folders; remove one of its files")


def generate(folder: Path, state: KeyState, passphrase: bytes | None = None) -> Path:
    """Make a key in a file named by its kid, and return the path. Folders get mode 0700. Raises SetupError."""
    private = keyfile.generate()
    kid = str(jose.public_jwk(private.public_key())["kid"])
    files.make_folder(folder / state, follow=False)
    path = folder / state / f"{kid}.pem"
    keyfile.write(path, private, passphrase)
    return path


# -- remote keys ------------------------------------------------------------------------------------------------------

# The YAML file of a remote key, by its member `backend`.
RemoteKeyFile: TypeAlias = AwsKmsFile | Pkcs11File
BACKENDS: dict[str, type[AwsKmsFile] | type[Pkcs11File]] = {"aws-kms": AwsKmsFile, "pkcs11": Pkcs11File}


class Unopened(SetupError):
    """A remote key that may be good: its file is safe but breaks a rule, or its backend did not open it."""

    def __init__(self, detail: str) -> None:
        super().__init__(Code.KEY_UNUSABLE, detail)


class Opener:
    """The remote keys of one process, by the bytes of their files. For one thread at a time. `open` waits `wait_s`
    seconds for a key that is not open yet."""

    def __init__(self, wait_s: float = SIGNER_START_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.wait_s = wait_s
        self._clock = clock
        self._openings: dict[bytes, tuple[float, Future[RemoteKey]]] = {}  # with the time of each start
        self._asked: set[bytes] = set()

    def open(self, path: Path) -> RemoteKey:
        """Return the key of a file, always the same object for the same content, whatever the file's name and folder.
        Raises Unopened, SetupError(`key.unsafe`) if other users can read or write the file, and OSError."""
        try:
            raw = files.read(path, MAX_KEY_FILE_BYTES, private=True)
        except InputError as error:
            raise SetupError(Code.KEY_UNSAFE, f"{path}: {error.detail}") from None
        self._asked.add(raw)
        try:
            return self._opening(raw, path).result(self.wait_s)
        except InputError as error:
            raise Unopened(str(error)) from None
        except TimeoutError:
            raise Unopened(f"{path}: its backend has not answered yet; check that it can be reached") from None
        except KeyFault as fault:
            raise Unopened(f"{path}: {fault}") from None

    def forget_others(self) -> None:
        """Drop the keys whose files `open` has not read since the last call of this method."""
        self._openings = {raw: self._openings[raw] for raw in self._asked if raw in self._openings}
        self._asked = set()

    def _opening(self, raw: bytes, path: Path) -> Future[RemoteKey]:
        """Return a key's opening. Begin it at the first call, and again after a failure and a pause."""
        since, key = self._openings.get(raw, (0.0, None))
        is_over = key is not None and key.done() and key.exception() is not None
        if key is None or (is_over and self._clock() - since >= SIGNER_AGAIN_S):
            key = apart(partial(_open, read_key_file(raw, str(path))), "opener")
            self._openings[raw] = self._clock(), key
        return key


def read_key_file(raw: bytes, name: str) -> RemoteKeyFile:
    """Parse the YAML file of a remote key. Raises InputError with line and column."""
    document = strict_yaml.load(raw, name)
    backend = document.value.get("backend") if isinstance(document.value, dict) else None
    if not isinstance(backend, str) or backend not in BACKENDS:
        raise document.error(Code.FILE_RULE, "/backend", f"backend must be one of {', '.join(sorted(BACKENDS))}")
    file = document.convert(BACKENDS[backend])
    if (fault := file.fault()) is not None:
        raise document.error(Code.FILE_RULE, *fault)
    return file


def _open(file: RemoteKeyFile) -> RemoteKey:
    """Open a key and let it prove itself. Raises only KeyFault, whatever the driver raises."""
    try:
        return _proved(file, file.open())
    except KeyFault:
        raise
    except Exception as error:  # noqa: BLE001 (a driver may raise anything)
        raise KeyFault(f"its backend raised {type(error).__name__}") from None


def _proved(file: RemoteKeyFile, backend: Backend) -> RemoteKey:
    kid = str(jose.public_jwk(backend.public)["kid"])
    if file.kid not in (UNSET, kid):
        todo = "correct the file, or find out who replaced the key"
        raise KeyFault(f"it says kid {file.kid!r}, but the key has {kid!r}: {todo}")
    key = RemoteKey(backend, kid)
    key.prove()
    return key
