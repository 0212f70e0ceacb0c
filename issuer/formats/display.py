"""Safe display of untrusted text and values in messages, CSV (RFC 4180) and Markdown (CommonMark 0.31). Pure.

A spreadsheet must not compute a cell. Untrusted text in Markdown is always in a code span or code block, so it cannot
become a link, a mention or HTML, or end a table's cell (GFM 4.10).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable

import msgspec


def csv_table(rows: Iterable[Iterable[str]]) -> str:
    """Write rows of cells as CSV. Put `'` before text that a spreadsheet would compute, but not before numbers."""
    written = _Lines()
    csv.writer(written, lineterminator="\n").writerows([_cell(cell) for cell in row] for row in rows)
    return "".join(written)


class _Lines(list[str]):
    def write(self, line: str) -> None:
        self.append(line)


def _cell(text: str) -> str:
    is_number = text.isascii() and text.lstrip("-").replace(".", "", 1).replace("e-", "", 1).isdigit()
    return text if is_number else _FORMULA.sub(r"\1'", text)


# The signs that begin a formula, and their full-width forms, which spreadsheets in East Asia accept. A semicolon begins
# a new cell in the locales of half of Europe.
_FORMULA = re.compile(r"(^|;[\s\"]*)(?=[=+\-@\uff0b\uff0d\uff1d\uff20])")


def code_span(text: str) -> str:
    """Write text as a code span on one line (CommonMark 6.1), with invisible characters escaped. Return "" for blank
    text: a span cannot be empty."""
    line = visible(" ".join(text.split()))
    if not line:
        return ""
    ticks = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def fenced_code(text: str, language: str = "") -> str:
    """Write text as a fenced code block (CommonMark 4.5), with invisible characters escaped."""
    ticks = "`" * max(3, max(map(len, re.findall("`+", text)), default=0) + 1)
    lines = "\n".join(map(visible, text.split("\n")))
    return f"{ticks}{language}\n{lines}\n{ticks}"


def markdown_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Write a Markdown table. Each cell is one line of Markdown. Pipes in cells are escaped, also in code spans."""
    names = list(head)
    lines = (names, ["---"] * len(names), *rows)
    return "\n".join("|" + "".join(f" {_PIPE.sub(_escaped, cell)} |" for cell in line) for line in lines)


_PIPE = re.compile(r"(?<!\\)\\*\|")


def _escaped(pipe: re.Match[str]) -> str:
    """Put an odd number of backslashes before a pipe. GFM does not say whether two backslashes are an escaped one: if
    they are, a pipe after an even number ends the cell."""
    return ("\\" if len(pipe[0]) % 2 else "\\\\") + pipe[0]


MAX_CHARS = 200


def show_value(value: object) -> str:
    """Return a claim's value as text of at most about 200 characters. Show it only to the caller who sent the claim."""
    if value is None:
        return "absent"
    text = show_typed(value)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}..."


def show_typed(value: object) -> str:
    """Return a value as text that shows its type: the number 1 and the text "1" never match, so they look different."""
    if isinstance(value, str):
        return value
    kind = "boolean" if isinstance(value, bool) else "number" if isinstance(value, int | float) else "structure"
    return f"the {kind} {msgspec.json.encode(value).decode()}"


def visible(text: str) -> str:
    """Escape characters that are invisible or change other text: controls, line ends, direction marks."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
