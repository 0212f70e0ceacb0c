"""An editor for result files, from text to text. Pure.

It appends or replaces one entry, or puts a token into it, at the places of the file's nodes. Other entries, comments,
order and line ends remain: it reads the new text again to check this. It raises only InputError.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place
from issuer.formats import jose
from issuer.formats.strict_json import loads
from issuer.formats.strict_yaml import Document, quoted
from issuer.results.entry import (
    TOKEN_MEMBERS,
    Entry,
    Profile,
    content_digest,
    entries_of,
    open_results,
    read_entries,
    write_entry,
)

_NO_LINE = re.compile(r"[ \t\r]*(?:#.*)?")
_DEPTH = 16  # levels of a token's payload
_DASH_ALONE = re.compile(r"[ \t]*-[ \t\r]*(?:#.*)?")


def put_entry(text: str, entry: str, name: str, *, reshape: bool = False) -> str:
    """Return the file with this entry's token in the first entry with the same content, or else with the entry
    appended. So a repeated call changes nothing, and a newer token replaces an older one. The existing entry keeps its
    form; with `reshape`, this entry replaces it if the forms differ. Raises InputError(`result.value`) if the existing
    entry has a `value` that none of its metrics has."""
    issued = read_entries(entry.encode(), name)
    if text.strip() and len(issued) == 1 and (token := issued[0].token) is not None:
        same = [old for old in read_entries(text.encode(), name) if _is_same(old, issued[0])]
        shaped = [old for old in same if not reshape or _shape(old) == _shape(issued[0])]
        if any(old.token == token for old in shaped):
            return text
        if same:
            index = int((shaped or same)[0].pointer.removeprefix("/"))
            if not shaped:
                return replace(text, index, entry, name)
            if _has_other_value(shaped[0]):
                rule = "this entry has a `value` that none of its metrics has, so it would not verify with any token"
                raise open_results(text.encode(), name).error(Code.RESULT_VALUE, f"/{index}/value", rule)
            return put_token(text, index, token, name)
    return append(text, entry, name)


def lacks(text: str, entries: str, name: str) -> list[bool]:
    """Return for each entry (in the form of `write_entry`) whether the file lacks its content, signed or not."""
    contents = {_content_key(entry) for entry in read_entries(text.encode(), name)} if text.strip() else set()
    return [_content_key(entry) not in contents for entry in read_entries(entries.encode(), name)]


def merge(text: str, entry: str, name: str) -> str:
    """Return the file with this entry in place of the one for the same scores (`subject`), or else appended. An entry
    with the same content keeps its place, and gets the token and form of this one. Another party's signed reproduction
    is never replaced. Raises InputError(`result.repeated`) if several entries are for these scores."""
    new = _demand_one(entry, name)
    entries = read_entries(text.encode(), name) if text.strip() else ()
    if any(_is_same(old, new) for old in entries):
        return put_entry(text, entry, name, reshape=True)
    own = [index for index, old in enumerate(entries) if not _is_another_party_s(old, new)]
    rivals = [index for index in own if subject(entries[index]) == subject(new)]
    if len(rivals) > 1:
        rivals = [index for index in rivals if entries[index].framework.name == new.framework.name] or rivals
    if len(rivals) > 1:
        rule = f"is for the same scores as entry {rivals[0]}: remove one, because only one can be replaced"
        raise open_results(text.encode(), name).error(Code.RESULT_REPEATED, f"/{rivals[1]}", rule)
    return replace(text, rivals[0], entry, name) if rivals else append(text, entry, name)


def subject(entry: Entry) -> tuple[object, ...]:
    """Return a key that is equal for entries of the same scores: dataset id, task id and the slices of the metrics. The
    key of a reproduction also has the reproduced entry and its own framework."""
    slices = {metric.slice or "" for metric in entry.metrics or ()} or {""}
    reproduced = _reproduced(entry)
    reproduction = () if reproduced is None else (reproduced, entry.framework.name)
    return entry.dataset.id, entry.dataset.task_id or "", frozenset(slices), *reproduction


def _reproduced(entry: Entry) -> str | None:
    named = (entry.details.run or {}).get("reproduces")
    return named if isinstance(named, str) else None


def _is_same(old: Entry, new: Entry) -> bool:
    """Say whether the old entry may get the new one's token: same content, and not another party's reproduction."""
    return content_digest(old.form) == content_digest(new.form) and not _is_another_party_s(old, new)


def _is_another_party_s(old: Entry, new: Entry) -> bool:
    """Say whether the old entry is a reproduction that another party had signed. It must remain, as evidence."""
    if _reproduced(old) is None or old.token is None or new.token is None:
        return False
    party = _unverified_party(old.token)
    return party is not None and party != _unverified_party(new.token)


def _unverified_party(token: str) -> tuple[object, object] | None:
    """Return the unverified issuer and integration of a token, or None if the token is malformed."""
    try:
        payload = loads(jose.parse_compact(token).unverified_payload, max_bytes=jose.MAX_TOKEN_BYTES, max_depth=_DEPTH)
    except FormatError:
        return None
    return (payload.get("iss"), payload.get("sub")) if isinstance(payload, dict) else None


def _content_key(entry: Entry) -> tuple[str, object]:
    """Return a key that is equal for entries with the same content. Without metrics, `value` counts."""
    return content_digest(entry.form), entry.value if entry.metrics is None else UNSET


def _shape(entry: Entry) -> tuple[object, ...]:
    """Return the members that differ between the profiles for the same content."""
    return entry.token_members, entry.value


def append(text: str, entry: str, name: str) -> str:
    """Return the file with one entry appended, in the form of `write_entry`."""
    _demand_one(entry, name)
    return extend(text, entry, name)


def extend(text: str, entries: str, name: str) -> str:
    """Return the file with these entries appended, in the form of `write_entry`."""
    if text.strip() == "[]":  # `rewrite` writes this for a file without entries
        text = ""
    after = text + entries
    if text.strip():
        document = open_results(text.encode(), name)
        indent = _column(text, _dash(text, document.span("/0")[0])) if document.value else 0
        joined = text if text.endswith("\n") else text + _line_end(text)
        after = joined + _fitted(entries, indent, text)
    return _checked(text, after, name, lambda before, added: [*before, *added], entries)


def replace(text: str, index: int, entry: str, name: str) -> str:
    """Return the file with this entry in place of the one at `index`, from 0."""
    _demand_one(entry, name)
    document = _demand(text, index, name)
    start, end = document.span(f"/{index}")
    dash = _dash(text, start)
    after = (
        text[: dash - _column(text, dash)] + _fitted(entry, _column(text, dash), text) + text[_line_after(text, end) :]
    )
    return _checked(text, after, name, lambda before, new: [*before[:index], *new, *before[index + 1 :]], entry)


def put_token(text: str, index: int, token: str, name: str) -> str:
    """Return the file with this token in the entry at `index` (from 0), in place of its old one if it has one."""
    document = _demand(text, index, name)
    before = entries_of(document)
    entries: Any = document.value
    spans = [document.span(f"/{index}/{member}") for member in TOKEN_MEMBERS if member in entries[index]]
    after = text
    for start, end in sorted(spans, reverse=True):
        joint = _line_end(text) if text[end - 1] == "\n" else ""  # a block scalar ends with its line
        after = after[:start] + quoted(token) + joint + after[end:]
    if not spans:
        names = TOKEN_MEMBERS if "value" in entries[index] else TOKEN_MEMBERS[:1]  # `value` is for today's readers
        for name_of_token in reversed(names):
            after = _with_member(after, *document.span(f"/{index}"), f"{name_of_token}: {quoted(token)}")
    now = _reread(after, name)
    others = [entry.form for entry in now] == [entry.form for entry in before]
    tokens = [token if place == index else entry.token for place, entry in enumerate(before)]
    if not others or [entry.token for entry in now] != tokens:
        raise _impossible(name)
    return after


def rewrite(text: str, name: str, *, profile: Profile | None = None, primary: str | None = None) -> str:
    """Return the file in canonical form. Entries keep their profile, or, if they have metrics, get the given one.
    Comments and members that the profile lacks are dropped. Raises InputError if a unique `value` would be lost."""
    document = open_results(text.encode(), name)
    written = []
    for entry in entries_of(document):
        if profile is None or entry.metrics is None:
            written.append(entry.rewritten())
            continue
        if _has_other_value(entry):
            rule = "`value` is not the score of any metric of this entry without a slice: it would be lost"
            raise document.error(Code.RESULT_VALUE, f"{entry.pointer}/value", rule)
        try:
            written.append(write_entry(entry.form, entry.token, profile=profile, primary=primary))
        except FormatError as error:
            raise document.locate(error, entry.pointer) from None
    return "".join(written) or "[]\n"


def _has_other_value(entry: Entry) -> bool:
    """Say whether an entry has a `value` that is not the score of any of its metrics without a slice (check 8)."""
    scores = [metric.value for metric in entry.metrics or () if not metric.slice]
    return entry.value is not UNSET and entry.value not in scores


def _demand_one(entry: str, name: str) -> Entry:
    entries = read_entries(entry.encode(), name)
    if len(entries) != 1:
        raise _impossible(name)
    return entries[0]


def _demand(text: str, index: int, name: str) -> Document:
    """Read the file. Raises InputError if it does not have an entry at `index`."""
    document = open_results(text.encode(), name)
    count = len(document.value)  # type: ignore[arg-type]
    if not 0 <= index < count:
        raise InputError(Code.FILE_RULE, f"has no entry {index}: it has {count}, counted from 0", Place(name))
    return document


def _checked(
    before: str, after: str, name: str, expect: Callable[[list[Entry], list[Entry]], list[Entry]], entry: str
) -> str:
    """Return the edited text if its entries are those that `expect` returns for the old and the new entries."""
    old = list(read_entries(before.encode(), name)) if before.strip() else []
    expected = expect(old, list(read_entries(entry.encode(), name)))
    now = _reread(after, name)
    if list(map(_content, now)) != list(map(_content, expected)):
        raise _impossible(name)
    return after


def _reread(after: str, name: str) -> tuple[Entry, ...]:
    try:
        return read_entries(after.encode(), name)
    except InputError:  # its place is in a text that the user never sees
        raise _impossible(name) from None


def _content(entry: Entry) -> tuple[object, ...]:
    return entry.form, entry.token, entry.value


def _impossible(name: str) -> InputError:
    return InputError(Code.FILE_RULE, "has a layout that cannot be edited in place: write a plain list", Place(name))


# -- lines ------------------------------------------------------------------------------------------------------------


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _fitted(entry: str, indent: int, text: str) -> str:
    return "".join(" " * indent + line + _line_end(text) for line in entry.splitlines())


def _column(text: str, index: int) -> int:
    return index - (text.rfind("\n", 0, index) + 1)


def _dash(text: str, start: int) -> int:
    """Return the index of an item's dash. The item's first key is at `start`, on the line of the dash or below it."""
    line = text.rfind("\n", 0, start) + 1
    if (dash := text.rfind("-", line, start)) >= 0:
        return dash
    while line:
        end, line = line - 1, text.rfind("\n", 0, line - 1) + 1
        if _DASH_ALONE.fullmatch(text, line, end):
            return text.index("-", line)
        if not _NO_LINE.fullmatch(text, line, end):
            break
    return start  # an item of a flow list has no dash, and cannot be edited


def _line_after(text: str, end: int) -> int:
    """Return the index of the line after the node that ends at `end`. A block scalar ends at a line's beginning."""
    if text[end - 1] == "\n":  # `end` is never 0
        return end
    return text.find("\n", end) + 1 or len(text)


def _with_member(text: str, start: int, end: int, member: str) -> str:
    if text[start] == "{":
        return f"{text[: start + 1]}{member}, {text[start + 1 :]}"
    place = _line_after(text, end)
    joint = "" if text[place - 1] == "\n" else _line_end(text)
    return f"{text[:place]}{joint}{' ' * _column(text, start)}{member}{_line_end(text)}{text[place:]}"
