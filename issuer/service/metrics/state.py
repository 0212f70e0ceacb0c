"""How one worker is, told once a second to the board: what readiness shows and what it does not, in one value.

It counts only while the worker lives and goes on telling: the last word of a dead one would look well for ever.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from issuer.errors import Undecided
from issuer.service.admission.client import Bearing, Memory
from issuer.service.admission.redis import RedisAdmission
from issuer.service.audit import FileAudit
from issuer.service.backed_up import backed_up_at
from issuer.service.bounds import METRIC_LOG_S
from issuer.service.log.announced import AnnouncingLog
from issuer.service.log.status import LogStatus
from issuer.service.metrics.board import Row
from issuer.service.metrics.counts import Counts
from issuer.service.reload import Live
from issuer.service.revocation.live import LiveRevocations, RevocationsStatus
from issuer.service.signing.life import PUBLISHED, moves_from
from issuer.service.signing.live import LiveSigner
from issuer.service.stops import LiveStops
from issuer.service.store_watch import StoreWatch
from issuer.wire import StopsStatus


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

    live: Live[Any]
    signer: LiveSigner
    revocations: LiveRevocations
    stops: LiveStops
    admission: RedisAdmission
    store: StoreWatch
    audit: FileAudit
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
        watched, active = self._watched, self._watched.live.active
        lives, folders = watched.signer.lives, watched.signer.keyring.states
        published = [life for life in map(lives.get, folders) if life is not None]
        return WorkerState(
            at=self._clock(),
            policies=PoliciesState(
                active.digest,
                active.loaded_at,
                watched.live.stale,
                len(watched.live.narrowed) if watched.live.stale else 0,
                len(active.authority.policies.policies),
            ),
            keys=tuple(
                KeyState(life.kid, life.what, life.since, moves_from(folders, lives, life.kid))
                for life in published
                if life.what in PUBLISHED
            ),
            keys_stale=watched.signer.stale,
            revocations=watched.revocations.status,
            stops=watched.stops.status,
            store=StoreState(watched.store.is_lost, self._bearing, watched.store.memory),
            log=self._log_state,
            audit_fails=watched.audit.is_failing,
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
