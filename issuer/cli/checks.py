"""Checks of a policy as a table for people: what passed, what did not, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from issuer.cli.terminal import printable, render_table, shorten
from issuer.wire import ShownCheck

FAILED = "FAIL"
HEADINGS = ("", "check", "your value", "expected", "next step")
# What is longer would push the columns behind it out of sight.
WIDEST = (4, 60, 64, 48, 120)


def render_checks(checks: Sequence[ShownCheck]) -> str:
    """Write one line a check, in the order in which they were made.

    Below is the whole of each check that failed and is too wide: what differs may be in what was cut off.
    """
    rows = [HEADINGS, *(_row(check) for check in checks)]
    cells = [[shorten(cell, widest) for cell, widest in zip(row, WIDEST, strict=True)] for row in rows]
    too_wide = [row for row, cut in zip(rows, cells, strict=True) if row[0] == FAILED and list(row) != cut]
    return "\n".join([render_table(cells), *(line for row in too_wide for line in _lines(row))])


def _row(check: ShownCheck) -> tuple[str, ...]:
    # Where nothing in the request is judged, the rule's place says which check it is.
    place = f"{check.code} {check.pointer or check.rule}".rstrip()
    return ("ok" if check.passed else FAILED, place, check.actual, check.expected, check.hint)


def _lines(row: tuple[str, ...]) -> list[str]:
    """Write a check without cutting anything off."""
    _, place, actual, expected, _ = map(printable, row)
    lines = [place, f"  {HEADINGS[2]}: {actual}"]
    return [*lines, f"  {HEADINGS[3]}:   {expected}"] if expected else lines
