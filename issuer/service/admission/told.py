"""What a store tells of itself, asked without a write: for `issuer doctor --server`, which judges it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from statistics import median
from typing import Any

from msgspec import Struct
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.service.admission.client import Memory, connect, memory_of, place_of, skew_of, why_of
from issuer.service.bounds import STORE_START_S

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
