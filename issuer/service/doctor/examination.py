"""All checks of `issuer doctor --server`, in the order of their dependencies.

This file has the checks of disk space, the backup, the store (without a write), the providers, this machine's clock,
the service's address and the proxy. `paths.py` and `records.py` have the others.
"""

from __future__ import annotations

import asyncio
import ctypes
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from msgspec import UNSET

from issuer.codes import Code
from issuer.errors import InputError, IssuerError, SetupError, Undecided
from issuer.formats.findings import Line, failed, looked, surviving
from issuer.formats.times import show_span
from issuer.formats.url import is_loopback
from issuer.identity.table import KeySource, Provider
from issuer.io.backup_age import backed_up_at
from issuer.io.bounds import FEW_FREE_BYTES, MIN_FREE_BYTES, MOST_SKEW_S
from issuer.io.fetch import FAILURES, reason
from issuer.io.http_client import HttpRequest, NoAnswer, send
from issuer.io.sockets import listen_addresses
from issuer.policy.authoring.load import load_policies
from issuer.service.admission.bounds import STORE_FILLS
from issuer.service.admission.store_watch import StoreFacts, ask_store
from issuer.service.authn.introspection import demand_secret
from issuer.service.authn.keysets import ProviderFetcher
from issuer.service.doctor.bounds import BACKUP_OLD_S, DOCTOR_ANSWER_S, DOCTOR_SLOW_MS, DOUBTFUL_SKEW_S
from issuer.service.doctor.paths import look_at_places, nearest_folder
from issuer.service.doctor.records import look_at_audit, look_at_records
from issuer.service.settings.model import EMBEDDED, MEMBERS, Settings, Store

_MIB = 1024 * 1024
LEAST_VERSION = (6, 2)
_UNSET = 5  # TIME_ERROR of adjtimex(2): the clock is not synchronized


def examine_server(settings: Settings, now: int) -> Iterator[Line]:
    """Yield the lines of all checks. `now` is Unix seconds."""
    yield Line("settings", "pass", f"{len(MEMBERS)} settings are valid")
    yield from look_at_places(settings)
    yield from surviving("disk", _disk(settings))
    yield from surviving("backup", _backup(settings, now))
    yield from look_at_records(settings, now)
    yield from surviving("store", _store(settings))
    yield from surviving("providers", _providers(settings))
    for name, look in (("time", _time), ("address", _address), ("proxy", _proxy)):
        yield from surviving(name, map(look, (settings,)))
    yield from surviving("audit", look_at_audit(settings.audit_file))  # last: it may have millions of lines


def _disk(settings: Settings) -> Iterator[Line]:
    """Yield the free space of the disks that the service writes to. Below 1 MiB the service is not ready."""
    for name, path in (("disk of data", settings.data), ("disk of log records", settings.log.records)):
        if path and (folder := nearest_folder(Path(path))) is not None:
            yield _room(name, folder)


def _room(name: str, folder: Path) -> Line:
    free = shutil.disk_usage(folder).free
    detail = f"{free // _MIB} MiB are free at {folder}"
    if free < MIN_FREE_BYTES:
        error = SetupError(Code.MACHINE_FAILED, detail)
        return failed(name, error, step=f"Free some space, or move the folder to a separate volume: `df -h {folder}`.")
    if free < FEW_FREE_BYTES:
        return Line(name, "warning", detail, f"Free some space before audit writes fail: `df -h {folder}`.")
    return Line(name, "pass", detail)


def _backup(settings: Settings, now: int) -> Iterator[Line]:
    """Yield the age of the last backup, at `now` in Unix seconds."""
    at, step = backed_up_at(Path(settings.data)), "Run deploy/backup.sh with its timer, as deploy/STATE.md says."
    if at is None:
        yield Line("backup", "warning", f"deploy/backup.sh has never copied {settings.data}", step)
    elif now - at > BACKUP_OLD_S:
        step = "Find out why the backup does not run: `systemctl status issuer-backup.timer issuer-backup.service`."
        yield Line("backup", "warning", f"{settings.data} was last copied {show_span(now - at)} ago", step)
    else:
        yield Line("backup", "pass", f"{settings.data} was copied {show_span(max(0, now - at))} ago")


