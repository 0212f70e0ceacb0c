"""Lines of a diagnosis, as `doctor`, `check` and `config check` print them, and the exit code of the worst."""

from __future__ import annotations

from collections.abc import Iterable

from issuer.cli.exits import Exit, exit_for_error
from issuer.cli.terminal import is_read, paint, printable, say, wrap
from issuer.diagnosis import Line, Verdict

# The worst wins (contract section 6).
_ORDER = (Exit.LOCAL, Exit.INPUT, Exit.NO, Exit.REFUSED, Exit.UNDECIDED)
_COLOURS: dict[Verdict, str] = {"pass": "green", "warning": "yellow", "FAIL": "red"}
_MARGIN = 9


def exit_for_lines(lines: Iterable[Line]) -> Exit:
    """Return the exit code of the worst line."""
    codes = [exit_for_error(line.error) for line in lines if line.error is not None]
    return min(codes, key=_ORDER.index, default=Exit.GOOD)


def say_line(line: Line) -> None:
    """Write a line, and the next step below it; only on a terminal they are broken."""
    margin = " " * _MARGIN
    text = f"{line.name}: {line.detail}" + (f" ({line.code})" if line.code else "")
    for head, one in ((line.verdict, text), ("", f"next: {line.next}" if line.next else "")):
        if one:
            rows = wrap(one, margin, margin + "  ") if is_read() else [margin + printable(one)]
            say(paint(head.ljust(_MARGIN), fg=_COLOURS[line.verdict]), "\n".join(rows)[_MARGIN:])


def document_of(line: Line) -> dict[str, str]:
    """Return a line as JSON has it."""
    return {"name": line.name, "verdict": line.verdict, "detail": line.detail, "code": line.code, "next": line.next}
