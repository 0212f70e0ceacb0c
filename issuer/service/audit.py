"""The audit sink: one JSON line per decision in an append-only file of mode 0600, apart from the log stream.

An event that cannot be written means that no token leaves (contract section 5).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import msgspec

from issuer.errors import Code, SetupError, Undecided


class AuditFile:
    """An open sink. Implements `issue.Audit`."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            # A full disk can take half a line, also that of the process before this one: the next event then begins on
            # a line of its own.
            self._failed = not _ends_whole(path)
        except OSError as error:
            raise SetupError(
                Code.SETTINGS_INVALID, f"the audit file {path} cannot be opened: {error.strerror}"
            ) from None
        if os.fstat(self._descriptor).st_mode & 0o077 and stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            os.close(self._descriptor)
            raise SetupError(Code.SETTINGS_INVALID, f"others may read the audit file {path}. Run `chmod 600 {path}`")

    async def record(self, event: dict[str, Any]) -> None:
        """Append one event with one write. Raises Undecided(`dependency.audit`) where it did not get there whole."""
        self._append((b"\n" if self._failed else b"") + msgspec.json.encode(event) + b"\n")

    def check(self) -> None:
        """Raise Undecided(`dependency.audit`) where the last write failed and another one fails, too.

        Trying is the way back: a service that is not ready gets no request that could try.
        """
        if self._failed:
            self._append(b"\n")

    def _append(self, line: bytes) -> None:
        try:
            written = os.write(self._descriptor, line)
        except OSError:
            written = 0
        self._failed = written != len(line)
        if self._failed:
            raise Undecided(Code.DEPENDENCY_AUDIT)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def _ends_whole(path: Path) -> bool:
    """Say whether a file is empty or ends with a line break. What is no plain file has no end."""
    if not path.is_file() or path.stat().st_size == 0:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
