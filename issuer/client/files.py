"""Writes result files: an entry is appended or gets its token, and nothing else in the file changes."""

from __future__ import annotations

from pathlib import Path

from issuer import files
from issuer.formats.strict_yaml import MAX_BYTES
from issuer.results import edit


def put_entry(path: Path, entry: str) -> None:
    """Put an issued entry into a result file, or make the file with it.

    An entry that says the same and has no token gets the token of this one; otherwise the entry is appended. The file
    must be readable as a result file, before and after; it is replaced in one step. Raises InputError, and OSError
    where it cannot be written.
    """
    try:
        # Bytes, not text: reading text turns every CRLF of the file into LF.
        before = files.read(path, MAX_BYTES).decode() if path.exists() else ""
    except UnicodeDecodeError as error:
        raise files.unreadable(path, str(error)) from None
    write_text(path, edit.put_entry(before, entry, str(path)))


def write_text(path: Path, after: str) -> None:
    """Replace a file in one step, or make it with its folders.

    Raises OSError, also where the file or a folder of its path is a symbolic link: a checkout is somebody else's.
    """
    files.make_folder(path.parent, mode=0o777, follow=False)
    files.replace(path, after.encode(), mode=None, durable=True, follow=False)
