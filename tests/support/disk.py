"""A function's real system calls for the disk; and a small disk."""

import contextlib
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest


def disk_calls(act: Callable[[], Any]) -> list[str]:
    """Return the syncs of files and folders and the renames, in order, as the interpreter calls the system, also in threads
    that begin meanwhile.

    A sync of an empty file or folder is marked: its content came too late.
    """
    seen: list[str] = []

    def look(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called in {os.fsync, os.fdatasync}:
            names = frame.f_locals
            seen.append(_synced(names["descriptor"] if "descriptor" in names else names["file"].fileno()))
        elif event == "c_call" and called in {os.replace, os.rename}:
            seen.append("rename")

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        act()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return seen


def _synced(descriptor: int) -> str:
    status = os.fstat(descriptor)
    is_folder = stat.S_ISDIR(status.st_mode)
    full = os.listdir(descriptor) if is_folder else status.st_size
    return ("" if full else "empty ") + ("folder" if is_folder else "file")


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Make a folder that is a separate disk of this size. Skips the test if that is forbidden."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", folder], check=False)
    if made.returncode:
        pytest.skip("mounting a small disk takes root and a kernel that lets it")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(path: Path) -> Path:
    """Fill the disk that a file is on, to the last page."""
    with contextlib.suppress(OSError), path.open("ab") as file:
        while True:
            file.write(bytes(4096))
            file.flush()
    return path
