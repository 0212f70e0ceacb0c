"""The log's signed checkpoints, and the records that keep the newest one outside its database.

A database cannot know that an older copy replaced it. A record that is ahead of it proves that, and so does a record
whose tree is not a prefix of the database's. Only a note that verifies under the log's key is evidence; any other note
is logged and ignored.
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
from issuer.service.log.database.store import TreeHead
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
    """The key of one log. Its name is the log's origin line."""

    def __init__(self, signer: NoteSigner) -> None:
        self._signer = signer
        self.origin = signer.name
        self.verifier = signer.verifier

    def sign(self, head: TreeHead) -> bytes:
        """Return the signed checkpoint of a committed head. Ed25519 is deterministic, so one head has one note."""
        text = Checkpoint(head.origin, head.size, head.root).to_text()
        return Note(text, (self._signer.sign(text),)).to_bytes()

    def read(self, raw: bytes) -> Checkpoint | None:
        """Return the checkpoint of a note; None if this log did not sign it."""
        try:
            note = parse_note(raw)
            verify_note(note, (self.verifier,))
            checkpoint = parse_checkpoint(note.text)
        except FormatError:
            return None
        return checkpoint if checkpoint.origin == self.origin else None


# -- all records of a log ----------------------------------------------------------------------------------------------


class RecordSilent(Exception):
    """A record does not answer, or did not keep a note."""


class HeadRecord(Protocol):
    """One place that keeps the newest checkpoint. `name` is for people."""

    name: str

    def read(self) -> bytes | None:
        """Return the kept note, or None. Raises RecordSilent."""

    def write(self, note: bytes) -> bytes | None:
        """Keep a note as durably as this place can, and return None. If somebody else has changed the record, leave it
        and return its content (b"": empty); the caller compares it and writes again. Raises RecordSilent."""

    def close(self) -> None:
        """Disconnect, if connected."""


class Evidence(Struct, frozen=True):
    """A published checkpoint, and the name of the record that shows it."""

    name: str
    checkpoint: Checkpoint


class Records:
    """All records of one log."""

    def __init__(self, seal: Seal, records: Sequence[HeadRecord]) -> None:
        self._seal = seal
        self._records = tuple(records)
        self.names = tuple(record.name for record in self._records)

    def ask(self) -> tuple[Evidence, ...]:
        """Return the evidence of the records that answer."""
        return tuple(evidence for record in self._records if (evidence := self._ask(record)))

    def raise_to(self, note: bytes, demand: Callable[[Evidence], object]) -> None:
        """Make every record keep this note, which the log has signed. If another host has published a checkpoint
        meanwhile, `demand` receives it, and raises if it is of another tree; the record keeps the larger one. Raises
        RecordSilent if one record fails, as a later rollback of this checkpoint could go unnoticed."""
        for record in reversed(self._records):  # this host's own record last: it must not keep a refused note
            self._raise(record, note, demand)

    def close(self) -> None:
        """Disconnect from all."""
        for record in self._records:
            record.close()

    def _raise(self, record: HeadRecord, note: bytes, demand: Callable[[Evidence], object]) -> None:
        for _ in range(LOG_RECORD_TRIES):
            if (raw := record.write(note)) is None:
                return
            if raw and (evidence := self.judge(record.name, raw)):
                demand(evidence)
                own = self._seal.read(note)
                if own is None or evidence.checkpoint.size >= own.size:
                    return
        raise RecordSilent(f"other hosts changed {record.name} before each try")

    def _ask(self, record: HeadRecord) -> Evidence | None:
        try:
            raw = record.read()
        except RecordSilent as error:
            _log.error("log record silent", record=record.name, reason=str(error))
            return None
        return None if raw is None else self.judge(record.name, raw)

    def judge(self, name: str, raw: bytes) -> Evidence | None:
        """Return a note as evidence; log it and return None if this log did not sign it."""
        if (checkpoint := self._seal.read(raw)) is None:
            _log.error("log record not signed by this log", record=name)
            return None
        return Evidence(name, checkpoint)


