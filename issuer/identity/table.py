"""`providers.yaml`, the table of all accepted identity providers: its entries, their rules and the look-up. Pure.

A `Provider` is an entry of the file with the defaults of its profile filled in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from issuer.formats import jose
from issuer.formats.findings import Findings
from issuer.formats.strict_json import JSON, Text, pointer_to
from issuer.formats.strict_yaml import Document
from issuer.formats.url import UrlError, split_url
from issuer.identity.profiles import PROFILES, TOKEN_PREFIXES, Kind, Profile

Seconds = Annotated[int, Meta(ge=1, le=86_400)]


class Bounded(Struct, frozen=True, forbid_unknown_fields=True):
    """The value of `uses: {bounded: N}`: a token may make N different requests."""

    bounded: Annotated[int, Meta(ge=1, le=1000)]


class KeySource(Struct, frozen=True, forbid_unknown_fields=True):
    """The source of a provider's keys, if it is not discovery: either a URL or static JWKs."""

    jwks_uri: Text | UnsetType = UNSET
    static: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=64)] | UnsetType = UNSET


class Introspection(Struct, frozen=True, forbid_unknown_fields=True):
    """The way to ask a provider about its opaque tokens (RFC 7662). Discovery finds an absent `endpoint`.

    The client's secret is in the file `client_secret_file`, so policies and digests do not contain it. Every token of
    the provider begins with `token_prefix`: without it, this provider might see other providers' tokens.
    """

    client_id: Text
    client_secret_file: Text
    endpoint: Text | UnsetType = UNSET
    token_prefix: Text | UnsetType = UNSET


class ProviderEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One provider in `providers.yaml`. The profile has the values of absent members."""

    profile: str
    issuer: Text | UnsetType = UNSET
    audience: Text | UnsetType = UNSET
    algorithms: Annotated[list[str], Meta(min_length=1)] | UnsetType = UNSET
    max_lifetime_s: Seconds | UnsetType = UNSET
    max_age_s: Seconds | UnsetType = UNSET
    uses: Literal["single"] | Bounded | UnsetType = UNSET
    keys: Literal["discovery"] | KeySource | UnsetType = UNSET
    events: list[str] | UnsetType = UNSET
    introspection: Introspection | UnsetType = UNSET


class ProvidersFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `providers.yaml`."""

    version: Literal[1]
    providers: Annotated[dict[str, ProviderEntry], Meta(min_length=1)]


class Provider(Struct, frozen=True, omit_defaults=True):
    """An entry of the file with the profile's defaults filled in. It is part of the policy digest.

    `max_lifetime_s` and `max_age_s` are 0 for kinds that do not use them. `uses` is the number of different requests
    that one identity token or one nonce may make.
    """

    id: str
    profile: str
    issuer: str
    audience: str
    algorithms: tuple[str, ...]
    max_lifetime_s: int
    max_age_s: int
    uses: int
    keys: Literal["discovery"] | KeySource
    events: tuple[str, ...]
    introspection: Introspection | None = None

    @property
    def rules(self) -> Profile:
        """The built-in profile behind this entry."""
        return PROFILES[self.profile]

    @property
    def token_prefix(self) -> str:
        """The text with which each opaque credential of this provider begins; "" if unknown."""
        return self.rules.prefix or (self.introspection and self.introspection.token_prefix) or ""


# -- the rules of an entry ---------------------------------------------------------------------------------------------

# Credentials of these kinds are JWTs, which the service verifies with the provider's published keys.
SIGNED: frozenset[Kind] = frozenset({"identity-token", "access-token"})
# The members that an entry may have beside `profile`. Members that its kind does not use are refused, not ignored.
_OF_TOKENS = frozenset({"issuer", "audience", "algorithms", "max_lifetime_s", "max_age_s", "keys"})
MEMBERS_OF: Mapping[Kind, frozenset[str]] = {
    "identity-token": _OF_TOKENS | {"uses", "events"},
    "access-token": _OF_TOKENS,
    "introspection": frozenset({"issuer", "audience", "introspection"}),
    "pat": frozenset(),  # this service itself is the issuer
    "huggingface": frozenset({"issuer"}),
}
_ALGORITHMS = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}
_TOKEN_TEXT = re.compile(r"[A-Za-z0-9._~+/-]+")
_PREFIX_TAKEN = (
    "another provider's credentials begin like this one's, so this provider would see them: give each provider a "
    "different `token_prefix`"
)
_SHARED = (
    "this is the default audience of {} tokens: any other service that gets such a token could pose as the caller; let "
    "the jobs request an audience that only this service has"
)


