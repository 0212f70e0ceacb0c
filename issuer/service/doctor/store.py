"""The store of limits and uses, asked without a write: its version, role, eviction, persistence, memory, clock."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

from issuer.codes import Code
from issuer.diagnosis import Line, failed
from issuer.errors import IssuerError, SetupError
from issuer.service.admission.told import Told, ask_store
from issuer.service.bounds import DOCTOR_SLOW_MS, DOUBTFUL_SKEW_S, MOST_SKEW_S, STORE_FILLS
from issuer.service.settings import EMBEDDED, Settings, Store

LEAST_VERSION = (6, 2)


def look_at_store(settings: Settings) -> Iterator[Line]:
    """Yield what keeps the store from remembering, or from answering in time."""
    if settings.store.url == EMBEDDED:
        step = "Run a Valkey, and name it as `store.url`: `unix:///run/valkey/valkey.sock`."
        yield Line("store", "warning", "embedded: it forgets when the service stops, and is nobody else's", step)
        return
    try:
        told = asyncio.run(ask_store(settings.store.url))
    except IssuerError as error:
        yield failed("store", error)
        return
    yield Line("store", "pass", f"{told.place} answers")
    for look in (_version, _role, _eviction, _persistence, _replicas, _memory, _latency, _clock):
        yield look(told, settings.store)


def _unsafe(name: str, detail: str, step: str) -> Line:
    return failed(name, SetupError(Code.STATE_UNSAFE, detail), step=step)


def _version(told: Told, _: Store) -> Line:
    version = str(told.info.get("valkey_version") or told.info.get("redis_version") or "")
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if not numbers:
        return Line("store version", "warning", "it does not tell its version", "Make sure that it is 6.2 or later.")
    if numbers < LEAST_VERSION:
        return _unsafe("store version", f"{version} is too old", "Run Valkey, or Redis 6.2 or later.")
    return Line("store version", "pass", version)


def _role(told: Told, _: Store) -> Line:
    role = told.info.get("role")
    if role == "slave":
        step = "Name the master as `store.url`, or let Sentinels do it: redis+sentinel://."
        return _unsafe("store role", "it is a replica: it takes no write, so no use can be remembered", step)
    if role is None:
        return Line("store role", "warning", "it does not tell its role", "Make sure that it is a master.")
    return Line("store role", "pass", str(role))


def _eviction(told: Told, store: Store) -> Line:
    policy = told.config.get("maxmemory-policy")
    if policy is None and not store.noeviction_stated:
        step = "Make sure that it is noeviction, then set `store.noeviction_stated: true`."
        return _unsafe("store eviction", "it does not tell its maxmemory-policy", step)
    if policy not in {None, "noeviction"}:
        step = "Run `valkey-cli CONFIG SET maxmemory-policy noeviction`, and write it into its configuration."
        return _unsafe("store eviction", f"maxmemory-policy is {policy}: a use that is evicted can be replayed", step)
    return Line("store eviction", "pass", "noeviction" if policy else "stated to be noeviction")


def _persistence(told: Told, store: Store) -> Line:
    is_on = told.config.get("appendonly") == "yes" or told.info.get("aof_enabled") == 1
    if not is_on and store.durable and not told.info.get("connected_slaves"):
        step = "Run it with `appendonly yes` and `appendfsync always`, or set `store.durable: false`."
        return _unsafe("store persistence", "store.durable is stated, and it writes nothing to the disk", step)
    if not is_on:
        detail = "no append-only file: after its restart CI jobs need fresh identity tokens, and limits begin anew"
        return Line("store persistence", "warning", detail, "Run it with `appendonly yes`.")
    sync = told.config.get("appendfsync", "not told")
    if store.durable and sync not in {"always", "not told"} and not store.wait_replicas:
        detail = f"store.durable is stated, and with appendfsync {sync} a crash loses a second"
        return Line("store persistence", "warning", detail, "Set `appendfsync always`.")
    return Line("store persistence", "pass", f"append-only file, appendfsync {sync}")


def _replicas(told: Told, store: Store) -> Line:
    count = int(told.info.get("connected_slaves", 0))
    if count < store.wait_replicas:
        detail = f"store.wait_replicas is {store.wait_replicas}, and {count} are connected: no token is issued"
        return _unsafe("store replicas", detail, "Bring the replica back, or set `store.wait_replicas` lower.")
    return Line("store replicas", "pass", f"{count} connected, {store.wait_replicas} waited for")


def _memory(told: Told, _: Store) -> Line:
    memory = told.memory
    if memory is None:
        return Line("store memory", "warning", "it does not tell its memory", "Watch it where it runs.")
    if not memory.most:
        step = "Set `maxmemory`, so that nothing but the store meets it."
        return Line("store memory", "warning", "it has no maxmemory: its machine alone bounds it", step)
    used = memory.used / memory.most
    if used >= STORE_FILLS:
        step = "Give it more `maxmemory`: a full store answers every request 503."
        return Line("store memory", "warning", f"{used:.0%} of its memory is used", step)
    return Line("store memory", "pass", f"{used:.0%} of {memory.most // 2**20} MiB is used")


def _latency(told: Told, _: Store) -> Line:
    if told.ping_ms > DOCTOR_SLOW_MS:
        step = "Run it near the service: each request waits for it."
        return Line("store latency", "warning", f"{told.ping_ms:.1f} ms for an answer", step)
    return Line("store latency", "pass", f"{told.ping_ms:.1f} ms for an answer")


def _clock(told: Told, _: Store) -> Line:
    way = "ahead of" if told.skew_s > 0 else "behind"
    detail = f"{abs(told.skew_s)} s {way} this machine's"
    step = "Set both clocks, by NTP: what is used and what is expired is judged by them."
    if abs(told.skew_s) > MOST_SKEW_S:
        return _unsafe("store clock", detail, step)
    if abs(told.skew_s) > DOUBTFUL_SKEW_S:
        return Line("store clock", "warning", detail, step)
    return Line("store clock", "pass", "as this machine's")
