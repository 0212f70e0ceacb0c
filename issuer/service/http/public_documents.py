"""The public documents of policies, keys, revocations and the log: written when these change, not for each request."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats import jose
from issuer.formats.strict_json import JSON
from issuer.identity.table import Provider, describe_provider
from issuer.limits.sources import Sources
from issuer.policy.match import PolicySet
from issuer.policy.model import Identity, Policy
from issuer.policy.requirement import Matcher, Requirement, describe
from issuer.service.http.messages import Document, document
from issuer.service.http.openapi import EXAMPLE
from issuer.service.http.pages import Landing
from issuer.service.http.request_limits import Tarpit
from issuer.service.log.client import AnnouncingLog
from issuer.service.metrics.counts import Counts
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
from issuer.token.wire import ARCHIVE_PATH, JWKS_PATH, LOG_PATH, MAX_BYTES, REVOCATION_KEYS_PATH, REVOCATIONS_PATH
from issuer.verify.revocations import REVOCATIONS_TYPE


def metadata(url: str, policies: PolicySet, *, verifies: bool, log_origin: str = "", log_url: str = "") -> bytes:
    """Return the document: audience, providers, endpoints and lifetimes, and nothing of a policy.

    With a transparency log: its origin line, and the URL under which it is served.
    """
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
        },
    })  # fmt: skip


# -- the log -----------------------------------------------------------------------------------------------------------

# A log has two prefixes (tlog-tiles): `/log`, which is that of whichever log this issuer has now, and the one that its
# origin line names, `/log/<name>`. That one is always its own: when another log follows it, what caches hold of the old
# one is at another URL, and its operator can go on serving it there, as files.

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TAKEN = frozenset({"checkpoint", "tile", "proof", "log.json"})


class LogInfo(Struct, frozen=True):
    """What the log says of itself: the issuer's URL, the log's origin line, its public keys as vkeys (signed-note), and
    the text of the witness policy (tlog-policy), where they are known."""

    issuer_url: str
    origin: str
    vkeys: tuple[str, ...] = ()
    witness_policy: str = ""

    @classmethod
    def of(cls, issuer_url: str, origin: str, policy: bytes, name: str) -> LogInfo:
        """Take the log's keys from its witness policy, a file of this name: several while one replaces the other.

        Raises InputError(`log.policy`).
        """
        logs = parse_policy(policy, name).logs
        keys = tuple(log.verifier.to_text() for log in logs if log.verifier.name == origin)
        return cls(issuer_url, origin, keys, policy.decode(errors="replace"))

    def to_json(self) -> bytes:
        """Write `log.json`. It is no trust anchor: who trusts the log has its keys from elsewhere."""
        policy = {"witness_policy": self.witness_policy} if self.witness_policy else {}
        urls = log_urls(self.issuer_url, self.origin)
        return msgspec.json.encode({"origin": self.origin, "vkeys": self.vkeys, "urls": urls, **policy})


def prefixes(issuer_url: str, origin: str) -> tuple[str, ...]:
    """Return the paths under which a log is served, the one that is always its own first, if it has one.

    A log whose origin is not under the issuer's URL has none.
    """
    own = origin.removeprefix(f"{issuer_url.partition('://')[2]}{LOG_PATH}/")
    named = own != origin and _NAME.fullmatch(own) and own not in _TAKEN
    return (f"{LOG_PATH}/{own}", LOG_PATH) if named else (LOG_PATH,)


def log_urls(issuer_url: str, origin: str) -> tuple[str, ...]:
    """Return the URLs of these prefixes, in the same order, without a trailing slash."""
    return tuple(issuer_url + prefix for prefix in prefixes(issuer_url, origin))


# -- requirements ------------------------------------------------------------------------------------------------------

# What a CI author must send, for integrations whose policy says `public: true`. Nothing of any other policy.
#
# Pinned claims are named without their values: their owner knows them, and a list of registered repositories is a list
# of places to attack. Expected values are given where the policy's `disclose` names them (contract section 5).

# Not an example to copy: a nonce is good once.
NONCE = "<16 or more random bytes as base64url, made for this request>"


def requirements(url: str, policies: PolicySet) -> dict[str, Document]:
    """Return the documents of all public integrations, by integration id. `url` is the issuer's."""
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
    """Describe the credential of one identity and what must be in it; expected values only if `disclosed`."""
    rules = {**provider.rules.demands, **identity.require}
    required: dict[str, Any] = {
        "provider": provider.id,
        **describe_provider(provider),
        "pins": list(identity.pins),
        "require": {name: _describe(rule) for name, rule in rules.items()} if disclosed else list(rules),
    }
    if disclosed and provider.rules.event_claim not in {None, *identity.require}:
        required["events"] = provider.events
    if disclosed and identity.expires is not UNSET:
        required["expires"] = identity.expires
    return required


def _describe(rule: Requirement | None) -> str:
    return describe(Matcher(absent=True) if rule is None else rule)


