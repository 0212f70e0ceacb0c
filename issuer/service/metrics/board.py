"""Counts in memory that all processes of a service share: a row for each worker, which alone writes there.

A row outlives its worker. The next one in its place finds the counts and goes on with them: a worker that dies loses
none. What a row says of its worker, and not of what happened, counts only while that worker lives (`told`).

prometheus_client's files were weighed: a full disk ends a process that writes to them (SIGBUS), and each worker that
dies leaves a set behind. Here is no file, no lock, and one writer for each number. A number is eight aligned bytes, so
that a reader sees it before or after an addition, and never in between.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from issuer.service.bounds import METRIC_KEY_BYTES, METRIC_NUMBERS, METRIC_SPARE_BYTES, METRIC_SPARE_NUMBERS
from issuer.service.bounds import METRIC_STATE_BYTES as STATE_BYTES

# The name of a metric, and the value of each of its labels.
Key = tuple[str, ...]
# In place of the last label's value where a row has no room for one more; and that value where nobody is named. For
# these two there is always room.
OTHER, NOBODY = "(other)", "-"
# A row: bytes of keys that are there; a number that is odd while the state is written, the length of the state, and the
# pid that wrote it; then keys, numbers and state.
_USED, _VERSION, _LENGTH, _PID = range(4)
_KEYS_AT = 4 * 8
_NUMBERS_AT = _KEYS_AT + METRIC_KEY_BYTES
_STATE_AT = _NUMBERS_AT + METRIC_NUMBERS * 8
_ROW_END = _STATE_AT + STATE_BYTES
_SIZE = struct.Struct("<I")


class _Written(Struct, frozen=True, array_like=True):
    """A key as it stands in a row; its numbers are the next `width` ones."""

    key: Key
    width: int


_read = msgspec.msgpack.Decoder(_Written).decode
_write = msgspec.msgpack.Encoder().encode


class Row:
    """One worker's row, and the `memory` that it is. `numbers` are 64-bit integers; those of a key begin where `place`
    says."""

    def __init__(self, memory: memoryview) -> None:
        self.memory = memory
        self.head = memory[:_KEYS_AT].cast("q")
        self._keys = memory[_KEYS_AT:_NUMBERS_AT]
        self.numbers = memory[_NUMBERS_AT:_STATE_AT].cast("q")
        self._state = memory[_STATE_AT:]
        self._places: dict[Key, tuple[int, int]] = {}
        self._read_to = self._numbers_used = 0

    # -- its worker ----------------------------------------------------------------------------------------------------

    def place(self, *key: str, width: int = 1) -> int:
        """Return where the numbers of a key begin; where there is no room for it, those of `OTHER` in the place of its
        last label."""
        self._catch_up()
        if (found := self._places.get(key)) is not None:
            return found[0]
        if not self._has_room(key, width):
            return self.place(*key[:-1], OTHER, width=width)
        raw = _write(_Written(key, width))
        end = self._read_to + _SIZE.size + len(raw)
        self._keys[self._read_to : end] = _SIZE.pack(len(raw)) + raw
        self.head[_USED] = end  # last: a reader, or a worker after this one, sees all of a key or nothing
        self._catch_up()
        return self._places[key][0]

    def _has_room(self, key: Key, width: int) -> bool:
        spare_bytes, spare = (
            (0, 0) if key[-1] in {OTHER, NOBODY} or width > 1 else (METRIC_SPARE_BYTES, METRIC_SPARE_NUMBERS)
        )
        used = self._read_to + sum(map(len, key)) * 4 + 64
        return used <= len(self._keys) - spare_bytes and self._numbers_used + width <= len(self.numbers) - spare

    def tell(self, state: bytes) -> None:
        """Write how this worker is. What is longer than its place is left out."""
        if len(state) <= STATE_BYTES:
            self.head[_VERSION] += 1 + self.head[_VERSION] % 2
            self._state[: len(state)] = state
            self.head[_LENGTH], self.head[_PID] = len(state), os.getpid()
            self.head[_VERSION] += 1

    # -- who reads it --------------------------------------------------------------------------------------------------

    def counted(self) -> Iterator[tuple[Key, list[int]]]:
        """Yield each key with its numbers."""
        self._catch_up()
        for key, (place, width) in self._places.items():
            yield key, self.numbers[place : place + width].tolist()

    def told(self) -> bytes | None:
        """Return how its worker is; None where no worker lives that has said so, or while it says so."""
        version = self.head[_VERSION]
        state = bytes(self._state[: self.head[_LENGTH]])
        if version == 0 or version % 2 or version != self.head[_VERSION]:
            return None
        return state if _is_alive(self.head[_PID]) else None

    def _catch_up(self) -> None:
        used = self.head[_USED]
        while self._read_to < used:
            begin = self._read_to + _SIZE.size
            (size,) = _SIZE.unpack_from(self._keys, self._read_to)
            written = _read(self._keys[begin : begin + size])
            self._places[written.key] = (self._numbers_used, written.width)
            self._numbers_used += written.width
            self._read_to = begin + size


class Board:
    """The rows of so many workers. It is made before they are forked."""

    def __init__(self, workers: int = 1) -> None:
        memory = memoryview(mmap.mmap(-1, workers * _ROW_END))
        self.rows = [Row(memory[at : at + _ROW_END]) for at in range(0, len(memory), _ROW_END)]

    def counted(self) -> dict[Key, list[int]]:
        """Return the numbers of each key, of all workers together, of those that are gone, too."""
        sums: dict[Key, list[int]] = {}
        for row in self.rows:
            for key, numbers in row.counted():
                before = sums.get(key)
                sums[key] = (
                    numbers if before is None else [one + other for one, other in zip(before, numbers, strict=True)]
                )
        return sums

    def told(self) -> list[bytes]:
        """Return what each living worker says of itself; one that is just writing is asked again."""
        return [state for row in self.rows for state in [row.told() or row.told() or row.told()] if state is not None]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != 0
