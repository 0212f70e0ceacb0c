"""A log's database brought up to what was published, out of a source that nobody has to believe.

The largest checkpoint that this log signed, by a record or by the source itself, says which leaves there were. Exactly
those that are missing are appended, and each part is compared with that checkpoint before its COMMIT. What the database
has already must be the beginning of it. A restore that was interrupted goes on where it stopped.
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
from issuer.service.log.database.store import Entry, Head, Store, another
from issuer.service.log.sequencer.records import Evidence, Record, Seal
from issuer.service.log.sequencer.sequencer import Growth, empty_head, is_whole, restored_entry
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

# -- a log that is as it was published, by the operator's word, or again: started once as the service does -------------


def accept(settings: LogSettings, size: int, root: bytes, told: Callable[[], object] = lambda: None) -> None:
    """Go on with a log of this size and root without a record: the operator's word that nobody has seen a later tree.
    All records say so from then on. `told` is called when it is known to be this tree, before a record says so.

    Raises SetupError as `Sequencer.start`, and `state.unreachable` where a record cannot be written.
    """
    make_folders(settings)
    with turn(settings):
        publish(settings, shown_now(settings, read_seal(settings)), (size, root), told)


def shown_now(settings: LogSettings, seal: Seal) -> tuple[Record, ...]:
    """Ask every witness what it shows of the log: where a machine was lost they may be all that is left. Not within an
    event loop. Raises SetupError as `witnessing_of`."""
    return asyncio.run(shown_at_start(witnessing_of(settings.witnesses, seal.verifier).witnesses))


def publish(
    settings: LogSettings,
    shown: Sequence[Record],
    accepted: tuple[int, bytes] | None = None,
    told: Callable[[], object] = lambda: None,
) -> None:
    """Start a log as the service does, with what witnesses have `shown`, and raise all records to its head. The caller
    has the turn."""
    with closing(sequencer_of(settings, shown=shown)) as sequencer:
        sequencer.start(accepted)
        told()
        try:
            sequencer.append(())
        except Undecided as error:
            detail = "a record of the log cannot be written; the reason stands above"
            raise SetupError(Code.STATE_UNREACHABLE, detail) from error


# -- restore -----------------------------------------------------------------------------------------------------------


class Shown(Protocol):
    """The tree of one checkpoint, as a source shows it."""

    def leaves(self, start: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """Return index and bytes of each leaf from `start` on."""

    def peaks(self, size: int, /) -> Peaks:
        """Return the peaks of the first `size` leaves."""


class Source(Protocol):
    """A place that has leaves: an older database, an export, a mirror. `name` is for people, `size` the number of
    leaves that it claims."""

    name: str
    size: int

    @property
    def note(self) -> bytes | None:
        """Its newest checkpoint, as a signed note; None for a place that keeps none."""

    def tree(self, checkpoint: Checkpoint) -> Shown:
        """Show the tree of a checkpoint of at most `size` leaves. Raises what its reader raises."""

    def cosigned(self) -> Iterable[tuple[int, bytes]]:
        """Return the cosigned checkpoints that it has kept: sizes and notes."""


class Restored(Struct, frozen=True):
    """What the database is now: `head`, of which `before` leaves were there already. `by` names what shows that there
    was so much; `is_recorded` where a record does, and the log starts."""

    head: Head
    before: int
    by: str
    is_recorded: bool


def restore(settings: LogSettings, source: Source) -> Restored:
    """Append what is missing, in a new database where there is none. Where a record answers, the log starts then.

    Raises SetupError: `log.unrecorded` where nothing shows how far the log was published; `log.rollback` where source,
    records and database are not of one tree, or the source has too little; `state.unreachable` where the database does
    not take it. What the source raises passes.
    """
    seal = read_seal(settings)
    make_folders(settings)
    shown_by = shown_now(settings, seal)
    with turn(settings), closing(records_of(settings, seal, shown_by)) as records:
        recorded = records.ask()
        newest = _newest(seal, recorded, source)
        shown = source.tree(newest.checkpoint)
        for each in recorded:
            _demand_beginning(shown, each.checkpoint.size, each.checkpoint.root, each.name, source)
        with opened(database_at(settings.database)) as store:
            before = _begun(store, newest.checkpoint.origin)
            head = _extended(store, before, newest.checkpoint, shown, source)
            _keep_cosigned(store, seal, head, shown, source)
        if recorded:
            publish(settings, shown_by)
    return Restored(head, before.size, newest.name, bool(recorded))


def _newest(seal: Seal, recorded: tuple[Evidence, ...], source: Source) -> Evidence:
    """Return the largest checkpoint of this log that is known. Raises SetupError where the source lacks some of it."""
    evidence = list(recorded)
    if source.note is not None:
        if (signed := seal.read(source.note)) is None:
            raise _refused(f"the checkpoint of {source.name} is not signed by this log, {seal.origin}")
        evidence.append(Evidence(source.name, signed))
    if not evidence:
        raise SetupError(
            Code.LOG_UNRECORDED,
            f"no record says how far the log {seal.origin} was published, and {source.name} has no signed checkpoint. "
            "Bring a record back; or make sure that nobody has seen a later checkpoint than that of an old database, "
            "put it in its place, and run `issuer log accept`",
        )
    newest = max(evidence, key=lambda each: each.checkpoint.size)
    if source.size < newest.checkpoint.size:
        missing = newest.checkpoint.size - source.size
        raise _refused(f"{source.name} has {source.size} leaves, {missing} less than {newest.name} shows: find another")
    return newest


def _begun(store: Store, origin: str) -> Head:
    """Return the head of the database, which is begun where nothing was ever made there."""
    if store.database.is_empty():
        store.database.begin()
        store.create(empty_head(origin))
        store.database.commit()
    head = store.head()
    if head is None:
        raise _of_no_use(store, "it has no head")
    if head.origin != origin:
        raise another(store.database.place, head.origin, origin)
    if not is_whole(store, head):
        raise _of_no_use(store, "its hashes do not lead to its head")
    return head


def _extended(store: Store, head: Head, to: Checkpoint, shown: Shown, source: Source) -> Head:
    """Append the leaves that are missing, part by part; return the new head."""
    if head.size > to.size:
        return head  # whether it grew out of what was published is seen when it is started
    try:
        _demand_beginning(shown, head.size, head.root, store.database.place, source)
    except SetupError as error:
        raise _of_no_use(store, error.detail) from None
    leaves = shown.leaves(head.size)
    while part := list(islice(leaves, LOG_BATCH_LEAVES)):
        entries = _entries(part)
        growth = Growth(head, [entry.hash for entry in entries])
        is_end = growth.head.size >= to.size
        is_signed = (growth.head.size, growth.head.root) == (to.size, to.root)
        if growth.head.peaks != shown.peaks(growth.head.size) or (is_end and not is_signed):
            raise _refused(f"the leaves of {source.name} up to {growth.head.size} do not make the tree that was signed")
        if store.begin() != head:
            raise _refused(f"another process writes to {store.database.place}: stop the service on every host")
        store.append(head, growth.head, entries, growth.gained)
        store.database.commit()
        head = growth.head
    if head.size < to.size:
        raise _refused(f"{source.name} has only {head.size} leaves")
    return head


def _entries(part: Sequence[tuple[int, bytes]]) -> list[Entry]:
    entries: list[Entry] = []
    for index, raw in part:
        try:
            entries.append(restored_entry(raw))
        except FormatError as error:
            raise _refused(f"leaf {index} is none: {error.detail}") from None
    return entries


def _keep_cosigned(store: Store, seal: Seal, head: Head, shown: Shown, source: Source) -> None:
    """Keep what shows when leaves were there first: later cosignatures would show a later time."""
    kept: list[tuple[int, bytes]] = []
    for size, note in source.cosigned():
        signed = seal.read(note)
        if signed is not None and signed.size == size <= head.size and shown.peaks(size).root == signed.root:
            kept.append((size, note))
    if kept:
        store.database.begin()
        for size, note in kept:
            store.keep_cosigned(size, note)
        store.database.commit()


def _demand_beginning(shown: Shown, size: int, root: bytes, name: str, source: Source) -> None:
    if shown.peaks(size).root != root:
        raise _refused(f"the {size} leaves of {name} are not the first ones of {source.name}")


def _of_no_use(store: Store, why: str) -> SetupError:
    place = store.database.place
    return _refused(f"what is at {place} cannot be continued: {why}. Keep it elsewhere, and restore into a new place")


def _refused(why: str) -> SetupError:
    return SetupError(Code.LOG_ROLLBACK, why)
