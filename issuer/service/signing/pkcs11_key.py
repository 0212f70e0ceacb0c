"""A private key in a PKCS #11 token (OASIS PKCS #11 3.1, mechanism CKM_EDDSA), by python-pkcs11.

python-pkcs11 opens a module for use by one thread (C_Initialize without arguments), so all keys of a module take turns.
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
from types import ModuleType
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
    """`backend: "pkcs11"`: the module's file, the token's and the key's labels, and where the PIN is."""

    version: Literal[1]
    backend: Literal["pkcs11"]
    module: Text
    token: Text
    key: Text
    pin_file: Text
    kid: Text | UnsetType = UNSET

    def fault(self) -> tuple[str, str] | None:
        """Demand whole paths: a name alone is looked for in places that the environment names."""
        for name in ("module", "pin_file"):
            if not Path(getattr(self, name)).is_absolute():
                return f"/{name}", f"{name} is a path that begins with /"
        return None

    def open(self) -> Pkcs11Key:
        """Log in and find the key. Raises KeyFault."""
        return Pkcs11Key(self)


class Pkcs11Key:
    """A key of a token that this process is logged in to. A token that was away and is back is opened again."""

    max_message_bytes = jose.MAX_TOKEN_BYTES
    at_once = 1

    def __init__(self, file: Pkcs11File) -> None:
        self._file = file
        self._pkcs11: Any = _library()
        self._module = _module(file.module)
        self._session: Any = None
        with self._module.lock, self._faults():
            self._private = self._open()
            self._public = self._published()

    def public_key(self) -> Ed25519PublicKey:
        """Return its public half."""
        return self._public

    def sign(self, message: bytes) -> bytes:
        """Sign a message; once more in a new session, where the old one is not good any more. Raises KeyFault."""
        with self._module.lock, self._faults():
            try:
                return self._sign(message)
            except self._pkcs11.PKCS11Error:
                self._private = self._open()
                return self._sign(message)

    def _sign(self, message: bytes) -> bytes:
        return bytes(self._private.sign(message, mechanism=self._pkcs11.Mechanism.EDDSA))

    # -- the token ----------------------------------------------------------------------------------------------------

    def _open(self) -> Any:
        """Open a session and find the private key. A login is the process's: another key's serves this one, too."""
        if self._session is not None:
            with suppress(self._pkcs11.PKCS11Error):
                self._session.close()
        token = self._module.token(self._pkcs11, self._file.token)
        self._session = token.open()
        try:
            return self._find(self._pkcs11.ObjectClass.PRIVATE_KEY)
        except self._pkcs11.NoSuchKey:  # nobody without a login sees one
            self._session.close()
            self._session = self._log_in(token)
            return self._find(self._pkcs11.ObjectClass.PRIVATE_KEY)

    def _log_in(self, token: Token) -> Session:
        """Log in with the PIN of the file. A PIN that was wrong is not tried again, and never the token's last try."""
        demand_a_try(token.flags)
        pin = _read_pin(Path(self._file.pin_file))
        tried = hashlib.sha256(f"{self._file.module}\0{self._file.token}\0{pin}".encode()).digest()
        if tried in _WRONG_PINS:
            raise KeyFault(_FAULTS["PinIncorrect"])
        try:
            return token.open(user_pin=pin)
        except self._pkcs11.PinIncorrect:
            _WRONG_PINS.add(tried)
            raise

    def _find(self, kind: ObjectClass) -> Any:
        """Return the one Ed25519 key of a kind with the label. Raises NoSuchKey and MultipleObjectsReturned."""
        names = self._pkcs11.Attribute
        wanted = {names.CLASS: kind, names.KEY_TYPE: self._pkcs11.KeyType.EC_EDWARDS, names.LABEL: self._file.key}
        found = list(self._session.get_objects(wanted))  # to the end: a search that is left open ends the next one
        if len(found) == 1:
            return found[0]
        raise self._pkcs11.MultipleObjectsReturned if found else self._pkcs11.NoSuchKey

    def _published(self) -> Ed25519PublicKey:
        """Return the public key object of the same label. Its point is 32 bytes, or these as a DER OCTET STRING."""
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
    """Raise KeyFault where the flags of a token say that the next wrong PIN locks it, or that one has."""
    if flags & (_USER_PIN_FINAL_TRY | _USER_PIN_LOCKED):
        raise KeyFault(_LAST_TRY)


# CK_TOKEN_INFO
_USER_PIN_FINAL_TRY, _USER_PIN_LOCKED = 0x20000, 0x40000
# What a token answers, by python-pkcs11's names, and what to do.
_FAULTS = {
    "PinIncorrect": "the PIN is wrong, and will not be tried again: put the right one into pin_file",
    "PinLocked": "the PIN is locked: unlock it with the token's own tool, as its security officer",
    "NoSuchToken": "no token has this label: look whether it is there, and whether `module` is its driver",
    "NoSuchKey": "the token has no Ed25519 key with this label, or only one half of it",
    "MultipleObjectsReturned": "the token has several keys with this label: give each its own",
    "MultipleTokensReturned": "several tokens have this label: give each its own",
    "PKCS11Error": "`module` cannot be loaded: it is the shared library of the token's driver",
}
_LAST_TRY = (
    "wrong PINs were given, and the token has one try left, or none: the service does not take it. Put the right PIN "
    "into pin_file, and log in once with the token's own tool"
)
# Digests of module, token and PIN: what this process has tried in vain.
_WRONG_PINS: set[bytes] = set()


class _Module:
    """A module that this process has loaded: one for all of its keys, which hold its `lock` in turn."""

    def __init__(self, path: str) -> None:
        self.lock = threading.Lock()
        self._path = path
        self._again_at = 0.0
        self._is_kept = False

    def token(self, pkcs11: Any, label: str) -> Any:
        """Find a token. Some modules see one that is new, or back, only when they begin anew, which ends all sessions:
        so that is tried once a second at most. Raises PKCS11Error."""
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
        """Load the module, for as long as the process lives: Python's end would unload it, and a thread that is in a
        driver that hangs would find no code there to go on with."""
        library = pkcs11.lib(self._path)
        if not self._is_kept:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
            self._is_kept = True
        return library


@cache
def _module(path: str) -> _Module:
    return _Module(path)


def _library() -> ModuleType:
    try:
        import pkcs11
    except ImportError:
        raise KeyFault("python-pkcs11 is not installed: in the checkout, run `pip install '.[pkcs11]'`") from None
    return pkcs11


def _read_pin(path: Path) -> str:
    """Read a PIN: the file's content without the line break at its end. Raises KeyFault."""
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
