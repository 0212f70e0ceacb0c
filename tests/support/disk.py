"""What a function asks of the disk, seen from outside: its real system calls."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def disk_calls(act: Callable[[], Any]) -> list[str]:
    """Return which files and folders were synced or renamed, in that order, as the interpreter calls the system."""
    seen: list[str] = []

    def look(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called is os.fsync:
            seen.append("folder" if stat.S_ISDIR(os.fstat(frame.f_locals["descriptor"]).st_mode) else "file")
        elif event == "c_call" and called is os.replace:
            seen.append("rename")

    sys.setprofile(look)
    try:
        act()
    finally:
        sys.setprofile(None)
    return seen
