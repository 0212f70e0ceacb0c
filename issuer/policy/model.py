"""The types of `providers.yaml` and of an integration's policy file, and of what authentication found. Pure.

Every member that is accepted here is enforced somewhere; what is not enforced yet is an unknown member.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from issuer.formats import jcs
from issuer.limits import Limits
from issuer.policy.compiled import CompiledClaims, CompiledGrants, CompiledIdentity, CompiledProvider
from issuer.identity.profiles import PROFILES, Profile
from issuer.policy.requirement import Requirement, Text
from issuer.results.benchmark import Benchmark
from issuer.formats.strict_json import JSON

Seconds = Annotated[int, Meta(ge=1, le=86_400)]

# -- providers.yaml ---------------------------------------------------------------------------------------------------


class Bounded(Struct, frozen=True, forbid_unknown_fields=True):
    """`uses: {bounded: N}`: a token may make N different requests."""

    bounded: Annotated[int, Meta(ge=1, le=1000)]


class KeySource(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the keys are, when not by discovery: exactly one of a URL and static JWKs."""

    jwks_uri: Text | UnsetType = UNSET
    static: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=64)] | UnsetType = UNSET


class Introspection(Struct, frozen=True, forbid_unknown_fields=True):
    """How to ask a provider about its opaque tokens (RFC 7662): as which client, and where, if not by discovery.

    `client_secret_file` is the path of the file that holds the client's secret: the secret itself stands in no policy
    and no digest. `token_prefix` is how each of its tokens begins, so that no other provider's is shown to it.
    """

    client_id: Text
    client_secret_file: Text
    endpoint: Text | UnsetType = UNSET
    token_prefix: Text | UnsetType = UNSET


class ProviderEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One provider as `providers.yaml` has it; what is absent comes from the profile."""

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


class Provider(Struct, frozen=True, omit_defaults=True, dict=True):
    """The effective entry: what the file says, profile defaults filled in. Part of the policy digest.

    `max_lifetime_s` and `max_age_s` are 0 for a kind whose credentials they do not judge. `uses` is how many different
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

    @cached_property
    def compiled(self) -> CompiledProvider:
        """What it asks of every caller, made at the first request."""
        return CompiledProvider(self)

    @cached_property
    def claims(self) -> CompiledClaims:
        """What is read of a caller of whom no more is known."""
        return CompiledClaims(self.rules, None)


# -- <integration>.yaml -----------------------------------------------------------------------------------------------


