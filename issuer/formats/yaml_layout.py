"""The places of the nodes in a YAML text, for laying a text out anew without changing what it says. Pure."""

from __future__ import annotations

from typing import Any, Literal

import yaml
from msgspec import Struct


class Span(Struct, frozen=True):
    """The place of a node in a text: from the character at `start` to before `end`, on lines from 0.

    `last_line` is the last line with a character of it. `depth` is the number of block collections around it; `style`
    is a scalar's quote or block sign, "" for plain text and for collections.
    """

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


def layout(text: str) -> tuple[Span, ...]:
    """Return the place of every node of a text, in the order of their beginnings. `strict_yaml.load` must have accepted
    the text."""
    spans: list[Span | None] = []
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


def _span(kind: Literal["map", "list", "scalar"], begun: Any, ended: Any, depth: int, text: str) -> Span:
    start, end, style = begun.start_mark, ended.end_mark.index, getattr(begun, "style", None) or ""
    # What has no closing sign ends, to libyaml, where the next token begins; what it holds ends with its last sign.
    held = text[start.index : end]
    last_line = start.line + (held if style in {"|", ">"} else held.rstrip()).rstrip("\n").count("\n")
    flow = kind != "scalar" and begun.flow_style
    value = begun.value if kind == "scalar" else ""
    return Span(kind, start.index, end, start.line, last_line, start.column, depth, flow, style, value)
