"""Badges as images and as data: an SVG, and the JSON of shields.io's endpoint badge. Pure.

Both name the Hub's badges that an entry has earned, and its tier. An image proves nothing; to be sure, verify the file.
"""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape, quoteattr

from msgspec.structs import asdict

from issuer.verify.report import Report, Tier

# White text has a contrast of at least 4.5 on each (WCAG 2.2, 1.4.3).
COLOURS: dict[Tier, str] = {
    "reproduced": "#1a6f2e", "logged": "#1a6f2e", "verified": "#1a6f2e", "signed": "#806000",
    "self-reported": "#5c5c5c", "undecided": "#5c5c5c", "refuted": "#b3261e",
}  # fmt: skip
_LABEL_COLOUR = "#3c3c3c"
_MOST = 60  # characters of a label
_CHARACTER, _PADDING, _HEIGHT = 7, 8, 20  # pixels; the text is stretched to this width


def label_of(report: Report) -> str:
    """Return the badge's label: the benchmark, and the task if it has another name."""
    said = report.said.dataset
    benchmark = said.id.rpartition("/")[2]
    task = said.task_id or ""
    text = benchmark if task in {"", benchmark} else f"{benchmark} {task}"
    shown = "".join(sign if sign.isprintable() else "\ufffd" for sign in text)
    return shown if len(shown) <= _MOST else f"{shown[: _MOST - 1]}…"


def message_of(report: Report) -> str:
    """Return the badges that the entry has earned, and the tier if that says more."""
    earned = [] if report.badges is None else [name for name, badge in asdict(report.badges).items() if badge == "yes"]
    said = ", ".join(earned)
    if report.tier in earned:
        return said
    return f"{said} ({report.tier})" if said else report.tier


def shields(report: Report) -> dict[str, Any]:
    """Return the document that shields.io's endpoint badge reads (https://shields.io/badges/endpoint-badge)."""
    return {
        "schemaVersion": 1, "label": label_of(report), "message": message_of(report), "color": COLOURS[report.tier],
        "isError": report.tier == "refuted",
    }  # fmt: skip


def svg(report: Report) -> str:
    """Draw the badge as SVG with a label for screen readers."""
    label, message = label_of(report), message_of(report)
    left, right = _width(label), _width(message)
    said = f"{label}: {message}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{_HEIGHT}" role="img" '
        f"aria-label={quoteattr(said)}><title>{escape(said)}</title>"
        f'<rect width="{left}" height="{_HEIGHT}" fill="{_LABEL_COLOUR}"/>'
        f'<rect x="{left}" width="{right}" height="{_HEIGHT}" fill="{COLOURS[report.tier]}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" aria-hidden="true">'
        f"{_text(label, _PADDING, left)}{_text(message, left + _PADDING, right)}</g></svg>\n"
    )


def _width(text: str) -> int:
    return len(text) * _CHARACTER + 2 * _PADDING


def _text(text: str, x: int, width: int) -> str:
    return f'<text x="{x}" y="14" textLength="{width - 2 * _PADDING}">{escape(text)}</text>'
