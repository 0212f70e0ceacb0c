"""The places of records: a file in a folder elsewhere than the database, and the store of limits and uses."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
from collections.abc import Awaitable
from pathlib import Path
from typing import NamedTuple

from issuer import files
from issuer.errors import InputError
from issuer.service.admission.client import connect, place_of
from issuer.service.admission.redis import Failure
from issuer.service.admission.script import PREFIX
from issuer.service.bounds import LOG_RECORD_S, LOG_SLOT_BYTES
from issuer.service.log.records import RecordSilent

_SWAP = b"""
local kept = redis.call('GET', KEYS[1]) or ''
if kept == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end
return kept
"""


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


_HEAD = re.compile(rb"([0-9]{20}) ([0-9]{4}) ([0-9a-f]{64})\n")


class FileRecord:
    """Implements `records.Record` by a file of two slots that are written in turn, in place.

    Half a write leaves the note before it, which was not answered for by then. To replace the file would take a disk
    ten times as long, once for each batch: its name, and its place on the disk, would change each time (measured).
    """

    def __init__(self, folder: Path, origin: str) -> None:
        self._path = folder / f"{_short(origin)}.checkpoint"

    @property
    def name(self) -> str:
        """The path of the file."""
        return str(self._path)

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
        self._place = place_of(url)
        self._key = PREFIX + b"log:" + _short(origin).encode()
        self._kept = b""
        self._runner = asyncio.Runner()
        self._client = connect(url, 1)

    @property
    def name(self) -> str:
        """The store, without its credentials."""
        return f"the store at {self._place}"

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
            return self._runner.run(_in_time(asked))
        except Failure as failure:  # its text may contain credentials, or words of the store
            raise RecordSilent(type(failure).__name__) from failure


async def _in_time(asked: Awaitable[object]) -> object:
    async with asyncio.timeout(LOG_RECORD_S):
        return await asked


def _short(origin: str) -> str:
    """Name a log where several may be: an origin has characters that no file name may have."""
    return hashlib.sha256(origin.encode()).hexdigest()[:32]
