"""One batch of leaves: which of them are new, where each is, and the proofs of all under one head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from issuer.service.log.store import Entry, Head, Key, Reader, Store
from issuer.service.log.tree import Growth, node_of
from issuer.tlog.proof import Proofs


class Placed(Struct, frozen=True, array_like=True):
    """Where a leaf is: its index, the proof of it (tlog-proof) under a checkpoint that is published by now, and whether
    it was there before."""

    index: int
    proof: bytes
    known: bool


def under_cosigned(reader: Reader, place: Placed) -> Placed | None:
    """Prove a place under the first cosigned checkpoint over it; None where there is none. May raise StoreFailed."""
    cosigned = reader.cosigned_over(place.index + 1)
    if cosigned is None:
        return None
    size, note = cosigned
    return Placed(place.index, Proofs(size, node_of(reader, size), note).write(place.index), place.known)


class Batch:
    """Leaves behind the tree `before`. `new` has each that is not there yet once, in their order; `after` is the head
    of the tree with them."""

    def __init__(self, before: Head, entries: Sequence[Entry], known: Mapping[Key, int]) -> None:
        self._known = known
        self.new: dict[Key, Entry] = {}
        for entry in entries:
            if entry.key not in known:
                self.new.setdefault(entry.key, entry)  # parallel retries: the first is it
        self.growth = Growth(before, [entry.hash for entry in self.new.values()])
        self.after = self.growth.head
        self._indexes = {**known, **{key: index for index, key in enumerate(self.new, before.size)}}

    def places(self, store: Store, entries: Sequence[Entry], note: bytes) -> tuple[Placed | None, ...]:
        """Return the place of each leaf, with its proof under `note`, the checkpoint of `after`; None where what was
        there by the same key is another leaf. Only what was there is read from the store."""
        node = self.growth.node_or(node_of(store, self.after.size))
        proofs = Proofs(self.after.size, node, note)

        def place(entry: Entry) -> Placed | None:
            if node(0, index := self._indexes[entry.key]) != entry.hash:
                return None
            return Placed(index, proofs.write(index), entry.key in self._known)

        return tuple(place(entry) for entry in entries)
