"""The store as the log and readiness tell it: when it went and came back, and when it fills. What a request meets, its
answer says: a full store is 503."""

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


# -- told --------------------------------------------------------------------------------------------------------------

# What a store tells of itself, asked without a write: for `issuer doctor --server`, which judges it.

_PINGS = 5


class Told(Struct, frozen=True):
    """What a store told: its INFO, its configuration where it tells that, and how it answers."""

    place: str
    info: dict[str, Any]
    config: dict[str, str]
    memory: Memory | None
    ping_ms: float
    skew_s: int


async def ask_store(url: str) -> Told:
    """Ask the store at a URL. Raises SetupError: `state.unreachable`, and `settings.invalid` for what is no URL."""
    place, client = place_of(url), connect(url, 1)
    try:
        async with asyncio.timeout(STORE_START_S):
            pings = [await _ping(client) for _ in range(_PINGS)]
            skew_s = await skew_of(client)
            info: dict[str, Any] = {}
            for section in ("server", "replication", "persistence"):
                with suppress(ResponseError):  # denied, as managed stores do
                    info |= await client.info(section)
            return Told(place, info, await _config(client), await memory_of(client), median(pings), skew_s)
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
    found: dict[str, str] = {}
    for name in ("maxmemory-policy", "appendonly", "appendfsync"):
        with suppress(ResponseError):
            told = await client.config_get(name)
            found.update((name, str(value)) for value in told.values())
    return found
