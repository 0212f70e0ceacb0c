"""Writing result files: one entry is appended or gets its token, and nothing else in the file changes."""

from __future__ import annotations

import os
from pathlib import Path

from issuer.http_client import unreadable
from issuer.results import edit


def put_entry(path: Path, entry: str) -> None:
    """Put an issued entry into a result file, or make the file with it.

    An entry that says the same and has no token gets this one's; where there is none, the entry is appended. What
    stands there must be readable as a result file, and still be, before it is written; the new file replaces the old
    one in one step. Raises InputError.
    """
    try:
        # Bytes, not read_text: that one would turn every CRLF of the file into LF.
        before = path.read_bytes().decode() if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(str(path), str(error)) from None
    write_text(path, edit.put_entry(before, entry, str(path)))


def write_text(path: Path, after: str) -> None:
    """Replace a file in one step, or make it with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(after.encode())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
