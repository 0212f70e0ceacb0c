"""The store as the log and readiness tell it: when it went and came back, and when it fills. What a request meets, its
answer says: a full store is 503."""

from __future__ import annotations

import time
from typing import Protocol

import structlog

from issuer.errors import Undecided
from issuer.service.admission.client import Memory
from issuer.service.bounds import STORE_FILLS

_log = structlog.get_logger("issuer")
_UNTOLD = "the store does not tell its memory: watch it where it runs"
_UNBOUNDED = "the store has no maxmemory: what it takes is bounded by its machine alone, which may end it"


class Store(Protocol):
    """What is watched; `place` is for people."""

    @property
    def place(self) -> str:
        """Where it is."""

    async def ready(self) -> None:
        """Raise Undecided where it takes no write in time."""

    async def memory(self) -> Memory | None:
        """Return its memory, None where it does not tell. Raises Undecided."""


class StoreWatch:
    """Looks at a store once a turn, and writes a line where it is another than at the turn before. `memory` is what it
    told last, None where it does not."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lost_at: float | None = None
        self._fills = False
        self.memory: Memory | None = None
        self._warnings: tuple[str, ...] = ()

    @property
    def is_lost(self) -> bool:
        """Whether it took no write at the last look."""
        return self._lost_at is not None

    @property
    def status(self) -> dict[str, object]:
        """What readiness shows."""
        return {"warnings": self._warnings}

    async def turn(self, _asked: bool) -> None:
        """Look once."""
        try:
            await self._store.ready()
        except Undecided as error:
            if self._lost_at is None:
                self._lost_at = time.monotonic()
                _log.error("store lost", store=self._store.place, why=error.detail,
                           next="requests are answered 503 until it is back")  # fmt: skip
        else:
            if self._lost_at is not None:
                _log.info("store back", store=self._store.place, lost_s=round(time.monotonic() - self._lost_at, 1))
                self._lost_at = None
        await self._look_at_memory()

    async def _look_at_memory(self) -> None:
        """Look whether it fills, also where it takes no write: a full one tells its memory all the same."""
        try:
            self.memory = memory = await self._store.memory()
        except Undecided:
            return
        used = 0.0 if memory is None else _used(memory)
        filling = f"the store uses {used:.0%} of its memory; when it is full, every request is answered 503"
        self._warnings = (
            *([_UNTOLD] if memory is None else []),
            *([_UNBOUNDED] if memory is not None and not memory.most else []),
            *([filling] if used >= STORE_FILLS else []),
        )
        if memory is not None and (used >= STORE_FILLS) is not self._fills:
            self._fills = not self._fills
            tell, event = (_log.warning, "store fills") if self._fills else (_log.info, "store has room")
            tell(event, store=self._store.place, used_bytes=memory.used, max_bytes=memory.most or memory.machine)


def _used(memory: Memory) -> float:
    """Return which part of its bound is used, where none is set of its machine's memory."""
    most = memory.most or memory.machine
    return memory.used / most if most else 0.0
