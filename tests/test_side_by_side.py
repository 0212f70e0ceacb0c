"""Several processes report the results that one would, and a process that dies fails its test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.shared import ROOT

FIRST = """
import os, pytest, signal

@pytest.fixture
def broken():
    yield
    raise ValueError("at the end")

def test_passes(): pass
def test_is_skipped(): pytest.skip("for a reason")
def test_ends_badly(broken): pass
def test_fails(): print("what it printed"); assert "mine" == "yours"
def test_dies(): os.kill(os.getpid(), signal.SIGKILL)
def test_never_runs(): pass
"""
SECOND = """
import os

def test_sees_what_it_prints(capfd):
    os.system("echo here")
    assert capfd.readouterr().out == "here\\n"
def test_ends_its_process(): os._exit(0)
def test_never_runs(): pass
"""
THIRD = "def test_passes(): pass\n"


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run these files in three processes; return the exit code and the output."""
    for name, text in {"first": FIRST, "second": SECOND, "third": THIRD}.items():
        (folder / f"test_{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml",
         "--rootdir", folder, "--processes", "3", *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_the_first_process_reports_each_kind_of_failure(tmp_path: Path) -> None:
    code, said = run(tmp_path, "test_first.py", "test_second.py", "test_third.py")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert said.splitlines()[-1].startswith("3 failed, 4 passed, 1 skipped, 1 error in ")
    for text in ("AssertionError", "what it printed", "ERROR test_first.py::test_ends_badly", "ValueError: at the end"):
        assert text in said
    for name, ended in {"test_first.py::test_dies": -9, "test_second.py::test_ends_its_process": 0}.items():
        assert f"FAILED {name} - its process ended with {ended}" in said
    assert "its process ended with -9, and what it had left to run did not run" in said


@pytest.mark.long
def test_a_passing_file_passes_and_a_first_failure_or_a_broken_file_ends_the_session(tmp_path: Path) -> None:
    code, said = run(tmp_path, "test_third.py")
    assert (code, said.splitlines()[-1].partition(" in ")[0]) == (pytest.ExitCode.OK, "1 passed")
    code, said = run(tmp_path, "-x", "test_first.py")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert said.splitlines()[-1].startswith("2 passed, 1 skipped, 1 error in ")
    (tmp_path / "test_broken.py").write_text("1 / 0\n")
    code, said = run(tmp_path, "test_third.py", "test_broken.py")
    assert code == pytest.ExitCode.INTERRUPTED
    assert "ZeroDivisionError" in said
    assert "passed" not in said
