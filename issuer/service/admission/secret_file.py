"""The secret file for the values in the store: one key per line in hexadecimal, and the first one seals.

A single host makes the file at its first start. Several hosts share one file, which the operator names in the settings.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.io import files
from issuer.io.bounds import MAX_SECRET_BYTES
from issuer.issuance.steps import StoreSecret
from issuer.service.admission.bounds import SECRET_KEY_BYTES, SECRET_KEYS

_KEYS = re.compile(rb"(?:[0-9a-f]{%d}\r?\n?){1,%d}" % (SECRET_KEY_BYTES * 2, SECRET_KEYS))


def make_secret(path: Path) -> None:
    """Make a missing secret, before the workers that share it are forked. Raises SetupError."""
    if path.exists():
        return
    try:
        files.make_folder(path.parent)
        with suppress(FileExistsError):
            files.create(path, os.urandom(SECRET_KEY_BYTES).hex().encode() + b"\n")
    except OSError as error:
        raise SetupError(Code.MACHINE_FAILED, f"the store secret {path} cannot be made: {error.strerror}") from None


def read_secret(path: Path) -> StoreSecret:
    """Read the secret. Raises SetupError for a file that other users may read, or without exactly one or two keys."""
    try:
        raw = files.read(path, MAX_SECRET_BYTES, private=True)
    except InputError as error:
        raise SetupError(Code.SETTINGS_INVALID, f"the store secret {path}: {error.detail}") from None
    keys = [bytes.fromhex(line.decode()) for line in raw.split()] if _KEYS.fullmatch(raw) else []
    if not keys or len(set(keys)) != len(keys):
        rule = "one line of 64 hexadecimal characters, or two different ones (`openssl rand -hex 32`)"
        detail = f"the store secret {path} must contain {rule}"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    return StoreSecret(*keys)
