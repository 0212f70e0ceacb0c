"""What a file or folder looks like from outside: equal looks mean that nothing was written in between.

watchfiles was weighed: the kernel reports nothing that another host writes to NFS.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

# Of one file or folder: path, inode, size, mtime and ctime in nanoseconds.
Seen = tuple[str, int, int, int, int]
Look = frozenset[Seen]


def look(folder: Path, depth: int, without: str = "") -> Look:
    """Look at a folder, `depth` levels deep, but not at the file in it that is named `without`.

    Follows links, as a mounted ConfigMap has them; what cannot be read is noted as such.
    """
    left_out = f"{folder}/{without}"
    return frozenset([found for found in _entries(str(folder), depth) if found[0] != left_out])


def look_at(path: str) -> Seen:
    """Look at one file or folder, which may be absent."""
    return _seen(path)[0]


def _entries(folder: str, depth: int) -> Iterator[Seen]:
    try:
        paths = [entry.path for entry in os.scandir(folder)]
    except OSError as error:
        yield folder, 0, error.errno or 0, 0, 0
        return
    for path in paths:
        seen, mode = _seen(path)
        yield seen
        if depth > 1 and stat.S_ISDIR(mode):
            yield from _entries(path, depth - 1)


def _seen(path: str) -> tuple[Seen, int]:
    """Return how a path looks, and its mode; 0 where it cannot be looked at."""
    try:
        found = os.stat(path)
    except OSError as error:
        return (path, 0, error.errno or 0, 0, 0), 0
    return (path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns), found.st_mode
