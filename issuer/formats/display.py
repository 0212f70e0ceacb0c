"""Values and other parties' text as people see them: in messages, CSV (RFC 4180) and Markdown (CommonMark 0.31). Pure.

No spreadsheet computes a CSV cell. Text is only in code spans and blocks of Markdown, so that no part of it is a link,
a mention, HTML or the end of a table's cell (GFM 4.10).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable

import msgspec


def csv_table(rows: Iterable[Iterable[str]]) -> str:
    """Write rows of cells. A text that a spreadsheet would compute begins with `'`; numbers stay as they are."""
    written = _Lines()
    csv.writer(written, lineterminator="\n").writerows([_cell(cell) for cell in row] for row in rows)
    return "".join(written)


class _Lines(list[str]):
    def write(self, line: str) -> None:
        self.append(line)


def _cell(text: str) -> str:
    """Make a cell no formula: a spreadsheet computes what begins with one of these signs, also where it ends cells at
    semicolons, as in half of Europe."""
    return text if _is_number(text) else _FORMULA.sub(r"\1'", text)


# Full-width ones count in East Asia.
_FORMULA = re.compile(r"(^|;[\s\"]*)(?=[=+\-@\uff0b\uff0d\uff1d\uff20])")


def _is_number(text: str) -> bool:
    return text.isascii() and text.lstrip("-").replace(".", "", 1).replace("e-", "", 1).isdigit()


def code_span(text: str) -> str:
    """Write a text as a code span on one line (CommonMark 6.1). A blank text gives "": there is no empty span."""
    line = " ".join(text.split())
    if not line:
        return ""
    ticks = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def fenced_code(text: str, language: str = "") -> str:
    """Write a text as a fenced code block (CommonMark 4.5)."""
    ticks = "`" * max(3, max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{ticks}{language}\n{text}\n{ticks}"


def markdown_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Write a table of cells that are Markdown on one line each. A pipe ends no cell, in a code span neither."""
    names = list(head)
    lines = (names, ["---"] * len(names), *rows)
    return "\n".join("|" + "".join(f" {_PIPE.sub(_escaped, cell)} |" for cell in line) for line in lines)


_PIPE = re.compile(r"(?<!\\)\\*\|")


def _escaped(found: re.Match[str]) -> str:
    """Write a pipe behind an odd number of backslashes: GFM does not say whether two of them are one, and where they
    are, an even number ends the cell."""
    return ("\\" if len(found[0]) % 2 else "\\\\") + found[0]


MAX_CHARS = 200


def show_value(value: object) -> str:
    """Show a claim's value to the caller whose claim it is, shortened."""
    if value is None:
        return "absent"
    text = show_typed(value)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}..."


def show_typed(value: object) -> str:
    """Show a value so that the number 1 and the text "1", which never match, do not look alike."""
    if isinstance(value, str):
        return value
    kind = "boolean" if isinstance(value, bool) else "number" if isinstance(value, int | float) else "structure"
    return f"the {kind} {msgspec.json.encode(value).decode()}"


def visible(text: str) -> str:
    """Escape what is not seen, or turns what is: control characters, line ends, marks of direction."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
