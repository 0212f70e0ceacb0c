"""The sequencer: numbers and commits leaves, and publishes only trees that extend everything published before.

    (1) lock the head; look up which leaves the log has already, drop them, number and hash the others
    (2) COMMIT; read the head again, sign it, raise the records to it
    (3) answer with places and proofs

It never builds on a head that is smaller than, or differs from, one that it has seen: such a database was rolled back
or replaced. Then it latches: it appends no more leaves until the operator acts. A file, folder, database or schema that
is missing shows no such thing, so each batch asks for it again. After an unknown outcome, a missing or replaced file or
a lost connection, it compares all records again before the next leaf. After a crash, the log may have leaves without
tokens, and a retry finds these leaves. For one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NoReturn

import structlog
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError, SetupError, Undecided
from issuer.service.log.database.store import (
    LeafKey,
    LogStore,
    Reader,
    StoredLeaf,
    StoreFailed,
    TreeHead,
    absent,
    another,
)
from issuer.service.log.sequencer.records import Evidence, Records, RecordSilent, Seal
from issuer.tlog.leaf import TokenLeaf, UnknownLeaf, read_leaf
from issuer.tlog.merkle import EMPTY_ROOT, Node, Peaks, consistency_proof, leaf_hash, peaks_of, verify_consistency
from issuer.tlog.proof import ProofWriter
from issuer.tlog.tiles import extend, node_of_tiles

_log = structlog.get_logger("issuer")


# -- leaves ------------------------------------------------------------------------------------------------------------


class Placed(Struct, frozen=True, array_like=True):
    """The place of a leaf: its index, its proof (tlog-proof) under a published checkpoint, and whether the log had the
    leaf before (`known`)."""

    index: int
    proof: bytes
    known: bool


def entry_of(raw: bytes, *, restored: bool = False) -> StoredLeaf:
    """Read a leaf, to append it. Raises FormatError(`log.malformed`), also for an unknown kind of leaf, unless it is
    `restored`: a later version of the issuer may have appended it."""
    leaf, hashed = read_leaf(raw), leaf_hash(raw)
    if isinstance(leaf, UnknownLeaf):
        if not restored:
            raise FormatError(Code.LOG_MALFORMED, f"{leaf.first_line} is an unknown kind of leaf")
        return StoredLeaf(LeafKey(leaf.first_line, name=hashed), raw, hashed)
    kind = leaf.first_line.split("/")[1]
    key = (
        LeafKey(kind, iat=leaf.iat, token=leaf.token) if isinstance(leaf, TokenLeaf) else LeafKey(kind, name=leaf.name)
    )
    return StoredLeaf(key, raw, hashed)


# -- the tree ----------------------------------------------------------------------------------------------------------


def empty_head(origin: str) -> TreeHead:
    """Return the head of the empty tree."""
    return TreeHead(origin, EMPTY_ROOT, Peaks())


def is_whole(reader: Reader, head: TreeHead) -> bool:
    """Return whether the database's hashes lead to the peaks and the root of its head. May raise StoreFailed."""
    return peaks_of(head.size, node_of_tiles(reader.tile, head.size)) == head.peaks and head.peaks.root == head.root


def grew_from(reader: Reader, head: TreeHead, size: int, root: bytes) -> bool:
    """Return whether a tree of this size and root is a prefix of the head's tree, by the database's hashes. May raise
    StoreFailed."""
    if size == 0 or size >= head.size:
        return (size, root) in {(0, EMPTY_ROOT), (head.size, head.root)}
    proof = consistency_proof(size, head.size, node_of_tiles(reader.tile, head.size))
    return head.peaks.root == head.root and verify_consistency(size, head.size, root, head.root, proof)


class Growth:
    """A tree after one batch: its `head`, and the hashes that the tiles have `gained`. It keeps all nodes that
    proofs of the new leaves need, so they do not read the database: the peaks of the tree before, and the subtrees
    completed since. A left sibling in such a proof is always one of these."""

    def __init__(self, before: TreeHead, leaves: Sequence[bytes]) -> None:
        self._nodes = dict(zip(_places_of_peaks(before.size), before.peaks.hashes, strict=True))
        self._nodes |= {(0, index): leaf for index, leaf in enumerate(leaves, before.size)}
        peaks, self.gained = extend(before.peaks, leaves, self._keep)
        self.head = TreeHead(before.origin, peaks.root, peaks)

    def node_or(self, other: Node) -> Node:
        """Return a function that finds a node among the kept ones, or else with `other`."""
        return lambda level, index: self._nodes.get((level, index)) or other(level, index)

    def _keep(self, level: int, index: int, hashed: bytes) -> None:
        self._nodes[level, index] = hashed


def _places_of_peaks(size: int) -> Iterator[tuple[int, int]]:
    """Yield level and index of each peak, from left to right: one for each bit that is set in `size`."""
    for level in reversed(range(size.bit_length())):
        if size >> level & 1:
            yield level, (size >> level) - 1


