"""The tests themselves: none depends on luck, their names are short, and they stay few."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shared import ROOT

WAITING = ROOT / "tests" / "support" / "waiting.py"
LONGEST_NAME = 80
MOST_LINES = 86_500
MOST_ITEMS = 3_500

# What makes a test depend on luck, and the line that may have it.
LUCK = {
    "a sleep: wait with tests/support/waiting.py, or mark it `# a slow peer`": (
        r"\b(?:time|asyncio|anyio)\.sleep\((?!0\))", r"# a slow peer",
    ),
    "the last line of a file that others write: find the event by its id": (
        r"(?:\.audit\(\)|log_text\(\)\.splitlines\(\)|\.log\"\)\.read_text\([^)]*\)\.splitlines\(\))\[-1\]", r"# the only writer",
    ),
    "a fixed port: listen on 0": (
        r"\b(?:port=|(?:bind|connect|create_connection|create_server)\(\(\"[\w.:]*\", )[1-9]\d+", r"# not opened",
    ),
}  # fmt: skip


def files() -> Iterator[Path]:
    return (path for path in sorted((ROOT / "tests").rglob("*.py")) if "vectors" not in path.parts)


@pytest.mark.parametrize("luck", LUCK)
def test_no_test_depends_on_luck(luck: str) -> None:
    pattern, excused = map(re.compile, LUCK[luck])
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files()
        if path not in {WAITING, Path(__file__)}
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if pattern.search(line) and not excused.search(line)
    ]
    assert places == [], luck


def test_the_names_of_tests_are_short() -> None:
    names = {
        node.name
        for path in files()
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }
    assert {name for name in names if len(name) > LONGEST_NAME} == set()


def test_the_tests_stay_few(request: pytest.FixtureRequest) -> None:
    lines = sum(path.read_bytes().count(b"\n") for path in files())
    items = [item for item in request.session.items if item.get_closest_marker("long") is None]
    assert lines <= MOST_LINES
    assert len(items) <= MOST_ITEMS
