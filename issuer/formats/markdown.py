"""Markdown in which nothing of a stranger's text means anything: CommonMark 0.31, tables of GitHub's (GFM 4.10). Pure.

A text stands in code only. So none of it is a link, a mention, HTML or the end of a table's cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable


def code(text: str) -> str:
    """Write a text as a code span on one line (CommonMark 6.1). A blank text gives "": there is no empty span."""
    line = " ".join(text.split())
    if not line:
        return ""
    ticks = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def fenced(text: str, language: str = "") -> str:
    """Write a text as a fenced code block (CommonMark 4.5)."""
    ticks = "`" * max(3, max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{ticks}{language}\n{text}\n{ticks}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Write a table of cells that are Markdown on one line each. A pipe ends no cell, in a code span neither."""
    names = list(head)
    lines = (names, ["---"] * len(names), *rows)
    return "\n".join("|" + "".join(f" {_PIPE.sub(_escaped, cell)} |" for cell in line) for line in lines)


_PIPE = re.compile(r"(?<!\\)\\*\|")


def _escaped(found: re.Match[str]) -> str:
    """Write a pipe behind an odd number of backslashes: GFM does not say whether two of them are one, and where they
    are, an even number ends the cell."""
    return ("\\" if len(found[0]) % 2 else "\\\\") + found[0]
