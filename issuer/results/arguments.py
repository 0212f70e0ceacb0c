"""The arguments of a run (`run.arguments`, contract section 3): settings of a framework that can change a score. Pure.

`flat` and `bounded` make the map from a framework's arguments, and `faults_of` checks one that a caller has sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from issuer.codes import Code
from issuer.errors import Fault
from issuer.formats import jcs
from issuer.formats.strict_json import JSON, pointer_to
from issuer.results.secret import find_secrets, has_local_path

MAX_ARGUMENTS = 64
MAX_NAME = 128
MAX_TEXT = 256
ALL = "all"  # the only member of a map that would have more than 64

_PART = re.compile(r"[A-Za-z0-9_-]{1,128}")
_NAME = re.compile(rf"(?=.{{1,{MAX_NAME}}}\Z)[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_CREDENTIALS = re.compile(r"://[^/\s@]{1,256}@")


def flat(arguments: Mapping[str, Any]) -> dict[str, JSON]:
    """Return the members of nested arguments by dotted name, without nulls, empty maps and empty lists. Of more than
    64, return only some and a digest of them all, so that the work has a bound; `bounded` must follow."""
    members = dict(islice(_members("", arguments), MAX_ARGUMENTS + 1))
    return {**members, ALL: digest(arguments)} if len(members) > MAX_ARGUMENTS else members


def bounded(members: dict[str, JSON]) -> dict[str, JSON]:
    """Return the members of one or several calls of `flat` by name, or only their digest if there are more than 64."""
    return {ALL: jcs.digest(members)} if len(members) > MAX_ARGUMENTS else dict(sorted(members.items()))


def faults_of(run: Mapping[str, Any], pointer: str) -> Iterator[Fault]:
    """Yield the faults of `run.arguments` in a request; `pointer` is the place of `run`."""
    if "arguments" not in run:
        return
    place, arguments = f"{pointer}/arguments", run["arguments"]
    if not isinstance(arguments, Mapping) or not 1 <= len(arguments) <= MAX_ARGUMENTS:
        yield Fault(Code.DETAILS_INVALID, place, f"must be a map of 1 to {MAX_ARGUMENTS} arguments, by dotted name")
        return
    for name, value in arguments.items():
        if not _NAME.fullmatch(name):
            rule = f"a name must have 1 to {MAX_NAME} letters, digits, `_`, `-` and single dots between them"
            yield Fault(Code.DETAILS_INVALID, pointer_to(place, name) if len(name) <= MAX_NAME else place, rule)
        elif isinstance(value, Mapping | list | tuple):
            rule = "must be text, a number or a boolean: write the members of a map or list by dotted names"
            yield Fault(Code.DETAILS_INVALID, pointer_to(place, name), rule)
        elif isinstance(value, str) and (cause := _unfit(value)):
            rule = f"{cause}: write the digest of its canonical bytes in its place, sha256:<64 hex characters>"
            yield Fault(Code.DETAILS_INVALID, pointer_to(place, name), rule)
    if ALL not in arguments:
        return
    if len(arguments) > 1 or not _DIGEST.fullmatch(str(arguments[ALL])):
        rule = "replaces more than 64 arguments: it must be the only member, and their digest"
        yield Fault(Code.DETAILS_INVALID, f"{place}/{ALL}", rule)
    if run.get("completeness") == "full":
        rule = f"must be `not known` or `partial` if {ALL} replaces more than 64 arguments"
        yield Fault(Code.DETAILS_INVALID, f"{pointer}/completeness", rule)


def _members(name: str, value: Any) -> Iterator[tuple[str, JSON]]:
    """Yield the scalars below a value by dotted name. A map or list whose members have no names is digested whole."""
    if value is None or value in ({}, []):
        return
    if not isinstance(value, Mapping | list) or not _has_names(name, value):
        yield name or ALL, _scalar(name, value)
        return
    for part, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from _members(f"{name}.{part}" if name else str(part), item)


def _has_names(name: str, value: Mapping[str, Any] | list[Any]) -> bool:
    """Say whether the members of a map or list have names, and are at most 64."""
    if len(value) > MAX_ARGUMENTS:
        return False
    if isinstance(value, list):
        return len(name) <= MAX_NAME - len(".63")
    longest = MAX_NAME - len(name) - 1
    return all(_PART.fullmatch(part) and len(part) <= longest and not any(find_secrets(part)) for part in value)


def _scalar(name: str, value: Any) -> JSON:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping | list):
        return digest(value)
    text = str(value)  # a number that claims cannot have is text, as it is written
    return jcs.digest(text) if _unfit(text) or any(find_secrets({name: text})) else text


def digest(value: Any) -> str:
    """Return the digest of a value from a file, also if it has numbers that claims cannot have, as text."""
    try:
        return jcs.digest(value)
    except (TypeError, ValueError):
        return jcs.digest(_json(value))


def _unfit(text: str) -> str:
    """Return why a text must be replaced by its digest, or "". Secrets are refused in all details, under their code."""
    if len(text) > MAX_TEXT:
        return f"longer than {MAX_TEXT} characters"
    if _CREDENTIALS.search(text):
        return "looks like a URL with credentials"
    return "looks like a local path" if has_local_path(text) else ""


def _json(value: Any) -> JSON:
    if isinstance(value, Mapping):
        return {name: _json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_json(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)