class Identity(Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A machine identity that may speak for the integration.

    `pins` are immutable ids, all equal or no match. `names` are advisory. Every claim under `require` must match.
    From 00:00 UTC of `expires` on, the identity is refused.
    """

    id: str
    provider: str
    pins: Annotated[dict[str, Text], Meta(min_length=1)]
    names: dict[str, Text] = {}
    require: dict[str, Requirement] = {}
    expires: str | UnsetType = UNSET

    @cached_property
    def compiled(self) -> CompiledIdentity:
        """The same, ready to be asked: made at the first request, and kept with the policy."""
        return CompiledIdentity(self)


class FrameworkGrant(Struct, frozen=True, forbid_unknown_fields=True):
    """A framework that the integration may speak for; `versions` is a PEP 440 specifier, absent for every version."""

    name: Text
    versions: str | UnsetType = UNSET


class MetricGrant(Struct, frozen=True, forbid_unknown_fields=True):
    """Metrics whose id matches the glob `id`, and whose value lies between `min` and `max`, both included."""

    id: Text
    min: float | UnsetType = UNSET
    max: float | UnsetType = UNSET


Patterns = Annotated[tuple[Text, ...], Meta(min_length=1)]


class Deny(Struct, frozen=True, forbid_unknown_fields=True):
    """Globs that win over every grant; they also match what differs in upper and lower case only."""

    benchmarks: tuple[Text, ...] = ()
    models: tuple[Text, ...] = ()
    tasks: tuple[Text, ...] = ()


class Grants(Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """What the integration may have signed. Every list must be there: nothing is granted by leaving something out.

    `registered_only`: benchmark, task and metrics must be those of an `eval.yaml` under `benchmarks/`.
    """

    frameworks: Annotated[tuple[FrameworkGrant, ...], Meta(min_length=1)]
    benchmarks: Patterns
    models: Patterns
    tasks: Patterns
    metrics: Annotated[tuple[Text | MetricGrant, ...], Meta(min_length=1, max_length=1000)]
    deny: Deny = Deny()
    registered_only: bool = False
    command: Literal["optional", "required"] = "optional"

    @cached_property
    def compiled(self) -> CompiledGrants:
        """The same, ready to be asked: made at the first request, and kept with the policy."""
        return CompiledGrants(self)


class TokenRules(Struct, frozen=True, forbid_unknown_fields=True):
    """How long verify tokens live, and for which relying parties they may be; the first where a request names none."""

    audiences: Annotated[tuple[Text, ...], Meta(min_length=1)]
    ttl_s: Seconds = 3600


Disclosable = Literal["identity", "frameworks", "benchmarks", "models", "tasks", "metrics"]


class Override(Struct, frozen=True, forbid_unknown_fields=True):
    """What a test changes of the one that it starts from; a null takes a member away."""

    identity: dict[str, Any] = {}
    run: dict[str, Any] = {}


class PolicyTest(Struct, frozen=True, forbid_unknown_fields=True):
    """A case that the policy must decide as `expect` says: `granted`, or the code of the refusal.

    `identity` are the claims of an identity token of `provider`; `run` is as much of the run claims as the case is
    about. `claims_from` names an earlier test of the file, whose provider, identity and run are taken and changed by
    `override`. `date` is that of the request; without it nothing has expired.
    """

    name: Text
    expect: Text
    provider: Text | UnsetType = UNSET
    identity: dict[str, Any] | UnsetType = UNSET
    run: dict[str, Any] | UnsetType = UNSET
    claims_from: Text | UnsetType = UNSET
    override: Override = Override()
    date: str | UnsetType = UNSET


class Policy(Struct, frozen=True, forbid_unknown_fields=True):
    """One integration's policy file.

    `staged` is judged and audited, never issued. `disclose` names whose expected values a refused caller may see.
    `public`: anyone may read what its callers must send.
    """

    version: Literal[1]
    integration: str
    mode: Literal["active", "staged", "suspended"]
    contacts: Annotated[list[Text], Meta(min_length=1)]
    identities: Annotated[list[Identity], Meta(min_length=1)]
    grants: Grants
    token: TokenRules
    limits: Limits = Limits()
    disclose: tuple[Disclosable, ...] = ("identity", "frameworks")
    public: bool = False
    tests: tuple[PolicyTest, ...] = ()


class Registered(Struct, frozen=True):
    """The benchmarks that the operator registered: `at_commit` by repository and full commit, `at_any` by repository
    for every commit without a file of its own."""

    at_commit: Mapping[tuple[str, str], Benchmark] = {}
    at_any: Mapping[str, Benchmark] = {}

    def find(self, repo: str, revision: str) -> Benchmark | None:
        """Return the `eval.yaml` that counts for a repository as of a full commit, or None."""
        return self.at_commit.get((repo, revision)) or self.at_any.get(repo)


class Party(Struct, frozen=True, dict=True):
    """One registered identity with everything that judges it; `digest` binds policy and provider (contract 4)."""

    policy: Policy
    identity: Identity
    provider: Provider
    digest: str
    registered: Registered = Registered()

    @cached_property
    def claims(self) -> CompiledClaims:
        """What is read of a caller who is this identity."""
        return CompiledClaims(self.provider.rules, self.identity)


# -- what is judged ---------------------------------------------------------------------------------------------------


class Caller(Struct, frozen=True):
    """An authenticated machine identity: its signature, times, audience and type have been checked.

    `claims` are what is verified of it. `use_parts` name its use record (contract section 5): ("use", iss, jti) or
    ("input", hex SHA-256) of an identity token; ("nonce", provider id, credential id) of a reusable identity, where the
    credential's id is public and stays the same when it is renewed. Times are Unix seconds.
    """

    provider: Provider
    claims: Mapping[str, JSON]
    use_parts: tuple[str, ...]
    issued_at: int
    expires_at: int

    def use_record(self, nonce: str) -> str:
        """Name the use record, the token's own or that of a reusable identity's nonce, as lowercase hex SHA-256."""
        parts = [*self.use_parts, nonce] if self.provider.rules.reusable else [*self.use_parts]
        return hashlib.sha256(jcs.canonical(parts)).hexdigest()

    def provenance(self) -> dict[str, JSON]:
        """Return what of the caller is public: provider, issuer and allow-listed immutable ids."""
        return {
            "provider": self.provider.id,
            "issuer": self.provider.issuer,
            **self.shown(self.provider.rules.provenance),
        }

    def shown(self, names: tuple[str, ...] | list[str]) -> dict[str, JSON]:
        """Return the named claims that are there, are scalars and are short."""
        claims = self.claims
        return {name: claims[name] for name in names if name in claims and _is_short(claims[name])}


def _is_short(value: JSON) -> bool:
    return isinstance(value, str | int) and len(value if isinstance(value, str) else str(value)) <= 512
