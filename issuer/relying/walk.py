"""The result files below a folder: `DIR/OWNER/NAME/.eval_results/*.yaml`, in the order of their names.

Below DIR no symbolic link is followed and only plain files are opened: a repository is somebody else's, and could lead
anywhere. What cannot be read is found too, with the reason.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterator
from pathlib import Path

from msgspec import Struct

from issuer.files import A_LINK
from issuer.relying.verifier import FOLDER


class Found(Struct, frozen=True, array_like=True):
    """A result file, or the reason (`fault`) why it cannot be read. `fraction` is how much of the walk is done."""

    fraction: float
    file: str
    repo: str
    size: int = 0
    fault: str = ""


def walk(root: Path) -> Iterator[Found]:
    """Find the result files below `root`. Holds the names of one folder at a time, and opens no file."""
    owners = yield from _walk_folders(str(root), "", 0.0)
    for number, owner in enumerate(owners):
        done, share = number / len(owners), 1 / len(owners)
        names = yield from _walk_folders(f"{root}/{owner}", owner, done)
        for count, name in enumerate(names, 1):
            yield from _walk_files(f"{root}/{owner}/{name}", f"{owner}/{name}", done + share * count / len(names))


def _walk_folders(folder: str, repo: str, fraction: float) -> Generator[Found, None, list[str]]:
    """Yield what cannot be read in a folder; return the names of the folders in it."""
    names = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    names.append(entry.name)
                elif entry.is_symlink() and not _is_file(entry):
                    yield _make_fault(fraction, entry.path, repo, A_LINK)
    except OSError as error:
        yield _make_fault(fraction, folder, repo, str(error.strerror))
    return sorted(names)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a loop of links
        return False


def _walk_files(folder: str, repo: str, fraction: float) -> Iterator[Found]:
    inner = f"{folder}/{FOLDER}"
    try:
        if stat.S_ISLNK(os.lstat(inner).st_mode):
            yield _make_fault(fraction, inner, repo, A_LINK)
            return
        with os.scandir(inner) as entries:
            named = sorted((entry.name, entry) for entry in entries if entry.name.endswith(".yaml"))
        for _, entry in named:
            if entry.path.isascii() or _is_text(entry.path):
                yield Found(fraction, entry.path, repo, _size_of(entry))
            else:
                yield _make_fault(fraction, entry.path, repo, "its name is not UTF-8")
    except FileNotFoundError:
        return
    except OSError as error:
        yield _make_fault(fraction, inner, repo, str(error.strerror))


def _size_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:  # it has just gone: its reader will say so
        return 0


def _make_fault(fraction: float, path: str, repo: str, reason: str) -> Found:
    spelled, owner = (text.encode("utf-8", "backslashreplace").decode() for text in (path, repo))
    return Found(fraction, spelled, owner, fault=reason)


def _is_text(path: str) -> bool:
    """Say whether a name is text: bytes that are not UTF-8 become surrogates, which a report cannot contain."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
