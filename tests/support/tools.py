"""Commands of the system that tests use, and the Debian packages that have them: `tests/system-packages.txt`.

`@pytest.mark.needs_tool("node")` on a test, a class or a module names what it uses. Without the command the test is
skipped, or fails under `--every-tool`, as `make check` runs it. `python -m tests.support.tools` names what is missing.
"""

import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).parents[1] / "system-packages.txt"


class Tool(NamedTuple):
    """A line of the list. `in_use` where a test needs the command today; packages are parted by a comma."""

    command: str
    package: str
    in_use: bool
    purpose: str


def read_tools(text: str) -> dict[str, Tool]:
    rows = (line.split(maxsplit=3) for line in text.splitlines() if line and not line.startswith("#"))
    return {row[0]: Tool(row[0], row[1], {"now": True, "later": False}[row[2]], row[3]) for row in rows}


TOOLS = read_tools(LIST.read_text("utf-8"))


def missing(*commands: str, path: str | None = None) -> str:
    """Name the commands that are not on the path, with the package that installs each; empty if all are there."""
    absent = [TOOLS[command] for command in commands if shutil.which(command, path=path) is None]
    names = ", ".join(tool.command for tool in absent)
    return f"{names}: apt-get install {' '.join(tool.package for tool in absent).replace(',', ' ')}" if absent else ""


def skipped(reasons: Iterable[str]) -> str:
    """Return the line that says how many tests were skipped, and for which commands."""
    counts: Counter[str] = Counter()
    for reason in reasons:
        needs = reason.partition("needs ")[2]
        counts[f"need {needs}" if ": apt-get " in needs else "for other reasons"] += 1
    listed = ", ".join(f"{count} {why}" for why, count in counts.most_common())
    count = counts.total()
    return f"{count} test{' was' if count == 1 else 's were'} skipped{listed and ': '}{listed}"


if __name__ == "__main__":
    sys.exit(missing(*(tool.command for tool in TOOLS.values() if tool.in_use)) or 0)
