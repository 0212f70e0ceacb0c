"""The reader and the writer of `stops.yaml`, separate from every other file: an error elsewhere must not delay a stop.

A well-formed stop counts even if another stop of the file has an error. Pure: bytes in, values and bytes out.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import UNSET

from issuer.codes import Code
from issuer.errors import Finding, InputError, Place
from issuer.formats.findings import Findings
from issuer.formats.strict_json import JSON
from issuer.formats.strict_yaml import MAX_BYTES, Document, load, quoted
from issuer.policy.stops import WHAT_RULE, Stop, Stops, StopsFile, is_time, is_what, unix_s

STOPS_FILE = "stops.yaml"
MAX_STOPS_BYTES = MAX_BYTES
_TIME_RULE = 'must be a UTC time such as "2026-11-21T09:00:00Z"'
_HEAD = """\
# Emergency stops: callers that get no token for a time. `issuer stop` and `issuer resume` write this file.
version: 1
"""
_SET_ASIDE = (
    "`issuer stop` could not add to this file. Below are its error and its lines. Add their stops to the list at the",
    "end, then remove these comments and `to_repair`. Until then the service lifts no stop.",
)
_TO_REPAIR = 'to_repair: "first add the stops in the lines above to the list below"\n'


def read_stops(raw: bytes, name: str) -> tuple[Stops, tuple[Finding, ...]]:
    """Return the well-formed stops of a file, and every error in it."""
    findings = Findings()
    try:
        document = load(raw, name)
    except InputError as error:
        findings.refuse(error)
        return Stops(), findings.in_order()
    findings.convert(document, StopsFile)
    stops = [_read_stop(document, index, item, findings) for index, item in enumerate(_items(document))]
    return Stops(stop for stop in stops if stop is not None), findings.in_order()


def _items(document: Document) -> list[JSON]:
    listed = document.value.get("stops") if isinstance(document.value, dict) else None
    return listed if isinstance(listed, list) else []


def _read_stop(document: Document, index: int, item: JSON, findings: Findings) -> Stop | None:
    try:
        stop = msgspec.convert(item, Stop)
    except msgspec.ValidationError:
        return None  # the conversion of the whole file has reported it
    at = f"/stops/{index}"
    good = [
        findings.demand(document, f"{at}/what", is_what(stop.what), WHAT_RULE),
        findings.demand(document, f"{at}/since", is_time(stop.since), _TIME_RULE),
    ]
    if stop.until is not UNSET:
        good.append(findings.demand(document, f"{at}/until", is_time(stop.until), _TIME_RULE))
        if all(good):
            later = unix_s(stop.until) > unix_s(stop.since)
            good.append(findings.demand(document, f"{at}/until", later, "must be after `since`"))
    return stop if all(good) else None


# -- writing ----------------------------------------------------------------------------------------------------------


def add_stop(raw: bytes | None, name: str, stop: Stop) -> bytes:
    """Return a file with one more stop; `raw` is None before the first stop. Raises InputError for a full file.

    A file with an error still has one afterwards: so services add the stop, but lift no stop that the error may hide.
    """
    before, errors = (Stops(), ()) if raw is None else read_stops(raw, name)
    after = (*before.all, stop)
    if raw is None or not (before.all or errors):
        return _whole(after)
    anew = _set_aside(raw, errors[0], after) if errors else _whole(after)
    edited = _checked(lambda: _append(raw, name, stop), after, name, anew, has_errors=bool(errors))
    if stop not in read_stops(edited, name)[0].all:
        raise InputError(Code.FILE_TOO_LARGE, "no room for a further stop: remove the old ones", Place(name))
    return edited


def remove_stops(raw: bytes, name: str, what: str) -> bytes | None:
    """Return a file without the stops of `what`, or None if it has none. Raises InputError for a bad file."""
    stops, errors = read_stops(raw, name)
    if errors:
        raise InputError(errors[0].code, errors[0].detail, errors[0].place, errors[0].pointer)
    before = stops.all
    kept = tuple(stop for stop in before if stop.what != what)
    if kept == before:
        return None
    return _checked(lambda: _cut(raw, name, what), kept, name, _whole(kept)) if kept else _whole(())


def _checked(
    edit: Callable[[], bytes], wanted: tuple[Stop, ...], name: str, anew: bytes, *, has_errors: bool = False
) -> bytes:
    """Edit in place, which keeps comments. If the result does not have the wanted stops, return the file `anew`."""
    try:
        edited = edit()
    except InputError:
        return anew
    stops, errors = read_stops(edited, name)
    return edited if stops.all == tuple(dict.fromkeys(wanted)) and bool(errors) == has_errors else anew


def _set_aside(raw: bytes, error: Finding, stops: tuple[Stop, ...]) -> bytes:
    """Return a file with these stops and the lines of `raw` as comments. An unknown member is the error that it keeps.
    So its next line can be appended, too."""
    lines = (*_SET_ASIDE, f"{error}", *raw.decode("utf-8", "backslashreplace").splitlines())
    return ("".join(map(_comment, lines)) + _TO_REPAIR).encode() + _whole(stops)


def _comment(line: str) -> str:
    """Return a line as a comment, with escapes in place of characters that YAML readers refuse."""
    return f"# {line if line.isprintable() else line.encode('unicode_escape').decode()}".rstrip() + "\n"


def _whole(stops: tuple[Stop, ...]) -> bytes:
    listed = "stops:\n" + "".join(_item(stop, "  ") for stop in stops) if stops else "stops: []\n"
    return (_HEAD + listed).encode()


def _item(stop: Stop, indent: str) -> str:
    members = [(name, getattr(stop, name)) for name in Stop.__struct_fields__ if getattr(stop, name) is not UNSET]
    lines = [f"{name}: {quoted(value)}" for name, value in members]
    return f"{indent}- " + f"\n{indent}  ".join(lines) + "\n"


def _append(raw: bytes, name: str, stop: Stop) -> bytes:
    """Append a stop below the last one, with the same indentation."""
    indent = " " * max(0, load(raw, name).place("/stops/0").column - len("- ") - 1)
    text = raw.decode("utf-8")
    return (text if text.endswith("\n") else f"{text}\n").encode() + _item(stop, indent).encode()


def _cut(raw: bytes, name: str, what: str) -> bytes:
    """Remove the lines of each stop of `what`. A comment between two stops stays."""
    document, text = load(raw, name), raw.decode("utf-8")
    lines = text.splitlines(keepends=True)
    for index in reversed(range(len(_items(document)))):
        at = f"/stops/{index}"
        if document.convert_part(at, _items(document)[index], Stop).what == what:
            _, end = document.span(at)
            del lines[document.place(at).line - 1 : text.count("\n", 0, end) + 1]
    return "".join(lines).encode()
