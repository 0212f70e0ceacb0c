"""A throw-away issuer for authors of integrations: it follows their policy files and imitates each of their providers.

The local provider has an OIDC issuer for each provider, on one port, and signs with keys that exist only in this
process. Only a service in development mode accepts tokens of an issuer on plain http, so other services refuse these.
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
from issuer.dev.provider import DISCOVERY_PATH, KEY_SET_PATH, TOKEN_TTL_S, Exchange, LocalProvider, make_key
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

# The author's policies with local providers and very wide limits. All other rules stay as the author wrote them, so
# that a refusal here predicts a refusal by the real issuer.
_MAX_COPY = 8 * MAX_BYTES  # a copy has one value on each line, and is longer than its source
_WIDE = {"count": 1_000_000, "per_s": 60, "burst": 50_000}
LIMITS = {"identity": _WIDE, "integration": _WIDE, "refusals": _WIDE}
# The members of a provider's entry that the local provider replaces.
_LOCAL = frozenset({"issuer", "audience", "keys"})


def mirror(source: Path, target: Path, local_issuer: Callable[[str], str]) -> None:
    """Copy the valid policies in `source` to `target`. `local_issuer` returns the local OIDC issuer of a provider's id.
    Raises InputError and OSError, before any change, if `source` cannot be read."""
    wanted = {name: _localized(name, raw, local_issuer) for name, raw in _policies_in(source)}
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


def _localized(name: str, raw: bytes, local_issuer: Callable[[str], str]) -> bytes:
    if name == STOPS_FILE or "/" in name:
        return raw
    value: Any = load(raw, name, bare_dates=lambda _: True).value
    if name != PROVIDERS_FILE:
        return _written({**value, "limits": LIMITS})
    providers = {id: _local(id, entry, local_issuer) for id, entry in value["providers"].items()}
    return _written({**value, "providers": providers})


def _local(id: str, entry: dict[str, Any], local_issuer: Callable[[str], str]) -> dict[str, Any]:
    """Return a provider's entry: with the local OIDC issuer if its tokens are signed, otherwise unchanged."""
    if PROFILES[entry["profile"]].kind not in SIGNED:
        return entry
    return {**{name: value for name, value in entry.items() if name not in _LOCAL}, "issuer": local_issuer(id)}


def _written(value: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1)  # JSON is YAML


LOOK_S = 0.5
PAT_LIFE_S = 3600
# An expired token ended this long ago: more than any leeway, but not enough to be refused as too old.
AGO_S = 300
# The sample folder has GitHub Actions and GitLab CI from this package's policies, and identities without a CI.
ACCOUNTS = Path(__file__).parent / "accounts.yaml"
PROVIDERS = """version: 1
providers:
  github-actions: {profile: "github-actions"}
  gitlab-ci: {profile: "gitlab-ci"}
  oauth: {profile: "oauth", issuer: "https://auth.example"}
  pat: {profile: "pat"}
"""
# Called after a change of the folder: with its policies, None if they are refused, and all findings.
Tell = Callable[[PolicySet | None, Sequence[Finding]], object]


