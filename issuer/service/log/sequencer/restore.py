"""The restore of a log's database up to the newest published checkpoint, from an untrusted source.

The largest checkpoint that this log signed, from a record or from the source, determines the leaves. The restore
appends exactly the missing leaves, and compares each part with that checkpoint before the COMMIT. The leaves that the
database has already must be a prefix. An interrupted restore can be run again, and goes on where it stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Protocol

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError, SetupError, Undecided
from issuer.service.log.bounds import LOG_BATCH_LEAVES
from issuer.service.log.database.engines import database_at
from issuer.service.log.database.store import LogStore, StoredLeaf, TreeHead, another
from issuer.service.log.sequencer.records import Evidence, HeadRecord, Seal
from issuer.service.log.sequencer.sequencer import Growth, empty_head, entry_of, is_whole
from issuer.service.log.sequencer.setup import (
    LogSettings,
    make_folders,
    opened,
    read_seal,
    records_of,
    sequencer_of,
    turn,
)
from issuer.service.log.witnesses.witnesses import shown_at_start, witnessing_of
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.merkle import Peaks

# -- publication of a restored or accepted log: one start, like the service's ------------------------------------------


def accept(settings: LogSettings, size: int, root: bytes, accepting: Callable[[], object] = lambda: None) -> None:
    """Go on with a log of this size and root without a record, if the operator states that a later tree was never seen.
    Write all records. `accepting` is called after the tree was checked and before a record is written. Raises
    SetupError as `Sequencer.start`, and `state.unreachable` if a record cannot be written."""
    make_folders(settings)
    with turn(settings):
        publish(settings, shown_now(settings, read_seal(settings)), (size, root), accepting)


def shown_now(settings: LogSettings, seal: Seal) -> tuple[HeadRecord, ...]:
    """Return records with the checkpoints that witnesses show: after the loss of a machine there may be no other
    records. Runs an event loop. Raises SetupError as `witnessing_of`."""
    return asyncio.run(shown_at_start(witnessing_of(settings.witnesses, seal.verifier).witnesses))


def publish(
    settings: LogSettings,
    shown: Sequence[HeadRecord],
    accepted: tuple[int, bytes] | None = None,
    accepting: Callable[[], object] = lambda: None,
) -> None:
    """Start a log as the service does, with the witnesses' records, and raise all records to its head. The caller holds
    the lock of `turn`."""
    with closing(sequencer_of(settings, shown=shown)) as sequencer:
        sequencer.start(accepted)
        accepting()
        try:
            sequencer.append(())
        except Undecided as error:
            detail = "a record of the log cannot be written; the message above says why"
            raise SetupError(Code.STATE_UNREACHABLE, detail) from error


# -- restore -----------------------------------------------------------------------------------------------------------


class Shown(Protocol):
    """The tree of a checkpoint in a source."""

    def leaves(self, start: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """Yield index and bytes of each leaf from `start` on."""

    def peaks(self, size: int, /) -> Peaks:
        """Return the peaks of the first `size` leaves."""


class LeafSource(Protocol):
    """A source of leaves: an older database, an export, a mirror. `name` is for people, `size` the number of leaves
    that it claims."""

    name: str
    size: int

    @property
    def note(self) -> bytes | None:
        """The newest checkpoint, as a signed note; None if the source does not keep checkpoints."""

    def tree(self, checkpoint: Checkpoint) -> Shown:
        """Return the tree of a checkpoint of at most `size` leaves. Raises the errors of the source's reader."""

    def cosigned(self) -> Iterable[tuple[int, bytes]]:
        """Yield size and note of each cosigned checkpoint that the source has kept."""


class Restored(Struct, frozen=True):
    """The result of a restore: the `head` of the database, which had `before` leaves already. `by` names the record or
    source of the newest checkpoint. `is_recorded` is set if a record shows that checkpoint, so the log can start."""

    head: TreeHead
    before: int
    by: str
    is_recorded: bool


def restore(settings: LogSettings, source: LeafSource) -> Restored:
    """Append the missing leaves, if necessary to a new database. If a record answers, publish the log. Raises
    SetupError: `log.unrecorded` if no checkpoint shows how far the log was published; `log.rollback` if source, records
    and database are not of one tree, or if the source lacks leaves; `state.unreachable` if the database fails. Also
    raises the errors of the source."""
    seal = read_seal(settings)
    make_folders(settings)
    witness_records = shown_now(settings, seal)
    with turn(settings), closing(records_of(settings, seal, witness_records)) as records:
        recorded = records.ask()
        newest = _newest(seal, recorded, source)
        tree = source.tree(newest.checkpoint)
        for evidence in recorded:
            _demand_prefix(tree, evidence.checkpoint.size, evidence.checkpoint.root, evidence.name, source)
        with opened(database_at(settings.database)) as store:
            before = _begun(store, newest.checkpoint.origin)
            head = _extended(store, before, newest.checkpoint, tree, source)
            _keep_cosigned(store, seal, head, tree, source)
        if recorded:
            publish(settings, witness_records)
    return Restored(head, before.size, newest.name, bool(recorded))


