"""How two entries differ, and which differences a token would notice. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import UNSET, Struct

from issuer.formats import jcs
from issuer.formats.strict_json import JSON, pointer_to
from issuer.results.entry import Entry


class Difference(Struct, frozen=True):
    """One member that differs. `left` and `right` are its values as JSON, "" where it is absent.

    Material is what the content digest binds; the token itself and `value` are not in it.
    """

    pointer: str
    left: str
    right: str
    material: bool


def differences(left: Entry, right: Entry) -> tuple[Difference, ...]:
    """Return every member in which two entries differ, by its pointer in the entry; metrics are compared in order."""
    found = [Difference(at, one, other, True) for at, one, other in _compared("", left.form, right.form)]
    for name, one, other in (
        ("/value", _or_none(left.value), _or_none(right.value)),
        ("/verify_token", left.token, right.token),
    ):
        if one != other:
            found.append(Difference(name, _shown(one), _shown(other), False))
    return tuple(found)


def key_of(entry: Entry) -> tuple[object, ...]:
    """Return the key by which the entries of two files are matched: benchmark, task and model commit."""
    return entry.dataset.id, entry.dataset.task_id, entry.dataset.revision, entry.model_revision


def matched(left: Sequence[Entry], right: Sequence[Entry]) -> Iterator[tuple[Entry | None, Entry | None]]:
    """Pair the entries of two files, those of the left file first; None is in the place of one that is missing."""
    rest = list(right)
    for entry in left:
        alike = [other for other in rest if key_of(other) == key_of(entry)]
        same = next((other for other in alike if other.form == entry.form), alike[0] if alike else None)
        if same is not None:
            rest.remove(same)
        yield entry, same
    for entry in rest:
        yield None, entry


def _compared(at: str, left: JSON, right: JSON) -> Iterator[tuple[str, str, str]]:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for name in sorted(left.keys() | right.keys()):
            yield from _member(pointer_to(at, name), name in left, name in right, left.get(name), right.get(name))
    elif isinstance(left, list) and isinstance(right, list):
        for index in range(max(len(left), len(right))):
            one, other = (items[index] if index < len(items) else None for items in (left, right))
            yield from _member(pointer_to(at, index), index < len(left), index < len(right), one, other)
    elif jcs.canonical(left) != jcs.canonical(right):
        yield at, _shown(left), _shown(right)


def _member(at: str, in_left: bool, in_right: bool, left: JSON, right: JSON) -> Iterator[tuple[str, str, str]]:
    if in_left and in_right:
        yield from _compared(at, left, right)
    else:
        yield at, _shown(left) if in_left else "", _shown(right) if in_right else ""


def _or_none(value: object) -> JSON:
    return None if value is UNSET else value  # type: ignore[return-value]


def _shown(value: JSON) -> str:
    return "" if value is None else jcs.canonical(value).decode()
