"""The store as the log tells it: when it went, and when it came back. What a request meets, its answer says."""

from __future__ import annotations

import time
from typing import Protocol

import structlog

from issuer.errors import Undecided

_log = structlog.get_logger("issuer")


class Store(Protocol):
    """What is watched; `place` is for people."""

    @property
    def place(self) -> str:
        """Where it is."""

    async def ready(self) -> None:
        """Raise Undecided where it takes no write in time."""


class StoreWatch:
    """Looks at a store once a turn, and writes a line where it is another than at the turn before."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lost_at: float | None = None

    async def turn(self, _asked: bool) -> None:
        """Look once."""
        try:
            await self._store.ready()
        except Undecided:
            if self._lost_at is None:
                self._lost_at = time.monotonic()
                _log.error("store lost", store=self._store.place, next="requests are answered 503 until it is back")
            return
        if self._lost_at is not None:
            _log.info("store back", store=self._store.place, lost_s=round(time.monotonic() - self._lost_at, 1))
            self._lost_at = None
