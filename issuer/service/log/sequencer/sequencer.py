"""The sequencer: numbers the leaves, and publishes nothing that could ever go backwards. For one thread.

    (1) lock the head; look up which leaves are there, drop them, number and hash the rest
    (2) COMMIT; read the head again, sign it, raise the records to it
    (3) answer with places and proofs

It never builds on a smaller or another head than it has seen: such a database was put back to an older state, or is
another one. Then it is latched: nothing is appended any more until the operator has looked. An unknown outcome, another
file or a lost connection have all records asked again before the next leaf. A crash leaves at most a leaf without a
token, and a retry finds its leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

import structlog
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError, SetupError, Undecided
from issuer.service.log.database.store import Entry, Head, Key, Reader, Store, StoreFailed, absent, another
from issuer.service.log.sequencer.records import Evidence, Records, RecordSilent, Seal
from issuer.tlog.leaf import TokenLeaf, UnknownLeaf, read_leaf
from issuer.tlog.merkle import EMPTY_ROOT, Node, Peaks, consistency_proof, leaf_hash, peaks_of, verify_consistency
from issuer.tlog.proof import ProofWriter
from issuer.tlog.tiles import extend, node_of_tiles

_log = structlog.get_logger("issuer")


# -- leaves ------------------------------------------------------------------------------------------------------------


class Placed(Struct, frozen=True, array_like=True):
    """Where a leaf is: its index, the proof of it (tlog-proof) under a checkpoint that is published by now, and whether
    it was there before."""

    index: int
    proof: bytes
    known: bool


def entry_of(raw: bytes) -> Entry:
    """Read a leaf of a known kind: nothing else is ever appended. Raises FormatError(`log.malformed`)."""
    leaf = read_leaf(raw)
    if isinstance(leaf, UnknownLeaf):
        raise FormatError(Code.LOG_MALFORMED, f"leaves of {leaf.first_line} are not known here")
    kind = leaf.first_line.split("/")[1]
    key = Key(kind, iat=leaf.iat, token=leaf.token) if isinstance(leaf, TokenLeaf) else Key(kind, name=leaf.name)
    return Entry(key, raw, leaf_hash(raw))


def restored_entry(raw: bytes) -> Entry:
    """Read a leaf that is brought back, also of a kind that a later version appended. Raises as `entry_of`."""
    leaf = read_leaf(raw)
    if isinstance(leaf, UnknownLeaf):
        hashed = leaf_hash(raw)
        return Entry(Key(leaf.first_line, name=hashed), raw, hashed)
    return entry_of(raw)


# -- the tree ----------------------------------------------------------------------------------------------------------


def empty_head(origin: str) -> Head:
    """Return the head of the empty tree."""
    return Head(origin, EMPTY_ROOT, Peaks())


def is_whole(reader: Reader, head: Head) -> bool:
    """Say whether the database's hashes lead to the peaks and to the root of its head. May raise StoreFailed."""
    return peaks_of(head.size, node_of_tiles(reader.tile, head.size)) == head.peaks and head.peaks.root == head.root


def grew_from(reader: Reader, head: Head, size: int, root: bytes) -> bool:
    """Say whether a tree of this size and root is a prefix of the head's, recomputed from the database's hashes. May
    raise StoreFailed."""
    if size == 0 or size >= head.size:
        return (size, root) in {(0, EMPTY_ROOT), (head.size, head.root)}
    proof = consistency_proof(size, head.size, node_of_tiles(reader.tile, head.size))
    return head.peaks.root == head.root and verify_consistency(size, head.size, root, head.root, proof)


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


def _places_of_peaks(size: int) -> Iterator[tuple[int, int]]:
    """Return level and index of each peak, from left to right: one for each bit that is set."""
    for level in reversed(range(size.bit_length())):
        if size >> level & 1:
            yield level, (size >> level) - 1


