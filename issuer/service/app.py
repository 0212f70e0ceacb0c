"""The composition root: it builds a worker's Litestar application from the settings. No other file does so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import time_ns
from typing import Any

import structlog
from litestar import Litestar
from msgspec import Struct, field

from issuer.audit.events import ProviderKeysStale
from issuer.errors import SetupError
from issuer.identity.profiles import Kind
from issuer.identity.table import Provider
from issuer.io import files
from issuer.io.common_documents import Home
from issuer.io.fetch import system_roots
from issuer.io.shared_memory import SharedPage
from issuer.issuance.ports import Authority, Log, NoLog
from issuer.issuance.steps import StoreSecret
from issuer.limits.bounds import SOURCE_RATE
from issuer.limits.sources import Sources
from issuer.policy.authoring.load import PolicySource
from issuer.policy.match import PolicySet
from issuer.service.admission.redis import KnownStanding, RedisAdmission
from issuer.service.admission.secret_file import make_secret, read_secret
from issuer.service.admission.store_watch import StoreWatch
from issuer.service.audit.bounds import SYNC_S
from issuer.service.audit.sink import FileAudit
from issuer.service.authn.authenticator import CredentialVerifier, ProviderAuthenticator, RecycledNames, SignedTokens
from issuer.service.authn.bounds import ASK_S
from issuer.service.authn.huggingface import HuggingFace
from issuer.service.authn.introspection import Introspector, demand_secret
from issuer.service.authn.keysets import KeySets, NoteAnswer, ProviderFetcher, ReportFailure, Stale
from issuer.service.authn.pats import Pats, PatVerifier
from issuer.service.http.log import log_routes
from issuer.service.http.pages import ui_routes
from issuer.service.http.public_documents import (
    LogInfo,
    PublishedKeys,
    PublishedPolicies,
    PublishedRevocations,
    Service,
)
from issuer.service.http.request_limits import Tarpit
from issuer.service.http.routes import exception_handlers, routes, write_documents
from issuer.service.http.verify import verify_routes
from issuer.service.log.bounds import LOG_CALL_S, WITNESS_SYNC_S
from issuer.service.log.client import Announcer, AnnouncingLog, SequencerLog
from issuer.service.log.database.engines import home_of, reading_at
from issuer.service.log.database.public import PublicLog
from issuer.service.metrics.bounds import METRIC_STATE_S
from issuer.service.metrics.counts import Board, Counters, Histogram, Row
from issuer.service.metrics.state import PoliciesState, StateSources, StateWriter
from issuer.service.policies.active import Active, Live
from issuer.service.policies.archive import PolicyArchive
from issuer.service.policies.bounds import STOPS_LOOK_S
from issuer.service.policies.emergency_stops import LiveStops
from issuer.service.policies.watcher import Follower
from issuer.service.process.fair_queue import FairQueue, Progress
from issuer.service.process.helper import PolicyUpdates
from issuer.service.revocation.active_list import ListKeeper, LiveRevocations
from issuer.service.revocation.bounds import REVOKED_LOOK_S
from issuer.service.revocation.ledger import Ledger, find_key
from issuer.service.settings.background import Background
from issuer.service.settings.bounds import BEAT_S, INVENTORY_LOOK_S
from issuer.service.settings.log_stream import Failures
from issuer.service.settings.model import Settings
from issuer.service.signing.active_keys import Hosts, LiveSigner
from issuer.service.signing.history import LiveHistory
from issuer.service.signing.inventory import Inventory, InventoryKeeper
from issuer.tlog.witness_policy import MAX_POLICY_BYTES

# Unix seconds.
Clock = Callable[[], int]
_log = structlog.get_logger("issuer")


class Shared(Struct, frozen=True):
    """The parts that the workers of one supervisor share.

    `sequencer` is the socket of the log's sequencer, None without a log. `policies` is None if the worker follows their
    folder itself. `row` is the worker's own row of the shared counters.
    """

    page: SharedPage
    sequencer: Path | None = None
    policies: PolicyUpdates | None = None
    row: Row = field(default_factory=lambda: Board().rows[0])


class Parts(Struct, frozen=True):
    """The parts that live as long as the worker, while policies and keys change: connections, caches, counters,
    files."""

    counts: Counters
    audit: FileAudit
    home: Home
    signer: LiveSigner
    log: AnnouncingLog | None
    public_log: PublicLog | None
    sources: Sources
    stops: LiveStops
    turns: FairQueue
    admission: RedisAdmission
    secret: StoreSecret
    kept: PolicyArchive
    revocations: LiveRevocations
    keeper: ListKeeper
    recycled: RecycledNames
    keysets: KeySets
    introspector: Introspector
    hugging_face: HuggingFace
    pats: PatVerifier

    @classmethod
    def of(cls, settings: Settings, shared: Shared, progress: Progress, clock: Clock) -> Parts:
        """Open all parts. `clock` decides when keys change. Raises SetupError and InputError."""
        make_own_secret(settings)
        failures, counts = Failures(), Counters(shared.row)
        asker = ProviderFetcher(development=settings.development, deadline_s=ASK_S)
        audit = FileAudit(settings.audit_file, count_failure=counts.audit_failures.add, count_signal=counts.signalled)
        fetcher = ProviderFetcher(development=settings.development)
        home = home_of(Path(settings.data), settings.log.origin, settings.log_place)
        revocations, keeper = follow_revocations(settings, home, audit)
        signer = LiveSigner(
            settings.keys_folder,
            settings.passphrase,
            audit,
            LiveHistory(home),
            Hosts(settings.store.url, shared.page, durable_store=settings.store.durable),
            clock,
        )

        answered, failed = _fetch_counters(counts)
        not_asked = partial(failed, lambda provider, reason: failures.report(provider.id, reason))
        return cls(
            counts=counts,
            audit=audit,
            home=home,
            signer=signer,
            log=_log_behind(shared.sequencer, settings, signer),
            public_log=PublicLog(settings.log.origin, partial(reading_at, settings.log_place))
            if shared.sequencer
            else None,
            sources=Sources(SOURCE_RATE),
            stops=LiveStops(settings.policies_folder, shared.page, audit, KnownStanding(), time.time),
            turns=FairQueue(progress.note),
            admission=RedisAdmission(
                settings.store.url,
                leeway_s=settings.store.epoch_leeway_s,
                durable_store=settings.store.durable,
                noeviction_stated=settings.store.noeviction_stated,
                wait_replicas=settings.store.wait_replicas,
            ),
            secret=read_secret(settings.store_secret),
            kept=PolicyArchive(settings.kept_folder),
            revocations=revocations,
            keeper=keeper,
            recycled=RecycledNames(),
            keysets=KeySets(
                fetcher,
                report=partial(
                    failed,
                    lambda provider, reason: _log.warning("key set not fetched", provider=provider.id, reason=reason),
                ),
                note_answer=answered,
                record_stale=partial(tell_stale, audit),
            ),
            introspector=Introspector(asker, report=not_asked, note_answer=answered),
            hugging_face=HuggingFace(asker, report=not_asked, note_answer=answered),
            pats=PatVerifier(Pats(settings.pats_folder)),
        )

    def authenticator(self, providers: Mapping[str, Provider]) -> ProviderAuthenticator:
        """Return the authenticator for these providers."""
        verifiers: dict[Kind, CredentialVerifier] = {
            "introspection": self.introspector,
            "huggingface": self.hugging_face,
            "pat": self.pats,
        }
        signed = SignedTokens(self.keysets)
        return ProviderAuthenticator(providers, signed, verifiers, self.sources, time_ns, self.stops.check_provider)

    async def aclose(self) -> None:
        """Stop all work, and close all parts."""
        for part in (self.signer, self.keysets, self.introspector, self.hugging_face, self.admission):
            await part.aclose()
        for optional in (self.log, self.public_log):
            if optional is not None:
                await optional.aclose()
        self.home.close()
        self.audit.close()


def follow_revocations(settings: Settings, home: Home, audit: FileAudit) -> tuple[LiveRevocations, ListKeeper]:
    """Return the revocations, and the keeper that signs their list. Raises InputError."""
    ledger = Ledger(home, settings.url)
    live = LiveRevocations(ledger, audit, _now)
    key = partial(find_key, settings.keys_folder, home, settings.passphrase)
    return live, ListKeeper(ledger, live, key, _now)


def _log_behind(sequencer: Path | None, settings: Settings, signer: LiveSigner) -> AnnouncingLog | None:
    """Return the log behind a sequencer's socket, or None. New keys wait until this log has announced them."""
    if sequencer is None:
        return None
    answer_s = LOG_CALL_S + (WITNESS_SYNC_S if settings.log.witnesses == "sync" else 0)
    log = AnnouncingLog(SequencerLog(sequencer, settings.log.origin, answer_s), settings.url, lambda: signer.lives)
    signer.is_announced = log.has_announced
    return log


