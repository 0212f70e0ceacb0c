"""What reading a run costs: each file is read in a separate process, under limits of CPU time and memory."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from issuer.adapters import Anchors
from tests.support.shared import ROOT

# The process forks for each file: the imports are paid once, and a peak of memory is that of one file. Memory is limited
# to more than the test allows, so that a file that takes too much is measured and harms no machine.
_READER = """
import json, os, resource, sys
from issuer.adapters import Anchors, Supplied, read_all
from issuer.errors import InputError
SUPPLIED = Supplied(model_repo="a/b", model_revision="0" * 40, command="x", framework_name="f", framework_version="1",
                    benchmark_repo="a/b", benchmark_revision="0" * 40)
cpu_s = int(sys.argv[1])
def outcome(path, source, anchors):
    try:
        runs = read_all(path, source, anchors=anchors and Anchors(*anchors[:2], anchors[2].encode()))
    except (InputError, MemoryError) as error:
        return f"{error.code}: {error.detail[:200]}" if isinstance(error, InputError) else "out of memory"
    claimed = 0
    for run in runs:
        try:
            run.claims(SUPPLIED, allow_mock=True, allow_partial=True)
        except InputError:
            continue
        claimed += 1
    return f"{len(runs)} runs, {claimed} claimed"
for line in sys.stdin:
    if (child := os.fork()) == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
        os.write(1, json.dumps(outcome(*json.loads(line))).encode())
        os._exit(0)
    _, _, usage = os.wait4(child, 0)
    os.write(1, f"\\t{usage.ru_utime + usage.ru_stime}\\t{usage.ru_maxrss}\\n".encode())
"""


class Cost(NamedTuple):
    """The cost of reading one file. `outcome` is the error, or how many runs were read; "" if the process was ended."""

    outcome: str
    cpu_s: float
    peak_mb: float


@contextmanager
def reading(cpu_s: int) -> Iterator[Callable[[Path, str, Anchors | None], Cost]]:
    """Start a process that reads one file after the other, each in a child that is ended after `cpu_s` seconds."""
    command = [sys.executable, "-c", _READER, str(cpu_s)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=ROOT
    ) as child:
        asked, answered = child.stdin, child.stdout
        assert asked is not None
        assert answered is not None

        def cost(path: Path, source: str, anchors: Anchors | None) -> Cost:
            given = anchors and (anchors.public_key, anchors.root, bytes(anchors.ledger).decode())
            asked.write(json.dumps([str(path), source, given]) + "\n")
            outcome, cpu, peak_kib = answered.readline().split("\t")
            return Cost(json.loads(outcome or '""'), float(cpu), int(peak_kib) * 1024 / 1e6)

        yield cost
        asked.close()
