"""A log's database brought up to what was published, out of a source that nobody has to believe.

The largest checkpoint that this log signed, by a record or by the source itself, says which leaves there were. Exactly
those that are missing are appended, and each part is compared with that checkpoint before its COMMIT. What the database
has already must be the beginning of it. A restore that was interrupted goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import Protocol

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError, SetupError
from issuer.service.bounds import LOG_BATCH_LEAVES
from issuer.service.log.accept import publish, shown_now
from issuer.service.log.engines import database_at
from issuer.service.log.entries import restored_entry
from issuer.service.log.records import Evidence
from issuer.service.log.seal import Seal
from issuer.service.log.setup import (
    LogSettings,
    make_folders,
    opened,
    read_seal,
    records_of,
    turn,
)
from issuer.service.log.store import Entry, Head, Store, another
from issuer.service.log.tree import Growth, empty_head, is_whole
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.merkle import Peaks


class Shown(Protocol):
    """The tree of one checkpoint, as a source shows it."""

    def leaves(self, start: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """Return index and bytes of each leaf from `start` on."""
        ...

    def peaks(self, size: int, /) -> Peaks:
        """Return the peaks of the first `size` leaves."""
        ...


class Source(Protocol):
    """Whoever has leaves: an older database, an export, a mirror."""

    @property
    def name(self) -> str:
        """Where it is, for people."""
        ...

    @property
    def size(self) -> int:
        """How many leaves it says to have."""
        ...

    @property
    def note(self) -> bytes | None:
        """Its newest checkpoint, as a signed note; None for a place that keeps none."""
        ...

    def tree(self, checkpoint: Checkpoint) -> Shown:
        """Show the tree of a checkpoint of at most `size` leaves. Raises what its reader raises."""
        ...

    def cosigned(self) -> Iterable[tuple[int, bytes]]:
        """Return the cosigned checkpoints that it has kept: sizes and notes."""
        ...


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
        entries = [_entry(index, raw) for index, raw in part]
        growth = Growth(head, [entry.hash for entry in entries])
        _demand_shown(growth.head, to, shown, source)
        _append(store, head, growth, entries)
        head = growth.head
    if head.size < to.size:
        raise _refused(f"{source.name} has only {head.size} leaves")
    return head


def _demand_shown(head: Head, to: Checkpoint, shown: Shown, source: Source) -> None:
    """Demand that the tree with the next part is still the beginning of the signed one, and at its end that one."""
    is_end = head.size >= to.size
    if head.peaks != shown.peaks(head.size) or (is_end and (head.size, head.root) != (to.size, to.root)):
        raise _refused(f"the leaves of {source.name} up to {head.size} do not make the tree that was signed")


def _append(store: Store, before: Head, growth: Growth, entries: list[Entry]) -> None:
    if store.begin() != before:
        raise _refused(f"another process writes to {store.database.place}: stop the service on every host")
    store.append(before, growth.head, entries, growth.gained)
    store.database.commit()


def _entry(index: int, raw: bytes) -> Entry:
    try:
        return restored_entry(raw)
    except FormatError as error:
        raise _refused(f"leaf {index} is none: {error.detail}") from None


def _keep_cosigned(store: Store, seal: Seal, head: Head, shown: Shown, source: Source) -> None:
    """Keep what shows when leaves were there first: later cosignatures would show a later time."""
    kept = [(size, note) for size, note in source.cosigned() if _is_of(seal, size, note, head, shown)]
    if kept:
        store.database.begin()
        for size, note in kept:
            store.keep_cosigned(size, note)
        store.database.commit()


def _is_of(seal: Seal, size: int, note: bytes, head: Head, shown: Shown) -> bool:
    signed = seal.read(note)
    return signed is not None and signed.size == size <= head.size and shown.peaks(size).root == signed.root


def _demand_beginning(shown: Shown, size: int, root: bytes, name: str, source: Source) -> None:
    if shown.peaks(size).root != root:
        raise _refused(f"the {size} leaves of {name} are not the first ones of {source.name}")


def _of_no_use(store: Store, why: str) -> SetupError:
    place = store.database.place
    return _refused(f"what is at {place} cannot be continued: {why}. Keep it elsewhere, and restore into a new place")


def _refused(why: str) -> SetupError:
    return SetupError(Code.LOG_ROLLBACK, why)
