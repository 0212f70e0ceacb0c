"""The places of records: a file in a folder elsewhere than the database, and the store of limits and uses."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable
from pathlib import Path

from issuer import files
from issuer.errors import InputError
from issuer.service.admission.client import connect, place_of
from issuer.service.admission.redis import PREFIX, Failure
from issuer.service.bounds import LOG_RECORD_S, LOG_RECORD_TRIES
from issuer.service.log.records import RecordSilent
from issuer.service.log.seal import Seal
from issuer.tlog.note import MAX_NOTE_BYTES

_SWAP = b"""
local kept = redis.call('GET', KEYS[1]) or ''
if kept == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end
return kept
"""


class FileRecord:
    """Implements `records.Record` by a file that is replaced in one step and synced with its folder."""

    def __init__(self, folder: Path, origin: str) -> None:
        self._path = folder / f"{_short(origin)}.checkpoint"

    @property
    def name(self) -> str:
        """The path of the file."""
        return str(self._path)

    def read(self) -> bytes | None:
        """Return the file's bytes; None where there is no file."""
        try:
            return files.read(self._path, MAX_NOTE_BYTES) if self._path.exists() else None
        except (InputError, OSError) as error:
            raise RecordSilent(str(error)) from error

    def write(self, note: bytes) -> None:
        """Replace the file. Nobody else writes it: one sequencer a host."""
        try:
            files.replace(self._path, note, mode=0o600, durable=True, shared=True)
        except OSError as error:
            raise RecordSilent(str(error)) from error

    def close(self) -> None:
        """Nothing is open."""


class RedisRecord:
    """Implements `records.Record` by a key that several hosts share: it is swapped for what one knows to be there, so
    that none goes back. For the thread that uses it: it has an event loop of its own."""

    def __init__(self, url: str, seal: Seal) -> None:
        self._place = place_of(url)
        self._seal = seal
        self._key = PREFIX + b"log:" + _short(seal.origin).encode()
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
        """Keep a note, unless a note of this log is there that is not behind it: then return that one."""
        for _ in range(LOG_RECORD_TRIES):
            asked = self._client.eval(_SWAP, 1, self._key, self._kept, note)  # type: ignore[arg-type]
            kept = self._answer(asked)
            if not isinstance(kept, bytes):
                raise RecordSilent("not an answer of its script")
            if kept in {self._kept, note}:
                self._kept = note
                return None
            self._kept = kept
            if self._size_of(kept) >= self._size_of(note):
                return kept
        raise RecordSilent("it changes all the time")

    def close(self) -> None:
        """Disconnect."""
        self._runner.run(self._client.aclose())
        self._runner.close()

    def _size_of(self, raw: bytes) -> int:
        checkpoint = self._seal.read(raw)
        return -1 if checkpoint is None else checkpoint.size

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
