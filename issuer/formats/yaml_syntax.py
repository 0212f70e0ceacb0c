"""What libyaml's parser says of text that is not YAML, in words for who wrote the text, and at the place to mend. Pure.

libyaml names the rule of its grammar that failed, and the place where it noticed: of a brace that is never closed, the
line after the next one. A message that is not known here is shown as libyaml's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import yaml


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


def _not_closed(seen: _Seen) -> tuple[str, Any]:
    return "this quote is never closed: write the same quote where the text ends", seen.begin or seen.at


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
    "found unexpected end of stream": _not_closed,
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
