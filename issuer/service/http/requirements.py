"""What a CI author must send, for integrations whose policy says `public: true`. Nothing of any other policy.

Pinned claims are named without their values: their owner knows them, and a list of registered repositories is a list of
places to attack. Expected values are given where the policy's `disclose` names them (contract section 5).
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from issuer.identity.provider import Provider
from issuer.identity.table import describe_provider
from issuer.policy.match import PolicySet
from issuer.policy.model import Identity, Policy
from issuer.policy.requirement import Matcher, Requirement, describe
from issuer.service.http.documents import Document, document
from issuer.service.http.openapi import EXAMPLE

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
