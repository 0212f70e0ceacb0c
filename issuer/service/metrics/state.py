"""The state of each worker: written once a second to the board, and read from there with what was counted.

A state counts only while its worker lives and goes on writing: the last one of a dead worker would look well for ever.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock

import msgspec
from msgspec import Struct

from issuer.errors import Undecided
from issuer.io.backup_age import backed_up_at
from issuer.io.bounds import SILENT_S
from issuer.io.redis_client import Bearing, Memory
from issuer.service.admission.redis import RedisAdmission
from issuer.service.admission.store_watch import StoreWatch
from issuer.service.log.client import AnnouncingLog, LogStatus
from issuer.service.metrics.bounds import METRIC_LOG_S
from issuer.service.metrics.counts import Board, Counts, Key, Row
from issuer.service.revocation.active_list import LiveRevocations, RevocationsStatus
from issuer.service.signing.active_keys import LiveSigner
from issuer.service.signing.lifecycle import STATES, moves_from
from issuer.token.wire import StopsStatus


class PoliciesState(Struct, frozen=True):
    """Which policies decide, as readiness shows them, and how many integrations they are."""

    digest: str
    loaded_at: int
    stale: bool
    narrowed: int
    integrations: int


class KeyState(Struct, frozen=True):
    """A key that is published: the state that the history has, since Unix seconds; and from when it may come into the
    next one (`life.moves_from`)."""

    kid: str
    state: str
    since: int
    moves_from: int | None


class StoreState(Struct, frozen=True):
    """Whether the store took a write at the last look, and what it said of itself when it last did."""

    is_lost: bool
    bearing: Bearing | None
    memory: Memory | None


class LogState(Struct, frozen=True):
    """Whether a leaf could be appended at the last look, and what was found when one last could."""

    is_lost: bool
    status: LogStatus | None
    looked_at: float


class WorkerState(Struct, frozen=True):
    """How a worker is. `at` is time.monotonic(), which all processes of a host share."""

    at: float
    policies: PoliciesState
    keys: tuple[KeyState, ...]
    keys_stale: bool
    revocations: RevocationsStatus
    stops: StopsStatus
    store: StoreState
    log: LogState | None
    audit_fails: bool
    data_free_bytes: int
    backed_up_at: int | None
    resident_bytes: int


class Watched(Struct, frozen=True):
    """What is asked how it is."""

    policies: Callable[[], PoliciesState]
    signer: LiveSigner
    revocations: LiveRevocations
    stops: Callable[[], StopsStatus]
    admission: RedisAdmission
    store: StoreWatch
    audit_fails: Callable[[], bool]
    log: AnnouncingLog | None
    data: Path


class Teller:
    """Tells the board how a worker is; `turn` is to be called once a second."""

    def __init__(self, row: Row, counts: Counts, watched: Watched, clock: Callable[[], float] = time.monotonic) -> None:
        self._row = row
        self._counts = counts
        self._watched = watched
        self._clock = clock
        self._bearing: Bearing | None = None
        self._log_state: LogState | None = None
        self._cpu_ns = 0

    async def turn(self, _asked: bool) -> None:
        """Look, and tell."""
        with suppress(Undecided):
            self._bearing = await self._watched.admission.bearing()
        await self._look_at_log()
        spent = time.process_time_ns()
        self._counts.cpu_ns.add(spent - self._cpu_ns)
        self._cpu_ns = spent
        self._row.tell(msgspec.msgpack.encode(self._state()))

    async def _look_at_log(self) -> None:
        log, before, now = self._watched.log, self._log_state, self._clock()
        if log is None or (before is not None and now - before.looked_at < METRIC_LOG_S):
            return
        try:
            await log.check()
        except Undecided:
            self._log_state = LogState(True, log.status, now)
        else:
            self._log_state = LogState(False, log.status, now)

    def _state(self) -> WorkerState:
        watched = self._watched
        lives, folders = watched.signer.lives, watched.signer.keyring.states
        published = [life for life in map(lives.get, folders) if life is not None]
        return WorkerState(
            at=self._clock(),
            policies=watched.policies(),
            keys=tuple(
                KeyState(life.kid, life.what, life.since, moves_from(folders, lives, life.kid))
                for life in published
                if life.what in STATES
            ),
            keys_stale=watched.signer.stale,
            revocations=watched.revocations.status,
            stops=watched.stops(),
            store=StoreState(watched.store.is_lost, self._bearing, watched.store.memory),
            log=self._log_state,
            audit_fails=watched.audit_fails(),
            data_free_bytes=_free_bytes(watched.data),
            backed_up_at=backed_up_at(watched.data),
            resident_bytes=_resident_bytes(),
        )


def _free_bytes(folder: Path) -> int:
    try:
        space = os.statvfs(folder)
    except OSError:
        return 0
    return space.f_bavail * space.f_frsize


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0


# -- the board as it is now --------------------------------------------------------------------------------------------

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
