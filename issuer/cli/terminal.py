"""The output of commands: escaped text, errors for people, and JSON documents.

Every command writes with `say` or `say_document`. They escape the text of files, servers and names, so that such text
cannot control a terminal.
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
    """Text that `paint` has escaped and coloured. `say` writes it unchanged."""

    __slots__ = ()


def paint(text: str, **style: Any) -> Painted:
    """Escape a text and give it a click style."""
    return Painted(click.style(printable(text, _LAYOUT), **style))


BLANK = Painted("\r\x1b[K")  # clears the current line of a terminal


def is_watched() -> bool:
    """Return whether standard error is a terminal. If it is, commands show progress there."""
    return sys.stderr.isatty()


def say(*parts: str, err: bool = False, end: str = "\n") -> None:
    """Write one or more lines to standard output, or to standard error.

    Escapes control characters except line ends and tabs. A caller that needs exactly one line calls `printable` first.
    """
    text = "".join(part if isinstance(part, Painted) else printable(part, _LAYOUT) for part in parts)
    click.echo(text + end, nl=False, err=err, color=False if os.environ.get("NO_COLOR") else None)


def is_read() -> bool:
    """Return whether standard output is a terminal. Commands wrap lines only on a terminal."""
    return sys.stdout.isatty()


def columns() -> int:
    """Return the line width for text: the terminal's or $COLUMNS, between 20 and 100; 80 in a pipe."""
    return max(20, min(100, shutil.get_terminal_size((80, 24)).columns))


def wrap(text: str, first: str = "", rest: str | None = None, *, err: bool = False) -> list[str]:
    """Wrap a text to `columns`, or return it as one line if its stream is not a terminal. The prefix of the first line
    is `first`, of the others `rest` or spaces as wide.

    Breaks only at spaces. A value that is too wide gets a whole line, so that a reader can copy it.
    """
    if not (is_watched() if err else is_read()):
        return [f"{first}{printable(text)}".rstrip()]
    indent = " " * cell_len(first) if rest is None else rest
    return textwrap.wrap(
        printable(text), columns(), initial_indent=first, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]  # fmt: skip


def say_whole(text: str) -> None:
    """Write all of a text to standard output, even if signals interrupt the write. Its lines may be commands for a CI:
    the caller has escaped all foreign text in them by `printable`."""
    stream, left = sys.stdout.buffer, memoryview(_escape(text, _LAYOUT).encode())
    while left:  # under PYTHONUNBUFFERED, a signal can cut short a write to a full pipe
        left = left[stream.write(left) or 0 :]
    stream.flush()


def say_document(document: object) -> None:
    """Write one JSON document, indented, to standard output."""
    say(render_json(document))


def printable(text: str, keep: str = "") -> str:
    """Escape unprintable characters except those in `keep`. A hostile file must not draw its own "verified".

    Escapes the commands that CI runners read from a job's output, too. GitHub's and Azure's runners read `##[name]` and
    `##vso[name]` anywhere in a line, and `::` after the white space at its start.
    """
    text = _escape(text, keep)
    return _CI_LINE.sub(r"\1\\x3a:", text) if "::" in text else text


def _escape(text: str, keep: str) -> str:
    if not text.isprintable():
        text = "".join(sign if sign.isprintable() or sign in keep else ascii(sign)[1:-1] for sign in text)
    if "##" in text:
        text = _CI_COMMAND.sub(r"##\1\\x5b", text)
    return text


_CI_COMMAND = re.compile(r"##([A-Za-z]*)\[")
_CI_LINE = re.compile(r"^([^\S\n]*)::", re.MULTILINE)


def shorten(text: str, widest: int = 200) -> str:
    """Escape a text and cut it to at most `widest` columns."""
    shown = printable(text)
    return shown if cell_len(shown) <= widest else f"{set_cell_size(shown, widest - 3)}..."


def render_json(document: object) -> str:
    """Return one document as indented JSON, escaped as by `to_json`."""
    return msgspec.json.format(to_json(document))


def to_json(value: object) -> str:
    """Return a value as one line of JSON that neither a terminal nor a CI system obeys.

    JSON escapes replace unprintable characters, so the value is the same. In a file name that is not UTF-8, the invalid
    bytes are spelled out.
    """
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        text = msgspec.json.encode(_without_surrogates(msgspec.to_builtins(value))).decode()
    text = text if text.isprintable() else _UNPRINTABLE.sub(_json_escape, text)
    return _CI_COMMAND.sub(r"##\1\\u005b", text) if "##" in text else text


# JSON itself escapes every control character in ASCII except DEL.
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
    """Write an error to standard error. Wrap its lines on a terminal."""
    first, *rest = f"{_SPEAKER}{describe_error(error)}".split("\n")
    lines = [first, *rest]
    if is_watched():
        lines = [*wrap(first, rest="  ", err=True), *(broken for line in rest for broken in _break(line))]
    text = "\n".join(lines).removeprefix(_SPEAKER)
    say(paint(_SPEAKER, fg="red", bold=True), text, err=True)


_SPEAKER = "issuer: "


def _break(line: str) -> list[str]:
    """Wrap a line of an error under its label. Lines of a file have no label and stay whole."""
    label = _LABEL.match(line)
    return wrap(line[label.end() :], label[0], err=True) if label else [line]


_LABEL = re.compile(r"  (?:next|more|yours|wanted): +")


def describe_error(error: IssuerError) -> str:
    """Describe an error for people: its code, each fault with its place, and the next step.

    Only a SetupError keeps its line breaks, because its text comes from this machine. Text from elsewhere could contain
    a false `next:` line.
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
    """Return the faulty line of a file and a caret below the column.

    Returns nothing if the line is unknown or may contain a credential.
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


# A password in a URL, or after a name such as `token:`.
_CREDENTIALS = re.compile(r"://[^/\s]*@|(?i:secret|password|passphrase|token|key)[\w-]*[\"']?\s*[:=]")


def _fault_line(fault: Fault, error: IssuerError) -> list[str]:
    """Return the part of a fault that the error's detail lacks. An issuer's detail repeats its first fault."""
    if fault.detail in error.detail:
        return [f"  at {fault.pointer}"] if fault.pointer else []
    return [f"  {fault.pointer or '/'}: {fault.detail}"]
