"""Paths and contents of the static files of a log's tree, tiles and entry bundles (c2sp.org/tlog-tiles). Pure.

A tile of level L has up to 256 hashes, of subtrees of 256^L leaves; an entry bundle has the leaves under a tile of
level 0. The file at a path never changes. This code does not know where files are kept, or which sizes were signed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import Literal, TypeAlias

from msgspec import Struct

from issuer.tlog.checkpoint import MAX_SIZE, malformed
from issuer.tlog.merkle import HASH_BYTES, Node, Peaks

HEIGHT = 8
WIDTH = 256
MAX_LEVEL = 63
MAX_ENTRY_BYTES = 2**16 - 1

_CACHED_TILES = 64
_PATH = re.compile(
    r"tile/(?P<level>entries|[0-9]{1,2})/(?P<index>(?:x[0-9]{3}/){0,6}[0-9]{3})(?:\.p/(?P<width>[0-9]{1,3}))?"
)

Level: TypeAlias = int | Literal["entries"]
# (level, index, width) -> the bytes of a tile: `width` hashes.
ReadTile: TypeAlias = Callable[[int, int, int], bytes]
# (tile level, index, hash): at level 0 a leaf hash, at level L the root of a complete subtree of 256^L leaves.
TileHash: TypeAlias = tuple[int, int, bytes]


class TilePath(Struct, frozen=True):
    """A tile or an entry bundle: the first `width` items of the index-th group of 256 items of its level."""

    level: Level
    index: int
    width: int = WIDTH

    def __str__(self) -> str:
        """Return the path under the log's prefix, such as `tile/0/x001/x234/067.p/8`."""
        groups = f"{self.index % 1000:03}"
        rest = self.index // 1000
        while rest:
            groups = f"x{rest % 1000:03}/{groups}"
            rest //= 1000
        partial = "" if self.width == WIDTH else f".p/{self.width}"
        return f"tile/{self.level}/{groups}{partial}"


def tile_path(level: Level, index: int, width: int = WIDTH) -> str:
    """Return the path of a tile or an entry bundle under the log's prefix."""
    return str(TilePath(level, index, width))


def parse_tile_path(text: str) -> TilePath | None:
    """Read a path; return None unless it is the canonical path of a tile or an entry bundle."""
    found = _PATH.fullmatch(text)
    if found is None:
        return None
    level: Level = "entries" if found["level"] == "entries" else int(found["level"])
    path = TilePath(level, int(re.sub("[x/]", "", found["index"])), int(found["width"] or WIDTH))
    possible = (level == "entries" or level <= MAX_LEVEL) and 0 < path.width <= WIDTH and path.index < MAX_SIZE // WIDTH
    return path if possible and str(path) == text else None


def hashes_at(level: Level, size: int) -> int:
    """Return the number of items that a level of tiles has in a tree of `size` leaves."""
    return size if level == "entries" else size >> (HEIGHT * level)


# -- the files of a tree ----------------------------------------------------------------------------------------------


def tiles_between(size1: int, size2: int) -> Iterator[TilePath]:
    """Yield the files that a tree gains from `size1` to `size2` leaves: entry bundles, then tiles, level by level.
    A file that was partial at `size1` is yielded again, wider. Partial files of sizes in between are not yielded."""
    yield from _grown("entries", size1, size2)
    for level in count():
        if not hashes_at(level, size2):
            return
        yield from _grown(level, hashes_at(level, size1), hashes_at(level, size2))


def _grown(level: Level, before: int, after: int) -> Iterator[TilePath]:
    for index in range(before // WIDTH, after // WIDTH):
        yield TilePath(level, index)
    if after > before and after % WIDTH:
        yield TilePath(level, after // WIDTH, after % WIDTH)


def extend(
    peaks: Peaks, leaves: Sequence[bytes], completed: Callable[[int, int, bytes], object] = lambda *_: None
) -> tuple[Peaks, list[TileHash]]:
    """Return the peaks with more leaf hashes, and every hash that the tiles gain, the leaf hashes first.
    `completed` is called with level, index and hash of each node above the leaves that becomes complete."""
    gained: list[TileHash] = [(0, peaks.size + number, leaf) for number, leaf in enumerate(leaves)]

    def gain(level: int, index: int, hashed: bytes) -> None:
        completed(level, index, hashed)
        if level % HEIGHT == 0:
            gained.append((level // HEIGHT, index, hashed))

    return peaks.extend(leaves, gain), gained


# -- entry bundles ----------------------------------------------------------------------------------------------------


def write_entries(leaves: Iterable[bytes]) -> bytes:
    """Return an entry bundle: each leaf after its length in two bytes, big-endian. Raises FormatError if a leaf is too
    long."""
    return b"".join(_length_prefix(leaf) + leaf for leaf in leaves)


def _length_prefix(leaf: bytes) -> bytes:
    if len(leaf) > MAX_ENTRY_BYTES:
        raise malformed(f"a leaf of {len(leaf)} bytes: a bundle allows {MAX_ENTRY_BYTES}")
    return len(leaf).to_bytes(2, "big")


def read_entries(raw: bytes) -> tuple[bytes, ...]:
    """Read an entry bundle: 1 to 256 leaves. The caller must check the number. Raises FormatError(`log.malformed`)."""
    entries: list[bytes] = []
    at = 0
    while at < len(raw):
        end = at + 2 + int.from_bytes(raw[at : at + 2], "big")
        if end > len(raw):
            raise malformed(f"an entry bundle ends within its leaf {len(entries)}")
        entries.append(raw[at + 2 : end])
        at = end
    if not 0 < len(entries) <= WIDTH:
        raise malformed(f"an entry bundle of {len(entries)} leaves: it must have 1 to {WIDTH}")
    return tuple(entries)


# -- proofs from tiles ------------------------------------------------------------------------------------------------


def node_of_tiles(read: ReadTile, size: int) -> Node:
    """Return the nodes of the tree of `size` leaves, read from its tiles; the most recently used tiles are cached.
    `read` is called for the widest tile that the size has. The caller checks the resulting proof against a root, which
    shows wrong tiles. Raises FormatError(`log.malformed`) if a tile has another width, and the errors of `read`."""

    @lru_cache(_CACHED_TILES)
    def rows(level: int, tile: int) -> tuple[bytes, ...]:
        width = min(WIDTH, hashes_at(level, size) - tile * WIDTH)
        raw = read(level, tile, width)
        if len(raw) != width * HASH_BYTES:
            raise malformed(f"{tile_path(level, tile, width)} has {len(raw)} bytes: it must have {width} hashes")
        return tuple(_rows(raw))

    def node(level: int, index: int) -> bytes:
        tile_level, height = divmod(level, HEIGHT)
        per_tile = WIDTH >> height
        row = rows(tile_level, index // per_tile)[height]
        begin = index % per_tile * HASH_BYTES
        return row[begin : begin + HASH_BYTES]

    return node


def _rows(row: bytes) -> Iterator[bytes]:
    """Yield the hashes of a tile, then the rows of hashes above them: 8 rows, without the root of a full tile."""
    for _ in range(HEIGHT):
        yield row
        pairs = range(0, len(row) - 2 * HASH_BYTES + 1, 2 * HASH_BYTES)
        row = b"".join(hashlib.sha256(b"\x01" + row[at : at + 2 * HASH_BYTES]).digest() for at in pairs)
