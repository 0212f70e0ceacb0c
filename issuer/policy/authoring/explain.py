"""Why would this request be refused? The service's judgement, made offline and with nothing hidden. Pure.

The same functions as in the service read the identity token, find whose it is and judge the request. Three things are
beyond them here: the token's signature, Authlib's second opinion on an access token, and what only the running service
remembers (limits, quarantine, uses, and what an identity has had signed, unless the author states those counts).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats.display import show_value
from issuer.formats.strict_json import JSON
from issuer.identity.profiles import derive
from issuer.identity.table import SIGNED, Provider, ProviderIndex
from issuer.identity.token import Caller, check_token, is_jwt, read_token
from issuer.policy.authoring.signals import Counted, compare
from issuer.policy.check import Check, make_check
from issuer.policy.decide import Grant, Run, evaluate
from issuer.policy.disclose import disclose, disclose_all
from issuer.policy.match import PolicySet, pins_match
from issuer.policy.model import Counts
from issuer.policy.registration import Registration, check_identity
from issuer.policy.requirement import equals
from issuer.token.wire import ShownCheck

NEAREST = 3


class Presented(Struct, frozen=True):
    """What a caller presents, as far as it can be read offline: claims, and whose they are if the table has it.

    `checks` are of the token, in the order of the service; none where claims were given without a token.
    """

    provider: Provider | None
    claims: Mapping[str, JSON]
    checks: tuple[Check, ...] = ()


class Explanation(Struct, frozen=True):
    """What policies say of a request.

    `token_checks` are of the identity token, `checks` of whose it is and what it may have signed. `registration` is
    None where the caller is not registered; `refusal` is then what the service answers. `counted` are the rules of
    `abuse` beside the counts that were given, for a request that is granted by all checks.
    """

    token_checks: tuple[Check, ...]
    checks: tuple[Check, ...] = ()
    warnings: tuple[str, ...] = ()
    registration: Registration | None = None
    refusal: str = ""
    counted: tuple[Counted, ...] = ()

    @property
    def authenticated(self) -> bool:
        """Whether the token suits its provider's registration."""
        return all(check.passed for check in self.token_checks)

    @property
    def code(self) -> Code | None:
        """The code of the refusal, None for a grant."""
        failed = next((check.code for check in (*self.token_checks, *self.checks) if not check.passed), None)
        quarantined = any(rule.crossed and rule.then == "quarantine" for rule in self.counted)
        return failed or (Code.ABUSE_QUARANTINED if quarantined else None)

    def with_counts(self, counts: Counts) -> Explanation:
        """Return what follows where the admission would have counted this; the same for a refusal, which it counts
        among the refusals alone."""
        if self.registration is None or self.code is not None:
            return self
        return replace(self, counted=compare(self.registration.policy.abuse, counts))

    def redact(self) -> Explanation:
        """Return what the caller may learn: where its token is not good, nothing of a registration; of the rules of
        `abuse` those that it is told of."""
        told = tuple(rule for rule in self.counted if rule.crossed and rule.then != "observe")
        return replace(self, counted=told) if self.authenticated else Explanation(self.token_checks)

    def checks_for_operator(self) -> tuple[ShownCheck, ...]:
        """Return all checks, with nothing hidden."""
        return disclose_all((*self.token_checks, *self.checks))

    def checks_for_caller(self) -> tuple[ShownCheck, ...]:
        """Return the checks that the service shows to the caller (contract section 5, disclosure ladder)."""
        return () if self.registration is None else disclose(self.redact().checks, self.registration.policy)


def present_token(policies: PolicySet, token: str, now: int) -> Presented | Provider:
    """Read a token and check it at `now` (Unix seconds), but for its signature.

    Returns the provider instead where the credential is opaque: only the provider can tell what it is worth.
    """
    index = ProviderIndex(policies.providers)
    if not is_jwt(token) and (provider := index.of_opaque(token)):
        return provider
    try:
        jws, unverified_claims = read_token(token)
    except Refused as refusal:
        return Presented(None, {}, (make_check(refusal.code, "the identity token", False, refusal.detail),))
    provider = index.of_jwt(unverified_claims.get("iss"))
    if provider is None:
        return _present_stranger(policies, unverified_claims)
    if provider.rules.kind not in SIGNED:
        return provider
    checks = tuple(
        make_check(outcome.code, outcome.place, outcome.passed, outcome.actual, outcome.expected)
        for outcome in check_token(jws.header, unverified_claims, provider, now)
    )
    return Presented(provider, unverified_claims, checks)


def present_claims(policies: PolicySet, claims: Mapping[str, JSON]) -> Presented:
    """Take claims as those of a good credential of the provider that their `iss` names."""
    issuer = claims.get("iss")
    provider = policies.providers.get(issuer) if isinstance(issuer, str) else None
    return _present_stranger(policies, claims) if provider is None else Presented(provider, claims)


def _present_stranger(policies: PolicySet, claims: Mapping[str, JSON]) -> Presented:
    actual, expected = f"the iss is {show_value(claims.get('iss'))}", " or ".join(policies.providers)
    return Presented(None, claims, (make_check(Code.IDENTITY_ISSUER_UNKNOWN, "providers", False, actual, expected),))


def explain(
    policies: PolicySet, presented: Presented, runs: Iterable[Run], now: int, *, integration: str = "",
    audience: str = "",
) -> Explanation:  # fmt: skip
    """Explain what policies say of a request at `now` (Unix seconds), as `evaluate` takes it."""
    if presented.provider is None:
        return Explanation(presented.checks)
    caller = Caller.suppose(presented.provider, derive(presented.provider.rules, presented.claims), now)
    try:
        found = evaluate(policies, caller, runs, now, integration=integration, audience=audience)
    except Refused as refusal:
        failed = make_check(refusal.code, "identities", False, refusal.detail)
        nearest = _check_nearest(policies, caller, refusal.code, now)
        return Explanation(presented.checks, (failed, *nearest), refusal=refusal.detail)
    warnings = found.decision.warnings if isinstance(found.decision, Grant) else ()
    return Explanation(presented.checks, found.decision.checks, warnings, found.registration)


def _check_nearest(policies: PolicySet, caller: Caller, code: Code, now: int) -> Iterator[Check]:
    """Check the registrations that come nearest: for the operator, who wonders which id is wrong."""
    registrations = [
        registration
        for bucket in policies.registrations.values()
        for registration in bucket
        if registration.provider == caller.provider
    ]
    ranked = sorted(registrations, key=lambda registration: -sum(_match_pins(registration, caller).values()))
    for registration in ranked[:NEAREST]:
        where = f"{registration.policy.integration}/{registration.identity.id}"
        for name, matches in _match_pins(registration, caller).items():
            actual = f"the identity token's {name} is {show_value(caller.claims.get(name))}"
            yield make_check(code, f"{where}: pins.{name}", matches, actual, registration.identity.pins[name])
        if pins_match(registration.identity, caller.claims):
            yield from (check.at(f"{where}: {check.rule}") for check in check_identity(registration, caller, now))


def _match_pins(registration: Registration, caller: Caller) -> dict[str, bool]:
    return {name: equals(caller.claims.get(name), value) for name, value in registration.identity.pins.items()}
