"""What a registered identity's own rules say of a caller: its life, the event, its requirements, its names. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec import UNSET

from issuer.errors import Code
from issuer.policy.check import Check, listed, said, shown
from issuer.policy.match import exact_values, met
from issuer.policy.model import Caller, Identity, Matcher, Party, Requirement
from issuer.policy.profiles import Foreign

_ABSENT = Matcher(absent=True)
SCOPE = "scope"


def check_identity(party: Party, caller: Caller, now: int) -> Iterator[Check]:
    """Judge the caller by its registration at `now` (Unix seconds), in the order of policies/README.md."""
    identity, rules = party.identity, caller.provider.rules
    if identity.expires is not UNSET:
        yield _check_expiry(identity, now)
    if rules.event_claim is not None and rules.event_claim not in identity.require:
        yield _check_event(rules.event_claim, caller)
    if rules.scope:
        may = Matcher(contains_all=(rules.scope,))
        yield _check_claim(caller, SCOPE, may, f"providers.{caller.provider.id}.profile")
    for name, value in rules.demands.items():
        if name not in identity.require:
            where = f"providers.{caller.provider.id}.profile"
            yield _check_claim(caller, name, _ABSENT if value is None else value, where)
    for name, rule in identity.require.items():
        yield _check_claim(caller, name, rule, f"identities.{identity.id}.require.{name}")
    if rules.foreign is not None and rules.foreign.claims[0] in caller.claims:
        yield _check_foreign(rules.foreign, identity, caller)


def claims_read(caller: Caller, party: Party | None) -> list[str]:
    """Name the claims that `resolve` and `check_identity` read of this caller, once each."""
    rules = caller.provider.rules
    foreign = (rules.foreign.claims[0], rules.foreign.home, rules.foreign.commit) if rules.foreign else ()
    events = [rules.event_claim] if rules.event_claim else []
    scope = [SCOPE] if rules.scope else []
    names = [*rules.pins, *rules.names, *events, *scope, *rules.demands, *foreign]
    own = [] if party is None else [*party.identity.pins, *party.identity.require]
    return list(dict.fromkeys([*names, *own]))


def name_warnings(party: Party, caller: Caller) -> Iterator[str]:
    """Tell each readable name that is not what was registered: ids decide."""
    for name, expected in party.identity.names.items():
        if caller.claims.get(name) != expected:  # text, which nothing but text equals
            actual = shown(caller.claims.get(name))
            # The caller reads it, so that what is not disclosed is not told (contract section 5).
            registered = f"registered as {expected}" if "identity" in party.policy.disclose else "not as registered"
            yield f"the identity token's {name} is {actual}, {registered}: ids decide; tell the operator"


def _check_expiry(identity: Identity, now: int) -> Check:
    told = f"the request is of {datetime.fromtimestamp(now, UTC).date().isoformat()}"
    where = f"identities.{identity.id}.expires"
    return Check(Code.IDENTITY_REGISTRATION_EXPIRED, "", where, not has_expired(identity, now), told,
                 f"a day before {identity.expires}", "identity")  # fmt: skip


def has_expired(identity: Identity, now: int) -> bool:
    """Say whether the registration has ended: from 00:00 UTC of its date on."""
    if identity.expires is UNSET:
        return False
    return now >= datetime.fromisoformat(identity.expires).replace(tzinfo=UTC).timestamp()


def _check_event(claim: str, caller: Caller) -> Check:
    """Judge what started the job; a policy that names the events that may does it by its own requirement."""
    actual, events = caller.claims.get(claim), caller.provider.events
    passed = isinstance(actual, str) and actual in events
    told = f"the identity token's {claim} is {shown(actual)}"
    where = f"providers.{caller.provider.id}.events"
    return Check(Code.IDENTITY_EVENT_FORBIDDEN, "", where, passed, told, listed("one of ", events), "identity")


def _check_claim(caller: Caller, name: str, rule: Requirement, where: str) -> Check:
    passed = met(caller.claims, name, rule)
    if name in caller.claims:
        actual = f"the identity token's {name} is {shown(caller.claims[name])}"
        return Check(Code.IDENTITY_CLAIM_MISMATCH, "", where, passed, actual, said(rule), "identity")
    missing = f"the identity token has no claim {name}"
    return Check(Code.IDENTITY_CLAIM_MISSING, "", where, passed, missing, said(rule), "identity")


def _check_foreign(rules: Foreign, identity: Identity, caller: Caller) -> Check:
    """Judge code that the job borrows from another repository: the policy must name its commit.

    Both names in the token are GitHub's word of the same moment, so this holds where the policy's own `names` are old,
    and for a policy that does not speak of the borrowed code at all.
    """
    code, home = caller.claims[rules.claims[0]], caller.claims.get(rules.home)
    at_home = isinstance(code, str) and isinstance(home, str) and code.startswith(f"{home}/")
    told = f"the identity token's {rules.claims[0]} is {shown(code)}, and its {rules.home} is {shown(home)}"
    wanted = f"code of this repository, or a policy that names the {rules.commit}"
    where = f"identities.{identity.id}.require.{rules.commit}"
    passed = at_home or names_commit(identity, rules.commit)
    return Check(Code.IDENTITY_CLAIM_MISMATCH, "", where, passed, told, wanted)


def names_commit(identity: Identity, claim: str) -> bool:
    """Say whether the identity demands exact values, and so commits, of a claim."""
    values = exact_values(identity.require[claim]) if claim in identity.require else ()
    return claim in identity.pins or any(isinstance(value, str) for value in values)
