"""Which registered provider issued a credential, by its form alone. Pure: nothing is fetched to find out.

A credential goes to one provider at most: a stranger that is shown a token can use it.
"""

from __future__ import annotations

from collections.abc import Mapping

from issuer.formats.strict_json import JSON
from issuer.identity.profiles import TOKEN_PREFIXES
from issuer.identity.provider import Provider
from issuer.identity.table import SIGNED


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
