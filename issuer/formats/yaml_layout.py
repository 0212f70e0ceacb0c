"""The rules of YAML 1.2.2 that libyaml does not hold, the words for its errors, and the places of nodes. Pure.

js-yaml, yaml and others cannot read what libyaml takes: it does not look at the indentation of the further lines of a
flow collection or of quoted text (6.3.4, 7.3), at the space before a comment (6.6), at a lone `-` in a flow collection
(7.3.3), and at empty lines before block text that are longer than its indentation (8.1.1.1).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import yaml
from msgspec import Struct


class _Seen(NamedTuple):
    """An error of libyaml's: the text, where the construct began (None where that is not said), where it failed."""

    text: str
    begin: Any
    at: Any

    @property
    def sign(self) -> str:
        """The character at which it failed, "" at the end of the text."""
        return self.text[self.at.index : self.at.index + 1]

    @property
    def is_at_end(self) -> bool:
        """Whether nothing follows."""
        return not self.text[self.at.index :].strip()


def explain_syntax(text: str, error: yaml.YAMLError) -> tuple[str, Any]:
    """Return what is wrong, and the mark of its place; None where libyaml names none."""
    problem = str(getattr(error, "problem", None) or "not YAML")
    at = getattr(error, "problem_mark", None)
    if at is None:
        return f"this is not YAML ({problem})", None
    seen = _Seen(text, getattr(error, "context_mark", None), at)
    for known, explain in _EXPLAINED.items():
        if known in problem:
            return explain(seen)
    return f"this is not YAML ({problem})", at


def _unclosed(open_: str, close: str) -> Callable[[_Seen], tuple[str, Any]]:
    def explain(seen: _Seen) -> tuple[str, Any]:
        in_line = not seen.is_at_end and seen.begin is not None and seen.begin.line == seen.at.line
        if in_line and seen.sign not in "]}":
            return f"a comma or a closing {close} is missing before this, or the text needs double quotes", seen.at
        return f"this {open_} is never closed: write {close} where it ends", seen.begin or seen.at

    return explain


def _no_value(seen: _Seen) -> tuple[str, Any]:
    if seen.is_at_end and (opened := _open_flow(seen.text)) is not None:
        close = "]" if seen.text[opened.index] == "[" else "}"
        return f"this {seen.text[opened.index]} is never closed: write {close} where it ends", opened
    return f"{seen.sign or 'the end'} stands where a value should be; put text in double quotes", seen.at


def _open_flow(text: str) -> Any:
    """Return the mark of the innermost bracket that is still open where the text ends, or None."""
    opened: list[Any] = []
    try:
        for token in yaml.scan(text, Loader=yaml.CSafeLoader):
            if isinstance(token, yaml.FlowSequenceStartToken | yaml.FlowMappingStartToken):
                opened.append(token.start_mark)
            elif isinstance(token, yaml.FlowSequenceEndToken | yaml.FlowMappingEndToken) and opened:
                opened.pop()
    except yaml.YAMLError:
        pass  # as far as it goes
    return opened[-1] if opened else None


def _no_beginning(seen: _Seen) -> tuple[str, Any]:
    if seen.sign == "\t":
        return _TAB, seen.at
    return f"no plain text begins with {seen.sign}: put it in double quotes", seen.at


def _here(what: str) -> Callable[[_Seen], tuple[str, Any]]:
    return lambda seen: (what, seen.at)


def _from_begin(what: str) -> Callable[[_Seen], tuple[str, Any]]:
    return lambda seen: (what, seen.begin or seen.at)


_TAB = "a tab: indent with spaces"
_EXPLAINED: dict[str, Callable[[_Seen], tuple[str, Any]]] = {
    "did not find expected ',' or '}'": _unclosed("{", "}"),
    "did not find expected ',' or ']'": _unclosed("[", "]"),
    "found unexpected end of stream": _from_begin(
        "this quote is never closed: write the same quote where the text ends"
    ),
    "did not find expected node content": _no_value,
    "found character that cannot start any token": _no_beginning,
    "tab character": _here(_TAB),
    "mapping values are not allowed": _here(
        "a colon where no key can stand: put the text in double quotes, or look at the indentation"
    ),
    "block sequence entries are not allowed": _here(
        "a list item where none can stand: begin it on its own line, or put the text in double quotes"
    ),
    "mapping keys are not allowed": _here("a question mark where none can stand: put the text in double quotes"),
    "did not find expected key": _here(
        "a key should stand here: look at the indentation of this line, and at quotes before this"
    ),
    "did not find expected '-' indicator": _here(
        "a list item should stand here: begin the line with `- `, or indent it"
    ),
    "could not find expected ':'": _from_begin(
        "neither a key with its colon nor a list item: look at the colon, at the space behind `-`, at the indentation"
    ),
    "found unknown escape character": _here("no such escape: write \\\\ for a backslash"),
    "hexdecimal number": _here("an escape lacks hexadecimal digits: write \\\\ for a backslash"),
    "<document start>": _here("the document has ended before this: one closing bracket too many, or text behind `...`"),
    "comment or line break": _here("only a line end or a comment may stand here, behind | or >"),
    "alphabetic or numeric character": _from_begin(
        "an anchor (&) or alias (*) without a name: put text that begins so in double quotes"
    ),
    "tag": _from_begin("a tag that is not one: put text that begins with ! in double quotes"),
}