def _store(settings: Settings) -> Iterator[Line]:
    """Yield the state of the store: whether it may lose uses, or answer too late."""
    if settings.store.url == EMBEDDED:
        step = "Run a Valkey, and name it as `store.url`: `unix:///run/valkey/valkey.sock`."
        detail = "embedded: its data is lost when the service stops, and other hosts cannot share it"
        yield Line("store", "warning", detail, step)
        return
    try:
        facts = asyncio.run(ask_store(settings.store.url))
    except IssuerError as error:
        yield failed("store", error)
        return
    yield Line("store", "pass", f"{facts.place} answers")
    for check in (_version, _role, _eviction, _persistence, _replicas, _memory, _latency, _clock):
        yield check(facts, settings.store)


def _unsafe(name: str, detail: str, step: str) -> Line:
    return failed(name, SetupError(Code.STATE_UNSAFE, detail), step=step)


def _version(facts: StoreFacts, _: Store) -> Line:
    version = str(facts.info.get("valkey_version") or facts.info.get("redis_version") or "")
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if not numbers:
        return Line("store version", "warning", "it hides its version", "Make sure that it is 6.2 or later.")
    if numbers < LEAST_VERSION:
        return _unsafe("store version", f"{version} is too old", "Run Valkey, or Redis 6.2 or later.")
    return Line("store version", "pass", version)


def _role(facts: StoreFacts, _: Store) -> Line:
    role = facts.info.get("role")
    if role == "slave":
        step = "Name the master as `store.url`, or use Sentinels to find it: redis+sentinel://."
        return _unsafe("store role", "it is a replica: it accepts no writes, so it cannot record uses", step)
    if role is None:
        return Line("store role", "warning", "it hides its role", "Make sure that it is a master.")
    return Line("store role", "pass", str(role))


def _eviction(facts: StoreFacts, store: Store) -> Line:
    policy = facts.config.get("maxmemory-policy")
    if policy is None and not store.noeviction_stated:
        step = "Make sure that it is noeviction, then set `store.noeviction_stated: true`."
        return _unsafe("store eviction", "it hides its maxmemory-policy", step)
    if policy not in {None, "noeviction"}:
        step = "Run `valkey-cli CONFIG SET maxmemory-policy noeviction`, and set it in the configuration file, too."
        return _unsafe("store eviction", f"maxmemory-policy is {policy}: an evicted use can be replayed", step)
    return Line("store eviction", "pass", "noeviction" if policy else "stated to be noeviction")


def _persistence(facts: StoreFacts, store: Store) -> Line:
    is_on = facts.config.get("appendonly") == "yes" or facts.info.get("aof_enabled") == 1
    if not is_on and store.durable and not facts.info.get("connected_slaves"):
        step = "Run it with `appendonly yes` and `appendfsync always`, or set `store.durable: false`."
        return _unsafe("store persistence", "store.durable is true, but the store writes nothing to its disk", step)
    if not is_on:
        detail = "no append-only file: after a restart CI jobs need fresh identity tokens, and limits start at zero"
        return Line("store persistence", "warning", detail, "Run it with `appendonly yes`.")
    sync = facts.config.get("appendfsync", "unknown")
    if store.durable and sync not in {"always", "unknown"} and not store.wait_replicas:
        detail = f"store.durable is true, but with appendfsync {sync} a crash loses the last second of writes"
        return Line("store persistence", "warning", detail, "Set `appendfsync always`.")
    return Line("store persistence", "pass", f"append-only file, appendfsync {sync}")


def _replicas(facts: StoreFacts, store: Store) -> Line:
    count = int(facts.info.get("connected_slaves", 0))
    if count < store.wait_replicas:
        detail = f"store.wait_replicas is {store.wait_replicas}, but only {count} are connected: no token is issued"
        return _unsafe("store replicas", detail, "Reconnect the replica, or set `store.wait_replicas` lower.")
    return Line("store replicas", "pass", f"{count} connected, {store.wait_replicas} required")


def _memory(facts: StoreFacts, _: Store) -> Line:
    memory = facts.memory
    if memory is None:
        return Line("store memory", "warning", "it hides its memory usage", "Monitor it on its own machine.")
    if not memory.most:
        step = "Set `maxmemory`: otherwise the store can use up the memory of its machine."
        return Line("store memory", "warning", "it has no maxmemory", step)
    used = memory.used / memory.most
    if used >= STORE_FILLS:
        step = "Set a larger `maxmemory`: when the store is full, every request fails with 503."
        return Line("store memory", "warning", f"{used:.0%} of its memory is used", step)
    return Line("store memory", "pass", f"{used:.0%} of {memory.most // 2**20} MiB is used")


def _latency(facts: StoreFacts, _: Store) -> Line:
    if facts.ping_ms > DOCTOR_SLOW_MS:
        step = "Run it near the service: each request waits for the store."
        return Line("store latency", "warning", f"{facts.ping_ms:.1f} ms for an answer", step)
    return Line("store latency", "pass", f"{facts.ping_ms:.1f} ms for an answer")


