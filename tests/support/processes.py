"""Facts about processes from proc(5), and whether a port accepts connections."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.shared import ROOT


def is_running(pid: int) -> bool:
    """Say whether a process runs. An orphan is reaped late or never, so a zombie counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def listens(port: int) -> bool:
    """Say whether a connection to a port of this machine is accepted."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60):
        return True
    return False


def command_of(pid: int) -> bytes:
    """Return the command line of a process, empty if the process has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def family(pid: int) -> list[int]:
    """Return the service's processes: the parent, and the workers that run what it runs."""
    below = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [pid, *(child for child in below if command_of(child) == command_of(pid))]


# A child's peak counts the process that forked it, too. So a small process starts the command.
_PEAK = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_mib(*command: object) -> tuple[int, float]:
    """Run a command with this Python, and return its exit code and the peak of its memory."""
    given = [sys.executable, "-c", _PEAK, sys.executable, *map(str, command)]
    done = subprocess.run(given, capture_output=True, text=True, check=True, cwd=ROOT)
    code, peak = map(int, done.stdout.split())
    return code, peak / 1024


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that the service's processes have used: to the nanosecond, where `stat` has 10 ms."""
    threads = (thread for member in family(pid) for thread in Path(f"/proc/{member}/task").iterdir())
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def rss_mib(pid: int) -> int:
    """Return the largest resident memory of one of them."""
    pages = max(int(Path(f"/proc/{member}/statm").read_text().split()[1]) for member in family(pid))
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


def in_child(act: Callable[[], str]) -> str:
    """Return what `act` returns in a child: a limit that it sets there takes nothing from the other threads here."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            os.write(writing, act().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def take_descriptors() -> None:
    """From now on this process can open no descriptor."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
