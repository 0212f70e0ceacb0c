"""An editor for result files, from text to text. Pure.

It appends or replaces one entry, or puts a token into it, at the places of the file's nodes. Other entries, comments,
order and line ends remain: it reads the new text again to check this. It raises only InputError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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
_Splice = tuple[int, int, str]  # the begin and end of a span of the text, and the text in its place
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
            _demand_own_value(open_results(text.encode(), name), shaped[0])
            return put_token(text, index, token, name)
    return append(text, entry, name)


def lacks(text: str, entries: str, name: str) -> list[bool]:
    """Return for each entry (in the form of `write_entry`) whether the file lacks its content, signed or not."""
    contents = {_content_key(entry) for entry in read_entries(text.encode(), name)} if text.strip() else set()
    return [_content_key(entry) not in contents for entry in read_entries(entries.encode(), name)]


def merge(text: str, entries: Sequence[str], name: str) -> str:
    """Return the file with each of these entries in place of the one for the same scores (`subject`) that the same
    integration had signed, or else appended: every other entry may be another party's result, and stays. An entry with
    the same content keeps its place, and gets the token and form of the new one. Raises InputError(`result.repeated`)
    if several of the integration's entries, or several of `entries`, are for the same scores. The file is read twice,
    whatever the number of entries."""
    document = open_results(text.encode(), name) if text.strip() else None
    old = entries_of(document) if document else ()
    places: dict[tuple[object, ...], list[int]] = {}
    for index, entry in enumerate(old):
        places.setdefault(subject(entry), []).append(index)
    renewed, changed, added = dict[int, str](), dict[int, str](), list[str]()
    expected, subjects = list(map(_content, old)), set[tuple[object, ...]]()
    for written in entries:
        new = _demand_one(written, name)
        if (key := subject(new)) in subjects:
            scores = f"{key[0]}, task {key[1]}, and the same slices and framework"
            rule = f"two results are for {scores}: propose one of them"
            raise InputError(Code.RESULT_REPEATED, rule, Place(name))
        subjects.add(key)
        rivals = places.get(key, [])
        same = [index for index in rivals if _is_same(old[index], new)]
        if document is None or not (same or (own := _own(document, old, rivals, new))):
            added.append(written)
            expected.append(_content(new))
            continue
        shaped = [index for index in same if _shape(old[index]) == _shape(new)]
        if same and (new.token is None or any(old[index].token == new.token for index in shaped)):
            continue
        index = (shaped or same or own)[0]
        if shaped and new.token is not None:
            _demand_own_value(document, old[index])
            renewed[index] = new.token
            expected[index] = old[index].form, new.token, old[index].value
        else:
            changed[index] = written
            expected[index] = _content(new)
    text = _terminated(text) if added else text
    splices = list[_Splice]()
    if document is not None:
        splices += [_entry_splice(text, document, index, written) for index, written in changed.items()]
        splices += [each for index, token in renewed.items() for each in _token_splices(text, document, index, token)]
    if added:
        splices.append(_end_splice(text, document, "".join(added)))
    return _checked(_spliced(text, splices), name, expected) if splices else text


def _own(document: Document, old: Sequence[Entry], rivals: Sequence[int], new: Entry) -> list[int]:
    """Return the entry that the integration of the new one had signed, if any, of those for the same scores."""
    party = unverified_party(new)
    own = [index for index in rivals if party is not None and unverified_party(old[index]) == party]
    if len(own) > 1:
        rule = f"is for the same scores as entry {own[0]}: remove one, because only one can be replaced"
        raise document.error(Code.RESULT_REPEATED, f"/{own[1]}", rule)
    return own


def replaced(before: str, after: str, name: str) -> tuple[Entry, ...]:
    """Return the entries of a file whose content the edited file lacks."""
    kept = {content_digest(entry.form) for entry in read_entries(after.encode(), name)}
    entries = read_entries(before.encode(), name) if before.strip() else ()
    return tuple(entry for entry in entries if content_digest(entry.form) not in kept)


def subject(entry: Entry) -> tuple[object, ...]:
    """Return a key that is equal for entries of the same scores: dataset id, task id, the slices of the metrics, the
    framework, and the content digest of the reproduced entry, if any."""
    slices = frozenset(metric.slice or "" for metric in entry.metrics or ()) or frozenset({""})
    named = (entry.details.run or {}).get("reproduces")
    reproduced = named if isinstance(named, str) else None
    return entry.dataset.id, entry.dataset.task_id or "", slices, entry.framework.name, reproduced


def _is_same(old: Entry, new: Entry) -> bool:
    """Say whether the old entry may get the new one's token: same content, and not signed by another party."""
    if content_digest(old.form) != content_digest(new.form):
        return False
    parties = unverified_party(old), unverified_party(new)
    return None in parties or parties[0] == parties[1]


