"""Keys that lie elsewhere, as a YAML file in a state's folder names them (keys/README.md): each is opened once.

Knows which backends there are, and opens a key apart from whoever asks: a token that does not answer holds up neither
the start of the process for long, nor the look that drops another key.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Protocol

from msgspec import UNSET, Struct, UnsetType

from issuer import files
from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.formats import jose, strict_yaml
from issuer.service.background import apart
from issuer.service.bounds import MAX_KEY_FILE_BYTES, SIGNER_AGAIN_S, SIGNER_START_S
from issuer.service.signing.aws_kms_key import AwsKmsFile
from issuer.service.signing.pkcs11_key import Pkcs11File
from issuer.service.signing.private_key import KeyFault
from issuer.service.signing.remote_key import Backend, RemoteKey


class KeyFile(Protocol):
    """What a YAML file says of one key."""

    @property
    def kid(self) -> str | UnsetType:
        """The RFC 7638 thumbprint that the key must have, where the file says so."""
        ...

    def fault(self) -> tuple[str, str] | None:
        """Return the JSON pointer of the first member that breaks a rule of the backend's, and the rule; else None."""
        ...

    def open(self) -> Backend:
        """Open the key. Blocks; raises KeyFault."""
        ...


# By what the member `backend` says.
BACKENDS: dict[str, type[AwsKmsFile] | type[Pkcs11File]] = {"aws-kms": AwsKmsFile, "pkcs11": Pkcs11File}


class Unopened(SetupError):
    """Nothing is known of a key: its file is fit to be believed, and breaks a rule, or its backend did not open it."""

    def __init__(self, detail: str) -> None:
        super().__init__(Code.KEY_UNUSABLE, detail)


class _Opening(Struct, frozen=True):
    """A key that is being opened, is open, or could not be; and since when, by the opener's clock."""

    since: float
    key: Future[RemoteKey]


class Opener:
    """The keys of one process that lie elsewhere, by the bytes of their files. Used by one thread at a time.

    `wait_s` is how long `open` waits for a key that it has not seen before.
    """

    def __init__(self, wait_s: float = SIGNER_START_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.wait_s = wait_s
        self._clock = clock
        self._openings: dict[bytes, _Opening] = {}
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
            return self._opening(raw, path).key.result(self.wait_s)
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

    def _opening(self, raw: bytes, path: Path) -> _Opening:
        """Return the opening that is under way or done, or begin one: the first, or one after a pause."""
        opening = self._openings.get(raw)
        if opening is None or (_failed(opening.key) and self._clock() - opening.since >= SIGNER_AGAIN_S):
            opening = _Opening(self._clock(), apart(partial(_open, read_key_file(raw, str(path))), "opener"))
            self._openings[raw] = opening
        return opening


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
        raise KeyFault(
            f"it says kid {file.kid!r}, but the key has {kid!r}: correct the file, or find out whose key that is"
        )
    key = RemoteKey(backend, kid)
    key.prove()
    return key


def _failed(key: Future[RemoteKey]) -> bool:
    return key.done() and key.exception() is not None
