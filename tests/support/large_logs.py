"""Large logs, and the cost of reading one in a fresh process: time and peak resident memory."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.shared import ROOT

LOG = ROOT / "tests" / "data" / "inspect_two_scorers.json"
MIB = 2**20
LIMIT_S, LIMIT_MIB = 2.0, 200

# A typical transcript: some long texts, many short members, a few numbers.
_TEXT = 'First, count the "boxes".\nThen multiply: 3 \\times 12 = 36. ' * 6
_MESSAGE = {
    "id": "kX3b", "role": "assistant", "source": "generate", "model": "mockllm/model",
    "content": _TEXT,
    "usage": {"input_tokens": 412, "output_tokens": 118, "total_tokens": 530}, "time": 0.8125,
}  # fmt: skip

_CHILD = """
import resource, sys, time
from issuer.adapters import read
before = time.perf_counter()
run = read(sys.argv[1], sys.argv[2])
print(time.perf_counter() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, len(run.scores))
"""


def write_large_log(path: Path, size: int, *, value: str = "0.5", text: str = "") -> None:
    """Write a log of about `size` bytes: a real header, and samples that a reader must skip."""
    log = json.loads(LOG.read_bytes())
    log.pop("reductions", None)
    message = {**_MESSAGE, "content": _TEXT + text}
    sample = {"id": 1, "epoch": 1, "input": "?", "messages": [message] * 8, "scores": {"match": {"value": -1}}}
    one = json.dumps(sample, ensure_ascii=False).replace('"value": -1', f'"value": {value}').encode()
    head, _, tail = json.dumps({**log, "samples": [], "after": 1}).encode().partition(b'"samples": []')
    with path.open("wb") as file:
        file.write(head + b'"samples": [' + one)
        for _ in range(size // (len(one) + 2)):
            file.write(b", " + one)
        file.write(b"]" + tail)


def measure(path: Path, source: str) -> tuple[float, float]:
    """Read a log in a fresh process; return seconds and the process's peak resident memory in MiB."""
    # Through a small launcher: a child's peak includes that of the process it was forked from.
    done = subprocess.run(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_CHILD!r}, *sys.argv[1:]], check=True)",
         str(path), source], capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    seconds, resident, scores = done.stdout.split()
    assert int(scores) == 4
    return float(seconds), float(resident)
