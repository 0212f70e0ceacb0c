"""The state of each worker, written to the board once a second, and the reader of the whole board.

A state is valid only while its worker lives and writes. Otherwise a dead worker's last state would look good for ever.
"""

from __future__ import annotations

import os
import shutil
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
from issuer.service.metrics.counts import Board, Counters, Key, Row
from issuer.service.revocation.active_list import LiveRevocations, RevocationsStatus
from issuer.service.signing.active_keys import LiveSigner
from issuer.service.signing.lifecycle import STATES, moves_from
from issuer.token.wire import StopsStatus


class PoliciesState(Struct, frozen=True):
    """The policies in force, as readiness shows them, and the number of integrations."""

    digest: str
    loaded_at: int
    stale: bool
    narrowed: int
    integrations: int


class KeyState(Struct, frozen=True):
    """A published key, its state since a time (Unix seconds), and from when it may enter the next one."""

    kid: str
    state: str
    since: int
    moves_from: int | None


class StoreState(Struct, frozen=True):
    """Whether the store accepted no write at the last look, and its last report about itself."""

    is_lost: bool
    bearing: Bearing | None
    memory: Memory | None


class LogState(Struct, frozen=True):
    """Whether the log could append no leaf at the last look, and its last known status."""

    is_lost: bool
    status: LogStatus | None
    looked_at: float


class WorkerState(Struct, frozen=True):
    """The state of a worker. `at` is time.monotonic(), which all processes of a host share."""

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


class StateSources(Struct, frozen=True):
    """The parts of a worker that its state is read from."""

    policies: Callable[[], PoliciesState]
    signer: LiveSigner
    revocations: LiveRevocations
    stops: Callable[[], StopsStatus]
    admission: RedisAdmission
    store: StoreWatch
    audit_fails: Callable[[], bool]
    log: AnnouncingLog | None
    data: Path


class StateWriter:
    """Writes the state of a worker to the board. Its owner calls `turn` once a second."""

    def __init__(
        self, row: Row, counts: Counters, sources: StateSources, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._row = row
        self._counts = counts
        self._sources = sources
        self._clock = clock
        self._bearing: Bearing | None = None
        self._log_state: LogState | None = None
        self._cpu_ns = 0

    async def turn(self, _asked: bool) -> None:
        """Read and write the state once."""
        with suppress(Undecided):
            self._bearing = await self._sources.admission.bearing()
        await self._look_at_log()
        cpu_ns = time.process_time_ns()
        self._counts.cpu_ns.add(cpu_ns - self._cpu_ns)
        self._cpu_ns = cpu_ns
        self._row.write_state(msgspec.msgpack.encode(self._state()))

    async def _look_at_log(self) -> None:
        log, before, now = self._sources.log, self._log_state, self._clock()
        if log is None or (before is not None and now - before.looked_at < METRIC_LOG_S):
            return
        is_lost = False
        try:
            await log.check()
        except Undecided:
            is_lost = True
        self._log_state = LogState(is_lost, log.status, now)

    def _state(self) -> WorkerState:
        sources = self._sources
        lives, folders = sources.signer.lives, sources.signer.keyring.states
        published = [lives[kid] for kid in folders if kid in lives and lives[kid].what in STATES]
        return WorkerState(
            at=self._clock(),
            policies=sources.policies(),
            keys=tuple(
                KeyState(life.kid, life.what, life.since, moves_from(folders, lives, life.kid)) for life in published
            ),
            keys_stale=sources.signer.stale,
            revocations=sources.revocations.status,
            stops=sources.stops(),
            store=StoreState(sources.store.is_lost, self._bearing, sources.store.memory),
            log=self._log_state,
            audit_fails=sources.audit_fails(),
            data_free_bytes=_free_bytes(sources.data),
            backed_up_at=backed_up_at(sources.data),
            resident_bytes=_resident_bytes(),
        )


def _free_bytes(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0


_decode = msgspec.msgpack.Decoder(WorkerState).decode


class Snapshot(Struct, frozen=True):
    """The numbers of each key, the states of all reporting workers, their expected number, and time.monotonic()."""

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
        """Return the current contents of the board."""
        with self._lock:  # a row records how far it has been read
            counted, states = self._board.counted(), self._board.states()
        now = self._clock()
        fresh = [state for state in map(_decode, states) if now - state.at <= SILENT_S]
        return Snapshot(counted, fresh, len(self._board.rows), now)
