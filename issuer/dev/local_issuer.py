"""A throw-away issuer for who writes an integration: it follows his policies, and speaks as each of their providers.

The local provider has an issuer of its own for each, on one port, and signs for all with keys that live in this process
alone. Only a service in development takes a token of an issuer on plain http, so none of them counts anywhere else.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from issuer.codes import Code
from issuer.dev.jobs import JOB_PATH, Job, claims_of, find_provider, without
from issuer.dev.provider import (
    DISCOVERY_PATH,
    KEY_SET_PATH,
    TOKEN_TTL_S,
    Exchange,
    LocalProvider,
    ProviderKey,
    make_key,
)
from issuer.dev.sandbox import SAMPLE_POLICIES, Sandbox, sandbox
from issuer.errors import Finding, IssuerError, SetupError
from issuer.formats.strict_yaml import MAX_BYTES, load
from issuer.identity import pat
from issuer.identity.profiles import PROFILES
from issuer.identity.table import SIGNED, Provider
from issuer.io import files
from issuer.io.followed import look
from issuer.io.sockets import listen_addresses
from issuer.policy.authoring.load import BENCHMARKS_FOLDER, PROVIDERS_FILE, check_policies, load_policies, read_each
from issuer.policy.authoring.stops import STOPS_FILE
from issuer.policy.match import PolicySet
from issuer.service.authn.pat_records import Order
from issuer.service.authn.pat_records import create as create_pat

# The author's policies with local providers and very wide limits. Every other rule is as the author wrote it, so that a
# refusal here is a refusal there.
_MAX_COPY = 8 * MAX_BYTES  # a flow of one value a line is longer than what it says
_WIDE = {"count": 1_000_000, "per_s": 60, "burst": 50_000}
LIMITS = {"identity": _WIDE, "integration": _WIDE, "refusals": _WIDE}
# What says whose tokens a provider's are, where they are and for whom: here, the local provider's, for this issuer.
_LOCAL = frozenset({"issuer", "audience", "keys"})


def mirror(source: Path, target: Path, local_issuer: Callable[[str], str]) -> None:
    """Make `target` say what `source` says, which is good; `local_issuer` names the issuer of a provider by its id.
    Raises InputError and OSError where `source` cannot be read: then nothing is changed."""
    wanted = {name: _as_here(name, raw, local_issuer) for name, raw in _policies_in(source)}
    for name, raw in wanted.items():
        path = target / name
        files.make_folder(path.parent)
        if not path.exists() or files.read(path, _MAX_COPY) != raw:
            files.replace(path, raw, mode=0o600, durable=False)
    for path in [*target.rglob("*.yaml")]:
        if str(path.relative_to(target)) not in wanted:
            path.unlink()


def _policies_in(source: Path) -> Iterator[tuple[str, bytes]]:
    for path in (*source.glob("*.yaml"), *(source / BENCHMARKS_FOLDER).rglob("*.yaml")):
        if path.is_file() and not path.name.startswith("."):
            yield str(path.relative_to(source)), files.read(path, MAX_BYTES)


def _as_here(name: str, raw: bytes, local_issuer: Callable[[str], str]) -> bytes:
    if name == STOPS_FILE or "/" in name:
        return raw
    value: Any = load(raw, name, bare_dates=lambda _: True).value
    if name != PROVIDERS_FILE:
        return _written({**value, "limits": LIMITS})
    providers = {id: _local(id, entry, local_issuer) for id, entry in value["providers"].items()}
    return _written({**value, "providers": providers})


def _local(id: str, entry: dict[str, Any], local_issuer: Callable[[str], str]) -> dict[str, Any]:
    """Return a provider's entry with the local issuer, where its tokens are signed; else as it is."""
    if PROFILES[entry["profile"]].kind not in SIGNED:
        return entry
    return {**{name: value for name, value in entry.items() if name not in _LOCAL}, "issuer": local_issuer(id)}


def _written(value: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1)  # JSON is YAML


LOOK_S = 0.5
PAT_LIFE_S = 3600
# An expired token ended this long ago: longer than any leeway, and not so long that it would be called too old.
AGO_S = 300
# The sample folder: GitHub Actions and GitLab CI of this package's policies, and what has no CI.
ACCOUNTS = Path(__file__).parent / "accounts.yaml"
PROVIDERS = """version: 1
providers:
  github-actions: {profile: "github-actions"}
  gitlab-ci: {profile: "gitlab-ci"}
  oauth: {profile: "oauth", issuer: "https://auth.example"}
  pat: {profile: "pat"}
"""
# What is told of a folder that has changed: its policies, None where it is not taken, and every finding.
Tell = Callable[[PolicySet | None, Sequence[Finding]], object]


