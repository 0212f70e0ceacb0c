"""The public documents about policies, keys, revocations and the log. They are written when their content changes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, get_args

import msgspec
from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats import jose
from issuer.formats.strict_json import JSON
from issuer.identity.table import Provider, describe_provider
from issuer.limits.sources import Sources
from issuer.policy.match import PolicySet
from issuer.policy.model import Identity, Matcher, Policy, describe
from issuer.service.http.messages import HttpDocument, document
from issuer.service.http.openapi import EXAMPLE
from issuer.service.http.pages import Landing
from issuer.service.http.request_limits import Tarpit
from issuer.service.log.client import AnnouncingLog
from issuer.service.metrics.counts import Counters
from issuer.service.policies.active import Active, Live
from issuer.service.policies.emergency_stops import LiveStops
from issuer.service.revocation.active_list import LiveRevocations, RevocationsStatus
from issuer.service.revocation.bounds import LIST_AGE_S
from issuer.service.revocation.ledger import SignedList
from issuer.service.signing.active_keys import LiveSigner
from issuer.service.signing.bounds import KEY_SET_AGE_S, KEY_SET_STALE_S
from issuer.service.signing.keyring import KeyringSigner
from issuer.service.signing.lifecycle import Lives, archive
from issuer.tlog.witness_policy import parse_policy
from issuer.token.verify_token import MAX_TTL_S
from issuer.token.wire import (
    ARCHIVE_PATH,
    DETAIL_TYPE,
    EXCHANGE_PATH,
    GRANT_TYPE,
    JWKS_PATH,
    LOG_PATH,
    MAX_BYTES,
    MAX_FORM_BYTES,
    REVOCATION_KEYS_PATH,
    REVOCATIONS_PATH,
    Endpoint,
)
from issuer.verify.revocations import REVOCATIONS_TYPE


def metadata(url: str, policies: PolicySet, *, verifies: bool, log_origin: str = "", log_url: str = "") -> bytes:
    """Return the metadata document: audience, providers, endpoints and lifetimes, and no part of a policy. With a
    transparency log it has the log's origin line and the URL of its public endpoints."""
    providers: list[JSON] = [
        {"id": provider.id, **describe_provider(provider)} for provider in policies.providers.values()
    ]
    judging: dict[str, JSON] = {"verify_endpoint": f"{url}/verify"} if verifies else {}
    log: dict[str, JSON] = {"log_origin": log_origin, "log_url": log_url} if log_origin else {}
    return msgspec.json.encode({
        "issuer": url,
        "jwks_uri": f"{url}{JWKS_PATH}",
        "jwks_archive_uri": f"{url}{ARCHIVE_PATH}",
        "revocations_uri": f"{url}{REVOCATIONS_PATH}",
        "revocation_keys_uri": f"{url}{REVOCATION_KEYS_PATH}",
        "token_endpoint": f"{url}/tokens",
        "batch_endpoint": f"{url}/tokens/batch",
        "explain_endpoint": f"{url}/tokens/explain",
        "exchange_endpoint": f"{url}{EXCHANGE_PATH}",
        **judging,
        **log,
        "schemas": f"{url}/schemas",
        "errors": f"{url}/errors",
        "openapi": f"{url}/openapi.json",
        "identity_audience": url,
        "identity_providers": providers,
        "token_type": jose.TOKEN_TYPE,
        "token_algorithms": [jose.EDDSA],
        "max_token_ttl_s": MAX_TTL_S,
        "max_body_bytes": {
            "/tokens": MAX_BYTES["single"],
            "/tokens/batch": MAX_BYTES["batch"],
            "/tokens/explain": MAX_BYTES["single"],
            EXCHANGE_PATH: MAX_FORM_BYTES,
        },
    })  # fmt: skip


# -- OAuth -------------------------------------------------------------------------------------------------------------

# Two documents by which OAuth clients configure themselves: about this service as an authorization server (RFC 8414),
# and about each endpoint that takes a bearer credential as a protected resource (RFC 9728).

_SERVER, RESOURCE = "oauth-authorization-server", "oauth-protected-resource"


def well_known(issuer_url: str, name: str, path: str = "") -> str:
    """Return the URL of the document about a URL: the name goes before the URL's path (RFC 8414 3, RFC 9728 3)."""
    scheme, _, rest = issuer_url.partition("://")
    host, slash, own = rest.partition("/")
    return f"{scheme}://{host}/.well-known/{name}{slash}{own}{path}"