# Lines in which none of this can be: a key, a scalar or both, where the scalar is plain or in double quotes. Each part
# takes all that it can and gives nothing back (`++`, `*+`), so that no line is looked at more than twice.
_TEXT = r"""(?: "[^"\\\n]*+(?:\\.[^"\\\n]*+)*+" | [^"'\[\]{}\#|>?\n]*+ )"""
_ENTRY = rf"(?:-[ ]++)*+ [A-Za-z0-9_.-]++:(?:[ ]++{_TEXT})?+ | (?:-[ ]++)++{_TEXT}"
_HARMLESS = re.compile(rf"(?: [ ]*+ (?:{_ENTRY})?+ [ ]*+ \r?+ (?:\n|\Z) )*+", re.VERBOSE)
_HEADER = re.compile(r"[|>][-+0-9]*")


class SyntaxFault(Struct, frozen=True):
    """What is wrong, with its line and column from 1."""

    detail: str
    line: int
    column: int


def find_fault(text: str, root: Any) -> SyntaxFault | None:
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

    def in_comments(self, begin: int) -> SyntaxFault | None:
        """Look at the comments between the last scalar and `begin`: there, a line's first # begins one."""
        text, end = self._text, self._end
        while (sign := text.find("#", end, begin)) >= 0:
            if text[sign - 1 : sign] not in {"", " ", "\t", "\n"}:
                line = text.count("\n", 0, sign) + 1
                return SyntaxFault("a comment needs a space before its #", line, sign - text.rfind("\n", 0, sign))
            end = text.find("\n", sign, begin)
            if end < 0:
                return None
        return None

    def in_node(self, node: Any, indent: int, *, key: bool = False, flow: bool = False) -> SyntaxFault | None:
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

    def _in_scalar(self, node: Any, indent: int, *, key: bool, flow: bool) -> SyntaxFault | None:
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
            return SyntaxFault("a lone - between brackets: put it in double quotes", start.line + 1, start.column + 1)
        fault = self._in_lines(node, indent, key=key)
        return self._in_block_text(start, indent) if node.style in {"|", ">"} and not fault else fault

    def _in_lines(self, node: Any, indent: int, *, key: bool) -> SyntaxFault | None:
        """Look for a line of a node that begins with too few spaces; a tab is none. Its first line counts where nothing
        stands before it, and it is no key, which stands at the very indentation. Empty lines need none. In a flow
        collection a line with a comment alone does neither, nor one that begins with the bracket that ends it: the
        specification wants it, and every reader goes without."""
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
            return SyntaxFault(f"indent this line with {len(spaces)} spaces or more", number + 1, 1)
        return None

    def _in_block_text(self, start: Any, indent: int) -> SyntaxFault | None:
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
                return (
                    SyntaxFault("an empty line above block text has more spaces than it", at + 1, 1)
                    if too_long
                    else None
                )
            if spaces > longest:
                longest, at = spaces, number
        return None


# The places of the nodes in a YAML text, for laying a text out anew without changing what it says. Pure.


class NodeSpan(Struct, frozen=True):
    """The place of a node in a text: from the character at `start` to before `end`, on lines from 0. `last_line` is the
    last line with a character of it. `depth` is the number of block collections around it; `style` is a scalar's quote
    or block sign, "" for plain text and for collections."""

    kind: Literal["map", "list", "scalar"]
    start: int
    end: int
    line: int
    last_line: int
    column: int
    depth: int
    flow: bool
    style: str
    value: str


def layout(text: str) -> tuple[NodeSpan, ...]:
    """Return the place of every node of a text, in the order of their beginnings. `strict_yaml.load` must have accepted
    the text."""
    spans: list[NodeSpan | None] = []
    opened: list[tuple[int, Any]] = []  # where its span goes, and the event that began it
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        depth = sum(not begun.flow_style for _, begun in opened)
        if isinstance(event, yaml.ScalarEvent):
            spans.append(_span("scalar", event, event, depth, text))
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            opened.append((len(spans), event))
            spans.append(None)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            place, begun = opened.pop()
            kind: Literal["map", "list"] = "map" if isinstance(event, yaml.MappingEndEvent) else "list"
            spans[place] = _span(kind, begun, event, depth - (not begun.flow_style), text)
    return tuple(span for span in spans if span is not None)


def _span(kind: Literal["map", "list", "scalar"], begun: Any, ended: Any, depth: int, text: str) -> NodeSpan:
    start, end, style = begun.start_mark, ended.end_mark.index, getattr(begun, "style", None) or ""
    # What has no closing sign ends, to libyaml, where the next token begins; what it holds ends with its last sign.
    held = text[start.index : end]
    last_line = start.line + (held if style in {"|", ">"} else held.rstrip()).rstrip("\n").count("\n")
    flow = kind != "scalar" and begun.flow_style
    value = begun.value if kind == "scalar" else ""
    return NodeSpan(kind, start.index, end, start.line, last_line, start.column, depth, flow, style, value)