def _newest(seal: Seal, recorded: tuple[Evidence, ...], source: LeafSource) -> Evidence:
    """Return the largest known checkpoint of this log. Raises SetupError if the source does not have all its leaves."""
    evidence = list(recorded)
    if source.note is not None:
        if (signed := seal.read(source.note)) is None:
            raise _refused(f"the checkpoint of {source.name} is not signed by this log, {seal.origin}")
        evidence.append(Evidence(source.name, signed))
    if not evidence:
        raise SetupError(
            Code.LOG_UNRECORDED,
            f"no record says how far the log {seal.origin} was published, and {source.name} has no signed checkpoint. "
            "Restore a record. If none is left, find an old database, make sure that no later checkpoint "
            "than its own was ever seen, move it to the place in log.database, and run `issuer log accept`",
        )
    newest = max(evidence, key=lambda each: each.checkpoint.size)
    if source.size < newest.checkpoint.size:
        lead = f"{newest.checkpoint.size - source.size} fewer than {newest.name} shows"
        raise _refused(f"{source.name} has {source.size} leaves, {lead}: find another source")
    return newest


def _begun(store: LogStore, origin: str) -> TreeHead:
    """Return the head of the database; begin the log if the database has no tables."""
    if store.database.is_empty():
        store.database.begin()
        store.create(empty_head(origin))
        store.database.commit()
    head = store.head()
    if head is None:
        raise _unusable(store, "it has no head")
    if head.origin != origin:
        raise another(store.database.place, head.origin, origin)
    if not is_whole(store, head):
        raise _unusable(store, "its hashes do not lead to its head")
    return head


def _extended(store: LogStore, head: TreeHead, to: Checkpoint, tree: Shown, source: LeafSource) -> TreeHead:
    """Append the missing leaves, part by part; return the new head."""
    if head.size > to.size:
        return head  # the start of the sequencer checks that this tree extends the published one
    try:
        _demand_prefix(tree, head.size, head.root, store.database.place, source)
    except SetupError as error:
        raise _unusable(store, error.detail) from None
    leaves = tree.leaves(head.size)
    while part := list(islice(leaves, LOG_BATCH_LEAVES)):
        entries = _entries(part)
        growth = Growth(head, [entry.hash for entry in entries])
        is_end = growth.head.size >= to.size
        is_signed = (growth.head.size, growth.head.root) == (to.size, to.root)
        if growth.head.peaks != tree.peaks(growth.head.size) or (is_end and not is_signed):
            raise _refused(f"the leaves of {source.name} up to {growth.head.size} do not make the signed tree")
        if store.begin() != head:
            raise _refused(f"another process writes to {store.database.place}: stop the service on every host")
        store.append(head, growth.head, entries, growth.gained)
        store.database.commit()
        head = growth.head
    if head.size < to.size:
        raise _refused(f"{source.name} has only {head.size} leaves")
    return head


def _entries(part: Sequence[tuple[int, bytes]]) -> list[StoredLeaf]:
    entries: list[StoredLeaf] = []
    for index, raw in part:
        try:
            entries.append(entry_of(raw, restored=True))
        except FormatError as error:
            raise _refused(f"leaf {index} is not a leaf: {error.detail}") from None
    return entries


def _keep_cosigned(store: LogStore, seal: Seal, head: TreeHead, tree: Shown, source: LeafSource) -> None:
    """Keep the source's cosigned checkpoints: new cosignatures would show a later time for the leaves."""
    kept: list[tuple[int, bytes]] = []
    for size, note in source.cosigned():
        signed = seal.read(note)
        if signed is not None and signed.size == size <= head.size and tree.peaks(size).root == signed.root:
            kept.append((size, note))
    if kept:
        store.database.begin()
        for size, note in kept:
            store.keep_cosigned(size, note)
        store.database.commit()


def _demand_prefix(tree: Shown, size: int, root: bytes, name: str, source: LeafSource) -> None:
    if tree.peaks(size).root != root:
        raise _refused(f"the {size} leaves of {name} are not the first {size} leaves of {source.name}")


def _unusable(store: LogStore, why: str) -> SetupError:
    place = store.database.place
    return _refused(f"the log at {place} cannot be continued: {why}. Move it elsewhere, and restore into a new place")


def _refused(why: str) -> SetupError:
    return SetupError(Code.LOG_ROLLBACK, why)