class Bench:
    """The providers of the policies, in the place of the local provider's own answers. `pats` is the service's folder
    of personal access tokens."""

    def __init__(self, local: LocalProvider, pats: Path, source: Path, found: PolicySet) -> None:
        self._local = local
        self._pats = pats
        self._making = threading.Lock()
        local.answers[JOB_PATH] = self._answer_job
        self.follow(source, found)

    def issuer_of(self, provider: str) -> str:
        """Return the issuer that stands in for a provider."""
        return f"{self._local.issuer}/{provider}"

    def follow(self, source: Path, found: PolicySet) -> None:
        """Speak for the providers of a folder's policies from now on. What was `found` there keeps no tests."""
        self._providers = tuple(found.providers.values())
        self._policies = tuple(policy for policy in (read_each(source) or {}).values() if policy is not None)
        for provider in self._providers:
            self._local.answers[f"/{provider.id}{DISCOVERY_PATH}"] = partial(self._answer_discovery, provider.id)

    def credential(self, job: Job, audience: str) -> tuple[str, Provider]:
        """Make the credential of a job that asks for an audience. Raises IssuerError."""
        provider = find_provider(job, self._providers)
        claims = claims_of(job, provider, self._policies)
        if provider.rules.kind == "pat":
            return self._access_token(without(claims, job.without), expired=job.expired), provider
        if provider.rules.kind not in ("identity-token", "access-token"):
            detail = f"{provider.id} is asked about its tokens, and is not here: use its own, or another provider"
            raise SetupError(Code.DEV_JOB, detail)
        return self._signed(provider, self._whole(provider, claims, job, audience)), provider

    def _whole(self, provider: Provider, claims: Mapping[str, Any], job: Job, audience: str) -> dict[str, Any]:
        now = int(time.time()) - (TOKEN_TTL_S + AGO_S if job.expired else 0)
        said = {"iat": now, "nbf": now, "exp": now + TOKEN_TTL_S, "aud": job.audience or audience,
                "iss": self.issuer_of(provider.id), "jti": str(uuid.uuid4()), **claims}  # fmt: skip
        whole = self._local.claims(**said) if provider.profile == "github-actions" else said
        return without(whole, job.without)

    def _signed(self, provider: Provider, claims: Mapping[str, Any]) -> str:
        key = self._key(provider.algorithms)
        return self._local.sign({"typ": provider.rules.types[0], "alg": key.alg, "kid": key.kid}, claims, key)

    def _key(self, algorithms: Sequence[str]) -> ProviderKey:
        with self._making:
            found = next((key for key in self._local.published if key.alg in algorithms), None)
            if found is None:
                found = make_key(algorithms[0].replace("Ed25519", "EdDSA"))
                self._local.published.append(found)
            return found

    def _access_token(self, claims: Mapping[str, Any], *, expired: bool) -> str:
        account, scope = claims.get("account"), claims.get("scope")
        if not isinstance(account, str) or not isinstance(scope, str):
            raise SetupError(Code.DEV_JOB, "a personal access token always has an account and a scope, which are texts")
        order = Order(account, scope.split(), (), PAT_LIFE_S)
        now = int(time.time()) - (PAT_LIFE_S + AGO_S if expired else 0)
        return create_pat(self._pats, order, now=now, random=os.urandom(pat.RANDOM_BYTES))[0]

    def _answer_discovery(self, provider: str, exchange: Exchange) -> None:
        issuer, keys = self.issuer_of(provider), self._local.issuer + KEY_SET_PATH
        exchange.reply(200, {**self._local.discovery(), "issuer": issuer, "jwks_uri": keys})

    def _answer_job(self, exchange: Exchange) -> None:
        if not self._local.admits(exchange):
            return
        asked = {name: values[0] for name, values in parse_qs(urlsplit(exchange.path).query).items()}
        try:
            job = msgspec.json.decode(asked.get("job", "{}"), type=Job)
            value, provider = self.credential(job, asked.get("audience", ""))
        except (IssuerError, msgspec.MsgspecError, RecursionError) as error:
            exchange.reply(400, {"message": error.detail if isinstance(error, IssuerError) else str(error)})
        else:
            exchange.reply(200, {"value": value, "profile": provider.profile})


@contextlib.contextmanager
def bench(port: int, policies: Path | None, tell: Tell) -> Iterator[Sandbox]:
    """Make a sandbox that follows a folder of policies, the samples by default, and remove it afterwards. Raises
    InputError where they are not good at the start, and SetupError where somebody else listens at the port. Later what
    is not good is told, and the policies of before stay."""
    with sandbox(port) as box, contextlib.ExitStack() as stack:
        listen = box.settings.listen
        listen_addresses(listen.host, listen.port)  # before it says that it is there, in place of another
        source, url = policies or write_samples(box.folder / "sample"), box.settings.url
        seen = look(source, 4)
        found = load_policies(source, url, development=True)
        answering = Bench(box.provider, box.settings.pats_folder, source, found)
        mirror(source, box.settings.policies_folder, answering.issuer_of)
        ended = threading.Event()
        follower = threading.Thread(target=_follow, args=(source, box, answering, tell, seen, ended), daemon=True)
        follower.start()
        stack.callback(follower.join)
        stack.callback(ended.set)
        yield box


def _follow(source: Path, box: Sandbox, answering: Bench, tell: Tell, seen: object, ended: threading.Event) -> None:
    while not ended.wait(LOOK_S):
        now = look(source, 4)
        if now == seen:
            continue
        seen = now
        policies, findings = check_policies(source, box.settings.url, int(time.time()), development=True)
        if policies is not None:
            with contextlib.suppress(IssuerError, OSError):  # it changed once more: the next look has it
                mirror(source, box.settings.policies_folder, answering.issuer_of)
                answering.follow(source, policies)
        tell(policies, findings)


def write_samples(folder: Path) -> Path:
    """Write the sample policies, as an author has his own, and return their folder."""
    files.make_folder(folder)
    for path in (*SAMPLE_POLICIES.glob("*.yaml"), ACCOUNTS):
        text = PROVIDERS.encode() if path.name == PROVIDERS_FILE else files.read(path, MAX_BYTES)
        files.create(folder / ("my-framework.yaml" if path == ACCOUNTS else path.name), text, durable=False)
    return folder