# -- the places of records: a file outside the folder of the database, and the store of limits and uses ----------------


class _Slot(NamedTuple):
    """One half of a record's file: a note, which was the `number`th that the record kept."""

    number: int
    note: bytes

    def to_bytes(self) -> bytes:
        """Return the slot in its full size. Raises RecordSilent if the note is too long."""
        head = b"%020d %04d %b\n" % (self.number, len(self.note), hashlib.sha256(self.note).hexdigest().encode())
        if len(head) + len(self.note) > LOG_SLOT_BYTES:
            raise RecordSilent(f"a checkpoint of {len(self.note)} bytes is too long for it")
        return (head + self.note).ljust(LOG_SLOT_BYTES, b"\n")

    @classmethod
    def read(cls, raw: bytes) -> _Slot | None:
        """Read a slot; None if it was never written, or only in part."""
        if (head := _HEAD.match(raw)) is None:
            return None
        note = raw[head.end() : head.end() + int(head[2])]
        return cls(int(head[1]), note) if hashlib.sha256(note).hexdigest().encode() == head[3] else None


class FileRecord:
    """Implements `HeadRecord` with a file of two slots that are written alternately, in place. An interrupted write
    leaves the previous note; the new one was not published yet. To replace the file would take ten times as long for
    each batch, because its name and its place on the disk would change (measured)."""

    def __init__(self, folder: Path, origin: str) -> None:
        self._path = folder / f"{_short(origin)}.checkpoint"
        self.name = str(self._path)

    def read(self) -> bytes | None:
        """Return the note that was kept last; None if the file does not exist."""
        try:
            if not self._path.exists():
                return None
            slots = self._slots()
        except (InputError, OSError) as error:
            raise RecordSilent(str(error)) from error
        if not any(slots):
            raise RecordSilent("it does not have a complete checkpoint")
        return max(filter(None, slots)).note

    def write(self, note: bytes) -> None:
        """Keep a note in the older slot. A host has one sequencer, so the file has no other writer."""
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
        """Do nothing: the file is not kept open."""

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
    """Implements `HeadRecord` with a key that several hosts share. Each host replaces only a note that it knows, so the
    record never goes back. For one thread; it has its own event loop."""

    def __init__(self, url: str, origin: str) -> None:
        self.name = f"the store at {place_of(url)}"  # without its credentials
        self._key = PREFIX + b"log:" + _short(origin).encode()
        self._kept = b""
        self._runner = asyncio.Runner()
        self._client = connect(url, 1)

    def read(self) -> bytes | None:
        """Return the kept note; None if the key does not have a string."""
        kept = self._answer(self._client.get(self._key))
        return kept if isinstance(kept, bytes) else None

    def write(self, note: bytes) -> bytes | None:
        """Replace the note that was last kept or returned, and return None. If another note is there, return that."""
        reply = self._client.eval(_SWAP, 1, self._key, self._kept, note)  # type: ignore[arg-type]
        kept = self._answer(reply)
        if not isinstance(kept, bytes):
            raise RecordSilent("its answer is not from the script")
        done = kept in {self._kept, note}
        self._kept = note if done else kept
        return None if done else kept

    def close(self) -> None:
        """Disconnect."""
        self._runner.run(self._client.aclose())
        self._runner.close()

    def _answer(self, reply: Awaitable[object]) -> object:
        try:
            return self._runner.run(asyncio.wait_for(reply, LOG_RECORD_S))
        except Failure as failure:  # its text may contain credentials or text from the store
            raise RecordSilent(type(failure).__name__) from failure


def _short(origin: str) -> str:
    """Return a short name for a log: an origin may have characters that file names cannot have."""
    return hashlib.sha256(origin.encode()).hexdigest()[:32]
