"""A log's tree, read from public files of which none is believed: what is not under the signed root is refused.

From the top (c2sp.org/tlog-tiles): the partial tiles at the right edge make the root; each hash in a tile is the root
of the full tile below it; the hashes of a bundle's entries are a tile of level 0. So a wrong byte is found where it is,
before anything is made of it, and reading everything rebuilds the tree from its entries. Holds one tile a level.
"""

from __future__ import annotations

from collections.abc import Iterator

from issuer.relying.log_files import LogFiles, read_bundle, read_tile, unverified
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.merkle import HASH_BYTES, Peaks, inclusion_proof, leaf_hash, peaks_of
from issuer.tlog.merkle import root as root_of
from issuer.tlog.tiles import WIDTH, hashes_at, node_of_tiles, tile_path


class Tree:
    """The tree under a checkpoint whose signatures have been verified.

    Everything that it returns is under the checkpoint's root. Raises VerificationError(`log.unverified`) where a file
    is missing or another one, Undecided where it cannot be had.
    """

    def __init__(self, log: LogFiles, checkpoint: Checkpoint) -> None:
        self.size, self.root = checkpoint.size, checkpoint.root
        self._log = log
        self._held: dict[int, tuple[int, bytes]] = {}  # by level, the last full tile
        self._edge: dict[int, bytes] = {}  # by level, the partial tile
        self._node = node_of_tiles(self._tile, self.size)
        if peaks_of(self.size, node_of_tiles(self._fetch_edge, self.size)).root != self.root:
            raise unverified(f"the last tiles are not those of a tree of {self.size} leaves with the checkpoint's root")

    def tile(self, level: int, index: int) -> bytes:
        """Return a tile, as wide as the tree has it."""
        return self._tile(level, index, min(WIDTH, hashes_at(level, self.size) - index * WIDTH))

    def bundle(self, index: int) -> tuple[bytes, ...]:
        """Return the leaves under a tile of level 0."""
        tile = self.tile(0, index)
        leaves = read_bundle(self._log, index, len(tile) // HASH_BYTES)
        for number, leaf in enumerate(leaves):
            if leaf_hash(leaf) != _hash(tile, number):
                raise unverified(f"leaf {index * WIDTH + number} is not the one that was hashed into the tree")
        return leaves

    def leaves(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """Return index and bytes of every leaf from `start` on.

        At the end, the tree that they make on top of the leaves before them is once more compared with the root.
        """
        peaks = self.peaks(start)
        for index in range(start // WIDTH, -(-self.size // WIDTH)):
            leaves = self.bundle(index)[max(0, start - index * WIDTH) :]
            yield from enumerate(leaves, peaks.size)
            peaks = peaks.extend(map(leaf_hash, leaves))
        if (peaks.size, peaks.root) != (self.size, self.root):
            raise unverified("the leaves do not make the root of the checkpoint")

    def peaks(self, size: int) -> Peaks:
        """Return the peaks of the first `size` leaves; by their root an older tree is known to be a prefix, or not."""
        return peaks_of(size, self._node)

    def prove(self, index: int) -> tuple[bytes, ...]:
        """Return the inclusion proof of a leaf of this tree."""
        return inclusion_proof(index, self.size, self._node)

    def _tile(self, level: int, index: int, width: int) -> bytes:
        if width < WIDTH:
            return self._edge[level]
        held = self._held.get(level)
        if held is not None and held[0] == index:
            return held[1]
        raw = read_tile(self._log, level, index, width)
        if root_of(_split(raw)) != _hash(self.tile(level + 1, index // WIDTH), index % WIDTH):
            raise unverified(f"{tile_path(level, index)} is not the one whose hash is in the tile above it")
        self._held[level] = index, raw
        return raw

    def _fetch_edge(self, level: int, index: int, width: int) -> bytes:
        self._edge[level] = read_tile(self._log, level, index, width)
        return self._edge[level]


def _hash(tile: bytes, number: int) -> bytes:
    return tile[number * HASH_BYTES : (number + 1) * HASH_BYTES]


def _split(tile: bytes) -> Iterator[bytes]:
    return (tile[at : at + HASH_BYTES] for at in range(0, len(tile), HASH_BYTES))
