"""How far the log was published, as it is known outside of its database: each record keeps one signed checkpoint.

A database that was put back to an older state cannot know that it was. A record that is ahead of it does, and so does
one whose tree is no prefix of the database's. Only a note that verifies under the log's own key is such evidence: what
anybody else could have written is told, and passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import structlog
from msgspec import Struct

from issuer.service.bounds import LOG_RECORD_TRIES
from issuer.service.log.seal import Seal
from issuer.tlog.checkpoint import Checkpoint

_log = structlog.get_logger("issuer")


class RecordSilent(Exception):
    """A record does not answer, or did not take what it was given."""


class Record(Protocol):
    """One place that remembers. `name` is for people."""

    @property
    def name(self) -> str:
        """Where it is."""
        ...

    def read(self) -> bytes | None:
        """Return the note that is kept; None where there is none. Raises RecordSilent."""
        ...

    def write(self, note: bytes) -> bytes | None:
        """Keep a note, durably as this place can. Where something else stands than what was left here, that stays, and
        is returned (b"" for nothing): who has compared it writes again. Raises RecordSilent."""
        ...

    def close(self) -> None:
        """Disconnect, if connected."""
        ...


class Evidence(Struct, frozen=True):
    """What a record of this name shows to have been published."""

    name: str
    checkpoint: Checkpoint


class Records:
    """All records of one log."""

    def __init__(self, seal: Seal, records: Sequence[Record]) -> None:
        self._seal = seal
        self._records = tuple(records)

    @property
    def names(self) -> tuple[str, ...]:
        """Where they are, for people."""
        return tuple(record.name for record in self._records)

    def ask(self) -> tuple[Evidence, ...]:
        """Return the evidence of those that answer."""
        found = [self._ask(record) for record in self._records]
        return tuple(evidence for evidence in found if evidence)

    def raise_to(self, note: bytes, demand: Callable[[Evidence], object]) -> None:
        """Have every record keep this note, which the log has signed.

        What somebody else has published meanwhile is never replaced unseen: `demand` gets it, and raises where the note
        is of another tree. It stays where it is not behind. Raises RecordSilent where one record fails: what is
        published now could be taken back unseen.
        """
        for record in reversed(self._records):  # the host's own comes last: it must not have what is refused
            self._raise(record, note, demand)

    def close(self) -> None:
        """Disconnect from all."""
        for record in self._records:
            record.close()

    def _raise(self, record: Record, note: bytes, demand: Callable[[Evidence], object]) -> None:
        for _ in range(LOG_RECORD_TRIES):
            if (raw := record.write(note)) is None:
                return
            if raw and (evidence := self.judge(record.name, raw)):
                demand(evidence)
                own = self._seal.read(note)
                if own is None or evidence.checkpoint.size >= own.size:
                    return
        raise RecordSilent(f"{record.name} changes all the time")

    def _ask(self, record: Record) -> Evidence | None:
        try:
            raw = record.read()
        except RecordSilent as error:
            _log.error("log record silent", record=record.name, reason=str(error))
            return None
        return None if raw is None else self.judge(record.name, raw)

    def judge(self, name: str, raw: bytes) -> Evidence | None:
        """Return what a note shows to have been published; None, and a word of it, where this log did not sign it."""
        if (checkpoint := self._seal.read(raw)) is None:
            _log.error("log record not signed by this log", record=name)
            return None
        return Evidence(name, checkpoint)
