"""`providers.yaml`, the closed table of identity providers: its entries, their rules, and the look-up. Pure.

A provider is an entry with the defaults of its profile filled in.
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
    """`uses: {bounded: N}`: a token may make N different requests."""

    bounded: Annotated[int, Meta(ge=1, le=1000)]


class KeySource(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the keys are, unless by discovery: exactly one of a URL and static JWKs."""

    jwks_uri: Text | UnsetType = UNSET
    static: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=64)] | UnsetType = UNSET


class Introspection(Struct, frozen=True, forbid_unknown_fields=True):
    """How to ask a provider about its opaque tokens (RFC 7662): as which client, and where, unless by discovery.

    `client_secret_file` is the path of the file with the client's secret: no policy or digest contains the secret
    itself. `token_prefix` is how each of its tokens begins, so that it is never shown another provider's.
    """

    client_id: Text
    client_secret_file: Text
    endpoint: Text | UnsetType = UNSET
    token_prefix: Text | UnsetType = UNSET


class ProviderEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One provider in `providers.yaml`; absent members come from the profile."""

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
    """`providers.yaml`: the closed table of identity providers."""

    version: Literal[1]
    providers: Annotated[dict[str, ProviderEntry], Meta(min_length=1)]


class Provider(Struct, frozen=True, omit_defaults=True):
    """The effective entry: what the file says, profile defaults filled in. Part of the policy digest.

    `max_lifetime_s` and `max_age_s` are 0 for a kind that is not judged by them. `uses` is how many different
    requests one identity token may make, or one nonce.
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
        """How each opaque credential of this provider begins; "" where that is not known."""
        return self.rules.prefix or (self.introspection and self.introspection.token_prefix) or ""


# -- the rules of an entry ---------------------------------------------------------------------------------------------

# The kinds whose credentials are JWTs, verified under the provider's published keys.
SIGNED: frozenset[Kind] = frozenset({"identity-token", "access-token"})
# The members that an entry may have beside its profile. What a kind's verifier does not use is refused, not ignored.
_OF_TOKENS = frozenset({"issuer", "audience", "algorithms", "max_lifetime_s", "max_age_s", "keys"})
MEMBERS_OF: Mapping[Kind, frozenset[str]] = {
    "identity-token": _OF_TOKENS | {"uses", "events"},
    "access-token": _OF_TOKENS,
    "introspection": frozenset({"issuer", "audience", "introspection"}),
    "pat": frozenset(),  # this service issues them, for itself
    "huggingface": frozenset({"issuer"}),
}
_ALGORITHMS = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}
_TOKEN_TEXT = re.compile(r"[A-Za-z0-9._~+/-]+")
_PREFIX_TAKEN = (
    "another provider's credentials begin like this one's, and would be shown to this one: give each a `token_prefix` "
    "with which no other's begin"
)
_SHARED = (
    "this is what {} tokens are for where nobody asked for an audience: whoever else takes such tokens could pose as "
    "the caller; have the jobs ask for an audience of this service alone"
)


def fill_in(
    findings: Findings, document: Document, name: str, entry: ProviderEntry, issuer_url: str, *, development: bool
) -> Provider | None:
    """Fill in the profile's defaults and check the whole; None after an error, which was recorded.

    `issuer_url` is this service's own: the default audience, and never a provider. `development` allows http at a
    loopback address, which has no profile's form.
    """
    at, profile = _pointer(name), PROFILES.get(entry.profile)
    if profile is None:
        there = ", ".join(sorted(PROFILES))
        findings.demand(document, f"{at}/profile", condition=False, rule=f"not a profile; there are {there}")
        return None
    _check_members(findings, document, at, entry, profile)
    provider = _fill(findings, document, name, entry, profile, issuer_url)
    if provider is not None:
        if profile.kind != "pat":  # which this service issues itself
            _check_issuer(findings, document, f"{at}/issuer", provider, issuer_url, development=development)
        _check_keys(findings, document, f"{at}/keys", entry, development=development)
        _check_introspection(findings, document, f"{at}/introspection", entry, development=development)
        _check_rules(findings, document, at, provider, issuer_url)
    return provider


