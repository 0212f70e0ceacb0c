"""Entries into a result file that is on main."""

from __future__ import annotations

from collections.abc import Sequence

from issuer.client.hub.kinds import FileAt


def merge_entries(before: FileAt | None, path: str, entries: Sequence[str]) -> bytes:
    """Return the file with these entries, each as `IssuedToken.entry` or `client.files.shaped` has it.

    An entry takes the place of the one with the same (dataset id, task id, slices); else it is appended. Comments,
    order and every other entry stay. Raises InputError for a file on main that is no result file.
    """
    raise NotImplementedError
