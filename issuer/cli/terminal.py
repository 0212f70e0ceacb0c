"""What commands write: text that no terminal obeys, errors for people, and documents for machines.

Every command writes by `say` or `say_document`, so no text of a file, a server or a name reaches a terminal as it is.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from typing import Any

import click
import msgspec
from rich.cells import cell_len, set_cell_size

from issuer.errors import Fault, InputError, IssuerError, Place, SetupError
from issuer.results.secret import without_secrets

_LAYOUT = "\n\t"


class Painted(str):
    """Text in colours of our own, by `paint`: `say` writes it as it is."""

    __slots__ = ()


def paint(text: str, **style: Any) -> Painted:
    """Give a text, made printable, a style of click's."""
    return Painted(click.style(printable(text, _LAYOUT), **style))


BLANK = Painted("\r\x1b[K")  # takes the last line of a terminal away


def is_watched() -> bool:
    """Say whether somebody watches standard error: then progress is shown there."""
    return sys.stderr.isatty()


def say(*parts: str, err: bool = False, end: str = "\n") -> None:
    """Write a text of one or several lines to standard output, or to standard error.

    Whatever a terminal would obey is escaped, but line ends and tabs: where there must be one line, each text in it is
    made `printable` first.
    """
    text = "".join(part if isinstance(part, Painted) else printable(part, _LAYOUT) for part in parts)
    click.echo(text + end, nl=False, err=err, color=False if os.environ.get("NO_COLOR") else None)


def is_read() -> bool:
    """Say whether standard output is a terminal: then lines are broken between words, and elsewhere none is."""
    return sys.stdout.isatty()


def columns() -> int:
    """Return how many columns text is laid out in: those of the terminal or of $COLUMNS, at most 100; 80 in a pipe."""
    return max(20, min(100, shutil.get_terminal_size((80, 24)).columns))


def wrap(text: str, first: str = "", rest: str | None = None) -> list[str]:
    """Lay out one text in lines of `columns`, the first behind `first`, others behind `rest`, or as far in.

    Breaks at spaces alone: a value that is wider stands whole on a line of its own, to be copied.
    """
    indent = " " * cell_len(first) if rest is None else rest
    return textwrap.wrap(
        printable(text), columns(), initial_indent=first, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]  # fmt: skip


def say_whole(text: str) -> None:
    """Write to standard output as `say` does, where a signal may come between."""
    stream, left = sys.stdout.buffer, memoryview(printable(text, _LAYOUT).encode())
    while left:  # under PYTHONUNBUFFERED a signal cuts a write to a full pipe short
        left = left[stream.write(left) or 0 :]
    stream.flush()


def say_document(document: object) -> None:
    """Write one JSON document, indented, to standard output."""
    say(render_json(document))


def printable(text: str, keep: str = "") -> str:
    """Escape what a terminal would obey, but for the signs to keep: a hostile file must not draw its own "verified".

    And what a CI system would, which reads commands from what a job writes: `##[name]` and `##vso[name]` anywhere in a
    line, as GitHub's and Azure's runners do, and `::` where the text has one line, which it may begin.
    """
    if not text.isprintable():
        text = "".join(sign if sign.isprintable() or sign in keep else ascii(sign)[1:-1] for sign in text)
    if "##" in text:
        text = _CI_COMMAND.sub(r"##\1\\x5b", text)
    return _CI_LINE.sub(r"\1\\x3a:", text) if "::" in text and not keep else text


_CI_COMMAND = re.compile(r"##([A-Za-z]*)\[")
_CI_LINE = re.compile(r"\A(\s*)::")


def shorten(text: str, widest: int = 200) -> str:
    """Make a text printable, and cut it to at most `widest` columns."""
    shown = printable(text)
    return shown if cell_len(shown) <= widest else f"{set_cell_size(shown, widest - 3)}..."


def render_json(document: object) -> str:
    """Write one document, indented; printable, as `to_json` is."""
    return msgspec.json.format(to_json(document))


