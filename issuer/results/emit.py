"""A writer of YAML entries that every YAML reader reads alike (contract section 3). Pure.

Every string is double-quoted on one line, and numbers have a spelling on which readers agree. Members are in the order
of the contract's example, and unknown members follow in the order of their names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import UNSET

from issuer.formats.strict_json import JSON
from issuer.formats.strict_yaml import MAX_DEPTH, number_text, quoted
from issuer.results.claims import Metric, RunClaims

MAX_NAME = 1000  # YAML readers allow keys of at most 1024 characters
# The most characters that a value's line has more than its JSON, without indentation: a number may have more zeros.
_LINE = 12
_SHORT_NAME = MAX_NAME // 10 - 1  # such a name always fits, because an escape has at most ten characters
_ORDER = (
    "dataset", "model_revision", "framework", "metrics", "metric_id", "value", "slice", "date", "source", "notes",
    "run", "artifacts", "runtime_context", "benchmark_subset", "normalization", "verify_token", "verifyToken",
    "id", "task_id", "revision", "name", "version", "command",
)  # fmt: skip
_RANK = {name: index for index, name in enumerate(_ORDER)}
# Keys that need no quotes. Some readers do not read words such as `yes` as text.
_PLAIN_KEY = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)\Z)[a-z][a-z0-9]*(?:_[a-z0-9]+)*")


def item(members: Mapping[str, JSON]) -> str:
    """Write one item of a result file's list."""
    return "\n".join(_item_lines(members, "")) + "\n"


def fits(value: JSON, max_bytes: int) -> str:
    """Return the rule that members break if they, or a name, are too long to be read back from a file; otherwise ""."""
    written = msgspec.json.encode(value)
    # Check the upper bound first: writing the members to measure them takes longer than all other rules.
    if _at_most(written) > max_bytes and len("\n".join(_lines(value, "  ")).encode()) > max_bytes:
        return f"longer than {max_bytes} bytes when written into a file; put large evidence behind a URL"
    if len(written) <= _SHORT_NAME or _names_fit(value):
        return ""
    return f"a name longer than {MAX_NAME} characters when written into a file"


def _at_most(written: bytes) -> int:
    """Return the longest YAML that JSON can become: a byte of text becomes at most four, and each value has a line."""
    opened = written.count(b"{") + written.count(b"[")
    texts = len(written) * (1 if written.isascii() and b"\x7f" not in written else 4)
    return texts + (1 + written.count(b",") + opened) * (_LINE + 2 * min(opened, MAX_DEPTH))


def _names_fit(value: JSON) -> bool:
    if isinstance(value, str | int | float):  # first, because the check for Mapping takes ten times as long
        return True
    if isinstance(value, Mapping):
        return all(
            (len(name) <= _SHORT_NAME or len(quoted(name)) <= MAX_NAME) and _names_fit(inner)
            for name, inner in value.items()
        )
    return not isinstance(value, list) or all(map(_names_fit, value))


def below(members: Mapping[str, JSON]) -> str:
    """Write members of an item as lines below its first line. Return "" without members."""
    return "\n".join([*_lines(members, "  "), ""]) if members else ""


def claims_head(claims: RunClaims) -> str:
    """Write the part of an entry with the run claims, as `item` does, but in a tenth of its time."""
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
    """Write one list item: a dash on its first line, and the other lines indented below it."""
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
    """Write a scalar or an empty map or list on one line."""
    if isinstance(value, str):
        return quoted(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return number_text(value)
    return "{}" if isinstance(value, Mapping) else "[]"
