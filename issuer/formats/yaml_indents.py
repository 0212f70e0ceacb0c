"""What libyaml takes and YAML 1.2.2 does not, so that js-yaml, yaml and others cannot read it. Pure, in linear time.

libyaml does not look at the indentation of the further lines of a flow collection or of quoted text (6.3.4, 7.3), at
the space before a comment (6.6), at a lone `-` in a flow collection (7.3.3), and at empty lines before block text that
are longer than its indentation (8.1.1.1). `strict_yaml` must have composed the text, and found no alias in it.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from msgspec import Struct

# Lines in which none of this can be: a key, a scalar or both, where the scalar is plain or in double quotes. Each part
# takes all that it can and gives nothing back (`++`, `*+`), so that no line is looked at more than twice.
_TEXT = r"""(?: "[^"\\\n]*+(?:\\.[^"\\\n]*+)*+" | [^"'\[\]{}\#|>?\n]*+ )"""
_ENTRY = rf"(?:-[ ]++)*+ [A-Za-z0-9_.-]++:(?:[ ]++{_TEXT})?+ | (?:-[ ]++)++{_TEXT}"
_HARMLESS = re.compile(rf"(?: [ ]*+ (?:{_ENTRY})?+ [ ]*+ \r?+ (?:\n|\Z) )*+", re.VERBOSE)
_HEADER = re.compile(r"[|>][-+0-9]*")


class Fault(Struct, frozen=True):
    """What is wrong, with its line and column from 1."""

    detail: str
    line: int
    column: int


def find_fault(text: str, root: Any) -> Fault | None:
    """Return the first place that the specification forbids, or None. `root` is libyaml's node graph of the text."""
    if _HARMLESS.fullmatch(_without_quoted(text)):
        return None  # most files
    search = _Search(text)
    return search.in_node(root, -1) or search.in_comments(len(text))


def _without_quoted(text: str) -> str:
    """Leave out what stands in double quotes, where that is clear: a token is most of a file."""
    parts = text.split('"')
    if "\\" in text or not len(parts) % 2 or any("\n" in quoted for quoted in parts[1::2]):
        return text
    return '""'.join(parts[::2])


class _Search:
    """One walk over the nodes in the order of the text. `indent` is that of the innermost block collection, or -1."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = text.split("\n")
        self._has_tabs = "\t" in text
        self._end = 0  # of the last scalar

    def in_comments(self, begin: int) -> Fault | None:
        """Look at the comments between the last scalar and `begin`: there, a line's first # begins one."""
        text, end = self._text, self._end
        while (sign := text.find("#", end, begin)) >= 0:
            if text[sign - 1 : sign] not in {"", " ", "\t", "\n"}:
                line = text.count("\n", 0, sign) + 1
                return Fault("a comment needs a space before its #", line, sign - text.rfind("\n", 0, sign))
            end = text.find("\n", sign, begin)
            if end < 0:
                return None
        return None

    def in_node(self, node: Any, indent: int, *, key: bool = False, flow: bool = False) -> Fault | None:
        """Look at a node and at those in it. `key`: it is one; `flow`: it is in a flow collection."""
        if isinstance(node, yaml.ScalarNode):
            return self._in_scalar(node, indent, key=key, flow=flow)
        if not node.flow_style:
            indent = node.start_mark.column
        elif not flow and (fault := self._in_lines(node, indent, key=key)):
            return fault
        flow = flow or node.flow_style
        for inner in node.value:
            if isinstance(node, yaml.MappingNode):
                fault = self.in_node(inner[0], indent, key=True, flow=flow) or self.in_node(inner[1], indent, flow=flow)
            else:
                fault = self.in_node(inner, indent, flow=flow)
            if fault:
                return fault
        return None

    def _in_scalar(self, node: Any, indent: int, *, key: bool, flow: bool) -> Fault | None:
        start, end = node.start_mark, node.end_mark
        begin = start.index
        if node.style in {"|", ">"}:  # its header may end in a comment
            begin = self._text.find("\n", begin) + 1 or len(self._text)
        if fault := self.in_comments(begin):
            return fault
        self._end = max(begin, end.index)
        if start.index == end.index:
            return None  # an empty value
        if flow and not node.style and node.value == "-":
            return Fault("a lone - between brackets: put it in double quotes", start.line + 1, start.column + 1)
        fault = self._in_lines(node, indent, key=key)
        return self._in_block_text(start, indent) if node.style in {"|", ">"} and not fault else fault

    def _in_lines(self, node: Any, indent: int, *, key: bool) -> Fault | None:
        """Look for a line of a node that begins with too few spaces; a tab is none.

        Its first line counts where nothing stands before it, and it is no key, which stands at the very indentation.
        Empty lines need none. In a flow collection a line with a comment alone does neither, nor one that begins with
        the bracket that ends it: the specification wants it, and every reader goes without.
        """
        start, end = node.start_mark, node.end_mark
        if start.line == end.line and start.column > indent and not self._has_tabs:
            return None  # most nodes
        first = start.line + bool(key or self._lines[start.line][: start.column].strip(" \t"))
        last, collection = end.line, not isinstance(node, yaml.ScalarNode)
        if collection:
            last -= not self._lines[end.line][: end.column - 1].strip(" \t")
        elif node.style in {"|", ">"}:
            last = start.line
        spaces = " " * (indent + 1)
        for number in range(first, last + 1):
            line = self._lines[number]
            if line.startswith(spaces) or not (begun := line.lstrip(" \t\r")) or (collection and begun[0] == "#"):
                continue
            return Fault(f"indent this line with {len(spaces)} spaces or more", number + 1, 1)
        return None

    def _in_block_text(self, start: Any, indent: int) -> Fault | None:
        """Look for an empty line above the first line of block text with more spaces than that, which decides."""
        header = _HEADER.match(self._lines[start.line], start.column)
        if header is None or any(char.isdigit() for char in header[0]):
            return None
        longest, at = 0, 0
        for number in range(start.line + 1, len(self._lines)):
            line = self._lines[number].rstrip("\r")
            spaces = len(line) - len(line.lstrip(" "))
            if spaces < len(line):
                too_long = indent < spaces < longest
                return Fault("an empty line above block text has more spaces than it", at + 1, 1) if too_long else None
            if spaces > longest:
                longest, at = spaces, number
        return None
