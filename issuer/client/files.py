"""Writing result files: an issued entry goes to the end of its file, and nothing else in it changes."""

from __future__ import annotations

import os
from pathlib import Path

from issuer.client.http import unreadable
from issuer.errors import Code, InputError, Place
from issuer.results.entry import read_entries


def append_entry(path: Path, entry: str) -> None:
    """Append an issued entry to a result file, or make the file with it.

    What stands there must be readable as a result file, and still be, with one entry more, before it is written; the
    new file replaces the old one in one step. Raises InputError.
    """
    try:
        # Bytes, not read_text: that one would turn every CRLF of the file into LF.
        before = path.read_bytes().decode() if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(str(path), str(error)) from None
    count = len(read_entries(before.encode(), str(path))) if before.strip() else 0
    after = (before if not before or before.endswith("\n") else before + "\n") + entry
    if len(read_entries(after.encode(), str(path))) != count + 1:
        raise InputError(Code.FILE_RULE, "the entry cannot be appended to this file as it is written", Place(str(path)))
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(after.encode())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
