"""The list of system packages, and a test with a missing command."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages.stories import STORIES
from tests.support.shared import ROOT
from tests.support.tools import LIST, TOOLS, missing, skipped

TESTS = [path for name in ("test_*.py", "conftest.py") for path in (ROOT / "tests").rglob(name)]


def needed(path: Path) -> set[str]:
    """Return the commands that the marks of a file name."""
    marks = re.findall(r"pytest\.mark\.needs_tool\(([^)]*)\)", path.read_text("utf-8"))
    return set(re.findall(r'"([^"]+)"', " ".join(marks)))


def test_the_list_marks_the_commands_in_use_of_tests() -> None:
    of_pages = (set(story.tools) for story in STORIES)
    assert {tool.command for tool in TOOLS.values() if tool.in_use} == set().union(*map(needed, TESTS), *of_pages)
    assert all(tool.package and tool.purpose for tool in TOOLS.values())
    assert all(len(line) <= 120 for line in LIST.read_text("utf-8").splitlines())


def test_a_missing_command_is_named_with_its_package_and_the_number_of_its_tests() -> None:
    assert missing("node", "npm", path="") == "node, npm: apt-get install nodejs npm"
    assert missing() == ""
    node = f"Skipped: needs {missing('node', path='')}"
    assert skipped([node, node, "Skipped: only root gives files away"]) == (
        "3 tests were skipped: 2 need node: apt-get install nodejs, 1 for other reasons"
    )
    assert skipped([]) == "0 tests were skipped"


@pytest.mark.long
@pytest.mark.parametrize(("option", "outcome"), [("--every-tool", "1 error"), ("-rs", "1 skipped")])
def test_a_test_without_its_command_is_skipped_or_fails_with_every_tool(
    tmp_path: Path, option: str, outcome: str
) -> None:
    inner = tmp_path / "test_inner.py"
    inner.write_text("import pytest\n\n@pytest.mark.needs_tool('node')\ndef test_node():\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml", option, inner],
        cwd=tmp_path, env={**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert outcome in done.stdout
    assert "needs node: apt-get install nodejs" in done.stdout


def test_make_check_ends_if_a_command_is_missing(tmp_path: Path) -> None:
    for tool in TOOLS.values():
        if tool.in_use:
            (tmp_path / tool.command).write_text("#!/bin/sh\n")
            (tmp_path / tool.command).chmod(0o755)

    def run(path: Path) -> tuple[int, str]:
        command, environment = [sys.executable, "-m", "tests.support.tools"], {**os.environ, "PATH": str(path)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=LIST.parents[1])
        return done.returncode, done.stderr.strip()

    assert run(tmp_path) == (0, "")
    assert run(tmp_path / "empty") == (1, missing(*(tool.command for tool in TOOLS.values() if tool.in_use), path=""))