def fill_in(
    findings: Findings, document: Document, name: str, entry: ProviderEntry, issuer_url: str, *, development: bool
) -> Provider | None:
    """Return an entry with the profile's defaults filled in, and record its errors. None if required values are
    missing.

    `issuer_url` is the URL of this service: the default audience, and never a provider. `development` allows http at a
    loopback address, which does not match any profile's `issuer_form`.
    """
    at, profile = _pointer(name), PROFILES.get(entry.profile)
    if profile is None:
        rule = f"not a profile; the profiles are {', '.join(sorted(PROFILES))}"
        findings.demand(document, f"{at}/profile", condition=False, rule=rule)
        return None
    _check_members(findings, document, at, entry, profile)
    provider = _fill(findings, document, name, entry, profile, issuer_url)
    if provider is not None:
        if profile.kind != "pat":  # this service itself is the issuer of PATs
            _check_issuer(findings, document, f"{at}/issuer", provider, issuer_url, development=development)
        _check_keys(findings, document, f"{at}/keys", entry, development=development)
        _check_introspection(findings, document, f"{at}/introspection", entry, development=development)
        _check_rules(findings, document, at, provider, issuer_url)
    return provider


def judges(profile: Profile, member: str) -> bool:
    """Say whether an entry with this profile may have the member."""
    return member in MEMBERS_OF[profile.kind] and (member != "events" or profile.event_claim is not None)


def describe_provider(provider: Provider) -> dict[str, JSON]:
    """Return the values of a provider that its callers must know, without members that its kind does not use."""
    rules = provider.rules
    members: dict[str, JSON] = {
        "audience": provider.audience,
        "algorithms": list(provider.algorithms),
        "max_lifetime_s": provider.max_lifetime_s,
        "max_age_s": provider.max_age_s,
        "uses": provider.uses,
    }
    return {
        "kind": rules.kind,
        "issuer": provider.issuer,
        "nonce": "required" if rules.reusable else "refused",
        **({"scope": rules.scope} if rules.scope else {}),
        **{name: value for name, value in members.items() if judges(rules, name)},
    }


def _check_members(findings: Findings, document: Document, at: str, entry: ProviderEntry, profile: Profile) -> None:
    for member in ProviderEntry.__struct_fields__[1:]:
        allowed = getattr(entry, member) is UNSET or judges(profile, member)
        why = "tokens do not say what started a job" if member == "events" else "providers do not use this member"
        findings.demand(document, f"{at}/{member}", allowed, f"{entry.profile} {why}")


def _pointer(name: str) -> str:
    return pointer_to("/providers", name)


def _fill(
    findings: Findings, document: Document, name: str, entry: ProviderEntry, profile: Profile, issuer_url: str
) -> Provider | None:
    """Take each value from the entry or else from the profile. None if both lack an issuer or a lifetime."""
    issuer = issuer_url if profile.kind == "pat" else profile.issuer if entry.issuer is UNSET else entry.issuer
    algorithms = profile.algorithms if entry.algorithms is UNSET else tuple(entry.algorithms)
    lifetime_s = profile.max_lifetime_s if entry.max_lifetime_s is UNSET else entry.max_lifetime_s
    age_s = (profile.max_age_s or lifetime_s) if entry.max_age_s is UNSET else entry.max_age_s
    values = {"issuer": issuer, "algorithms": algorithms, "max_lifetime_s": lifetime_s,
              "introspection": entry.introspection is not UNSET}  # fmt: skip
    for member, value in values.items():
        complete = value or member not in MEMBERS_OF[profile.kind]
        findings.demand(document, _pointer(name), complete, f"the profile {entry.profile} needs {_NEEDED[member]}")
    if issuer is None or (lifetime_s is None and profile.kind in SIGNED):
        return None
    return Provider(
        id=name,
        profile=entry.profile,
        issuer=issuer,
        audience=issuer_url if entry.audience is UNSET else entry.audience,
        algorithms=algorithms,
        max_lifetime_s=lifetime_s or 0,
        max_age_s=age_s or 0,
        uses=_uses(entry, profile),
        keys="discovery" if entry.keys is UNSET else entry.keys,
        events=profile.events if entry.events is UNSET else tuple(entry.events),
        introspection=None if entry.introspection is UNSET else entry.introspection,
    )


_NEEDED = {
    "issuer": "an `issuer`",
    "algorithms": "`algorithms`",
    "max_lifetime_s": "a `max_lifetime_s`",
    "introspection": "`introspection`: the way to ask about a token",
}


def _check_rules(findings: Findings, document: Document, at: str, provider: Provider, issuer_url: str) -> None:
    """Demand asymmetric algorithms, and an audience that other services do not share."""
    strong = _ALGORITHMS.issuperset(provider.algorithms)
    findings.demand(document, f"{at}/algorithms", strong, "asymmetric JWS algorithms only")
    if provider.issuer != issuer_url:  # otherwise `_check_issuer` reports the error
        shared = provider.audience == provider.issuer or not _fits(provider.rules.audience_form, provider.audience)
        findings.demand(document, f"{at}/audience", not shared, _SHARED.format(provider.profile))


def check_token_prefixes(findings: Findings, document: Document, providers: Iterable[Provider]) -> None:
    """Demand that each opaque credential can belong to only one provider, because the provider that is asked sees it.

    The built-in prefixes are reserved for their kinds, even if the table has no provider of such a kind.
    """
    taken: dict[Kind, list[str]] = {}
    for provider in providers:
        kind, prefix = provider.rules.kind, provider.token_prefix
        if kind in SIGNED:
            continue
        at, others = _pointer(provider.id), taken.setdefault(kind, [])
        if provider.introspection is None:
            findings.demand(document, at, not others, f"another provider also has the profile {provider.profile}")
        else:
            reserved = TOKEN_PREFIXES if prefix else ()
            taken_prefixes = (*others, *reserved)
            apart = not any(prefix.startswith(other) or other.startswith(prefix) for other in taken_prefixes)
            findings.demand(document, f"{at}/introspection/token_prefix", apart, _PREFIX_TAKEN)
        others.append(prefix)


