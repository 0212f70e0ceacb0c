"""A failed test prints its failure, what the service logged, and the command that repeats it, in at most 60 lines."""

import subprocess
import sys
from pathlib import Path

from tests.support.shared import ROOT

TEST = """
import json, pathlib
from tests.support.failures import logged

def test_that_fails(tmp_path):
    log = tmp_path / "service.log"
    logged(log)
    lines = [json.dumps({"event": f"line {number}"}) for number in range(100)]
    frames = [{"filename": "service.py", "lineno": number} for number in range(100)]
    error = {"exc_type": "KeyError", "exc_value": "the cause", "frames": frames}
    lines.insert(3, json.dumps({"event": "unforeseen", "exception": [error]}))
    log.write_text("\\n".join(lines))
    print("printed " * 1000)
    def deep(number):
        assert number, {"a value": "x" * 10_000}
        deep(number - 1)
    deep(60)
"""


def test_a_failure_is_printed_in_60_lines_with_the_log_and_the_command(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.failures", "--rootdir", str(tmp_path)]
    done = subprocess.run([*command, "-c", "/dev/null", "-p", "no:cacheprovider", str(tmp_path)],
                          cwd=ROOT, capture_output=True, text=True, check=False)  # fmt: skip
    report = done.stdout.partition("= FAILURES =")[2].partition("= short test summary info")[0]
    assert "KeyError: the cause (service.py:99)" in report
    assert '"line 99"' in report
    assert "AssertionError" in report
    assert "run it alone: .venv/bin/pytest test_it.py::test_that_fails" in report
    assert len(report.splitlines()) <= 60
    assert max(map(len, report.splitlines())) <= 260
