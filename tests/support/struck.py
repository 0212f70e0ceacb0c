"""System calls that fail on demand, or are their caller's last: strace(1) injects the fault.

Needs `@pytest.mark.needs_tool("strace")`. Faults and counts are those of one thread, by each call's name.
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

# The calls that change a disk: write, sync, rename, cut and removal. The names of renames differ between machines.
DISK_CALLS = (
    "write", "pwrite64", "fsync", "fdatasync", "ftruncate", "?rename", "?renameat", "?renameat2", "?unlink", "unlinkat",
)  # fmt: skip
# The call fails once (a bad block, a full disk), is not made (the process is killed), or fails from then on.
FAULTS = {
    "EIO": "error=EIO:when={}", "ENOSPC": "error=ENOSPC:when={}", "killed": "signal=KILL:error=EIO:when={}",
    "EIO from then on": "error=EIO:when={}+",
}  # fmt: skip
_CALL = re.compile(r"(?:\[pid +\d+\] |\d+ +)?(\w+)\((.*)")


class Call(NamedTuple):
    """The n-th call (from 1 on) of a name; `at` are its arguments, as strace shows them."""

    name: str
    number: int
    at: str


def thread_of(pid: int) -> int:
    """Return the only thread of a process besides its first."""
    (thread,) = {int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()} - {pid}
    return thread


@contextmanager
def traced(thread: int, trace: Path, *inject: str) -> Iterator[None]:
    """Follow one thread's calls to the disk into the file `trace`, and inject faults."""
    command = ["strace", "-y", "-o", str(trace), "-p", str(thread), *_watched(inject)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        first = tracer.stderr.readline()
        assert "attached" in first, f"strace may not follow a process here: {first}"
        try:
            yield
        finally:
            tracer.terminate()


def struck_command(trace: Path, call: str, fault: str, number: int) -> list[str]:
    """Return the prefix of a command line that injects the fault into each of its threads, and its children's."""
    return ["strace", "-f", "-y", "-o", str(trace), *_watched((injection(call, fault, number),))]


def injection(call: str, fault: str, number: int) -> str:
    """Return strace's option for its n-th call of this name."""
    return f"{call}:{FAULTS[fault].format(number)}"


def calls_in(trace: Path) -> list[Call]:
    """Return the calls of one thread, in their order."""
    seen: dict[str, int] = {}
    calls = []
    for line in trace.read_text("utf-8", "replace").splitlines():
        if found := _CALL.match(line):
            name, rest = found.groups()
            seen[name] = seen.get(name, 0) + 1
            calls.append(Call(name, seen[name], rest))
    return calls


def was_struck(trace: Path) -> bool:
    """Say whether a fault was injected: strace marks the call, and the last call of a killed process has no end."""
    lines = trace.read_text("utf-8", "replace").splitlines()
    return any(line.endswith(("(INJECTED)", "= ?", "+++ killed by SIGKILL +++")) for line in lines)


def _watched(inject: tuple[str, ...]) -> list[str]:
    """Name the same calls for the trace and for the injection: strace injects into traced calls only."""
    if not inject:
        return ["-e", "trace=" + ",".join(DISK_CALLS)]
    names = ",".join(each.partition(":")[0] for each in inject)
    return ["-e", f"trace={names}", *(part for each in inject for part in ("-e", f"inject={each}"))]
