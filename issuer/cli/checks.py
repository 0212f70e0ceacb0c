"""Checks of a policy as a table for people: what passed, what did not, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from issuer.cli import printable

HEADINGS = ("", "check", "your value", "expected", "next step")
# What is longer would push the columns behind it out of sight; --json has the whole.
WIDEST = (4, 60, 64, 48, 120)


class CheckTold(Protocol):
    """One rule's outcome. `pointer` leads into the request ("": what the identity says), `rule` into the policy."""

    @property
    def code(self) -> str: ...
    @property
    def pointer(self) -> str: ...
    @property
    def rule(self) -> str: ...
    @property
    def passed(self) -> bool: ...
    @property
    def actual(self) -> str: ...
    @property
    def expected(self) -> str: ...
    @property
    def hint(self) -> str: ...


def table(checks: Sequence[CheckTold]) -> str:
    """Write one line a check, in the order in which they were made; no line ends in white space."""
    rows = [HEADINGS, *(_row(check) for check in checks)]
    cells = [[_cut(cell, widest) for cell, widest in zip(row, WIDEST, strict=True)] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def _row(check: CheckTold) -> tuple[str, ...]:
    place = f"{check.code} {check.pointer}".rstrip()
    return ("ok" if check.passed else "FAIL", place, check.actual, check.expected, check.hint)


def _cut(text: str, widest: int) -> str:
    shown = printable(text)
    return shown if len(shown) <= widest else f"{shown[: widest - 3]}..."
