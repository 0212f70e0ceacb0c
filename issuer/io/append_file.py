"""A file of lines to which several processes append, and which an operator rotates by renaming it.

It handles half-written lines, a full disk, and a name that leads to a new file. Each process has its own descriptor.
Every error is an OSError. After one, the caller calls `doubt`; the file works again when the disk does.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from issuer.io import files
from issuer.io.bounds import MIN_FREE_BYTES

# The end for a half-written line. With it, readers refuse the line even if only its line feed was missing.
_TORN = b"~\n"


class AppendFile:
    """An open file of mode 0600. The constructor makes the file and its folder, and may raise OSError."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)  # `stat` of a Path takes twice as long
        self._failed = False
        self._dirty = False
        self._is_named = False
        self._retired: list[int] = []
        files.make_folder(path.parent)
        self._open()

    @property
    def is_open_to_others(self) -> bool:
        """Whether users other than the owner may read or write the file."""
        return self._is_plain and bool(os.fstat(self._descriptor).st_mode & 0o077)

    def append(self, line: bytes) -> None:
        """Append a line with one write. Raises OSError if the line was not written completely."""
        self._follow()
        self._write((_TORN if self._torn else b"") + line)

    def mend(self, line: bytes) -> None:
        """Append the line again if another worker's torn line is directly before it, which makes it unreadable.
        Checking before the write would be a race, and a stalled worker could hold a lock."""
        if not self._is_plain:
            return
        start = os.lseek(self._descriptor, 0, os.SEEK_CUR) - len(line)  # an append moves the offset after its bytes
        if start > 0 and self._byte_at(start - 1) != b"\n":
            self._write(b"\n" + line)

    def check(self) -> None:
        """Raise OSError if the next line could not be written. After a failed write, this tries to write."""
        self._follow()
        if self._failed:
            self._write(_TORN if self._torn else b"\n")
        space = os.fstatvfs(self._descriptor)
        full = space.f_blocks and space.f_bavail * space.f_frsize < MIN_FREE_BYTES
        if self._is_plain and (full or space.f_flag & os.ST_RDONLY):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def sync(self) -> None:
        """Sync everything that was written before this call, in a thread. After an OSError those lines may be lost."""
        if not self._dirty and not self._retired:
            return
        try:
            descriptors = [os.dup(self._descriptor), *self._retired]
            self._dirty, self._retired = False, []
            await asyncio.to_thread(_sync, descriptors, self._folder_to_sync())
            self._is_named = True
        except OSError:
            self._dirty = True
            raise

    def doubt(self) -> None:
        """Make the next call open the file again, and the next `check` try to write. Call this after any OSError."""
        self._failed = True

    def close(self) -> None:
        """Sync and close the file. Raises OSError."""
        _sync([self._descriptor, *self._retired], self._folder_to_sync())

    def _folder_to_sync(self) -> Path | None:
        """Return the folder if the file's name may not be on the disk yet."""
        return None if self._is_named else Path(self._path).parent

    def _open(self) -> None:
        # `files` has no function for this: the descriptor both appends and reads.
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        opened = os.fstat(descriptor)
        self._descriptor, self._identity = descriptor, (opened.st_dev, opened.st_ino)
        self._is_plain, self._is_named = stat.S_ISREG(opened.st_mode), False
        # If the disk was full, this process or an earlier one may have written half a line.
        self._torn = self._is_plain and opened.st_size > 0 and self._byte_at(opened.st_size - 1) != b"\n"

    def _follow(self) -> None:
        """Open the file again if its name leads to another file or none, or after a failure: its disk may be gone."""
        with suppress(FileNotFoundError):
            now = None if self._failed else os.stat(self._path, follow_symlinks=False)
            if now is not None and (now.st_dev, now.st_ino) == self._identity:
                return
        before, identity = self._descriptor, self._identity
        self._open()
        if self._dirty and identity != self._identity:
            self._retired.append(before)  # the file was rotated; the next `sync` syncs it
            self._dirty = False
        else:
            with suppress(OSError):  # its disk may be gone
                os.close(before)
        if self.is_open_to_others:
            self._identity = (0, 0)  # the next line checks the file again
            raise OSError(errno.EACCES, "others may read it")

    def _write(self, raw: bytes) -> None:
        self.doubt()
        written = os.write(self._descriptor, raw)
        self._dirty = self._is_plain
        self._torn = written != len(raw)
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._failed = False

    def _byte_at(self, offset: int) -> bytes:
        return os.pread(self._descriptor, 1, offset)


def _sync(descriptors: list[int], folder: Path | None) -> None:
    """Sync and close the descriptors, and sync the names in the folder. Raises the first OSError."""
    errors: list[OSError] = []
    for descriptor in descriptors:
        try:
            os.fdatasync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # devices, for example, cannot be synced
                errors.append(error)
        finally:
            os.close(descriptor)
    if errors:
        raise errors[0]
    if folder is not None:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            files.sync_folder(opened)
        finally:
            os.close(opened)
