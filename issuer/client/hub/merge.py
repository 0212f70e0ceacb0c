"""Entries into a result file that is on main. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from issuer.client.hub.kinds import FileAt
from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.results import edit
from issuer.results.entry import read_entries


def merge_entries(before: FileAt | None, path: str, entries: Sequence[str]) -> bytes:
    """Return the file with these entries, each as `IssuedToken.entry` or `client.files.shaped` has it.

    An entry takes the place of the one with the same (dataset id, task id, slices); else it is appended. Comments,
    order and every other entry stay. Raises InputError: for a file on main that is no result file, in which several
    entries have its place, and `result.repeated` for two of `entries` with one place.
    """
    name = path if before is None else before.name
    text = "" if before is None else before.text
    there = {edit.subject(entry) for entry in read_entries(text.encode(), name)} if text.strip() else set()
    places: set[tuple[object, ...]] = set()
    new = []
    for entry in entries:
        subject = edit.subject(*read_entries(entry.encode(), path))
        if subject in places:
            said = f"two results are for {subject[0]}, task {subject[1]}, and the same slices: propose one of them"
            raise InputError(Code.RESULT_REPEATED, said, Place(path))
        places.add(subject)
        if subject in there:
            text = edit.merge(text, entry, name)
        else:  # all of them in one step: each step reads the file anew
            new.append(entry)
    return (edit.extend(text, "".join(new), name) if new else text).encode()
