"""Read a directory of policies: `providers.yaml` and one `<integration>.yaml` per integration.

The directory loads as a whole or not at all: the first rule that a file breaks is an InputError with file, line and
column. Reads files, and nothing else of the world.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from issuer import jcs, jose
from issuer.errors import Code, InputError, Place
from issuer.policy.match import PolicySet, told_apart
from issuer.policy.model import (
    Bounded,
    Identity,
    KeySource,
    Matcher,
    Party,
    Policy,
    Provider,
    ProviderEntry,
    ProvidersFile,
)
from issuer.policy.profiles import PROFILES
from issuer.strict_json import pointer_to
from issuer.strict_yaml import Document
from issuer.strict_yaml import load as load_yaml

PROVIDERS_FILE = "providers.yaml"
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_URL = re.compile(r"[^\x00-\x20?#\\\x7f-\U0010ffff]+")
_REPO_PATTERN = re.compile(r"[A-Za-z0-9_.*-]+/[A-Za-z0-9_.*-]+")
_ALGORITHMS = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}


def load_policies(directory: Path, issuer_url: str, *, development: bool = False) -> PolicySet:
    """Load a directory. `issuer_url` is this service's own: the default audience, and never a provider.

    `development` allows providers on plain http, at loopback addresses only. Raises InputError.
    """
    providers = _load_providers(directory / PROVIDERS_FILE, issuer_url, development=development)
    policies: dict[str, Policy] = {}
    parties: list[tuple[Document, int, Party]] = []
    digests: dict[str, bytes] = {}
    for path in _policy_files(directory):
        document = _read(path)
        policy = _load_policy(document, path, providers)
        policies[policy.integration] = policy
        for index, identity in enumerate(policy.identities):
            provider = providers[identity.provider]
            value = jcs.canonical({"policy": msgspec.to_builtins(policy), "provider": msgspec.to_builtins(provider)})
            digests[jcs.digest_of_bytes(value)] = value
            parties.append((document, index, Party(policy, identity, provider, jcs.digest_of_bytes(value))))
    by_issuer = {provider.issuer: provider for provider in providers.values()}
    return PolicySet(by_issuer, policies, _indexed(parties), digests)


def _policy_files(directory: Path) -> Iterable[Path]:
    try:
        paths = sorted(directory.iterdir())
    except OSError as error:
        raise InputError(Code.FILE_UNREADABLE, str(error.strerror), Place(str(directory))) from None
    for path in paths:
        if path.suffix.lower() in {".yml", ".yaml"} and path.suffix != ".yaml":
            raise InputError(Code.FILE_RULE, "policies end in .yaml; this file would be overlooked", Place(str(path)))
        if path.suffix == ".yaml" and path.name != PROVIDERS_FILE:
            yield path


def _read(path: Path) -> Document:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(Code.FILE_UNREADABLE, str(error.strerror), Place(str(path))) from None
    return load_yaml(raw, str(path), bare_dates=lambda at: re.fullmatch(r"/identities/[0-9]+/expires", at) is not None)


# -- providers --------------------------------------------------------------------------------------------------------


def _load_providers(path: Path, issuer_url: str, *, development: bool) -> dict[str, Provider]:
    document = _read(path)
    providers: dict[str, Provider] = {}
    for name, entry in document.convert(ProvidersFile).providers.items():
        at = pointer_to("/providers", name)
        _demand(document, at, _ID.fullmatch(name), "a provider's id is lowercase words joined by `-`")
        provider = _effective(document, at, name, entry, issuer_url)
        _check_issuer(document, f"{at}/issuer", provider.issuer, issuer_url, development=development)
        _check_keys(document, f"{at}/keys", entry, development=development)
        taken = provider.issuer in {other.issuer for other in providers.values()}
        _demand(document, f"{at}/issuer", not taken, "another provider already has this issuer")
        providers[name] = provider
    return providers


def _effective(document: Document, at: str, name: str, entry: ProviderEntry, issuer_url: str) -> Provider:
    profile = PROFILES.get(entry.profile)
    if profile is None:
        raise document.error(Code.FILE_RULE, f"{at}/profile", f"not a profile; there are {', '.join(sorted(PROFILES))}")
    issuer = profile.issuer if entry.issuer is UNSET else entry.issuer
    if issuer is None:
        raise document.error(Code.FILE_RULE, at, f"the profile {entry.profile} needs an `issuer`")
    algorithms = profile.algorithms if entry.algorithms is UNSET else tuple(entry.algorithms)
    _demand(document, f"{at}/algorithms", _ALGORITHMS.issuperset(algorithms), "asymmetric JWS algorithms only")
    judged = entry.events is UNSET or profile.event_claim is not None
    _demand(document, f"{at}/events", judged, f"{entry.profile} tokens do not say what started a job")
    bound = entry.uses.bounded if isinstance(entry.uses, Bounded) else 1 if entry.uses == "single" else profile.uses
    return Provider(
        id=name,
        profile=entry.profile,
        issuer=issuer,
        audience=issuer_url if entry.audience is UNSET else entry.audience,
        algorithms=algorithms,
        max_lifetime_s=profile.max_lifetime_s if entry.max_lifetime_s is UNSET else entry.max_lifetime_s,
        max_age_s=profile.max_age_s if entry.max_age_s is UNSET else entry.max_age_s,
        uses=bound,
        keys=entry.keys,
        events=profile.events if entry.events is UNSET else tuple(entry.events),
    )


def _check_issuer(document: Document, at: str, issuer: str, issuer_url: str, *, development: bool) -> None:
    _demand(document, at, issuer != issuer_url, "this service cannot be its own identity provider")
    _check_url(document, at, issuer, development=development)


def _check_url(document: Document, at: str, url: str, *, development: bool) -> None:
    try:
        parts = urlsplit(url)
        # urlsplit drops white space and an empty query, and looks at the port only when asked.
        plain = parts.hostname and parts.port != 0 and "@" not in parts.netloc and _URL.fullmatch(url)
    except ValueError:
        plain, parts = None, urlsplit("")
    _demand(document, at, plain, "must be a plain URL: host, path, nothing else")
    allowed = parts.scheme == "https" or (development and parts.scheme == "http" and _is_loopback(parts.hostname or ""))
    _demand(document, at, allowed, "must be https (http only for a loopback address in development)")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_keys(document: Document, at: str, entry: ProviderEntry, *, development: bool) -> None:
    if not isinstance(entry.keys, KeySource):
        return
    located, static = entry.keys.jwks_uri, entry.keys.static
    _demand(document, at, (located is UNSET) != (static is UNSET), "give exactly one of `jwks_uri` and `static`")
    if located is not UNSET:
        _check_url(document, f"{at}/jwks_uri", located, development=development)
    kids: set[str] = set()
    for index, jwk in enumerate([] if static is UNSET else static):
        key, place = jose.parse_key(jwk), f"{at}/static/{index}"
        if key is None:
            raise document.error(Code.FILE_RULE, place, "not a usable public key: strong, for signatures, with a kid")
        _demand(document, place, key.kid not in kids, "another key has this kid: neither would be used")
        kids.add(key.kid)


# -- policies ---------------------------------------------------------------------------------------------------------


def _load_policy(document: Document, path: Path, providers: dict[str, Provider]) -> Policy:
    policy = document.convert(Policy)
    _demand(
        document,
        "/integration",
        _ID.fullmatch(policy.integration),
        "an integration's id is lowercase words joined by `-`",
    )
    _demand(
        document,
        "/integration",
        path.stem == policy.integration,
        f"this integration's file is {policy.integration}.yaml",
    )
    names = [identity.id for identity in policy.identities]
    for index, identity in enumerate(policy.identities):
        at = f"/identities/{index}"
        _demand(document, f"{at}/id", _ID.fullmatch(identity.id), "an identity's id is lowercase words joined by `-`")
        _demand(document, f"{at}/id", names.count(identity.id) == 1, "another identity of this file has this id")
        _demand(document, f"{at}/provider", identity.provider in providers, f"not a provider of {PROVIDERS_FILE}")
        _check_identity(document, at, identity, providers[identity.provider])
    _check_grants(document, policy)
    return policy


def _check_identity(document: Document, at: str, identity: Identity, provider: Provider) -> None:
    rules = provider.rules
    for pin in rules.pins:
        _demand(document, f"{at}/pins", pin in identity.pins, f"{provider.profile} identities must pin {pin}")
    for name in (*identity.pins, *identity.require):
        part = pointer_to(f"{at}/{'pins' if name in identity.pins else 'require'}", name)
        _demand(
            document, part, name not in rules.names, f"{name} is a name and can be taken over: put it under `names`"
        )
        _demand(document, part, name not in rules.never, f"{name} is never matched for {provider.profile}")
        known = rules.matchable is None or name in rules.matchable or name in rules.pins
        _demand(document, part, known, f"{provider.profile} tokens have no claim of this name to match")
        twice = name in identity.pins and name in identity.require
        _demand(document, part, not twice, f"{name} is both pinned and required: keep one")
    for name in identity.names:
        _demand(
            document, pointer_to(f"{at}/names", name), name in rules.names, f"not a name claim of {provider.profile}"
        )
    for name, rule in identity.require.items():
        place = pointer_to(f"{at}/require", name)
        _check_requirement(document, place, rule)
        # A pattern would let in the events that strangers cause without anyone having named them.
        listed = name != rules.event_claim or not isinstance(rule, Matcher) or rule.glob is UNSET
        _demand(document, place, listed, f"name each {name}: an exact value or `any_of`")
    if identity.expires is not UNSET:
        _demand(document, f"{at}/expires", _is_date(identity.expires), "must be a date, as 2027-06-30")


def _check_requirement(document: Document, at: str, rule: object) -> None:
    if isinstance(rule, Matcher):
        one = (rule.any_of is UNSET) != (rule.glob is UNSET)
        _demand(document, at, one, "give exactly one of `any_of` and `glob`")


def _is_date(text: str) -> bool:
    try:
        return bool(re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) and datetime.fromisoformat(text))
    except ValueError:
        return False


def _check_grants(document: Document, policy: Policy) -> None:
    for index, framework in enumerate(policy.grants.frameworks):
        at = f"/grants/frameworks/{index}/versions"
        _demand(document, at, _is_specifier(framework.versions), "must be a PEP 440 range, as `>=0.3,<0.4`")
    for kind in ("benchmarks", "models"):
        for index, pattern in enumerate(getattr(policy.grants, kind)):
            at = f"/grants/{kind}/{index}"
            _demand(
                document,
                at,
                _REPO_PATTERN.fullmatch(pattern),
                "must be `owner/name`; each side may hold `*`, which never crosses `/`",
            )


def _is_specifier(text: object) -> bool:
    if text is UNSET:
        return True
    try:
        return len(SpecifierSet(str(text))) > 0  # "," is a specifier set of none, which every version meets
    except InvalidSpecifier:
        return False


def _indexed(parties: list[tuple[Document, int, Party]]) -> dict[tuple[str, str], tuple[Party, ...]]:
    """Index identities by provider and first pin, refusing two that one token could match."""
    index: dict[tuple[str, str], tuple[Party, ...]] = {}
    for document, position, party in parties:
        key = (party.provider.id, party.identity.pins[party.provider.rules.pins[0]])
        for other in index.get(key, ()):
            overlap = f"overlaps {other.policy.integration}/{other.identity.id}: one token could match both"
            rule = f"{overlap}; tell them apart by a pin, an exact value or `any_of`"
            _demand(document, f"/identities/{position}", told_apart(party.identity, other.identity), rule)
        index[key] = (*index.get(key, ()), party)
    return index


def _demand(document: Document, pointer: str, condition: object, rule: str) -> None:
    if not condition:
        raise document.error(Code.FILE_RULE, pointer, rule)
