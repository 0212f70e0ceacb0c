"""Scores over date, as an SVG that stands in the page: each tier has a shape as well as a colour. Pure.

The colours are the page's style, which knows light and dark. Only rows whose time is known are in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from issuer.formats.show import visible
from issuer.formats.strict_yaml import number_text
from issuer.formats.times import show_time
from issuer.relying.leaderboard.ranking import Row, Table
from issuer.verify.report import Tier

# Within a square of 16 around the middle, 8 8.
SHAPES: dict[Tier, str] = {
    "reproduced": "M8 1l2 4.6 5 .5-3.8 3.3 1.1 4.9L8 11.7l-4.3 2.6 1.1-4.9L1 6.1l5-.5z",
    "logged": "M3 3h10v10H3z",
    "verified": "M8 2.5a5.5 5.5 0 1 1 0 11a5.5 5.5 0 1 1 0-11z",
    "signed": "M8 2l6.2 11H1.8z",
    "self-reported": "M8 3a5 5 0 1 1 0 10a5 5 0 1 1 0-10z",
    "undecided": "M8 2l6 6-6 6-6-6z",
    "refuted": "M3 3l10 10M13 3L3 13",
}
_HOLLOW: frozenset[Tier] = frozenset({"self-reported", "undecided", "refuted"})
_WIDTH, _HEIGHT = 480, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 464, 16, 180


def symbols() -> str:
    """Define the shapes once, for the plots and for the tables."""
    return "".join(
        f'<symbol id="s-{tier}" viewBox="0 0 16 16"><path class="{shape_class(tier)}" d="{path}"/></symbol>'
        for tier, path in SHAPES.items()
    )


def shape_class(tier: Tier) -> str:
    """Return the style of a tier's shape: filled, or in outline for what nobody vouches for."""
    return "hollow" if tier in _HOLLOW else "filled"


def plot(table: Table, number: int) -> str:
    """Draw the rows of a table whose time is known; "" where they have fewer than two times."""
    dated = [(row.entry.when, row) for row in table.rows if row.entry.when is not None]
    times = [when for when, _ in dated]
    if len(set(times)) < 2:
        return ""
    values = [row.value for _, row in dated]
    across, up = _Axis(times, _LEFT, _RIGHT), _Axis(values, _BOTTOM, _TOP)
    points = "".join(_point(row, across.at(when), up.at(row.value)) for when, row in dated)
    said = f"Score over date of {len(dated)} results; the table has the same numbers"
    return (
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="plot-{number}">'
        f'<title id="plot-{number}">{said}</title>{_frame(across, up)}{points}</svg>'
    )


class _Axis:
    """From the least value to the greatest, over some pixels."""

    def __init__(self, values: Sequence[float], first: int, last: int) -> None:
        self.least, self.greatest = min(values), max(values)
        self._first, self._last = first, last

    def at(self, value: float) -> float:
        # Halves, for the difference of two doubles may be none.
        span = self.greatest / 2 - self.least / 2
        share = 0.5 if span <= 0 else (value / 2 - self.least / 2) / span
        return self._first + share * (self._last - self._first)


def _frame(across: _Axis, up: _Axis) -> str:
    days = (show_time(int(moment))[:10] for moment in (across.least, across.greatest))
    first, last = map(escape, days)
    lower, upper = (number_text(float(f"{value:.4g}")) for value in (up.least, up.greatest))
    labels = [
        (_LEFT - 12, _BOTTOM + 4, "end", lower), (_LEFT - 12, _TOP + 4, "end", upper if upper != lower else ""),
        (_LEFT, _BOTTOM + 28, "start", first), (_RIGHT, _BOTTOM + 28, "end", last if last != first else ""),
    ]  # fmt: skip
    texts = "".join(f'<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>' for x, y, anchor, text in labels)
    return f'<path class="axis" d="M{_LEFT - 8} {_TOP - 8}V{_BOTTOM + 8}H{_RIGHT + 8}"/>{texts}'


def _point(row: Row, x: float, y: float) -> str:
    entry = row.entry
    said = escape(visible(f"{entry.repo}: {number_text(row.value)}, {entry.tier}, {show_time(entry.when or 0)[:10]}"))
    return (
        f'<use href="#s-{entry.tier}" class="t-{entry.tier}" x="{x - 7:.1f}" y="{y - 7:.1f}" width="14" height="14" '
        f'data-tier="{entry.tier}" data-framework="{escape(visible(entry.framework))}"><title>{said}</title></use>'
    )