class Batch:
    """Leaves behind the tree `before`. `new` has each that is not there yet once, in their order; `growth` is the tree
    with them."""

    def __init__(self, before: Head, entries: Sequence[Entry], known: Mapping[Key, int]) -> None:
        self._known = known
        self.new: dict[Key, Entry] = {}
        for entry in entries:
            if entry.key not in known:
                self.new.setdefault(entry.key, entry)  # parallel retries: the first is it
        self.growth = Growth(before, [entry.hash for entry in self.new.values()])
        self._indexes = {**known, **{key: index for index, key in enumerate(self.new, before.size)}}

    def places(self, store: Store, entries: Sequence[Entry], note: bytes) -> tuple[Placed | None, ...]:
        """Return the place of each leaf, with its proof under `note`, the checkpoint of the tree with them; None where
        what was there by the same key is another leaf. Only what was there is read from the store."""
        size = self.growth.head.size
        node = self.growth.node_or(node_of_tiles(store.tile, size))
        proofs = ProofWriter(size, node, note)

        def place(entry: Entry) -> Placed | None:
            if node(0, index := self._indexes[entry.key]) != entry.hash:
                return None
            return Placed(index, proofs.write(index), entry.key in self._known)

        return tuple(place(entry) for entry in entries)


# -- the sequencer -----------------------------------------------------------------------------------------------------


class Published(Struct, frozen=True):
    """A committed head, and its checkpoint with the log's signature, to which all records have been raised."""

    head: Head
    note: bytes