def _uses(entry: ProviderEntry, profile: Profile) -> int:
    if isinstance(entry.uses, Bounded):
        return entry.uses.bounded
    return 1 if entry.uses == "single" else profile.uses


def _fits(form: str, text: str) -> bool:
    return not form or re.fullmatch(form, text) is not None


def _check_issuer(
    findings: Findings, document: Document, at: str, provider: Provider, issuer_url: str, *, development: bool
) -> None:
    """Demand a plain https URL that is not this service's, matches the profile and belongs to no other profile."""
    issuer = provider.issuer
    findings.demand(document, at, issuer != issuer_url, "this service cannot be its own identity provider")
    if check_url(findings, document, at, issuer, development=development):
        local = development and issuer.startswith("http:")
        rule = f"not an issuer of {provider.profile}: see its form in policies/REFERENCE.md, and copy the token's `iss`"
        findings.demand(document, at, local or _fits(provider.rules.issuer_form, issuer), rule)
        profiles = (name for name, rules in PROFILES.items() if issuer == rules.issuer or _has_form(rules, issuer))
        known = next(profiles, None)
        rule = f"{provider.profile} lacks rules that this provider's tokens need: use the profile {known}"
        findings.demand(document, at, known in {None, provider.profile}, rule)


def _has_form(rules: Profile, issuer: str) -> bool:
    return bool(rules.issuer_form) and _fits(rules.issuer_form, issuer)


def check_url(findings: Findings, document: Document, at: str, url: str, *, development: bool) -> bool:
    """Demand a plain https URL, or in development http at a loopback address. Return whether the URL is good."""
    try:
        split_url(url, http="loopback" if development else "nowhere")
    except UrlError as error:
        https = "must be https (http only for a loopback address in development)"
        rule = https if error.fault == "scheme" else "must be a plain URL with only a host and a path"
        return findings.demand(document, at, condition=False, rule=rule)
    return True


def _check_introspection(
    findings: Findings, document: Document, at: str, entry: ProviderEntry, *, development: bool
) -> None:
    if entry.introspection is UNSET:
        return
    endpoint, prefix = entry.introspection.endpoint, entry.introspection.token_prefix
    if endpoint is not UNSET:
        check_url(findings, document, f"{at}/endpoint", endpoint, development=development)
    possible = prefix is UNSET or _TOKEN_TEXT.fullmatch(prefix)
    rule = "a bearer token cannot begin like this (RFC 6750, section 2.1)"
    findings.demand(document, f"{at}/token_prefix", possible, rule)


def _check_keys(findings: Findings, document: Document, at: str, entry: ProviderEntry, *, development: bool) -> None:
    if not isinstance(entry.keys, KeySource):
        return
    located, static = entry.keys.jwks_uri, entry.keys.static
    findings.demand(
        document, at, (located is UNSET) != (static is UNSET), "give exactly one of `jwks_uri` and `static`"
    )
    if located is not UNSET:
        check_url(findings, document, f"{at}/jwks_uri", located, development=development)
    kids: set[str] = set()
    for index, jwk in enumerate([] if static is UNSET else static):
        key, place = jose.parse_key(jwk), f"{at}/static/{index}"
        usable = "not a usable public key: strong, without the ROCA flaw, for signatures, with a kid"
        if findings.demand(document, place, key, usable) and key is not None:
            findings.demand(
                document, place, key.kid not in kids, "another key also has this kid: both would be ignored"
            )
            kids.add(key.kid)


# -- the look-up -------------------------------------------------------------------------------------------------------

# The service finds the provider of a credential by its form alone. It shows a credential to at most one provider,
# because anyone who sees the credential can use it.


class ProviderIndex:
    """The table of providers (`PolicySet.providers`, by issuer), prepared for fast look-ups."""

    __slots__ = ("_by_issuer", "_opaque")

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._by_issuer = providers
        self._opaque = [provider for provider in providers.values() if provider.rules.kind not in SIGNED]

    def of_jwt(self, issuer: JSON) -> Provider | None:
        """Return the provider of a JWT by its `iss`, which must match byte for byte, also in slashes, case and port.

        Return None for a provider that issues no JWTs, such as this service.
        """
        provider = self._by_issuer.get(issuer) if isinstance(issuer, str) else None
        return None if provider is None or provider.rules.prefix else provider

    def of_opaque(self, bearer: str) -> Provider | None:
        """Return the provider whose prefix the credential has. A built-in prefix belongs only to its own kind."""
        reserved = bearer.startswith(TOKEN_PREFIXES)
        for provider in self._opaque:
            prefix = provider.token_prefix
            if bearer.startswith(prefix) and (prefix in TOKEN_PREFIXES or not reserved):
                return provider
        return None
