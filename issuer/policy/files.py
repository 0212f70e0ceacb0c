"""Read one file of a folder of policies. A service watches it: what lies there must not stall it or fill its memory."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from issuer.errors import Code, InputError, Place
from issuer.formats.strict_yaml import MAX_BYTES


def read_file(path: Path) -> bytes:
    """Return the bytes of a plain file; of one that is too large no more than its reader needs to refuse it.

    Raises InputError(`file.unreadable`), also for a pipe or a device, which may have no end.
    """
    try:
        with open(path, "rb", opener=_opened) as file:
            plain = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            read = file.read(MAX_BYTES + 1) if plain else b""
    except OSError as error:
        raise InputError(Code.FILE_UNREADABLE, str(error.strerror), Place(str(path))) from None
    if not plain:
        raise InputError(Code.FILE_UNREADABLE, "not a plain file", Place(str(path)))
    return read


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # without it, opening a pipe waits for who writes to it