def to_json(value: object) -> str:
    """Write a value as JSON on one line, in which everything that is not printable is escaped: the same value, in text
    that neither a terminal nor a CI system obeys. Of the name of a file that is not UTF-8 the other bytes are spelled
    out."""
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        text = msgspec.json.encode(_without_surrogates(msgspec.to_builtins(value))).decode()
    text = text if text.isprintable() else _UNPRINTABLE.sub(_json_escape, text)
    return _CI_COMMAND.sub(r"##\1\\u005b", text) if "##" in text else text


# Within ASCII, JSON itself escapes all but DEL.
_UNPRINTABLE = re.compile(r"[\x7f-\U0010ffff]")


def _json_escape(match: re.Match[str]) -> str:
    sign = match[0]
    if sign.isprintable():
        return sign
    units = sign.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(item) for name, item in value.items()}
    return [_without_surrogates(item) for item in value] if isinstance(value, list | tuple) else value


def say_error(error: IssuerError) -> None:
    """Write an error to standard error; on a terminal its lines are broken between words."""
    first, *rest = f"{_SPEAKER}{describe_error(error)}".split("\n")
    lines = [first, *rest]
    if is_watched():
        lines = [*wrap(first, rest="  "), *(broken for line in rest for broken in _break(line))]
    text = "\n".join(lines).removeprefix(_SPEAKER)
    say(paint(_SPEAKER, fg="red", bold=True), text, err=True)


_SPEAKER = "issuer: "


def _break(line: str) -> list[str]:
    """Break a line of an error, whose label stays to the left; the lines of a file stay as they are."""
    label = _LABEL.match(line)
    return wrap(line[label.end() :], label[0]) if label else [line]


_LABEL = re.compile(r"  (?:next|more|yours|wanted): +")


def describe_error(error: IssuerError) -> str:
    """Say an error for people: its code, every fault with its place, and the next step.

    Only what is said of this machine has lines of its own: a text from elsewhere must not write a `next:` of its own.
    """
    lines = without_secrets(str(error)).split("\n") if isinstance(error, SetupError) else [str(error)]
    if isinstance(error, InputError):
        lines += show_source(error.place)
        lines += [f"  at {error.pointer}"] if error.pointer and not error.place.line else []
        lines += [f"  {finding}" for finding in error.findings[1:]]
    else:
        lines += [line for fault in error.faults for line in _fault_line(fault, error)]
    lines += [f"  {label + ':':<7} {text}" for label, text in error.compared]
    lines.append(f"  next: {error.code.meaning.remedy}")
    lines += [f"  more: {error.page}"] if error.page else []
    return "\n".join(printable(without_secrets(line)) for line in lines)


def show_source(place: Place) -> list[str]:
    """Return the line of a file that is wrong with a caret below the column, as far as it is known and fits.

    Nothing of a line that may hold a credential.
    """
    line, column = place.source.replace("\t", " "), place.column
    if not line.strip() or without_secrets(line, guess=True) != line or _CREDENTIALS.search(line):
        return []
    room = 60
    start = max(0, column - room)
    shown = printable(line[start : start + room + 20].rstrip())
    before = cell_len(printable(line[start : column - 1]))
    number = str(place.line)
    return [f"  {number} | {shown}", f"  {' ' * len(number)} | {' ' * before}^"]


# A password in a URL, or behind a name.
_CREDENTIALS = re.compile(r"://[^/\s]*@|(?i:secret|password|passphrase|token|key)[\w-]*[\"']?\s*[:=]")


def _fault_line(fault: Fault, error: IssuerError) -> list[str]:
    """Say as much of a fault as the error does not: an issuer's detail has that of its first fault in it."""
    if fault.detail in error.detail:
        return [f"  at {fault.pointer}"] if fault.pointer else []
    return [f"  {fault.pointer or '/'}: {fault.detail}"]
