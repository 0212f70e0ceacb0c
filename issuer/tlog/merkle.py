"""Merkle trees of RFC 6962 section 2.1: hashing, and the verification of inclusion and consistency proofs. Pure.

The verification algorithms are those of RFC 9162 (2.1.3.2 and 2.1.4.2), step by step. Hashes are 32 raw bytes. Does not
know what a leaf contains, or who signed a root.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()


def leaf_hash(data: bytes) -> bytes:
    """Hash one leaf. The prefix keeps a leaf from being taken for a node: that would be a second preimage."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash two subtrees into the one above them."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def root(leaves: Iterable[bytes]) -> bytes:
    """Return the tree head of these leaf hashes, in their order."""
    last = EMPTY_ROOT
    for last in roots(leaves):  # noqa: B007  (the last one is the answer)
        pass
    return last


def roots(leaves: Iterable[bytes]) -> Iterator[bytes]:
    """Return the tree head after each leaf hash: of the first one, of the first two, and so on."""
    peaks: list[tuple[int, bytes]] = []  # complete subtrees from left to right, with their number of leaves
    for leaf in leaves:
        size, hashed = 1, leaf
        while peaks and peaks[-1][0] == size:
            hashed = node_hash(peaks.pop()[1], hashed)
            size *= 2
        peaks.append((size, hashed))
        head = hashed
        for _, left in reversed(peaks[:-1]):
            head = node_hash(left, head)
        yield head


def verify_inclusion(index: int, size: int, leaf: bytes, proof: Sequence[bytes], head: bytes) -> bool:
    """Say whether the proof shows the leaf hash at `index` (from 0) of the tree of `size` leaves under `head`."""
    # (1) the index is in the tree
    if not 0 <= index < size or not _are_hashes(leaf, head, *proof):
        return False
    # (2), (3)
    first, last, hashed = index, size - 1, leaf
    # (4) climb, with the proof's hash on the side where the sibling is
    for sibling in proof:
        if last == 0:
            return False
        if first & 1 or first == last:
            hashed = node_hash(sibling, hashed)
            while not first & 1 and first:
                first, last = first >> 1, last >> 1
        else:
            hashed = node_hash(hashed, sibling)
        first, last = first >> 1, last >> 1
    # (5)
    return last == 0 and hashed == head


def verify_consistency(size1: int, size2: int, head1: bytes, head2: bytes, proof: Sequence[bytes]) -> bool:
    """Say whether the proof shows that the tree of `size1` leaves is a prefix of that of `size2` leaves.

    A tree is a prefix of itself by the empty proof. About the empty tree nothing can be shown: False (RFC 9162 2.1.4).
    """
    if not 0 < size1 <= size2:
        return False
    if size1 == size2:
        return not proof and head1 == head2
    if not _are_hashes(head1, head2, *proof):
        return False
    # (1) two different sizes need a proof
    if not proof:
        return False
    # (2) a complete first tree is a subtree of the second, and left out of the proof
    path = [head1, *proof] if size1 & (size1 - 1) == 0 else list(proof)
    # (3), (4)
    first, last = size1 - 1, size2 - 1
    while first & 1:
        first, last = first >> 1, last >> 1
    # (5)
    hashed1 = hashed2 = path[0]
    # (6)
    for sibling in path[1:]:
        if last == 0:
            return False
        if first & 1 or first == last:
            hashed1, hashed2 = node_hash(sibling, hashed1), node_hash(sibling, hashed2)
            while not first & 1 and first:
                first, last = first >> 1, last >> 1
        else:
            hashed2 = node_hash(hashed2, sibling)
        first, last = first >> 1, last >> 1
    # (7)
    return last == 0 and hashed1 == head1 and hashed2 == head2


def _are_hashes(*values: bytes) -> bool:
    return all(len(value) == HASH_BYTES for value in values)
