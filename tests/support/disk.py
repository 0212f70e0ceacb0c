"""What a function asks of the disk, seen from outside: its real system calls."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def disk_calls(act: Callable[[], Any]) -> list[str]:
    """Return which files and folders were synced or renamed, in that order, as the interpreter calls the system.

    What is synced while nothing is in it is named: then its content came too late.
    """
    seen: list[str] = []

    def look(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called is os.fsync:
            seen.append(_synced(frame.f_locals["descriptor"]))
        elif event == "c_call" and called is os.replace:
            seen.append("rename")

    sys.setprofile(look)
    try:
        act()
    finally:
        sys.setprofile(None)
    return seen


def _synced(descriptor: int) -> str:
    status = os.fstat(descriptor)
    is_folder = stat.S_ISDIR(status.st_mode)
    full = os.listdir(descriptor) if is_folder else status.st_size
    return ("" if full else "empty ") + ("folder" if is_folder else "file")
