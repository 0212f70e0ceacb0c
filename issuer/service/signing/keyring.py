"""The signing keys: what lies in the folders of keys becomes signers and the published key set.

A key's state is its folder, so that a rotation is a `mv` and `ls` shows it:

    keys/next/       published, does not sign new tokens yet
    keys/active/     exactly one; signs
    keys/retiring/   published until its last token has expired; signs only retries of what it began

A key is a file there: `*.pem`, or `*.yaml` for one that lies elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
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

# Of the files that hold a key, or say where one lies.
SUFFIXES = (".pem", ".yaml")
# No JWS signing input begins with a zero byte: a readiness signature can never be a token's.
_READINESS = b"\x00issuer-readiness"


class FileKey:
    """A private key in this process, read from a file (io/keyfile.py). It signs at once, in 40 microseconds."""

    max_message_bytes = jose.MAX_TOKEN_BYTES

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._public = private.public_key()
        self.sign = partial(jose.sign, private)

    def public_key(self) -> Ed25519PublicKey:
        """Return its public half."""
        return self._public


class SigningKey(KeyObservation, frozen=True):
    """One private key, and what is seen of it; `kid` is its RFC 7638 thumbprint, `path` the file it was read from."""

    private: FileKey | RemoteKey
    path: Path

    @classmethod
    def of(cls, private: FileKey | RemoteKey, state: KeyState, path: Path = Path()) -> SigningKey:
        """Look at the key's file, too, if it is still there."""
        jwk = jose.public_jwk(private.public_key())
        return cls(str(jwk["kid"]), str(jwk["x"]), state, made(path), private, path)


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

    async def sign(self, kid: str, signing_inputs: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Sign each input. Ed25519 takes 40 microseconds; handing it to a thread costs more than it frees."""
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
        """Sign and verify through the published key set; with a key that lies elsewhere at most once a minute. Raises
        Undecided(`dependency.signer`)."""
        message = _READINESS + str(now).encode()
        published = jose.parse_key_set(self.jwks).get(self.active_kid)
        private = self._private(self.active_kid)
        if isinstance(private, RemoteKey):
            await private.check(message)
        elif published is None or not published.verifies(jose.EDDSA, message, private.sign(message)):
            raise Undecided(Code.DEPENDENCY_SIGNER)


class FolderState(Struct, frozen=True):
    """What the folders of keys hold: the keys of fit files, and what is first wrong with the others, or with all.

    Nothing is known about the files in `unjudged`: the passphrase is not to be had, the disk fails, or a key that lies
    elsewhere could not be opened.
    """

    keys: tuple[SigningKey, ...]
    error: SetupError | OSError | None = None
    unjudged: frozenset[Path] = frozenset()

    @property
    def states(self) -> dict[str, KeyState]:
        """The state of each key, by kid."""
        return {key.kid: key.state for key in self.keys}

    def without_lost(self, found: FolderState) -> FolderState:
        """Return what is left of the keys: without those that are gone, the same object where none is."""
        there = {key.kid for key in found.keys}
        left = tuple(key for key in self.keys if key.kid in there or key.path in found.unjudged)
        return self if len(left) == len(self.keys) else FolderState(left)


def made(path: Path) -> int:
    """Return the time of a key's file in Unix seconds, 0 for one that is gone."""
    try:
        return int(path.lstat().st_mtime)
    except OSError:
        return 0


def find_keys(folder: Path, passphrase: Callable[[], bytes | None], opener: Opener | None = None) -> FolderState:
    """Read every key of the folder, each for itself: one that is not fit hides no other. `opener` has those that lie
    elsewhere and are open already."""
    opener = opener or Opener()
    paths = [
        (path, state) for state in STATES for path in sorted((folder / state).glob("*")) if path.suffix in SUFFIXES
    ]
    keys: list[SigningKey] = []
    errors: list[SetupError | OSError] = [*_unguarded(folder)]
    unjudged: set[Path] = set()
    try:
        opens = passphrase()
    except SetupError as error:
        return FolderState((), error, frozenset(path for path, _ in paths))
    for path, state in paths:
        try:
            private = opener.open(path) if path.suffix == ".yaml" else FileKey(keyfile.read(path, opens))
        except (SetupError, OSError) as error:
            errors.append(error)
            unjudged |= {path} if isinstance(error, OSError | Unopened) else set()
            continue
        keys.append(SigningKey.of(private, state, path))
    opener.forget_others()
    errors += _unfit(folder, keys)
    return FolderState(tuple(keys), errors[0] if errors else None, frozenset(unjudged))


def _unguarded(folder: Path) -> Iterator[SetupError]:
    """Yield an error for each folder that others may write to: who moves a key there chooses which one signs."""
    for path in (folder, *(folder / state for state in STATES)):
        try:
            if path.exists():
                files.demand_guarded(path, group=False)
        except InputError as error:
            yield SetupError(Code.KEY_UNSAFE, f"{path}: {error.detail}")


def _unfit(folder: Path, keys: Sequence[SigningKey]) -> Iterator[SetupError]:
    """Yield what is wrong with keys that are each fit: they must be different, and exactly one of them active."""
    active = sum(key.state == "active" for key in keys)
    if not keys:
        detail = f"{folder} holds no key; make one with `issuer keys generate --dir {folder}`"
        yield SetupError(Code.KEY_UNUSABLE, detail)
    elif active != 1:
        yield SetupError(Code.KEY_UNUSABLE, f"there must be exactly one active key; there are {active}")
    if len({key.kid for key in keys}) != len(keys):
        yield SetupError(Code.KEY_UNUSABLE, "the same key lies in two folders; keep one")


def generate(folder: Path, state: KeyState, passphrase: bytes | None = None) -> Path:
    """Make a key, named by its kid, and return the file. Folders get mode 0700. Raises SetupError."""
    private = keyfile.generate()
    kid = str(jose.public_jwk(private.public_key())["kid"])
    files.make_folder(folder / state, follow=False)
    path = folder / state / f"{kid}.pem"
    keyfile.write(path, private, passphrase)
    return path


# -- keys that lie elsewhere ------------------------------------------------------------------------------------------

# What a YAML file says of one key, and by what its member `backend` says.
KeyFile: TypeAlias = AwsKmsFile | Pkcs11File
BACKENDS: dict[str, type[AwsKmsFile] | type[Pkcs11File]] = {"aws-kms": AwsKmsFile, "pkcs11": Pkcs11File}


class Unopened(SetupError):
    """Nothing is known of a key: its file is fit to be believed, and breaks a rule, or its backend did not open it."""

    def __init__(self, detail: str) -> None:
        super().__init__(Code.KEY_UNUSABLE, detail)


class Opener:
    """The keys of one process that lie elsewhere, by the bytes of their files. Used by one thread at a time. `wait_s`
    is how long `open` waits for a key that it has not seen before."""

    def __init__(self, wait_s: float = SIGNER_START_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.wait_s = wait_s
        self._clock = clock
        self._openings: dict[bytes, tuple[float, Future[RemoteKey]]] = {}  # since when each is opened, or open
        self._asked: set[bytes] = set()

    def open(self, path: Path) -> RemoteKey:
        """Return the key that a file names, which is the same one for as long as the file says the same, whatever its
        name and folder. Raises Unopened; SetupError(`key.unsafe`) where others may touch the file; and OSError."""
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
            raise Unopened(f"{path}: its backend has not answered yet; look whether it can be reached") from None
        except KeyFault as fault:
            raise Unopened(f"{path}: {fault}") from None

    def forget_others(self) -> None:
        """Let go of the keys that nobody has asked for since the last call."""
        self._openings = {raw: self._openings[raw] for raw in self._asked if raw in self._openings}
        self._asked = set()

    def _opening(self, raw: bytes, path: Path) -> Future[RemoteKey]:
        """Return the opening that is under way or done, or begin one: the first, or one after a pause."""
        since, key = self._openings.get(raw, (0.0, None))
        is_over = key is not None and key.done() and key.exception() is not None
        if key is None or (is_over and self._clock() - since >= SIGNER_AGAIN_S):
            key = apart(partial(_open, read_key_file(raw, str(path))), "opener")
            self._openings[raw] = self._clock(), key
        return key


def read_key_file(raw: bytes, name: str) -> KeyFile:
    """Read what a YAML file says of a key. Raises InputError with line and column."""
    document = strict_yaml.load(raw, name)
    backend = document.value.get("backend") if isinstance(document.value, dict) else None
    if not isinstance(backend, str) or backend not in BACKENDS:
        raise document.error(Code.FILE_RULE, "/backend", f"backend is one of {', '.join(sorted(BACKENDS))}")
    file = document.convert(BACKENDS[backend])
    if (fault := file.fault()) is not None:
        raise document.error(Code.FILE_RULE, *fault)
    return file


def _open(file: KeyFile) -> RemoteKey:
    """Open a key, and have it prove itself. Raises KeyFault, whatever a driver raises."""
    try:
        return _proved(file, file.open())
    except KeyFault:
        raise
    except Exception as error:  # noqa: BLE001 (it opened no key)
        raise KeyFault(f"its backend raised {type(error).__name__}") from None


def _proved(file: KeyFile, backend: Backend) -> RemoteKey:
    kid = str(jose.public_jwk(backend.public_key())["kid"])
    if file.kid not in (UNSET, kid):
        todo = "correct the file, or find out whose key that is"
        raise KeyFault(f"it says kid {file.kid!r}, but the key has {kid!r}: {todo}")
    key = RemoteKey(backend, kid)
    key.prove()
    return key
