"""Everything that `issuer doctor --server` looks at, in the order in which one thing rests on another.

Here: the room on the disk, the backup, the store of limits and uses (asked without a write), and what is around the
service: its providers, this machine's clock, the address where it listens, the proxy in front.
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
from issuer.service.admission.store_watch import Told, ask_store
from issuer.service.authn.introspection import demand_secret
from issuer.service.authn.keysets import ProviderFetcher
from issuer.service.doctor.bounds import BACKUP_OLD_S, DOCTOR_ANSWER_S, DOCTOR_SLOW_MS, DOUBTFUL_SKEW_S
from issuer.service.doctor.paths import look_at_places, nearest_folder
from issuer.service.doctor.records import look_at_audit, look_at_what_is_held
from issuer.service.settings.model import EMBEDDED, MEMBERS, Settings, Store

_MIB = 1024 * 1024
LEAST_VERSION = (6, 2)
_UNSET = 5  # TIME_ERROR of adjtimex(2): nobody sets this clock


def examine_server(settings: Settings, now: int) -> Iterator[Line]:
    """Yield a line for each thing that may keep a service from running well, at `now` in Unix seconds. Nothing is
    written, and no secret is in a line."""
    yield Line("settings", "pass", f"{len(MEMBERS)} settings are understood")
    yield from look_at_places(settings)
    yield from surviving("disk", _disk(settings))
    yield from surviving("backup", _backup(settings, now))
    yield from look_at_what_is_held(settings, now)
    yield from surviving("store", _store(settings))
    yield from surviving("providers", _providers(settings))
    for name, look in (("time", _time), ("address", _address), ("proxy", _proxy)):
        yield from surviving(name, map(look, (settings,)))
    yield from surviving("audit", look_at_audit(settings.audit_file))  # last: it may have millions of lines


def _disk(settings: Settings) -> Iterator[Line]:
    """Yield how much room there is, where the service writes: below 1 MiB it is not ready any more."""
    for name, path in (("disk of data", settings.data), ("disk of log records", settings.log.records)):
        if path and (folder := nearest_folder(Path(path))) is not None:
            yield _room(name, folder)


def _room(name: str, folder: Path) -> Line:
    free = shutil.disk_usage(folder).free
    detail = f"{free // _MIB} MiB are free at {folder}"
    if free < MIN_FREE_BYTES:
        error = SetupError(Code.MACHINE_FAILED, detail)
        return failed(name, error, step=f"Make room, or give it a volume of its own: `df -h {folder}`.")
    if free < FEW_FREE_BYTES:
        return Line(name, "warning", detail, f"Make room before the audit cannot be written: `df -h {folder}`.")
    return Line(name, "pass", detail)


def _backup(settings: Settings, now: int) -> Iterator[Line]:
    """Yield how old the last copy is of what must not be lost, at `now` in Unix seconds."""
    at, step = backed_up_at(Path(settings.data)), "Run deploy/backup.sh by its timer, as deploy/STATE.md says."
    if at is None:
        yield Line("backup", "warning", f"{settings.data} was never copied by deploy/backup.sh", step)
    elif now - at > BACKUP_OLD_S:
        step = "Look why it does not run: `systemctl status issuer-backup.timer issuer-backup.service`."
        yield Line("backup", "warning", f"{settings.data} was last copied {show_span(now - at)} ago", step)
    else:
        yield Line("backup", "pass", f"{settings.data} was copied {show_span(max(0, now - at))} ago")


def _store(settings: Settings) -> Iterator[Line]:
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


def _providers(settings: Settings) -> Iterator[Line]:
    try:
        found = load_policies(settings.policies_folder, settings.url, development=settings.development).providers
    except InputError:  # the line of the policies says why
        return
    for provider in found.values():
        if provider.introspection is not None:
            yield looked(f"secret of {provider.id}", partial(_secret_of, provider))
    keyed = [provider for provider in found.values() if provider.algorithms and not _has_keys(provider)]
    yield from asyncio.run(_fetch_all(keyed, development=settings.development))


def _has_keys(provider: Provider) -> bool:
    return isinstance(provider.keys, KeySource) and provider.keys.static is not UNSET


def _secret_of(provider: Provider) -> str:
    demand_secret(provider)
    return "can be read, and by nobody else"


async def _fetch_all(providers: list[Provider], *, development: bool) -> list[Line]:
    fetcher = ProviderFetcher(development=development)
    return await asyncio.gather(*(_fetch(fetcher, provider) for provider in providers))


async def _fetch(fetcher: ProviderFetcher, provider: Provider) -> Line:
    name = f"provider {provider.id}"
    try:
        keys = await fetcher.fetch(provider, lambda: None)
    except FAILURES as failure:
        error = Undecided(Code.DEPENDENCY_ISSUER_KEYS, f"{provider.issuer}: {reason(failure)}")
        step = "Let this machine reach it by https, and look whether its `issuer` in providers.yaml is right."
        return failed(name, error, step=step)
    return Line(name, "pass", f"{provider.issuer} publishes {len(keys.keys)} usable keys")


def _time(_: Settings) -> Line:
    """Ask the kernel whether somebody sets its clock; nothing is set by asking."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):  # not Linux
        state = -1
    if state == _UNSET:
        step = "Run an NTP client: `systemctl status chrony`."
        return Line("time", "warning", "nobody sets this machine's clock", step)
    if state < 0:
        return Line("time", "warning", "this machine does not say who sets its clock", "Make sure that NTP does.")
    return Line("time", "pass", "this machine's clock is kept right")


def _address(settings: Settings) -> Line:
    listen = settings.listen
    try:
        listen_addresses(listen.host, listen.port)
    except SetupError as error:
        return _answering(settings, error)
    return Line("address", "pass", f"{listen.host} port {listen.port} is free: `issuer serve` can listen there")


def _answering(settings: Settings, error: SetupError) -> Line:
    """Say what answers at an address that is taken: this service itself, most likely."""
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
        return failed("address", SetupError(Code.SERVICE_ADDRESS, detail), step=f"Ask it why: `curl {url}`.")
    return Line("address", "pass", f"a service runs at {listen.host} port {listen.port}, and is ready")


def _proxy(settings: Settings) -> Line:
    if settings.development or settings.listen.trusted_proxies:
        believed = settings.listen.trusted_proxies or "none, in development"
        return Line("proxy", "pass", f"believed about the source of a request: {believed}")
    near = settings.listen.host == "localhost" or is_loopback(settings.listen.host)
    detail = "no proxy is believed: behind one that has the certificate of url, all callers are one source"
    step = f"Name it as `listen.trusted_proxies`{': 127.0.0.1, where it is on this machine' if near else ''}."
    return Line("proxy", "warning", detail, step)
