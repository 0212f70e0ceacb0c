"""The composition root: settings in, a Litestar application out. The one place that puts the line together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import time_ns

import msgspec
import structlog
from litestar import Litestar

from issuer.formats import jose
from issuer.issuance.body import MAX_BYTES
from issuer.errors import SetupError
from issuer.issuance.issue import Line, Log, NoLog
from issuer.limits import Rate, Sources
from issuer.policy.authoring.load import load_policies
from issuer.policy.match import PolicySet
from issuer.policy.model import Provider
from issuer.identity.profiles import Kind
from issuer.identity.table import published
from issuer.service.http import openapi
from issuer.service.audit import AuditFile
from issuer.service.authn.authenticator import Authenticators, Verifier
from issuer.service.authn.fetch import Fetcher
from issuer.service.authn.huggingface import HuggingFace
from issuer.service.authn.introspection import Introspector
from issuer.service.authn.keysets import KeySets
from issuer.service.authn.oidc import SignedTokens
from issuer.service.authn.pat import PatVerifier
from issuer.service.authn.transport import DEADLINE_S
from issuer.service.http.documents import document
from issuer.service.http.verify import judging_routes
from issuer.service.signing.keyring import load_keyring
from issuer.service.authn.pats import Pats
from issuer.service.reload import Active, Live
from issuer.service.http.requirements import requirements
from issuer.service.http.routes import Service, exception_handlers, routes
from issuer.service.settings import Settings
from issuer.service.http.tarpit import TELL_S, Shed
from issuer.service.admission.redis import State
from issuer.service.workers import BEAT_S, Beat
from issuer.formats.strict_json import JSON
from issuer.verify_token import MAX_TTL_S

_log = structlog.get_logger("issuer")

KEY_SET_CACHE = "public, max-age=300, stale-if-error=3600"
# How many refused requests one address may send to one process: thousands of honest jobs share an address, and honest
# ones are not refused.
SOURCE_RATE = Rate(count=600, per_s=60, burst=600)


def build(settings: Settings, log: Log | None = None, beat: Beat | None = None) -> Litestar:
    """Put one worker together. Reads keys and policies now, connects to the store when it starts; calls `beat`, where
    it has a parent that waits for it, while it runs.

    Raises SetupError and InputError: a service whose keys, policies or store are not fit does not start.
    """
    audit = AuditFile(settings.audit_file)
    sources = Sources(SOURCE_RATE)
    state = State(
        settings.redis_url,
        leeway_s=settings.epoch_leeway_s,
        durable_store=settings.durable_store,
        noeviction_stated=settings.noeviction_stated,
        wait_replicas=settings.wait_replicas,
    )
    keysets = KeySets(Fetcher(development=settings.development), report=_report_fetch)
    signed = SignedTokens(keysets)
    failures = Failures()
    asker = Fetcher(development=settings.development, deadline_s=DEADLINE_S)
    introspector = Introspector(asker, report=failures.report)
    hugging_face = HuggingFace(asker, report=failures.report)
    pats = PatVerifier(Pats(settings.pats_folder))
    verifiers: dict[Kind, Verifier] = {"introspection": introspector, "huggingface": hugging_face, "pat": pats}

    def activated() -> Active:
        keyring = load_keyring(Path(settings.keys), settings.passphrase())
        policies = load_policies(Path(settings.policies), settings.url, development=settings.development)
        keep_policies(policies, Path(settings.data) / "policies")
        authenticator = Authenticators(policies.providers, signed, verifiers, sources, _now_us)
        line = Line(settings.url, policies, authenticator, state, log or NoLog(), keyring, audit)
        published = document(metadata(settings.url, policies, judges=bool(settings.trust)))
        jwks = document(keyring.jwks, "application/jwk-set+json", cache=KEY_SET_CACHE)
        return Active(line, time_ns() // 10**9, published, requirements(settings.url, policies), keyring, jwks)

    live = Live(Path(settings.policies), activated, audit)
    service = Service(settings.url, live, sources, state, audit, Shed(settings.url))

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
        request_max_body_size=None,  # routes bound what they read, and say so with a code
        logging_config=None,
        debug=False,
        pdb_on_exception=False,
    )


async def _beating(beat: Beat) -> None:
    """Say twice in the time in which the parent listens once that this event loop turns."""
    while True:
        beat()
        await asyncio.sleep(BEAT_S / 2)


def _report_fetch(provider: Provider, reason: str) -> None:
    _log.warning("key set not fetched", provider=provider.id, reason=reason)


class Failures:
    """Tells of questions that failed: the first at once, and while there are more a line a second for each provider.

    A stranger causes one with every made-up credential. Belongs to one event loop.
    """

    def __init__(self) -> None:
        self._more: dict[str, list[str]] = {}

    def report(self, provider: Provider, reason: str) -> None:
        """Tell of one, now or with the next line."""
        if provider.id in self._more:
            self._more[provider.id].append(reason)
        else:
            _log.warning("provider not asked", provider=provider.id, reason=reason)
            self._wait(provider.id)

    def _wait(self, provider_id: str) -> None:
        self._more[provider_id] = []
        asyncio.get_running_loop().call_later(TELL_S, self._tell, provider_id)

    def _tell(self, provider_id: str) -> None:
        if reasons := self._more.pop(provider_id):
            _log.warning("provider not asked", provider=provider_id, reason=reasons[-1], more=len(reasons))
            self._wait(provider_id)


def _now_us() -> int:
    return time_ns() // 1000


def keep_policies(policies: PolicySet, folder: Path) -> None:
    """Keep every policy value under its digest, before the first admission under it (contract section 4)."""
    for made in (folder.parent, folder):  # parents that mkdir makes by itself are open to everyone
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    for digest, value in policies.digests.items():
        path = folder / f"{digest.removeprefix('sha256:')}.json"
        if not path.exists():
            # Written beside and renamed: another worker, or a crash, never leaves half a policy under a digest.
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_bytes(value)
            draft.rename(path)


def metadata(url: str, policies: PolicySet, *, judges: bool) -> bytes:
    """Return `/.well-known/eval-token-issuer`: what a CI author and a relying party need, and nothing of a policy."""
    providers: list[JSON] = [{"id": provider.id, **published(provider)} for provider in policies.providers.values()]
    judging: dict[str, JSON] = {"verify_endpoint": f"{url}/verify"} if judges else {}
    return msgspec.json.encode({
        "issuer": url,
        "jwks_uri": f"{url}/.well-known/jwks.json",
        "token_endpoint": f"{url}/tokens",
        "batch_endpoint": f"{url}/tokens/batch",
        "explain_endpoint": f"{url}/tokens/explain",
        **judging,
        "schemas": f"{url}/schemas",
        "errors": f"{url}/errors",
        "openapi": f"{url}/openapi.json",
        "identity_audience": url,
        "identity_providers": providers,
        "token_type": jose.TOKEN_TYPE,
        "token_algorithms": [jose.EDDSA],
        "max_token_ttl_s": MAX_TTL_S,
        "max_body_bytes": dict(MAX_BYTES),
    })  # fmt: skip
