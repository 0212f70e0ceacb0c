"""The canonical layout of a policy file. Pure: bytes in, bytes out.

It changes indentation (two spaces a level, lists inside their member), single quotes to double quotes that need no
escape, blank lines (never two in a row), blanks at the ends of lines, and the end of the file. It changes no value, no
order and no word of a comment. A file that would need such a change is refused and left unchanged.
"""

from __future__ import annotations

import bisect
import re

from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.formats.strict_json import JSON
from issuer.formats.strict_yaml import load, quoted
from issuer.formats.yaml_layout import NodeSpan, layout

_DASHES = re.compile(r"(?:-[ ]+)*")
_COMMENT = re.compile(r"(?:(?<=\s)|^)#.*")


def format_file(raw: bytes, name: str) -> bytes:
    """Return a file in its canonical layout, which formatting again does not change.

    Raises InputError for a file that is not strict YAML, and for a file whose content would change.
    """
    value = _value(raw, name)
    before = raw.decode("utf-8").replace("\r\n", "\n").rstrip("\n") + "\n"
    after = _lay_out(_requote(before))
    if _value(after.encode("utf-8"), name) != value or _comments(after) != _comments(before):
        rule = "the file cannot be laid out without changing its content, so it was left unchanged"
        raise InputError(Code.FILE_RULE, rule, Place(name))
    return after.encode("utf-8")


def _value(raw: bytes, name: str) -> JSON:
    return load(raw, name, bare_dates=lambda _: True).value


def _comments(text: str) -> list[str]:
    """Return the comments of a text: everything from a `#` on, after all scalars are blanked out."""
    signs = list(text)
    for span in _scalars(text):
        signs[span.start : span.end] = ["\n" if sign == "\n" else "x" for sign in text[span.start : span.end]]
    return [comment[0].rstrip() for line in "".join(signs).split("\n") if (comment := _COMMENT.search(line))]


def _scalars(text: str) -> list[NodeSpan]:
    return [span for span in layout(text) if span.kind == "scalar"]


def _requote(text: str) -> str:
    for span in reversed(_scalars(text)):
        if span.style == "'" and span.line == span.last_line and quoted(span.value) == f'"{span.value}"':
            text = text[: span.start] + quoted(span.value) + text[span.end :]
    return text


# -- lines ------------------------------------------------------------------------------------------------------------


class _Page:
    """The lines of a text and the spans on them. Lines count from 0."""

    def __init__(self, text: str) -> None:
        spans = layout(text)
        self.lines = text.removesuffix("\n").split("\n")
        self.open: list[list[NodeSpan]] = [[] for _ in self.lines]  # the block collections around each line
        for block in (span for span in spans if span.kind != "scalar" and not span.flow):
            for number in range(block.line, block.last_line + 1):
                self.open[number].append(block)
        self.begun = {(span.line, span.column): span for span in reversed(spans)}
        self.inner: dict[int, NodeSpan] = {}  # continuation lines: the outermost node that goes on
        for span in spans:
            if span.kind == "scalar" or span.flow:
                for number in range(span.line + 1, span.last_line + 1):
                    self.inner.setdefault(number, span)
        self.content = [
            number
            for number, line in enumerate(self.lines)
            if line.strip() and not line.lstrip().startswith("#") and number not in self.inner
        ]

    def level(self, number: int) -> int:
        """Return the canonical indentation of a line that begins a node or an item."""
        line = self.lines[number]
        is_item = line.lstrip().startswith("- ") or line.strip() == "-"
        kind = "list" if is_item else "map"
        found = [block for block in self.open[number] if block.column == _width(line) and block.kind == kind]
        node = found[-1] if found else self.begun.get((number, _width(line)))
        return _width(line) if node is None else 2 * node.depth

    def comment_level(self, number: int) -> int:
        """Return the indentation of a comment line: that of the content below it, or above it."""
        column = _width(self.lines[number])
        at = bisect.bisect(self.content, number)
        around = [*self.content[at : at + 1], *self.content[max(0, at - 1) : at]]
        for neighbour in around:
            if found := [block for block in self.open[neighbour] if block.column == column]:
                return 2 * found[-1].depth
        return max(0, column + self.shift(around[0])) if around else 0

    def shift(self, number: int) -> int:
        """Return by how many columns a line moves to the right."""
        return self.level(number) - _width(self.lines[number])


def _lay_out(text: str) -> str:
    """Indent every line to its level, and reduce several blank lines to one."""
    page, written = _Page(text), [""]
    for number, line in enumerate(page.lines):
        laid_out = _line(page, number, line)
        if laid_out or written[-1] or number in page.inner:
            written.append(laid_out)
    return "\n".join(written[1:]).rstrip("\n") + "\n"


def _line(page: _Page, number: int, line: str) -> str:
    if number in page.inner:
        return _move(line, page.shift(page.inner[number].line))
    if not line.strip():
        return ""
    if line.lstrip().startswith("#"):
        return " " * page.comment_level(number) + line.strip()
    text = _DASHES.sub(lambda dashes: "- " * dashes[0].count("-"), line.strip(), count=1)
    return " " * page.level(number) + text


def _move(line: str, shift: int) -> str:
    """Move a continuation line. Its blanks may be part of a value."""
    return " " * max(0, _width(line) + shift) + line.lstrip(" ") if line.strip() else line


def _width(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