class Bench:
    """The policies' providers, which `local` imitates. `pats` is the service's folder of personal access tokens."""

    def __init__(self, local: LocalProvider, pats: Path, source: Path, policies: PolicySet) -> None:
        self._local = local
        self._pats = pats
        self._making = threading.Lock()
        local.answers[JOB_PATH] = self._answer_job
        self.follow(source, policies)

    def issuer_of(self, provider: str) -> str:
        """Return the local OIDC issuer of a provider."""
        return f"{self._local.issuer}/{provider}"

    def follow(self, source: Path, policies: PolicySet) -> None:
        """Imitate the providers of these policies from now on. `source` is read again, as a PolicySet has no tests."""
        self._providers = tuple(policies.providers.values())
        self._policies = tuple(policy for policy in (read_each(source) or {}).values() if policy is not None)
        for provider in self._providers:
            self._local.answers[f"/{provider.id}{DISCOVERY_PATH}"] = partial(self._answer_discovery, provider.id)

    def credential(self, job: Job, audience: str) -> tuple[str, Provider]:
        """Return the credential of a job for an audience, and its provider. Raises IssuerError."""
        provider = find_provider(job, self._providers)
        claims = claims_of(job, provider, self._policies)
        if provider.rules.kind == "pat":
            return self._access_token(without(claims, job.without), expired=job.expired), provider
        if provider.rules.kind not in ("identity-token", "access-token"):
            detail = f"only {provider.id} itself can verify its tokens: use a real one, or another provider"
            raise SetupError(Code.DEV_JOB, detail)
        published, algorithms = self._local.published, provider.algorithms
        with self._making:
            key = next((key for key in published if key.alg in algorithms), None)
            if key is None:
                published.append(key := make_key(algorithms[0].replace("Ed25519", "EdDSA")))
        header = {"typ": provider.rules.types[0], "alg": key.alg, "kid": key.kid}
        return self._local.sign(header, self._all_claims(provider, claims, job, audience), key), provider

    def _all_claims(self, provider: Provider, claims: Mapping[str, Any], job: Job, audience: str) -> dict[str, Any]:
        now = int(time.time()) - (TOKEN_TTL_S + AGO_S if job.expired else 0)
        merged = {"iat": now, "nbf": now, "exp": now + TOKEN_TTL_S, "aud": job.audience or audience,
                  "iss": self.issuer_of(provider.id), "jti": str(uuid.uuid4()), **claims}  # fmt: skip
        return without(self._local.claims(**merged) if provider.profile == "github-actions" else merged, job.without)

    def _access_token(self, claims: Mapping[str, Any], *, expired: bool) -> str:
        account, scope = claims.get("account"), claims.get("scope")
        if not isinstance(account, str) or not isinstance(scope, str):
            raise SetupError(Code.DEV_JOB, "a personal access token needs an account and a scope, which are texts")
        order = Order(account, scope.split(), (), PAT_LIFE_S)
        now = int(time.time()) - (PAT_LIFE_S + AGO_S if expired else 0)
        return create_pat(self._pats, order, now=now, random=os.urandom(pat.RANDOM_BYTES))[0]

    def _answer_discovery(self, provider: str, exchange: Exchange) -> None:
        issuer, keys = self.issuer_of(provider), self._local.issuer + KEY_SET_PATH
        exchange.reply(200, {**self._local.discovery(), "issuer": issuer, "jwks_uri": keys})

    def _answer_job(self, exchange: Exchange) -> None:
        if not self._local.admits(exchange):
            return
        query = {name: values[0] for name, values in parse_qs(urlsplit(exchange.path).query).items()}
        try:
            job = msgspec.json.decode(query.get("job", "{}"), type=Job)
            value, provider = self.credential(job, query.get("audience", ""))
        except (IssuerError, msgspec.MsgspecError, RecursionError) as error:
            exchange.reply(400, {"message": error.detail if isinstance(error, IssuerError) else str(error)})
        else:
            exchange.reply(200, {"value": value, "profile": provider.profile})


@contextlib.contextmanager
def bench(port: int, policies: Path | None, tell: Tell) -> Iterator[Sandbox]:
    """Make a sandbox that follows a folder of policies, by default the samples, and remove it afterwards. Raises
    InputError for policies that are invalid at the start, and SetupError if another process listens at the port. Later
    errors are passed to `tell`, and the previous policies stay in force."""
    with sandbox(port) as box, contextlib.ExitStack() as stack:
        listen = box.settings.listen
        listen_addresses(listen.host, listen.port)  # fail before announcing an issuer on another process's port
        source, url = policies or write_samples(box.folder / "sample"), box.settings.url
        snapshot = look(source, 4)
        providers = Bench(box.provider, box.settings.pats_folder, source, load_policies(source, url, development=True))
        mirror(source, box.settings.policies_folder, providers.issuer_of)
        ended = threading.Event()
        follower = threading.Thread(target=_follow, args=(source, box, providers, tell, snapshot, ended), daemon=True)
        follower.start()
        stack.callback(follower.join)
        stack.callback(ended.set)
        yield box


def _follow(source: Path, box: Sandbox, providers: Bench, tell: Tell, snapshot: object, ended: threading.Event) -> None:
    while not ended.wait(LOOK_S):
        if (now := look(source, 4)) == snapshot:
            continue
        snapshot = now
        policies, findings = check_policies(source, box.settings.url, int(time.time()), development=True)
        if policies is not None:
            with contextlib.suppress(IssuerError, OSError):  # the folder changed again: the next turn reads it
                mirror(source, box.settings.policies_folder, providers.issuer_of)
                providers.follow(source, policies)
        tell(policies, findings)


def write_samples(folder: Path) -> Path:
    """Write the sample policies as an author's folder, and return it."""
    files.make_folder(folder)
    for path in (*SAMPLE_POLICIES.glob("*.yaml"), ACCOUNTS):
        text = PROVIDERS.encode() if path.name == PROVIDERS_FILE else files.read(path, MAX_BYTES)
        files.create(folder / ("my-framework.yaml" if path == ACCOUNTS else path.name), text, durable=False)
    return folder
