"""The watch over the store, for the log stream and readiness: it reports a lost, returned or filling store.

Requests do not depend on this watch: if the store is gone or full, the request is answered 503.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from statistics import median
from typing import Any, Protocol

import structlog
from msgspec import Struct
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.io.redis_client import Memory, connect, memory_of, place_of, skew_of, why_of
from issuer.service.admission.bounds import STORE_FILLS, STORE_START_S

_log = structlog.get_logger("issuer")
_UNREPORTED = "the store does not report its memory: watch it on its own machine"
_UNBOUNDED = "the store has no maxmemory: it may use all memory of its machine, which may then kill it"


class WatchedStore(Protocol):
    """The watched store. `place` is its address for people, without credentials."""

    place: str

    async def ready(self) -> None:
        """Raise Undecided if the store does not accept a write in time."""

    async def memory(self) -> Memory | None:
        """Return its memory, None if it does not report it. Raises Undecided."""


class StoreWatch:
    """Looks at a store at each `turn`, and logs changes since the last one. `memory` is its last report, if any."""

    def __init__(self, store: WatchedStore) -> None:
        self._store = store
        self._lost_at: float | None = None
        self._is_filling = False
        self.memory: Memory | None = None
        self._warnings: tuple[str, ...] = ()

    @property
    def is_lost(self) -> bool:
        """Whether the store accepted no write at the last look."""
        return self._lost_at is not None

    @property
    def status(self) -> dict[str, object]:
        """The part of the readiness answer about the store."""
        return {"warnings": self._warnings}

    async def turn(self, _asked: bool) -> None:
        """Look at the store once."""
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
        """Check whether the store fills, even if it accepts no write: a full store still reports its memory."""
        try:
            self.memory = memory = await self._store.memory()
        except Undecided:
            return
        bound = 0 if memory is None else memory.most or memory.machine
        used = memory.used / bound if memory is not None and bound else 0.0
        filling = f"the store uses {used:.0%} of its memory; when it is full, every request is answered 503"
        self._warnings = (
            *([_UNREPORTED] if memory is None else []),
            *([_UNBOUNDED] if memory is not None and not memory.most else []),
            *([filling] if used >= STORE_FILLS else []),
        )
        if memory is not None and (used >= STORE_FILLS) is not self._is_filling:
            self._is_filling = not self._is_filling
            log, event = (_log.warning, "store fills") if self._is_filling else (_log.info, "store has room")
            log(event, store=self._store.place, used_bytes=memory.used, max_bytes=bound)


# -- facts for `issuer doctor --server` --------------------------------------------------------------------------------

_PINGS = 5


class StoreFacts(Struct, frozen=True):
    """Facts about a store, read without a write: its INFO, its configuration if it reports that, and its speed."""

    place: str
    info: dict[str, Any]
    config: dict[str, str]
    memory: Memory | None
    ping_ms: float
    skew_s: int


async def ask_store(url: str) -> StoreFacts:
    """Read the facts of a store. Raises SetupError: `state.unreachable`, or `settings.invalid` for a malformed URL."""
    place, client = place_of(url), connect(url, 1)
    try:
        async with asyncio.timeout(STORE_START_S):
            pings = [await _ping(client) for _ in range(_PINGS)]
            skew_s = await skew_of(client)
            info: dict[str, Any] = {}
            for section in ("server", "replication", "persistence"):
                with suppress(ResponseError):  # managed stores may deny it
                    info |= await client.info(section)
            return StoreFacts(place, info, await _config(client), await memory_of(client), median(pings), skew_s)
    except (RedisError, OSError, TimeoutError) as failure:
        detail = f"the store at {place} does not work: {why_of(failure)}"
        raise SetupError(Code.STATE_UNREACHABLE, detail) from failure
    finally:
        await client.aclose()


async def _ping(client: Redis) -> float:
    began = time.monotonic()
    await client.ping()
    return (time.monotonic() - began) * 1000


async def _config(client: Redis) -> dict[str, str]:
    config: dict[str, str] = {}
    for name in ("maxmemory-policy", "appendonly", "appendfsync"):
        with suppress(ResponseError):
            config.update((name, str(value)) for value in (await client.config_get(name)).values())
    return config
