"""Files that nobody else may read or write: plain ones of mode 0600, the user's own or root's.

For private keys and the records of personal access tokens. Makes and reads; never repairs a file's mode.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from issuer.codes import Code
from issuer.errors import InputError, Place

_NOT_THE_FILE_S = frozenset({errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def write(path: Path, raw: bytes) -> None:
    """Write a new file with mode 0600, to the disk. Never replaces one, nor follows a link: FileExistsError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)  # a umask can take bits away but never the decision
        file.write(raw)
        file.flush()
        os.fsync(descriptor)


def read(path: Path, max_bytes: int) -> bytes:
    """Return what a private file holds, of which at most `max_bytes` and one are read: enough to see that it is larger.

    Raises InputError(`file.unreadable`) where it cannot be opened, is no plain file, or others may open it, too; and
    OSError where that says nothing of the file: no descriptor is free, a disk fails.
    """
    try:
        # Judge the file that was opened, not the name: the two can differ by the time of the second look.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _NOT_THE_FILE_S:
            raise
        raise _unreadable(path, f"it cannot be opened: {error.strerror}") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)  # before fdopen, which raises for a folder
        raise _unreadable(path, "it is not a plain file")
    with os.fdopen(descriptor, "rb") as file:
        if found.st_mode & 0o077:
            mode = stat.S_IMODE(found.st_mode)
            raise _unreadable(path, f"it has mode {mode:04o}: others may read it. Run `chmod 600 {path}`")
        if found.st_uid not in {os.geteuid(), 0}:
            raise _unreadable(path, "it belongs to another user")
        return file.read(max_bytes + 1)


def _unreadable(path: Path, why: str) -> InputError:
    return InputError(Code.FILE_UNREADABLE, why, Place(str(path)))


def read_file(path: Path, max_bytes: int) -> bytes:
    """Return the bytes of a plain file; of one that is larger than `max_bytes` one more, for its reader to refuse it.

    Raises InputError(`file.unreadable`), also for a pipe or a device, which may have no end.
    """
    try:
        with open(path, "rb", opener=_opened) as file:
            plain = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            read = file.read(max_bytes + 1) if plain else b""
    except OSError as error:
        raise InputError(Code.FILE_UNREADABLE, str(error.strerror), Place(str(path))) from None
    if not plain:
        raise InputError(Code.FILE_UNREADABLE, "not a plain file", Place(str(path)))
    return read


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # without it, opening a pipe waits for who writes to it