class Sequencer:
    """One log. `latched` says why nothing is appended any more, and is empty while all is well."""

    def __init__(self, store: Store, seal: Seal, records: Records) -> None:
        self._store = store
        self._seal = seal
        self._records = records
        self._connected = False
        self._seen: Head | None = None  # the largest head
        self._published: Published | None = None
        self._accepted: tuple[int, bytes] | None = None
        self.latched = ""

    def start(self, accepted: tuple[int, bytes] | None = None) -> None:
        """Open the log's database, and compare it with what all records say.

        `accepted` is size and root of the tree that the operator says nobody has seen a later one of: it must be this
        one, and needs no record. Raises SetupError: `log.absent`, `log.rollback`, `log.unrecorded`, and
        `state.unreachable` where the database does not answer.
        """
        self._accepted = accepted
        try:
            self._connect()
        except StoreFailed as error:
            self._disconnect()
            detail = f"the log's database at {self._store.database.place} does not work: {error}"
            raise SetupError(Code.STATE_UNREACHABLE, detail) from error

    def append(self, entries: Sequence[Entry]) -> tuple[Placed | None, ...]:
        """Make the leaves durable and return the place of each; None for one in whose place another leaf is. Without
        leaves this makes sure that it could. Raises Undecided(`dependency.log`)."""
        if self.latched:
            raise Undecided(Code.DEPENDENCY_LOG)
        try:
            return self._append(entries)
        except SetupError as error:
            self._latch(error)
        except (StoreFailed, RecordSilent) as error:
            self._give_up(error)
        except BaseException:  # a bug must not leave the head locked
            self._disconnect()
            raise

    def close(self) -> None:
        """Disconnect from the database and from the records."""
        self._disconnect()
        self._records.close()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator should know of the database. For any thread."""
        return self._store.database.warnings

    # -- for witnesses

    @property
    def published(self) -> Published | None:
        """The newest head that is published; None before the first `append`, and once latched. For any thread."""
        return None if self.latched else self._published

    def consistency(self, size1: int, size2: int) -> tuple[bytes, ...]:
        """Return the consistency proof of two sizes, 0 < size1 <= size2, up to that of the published head. Raises
        Undecided(`dependency.log`) where the database does not answer."""
        try:
            return consistency_proof(size1, size2, node_of_tiles(self._store.tile, size2))
        except StoreFailed as error:
            self._give_up(error)

    def under_cosigned(self, places: Sequence[Placed]) -> tuple[Placed, ...] | None:
        """Put the proof of each place under the first cosigned checkpoint over it; None where one has none yet. Raises
        Undecided(`dependency.log`) where the database does not answer."""
        if self.latched or not self._connected:
            raise Undecided(Code.DEPENDENCY_LOG)
        try:
            proved = tuple(placed for place in places if (placed := self._under_cosigned(place)))
        except StoreFailed as error:
            self._give_up(error)
        return proved if len(proved) == len(places) else None

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
        try:
            self._lock()
            self._store.keep_cosigned(size, note)
            self._store.database.commit()
        except SetupError as error:
            self._latch(error)
        except StoreFailed as error:
            self._give_up(error)

    def tend(self) -> None:
        """Do what the database has to do now and then, while nobody waits."""
        if self._connected:
            try:
                self._store.database.tend()
            except StoreFailed as error:
                self._disconnect()
                _log.error("log database failed", reason=str(error))

    # -- one batch

    def _append(self, entries: Sequence[Entry]) -> tuple[Placed | None, ...]:
        if not self._connected or self._store.database.is_another():
            self._connect()
        if self._seen is not None:  # publish what was committed when a record was silent: until then nothing is added
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

    def _lock(self) -> Head:
        """Lock the head, and return it where it is the one that was seen, or grew out of that. Raises SetupError
        (`log.absent`, `log.rollback`) for any other."""
        head = self._store.begin()
        if head is None or head.origin != self._seal.origin:
            place = self._store.database.place
            raise absent(place) if head is None else another(place, head.origin, self._seal.origin)
        if self._seen is not None:
            self._demand_grown(head, self._seen.size, self._seen.root, "than this process has seen")
        return head

    def _publish(self, head: Head) -> Published:
        """Read a head again after its COMMIT, sign it, and raise all records to it: only then may anybody see it.

        Another host's larger head may be there by now. Raises RecordSilent, and SetupError (`log.rollback`) where this
        one has gone.
        """
        self._seen = head
        if self._published is not None and self._published.head == head:
            return self._published
        committed = self._committed()
        self._demand_grown(committed, head.size, head.root, "than this process has committed")
        note = self._seal.sign(head)
        self._records.raise_to(note, lambda kept: self._demand_holds(self._committed(), kept))
        self._published = Published(head, note)
        return self._published

    # -- what may have changed

    def _connect(self) -> None:
        """Open the database, ask all records, and compare: what was seen before this says nothing of what is there."""
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
            self._demand_holds(head, each)
        if self._accepted not in {None, (head.size, head.root)}:
            self._refuse(f"it has {head.size} leaves under the root {head.root.hex()}, not what was accepted")
        if head.size and not (evidence or self._seen or self._accepted):
            raise SetupError(Code.LOG_UNRECORDED, self._unrecorded(head))
        database.rollback()
        self._seen, self._connected, self._accepted = head, True, None

    def _committed(self) -> Head:
        head = self._store.head()
        if head is None:
            self._refuse("its head is gone")
        return head

    def _demand_holds(self, head: Head, evidence: Evidence) -> None:
        checkpoint = evidence.checkpoint
        self._demand_grown(head, checkpoint.size, checkpoint.root, f"than {evidence.name} shows")

    def _demand_grown(self, head: Head, size: int, root: bytes, than: str) -> None:
        if head.size < size:
            self._refuse(f"it has {head.size} leaves, {size - head.size} less {than}")
        if not grew_from(self._store, head, size, root):
            self._refuse(f"its tree is another {than}, which had {size} leaves")

    def _refuse(self, why: str) -> NoReturn:
        detail = f"the log at {self._store.database.place} is not the one that was published: {why}. "
        raise SetupError(Code.LOG_ROLLBACK, f"{detail}Bring what is missing back with `issuer log restore SOURCE`")

    def _unrecorded(self, head: Head) -> str:
        names = ", ".join(self._records.names) or "none is configured"
        return (
            f"no record says how far the log at {self._store.database.place} was published ({names}). Bring one back; "
            "or make sure that nobody has seen a later checkpoint, and run "
            f"`issuer log accept --size {head.size} --root {head.root.hex()} --reason WHY`"
        )

    # -- failures

    def _disconnect(self) -> None:
        self._connected = False
        self._store.database.close()

    def _latch(self, error: SetupError) -> NoReturn:
        self.latched = str(error)
        self._disconnect()
        _log.critical("log latched", code=str(error.code), detail=error.detail)
        raise Undecided(Code.DEPENDENCY_LOG) from error

    def _give_up(self, error: StoreFailed | RecordSilent) -> NoReturn:
        """Fail all who wait. What the database has done by then is asked anew before the next leaf."""
        if isinstance(error, StoreFailed):
            self._disconnect()
        _log.error("log not written", reason=f"{type(error).__name__}: {error}")
        raise Undecided(Code.DEPENDENCY_LOG) from error
