"""A private key in a PKCS #11 token (OASIS PKCS #11 3.1, mechanism CKM_EDDSA), through python-pkcs11.

python-pkcs11 opens a module for one thread (C_Initialize without arguments), so all keys of a module share one lock.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec import UNSET, Struct, UnsetType

from issuer.errors import InputError
from issuer.formats import jose
from issuer.formats.strict_json import Text
from issuer.io import files
from issuer.service.signing.bounds import MAX_PIN_FILE_BYTES, SIGNER_S
from issuer.service.signing.remote_key import KeyFault

if TYPE_CHECKING:
    from pkcs11 import ObjectClass, Session, Token


class Pkcs11File(Struct, frozen=True, forbid_unknown_fields=True):
    """A key file with `backend: "pkcs11"`: the paths of the module and of the PIN, the labels of token and key."""

    version: Literal[1]
    backend: Literal["pkcs11"]
    module: Text
    token: Text
    key: Text
    pin_file: Text
    kid: Text | UnsetType = UNSET

    def fault(self) -> tuple[str, str] | None:
        """Return pointer and text of the first broken rule. For a bare name, the environment would choose the file."""
        for name in ("module", "pin_file"):
            if not Path(getattr(self, name)).is_absolute():
                return f"/{name}", f"{name} must be a path that begins with /"
        return None

    def open(self) -> Pkcs11Key:
        """Log in and find the key. Raises KeyFault."""
        return Pkcs11Key(self)


class Pkcs11Key:
    """A key in a token that this process is logged in to. `sign` opens a token again after its removal and return."""

    max_message_bytes = jose.MAX_TOKEN_BYTES
    at_once = 1

    def __init__(self, file: Pkcs11File) -> None:
        self._file = file
        try:
            import pkcs11
        except ImportError:
            raise KeyFault("python-pkcs11 is not installed: in the checkout, run `pip install '.[pkcs11]'`") from None
        self._pkcs11: Any = pkcs11
        self._module = _Module(file.module)
        self._session: Any = None
        with self._module.lock, self._faults():
            self._private = self._open()
            self.public = self._published()

    def sign(self, message: bytes) -> bytes:
        """Sign a message. After an error, open a new session and try once more. Raises KeyFault."""
        with self._module.lock, self._faults():
            try:
                return self._sign(message)
            except self._pkcs11.PKCS11Error:
                self._private = self._open()
                return self._sign(message)

    def _sign(self, message: bytes) -> bytes:
        return bytes(self._private.sign(message, mechanism=self._pkcs11.Mechanism.EDDSA))

    def _open(self) -> Any:
        """Open a session and find the private key. A login covers the process: another key may have logged in."""
        if self._session is not None:
            with suppress(self._pkcs11.PKCS11Error):
                self._session.close()
        token = self._module.token(self._pkcs11, self._file.token)
        self._session = token.open()
        try:
            return self._find(self._pkcs11.ObjectClass.PRIVATE_KEY)
        except self._pkcs11.NoSuchKey:  # private keys are visible only after a login
            self._session.close()
            self._session = self._log_in(token)
            return self._find(self._pkcs11.ObjectClass.PRIVATE_KEY)

    def _log_in(self, token: Token) -> Session:
        """Log in with the PIN of the file. Never try a wrong PIN twice, and never use the token's last try."""
        demand_a_try(token.flags)
        pin = _read_pin(Path(self._file.pin_file))
        digest = hashlib.sha256(f"{self._file.module}\0{self._file.token}\0{pin}".encode()).digest()
        if digest in _WRONG_PINS:
            raise KeyFault(_FAULTS["PinIncorrect"])
        try:
            return token.open(user_pin=pin)
        except self._pkcs11.PinIncorrect:
            _WRONG_PINS.add(digest)
            raise

    def _find(self, kind: ObjectClass) -> Any:
        """Return the one Ed25519 key of a kind with the label. Raises NoSuchKey and MultipleObjectsReturned."""
        names = self._pkcs11.Attribute
        wanted = {names.CLASS: kind, names.KEY_TYPE: self._pkcs11.KeyType.EC_EDWARDS, names.LABEL: self._file.key}
        found = list(self._session.get_objects(wanted))  # read to the end: an unfinished search breaks the next one
        if len(found) == 1:
            return found[0]
        raise self._pkcs11.MultipleObjectsReturned if found else self._pkcs11.NoSuchKey

    def _published(self) -> Ed25519PublicKey:
        """Read the public key object with the same label. Its point is 32 bytes, or these in a DER OCTET STRING."""
        raw = bytes(self._find(self._pkcs11.ObjectClass.PUBLIC_KEY)[self._pkcs11.Attribute.EC_POINT])
        point = raw.removeprefix(b"\x04\x20") if len(raw) == 34 else raw
        if len(point) != 32:
            raise KeyFault(f"key {self._file.key!r} is not on edwards25519: make an Ed25519 key")
        return Ed25519PublicKey.from_public_bytes(point)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except self._pkcs11.PKCS11Error as error:
            name = type(error).__name__
            raise KeyFault(_FAULTS.get(name, f"the token answered {name}")) from None