def oauth_documents(url: str, policies: PolicySet) -> dict[str, HttpDocument]:
    """Return the documents by their paths. `url` is the issuer's URL."""
    servers = sorted({provider.issuer for provider in policies.providers.values() if "://" in provider.issuer})
    about: dict[str, JSON] = {
        "issuer": url,
        "token_endpoint": f"{url}{EXCHANGE_PATH}",
        "jwks_uri": f"{url}{JWKS_PATH}",
        "response_types_supported": ["none"],
        "grant_types_supported": [GRANT_TYPE],
        "token_endpoint_auth_methods_supported": ["none"],
        "authorization_details_types_supported": [DETAIL_TYPE],
        "service_documentation": f"{url}/openapi.json",
    }
    documents = {well_known(url, _SERVER): about}
    for path in get_args(Endpoint):
        if path != EXCHANGE_PATH:
            documents[well_known(url, RESOURCE, path)] = {
                "resource": f"{url}{path}",
                "authorization_servers": servers,
                "bearer_methods_supported": ["header"],
                "resource_documentation": f"{url}/openapi.json",
            }
    origin = well_known(url, "").partition("/.well-known/")[0]
    return {key.removeprefix(origin): document(msgspec.json.encode(value)) for key, value in documents.items()}


# -- the log -----------------------------------------------------------------------------------------------------------

# A log has two prefixes (tlog-tiles): `/log`, which always serves the issuer's current log, and `/log/<name>`, from its
# origin line. A later log has another name, so caches never mix the two, and the operator can go on serving the old log
# at its prefix, as files.

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TAKEN = frozenset({"checkpoint", "tile", "proof", "log.json"})


class LogInfo(Struct, frozen=True):
    """The log's description: the issuer's URL, the log's origin line and, if known, its public keys as vkeys
    (signed-note) and the text of the witness policy (tlog-policy)."""

    issuer_url: str
    origin: str
    vkeys: tuple[str, ...] = ()
    witness_policy: str = ""

    @classmethod
    def of(cls, issuer_url: str, origin: str, policy: bytes, name: str) -> LogInfo:
        """Read the log's keys from its witness policy, the file `name`. There are several keys while one replaces
        another. Raises InputError(`log.policy`)."""
        logs = parse_policy(policy, name).logs
        keys = tuple(log.verifier.to_text() for log in logs if log.verifier.name == origin)
        return cls(issuer_url, origin, keys, policy.decode(errors="replace"))

    def to_json(self) -> bytes:
        """Return `log.json`. It is not a trust anchor: a relying party must get the log's keys from elsewhere."""
        policy = {"witness_policy": self.witness_policy} if self.witness_policy else {}
        urls = log_urls(self.issuer_url, self.origin)
        return msgspec.json.encode({"origin": self.origin, "vkeys": self.vkeys, "urls": urls, **policy})


def prefixes(issuer_url: str, origin: str) -> tuple[str, ...]:
    """Return the paths under which a log is served: first `/log/<name>`, if its origin is under the issuer's URL."""
    own = origin.removeprefix(f"{issuer_url.partition('://')[2]}{LOG_PATH}/")
    named = own != origin and _NAME.fullmatch(own) and own not in _TAKEN
    return (f"{LOG_PATH}/{own}", LOG_PATH) if named else (LOG_PATH,)


def log_urls(issuer_url: str, origin: str) -> tuple[str, ...]:
    """Return the URLs of `prefixes`, in the same order, without a trailing slash."""
    return tuple(issuer_url + prefix for prefix in prefixes(issuer_url, origin))


# -- requirements ------------------------------------------------------------------------------------------------------

# What a CI job must send, for integrations whose policy says `public: true`.
#
# Pinned claims are named without their values: the owner knows them, and a list of registered repositories is a list of
# targets for attackers. Expected values are shown only if the policy's `disclose` allows it (contract section 5).

# This is deliberately not a valid nonce: a copied example would be used twice.
NONCE = "<16 or more random bytes as base64url, made for this request>"


def requirements(url: str, policies: PolicySet) -> dict[str, HttpDocument]:
    """Return the documents of all public integrations, by integration id. `url` is the issuer's URL."""
    providers = {provider.id: provider for provider in policies.providers.values()}
    return {
        name: document(msgspec.json.encode(_required(url, policy, providers)))
        for name, policy in policies.policies.items()
        if policy.public
    }


def _required(url: str, policy: Policy, providers: dict[str, Provider]) -> dict[str, Any]:
    shown = policy.disclose
    kinds = {providers[identity.provider].rules.reusable for identity in policy.identities}
    required: dict[str, Any] = {
        "integration": policy.integration,
        "identities": [
            _identity(identity, providers[identity.provider], disclosed="identity" in shown)
            for identity in policy.identities
        ],
        "command": policy.grants.command,
        "token": {"audiences": policy.token.audiences, "ttl_s": policy.token.ttl_s},
        "requests": [_example(url, reusable=reusable) for reusable in sorted(kinds)],
    }
    if "frameworks" in shown:
        required["frameworks"] = policy.grants.frameworks
    return required


def _identity(identity: Identity, provider: Provider, *, disclosed: bool) -> dict[str, Any]:
    """Describe an identity's credential and its required claims, with their expected values only if `disclosed`."""
    rules = {**provider.rules.demands, **identity.require}
    required: dict[str, Any] = {
        "provider": provider.id,
        **describe_provider(provider),
        "pins": list(identity.pins),
        "require": {name: describe(Matcher(absent=True) if rule is None else rule) for name, rule in rules.items()}
        if disclosed
        else list(rules),
    }
    if disclosed and provider.rules.event_claim not in {None, *identity.require}:
        required["events"] = provider.events
    if disclosed and identity.expires is not UNSET:
        required["expires"] = identity.expires
    return required


