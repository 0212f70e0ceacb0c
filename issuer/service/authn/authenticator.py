"""From an unknown bearer credential to a Caller: finds its registered provider, and calls the verifier of its kind.

The closed table of providers comes before any network, and a credential goes to one provider at most: a stranger that
is shown a token can use it. Above its limit a source learns only that, unless its credential is good. Each kind is
verified in its own module; refusals are not counted against a source here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from issuer.codes import Code
from issuer.errors import Refused
from issuer.identity.caller import Caller
from issuer.identity.index import ProviderIndex
from issuer.identity.profiles import TOKEN_PREFIXES, Kind
from issuer.identity.provider import Provider
from issuer.identity.table import SIGNED
from issuer.identity.token import is_jwt, read_token
from issuer.service.authn.oidc import SignedTokens
from issuer.service.authn.sources import Allowance, Sources


class Verifier(Protocol):
    """Verifies the opaque credentials of one kind of provider."""

    async def verify(self, bearer: str, provider: Provider, now: int, allowance: Allowance) -> Caller:
        """Verify a credential of this provider at `now`, Unix seconds; ask about it only after `allowance.demand()`.

        Raises Refused and Undecided.
        """
        ...


class ProviderAuthenticator:
    """Implements `issuance.ports.Authenticator` for every kind of credential.

    `providers` is the closed table by issuer (`PolicySet.providers`). `clock_us` is the clock of `sources`, in
    microseconds. `check_provider` raises Refused for a provider of which nothing is taken now. The caller of
    `authenticate` counts refusals with `sources.refuse`.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        signed: SignedTokens,
        verifiers: Mapping[Kind, Verifier],
        sources: Sources,
        clock_us: Callable[[], int],
        check_provider: Callable[[Provider], None] = lambda _: None,
    ) -> None:
        self._providers = ProviderIndex(providers)
        self._signed = signed
        self._verifiers = verifiers
        self._sources = sources
        self._clock_us = clock_us
        self._check_provider = check_provider

    async def authenticate(self, bearer: str, source: str, now: int) -> Caller:
        """Verify a credential at `now`, Unix seconds. Raises as `ports.Authenticator` says.

        Above its limit a source's good credentials are still served, as far as no provider must be asked: thousands of
        honest jobs share an address. What does not verify learns only the limit.
        """
        allowance = self._sources.allowance(source, self._clock_us())
        try:
            return await self._verify(bearer, now, allowance)
        except Refused:
            allowance.demand()
            raise

    def is_over_limit(self, source: str) -> bool:
        """Say whether an address was refused too often recently."""
        return self._sources.retry_us(source, self._clock_us()) > 0

    async def _verify(self, bearer: str, now: int, allowance: Allowance) -> Caller:
        if is_jwt(bearer):
            jws, unverified_claims = read_token(bearer)  # (1) size, form, a payload object
            provider = self._providers.of_jwt(unverified_claims.get("iss"))  # (2) registered issuer
            if provider is None:
                raise Refused(Code.IDENTITY_ISSUER_UNKNOWN)
            self._check_provider(provider)
            if provider.rules.kind in SIGNED:
                return await self._signed.verify(jws, unverified_claims, provider, now, allowance)
        else:
            provider = self._providers.of_opaque(bearer)
            if provider is None:
                known = bearer.startswith(TOKEN_PREFIXES)  # of a provider that is not registered here
                raise Refused(Code.IDENTITY_ISSUER_UNKNOWN if known else Code.IDENTITY_MALFORMED)
            self._check_provider(provider)
        return await self._verifiers[provider.rules.kind].verify(bearer, provider, now, allowance)
