"""Merkle trees (RFC 6962 section 2.1): hashing, growth, and making and verifying proofs. Pure.

Verification follows RFC 9162 (2.1.3.2 and 2.1.4.2) step by step. Proofs are made in O(log n) from the hashes of
complete subtrees, which never change. Hashes are 32 raw bytes. This file does not know the contents of leaves, the
storage of hashes or the signers of roots.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import TypeAlias

from msgspec import Struct

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()

# (level, index) -> the hash of the index-th complete subtree of 2^level leaves, from the left and from 0. It is called
# only for subtrees that are complete in a tree of the caller's size.
Node: TypeAlias = Callable[[int, int], bytes]


def leaf_hash(data: bytes) -> bytes:
    """Hash one leaf. The prefix prevents second preimages: no leaf has the hash of an inner node."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash two subtrees into the one above them."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class Peaks(Struct, frozen=True):
    """The part of a tree that is needed to compute its root and to add leaves. `hashes` are the roots of its largest
    complete subtrees from left to right: one for each bit that is set in `size`."""

    size: int = 0
    hashes: tuple[bytes, ...] = ()

    @property
    def root(self) -> bytes:
        """The tree head (RFC 6962 2.1)."""
        return _folded(reversed(self.hashes))

    def extend(self, leaves: Iterable[bytes], completed: Callable[[int, int, bytes], object] | None = None) -> Peaks:
        """Return the peaks with more leaf hashes. `completed` is called with level, index and hash of each node above
        the leaves that becomes complete."""
        size, hashes = self.size, list(self.hashes)
        for hashed in leaves:
            level, index = 0, size
            while index & 1:
                level, index, hashed = level + 1, index >> 1, node_hash(hashes.pop(), hashed)
                if completed:
                    completed(level, index, hashed)
            hashes.append(hashed)
            size += 1
        return Peaks(size, tuple(hashes))


def root(leaves: Iterable[bytes]) -> bytes:
    """Return the tree head of these leaf hashes."""
    return Peaks().extend(leaves).root


def peaks_of(size: int, node: Node) -> Peaks:
    """Return the peaks of the first `size` leaves of a tree."""
    return Peaks(size, tuple(_peaks(0, size, node))[::-1])


def inclusion_proof(index: int, size: int, node: Node) -> tuple[bytes, ...]:
    """Return PATH(index, D[size]) of RFC 6962 2.1.1, for `verify_inclusion`. Requires 0 <= index < size."""
    return tuple(_siblings(0, index, size, node))


def consistency_proof(size1: int, size2: int, node: Node) -> tuple[bytes, ...]:
    """Return PROOF(size1, D[size2]) of RFC 6962 2.1.2, for `verify_consistency`. Requires 0 < size1 <= size2."""
    if size1 == size2:
        return ()
    # Both heads can be computed upwards from the smallest peak of the first tree. If that peak is the whole first tree,
    # the verifier knows its hash already, and the proof omits it.
    level = (size1 & -size1).bit_length() - 1
    index = (size1 - 1) >> level
    return (*((node(level, index),) if index else ()), *_siblings(level, index, size2, node))


def sibling(level: int, index: int, size: int, node: Node) -> bytes | None:
    """Return the hash of the sibling of a subtree of up to 2^level leaves. None if it has no sibling: then its hash is
    also its parent's. Requires (index << level) < size."""
    if index & 1:
        return node(level, index - 1)
    begin = (index + 1) << level
    return _folded(_peaks(begin, min(begin + (1 << level), size), node)) if begin < size else None


def _siblings(level: int, index: int, size: int, node: Node) -> Iterator[bytes]:
    """Yield the siblings on the path from a complete subtree up to the head, the lowest first."""
    while (size - 1) >> level:
        if (hashed := sibling(level, index, size, node)) is not None:
            yield hashed
        level, index = level + 1, index >> 1


def _peaks(begin: int, end: int, node: Node) -> Iterator[bytes]:
    """Yield the roots of the largest complete subtrees of the leaves from `begin` to `end`, from right to left. `begin`
    is a multiple of a power of two that is at least the number of leaves."""
    while begin < end:
        level = ((end - begin) & (begin - end)).bit_length() - 1
        yield node(level, (end - 1) >> level)
        end -= 1 << level


def _folded(peaks: Iterable[bytes]) -> bytes:
    """Hash peaks, given from right to left, into their tree head."""
    return reduce(lambda right, left: node_hash(left, right), peaks) if (peaks := tuple(peaks)) else EMPTY_ROOT


def verify_inclusion(index: int, size: int, leaf: bytes, proof: Sequence[bytes], head: bytes) -> bool:
    """Return whether the proof shows the leaf hash at `index` (from 0) of the tree of `size` leaves under `head`."""
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
    """Return whether the proof shows that the tree of `size1` leaves is a prefix of the tree of `size2` leaves. A tree
    is a prefix of itself by the empty proof. False for the empty tree, which cannot be proved (RFC 9162 2.1.4)."""
    if not 0 < size1 <= size2:
        return False
    if size1 == size2:
        return not proof and head1 == head2
    if not _are_hashes(head1, head2, *proof):
        return False
    # (1) two different sizes need a proof
    if not proof:
        return False
    # (2) a complete first tree is a subtree of the second, and the proof omits it
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
