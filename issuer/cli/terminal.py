"""What commands write: text that no terminal obeys, tables, errors for people, and documents for machines."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.cells import cell_len, set_cell_size

from issuer.errors import Fault, InputError, IssuerError
from issuer.results.secret import without_secrets


def printable(text: str) -> str:
    """Escape what a terminal would obey: a hostile file must not draw its own "verified"."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def render_table(rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows in columns, two spaces apart, each cell made printable; no line ends in white space.

    Rich measures the cells, of which some signs take two columns; its own Table takes a millisecond a row.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(set_cell_size, row, widths)).rstrip() for row in cells)


def shorten(text: str, widest: int = 200) -> str:
    """Make a text printable, and cut it to at most `widest` columns."""
    shown = printable(text)
    return shown if cell_len(shown) <= widest else f"{set_cell_size(shown, widest - 3)}..."


def render_json(document: object) -> str:
    """Write one document, indented."""
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def describe_error(error: IssuerError) -> str:
    """Say an error for people: its code, every fault with its place, and the next step."""
    lines = [str(error)]
    if isinstance(error, InputError):
        lines += [f"  at {error.pointer}"] if error.pointer and not error.place.line else []
    else:
        lines += [f"  {fault.pointer or '/'}: {fault.detail}" for fault in error.faults if _adds(fault, error)]
    lines.append(f"  {error.code.meaning.remedy}")
    return "\n".join(printable(line) for line in without_secrets("\n".join(lines)).split("\n"))


def _adds(fault: Fault, error: IssuerError) -> bool:
    """Say whether a fault says more than the error; an issuer's detail has that of its first fault in it."""
    return fault.detail not in error.detail if not fault.pointer else fault.detail != error.detail