def _log_pages(settings: Settings, parts: Parts, tarpit: Tarpit) -> list[Any]:
    """Return the handlers of the log's public endpoints, or none without a log. Raises InputError."""
    if parts.log is None or parts.public_log is None:
        return []
    info = LogInfo(settings.url, settings.log.origin)
    if settings.log.witness_policy:
        policy = files.read(Path(settings.log.witness_policy), MAX_POLICY_BYTES)
        info = LogInfo.of(settings.url, settings.log.origin, policy, settings.log.witness_policy)
    return log_routes(parts.public_log, info, parts.log.check, tarpit, parts.counts)


def load(settings: Settings, note: Callable[[], object] = lambda: None) -> Follower:
    """Load the policies, and return the follower of their folder. `note` is called for each file. Raises InputError."""
    folder, kept = settings.policies_folder, settings.kept_folder
    return Follower(PolicySource(folder, settings.url, settings.development, settings.ceilings), kept, note)


def make_own_secret(settings: Settings) -> None:
    """Make the secret of a single host, unless the operator names a secret that several hosts share."""
    if not settings.store.secret_file:
        make_secret(settings.store_secret)


def prepare(settings: Settings) -> None:
    """Make the parts that several workers share, before the supervisor forks them."""
    make_own_secret(settings)
    system_roots()
    write_documents(ui=settings.ui, has_log=bool(settings.log.origin))
    Litestar([], openapi_config=None, logging_config=None)  # the first application imports half of Litestar


