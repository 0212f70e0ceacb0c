"""Ends what runs in a folder, and removes the folder, when the process that asked for it ends, however it ends.

A server that forks cannot be followed by its parent's id: its orphans go to init, and those that are stopped hear no
SIGTERM. They are known by their working directory instead (proc(5)), which nobody else has. A program of its own that
reads a pipe whose other end only its parent holds, as the watcher of the embedded store is (`admission/embedded.py`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ASKED_S = 2


@contextlib.contextmanager
def reaped_folder(prefix: str) -> Iterator[Path]:
    """Make a folder with a short path; whatever runs in it is killed when the block or this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
    reaper = subprocess.Popen(
        [sys.executable, "-I", __file__, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    with reaper:  # closes the pipe, and waits
        yield folder


def running_in(folder: Path) -> list[int]:
    """Return the processes whose working directory is the folder or below it, this one left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # ended meanwhile, or somebody else's
                if Path(os.readlink(entry / "cwd")).is_relative_to(folder):
                    found.append(int(entry.name))
    return found


def reap(folder: Path) -> None:
    """Ask them to end at once (SIGQUIT: a server still frees what the system holds for it), then kill them, until there
    are none; and remove the folder."""
    asked_until = time.monotonic() + ASKED_S
    while found := running_in(folder):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT if time.monotonic() < asked_until else signal.SIGKILL)
                os.kill(pid, signal.SIGCONT)
        time.sleep(0.02)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    reap(Path(sys.argv[1]))
