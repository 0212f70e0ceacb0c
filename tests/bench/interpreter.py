"""The Python that measures: its build changes every figure by a tenth and more (deploy/README.md, "Which Python").

The cost of a step shows how well it was optimized.
"""

import platform
import statistics
import sys
import time
from pathlib import Path

STEPS = 200_000


def describe() -> str:
    """Return version and path of the interpreter, and what a step of plain Python costs with it."""
    shared = any("libpython" in line for line in Path("/proc/self/maps").read_text().splitlines())
    return (
        f"python {platform.python_version()} at {sys.executable}, {'a shared library' if shared else 'one file'};"
        f" {statistics.median(_step_ns() for _ in range(7)):.0f} ns CPU a step of calls, attributes and dicts"
    )


class _Counter:
    def __init__(self) -> None:
        self.found: dict[int, int] = {}

    def count(self, number: int) -> None:
        self.found[number] = self.found.get(number, 0) + 1


def _step_ns() -> float:
    counter, began = _Counter(), time.process_time()
    for number in range(STEPS):
        counter.count(number & 63)
    return (time.process_time() - began) / STEPS * 1e9
