"""Checks of a policy as a table for people: what passed, what did not, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from issuer.cli import printable
from issuer.wire import ShownCheck

FAILED = "FAIL"
HEADINGS = ("", "check", "your value", "expected", "next step")
# What is longer would push the columns behind it out of sight.
WIDEST = (4, 60, 64, 48, 120)


def table(checks: Sequence[ShownCheck]) -> str:
    """Write one line a check, in the order in which they were made; no line ends in white space.

    Below stands the whole of a check that failed and is too wide: what differs may be in what was cut off.
    """
    rows = [HEADINGS, *(_row(check) for check in checks)]
    cells = [[_cut(cell, widest) for cell, widest in zip(row, WIDEST, strict=True)] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADINGS))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
    too_wide = [row for row, cut in zip(rows, cells, strict=True) if row[0] == FAILED and list(row) != cut]
    return "\n".join([*lines, *(line for row in too_wide for line in _whole(row))])


def _row(check: ShownCheck) -> tuple[str, ...]:
    # Where nothing in the request is judged, the rule's place says which check it is.
    place = f"{check.code} {check.pointer or check.rule}".rstrip()
    return ("ok" if check.passed else FAILED, place, check.actual, check.expected, check.hint)


def _cut(text: str, widest: int) -> str:
    shown = printable(text)
    return shown if len(shown) <= widest else f"{shown[: widest - 3]}..."


def _whole(row: tuple[str, ...]) -> list[str]:
    _, place, actual, expected, _ = map(printable, row)
    told = [place, f"  {HEADINGS[2]}: {actual}"]
    return [*told, f"  {HEADINGS[3]}:   {expected}"] if expected else told
