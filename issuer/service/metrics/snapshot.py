"""The board as it is now, for whoever shows it: what was counted, and how those workers are that live."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

import msgspec
from msgspec import Struct

from issuer.service.bounds import SILENT_S
from issuer.service.metrics.board import Board, Key
from issuer.service.metrics.state import WorkerState

_decode = msgspec.msgpack.Decoder(WorkerState).decode


class Snapshot(Struct, frozen=True):
    """The numbers of each key, the workers that have just said how they are, how many there should be, and when it was
    (time.monotonic())."""

    counted: dict[Key, list[int]]
    states: list[WorkerState]
    expected: int
    now: float


class BoardReader:
    """Reads a board, for several threads."""

    def __init__(self, board: Board, clock: Callable[[], float] = time.monotonic) -> None:
        self._board = board
        self._clock = clock
        self._lock = Lock()

    def read(self) -> Snapshot:
        """Return everything as it is now."""
        with self._lock:  # the board's reader remembers how far it has read
            counted, told = self._board.counted(), self._board.told()
        now = self._clock()
        states = [state for state in map(_decode, told) if now - state.at <= SILENT_S]
        return Snapshot(counted, states, len(self._board.rows), now)
