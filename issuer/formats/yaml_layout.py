"""The layout of YAML text: rules that libyaml does not check, messages for its errors, the places of nodes. Pure.

libyaml accepts text that PyYAML alone, js-yaml, yaml and other readers refuse. It does not check four rules of YAML
1.2.2: the indentation of later lines of flow collections and quoted text (6.3.4, 7.3), the space before a comment
(6.6), a lone `-` in a flow collection (7.3.3), and empty lines before block text that are longer than its indentation
(8.1.1.1). Readers also disagree about tabs, `?` in plain text between brackets, and `---` before text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import yaml
from msgspec import Struct


class _Failure(NamedTuple):
    """A failure of libyaml: the text, the mark where the construct began (may be None) and the mark of the failure."""

    text: str
    begin: Any
    at: Any

    @property
    def sign(self) -> str:
        """The character at which libyaml failed, or "" at the end of the text."""
        return self.text[self.at.index : self.at.index + 1]

    @property
    def is_at_end(self) -> bool:
        """Whether only white space follows."""
        return not self.text[self.at.index :].strip()


def explain_syntax(text: str, error: yaml.YAMLError) -> tuple[str, Any]:
    """Return the message for a libyaml error, and the mark of its place (None if libyaml gives none)."""
    problem = str(getattr(error, "problem", None) or "not YAML")
    at = getattr(error, "problem_mark", None)
    if at is None:
        return f"this is not YAML ({problem})", None
    failure = _Failure(text, getattr(error, "context_mark", None), at)
    for known, explain in _EXPLAINED.items():
        if known in problem:
            return explain(failure)
    return f"this is not YAML ({problem})", at


def _unclosed(open_: str, close: str) -> Callable[[_Failure], tuple[str, Any]]:
    def explain(failure: _Failure) -> tuple[str, Any]:
        in_line = not failure.is_at_end and failure.begin is not None and failure.begin.line == failure.at.line
        if in_line and failure.sign not in "]}":
            return f"a comma or a closing {close} is missing before this, or the text needs double quotes", failure.at
        return f"this {open_} is never closed: write {close} where it ends", failure.begin or failure.at

    return explain


def _no_value(failure: _Failure) -> tuple[str, Any]:
    if failure.is_at_end and (opened := _open_flow(failure.text)) is not None:
        close = "]" if failure.text[opened.index] == "[" else "}"
        return f"this {failure.text[opened.index]} is never closed: write {close} where it ends", opened
    return f"{failure.sign or 'the end'} is in the place of a value; put text in double quotes", failure.at


def _open_flow(text: str) -> Any:
    """Return the mark of the innermost bracket that is still open at the end of the text, or None."""
    opened: list[Any] = []
    try:
        for token in yaml.scan(text, Loader=yaml.CSafeLoader):
            if isinstance(token, yaml.FlowSequenceStartToken | yaml.FlowMappingStartToken):
                opened.append(token.start_mark)
            elif isinstance(token, yaml.FlowSequenceEndToken | yaml.FlowMappingEndToken) and opened:
                opened.pop()
    except yaml.YAMLError:
        pass  # use the tokens before the error
    return opened[-1] if opened else None


def _no_beginning(failure: _Failure) -> tuple[str, Any]:
    if failure.sign == "\t":
        return _TAB, failure.at
    return f"plain text cannot begin with {failure.sign}: put it in double quotes", failure.at


def _here(what: str) -> Callable[[_Failure], tuple[str, Any]]:
    return lambda failure: (what, failure.at)


def _from_begin(what: str) -> Callable[[_Failure], tuple[str, Any]]:
    return lambda failure: (what, failure.begin or failure.at)


_TAB = "a tab: indent with spaces"
_EXPLAINED: dict[str, Callable[[_Failure], tuple[str, Any]]] = {
    "did not find expected ',' or '}'": _unclosed("{", "}"),
    "did not find expected ',' or ']'": _unclosed("[", "]"),
    "unexpected end of stream": _from_begin("this quote is never closed: write the same quote where the text ends"),
    "expected node content": _no_value,
    "cannot start any token": _no_beginning,
    "tab character": _here(_TAB),
    "mapping values": _here(
        "a colon where a key is not allowed: put the text in double quotes, or check the indentation"
    ),
    "block sequence entries": _here(
        "a list item is not allowed here: begin it on its own line, or put the text in double quotes"
    ),
    "mapping keys": _here("a question mark is not allowed here: put the text in double quotes"),
    "expected key": _here("a key is expected here: check the indentation of this line, and the quotes before this"),
    "expected '-' indicator": _here("a list item is expected here: begin the line with `- `, or indent it"),
    "expected ':'": _from_begin(
        "neither a key with its colon nor a list item: check the colon, the space after `-`, and the indentation"
    ),
    "unknown escape character": _here("unknown escape: write \\\\ for a backslash"),
    "hexdecimal number": _here("an escape lacks hexadecimal digits: write \\\\ for a backslash"),
    "<document start>": _here("the document ends before this: one closing bracket too many, or text after `...`"),
    "comment or line break": _here("only a line end or a comment may follow | or >"),
    "alphabetic or numeric": _from_begin(
        "an anchor (&) or alias (*) without a name: put text that begins with this sign in double quotes"
    ),
    "tag": _from_begin("not a valid tag: put text that begins with ! in double quotes"),
}


# Lines that cannot break these rules: a key, a scalar or both, with the scalar plain or in double quotes. Possessive
# quantifiers (`++`, `*+`) prevent backtracking, so each line is searched at most twice.
_TEXT = r"""(?: "[^"\\\n]*+(?:\\.[^"\\\n]*+)*+" | [^"'\[\]{}\#|>?\n\t]*+ )"""
_ENTRY = rf"(?:-[ ]++)*+ [A-Za-z0-9_.-]++:(?:[ ]++{_TEXT})?+ | (?:-[ ]++)++{_TEXT}"
_HARMLESS = re.compile(rf"(?: (?!---) [ ]*+ (?:{_ENTRY})?+ [ ]*+ \r?+ (?:\n|\Z) )*+", re.VERBOSE)
_HEADER = re.compile(r"[|>][-+0-9]*")
_MARKER = re.compile(r"^---(?=[^ \t\r\n])", re.MULTILINE)


class SyntaxFault(Struct, frozen=True):
    """A broken layout rule, with its line and column from 1."""

    detail: str
    line: int
    column: int


def find_fault(text: str, root: Any) -> SyntaxFault | None:
    """Return the first fault in the layout, or None. `root` is libyaml's node graph of the text."""
    if _HARMLESS.fullmatch(_without_quoted(text)):
        return None  # most files
    if marker := _MARKER.search(text):
        line = text.count("\n", 0, marker.start()) + 1
        return SyntaxFault("a line that begins with ---: put its text in double quotes", line, 1)
    search = _Search(text)
    return search.in_node(root, -1) or search.between_scalars(len(text))


def _without_quoted(text: str) -> str:
    """Remove the text in double quotes, unless quoting is unclear. A token in quotes is most of a file."""
    parts = text.split('"')
    if "\\" in text or not len(parts) % 2 or any("\n" in quoted for quoted in parts[1::2]):
        return text
    return '""'.join(parts[::2])


class _Search:
    """One walk over the nodes in text order. `indent` is the column of the innermost block collection, or -1."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = text.split("\n")
        self._has_tabs = "\t" in text
        self._end = 0  # of the last scalar

    def between_scalars(self, begin: int) -> SyntaxFault | None:
        """Check tabs and comments between the last scalar and `begin`, where the first # of a line begins a comment."""
        text, end = self._text, self._end
        while end >= 0:
            sign = text.find("#", end, begin)
            if fault := self._in_tabs(end, begin if sign < 0 else sign):
                return fault
            if sign < 0:
                return None
            if text[sign - 1 : sign] not in {"", " ", "\n"}:
                return self._fault("a comment needs a space before its #", sign)
            end = text.find("\n", sign, begin)
        return None

    def _in_tabs(self, begin: int, end: int) -> SyntaxFault | None:
        """Find a tab where it is not text of quotes, a block or a comment. PyYAML without libyaml refuses it."""
        tab = self._text.find("\t", begin, end) if self._has_tabs else -1
        return None if tab < 0 else self._fault("a tab outside of quotes: write a space", tab)

    def _fault(self, detail: str, index: int) -> SyntaxFault:
        return SyntaxFault(detail, self._text.count("\n", 0, index) + 1, index - self._text.rfind("\n", 0, index))

    def in_node(self, node: Any, indent: int, *, key: bool = False, flow: bool = False) -> SyntaxFault | None:
        """Check a node and its parts. `key` says that the node is a key, `flow` that it is in a flow collection."""
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
        if fault := self.between_scalars(begin):
            return fault
        self._end = max(begin, end.index)
        if start.index == end.index:
            return None  # an empty value
        if not node.style and (fault := self._in_plain(start.index, end.index, flow=flow)):
            return fault
        fault = self._in_lines(node, indent, key=key)
        return self._in_block_text(start, indent) if node.style in {"|", ">"} and not fault else fault

    def _in_plain(self, begin: int, end: int, *, flow: bool) -> SyntaxFault | None:
        if flow and self._text[begin:end] == "-":
            return self._fault("a lone - between brackets: put it in double quotes", begin)
        if flow and (sign := self._text.find("?", begin, end)) >= 0:
            return self._fault("a question mark between brackets: put the text in double quotes", sign)
        return self._in_tabs(begin, end)

    def _in_lines(self, node: Any, indent: int, *, key: bool) -> SyntaxFault | None:
        """Find a line of a node that begins with too few spaces. Tabs do not count as spaces. The first line counts if
        only white space is before the node and the node is not a key: a key is exactly at the indentation. Empty lines
        need no spaces. In a flow collection, neither does a line with only a comment, and a line that begins with the
        closing bracket may begin at the indentation: the specification demands spaces there, but no reader does."""
        start, end = node.start_mark, node.end_mark
        if start.line == end.line and start.column > indent and not self._has_tabs:
            return None  # most nodes
        first = start.line + bool(key or self._lines[start.line][: start.column].strip(" \t"))
        last, collection = end.line, not isinstance(node, yaml.ScalarNode)
        closing = collection and not self._lines[end.line][: end.column - 1].strip(" \t")
        if not collection and node.style in {"|", ">"}:
            last = start.line
        for number in range(first, last + 1):
            line, spaces = self._lines[number], " " * (indent + (not (closing and number == last)))
            if line.startswith(spaces) or not (begun := line.lstrip(" \t\r")) or (collection and begun[0] == "#"):
                continue
            return SyntaxFault(f"indent this line with {len(spaces)} spaces or more", number + 1, 1)
        return None

    def _in_block_text(self, start: Any, indent: int) -> SyntaxFault | None:
        """Find an empty line above block text that has more spaces than its first line, which sets the indentation.
        ruamel.yaml also refuses more spaces than in an empty first line that has spaces."""
        header = _HEADER.match(self._lines[start.line], start.column)
        if header is None or any(char.isdigit() for char in header[0]):
            return None
        first, longest, at = -1, 0, 0
        for number in range(start.line + 1, len(self._lines)):
            line = self._lines[number].rstrip("\r")
            spaces = len(line) - len(line.lstrip(" "))
            if spaces < len(line):
                if indent < spaces < longest:
                    return SyntaxFault("an empty line has more spaces than the block text below it", at + 1, 1)
                longest = max(longest, spaces)
                break
            first = spaces if first < 0 else first
            if spaces > longest:
                longest, at = spaces, number
        if 0 < first < longest:
            return SyntaxFault("an empty line above block text has spaces: leave them out", start.line + 2, 1)
        return None


# -- places of nodes, for a formatter that changes the layout and keeps the content -----------------------------------


class NodeSpan(Struct, frozen=True):
    """The place of a node: characters `start` to `end` (exclusive), lines from 0. `last_line` is the last line that has
    a character of the node. `depth` is the number of block collections around it. `style` is the quote or block sign of
    a scalar, "" for plain text and for collections."""

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
    """Return the place of every node, in the order in which they begin. `strict_yaml.load` must accept the text."""
    spans: list[NodeSpan | None] = []
    opened: list[tuple[int, Any]] = []  # the index of the span, and the event that begins the node
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
    # For libyaml, a node without a closing sign ends at the next token. Its content ends earlier.
    content = text[start.index : end]
    last_line = start.line + (content if style in {"|", ">"} else content.rstrip()).rstrip("\n").count("\n")
    flow = kind != "scalar" and begun.flow_style
    value = begun.value if kind == "scalar" else ""
    return NodeSpan(kind, start.index, end, start.line, last_line, start.column, depth, flow, style, value)
