"""The log's signed checkpoints, and the records that keep the newest one outside of its database.

A database that was put back to an older state cannot know that it was. A record that is ahead of it does, and so does
one whose tree is no prefix of the database's. Only a note that verifies under the log's own key is such evidence: any
other note is logged, and passed over.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import structlog
from msgspec import Struct

from issuer.errors import FormatError, InputError
from issuer.io import files
from issuer.io.redis_client import PREFIX, Failure, connect, place_of
from issuer.service.log.bounds import LOG_RECORD_S, LOG_RECORD_TRIES, LOG_SLOT_BYTES
from issuer.service.log.database.store import Head
from issuer.tlog.checkpoint import Checkpoint, parse_checkpoint
from issuer.tlog.note import Note, NoteSigner, parse_note, verify_note

_SWAP = b"""
local kept = redis.call('GET', KEYS[1]) or ''
if kept == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end
return kept
"""
_HEAD = re.compile(rb"([0-9]{20}) ([0-9]{4}) ([0-9a-f]{64})\n")
_log = structlog.get_logger("issuer")


class Seal:
    """The key of one log, whose name is the log's origin line."""

    def __init__(self, signer: NoteSigner) -> None:
        self._signer = signer
        self.origin = signer.name
        self.verifier = signer.verifier

    def sign(self, head: Head) -> bytes:
        """Return the signed checkpoint of a head, which the caller has seen committed. Always the same bytes for one
        head: Ed25519 is deterministic."""
        text = Checkpoint(head.origin, head.size, head.root).to_text()
        return Note(text, (self._signer.sign(text),)).to_bytes()

    def read(self, raw: bytes) -> Checkpoint | None:
        """Return the checkpoint that this log signed; None for anything else."""
        try:
            note = parse_note(raw)
            verify_note(note, (self.verifier,))
            checkpoint = parse_checkpoint(note.text)
        except FormatError:
            return None
        return checkpoint if checkpoint.origin == self.origin else None


# -- all records of a log ----------------------------------------------------------------------------------------------


class RecordSilent(Exception):
    """A record does not answer, or did not take what it was given."""


class Record(Protocol):
    """One place that remembers. `name` is for people."""

    name: str

    def read(self) -> bytes | None:
        """Return the note that is kept; None where there is none. Raises RecordSilent."""

    def write(self, note: bytes) -> bytes | None:
        """Keep a note, durably as this place can. Where something else stands than what was left here, that stays, and
        is returned (b"" for nothing): who has compared it writes again. Raises RecordSilent."""

    def close(self) -> None:
        """Disconnect, if connected."""


class Evidence(Struct, frozen=True):
    """What a record of this name shows to have been published."""

    name: str
    checkpoint: Checkpoint


class Records:
    """All records of one log."""

    def __init__(self, seal: Seal, records: Sequence[Record]) -> None:
        self._seal = seal
        self._records = tuple(records)
        self.names = tuple(record.name for record in self._records)

    def ask(self) -> tuple[Evidence, ...]:
        """Return the evidence of those that answer."""
        return tuple(evidence for record in self._records if (evidence := self._ask(record)))

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


# -- the places of records: a file in a folder elsewhere than the database, and the store of limits and uses -----------


class _Slot(NamedTuple):
    """What one half of a record's file holds: the note, which was the `number`th to be kept."""

    number: int
    note: bytes

    def to_bytes(self) -> bytes:
        """Write the slot in its full size. Raises RecordSilent for a note that has no room in it."""
        head = b"%020d %04d %b\n" % (self.number, len(self.note), hashlib.sha256(self.note).hexdigest().encode())
        if len(head) + len(self.note) > LOG_SLOT_BYTES:
            raise RecordSilent(f"a checkpoint of {len(self.note)} bytes has no room in it")
        return (head + self.note).ljust(LOG_SLOT_BYTES, b"\n")

    @classmethod
    def read(cls, raw: bytes) -> _Slot | None:
        """Read a slot; None where it was never written, or not to its end."""
        if (head := _HEAD.match(raw)) is None:
            return None
        note = raw[head.end() : head.end() + int(head[2])]
        return cls(int(head[1]), note) if hashlib.sha256(note).hexdigest().encode() == head[3] else None


