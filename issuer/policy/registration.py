"""One registered identity with everything that judges it, built when the policies are loaded. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.formats.display import show_value
from issuer.formats.strict_json import JSON
from issuer.identity.profiles import Foreign
from issuer.identity.table import Provider
from issuer.identity.token import Caller, ClaimNames
from issuer.policy.check import Check, Rule
from issuer.policy.compiled import CompiledGrants, CompiledIdentity, CompiledProvider, compile_identity
from issuer.policy.interning import once
from issuer.policy.model import Identity, Policy, RegisteredBenchmarks
from issuer.policy.requirement import exact_values


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


# -- check identity ----------------------------------------------------------------------------------------------------

# The rules of one registered identity for its callers: expiry, event, requirements, names. Pure.


def check_identity(registration: Registration, caller: Caller, now: int) -> Iterator[Check]:
    """Judge the caller by its registration at `now` (Unix seconds), in the order of policies/REFERENCE.md."""
    identity, rules, claims = registration.identity, caller.provider.rules, caller.claims
    if identity.expires is not UNSET:
        yield _check_expiry(registration, now)
    if rules.event_claim is not None and rules.event_claim not in identity.require:
        yield _check_event(registration.provider_rules, claims.get(rules.event_claim))
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
    """Yield a warning for each readable name that differs from the registered one: ids decide."""
    for name, expected in registration.identity.names.items():
        if caller.claims.get(name) != expected:  # text, which nothing but text equals
            actual = show_value(caller.claims.get(name))
            # The caller reads this: no expected value without disclosure (contract section 5).
            registered = (
                f"registered as {expected}" if "identity" in registration.policy.disclose else "not as registered"
            )
            yield f"the identity token's {name} is {actual}, {registered}: ids decide; tell the operator"


def _check_expiry(registration: Registration, now: int) -> Check:
    """Compare dates of UTC."""
    today = datetime.fromtimestamp(now, UTC).date().isoformat()
    return Check(registration.identity_rules.expiry, not has_expired(registration.identity, now), (today,))


def has_expired(identity: Identity, now: int) -> bool:
    """Say whether the registration has expired: it has from 00:00 UTC of its date on."""
    if identity.expires is UNSET:
        return False
    return now >= datetime.fromisoformat(identity.expires).replace(tzinfo=UTC).timestamp()


def _check_event(rules: CompiledProvider, event: JSON) -> Check:
    """Judge what started the job, by the provider's list: a policy that names events does so by a requirement."""
    return Check(rules.event, isinstance(event, str) and event in rules.provider.events, (event,))


def _check_foreign(rules: Foreign, identity: Identity, caller: Caller) -> Check:
    """Judge code that the job borrows from another repository: the policy must name its commit.

    Both names in the token are GitHub's, of the same moment. So the check also works where the policy's `names` are
    out of date, and where the policy does not mention the borrowed code.
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
    """Say whether the identity demands exact values, and so commits, of a claim."""
    values = exact_values(identity.require[claim]) if claim in identity.require else ()
    return claim in identity.pins or any(isinstance(value, str) for value in values)
