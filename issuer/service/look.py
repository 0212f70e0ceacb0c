"""What a file or folder looks like from outside: equal looks mean that nothing was written in between.

watchfiles was weighed: the kernel reports nothing that another host writes to NFS.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

# Of one file or folder: inode, size, mtime and ctime in nanoseconds.
Seen = tuple[int, int, int, int]
# By path.
Look = Mapping[str, Seen]


def look(folder: Path, depth: int, without: str = "") -> Look:
    """Look at a folder, `depth` levels deep, but not at the file in it that is named `without`.

    Follows links, as a mounted ConfigMap has them; what cannot be read is noted as such.
    """
    return {path: look_at(path) for path in paths(folder, depth, without)}


def look_at(path: str) -> Seen:
    """Look at one file or folder, which may be absent."""
    try:
        found = os.stat(path)
    except OSError as error:
        return 0, error.errno or 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def paths(folder: Path, depth: int, without: str = "") -> frozenset[str]:
    """Return what `look` looks at: an eighth of its work."""
    return frozenset(_paths(str(folder), depth)) - {f"{folder}/{without}"}


def _paths(folder: str, depth: int) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        yield folder
        return
    for entry in entries:
        yield entry.path
        if depth > 1 and _is_folder(entry):
            yield from _paths(entry.path, depth - 1)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads nowhere, or to itself
        return False