class FileRecord:
    """Implements `records.Record` by a file of two slots that are written in turn, in place.

    Half a write leaves the note before it, which was not answered for by then. To replace the file would take a disk
    ten times as long, once for each batch: its name, and its place on the disk, would change each time (measured).
    """

    def __init__(self, folder: Path, origin: str) -> None:
        self._path = folder / f"{_short(origin)}.checkpoint"
        self.name = str(self._path)

    def read(self) -> bytes | None:
        """Return the note that was kept last; None where there is no file."""
        try:
            if not self._path.exists():
                return None
            kept = self._slots()
        except (InputError, OSError) as error:
            raise RecordSilent(str(error)) from error
        if not any(kept):
            raise RecordSilent("it holds no checkpoint that was written to its end")
        return max(filter(None, kept)).note

    def write(self, note: bytes) -> None:
        """Keep a note in the slot that has not the newest one. Nobody else writes it: one sequencer a host."""
        try:
            first, second = self._slots() if self._path.exists() else (None, None)
            if first is None and second is None:
                raw = _Slot(1, note).to_bytes().ljust(2 * LOG_SLOT_BYTES, b"\n")
                files.replace(self._path, raw, mode=0o600, durable=True, shared=True)
                return
            newest = max(filter(None, (first, second)))
            self._overwrite(LOG_SLOT_BYTES if newest == first else 0, _Slot(newest.number + 1, note).to_bytes())
        except (InputError, OSError) as error:
            raise RecordSilent(str(error)) from error

    def close(self) -> None:
        """Nothing is open."""

    def _slots(self) -> tuple[_Slot | None, _Slot | None]:
        raw = files.read(self._path, 2 * LOG_SLOT_BYTES)
        return _Slot.read(raw[:LOG_SLOT_BYTES]), _Slot.read(raw[LOG_SLOT_BYTES:])

    def _overwrite(self, place: int, raw: bytes) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.pwrite(descriptor, raw, place) != len(raw):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)


class RedisRecord:
    """Implements `records.Record` by a key that several hosts share: it is swapped for what one knows to be there, so
    that none goes back. For the thread that uses it: it has an event loop of its own."""

    def __init__(self, url: str, origin: str) -> None:
        self.name = f"the store at {place_of(url)}"  # without its credentials
        self._key = PREFIX + b"log:" + _short(origin).encode()
        self._kept = b""
        self._runner = asyncio.Runner()
        self._client = connect(url, 1)

    def read(self) -> bytes | None:
        """Return the note that is kept; None where there is none, or anything but a text."""
        kept = self._answer(self._client.get(self._key))
        return kept if isinstance(kept, bytes) else None

    def write(self, note: bytes) -> bytes | None:
        """Replace the note that was last kept or returned: None. Where another one is there, return that instead."""
        asked = self._client.eval(_SWAP, 1, self._key, self._kept, note)  # type: ignore[arg-type]
        kept = self._answer(asked)
        if not isinstance(kept, bytes):
            raise RecordSilent("not an answer of its script")
        done = kept in {self._kept, note}
        self._kept = note if done else kept
        return None if done else kept

    def close(self) -> None:
        """Disconnect."""
        self._runner.run(self._client.aclose())
        self._runner.close()

    def _answer(self, asked: Awaitable[object]) -> object:
        try:
            return self._runner.run(asyncio.wait_for(asked, LOG_RECORD_S))
        except Failure as failure:  # its text may contain credentials, or words of the store
            raise RecordSilent(type(failure).__name__) from failure


def _short(origin: str) -> str:
    """Name a log where several may be: an origin has characters that no file name may have."""
    return hashlib.sha256(origin.encode()).hexdigest()[:32]
