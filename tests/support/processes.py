"""Facts about processes from proc(5), and whether a port accepts connections."""

import contextlib
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path


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


def family(pid: int) -> list[int]:
    """Return the service's processes: the parent, and the workers that run what it runs."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    family = [pid]
    for child in below:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if Path(f"/proc/{child}/cmdline").read_bytes() == command:
                family.append(int(child))
    return family


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