def judges(profile: Profile, member: str) -> bool:
    """Say whether an entry of this profile may have a member beside `profile`."""
    return member in MEMBERS_OF[profile.kind] and (member != "events" or profile.event_claim is not None)


def describe_provider(provider: Provider) -> dict[str, JSON]:
    """Return what the sender of this provider's credentials must know: only what its kind is judged by."""
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
        judged = getattr(entry, member) is UNSET or judges(profile, member)
        why = "do not say what started a job" if member == "events" else "are not judged by this"
        findings.demand(document, f"{at}/{member}", judged, f"{entry.profile} tokens {why}")


def _pointer(name: str) -> str:
    return pointer_to("/providers", name)


def _fill(
    findings: Findings, document: Document, name: str, entry: ProviderEntry, profile: Profile, issuer_url: str
) -> Provider | None:
    """Take each value from the entry, else from the profile; None where neither has a required one."""
    issuer = _issuer(entry, profile, issuer_url)
    algorithms = profile.algorithms if entry.algorithms is UNSET else tuple(entry.algorithms)
    lifetime_s = profile.max_lifetime_s if entry.max_lifetime_s is UNSET else entry.max_lifetime_s
    age_s = (profile.max_age_s or lifetime_s) if entry.max_age_s is UNSET else entry.max_age_s
    values = {"issuer": issuer, "algorithms": algorithms, "max_lifetime_s": lifetime_s,
              "introspection": entry.introspection is not UNSET}  # fmt: skip
    for member, value in values.items():
        there = value or member not in MEMBERS_OF[profile.kind]
        findings.demand(document, _pointer(name), there, f"the profile {entry.profile} needs {_NEEDED[member]}")
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
    "introspection": "`introspection`: how to ask about a token",
}


def _issuer(entry: ProviderEntry, profile: Profile, issuer_url: str) -> str | None:
    if profile.kind == "pat":
        return issuer_url
    return profile.issuer if entry.issuer is UNSET else entry.issuer


def _check_rules(findings: Findings, document: Document, at: str, provider: Provider, issuer_url: str) -> None:
    """Demand asymmetric algorithms, and an audience that is ours."""
    rules, profile = provider.rules, provider.profile
    strong = _ALGORITHMS.issuperset(provider.algorithms)
    findings.demand(document, f"{at}/algorithms", strong, "asymmetric JWS algorithms only")
    if provider.issuer != issuer_url:  # whose own fault is reported by `_check_issuer`
        shared = provider.audience == provider.issuer or not _fits(rules.audience_form, provider.audience)
        findings.demand(document, f"{at}/audience", not shared, _SHARED.format(profile))


def check_token_prefixes(findings: Findings, document: Document, providers: Iterable[Provider]) -> None:
    """Demand that an opaque credential can be of one provider only: any other that is asked about it then has it.

    A form that is known as one kind's is never another's, even if that kind is not registered.
    """
    taken: dict[Kind, list[str]] = {}
    for provider in providers:
        kind, prefix = provider.rules.kind, provider.token_prefix
        if kind in SIGNED:
            continue
        at, others = _pointer(provider.id), taken.setdefault(kind, [])
        if provider.introspection is None:
            findings.demand(document, at, not others, f"another provider has the profile {provider.profile}, too")
        else:
            reserved = TOKEN_PREFIXES if prefix else ()
            apart = not any(_one_begins_the_other(prefix, other) for other in (*others, *reserved))
            findings.demand(document, f"{at}/introspection/token_prefix", apart, _PREFIX_TAKEN)
        others.append(prefix)