def _clock(facts: StoreFacts, _: Store) -> Line:
    way = "ahead of" if facts.skew_s > 0 else "behind"
    detail = f"{abs(facts.skew_s)} s {way} this machine's clock"
    step = "Set both clocks by NTP: the service uses both to decide whether a token is spent or expired."
    if abs(facts.skew_s) > MOST_SKEW_S:
        return _unsafe("store clock", detail, step)
    if abs(facts.skew_s) > DOUBTFUL_SKEW_S:
        return Line("store clock", "warning", detail, step)
    return Line("store clock", "pass", "agrees with this machine's clock")


def _providers(settings: Settings) -> Iterator[Line]:
    try:
        providers = load_policies(settings.policies_folder, settings.url, development=settings.development).providers
    except InputError:  # the line of the policies shows this error
        return
    for provider in providers.values():
        if provider.introspection is not None:
            yield looked(f"secret of {provider.id}", partial(_secret_of, provider))
    keyed = [
        provider
        for provider in providers.values()
        if provider.algorithms and not (isinstance(provider.keys, KeySource) and provider.keys.static is not UNSET)
    ]
    yield from asyncio.run(_fetch_all(keyed, development=settings.development))


def _secret_of(provider: Provider) -> str:
    demand_secret(provider)
    return "readable only by this user"


async def _fetch_all(providers: list[Provider], *, development: bool) -> list[Line]:
    fetcher = ProviderFetcher(development=development)
    return await asyncio.gather(*(_fetch(fetcher, provider) for provider in providers))


async def _fetch(fetcher: ProviderFetcher, provider: Provider) -> Line:
    name = f"provider {provider.id}"
    try:
        keys = await fetcher.fetch(provider, lambda: None)
    except FAILURES as failure:
        error = Undecided(Code.DEPENDENCY_ISSUER_KEYS, f"{provider.issuer}: {reason(failure)}")
        step = "Make sure that this machine reaches it by https, and that its `issuer` in providers.yaml is right."
        return failed(name, error, step=step)
    return Line(name, "pass", f"{provider.issuer} publishes {len(keys.keys)} usable keys")


def _time(_: Settings) -> Line:
    """Ask the kernel whether its clock is synchronized. The call with zeros changes nothing."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):  # not Linux
        state = -1
    if state == _UNSET:
        step = "Run an NTP client: `systemctl status chrony`."
        return Line("time", "warning", "this machine's clock is not synchronized", step)
    if state < 0:
        detail = "this machine does not report whether its clock is synchronized"
        return Line("time", "warning", detail, "Make sure that NTP sets it.")
    return Line("time", "pass", "this machine's clock is synchronized")


def _address(settings: Settings) -> Line:
    listen = settings.listen
    try:
        listen_addresses(listen.host, listen.port)
    except SetupError as error:
        return _taken_address(settings, error)
    return Line("address", "pass", f"{listen.host} port {listen.port} is free: `issuer serve` can listen there")


def _taken_address(settings: Settings, error: SetupError) -> Line:
    """Return the line for an address that is in use, most likely by this service itself."""
    listen = settings.listen
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen.host, listen.host)  # noqa: S104 (to ask, not to listen)
    url = f"http://{f'[{host}]' if ':' in host else host}:{listen.port}/health/ready"
    try:
        answer = send(HttpRequest("GET", url, max_bytes=65_536), deadline_s=DOCTOR_ANSWER_S)
    except (NoAnswer, Undecided):
        return failed("address", error)
    if b'"status"' not in answer.body or answer.status not in {200, 503}:
        return failed("address", error)
    if answer.status == 503:
        detail = f"a service runs at {listen.host} port {listen.port}, and is not ready"
        return failed("address", SetupError(Code.SERVICE_ADDRESS, detail), step=f"See why: `curl {url}`.")
    return Line("address", "pass", f"a service runs at {listen.host} port {listen.port}, and is ready")


def _proxy(settings: Settings) -> Line:
    if settings.development or settings.listen.trusted_proxies:
        return Line("proxy", "pass", f"trusted: {settings.listen.trusted_proxies or 'none, in development'}")
    near = settings.listen.host == "localhost" or is_loopback(settings.listen.host)
    detail = "no proxy is trusted: behind a proxy, all callers would count as one source"
    step = f"Name the proxy as `listen.trusted_proxies`{': 127.0.0.1 if it is on this machine' if near else ''}."
    return Line("proxy", "warning", detail, step)
