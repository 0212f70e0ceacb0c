"""How the tree grows by a batch, and what its database must show before a head is believed. No statement, no lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from issuer.service.log.store import Head, Reader
from issuer.tlog.merkle import (
    EMPTY_ROOT,
    Node,
    Peaks,
    consistency_proof,
    peaks_of,
    verify_consistency,
)
from issuer.tlog.tiles import extend, node_of_tiles


def empty_head(origin: str) -> Head:
    """Return the head of the empty tree."""
    return Head(origin, EMPTY_ROOT, Peaks())


class Growth:
    """A tree, and the leaf hashes of one batch behind it: `head` is that of both, `gained` what the tiles gain.

    Keeps every node that a proof of one of these leaves needs, so that it costs no look into the database: the peaks of
    the tree before, and what has become complete since. What is complete to the left of a new leaf, and part of nothing
    larger that is complete without it, is one of these peaks.
    """

    def __init__(self, before: Head, leaves: Sequence[bytes]) -> None:
        self._nodes = dict(zip(_places_of_peaks(before.size), before.peaks.hashes, strict=True))
        self._nodes |= {(0, index): leaf for index, leaf in enumerate(leaves, before.size)}
        peaks, self.gained = extend(before.peaks, leaves, self._keep)
        self.head = Head(before.origin, peaks.root, peaks)

    def node_or(self, other: Node) -> Node:
        """Return the nodes of both, where the others come from `other`."""
        return lambda level, index: self._nodes.get((level, index)) or other(level, index)

    def _keep(self, level: int, index: int, hashed: bytes) -> None:
        self._nodes[level, index] = hashed


def node_of(reader: Reader, size: int) -> Node:
    """Return the nodes of a committed tree out of the database. Each call of it may raise StoreFailed."""
    return node_of_tiles(reader.tile, size)


def is_whole(reader: Reader, head: Head) -> bool:
    """Say whether the database's hashes lead to the peaks and to the root of its head. May raise StoreFailed."""
    return peaks_of(head.size, node_of(reader, head.size)) == head.peaks and head.peaks.root == head.root


def grew_from(reader: Reader, head: Head, size: int, root: bytes) -> bool:
    """Say whether a tree of this size and root is a prefix of the head's, recomputed from the database's hashes.

    May raise StoreFailed.
    """
    if size == 0 or size >= head.size:
        return (size, root) in {(0, EMPTY_ROOT), (head.size, head.root)}
    proof = consistency_proof(size, head.size, node_of(reader, head.size))
    return head.peaks.root == head.root and verify_consistency(size, head.size, root, head.root, proof)


def _places_of_peaks(size: int) -> Iterator[tuple[int, int]]:
    """Return level and index of each peak, from left to right: one for each bit that is set."""
    for level in reversed(range(size.bit_length())):
        if size >> level & 1:
            yield level, (size >> level) - 1
