"""`make harness`: run each framework in its own environment, and compare what our readers say with its report.

For each framework: a virtual environment in a temporary folder, with what its lock lists; its kinds of runs, offline; the
comparison; and the environment is removed. Exits with 1 if anything is different, or if fewer than 60 kinds were run.
`python -m tests.harness SOURCE...` runs only those whose format is named.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from msgspec import Struct

from issuer.adapters.load import SourceName
from tests.harness.compare import compare, make, table
from tests.support.frameworks import interpreter
from tests.support.shared import ROOT

LEAST = 60


class Framework(Struct, frozen=True):
    """A framework: the format in which we read its runs, the program that makes them, its lock, and the only version of
    Python that the lock is for; "" for ours."""

    name: str
    source: SourceName
    program: str
    lock: str
    python: str = ""


FRAMEWORKS = (
    Framework("Inspect AI", "inspect", "inspect_runs.py", "check.lock"),
    Framework("lm-evaluation-harness", "lm-eval", "lm_eval_runs.py", "check.lock"),
    Framework("lighteval", "lighteval", "lighteval_runs.py", "tests/harness/lighteval.lock", "3.11"),
    Framework("HELM", "helm", "helm_runs.py", "tests/harness/helm.lock"),
    Framework("Every Eval Ever", "eee", "every_eval_ever_runs.py", "tests/harness/every_eval_ever.lock", "3.13"),
)


def install(lock: str, python: str, folder: Path) -> Path:
    """Make a virtual environment with what the lock lists; return its Python."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    own = folder / "bin" / "python"
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    subprocess.run([own, *pip, "-r", ROOT / lock], check=True)
    return own


def main(sources: list[str]) -> int:
    """Compare the frameworks of these formats, or all; return the exit code."""
    summary, kinds, different = [], 0, 0
    for framework in FRAMEWORKS:
        if sources and framework.source not in sources:
            continue
        python = interpreter(framework.python) if framework.python else sys.executable
        if not python:
            summary.append(f"{framework.name}: not run: there is no Python {framework.python} here")
            continue
        with tempfile.TemporaryDirectory() as work:
            runs = Path(work, "runs")
            runs.mkdir()
            try:
                own = install(framework.lock, python, Path(work, "environment"))
            except subprocess.CalledProcessError:
                summary.append(
                    f"{framework.name}: not run: pip could not install {framework.lock} (its words are above)"
                )
                continue
            make(own, framework.program, runs)
            found = compare(runs, framework.source)
        reasons = [str(difference) for kind in found for difference in kind.different]
        print("", framework.name, *table(found), *reasons, sep="\n", flush=True)
        bad = sum(bool(kind.different) for kind in found)
        numbers = sum(kind.numbers for kind in found)
        summary.append(f"{framework.name}: {len(found)} kinds of runs, {numbers} numbers; {bad} kinds different")
        kinds, different = kinds + len(found), different + bad
    print("", *summary, f"{kinds} kinds of runs: {kinds - different} equal, {different} different", sep="\n")
    return int(different > 0 or (kinds < LEAST and not sources))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