def _example(url: str, *, reusable: bool) -> dict[str, Any]:
    bearer, nonce = ("access token", {"nonce": NONCE}) if reusable else ("identity token", {})
    headers = {"Authorization": f"Bearer <{bearer}>", "Content-Type": "application/json"}
    return {"method": "POST", "url": f"{url}/tokens", "headers": headers, "body": {**EXAMPLE, **nonce}}


# -- active policies and keys ------------------------------------------------------------------------------------------

_KEY_SET_TYPE = "application/jwk-set+json"
KEY_SET_CACHE = f"public, max-age={KEY_SET_AGE_S}, stale-if-error={KEY_SET_STALE_S}"


class PublishedPolicies(Active, frozen=True):
    """The active policies and their documents."""

    landing: Landing
    metadata: HttpDocument
    oauth: Mapping[str, HttpDocument]
    requirements: Mapping[str, HttpDocument]

    @classmethod
    def of(cls, active: Active, *, verifies: bool, ui: bool) -> PublishedPolicies:
        """Write the documents. `verifies`: the service answers `POST /verify`. `ui`: it has the pages for people."""
        url, policies = active.authority.issuer_url, active.authority.policies
        origin = active.authority.log.origin or ""
        log_url = log_urls(url, origin)[0] if origin else ""
        about = metadata(url, policies, verifies=verifies, log_origin=origin, log_url=log_url)
        return cls(
            authority=active.authority,
            loaded_at=active.loaded_at,
            landing=Landing.of(url, policies.providers.values(), about, verifies=verifies, log_url=log_url, ui=ui),
            metadata=document(about),
            oauth=oauth_documents(url, policies),
            requirements=requirements(url, policies),
        )


class PublishedKeys:
    """The documents of the keys: the key set of the keys that sign now, and the archive of all keys that ever did."""

    def __init__(self, signer: LiveSigner) -> None:
        self._signer = signer
        self._keyring: KeyringSigner | None = None
        self._lives: Lives | None = None

    @property
    def by_path(self) -> Mapping[str, Callable[[], bytes]]:
        """Functions that return the current bytes of both documents, by path."""
        return {JWKS_PATH: lambda: self._signer.keyring.jwks, ARCHIVE_PATH: lambda: archive(self._signer.lives)}

    @property
    def document(self) -> HttpDocument:
        """The key set."""
        if self._signer.keyring is not self._keyring:
            self._keyring = self._signer.keyring
            self._document = document(self._keyring.jwks, _KEY_SET_TYPE, cache=KEY_SET_CACHE)
        return self._document

    @property
    def archive(self) -> HttpDocument:
        """The archive (contract section 6). It depends only on the history, so all hosts serve the same bytes."""
        if self._signer.lives is not self._lives:
            self._lives = self._signer.lives
            self._archive = document(archive(self._lives), _KEY_SET_TYPE, cache=KEY_SET_CACHE)
        return self._archive


# -- revocations -------------------------------------------------------------------------------------------------------

_CACHE = f"public, max-age={LIST_AGE_S}"


class PublishedRevocations:
    """The list of revocations and its key as documents: the bytes of their files. Hosts that share these agree."""

    def __init__(self, live: LiveRevocations) -> None:
        self._live = live
        self._list: SignedList | None = None
        self._documents: tuple[HttpDocument, HttpDocument] | None = None

    @property
    def status(self) -> RevocationsStatus:
        """The state of the revocations, for the health endpoint."""
        return self._live.status

    @property
    def signed_list(self) -> HttpDocument:
        """The list. Raises Refused(`request.not_found`) without one. A relying party that never saw a list then assumes
        that the issuer has revoked nothing."""
        return self._written()[0]

    @property
    def keys(self) -> HttpDocument:
        """The JWK set with the key of the list. Raises as `signed_list` does."""
        return self._written()[1]

    def _written(self) -> tuple[HttpDocument, HttpDocument]:
        published = self._live.in_force.published
        if published is None:
            raise Refused(Code.REQUEST_NOT_FOUND)
        if self._documents is None or published is not self._list:
            self._documents = (
                document(published.raw, f"application/{REVOCATIONS_TYPE}", cache=_CACHE),
                document(published.keys, "application/jwk-set+json", cache=_CACHE),
            )
            self._list = published
        return self._documents


# -- the service -------------------------------------------------------------------------------------------------------


class Service(Struct, frozen=True):
    """Everything that the endpoints use: the active policies with their authority, and the parts that health shows.
    `keys` publishes the keys of `signer`. `check` raises Undecided while requests for tokens would end with 503."""

    issuer_url: str
    counts: Counters
    live: Live[PublishedPolicies]
    signer: LiveSigner
    keys: PublishedKeys
    revocations: PublishedRevocations
    stops: LiveStops
    sources: Sources
    check: Callable[[], Awaitable[None]]
    store_status: Callable[[], object]
    tarpit: Tarpit
    log: AnnouncingLog | None = None