def demand_a_try(flags: int) -> None:
    """Raise KeyFault if the flags of a token say that the next wrong PIN would lock it, or that it is locked."""
    if flags & (_USER_PIN_FINAL_TRY | _USER_PIN_LOCKED):
        raise KeyFault(_LAST_TRY)


# CK_TOKEN_INFO
_USER_PIN_FINAL_TRY, _USER_PIN_LOCKED = 0x20000, 0x40000
# The names of python-pkcs11's errors, each with the fault and the next step.
_FAULTS = {
    "PinIncorrect": "the PIN is wrong, and the service will not try it again: put the right one into pin_file",
    "PinLocked": "the PIN is locked: unlock it with the token's own tool, as its security officer",
    "NoSuchToken": "no token has this label: check that it is connected, and that `module` is its driver",
    "NoSuchKey": "the token lacks a private or a public Ed25519 key with this label: correct the file, or make the key",
    "MultipleObjectsReturned": "the token has several keys with this label: give each key a different label",
    "MultipleTokensReturned": "several tokens have this label: give each token a different label",
    "PKCS11Error": "`module` cannot be loaded: name the shared library of the token's driver",
}
_LAST_TRY = (
    "after wrong PINs the token has one try left, or none, and the service does not use the last one. Put the right "
    "PIN into pin_file, and log in once with the token's own tool"
)
# Digests of module, token and PIN, for each login of this process that failed with a wrong PIN.
_WRONG_PINS: set[bytes] = set()


@cache
class _Module:
    """A module that this process has loaded, once for all of its keys, which share `lock`."""

    def __init__(self, path: str) -> None:
        self.lock = threading.Lock()
        self._path = path
        self._again_at = 0.0
        self._is_kept = False

    def token(self, pkcs11: Any, label: str) -> Any:
        """Find a token. Some modules see a new or returned token only after a new start, which ends all sessions, so
        this restarts the module at most once a second. Raises PKCS11Error."""
        library = self._loaded(pkcs11)
        try:
            return library.get_token(token_label=label)
        except pkcs11.PKCS11Error:
            if time.monotonic() < self._again_at:
                raise
            self._again_at = time.monotonic() + SIGNER_S
            library.reinitialize()
            return library.get_token(token_label=label)

    def _loaded(self, pkcs11: Any) -> Any:
        """Load the module for good: at exit Python would unload it, and crash a thread that hangs in the driver."""
        library = pkcs11.lib(self._path)
        if not self._is_kept:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
            self._is_kept = True
        return library


def _read_pin(path: Path) -> str:
    """Read a PIN: the file's content without line breaks at its end. Raises KeyFault."""
    try:
        pin = files.read(path, MAX_PIN_FILE_BYTES, private=True).rstrip(b"\r\n").decode()
    except InputError as error:
        raise KeyFault(f"pin_file {path}: {error.detail}") from None
    except OSError as error:
        raise KeyFault(f"pin_file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise KeyFault(f"pin_file {path}: not UTF-8") from None
    if not pin:
        raise KeyFault(f"pin_file {path}: the file is empty")
    return pin