class Batch:
    """A batch of leaves to append to the tree `before`. `new` has the leaves that the log lacks, each once, in order;
    `growth` is the tree with them."""

    def __init__(self, before: TreeHead, entries: Sequence[StoredLeaf], known: Mapping[LeafKey, int]) -> None:
        self._known = known
        self.new: dict[LeafKey, StoredLeaf] = {}
        for entry in entries:
            if entry.key not in known:
                self.new.setdefault(entry.key, entry)  # of parallel retries, the first counts
        self.growth = Growth(before, [entry.hash for entry in self.new.values()])
        self._indexes = {**known, **{key: index for index, key in enumerate(self.new, before.size)}}

    def places(self, store: LogStore, entries: Sequence[StoredLeaf], note: bytes) -> tuple[Placed | None, ...]:
        """Return the place of each leaf, with its proof under `note`, the checkpoint of the tree after the batch; None
        if the log has another leaf of the same key. Reads the store only for leaves that the log had before."""
        size = self.growth.head.size
        node = self.growth.node_or(node_of_tiles(store.tile, size))
        proofs = ProofWriter(size, node, note)

        def place(entry: StoredLeaf) -> Placed | None:
            if node(0, index := self._indexes[entry.key]) != entry.hash:
                return None
            return Placed(index, proofs.write(index), entry.key in self._known)

        return tuple(place(entry) for entry in entries)


# -- the sequencer -----------------------------------------------------------------------------------------------------


class CommittedHead(Struct, frozen=True):
    """A committed head, and its signed checkpoint, which all records have."""

    head: TreeHead
    note: bytes