def _one_begins_the_other(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _uses(entry: ProviderEntry, profile: Profile) -> int:
    if isinstance(entry.uses, Bounded):
        return entry.uses.bounded
    return 1 if entry.uses == "single" else profile.uses


def _fits(form: str, text: str) -> bool:
    return not form or re.fullmatch(form, text) is not None


def _check_issuer(
    findings: Findings, document: Document, at: str, provider: Provider, issuer_url: str, *, development: bool
) -> None:
    """Demand that an issuer is a plain https URL, not ours, and one that the profile's provider has."""
    issuer = provider.issuer
    findings.demand(document, at, issuer != issuer_url, "this service cannot be its own identity provider")
    if check_url(findings, document, at, issuer, development=development):
        ours = development and issuer.startswith("http:")
        rule = f"not an issuer of {provider.profile}: see its form in policies/REFERENCE.md, and copy the token's `iss`"
        findings.demand(document, at, ours or _fits(provider.rules.issuer_form, issuer), rule)
        known = _profile_of(issuer)
        rule = f"{provider.profile} would not keep out whom this provider lets in: use the profile {known}"
        findings.demand(document, at, known in {None, provider.profile}, rule)


def _profile_of(issuer: str) -> str | None:
    """Name the profile that knows an issuer: by its own issuer, or by the form of its issuers."""
    for name, rules in PROFILES.items():
        if issuer == rules.issuer or (rules.issuer_form and _fits(rules.issuer_form, issuer)):
            return name
    return None


def check_url(findings: Findings, document: Document, at: str, url: str, *, development: bool) -> bool:
    """Demand a plain https URL, or http at a loopback address in development; return whether it is one."""
    try:
        split_url(url, http="loopback" if development else "nowhere")
    except UrlError as error:
        https = "must be https (http only for a loopback address in development)"
        rule = https if error.fault == "scheme" else "must be a plain URL: host, path, nothing else"
        return findings.demand(document, at, condition=False, rule=rule)
    return True


def _check_introspection(
    findings: Findings, document: Document, at: str, entry: ProviderEntry, *, development: bool
) -> None:
    """Demand an endpoint that may be called, and a prefix that a credential can have."""
    if entry.introspection is UNSET:
        return
    endpoint, prefix = entry.introspection.endpoint, entry.introspection.token_prefix
    if endpoint is not UNSET:
        check_url(findings, document, f"{at}/endpoint", endpoint, development=development)
    possible = prefix is UNSET or _TOKEN_TEXT.fullmatch(prefix)
    rule = "no bearer token begins like this (RFC 6750, section 2.1)"
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
            findings.demand(document, place, key.kid not in kids, "another key has this kid: neither would be used")
            kids.add(key.kid)


# -- the look-up -------------------------------------------------------------------------------------------------------

# The form of a credential alone names its provider: a credential goes to one provider at most, because a stranger that
# sees a token can use it.


class ProviderIndex:
    """The closed table of providers, by issuer (`PolicySet.providers`), prepared for a look-up in every request."""

    __slots__ = ("_by_issuer", "_opaque")

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._by_issuer = providers
        self._opaque = [provider for provider in providers.values() if provider.rules.kind not in SIGNED]

    def of_jwt(self, issuer: JSON) -> Provider | None:
        """Find the provider of a JWT by its `iss`, compared byte for byte: no slash, case or port is forgiven.

        An issuer whose credentials are never JWTs, such as this service, has not issued it.
        """
        provider = self._by_issuer.get(issuer) if isinstance(issuer, str) else None
        return None if provider is None or provider.rules.prefix else provider

    def of_opaque(self, bearer: str) -> Provider | None:
        """Find the provider whose credentials begin like this. The known form of one kind is that kind's alone."""
        known = bearer.startswith(TOKEN_PREFIXES)
        for provider in self._opaque:
            prefix = provider.token_prefix
            if bearer.startswith(prefix) and (prefix in TOKEN_PREFIXES or not known):
                return provider
        return None
