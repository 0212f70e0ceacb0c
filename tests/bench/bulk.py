"""The cost of judging a folder: entries a second and core, beside its floor, and the memory of all processes together.

The floor of one entry is one bare Ed25519 verification by the library that the verifier uses, plus one load of the same
text by PyYAML's C loader; both over the same files as the run that is measured, in the same minutes.

`python -m tests.bench.bulk 200000` makes more entries, and measures memory over a longer run.
"""

import base64
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from contextlib import suppress
from itertools import islice
from pathlib import Path

import yaml

from tests.support.make import KEY, NOW
from tests.support.tree import write_tree, write_trust
from tests.support.witnessed import ORIGIN, write_logged_trust, write_sidecars

# The strict reader makes a node graph, to name the line and column of a fault; the floor builds no graph.
TARGET = 2.0
# The most for a proof beside every file, with one checkpoint for a hundred tokens.
LOGGED_TARGET = 1.3
LIMIT_MIB = 300
FLOOR_FILES = 5000


def floor_s(files: list[Path]) -> tuple[float, float]:
    """Return the CPU seconds of one bare check of a signature and one bare load, in turn as a run does them.

    The second value is the load alone. Both are means over the files.
    """
    texts = [path.read_bytes() for path in files]
    began = time.process_time()
    tokens = [yaml.load(text, yaml.CSafeLoader)[0]["verify_token"].encode() for text in texts]
    loads = time.process_time() - began
    signed = [
        (base64.urlsafe_b64decode(token.rpartition(b".")[2] + b"=="), token.rpartition(b".")[0]) for token in tokens
    ]
    public = KEY.public_key()
    began = time.process_time()
    for text, (signature, message) in zip(texts, signed, strict=True):
        yaml.load(text, yaml.CSafeLoader)
        public.verify(signature, message)
    return (time.process_time() - began) / len(files), loads / len(files)


def run(folder: Path, jobs: int, *more: str, trust: str = "trust.yaml") -> tuple[float, float, float]:
    """Verify the folder with the command, by so many processes (0: by another engine); return its wall and CPU seconds,
    and the peak of its processes in MiB."""
    command = [sys.executable, "-m", "issuer", "verify", str(folder / "tree"), "--trust", str(folder / trust),
               "--at", str(NOW), *(["--jobs", str(jobs)] if jobs else []), *more]  # fmt: skip
    before, began, peak = os.times(), time.monotonic(), 0.0
    with (folder / "out").open("wb") as out, subprocess.Popen(command, stdout=out) as child:
        while child.returncode is None:
            peak = max(peak, memory_mib(child.pid))
            with suppress(subprocess.TimeoutExpired):
                child.wait(0.1)
    assert child.returncode == 0, (folder / "out").read_bytes()[-500:]
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - began, cpu, peak


def memory_mib(pid: int) -> float:
    """Return the proportional set size (shared pages counted once) of a process and of its children, in MiB."""
    try:
        pids = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
        return sum(_pss_kib(process) for process in pids) / 1024
    except OSError:  # it has just ended
        return 0.0


def _pss_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def bench_bulk(count: int = 20_000) -> None:
    """Print entries a second and core against the floor, and the peak memory."""
    print(f"\nissuer verify DIR, {count:,} entries in as many files")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = write_tree(folder / "tree", count)
        files = list(islice(made, FLOOR_FILES))
        deque(made, maxlen=0)
        write_trust(folder)
        floor, load = floor_s(files)
        print(
            f"  floor: Ed25519 {(floor - load) * 1e6:.0f} us + CSafeLoader {load * 1e6:.0f} us   {1 / floor:8.0f} entries/s and core"
        )
        for jobs in (1, len(os.sched_getaffinity(0))):
            wall, cpu, peak = run(folder, jobs)
            each = cpu / count
            verdict = "ok" if each <= TARGET * floor and peak < LIMIT_MIB else "TOO MUCH"
            print(
                f"  {jobs} processes: {count / wall:6.0f} entries/s, {each * 1e6:.0f} us CPU each {1 / each:8.0f} entries/s and core"
                f"  {each / floor:.2f} x floor (at most {TARGET:g})  {peak:.0f} MiB PSS (at most {LIMIT_MIB})  {verdict}"
            )


def bench_logged(count: int = 10_000) -> None:
    """Print the cost of proofs beside the files: the same tree with and without a required log in the trust file."""
    print(f"\nissuer verify DIR with a proof beside every file, {count:,} entries")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sidecars(write_tree(folder / "tree", count, log=ORIGIN))
        write_logged_trust(folder)
        write_trust(folder)
        # In turn, and the smaller of each: the machine may be busy with other things.
        pairs = [(run(folder, 1)[1], run(folder, 1, trust="logged.yaml")[1]) for _ in range(3)]
        without, logged = (min(times) / count for times in zip(*pairs, strict=True))
        verdict = "ok" if logged <= LOGGED_TARGET * without else "TOO MUCH"
        print(
            f"  {without * 1e6:.0f} us CPU each without, {logged * 1e6:.0f} us with: {logged / without:.2f} x"
            f" (at most {LOGGED_TARGET:g})  {verdict}"
        )


if __name__ == "__main__":
    bench_logged(*map(int, sys.argv[2:3]))
    bench_bulk(*map(int, sys.argv[1:2]))