class Sequencer:
    """The sequencer of one log. `latched` says why it appends no more leaves; it is "" in normal operation."""

    def __init__(self, store: LogStore, seal: Seal, records: Records) -> None:
        self._store = store
        self._seal = seal
        self._records = records
        self._connected = False
        self._seen: TreeHead | None = None  # the largest head
        self._published: CommittedHead | None = None
        self._accepted: tuple[int, bytes] | None = None
        self.latched = ""

    def start(self, accepted: tuple[int, bytes] | None = None) -> None:
        """Open the log's database, and compare it with all records. `accepted` is size and root of a tree, if the
        operator states that a later one was never seen: the database must have this tree, and then needs no record.
        Raises SetupError: `log.absent`, `log.rollback`, `log.unrecorded`; `state.unreachable` if the database fails."""
        self._accepted = accepted
        try:
            self._connect()
        except StoreFailed as error:
            self._disconnect()
            detail = f"the log's database at {self._store.database.place} does not work: {error}"
            raise SetupError(Code.STATE_UNREACHABLE, detail) from error

    def append(self, entries: Sequence[StoredLeaf]) -> tuple[Placed | None, ...]:
        """Make leaves durable, and return the place of each; None if the log has another leaf of its key. Without
        leaves, check that leaves could be appended. Raises Undecided(`dependency.log`)."""
        if self.latched:
            raise Undecided(Code.DEPENDENCY_LOG)
        with self._guarded():
            return self._append(entries)

    def close(self) -> None:
        """Disconnect from the database and from the records."""
        self._disconnect()
        self._records.close()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings to the operator about the database. For any thread."""
        return self._store.database.warnings

    # -- for witnesses

    @property
    def published(self) -> CommittedHead | None:
        """The newest published head; None before the first `append`, and once latched. For any thread."""
        return None if self.latched else self._published

    def consistency(self, size1: int, size2: int) -> tuple[bytes, ...]:
        """Return the consistency proof of two sizes, 0 < size1 <= size2 <= the published size. Raises
        Undecided(`dependency.log`) if the database does not answer."""
        with self._guarded():
            return consistency_proof(size1, size2, node_of_tiles(self._store.tile, size2))

    def under_cosigned(self, places: Sequence[Placed]) -> tuple[Placed, ...] | None:
        """Return the places with proofs under the first cosigned checkpoints that include them; None if one is not
        included yet. Raises Undecided(`dependency.log`) if the database does not answer."""
        if self.latched or not self._connected:
            raise Undecided(Code.DEPENDENCY_LOG)
        with self._guarded():
            cosigned = tuple(placed for place in places if (placed := self._under_cosigned(place)))
        return cosigned if len(cosigned) == len(places) else None

    def _under_cosigned(self, place: Placed) -> Placed | None:
        if (cosigned := self._store.cosigned_over(place.index + 1)) is None:
            return None
        size, note = cosigned
        proof = ProofWriter(size, node_of_tiles(self._store.tile, size), note).write(place.index)
        return Placed(place.index, proof, place.known)

    def keep_cosigned(self, size: int, note: bytes) -> None:
        """Keep a published checkpoint that has reached the quorum. Raises Undecided(`dependency.log`)."""
        if self.latched or not self._connected:
            raise Undecided(Code.DEPENDENCY_LOG)
        with self._guarded():
            self._lock()
            self._store.keep_cosigned(size, note)
            self._store.database.commit()

    def tend(self) -> None:
        """Do the database's periodic maintenance, between batches."""
        if self._connected:
            try:
                self._store.database.tend()
            except StoreFailed as error:
                self._disconnect()
                _log.error("log database failed", reason=str(error))

    # -- one batch

    def _append(self, entries: Sequence[StoredLeaf]) -> tuple[Placed | None, ...]:
        if not self._connected or self._store.database.is_another():
            self._connect()
        if self._seen is not None:  # first publish a head that was committed while a record was silent
            self._publish(self._seen)
        # (1)
        before = self._lock()
        batch = Batch(before, entries, self._store.indexes_of({entry.key for entry in entries}))
        after = batch.growth.head
        # (2)
        if batch.new:
            self._store.append(before, after, list(batch.new.values()), batch.growth.gained)
            self._store.database.commit()
        else:
            self._store.database.rollback()
        published = self._publish(after)
        # (3)
        return batch.places(self._store, entries, published.note)

    def _lock(self) -> TreeHead:
        """Lock the head and return it. Raises SetupError (`log.absent`, `log.rollback`) unless its tree extends the one
        that was seen."""
        head = self._store.begin()
        if head is None:
            raise absent(self._store.database.place)
        if head.origin != self._seal.origin and self._seen is not None:
            self._refuse(f"its origin is {head.origin}")
        if head.origin != self._seal.origin:
            raise another(self._store.database.place, head.origin, self._seal.origin)
        if self._seen is not None:
            self._demand_grown(head, self._seen.size, self._seen.root, "than this process has seen")
        return head

    def _publish(self, head: TreeHead) -> CommittedHead:
        """Read a head again after its COMMIT, sign it, and raise all records to it; only then may it be visible. By now
        another host may have committed a larger head. Raises RecordSilent, and SetupError (`log.rollback`) if the tree
        has lost this head."""
        self._seen = head
        if self._published is not None and self._published.head == head:
            return self._published
        committed = self._committed()
        self._demand_grown(committed, head.size, head.root, "than this process has committed")
        note = self._seal.sign(head)
        self._records.raise_to(note, lambda evidence: self._demand_extends(self._committed(), evidence))
        self._published = CommittedHead(head, note)
        return self._published

    # -- checks against rollback

    def _connect(self) -> None:
        """Open the database, and compare it with all records: it may have been replaced since the last connection."""
        self._disconnect()
        database = self._store.database
        database.open()
        if database.is_empty():
            raise absent(database.place)
        evidence = self._records.ask()
        head = self._lock()
        if not is_whole(self._store, head):
            self._refuse("its hashes do not lead to its head")
        for each in evidence:
            self._demand_extends(head, each)
        if self._accepted not in {None, (head.size, head.root)}:
            self._refuse(f"it has {head.size} leaves and the root {head.root.hex()}, not the accepted ones")
        if head.size and not (evidence or self._seen or self._accepted):
            raise SetupError(Code.LOG_UNRECORDED, self._unrecorded(head))
        database.rollback()
        self._seen, self._connected, self._accepted = head, True, None

    def _committed(self) -> TreeHead:
        head = self._store.head()
        if head is None:
            raise absent(self._store.database.place)
        return head

    def _demand_extends(self, head: TreeHead, evidence: Evidence) -> None:
        checkpoint = evidence.checkpoint
        self._demand_grown(head, checkpoint.size, checkpoint.root, f"than {evidence.name} shows")

    def _demand_grown(self, head: TreeHead, size: int, root: bytes, than: str) -> None:
        if head.size < size:
            self._refuse(f"it has {head.size} leaves, {size - head.size} fewer {than}")
        if not grew_from(self._store, head, size, root):
            self._refuse(f"its first {size} leaves have another root {than}")

    def _refuse(self, why: str) -> NoReturn:
        detail = f"the log at {self._store.database.place} is not the one that was published: {why}. "
        raise SetupError(Code.LOG_ROLLBACK, f"{detail}Restore the missing leaves with `issuer log restore SOURCE`")

    def _unrecorded(self, head: TreeHead) -> str:
        names = ", ".join(self._records.names) or "none is configured"
        return (
            f"no record says how far the log at {self._store.database.place} was published ({names}). Restore one. "
            "If none is left, make sure that a later checkpoint was never seen, and run "
            f"`issuer log accept --size {head.size} --root {head.root.hex()} --reason WHY`"
        )

    # -- failures

    def _disconnect(self) -> None:
        self._connected = False
        self._store.database.close()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Raise failures as Undecided(`dependency.log`). Latch after `log.rollback`. After any other error except
        RecordSilent, disconnect, so that the next leaf begins with a new connection and its checks."""
        try:
            yield
        except (SetupError, StoreFailed, RecordSilent) as error:
            if not isinstance(error, RecordSilent):
                self._disconnect()
            if isinstance(error, SetupError) and error.code is Code.LOG_ROLLBACK:
                self.latched = str(error)
                _log.critical("log latched", code=str(error.code), detail=error.detail)
                raise Undecided(Code.DEPENDENCY_LOG) from error
            _log.error("log not written", reason=f"{type(error).__name__}: {error}")
            raise Undecided(Code.DEPENDENCY_LOG) from error
        except BaseException:  # a bug must not leave the head locked
            self._disconnect()
            raise
