"""Which registered provider a credential is of, by its form alone, and who verifies it: an unknown bearer in, a Caller
out.

The closed table of providers comes before any network, and a credential goes to one provider at most: a token that is
shown to a stranger is the stranger's. Above its limit a source learns only that, unless its credential is good. How a
kind is verified is its own module's; a refusal is not counted against its source here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats.strict_json import JSON
from issuer.identity.caller import Caller
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
    """Implements `ports.Authenticator` for every kind of credential.

    `providers` is the closed table by issuer (`PolicySet.providers`). `clock_us` is the clock of `sources`, in
    microseconds. The caller of `authenticate` counts refusals with `sources.refuse`.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        signed: SignedTokens,
        verifiers: Mapping[Kind, Verifier],
        sources: Sources,
        clock_us: Callable[[], int],
    ) -> None:
        self._providers = providers
        self._opaque = [provider for provider in providers.values() if provider.rules.kind not in SIGNED]
        self._signed = signed
        self._verifiers = verifiers
        self._sources = sources
        self._clock_us = clock_us

    async def authenticate(self, bearer: str, source: str, now: int) -> Caller:
        """Verify a credential at `now`, Unix seconds. Raises as `ports.Authenticator` says.

        Above its limit a source's genuine credentials are still served, as far as nobody must be asked: thousands of
        honest jobs share an address. What does not verify learns only that.
        """
        allowance = self._sources.allowance(source, self._clock_us())
        try:
            return await self._verify(bearer, now, allowance)
        except Refused:
            allowance.demand()
            raise

    def is_over_limit(self, source: str) -> bool:
        """Say whether an address was refused too often of late."""
        return self._sources.retry_us(source, self._clock_us()) > 0

    async def _verify(self, bearer: str, now: int, allowance: Allowance) -> Caller:
        if is_jwt(bearer):
            jws, unverified_claims = read_token(bearer)  # (1) size, form, a payload object
            provider = self._provider_of(unverified_claims.get("iss"))  # (2) registered issuer
            if provider.rules.kind in SIGNED:
                return await self._signed.verify(jws, unverified_claims, provider, now, allowance)
        else:
            provider = self._provider_like(bearer)
        return await self._verifiers[provider.rules.kind].verify(bearer, provider, now, allowance)

    def _provider_of(self, issuer: JSON) -> Provider:
        """Look the issuer up as it is: no slash, case or port is forgiven, and nothing is fetched to find out.

        An issuer whose credentials are no JWTs, as this service is one, has not issued this one.
        """
        provider = self._providers.get(issuer) if isinstance(issuer, str) else None
        if provider is None or provider.rules.prefix:
            raise Refused(Code.IDENTITY_ISSUER_UNKNOWN)
        return provider

    def _provider_like(self, bearer: str) -> Provider:
        """Find the one provider whose credentials begin like this. What is known as a kind's own is no one else's."""
        known = bearer.startswith(TOKEN_PREFIXES)
        for provider in self._opaque:
            prefix = provider.token_prefix
            if bearer.startswith(prefix) and (prefix in TOKEN_PREFIXES or not known):
                return provider
        raise Refused(Code.IDENTITY_MALFORMED)