def _example(url: str, *, reusable: bool) -> dict[str, Any]:
    bearer, nonce = ("access token", {"nonce": NONCE}) if reusable else ("identity token", {})
    headers = {"Authorization": f"Bearer <{bearer}>", "Content-Type": "application/json"}
    return {"method": "POST", "url": f"{url}/tokens", "headers": headers, "body": {**EXAMPLE, **nonce}}


# -- what is in force --------------------------------------------------------------------------------------------------

_KEY_SET_TYPE = "application/jwk-set+json"
KEY_SET_CACHE = f"public, max-age={KEY_SET_AGE_S}, stale-if-error={KEY_SET_STALE_S}"


class Published(Active, frozen=True):
    """The active policies, and the documents that publish them."""

    landing: Landing
    metadata: Document
    requirements: Mapping[str, Document]

    @classmethod
    def of(cls, active: Active, *, verifies: bool, ui: bool) -> Published:
        """Write the documents. `verifies`: this service answers `POST /verify`; `ui`: it has the pages for people."""
        url, policies = active.authority.issuer_url, active.authority.policies
        origin = active.authority.log.origin or ""
        log_url = log_urls(url, origin)[0] if origin else ""
        about = metadata(url, policies, verifies=verifies, log_origin=origin, log_url=log_url)
        return cls(
            authority=active.authority,
            loaded_at=active.loaded_at,
            landing=Landing.of(url, policies.providers.values(), about, verifies=verifies, log_url=log_url, ui=ui),
            metadata=document(about),
            requirements=requirements(url, policies),
        )


class PublishedKeys:
    """The key set of the keys that sign now, and the archive of all that ever did, as documents: each is written anew
    where what it is made of has changed."""

    def __init__(self, signer: LiveSigner) -> None:
        self._signer = signer
        self._of, self._of_lives = signer.keyring, signer.lives
        self._document, self._archive = _key_set(self._of), _archive(self._of_lives)

    @property
    def by_path(self) -> Mapping[str, Callable[[], bytes]]:
        """Both as they are now, each when it is asked for, by the path at which they are published."""
        return {JWKS_PATH: lambda: self._signer.keyring.jwks, ARCHIVE_PATH: lambda: archive(self._signer.lives)}

    @property
    def document(self) -> Document:
        """The key set."""
        if self._signer.keyring is not self._of:
            self._of = self._signer.keyring
            self._document = _key_set(self._of)
        return self._document

    @property
    def archive(self) -> Document:
        """The archive (contract section 6). It is made of the history alone: all hosts serve the same bytes."""
        if self._signer.lives is not self._of_lives:
            self._of_lives = self._signer.lives
            self._archive = _archive(self._of_lives)
        return self._archive


def _key_set(keyring: KeyringSigner) -> Document:
    return document(keyring.jwks, _KEY_SET_TYPE, cache=KEY_SET_CACHE)


def _archive(lives: Lives) -> Document:
    return document(archive(lives), _KEY_SET_TYPE, cache=KEY_SET_CACHE)


# -- revocations -------------------------------------------------------------------------------------------------------

# The list of revocations and its key as documents: the bytes of the files, the same on all hosts that share them.

_CACHE = f"public, max-age={LIST_AGE_S}"


class PublishedRevocations:
    """What a process publishes of its revocations; written anew when that has changed."""

    def __init__(self, live: LiveRevocations) -> None:
        self._live = live
        self._of: SignedList | None = None
        self._documents: tuple[Document, Document] | None = None

    @property
    def status(self) -> RevocationsStatus:
        """What health shows."""
        return self._live.status

    @property
    def signed_list(self) -> Document:
        """The list. Raises Refused(`request.not_found`) where there is none: relying parties take that for an issuer
        that has revoked nothing, unless they have seen one."""
        return self._written()[0]

    @property
    def keys(self) -> Document:
        """The JWK set with the key of the list. Raises as `signed_list` does."""
        return self._written()[1]

    def _written(self) -> tuple[Document, Document]:
        published = self._live.in_force.published
        if published is None:
            raise Refused(Code.REQUEST_NOT_FOUND)
        if self._documents is None or published is not self._of:
            self._documents = (
                document(published.raw, f"application/{REVOCATIONS_TYPE}", cache=_CACHE),
                document(published.keys, "application/jwk-set+json", cache=_CACHE),
            )
            self._of = published
        return self._documents


# -- the service -------------------------------------------------------------------------------------------------------


class Service(Struct, frozen=True):
    """What the endpoints reach: the authority with the active policies, and the parts of it that health shows.

    `keys` publishes those of `signer`. `check` raises Undecided while a request for tokens would end with 503.
    """

    issuer_url: str
    counts: Counts
    live: Live[Published]
    signer: LiveSigner
    keys: PublishedKeys
    revocations: PublishedRevocations
    stops: LiveStops
    sources: Sources
    check: Callable[[], Awaitable[None]]
    store_status: Callable[[], object]
    tarpit: Tarpit
    log: AnnouncingLog | None = None