def build(
    settings: Settings,
    log: Log | None = None,
    progress: Progress | None = None,
    shared: Shared | None = None,
    clock: Clock | None = None,
) -> Litestar:
    """Build the application of one worker. It reads keys, stops and policies now, and connects to the store at startup.

    The running worker notes its `progress`. `clock` returns Unix seconds and decides when keys change. Tests pass a
    `log` that replaces the settings' log. Raises SetupError and InputError for unusable settings, keys or policies.
    """
    progress, shared = progress or Progress(), shared or Shared(SharedPage())
    parts = Parts.of(settings, shared, progress, clock or _now)
    counts = parts.counts
    admission = counts.admission.timed(parts.admission, "admit", "count")
    signer, used_log = counts.signing.timed(parts.signer, "sign"), log or parts.log
    appending = NoLog() if used_log is None else counts.append.timed(used_log, "append")

    def activate(policies: PolicySet) -> PublishedPolicies:
        authenticator = parts.authenticator(policies.providers)
        authority = Authority(
            issuer_url=settings.url,
            policies=policies,
            authenticator=authenticator,
            standing=parts.stops,
            turns=parts.turns,
            admission=admission,
            log=appending,
            signer=signer,
            audit=parts.audit,
            secret=parts.secret,
            kept=parts.kept,
            revocations=parts.revocations,
            recycled=parts.recycled,
        )
        return PublishedPolicies.of(Active(authority, _now()), verifies=bool(settings.trust), ui=settings.ui)

    live = Live(shared.policies or load(settings), activate, parts.audit)
    for provider in live.active.authority.policies.providers.values():
        demand_secret(provider)
    keys, tarpit, store = PublishedKeys(parts.signer), Tarpit(settings.url), StoreWatch(parts.admission)
    service = Service(
        settings.url, counts, live, parts.signer, keys, PublishedRevocations(parts.revocations), parts.stops,
        parts.sources, partial(_check, parts, live), lambda: store.status, tarpit, parts.log,
    )  # fmt: skip
    judging = verify_routes(settings.trust, settings.url, service.keys.by_path, tarpit, counts)
    pages = ui_routes(settings.url, counts, has_log=bool(settings.log.origin)) if settings.ui else []
    more = [*judging, *_log_pages(settings, parts, tarpit), *pages]
    return Litestar(
        routes(service, more, ui=settings.ui, has_log=bool(settings.log.origin)),
        lifespan=[lambda _: _running(settings, parts, live, store, progress, shared.row)],
        exception_handlers=exception_handlers(settings.url, counts),
        openapi_config=None,
        request_max_body_size=None,  # handlers bound their bodies, and refuse with a code
        logging_config=None,
        debug=False,
        pdb_on_exception=False,
    )


async def _check(parts: Parts, live: Live[PublishedPolicies]) -> None:
    """Raise Undecided while keys, audit, store or log cannot serve requests for tokens."""
    await parts.signer.keyring.check(_now())
    parts.audit.check()
    await parts.admission.ready()
    await live.active.authority.log.check()


