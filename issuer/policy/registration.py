"""A registered identity with its compiled rules, and the checks of its callers. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.formats.display import show_value
from issuer.identity.profiles import Foreign
from issuer.identity.table import Provider
from issuer.identity.token import Caller, ClaimNames
from issuer.policy.check import Check, Rule
from issuer.policy.compiled import CompiledGrants, CompiledIdentity, CompiledProvider, compile_identity, intern
from issuer.policy.model import Identity, Policy, RegisteredBenchmarks, exact_values


class Registration(Struct, frozen=True):
    """A registered identity with its rules, compiled when policies are loaded.

    `digest` binds the policy, the provider and the registered benchmarks that decide (contract section 4).
    `claim_names` are the claims of its callers that are read and audited.
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
        """Compile one identity. The provider rules and grants are compiled already: other identities share them."""
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
            claim_names=intern(lambda: ClaimNames.of(provider.rules, names), "claims", provider.profile, names),
        )


# -- checks of a caller's identity -------------------------------------------------------------------------------------


def check_identity(registration: Registration, caller: Caller, now: int) -> Iterator[Check]:
    """Yield the checks of a caller's identity at `now` (Unix seconds), in the order of policies/REFERENCE.md."""
    identity, rules, claims = registration.identity, caller.provider.rules, caller.claims
    if identity.expires is not UNSET:
        today = datetime.fromtimestamp(now, UTC).date().isoformat()
        yield Check(registration.identity_rules.expiry, not has_expired(identity, now), (today,))
    if rules.event_claim is not None and rules.event_claim not in identity.require:
        # The provider's list. A policy that requires the event claim replaces it.
        event = claims.get(rules.event_claim)
        passed = isinstance(event, str) and event in registration.provider.events
        yield Check(registration.provider_rules.event, passed, (event,))
    if registration.provider_rules.scope is not None:
        yield registration.provider_rules.scope.check(claims)
    for demand in registration.provider_rules.demands:
        if demand.name not in identity.require:
            yield demand.check(claims)
    for requirement in registration.identity_rules.requirements:
        yield requirement.check(claims)
    if rules.foreign is not None and rules.foreign.claims[0] in claims:
        yield _check_foreign(rules.foreign, identity, caller)


def warn_of_names(registration: Registration, caller: Caller) -> Iterator[str]:
    """Yield a warning for each readable name that differs from the registered one. Only ids decide."""
    for name, expected in registration.identity.names.items():
        if caller.claims.get(name) != expected:  # registered names are text, so only equal text passes
            actual = show_value(caller.claims.get(name))
            # The caller reads this: no expected value without disclosure (contract section 5).
            registered = (
                f"registered as {expected}" if "identity" in registration.policy.disclose else "not as registered"
            )
            yield f"the identity token's {name} is {actual}, {registered}: only ids decide; tell the operator"


def has_expired(identity: Identity, now: int) -> bool:
    """Return whether a registration has expired: it ends at 00:00 UTC of its `expires` date."""
    if identity.expires is UNSET:
        return False
    return now >= datetime.fromisoformat(identity.expires).replace(tzinfo=UTC).timestamp()


def _check_foreign(rules: Foreign, identity: Identity, caller: Caller) -> Check:
    """Check a workflow that a job takes from another repository: the policy must name its commit.

    Both claims are GitHub's, from the same moment. So the check also works if the policy's `names` are out of date, or
    if the policy does not mention such workflows.
    """
    code, home = caller.claims[rules.claims[0]], caller.claims.get(rules.home)
    at_home = isinstance(code, str) and isinstance(home, str) and code.startswith(f"{home}/")
    passed = at_home or names_commit(identity, rules.commit)
    says = f"the identity token's {rules.claims[0]} is {{}}, and its {rules.home} is {{}}"
    wanted = f"code of this repository, or a policy that names the {rules.commit}"
    place = f"identities.{identity.id}.require.{rules.commit}"
    rule = Rule(Code.IDENTITY_CLAIM_MISMATCH, place, says, wanted, reads=(rules.claims[0], rules.home))
    return Check(rule, passed, (code, home))


def names_commit(identity: Identity, claim: str) -> bool:
    """Return whether the identity requires exact values of a claim that has a commit."""
    values = exact_values(identity.require[claim]) if claim in identity.require else ()
    return claim in identity.pins or any(isinstance(value, str) for value in values)
