"""What clients ever got from one log, and what has to be true of all of it, whatever went wrong meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from issuer.service.log.batch import Placed
from issuer.service.log.store import Entry, Reader
from issuer.service.log.tree import is_whole
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.merkle import EMPTY_ROOT, leaf_hash, root, roots
from tests.support.sequencing import Log


class Received:
    """Leaves with their places, and the checkpoints over them. Each was verified when it came."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.indexes: dict[bytes, int] = {}
        self.checkpoints: set[Checkpoint] = set()

    def take(self, entries: Sequence[Entry], places: Sequence[Placed | None]) -> None:
        """Take an answer: every proof is good, and a leaf is where it was before."""
        self.checkpoints.add(self._log.demand_placed(entries, places))
        for entry, place in zip(entries, places, strict=True):
            assert place is not None
            assert self.indexes.setdefault(entry.leaf, place.index) == place.index

    def demand_kept(self) -> None:
        """Demand that the log still has all of it, and that its tree is one."""
        reader = Reader(self._log.place.read())
        head = reader.head()
        assert head is not None
        assert is_whole(reader, head)
        leaves = reader.leaves(0, head.size)
        self.demand_one_tree(leaves)
        assert root(leaf_hash(leaf) for leaf in leaves) == head.root

    def demand_one_tree(self, leaves: Sequence[bytes]) -> None:
        """Demand that these leaves are of all checkpoints: no fork, no gap, no leaf twice; nothing is gone."""
        assert len(set(leaves)) == len(leaves)
        assert {leaf: leaves[index] for leaf, index in self.indexes.items()} == {leaf: leaf for leaf in self.indexes}
        after = [EMPTY_ROOT, *roots(leaf_hash(leaf) for leaf in leaves)]
        assert all(after[checkpoint.size] == checkpoint.root for checkpoint in self.checkpoints)
