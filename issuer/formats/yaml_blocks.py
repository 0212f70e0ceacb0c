"""YAML in its plainest form, read in a fifth of the time that libyaml takes. Pure.

Maps and lists in blocks, each two spaces further in than what it is in, and on each line a key: with text in double
quotes without an escape, a decimal number, or what is below it. So this project writes entries, and so nearly all are.
Whatever is not of this form, or breaks a rule, is left to `strict_yaml`, which reads the same from what is.
"""

from __future__ import annotations

import re
from typing import Any

from issuer.formats.strict_json import JSON, exact_number

# A line: its indentation, the dash of a list's item, a key that is text to every reader, and a value. In no text is a
# character that ends a line to some reader, or that one refuses. Or else all the rest, from the first other line on.
_LINE = re.compile(
    r"""
    ((?:[ ]{2}){0,12}+) (-[ ])?+ (?!(?i:yes|no|on|off|true|false|null):) ([A-Za-z][A-Za-z0-9_]{0,63}+) :
    (?: [ ] ( "[ !\#-\[\]-~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*+"
            | -?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+ ) )?+ \n
    | (?s:.++)
    """,
    re.VERBOSE,
)


def read_blocks(text: str, max_values: int) -> JSON:
    """Read a document of this form; None for any other, and for one that may have more than `max_values` values."""
    lines = _LINE.findall(text)
    # Three values a line at most: a list's item, its key, and what that has.
    if not lines or not lines[-1][2] or 3 * len(lines) >= max_values:
        return None
    try:
        return _build(lines)
    except ValueError:
        return None  # a number that no double carries


def _build(lines: list[tuple[str, str, str, str]]) -> JSON:
    document: dict[str, Any] = {}
    inner: Any = document
    name, is_open = "", True  # the key in `inner` whose value is to come, if that is still to come
    opened: list[Any] = []  # the lists and maps that a line is in, each a level further in
    for indent, dash, key, value in lines:
        level = len(indent) // 2
        if is_open and level == len(opened):
            inner[name] = inner = [] if dash else {}
            opened.append(inner)
        elif is_open or level >= len(opened):
            return None
        else:
            del opened[level + 1 :]
            inner = opened[level]
        if dash and type(inner) is list:
            inner.append({})
            inner = inner[-1]
            opened.append(inner)
        elif dash:
            return None
        if type(inner) is not dict or key in inner:
            return None
        name, is_open = key, not value
        if value:
            inner[key] = value[1:-1] if value[0] == '"' else exact_number(value)
    return None if is_open else document[""]
