"""One registered identity with everything that judges it, built when the policies are loaded. Pure."""

from __future__ import annotations

from msgspec import Struct

from issuer.identity.caller import ClaimNames
from issuer.identity.provider import Provider
from issuer.policy.compiled import CompiledGrants, CompiledIdentity, CompiledProvider, compile_identity
from issuer.policy.model import Identity, Policy, RegisteredBenchmarks
from issuer.policy.once import once


class Registration(Struct, frozen=True):
    """A registered identity, its rules compiled; `digest` binds policy, provider and the registered
    benchmarks that decide (contract section 4).

    `claim_names` are the claims that are read and audited of its callers.
    """

    policy: Policy
    identity: Identity
    provider: Provider
    digest: str
    benchmarks: RegisteredBenchmarks
    provider_rules: CompiledProvider
    identity_rules: CompiledIdentity
    grants: CompiledGrants
    claim_names: ClaimNames

    @classmethod
    def of(
        cls, policy: Policy, identity: Identity, provider_rules: CompiledProvider, grants: CompiledGrants, digest: str,
        benchmarks: RegisteredBenchmarks,
    ) -> Registration:  # fmt: skip
        """Compile one identity. Provider rules and grants are compiled already: other identities share them."""
        provider, names = provider_rules.provider, (*identity.pins, *identity.require)
        return cls(
            policy=policy,
            identity=identity,
            provider=provider,
            digest=digest,
            benchmarks=benchmarks,
            provider_rules=provider_rules,
            identity_rules=compile_identity(identity),
            grants=grants,
            claim_names=once(lambda: ClaimNames.of(provider.rules, names), "claims", provider.profile, names),
        )