@asynccontextmanager
async def _running(
    settings: Settings, parts: Parts, live: Live[PublishedPolicies], store: StoreWatch, progress: Progress, row: Row
) -> AsyncIterator[None]:
    """Run a worker's background tasks, as the application's lifespan. Raises SetupError if the store is not usable."""
    background = Background()
    try:
        await parts.admission.start()
        await store.turn(False)
        await live.announce()
        await parts.signer.turn(False)
        await parts.stops.announce()
        await parts.keeper.turn(False)
        await parts.revocations.turn(False)
        inventory = InventoryKeeper(Inventory(settings, parts.home))
        await inventory.turn(False)
        background.take_hangups()
        background.watch("stops", parts.stops.turn, STOPS_LOOK_S)
        background.watch("revocations", parts.revocations.turn, REVOKED_LOOK_S)
        background.watch("revocation list", parts.keeper.turn)
        background.watch("keys", parts.signer.turn)
        background.watch("store", store.turn)
        background.watch("inventory", inventory.turn, INVENTORY_LOOK_S)
        background.watch("policies", live.turn, live.every_s)
        background.watch("audit", parts.audit.turn, SYNC_S)
        if parts.log is not None:
            background.watch("announcements", _announcer(parts, parts.log, live).turn)
        teller = StateWriter(row, parts.counts, _watched(settings, parts, live, store))
        await teller.turn(False)
        background.watch("metrics", teller.turn, METRIC_STATE_S)
        background.start("progress", _turning(progress, parts.counts.lag))
        parts.counts.starts.add()
        _log.info(
            "listening",
            url=settings.url,
            address=f"{settings.listen.host}:{settings.listen.port}",
            integrations=len(live.active.authority.policies.policies),
            policies=live.active.digest,
            store=parts.admission.place,
            keys=parts.signer.keyring.states,
        )
        yield
    except SetupError as error:
        progress.refusal = error  # otherwise uvicorn would only print a traceback
        raise
    finally:
        await background.aclose()
        await parts.aclose()


def _watched(settings: Settings, parts: Parts, live: Live[PublishedPolicies], store: StoreWatch) -> StateSources:
    """Return the parts of a worker whose state the metrics report."""
    return StateSources(
        partial(_policies_state, live), parts.signer, parts.revocations, lambda: parts.stops.status, parts.admission,
        store, lambda: parts.audit.is_failing, parts.log, Path(settings.data),
    )  # fmt: skip


def _policies_state(live: Live[PublishedPolicies]) -> PoliciesState:
    """Return the state of the active policies."""
    active, narrowed = live.active, len(live.narrowed) if live.stale else 0
    return PoliciesState(active.digest, active.loaded_at, live.stale, narrowed, len(active.authority.policies.policies))


def _announcer(parts: Parts, log: AnnouncingLog, live: Live[PublishedPolicies]) -> Announcer:
    """Return the announcer, which announces this worker's active policies, list of revocations and audit head in the
    log."""

    def served() -> bytes | None:
        published = parts.revocations.in_force.published
        return None if published is None else published.raw

    return Announcer(log, lambda: live.active.authority.policies, served, lambda: parts.audit.head, _now)


async def _turning(progress: Progress, lag: Histogram) -> None:
    """Note progress of this event loop, more often than the heartbeat thread checks it, and measure the loop's lag."""
    pause_ns = int(BEAT_S / 4 * 1e9)
    while True:
        progress.note()
        began = time.monotonic_ns()
        await asyncio.sleep(BEAT_S / 4)
        lag.observe(max(0, time.monotonic_ns() - began - pause_ns))


def _fetch_counters(counts: Counters) -> tuple[NoteAnswer, Callable[[ReportFailure, Provider, str], None]]:
    """Return two functions: one counts a provider's answer, the other counts and reports a failure."""

    def answered(provider: Provider) -> None:
        counts.fetched(provider.id, "answered")

    def failed(report: ReportFailure, provider: Provider, reason: str) -> None:
        counts.fetched(provider.id, "failed")
        report(provider, reason)

    return answered, failed


async def tell_stale(audit: FileAudit, stale: Stale) -> None:
    """Audit that the service begins or ceases to use old keys of a provider. Raises Undecided(`dependency.audit`)."""
    now, provider = time_ns() // 10**9, stale.provider
    event = ProviderKeysStale(now, provider.id, provider.issuer, now - stale.age_s, stale.over)
    _log.warning("key set stale", provider=provider.id, fetched_at=event.fetched_at, over=stale.over)
    await audit.record(event)


def _now() -> int:
    return time_ns() // 10**9
