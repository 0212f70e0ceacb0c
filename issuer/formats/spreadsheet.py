"""CSV (RFC 4180, lines ending in LF) in which no cell is computed by the spreadsheet that opens it. Pure."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable


def table(rows: Iterable[Iterable[str]]) -> str:
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
