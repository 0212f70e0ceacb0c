"""Ends the processes of a folder and removes the folder, when its starter ends for any reason.

The orphans of a forking server go to init, and stopped ones hear no SIGTERM. So they are found by their working directory
(proc(5)). The reaper is a separate program that reads a pipe from its parent until the parent's end, like the watcher of
the embedded store (`admission/embedded.py`).
"""

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

from tests.support.waiting import LONGEST_S, within

ASKED_S = 2
ROOT = Path(__file__).parents[2]  # by itself: to import `shared` takes longer


@contextlib.contextmanager
def reaped_folder(prefix: str) -> Iterator[Path]:
    """Make a folder with a short path; the processes in it are killed when the block or this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
    reaper = subprocess.Popen(
        [sys.executable, "-m", "tests.support.reaper", str(folder)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    with reaper:  # closes the pipe, and waits
        yield folder


def running_in(folder: Path) -> list[int]:
    """Return the other processes with a working directory in the folder or below it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # it has ended, or belongs to another user
                if Path(os.readlink(entry / "cwd")).is_relative_to(folder):
                    found.append(int(entry.name))
    return found


def reap(folder: Path) -> None:
    """End the processes (SIGQUIT: a server still frees its shared memory), then kill them, until all are gone; and remove the
    folder."""
    asked_until = time.monotonic() + ASKED_S

    def are_gone() -> bool:
        found = running_in(folder)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT if time.monotonic() < asked_until else signal.SIGKILL)
                os.kill(pid, signal.SIGCONT)
        return not found

    within(LONGEST_S, are_gone)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    reap(Path(sys.argv[1]))
