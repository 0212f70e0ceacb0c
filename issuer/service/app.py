"""The composition root: settings in, a Litestar application out. The one place that puts the line together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import time_ns

import structlog
from litestar import Litestar

from issuer.errors import SetupError
from issuer.identity.profiles import Kind
from issuer.identity.provider import Provider
from issuer.issuance.ports import Authority, Log, NoLog
from issuer.policy.authoring.load import load_policies
from issuer.service.admission.redis import RedisAdmission
from issuer.service.audit import FileAudit
from issuer.service.authn.authenticator import ProviderAuthenticator, Verifier
from issuer.service.authn.fetch import Fetcher
from issuer.service.authn.huggingface import HuggingFace
from issuer.service.authn.introspection import Introspector
from issuer.service.authn.keysets import KeySets
from issuer.service.authn.oidc import SignedTokens
from issuer.service.authn.pat import PatVerifier
from issuer.service.authn.pats import Pats
from issuer.service.authn.sources import Sources
from issuer.service.bounds import ASK_S, BEAT_S, SOURCE_RATE
from issuer.service.http import openapi
from issuer.service.http.published import Published
from issuer.service.http.routes import exception_handlers, routes
from issuer.service.http.service import Service
from issuer.service.http.tarpit import Tarpit
from issuer.service.http.verify import judging_routes
from issuer.service.log_stream import Failures
from issuer.service.reload import Active, Live, keep_policies
from issuer.service.settings import Settings
from issuer.service.signing.keyring import load_keyring
from issuer.service.workers import Beat

_log = structlog.get_logger("issuer")


def build(settings: Settings, log: Log | None = None, beat: Beat | None = None) -> Litestar:
    """Put one worker together. Reads keys and policies now, connects to the store when it starts; while it runs it
    calls `beat`, if a parent watches it.

    Raises SetupError and InputError: a service with unfit keys, policies or store does not start.
    """
    audit = FileAudit(settings.audit_file)
    sources = Sources(SOURCE_RATE)
    state = RedisAdmission(
        settings.redis_url,
        leeway_s=settings.epoch_leeway_s,
        durable_store=settings.durable_store,
        noeviction_stated=settings.noeviction_stated,
        wait_replicas=settings.wait_replicas,
    )
    keysets = KeySets(Fetcher(development=settings.development), report=_report_fetch)
    signed = SignedTokens(keysets)
    failures = Failures()
    asker = Fetcher(development=settings.development, deadline_s=ASK_S)
    introspector = Introspector(asker, report=failures.report)
    hugging_face = HuggingFace(asker, report=failures.report)
    pats = PatVerifier(Pats(settings.pats_folder))
    verifiers: dict[Kind, Verifier] = {"introspection": introspector, "huggingface": hugging_face, "pat": pats}

    def activated() -> Published:
        keyring = load_keyring(Path(settings.keys), settings.passphrase())
        policies = load_policies(Path(settings.policies), settings.url, development=settings.development)
        keep_policies(policies, Path(settings.data) / "policies")
        authenticator = ProviderAuthenticator(policies.providers, signed, verifiers, sources, _now_us)
        authority = Authority(settings.url, policies, authenticator, state, log or NoLog(), keyring, audit)
        return Published.of(Active(authority, time_ns() // 10**9, keyring), judges=bool(settings.trust))

    live = Live(Path(settings.policies), activated, audit)
    service = Service(settings.url, live, sources, state, audit, Tarpit(settings.url))

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        try:
            await state.start()
            await live.announce()
            tasks = [asyncio.create_task(live.watch())]
            if beat is not None:
                tasks.append(asyncio.create_task(_beating(beat)))
            yield
            for task in tasks:
                task.cancel()
        except SetupError as error:
            _log.error("start refused", code=str(error.code), detail=error.detail)
            raise
        finally:
            for asking in (keysets, introspector, hugging_face):
                await asking.aclose()
            await state.aclose()
            audit.close()

    return Litestar(
        [*routes(service), *judging_routes(settings.trust, settings.url, lambda: live.active.keyring.jwks)],
        lifespan=[lifespan],
        exception_handlers=exception_handlers(settings.url),
        openapi_config=openapi.config(),
        request_max_body_size=None,  # routes bound what they read, and refuse it with a code
        logging_config=None,
        debug=False,
        pdb_on_exception=False,
    )


async def _beating(beat: Beat) -> None:
    """Report that this event loop turns, twice in the time in which the parent listens once."""
    while True:
        beat()
        await asyncio.sleep(BEAT_S / 2)


def _report_fetch(provider: Provider, reason: str) -> None:
    _log.warning("key set not fetched", provider=provider.id, reason=reason)


def _now_us() -> int:
    return time_ns() // 1000
