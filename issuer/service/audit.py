"""The audit sink: one JSON line per decision in an append-only file of mode 0600, apart from the log stream.

If an event cannot be written, no token leaves (contract section 5). Several workers append to one file, each through
its own descriptor; to rotate the file is to rename it, and the next event begins a new one.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from issuer import files
from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.service.bounds import MIN_FREE_BYTES


class FileAudit:
    """An open sink. Implements `issuance.ports.Audit`."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)  # of a Path, stat takes twice as long
        self._failed = False
        try:
            files.make_folder(path.parent)
            self._open()
        except OSError as error:
            raise SetupError(
                Code.SETTINGS_INVALID, f"the audit file {path} cannot be opened: {error.strerror}"
            ) from None
        if self._is_open_to_others():
            os.close(self._descriptor)
            raise SetupError(Code.SETTINGS_INVALID, f"others may read the audit file {path}. Run `chmod 600 {path}`")

    async def record(self, event: Struct | dict[str, Any]) -> None:
        """Append one event with one write. Raises Undecided(`dependency.audit`) where it was not written completely."""
        line = msgspec.json.encode(event) + b"\n"
        self._follow()
        self._append((b"\n" if self._failed else b"") + line)
        if self._is_behind_half_a_line(len(line)):
            self._append(b"\n" + line)

    def check(self) -> None:
        """Raise Undecided(`dependency.audit`) where the next event would not be written.

        After a failed write this tries another one, which is the way back: a service that is not ready gets no request
        that could try.
        """
        self._follow()
        if self._failed:
            self._append(b"\n")
        space = os.fstatvfs(self._descriptor)
        full = space.f_blocks and space.f_bavail * space.f_frsize < MIN_FREE_BYTES
        if self._is_plain and (full or space.f_flag & os.ST_RDONLY):
            raise Undecided(Code.DEPENDENCY_AUDIT)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _open(self) -> None:
        # Not by `files`, which replaces: this file is appended to, and read back behind its last line.
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        opened = os.fstat(self._descriptor)
        self._identity = (opened.st_dev, opened.st_ino)
        self._is_plain = stat.S_ISREG(opened.st_mode)
        # A full disk can take half a line, also one of the previous process: the next event then begins on a new line.
        self._failed = self._is_plain and opened.st_size > 0 and self._byte_at(opened.st_size - 1) != b"\n"

    def _is_open_to_others(self) -> bool:
        return self._is_plain and bool(os.fstat(self._descriptor).st_mode & 0o077)

    def _follow(self) -> None:
        """Reopen a rotated file: its name now leads to another one, or to none."""
        try:
            now = os.stat(self._path, follow_symlinks=False)
            if (now.st_dev, now.st_ino) == self._identity:
                return
        except FileNotFoundError:
            pass
        before = self._descriptor
        try:
            self._open()
        except OSError:
            raise Undecided(Code.DEPENDENCY_AUDIT) from None
        os.close(before)
        if self._is_open_to_others():
            self._identity = (0, 0)  # so that the next event looks again
            raise Undecided(Code.DEPENDENCY_AUDIT)

    def _append(self, line: bytes) -> None:
        try:
            written = os.write(self._descriptor, line)
        except OSError:
            written = 0
        self._failed = written != len(line)
        if self._failed:
            raise Undecided(Code.DEPENDENCY_AUDIT)

    def _is_behind_half_a_line(self, length: int) -> bool:
        """Say whether another worker's torn line is right before ours, which makes ours unreadable.

        Checked afterwards: a check before the write would be a race, and a stalled worker could hold a lock. The event
        is then written again, readably.
        """
        if not self._is_plain:
            return False
        start = os.lseek(self._descriptor, 0, os.SEEK_CUR) - length  # an append leaves the offset after its bytes
        return start > 0 and self._byte_at(start - 1) != b"\n"

    def _byte_at(self, offset: int) -> bytes:
        return os.pread(self._descriptor, 1, offset)
