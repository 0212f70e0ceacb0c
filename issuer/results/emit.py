"""How entries are written so that every YAML reader reads them alike (contract section 3). Pure.

Every string is double-quoted on one line, numbers are spelled as all readers read them, and members are in the order of
the contract's example; unknown ones follow, by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import UNSET

from issuer.formats.strict_json import JSON
from issuer.formats.strict_yaml import MAX_DEPTH, number_text, quoted
from issuer.results.claims import Metric, RunClaims

MAX_NAME = 1000  # YAML readers take keys of at most 1024 characters
# What a value's line has beside the text that JSON has, and beside two spaces a level: a number with more zeros.
_LINE = 12
_SHORT_NAME = MAX_NAME // 10 - 1  # of any characters: an escape has at most ten
_ORDER = (
    "dataset", "model_revision", "framework", "metrics", "metric_id", "value", "slice", "date", "source", "notes",
    "run", "artifacts", "runtime_context", "benchmark_subset", "normalization", "verify_token", "verifyToken",
    "id", "task_id", "revision", "name", "version", "command",
)  # fmt: skip
_RANK = {name: index for index, name in enumerate(_ORDER)}
# Words that some reader takes for something other than text are quoted, also as keys.
_PLAIN_KEY = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)\Z)[a-z][a-z0-9]*(?:_[a-z0-9]+)*")


def item(members: Mapping[str, JSON]) -> str:
    """Write one item of a file's list."""
    return "\n".join(_item_lines(members, "")) + "\n"


def fits(value: JSON, max_bytes: int) -> str:
    """Return why members could not be read back from a file, or "": too long together, or a name too long."""
    written = msgspec.json.encode(value)
    # First the upper bound: to write the members and measure takes longer than all other rules.
    if _at_most(written) > max_bytes and len("\n".join(_lines(value, "  ")).encode()) > max_bytes:
        return f"longer than {max_bytes} bytes when written into a file; put large evidence behind a URL"
    if len(written) <= _SHORT_NAME or _names_fit(value):
        return ""
    return f"a name longer than {MAX_NAME} characters when written into a file"


def _at_most(written: bytes) -> int:
    """Return how long JSON can become in YAML: a byte of a text becomes four at most, and each value has a line."""
    opened = written.count(b"{") + written.count(b"[")
    texts = len(written) * (1 if written.isascii() and b"\x7f" not in written else 4)
    return texts + (1 + written.count(b",") + opened) * (_LINE + 2 * min(opened, MAX_DEPTH))


def _names_fit(value: JSON) -> bool:
    if isinstance(value, str | int | float):  # before Mapping, which takes ten times as long to check
        return True
    if isinstance(value, Mapping):
        return all(
            (len(name) <= _SHORT_NAME or len(quoted(name)) <= MAX_NAME) and _names_fit(inner)
            for name, inner in value.items()
        )
    return not isinstance(value, list) or all(map(_names_fit, value))


def below(members: Mapping[str, JSON]) -> str:
    """Write members of an item as lines below its first one; "" for no members."""
    return "\n".join([*_lines(members, "  "), ""]) if members else ""


def claims_head(claims: RunClaims) -> str:
    """Write the head of an entry from run claims: what `item` writes of them, in a tenth of its time."""
    framework = claims.framework
    command = f"    command: {quoted(framework.command)}\n" if framework.command is not UNSET else ""
    return (
        f'- dataset:\n    id: "{claims.benchmark_repo}"\n    task_id: {quoted(claims.task_id)}\n'
        f'    revision: "{claims.benchmark_revision}"\n  model_revision: "{claims.model_revision}"\n'
        f"  framework:\n    name: {quoted(framework.name)}\n    version: {quoted(framework.version)}\n{command}"
        f"  metrics:\n{''.join(map(_metric_item, claims.metrics))}"
    )


def _metric_item(metric: Metric) -> str:
    item = f"    - metric_id: {quoted(metric.metric_id)}\n      value: {number_text(metric.value)}\n"
    if metric.slice is not UNSET:
        item += f"      slice: {quoted(metric.slice)}\n"
    if metric.sample_size is not UNSET:
        item += f"      sample_size: {metric.sample_size}\n"
    if metric.value_type is not UNSET:
        item += f'      value_type: "{metric.value_type}"\n'
    return item


def _item_lines(value: JSON, indent: str) -> list[str]:
    """Write one list item: its first line starts with a dash, the others are indented below it."""
    lines = _lines(value, indent + "  ")
    return [f"{indent}- {lines[0].removeprefix(indent + '  ')}", *lines[1:]]


def _lines(value: JSON, indent: str) -> list[str]:
    if isinstance(value, dict) and value:
        ordered = sorted(value, key=lambda name: (_RANK.get(name, len(_RANK)), name))
        return [line for name in ordered for line in _member_lines(name, value[name], indent)]
    if isinstance(value, list | tuple) and value:
        return [line for inner in value for line in _item_lines(inner, indent)]
    return [indent + flow(value)]


def _member_lines(name: str, value: JSON, indent: str) -> list[str]:
    key = name if name in _RANK or _PLAIN_KEY.fullmatch(name) else quoted(name)
    if isinstance(value, str):
        return [f"{indent}{key}: {quoted(value)}"]
    if isinstance(value, dict | list | tuple) and value:
        return [f"{indent}{key}:", *_lines(value, indent + "  ")]
    return [f"{indent}{key}: {flow(value)}"]


def flow(value: JSON) -> str:
    """Write a scalar, or an empty map or list, on one line."""
    if isinstance(value, str):
        return quoted(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return number_text(value)
    return "{}" if isinstance(value, Mapping) else "[]"