def unverified_party(entry: Entry) -> tuple[object, object] | None:
    """Return the unverified issuer and integration that signed an entry, or None without a well-formed token."""
    token = entry.token
    if token is None:
        return None
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
    document = open_results(text.encode(), name) if text.strip() else None
    before = entries_of(document) if document else ()
    text = _terminated(text)
    after = _spliced(text, [_end_splice(text, document, entries)])
    return _checked(after, name, map(_content, [*before, *read_entries(entries.encode(), name)]))


def replace(text: str, index: int, entry: str, name: str) -> str:
    """Return the file with this entry in place of the one at `index`, from 0."""
    new, document = _demand_one(entry, name), _demand(text, index, name)
    expected = list(map(_content, entries_of(document)))
    expected[index] = _content(new)
    return _checked(_spliced(text, [_entry_splice(text, document, index, entry)]), name, expected)


def put_token(text: str, index: int, token: str, name: str) -> str:
    """Return the file with this token in the entry at `index` (from 0), in place of its old one if it has one."""
    document = _demand(text, index, name)
    before = entries_of(document)
    after = _spliced(text, _token_splices(text, document, index, token))
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


def _demand_own_value(document: Document, entry: Entry) -> None:
    if _has_other_value(entry):
        rule = "this entry has a `value` that none of its metrics has, so it would not verify with any token"
        raise document.error(Code.RESULT_VALUE, f"{entry.pointer}/value", rule)


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


def _checked(after: str, name: str, expected: Iterable[tuple[object, ...]]) -> str:
    """Return the edited text if its entries have the expected content."""
    if list(map(_content, _reread(after, name))) != list(expected):
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


def _terminated(text: str) -> str:
    """Return a text that is not empty with its last line end."""
    return text if text.endswith("\n") or not text.strip() else text + _line_end(text)


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


def _entry_splice(text: str, document: Document, index: int, entry: str) -> _Splice:
    start, end = document.span(f"/{index}")
    dash = _dash(text, start)
    column = _column(text, dash)
    return dash - column, _line_after(text, end), _fitted(entry, column, text)


def _token_splices(text: str, document: Document, index: int, token: str) -> list[_Splice]:
    entries: Any = document.value
    spans = [document.span(f"/{index}/{member}") for member in TOKEN_MEMBERS if member in entries[index]]
    if not spans:
        names = TOKEN_MEMBERS if "value" in entries[index] else TOKEN_MEMBERS[:1]  # `value` is for today's readers
        members = [f"{name}: {quoted(token)}" for name in names]
        return [_members_splice(text, *document.span(f"/{index}"), members)]
    # A block scalar ends with its line.
    return [(start, end, quoted(token) + (_line_end(text) if text[end - 1] == "\n" else "")) for start, end in spans]


def _members_splice(text: str, start: int, end: int, members: Sequence[str]) -> _Splice:
    if text[start] == "{":
        return start + 1, start + 1, "".join(f"{member}, " for member in members)
    place = _line_after(text, end)
    joint = "" if text[place - 1] == "\n" else _line_end(text)
    lines = (f"{' ' * _column(text, start)}{member}{_line_end(text)}" for member in members)
    return place, place, joint + "".join(lines)


def _end_splice(text: str, document: Document | None, entries: str) -> _Splice:
    """Return the splice that appends entries to a text with its last line end."""
    if document is None:
        return len(text), len(text), entries
    if text.strip() == "[]":  # `rewrite` writes this for a file without entries
        return 0, len(text), entries
    indent = _column(text, _dash(text, document.span("/0")[0])) if document.value else 0
    return len(text), len(text), _fitted(entries, indent, text)


def _spliced(text: str, splices: Iterable[_Splice]) -> str:
    """Return the text with each span replaced."""
    parts, at = list[str](), 0
    for start, end, new in sorted(splices, key=lambda splice: splice[:2]):  # stable: the end is last
        parts += text[at:start], new
        at = end
    return "".join(parts) + text[at:]
