"""Tokens of SoftHSM 2, a PKCS #11 module in software, with its own configuration.

A process has one configuration: the module reads it once. So has this one, for all of its tokens.
"""

import atexit
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pkcs11
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PIN, SO_PIN = "4711-pin", "0815-so-pin"


@cache
def configured() -> Path:
    """Make the folder of this process's tokens, and tell the module and its tool of it. Removed at exit."""
    folder = Path(tempfile.mkdtemp(prefix="softhsm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["SOFTHSM2_CONF"] = str(configure(folder))
    return folder


def configure(folder: Path) -> Path:
    """Make a folder for tokens, and the configuration that names it; return that."""
    (folder / "tokens").mkdir(parents=True)
    configuration = folder / "softhsm2.conf"
    lines = f"directories.tokendir = {folder / 'tokens'}\nobjectstore.backend = file\nlog.level = ERROR\n"
    configuration.write_text(lines)
    return configuration


def module() -> Path:
    """Return the module's file, where Debian or another system has put it."""
    found = (path for root in ("/usr/lib", "/usr/local/lib", "/opt") for path in Path(root).rglob("libsofthsm2.so"))
    return next(found)


@dataclass
class SoftToken:
    """A token with one key, in the files of `folder`. `remove` takes the folder away."""

    label: str
    folder: Path
    pin_file: Path

    def file(self, **members: str) -> str:
        """Write the YAML file of its key, with changed members; an empty one is left out."""
        said = {
            "backend": "pkcs11", "module": str(module()), "token": self.label, "key": "signing",
            "pin_file": str(self.pin_file), **members,
        }  # fmt: skip
        return "version: 1\n" + "".join(f'{name}: "{value}"\n' for name, value in said.items() if value)

    def add(self, label: str, key: Ed25519PrivateKey) -> None:
        pem = self.pin_file.with_name(f"{label}.imported")
        form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        pem.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
        number = os.urandom(4).hex()
        _tool("--import", str(pem), "--token", self.label, "--label", label, "--id", number, "--pin", PIN)
        pem.unlink()

    def remove(self) -> None:
        """Pull it out."""
        self.folder.rename(self._drawer)

    def put_back(self) -> None:
        """Plug it in again."""
        self._drawer.rename(self.folder)

    def forget_wrong_pins(self) -> None:
        """Log in, which ends the token's count of wrong PINs, and log out."""
        self._token.open(user_pin=PIN).close()

    @property
    def remembers_a_wrong_pin(self) -> bool:
        """Say whether a wrong PIN was tried since the last login."""
        return bool(self._token.flags & pkcs11.TokenFlag.USER_PIN_COUNT_LOW)

    @property
    def _token(self) -> Any:
        return pkcs11.lib(str(module())).get_token(token_label=self.label)

    @property
    def _drawer(self) -> Path:
        return configured() / self.label


def make_token(folder: Path, key: Ed25519PrivateKey) -> SoftToken:
    """Make a token with a key, and a file with its PIN in `folder`."""
    tokens = configured() / "tokens"
    label = f"token-{os.urandom(4).hex()}"
    before = set(tokens.iterdir())
    _tool("--init-token", "--free", "--label", label, "--pin", PIN, "--so-pin", SO_PIN)
    (made,) = set(tokens.iterdir()) - before
    pin_file = folder / "pin"
    pin_file.touch(0o600)
    pin_file.write_text(f"{PIN}\n")
    token = SoftToken(label, made, pin_file)
    token.add("signing", key)
    pkcs11.lib(str(module())).reinitialize()  # SoftHSM sees a new token only then
    return token


def _tool(*arguments: str) -> None:
    done = subprocess.run(["softhsm2-util", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
