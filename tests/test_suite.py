"""The tests themselves: none depends on luck, their names are short, and they stay few."""

import re
from pathlib import Path

import pytest

from tests.support.shared import ROOT

WAITING = ROOT / "tests" / "support" / "waiting.py"
LONGEST_NAME = 80
MOST_LINES = 84_372
MOST_ITEMS = 3_400

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


@pytest.fixture(scope="module")
def texts() -> dict[Path, str]:
    paths = (path for path in sorted((ROOT / "tests").rglob("*.py")) if "vectors" not in path.parts)
    return {path: path.read_text("utf-8") for path in paths}


def test_no_test_depends_on_luck_and_the_names_of_all_are_short(texts: dict[Path, str]) -> None:
    lucky, names = list[str](), set[str]()
    for path, text in texts.items():
        names |= set(re.findall(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE))
        for luck, (pattern, excused) in LUCK.items() if path not in {WAITING, Path(__file__)} else ():
            for found in re.finditer(pattern, text):
                line = text[text.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0]
                if not re.search(excused, line):
                    lucky.append(f"{path.relative_to(ROOT)}: {line.strip()}: {luck}")
    assert lucky == []
    assert {name for name in names if len(name) > LONGEST_NAME} == set()


def test_the_tests_stay_few(request: pytest.FixtureRequest, texts: dict[Path, str]) -> None:
    items = [item for item in request.session.items if item.get_closest_marker("long") is None]
    assert sum(text.count("\n") for text in texts.values()) <= MOST_LINES
    assert len(items) <= MOST_ITEMS
