"""One identity provider: its entry in `providers.yaml`, and the effective one with its profile filled in. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from issuer.formats.strict_json import Text
from issuer.identity.profiles import PROFILES, Profile

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
