"""The way back for a log whose database is older than what was published, or is lost: exactly the missing leaves.

They come from the old primary, an export or a mirror, and are believed only together: when they lead to the root of the
newest checkpoint that this log itself has signed. Else nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from itertools import islice
from typing import NoReturn

from issuer.codes import Code
from issuer.errors import FormatError, SetupError
from issuer.service.bounds import LOG_BATCH_LEAVES
from issuer.service.log.engines import database_at
from issuer.service.log.entries import restored_entry
from issuer.service.log.records import Evidence, Records
from issuer.service.log.setup import LogSettings, make_folders, opened, read_seal, records_of, turn
from issuer.service.log.store import Entry, Head, Store
from issuer.service.log.tree import Growth, empty_head, grew_from, is_whole
from issuer.tlog.checkpoint import Checkpoint

# (first, end) -> the leaves from index `first` up to, and without, `end`.
Source = Callable[[int, int], Iterable[bytes]]


def restore(settings: LogSettings, source: Source, notes: Sequence[bytes] = ()) -> Checkpoint:
    """Append what is missing up to the newest checkpoint that a record, or one of `notes`, shows; return that.

    Raises SetupError: `log.unrecorded` where nothing shows how far the log was published, `log.rollback` where the
    database or the source has another tree. Passes on what the source raises.
    """
    seal = read_seal(settings)
    records = records_of(settings, seal)
    make_folders(settings)
    with turn(settings), opened(database_at(settings.database)) as store, closing(records):
        shown = _shown(records, notes)
        newest = max((evidence.checkpoint for evidence in shown), key=lambda checkpoint: checkpoint.size)
        head = _begin(store, settings.origin)
        if head.size < newest.size:
            head = _extend(store, head, newest.size, source)
        for evidence in shown:
            if not grew_from(store, head, evidence.checkpoint.size, evidence.checkpoint.root):
                _refuse(f"with these leaves it is not the tree that {evidence.name} shows")
        store.database.commit()
        records.raise_to(seal.sign(head))
    return Checkpoint(head.origin, head.size, head.root)


def _shown(records: Records, notes: Sequence[bytes]) -> tuple[Evidence, ...]:
    given = (records.judge("the given checkpoint", note) for note in notes)
    shown = (*records.ask(), *(evidence for evidence in given if evidence))
    if not shown:
        detail = "nothing shows how far the log was published: give a checkpoint of it that this log signed"
        raise SetupError(Code.LOG_UNRECORDED, detail)
    return shown


def _begin(store: Store, origin: str) -> Head:
    """Lock the head, of the empty tree where the database is lost."""
    if store.database.is_empty():
        store.database.begin()
        store.create(empty_head(origin))
        return empty_head(origin)
    head = store.begin()
    if head is None or head.origin != origin:
        raise SetupError(Code.LOG_ABSENT, f"{store.database.place} has another log than {origin}, or a part of one")
    if not is_whole(store, head):
        _refuse("its hashes do not lead to its head. Move the database away, and restore all of it")
    return head


def _extend(store: Store, head: Head, size: int, source: Source) -> Head:
    missing = iter(source(head.size, size))
    while batch := [_entry(raw) for raw in islice(missing, min(LOG_BATCH_LEAVES, size - head.size))]:
        growth = Growth(head, [entry.hash for entry in batch])
        store.append(head, growth.head, batch, growth.gained)
        head = growth.head
    if head.size != size:
        _refuse(f"the source ends at {head.size} leaves of {size}")
    return head


def _entry(raw: bytes) -> Entry:
    try:
        return restored_entry(raw)
    except FormatError as error:
        raise SetupError(Code.LOG_ROLLBACK, f"the source has an entry that is no leaf: {error.detail}") from None


def _refuse(why: str) -> NoReturn:
    raise SetupError(Code.LOG_ROLLBACK, f"the log is not restored: {why}. Nothing was changed; try another source")
