"""Writes result files: an entry is appended or gets its token, and nothing else in the file changes.

An entry is written in the target form, or in the profile `both`, which today's readers take, too.
"""

from __future__ import annotations

import os
from pathlib import Path

from issuer import files
from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.formats.strict_yaml import MAX_BYTES
from issuer.results import edit
from issuer.results.entry import Profile, Submission, read_entries, result_file_name

STAND_IN = f"a.b.{'c' * 2000}"  # of the size of a token
_LOCK_S = 30.0  # jobs of one matrix write one file in turn, each in milliseconds


def demand_place(path: Path, benchmark_repo: object) -> None:
    """Raise, before any work is done for it, what `put_entry` would raise for the file as it is; and InputError for a
    place in which no result of this benchmark is ever verified (check 6), where the benchmark is a text at all."""
    if isinstance(benchmark_repo, str):
        place = Path(result_file_name(benchmark_repo))
        if Path(os.path.abspath(path)).parts[-2:] != place.parts:
            rule = f"results of {benchmark_repo} are verified in {place} of a repository only: name it so"
            raise InputError(Code.RESULT_FILE_NAME, rule, Place(str(path)))
    files.demand_replaceable(path, follow=False)
    if before := _read(path):
        read_entries(before.encode(), str(path))


def shaped(entry: str, profile: Profile | None, primary: str | None) -> str:
    """Return an issued entry as it is written in a profile that has tokens; `primary` is the benchmark's metric.

    None is the form in which it was issued, `target`. Raises InputError where `both` lacks the primary metric's score.
    """
    return entry if profile is None else edit.rewrite(entry, "the entry", profile=profile, primary=primary)


def put_entry(
    path: Path, entry: str, *, append: bool = False, profile: Profile | None = None, primary: str | None = None
) -> bool:
    """Put an issued entry into a result file, or make the file with it; return whether that changed the file.

    An entry of the file that says the same gets the token of this one, and keeps its form unless a `profile` is given;
    otherwise, or with `append`, the entry is appended, in the target form or that of the profile. For `both`, `primary`
    is the benchmark's primary metric. The file must be readable as a result file, before and after; it is replaced in
    one step, by one process after the other. Raises InputError, and OSError where it cannot be written.
    """
    entry = shaped(entry, profile, primary)
    files.make_folder(path.parent, mode=0o777, follow=False)
    with files.folder_locked(path.parent, wait_s=_LOCK_S):
        before, after = _edited(path, entry, append=append, reshape=profile is not None)
        if after != before:
            write_text(path, after)
    return after != before


def rehearse_entry(
    path: Path | None, said: Submission, *, append: bool = False, profile: Profile | None = None, primary: str | None
) -> None:
    """Raise, before a token is spent on it, the InputError of `put_entry` for the entry of this result."""
    entry = shaped(said.entry(STAND_IN), profile, primary)
    if path is not None:
        _edited(path, entry, append=append, reshape=profile is not None)


def _edited(path: Path, entry: str, *, append: bool, reshape: bool) -> tuple[str, str]:
    """Return the file's text before and after."""
    before = _read(path)
    if append:
        return before, edit.append(before, entry, str(path))
    return before, edit.put_entry(before, entry, str(path), reshape=reshape)


def _read(path: Path) -> str:
    try:
        # Bytes, not text: reading text turns every CRLF of the file into LF.
        return files.read(path, MAX_BYTES, follow=False).decode() if path.exists() else ""
    except UnicodeDecodeError as error:
        raise files.unreadable(path, str(error)) from None


def write_text(path: Path, after: str) -> None:
    """Replace a file in one step, or make it with its folders.

    Raises OSError, also where the file or a folder of its path is a symbolic link: a checkout is somebody else's.
    """
    files.make_folder(path.parent, mode=0o777, follow=False)
    files.replace(path, after.encode(), mode=None, durable=True, follow=False)
