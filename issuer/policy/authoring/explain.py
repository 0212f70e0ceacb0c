"""The offline explanation of a request: the service's decision about it, with nothing hidden. Pure.

The service's own functions read the identity token, resolve the caller and judge the request. Three things are missing
offline: the token's signature, Authlib's second opinion on an access token, and the state of the running service
(limits, quarantine, uses, and the counts of `abuse` unless the author states them).
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
from issuer.policy.authoring.signals import CountedRule, compare
from issuer.policy.check import Check, make_check
from issuer.policy.decide import Grant, Run, evaluate
from issuer.policy.disclose import disclose, disclose_all
from issuer.policy.match import PolicySet, pins_match
from issuer.policy.model import Counts, equals
from issuer.policy.registration import Registration, check_identity
from issuer.token.wire import ShownCheck

NEAREST = 3


class ReadCredential(Struct, frozen=True):
    """A credential as far as it can be read offline: its claims, and its provider if the table has it.

    `checks` are about the token, in the order of the service; empty if the claims were given without a token.
    """

    provider: Provider | None
    claims: Mapping[str, JSON]
    checks: tuple[Check, ...] = ()


class Explanation(Struct, frozen=True):
    """The decision of policies about a request, with every check.

    `token_checks` are about the identity token, `checks` about the caller and its request. `registration` is None if
    the caller is not registered; `refusal` is then the service's answer. If all checks pass, `counted` has the rules of
    `abuse` with the given counts.
    """

    token_checks: tuple[Check, ...]
    checks: tuple[Check, ...] = ()
    warnings: tuple[str, ...] = ()
    registration: Registration | None = None
    refusal: str = ""
    counted: tuple[CountedRule, ...] = ()

    @property
    def authenticated(self) -> bool:
        """Whether every check of the token passed."""
        return all(check.passed for check in self.token_checks)

    @property
    def code(self) -> Code | None:
        """The code of the refusal, None for a grant."""
        failed = next((check.code for check in (*self.token_checks, *self.checks) if not check.passed), None)
        quarantined = any(rule.crossed and rule.then == "quarantine" for rule in self.counted)
        return failed or (Code.ABUSE_QUARANTINED if quarantined else None)

    def with_counts(self, counts: Counts) -> Explanation:
        """Return the explanation with the rules of `abuse` for these counts. It does not change a refusal, because the
        admission counts only granted results."""
        if self.registration is None or self.code is not None:
            return self
        return replace(self, counted=compare(self.registration.policy.abuse, counts))

    def redact(self) -> Explanation:
        """Return what the caller may see: no registration if a token check failed, and of `abuse` its warnings."""
        shown = tuple(rule for rule in self.counted if rule.crossed and rule.then != "observe")
        return replace(self, counted=shown) if self.authenticated else Explanation(self.token_checks)

    def checks_for_operator(self) -> tuple[ShownCheck, ...]:
        """Return all checks, with nothing hidden."""
        return disclose_all((*self.token_checks, *self.checks))

    def checks_for_caller(self) -> tuple[ShownCheck, ...]:
        """Return the checks that the service shows to the caller (contract section 5, disclosure ladder)."""
        return () if self.registration is None else disclose(self.redact().checks, self.registration.policy)


def present_token(policies: PolicySet, token: str, now: int) -> ReadCredential | Provider:
    """Read a token and check it at `now` (Unix seconds), except for its signature.

    Returns the provider instead if the credential is opaque: only the provider knows its claims.
    """
    index = ProviderIndex(policies.providers)
    if not is_jwt(token) and (provider := index.of_opaque(token)):
        return provider
    try:
        jws, unverified_claims = read_token(token)
    except Refused as refusal:
        return ReadCredential(None, {}, (make_check(refusal.code, "the identity token", False, refusal.detail),))
    provider = index.of_jwt(unverified_claims.get("iss"))
    if provider is None:
        return _present_stranger(policies, unverified_claims)
    if provider.rules.kind not in SIGNED:
        return provider
    checks = tuple(
        make_check(outcome.code, outcome.place, outcome.passed, outcome.actual, outcome.expected)
        for outcome in check_token(jws.header, unverified_claims, provider, now)
    )
    return ReadCredential(provider, unverified_claims, checks)


def present_claims(policies: PolicySet, claims: Mapping[str, JSON]) -> ReadCredential:
    """Return claims as if they were from a valid credential of the provider that their `iss` names."""
    issuer = claims.get("iss")
    provider = policies.providers.get(issuer) if isinstance(issuer, str) else None
    return _present_stranger(policies, claims) if provider is None else ReadCredential(provider, claims)


def _present_stranger(policies: PolicySet, claims: Mapping[str, JSON]) -> ReadCredential:
    actual, expected = f"the iss is {show_value(claims.get('iss'))}", " or ".join(policies.providers)
    return ReadCredential(
        None, claims, (make_check(Code.IDENTITY_ISSUER_UNKNOWN, "providers", False, actual, expected),)
    )


def explain(
    policies: PolicySet, presented: ReadCredential, runs: Iterable[Run], now: int, *, integration: str = "",
    audience: str = "",
) -> Explanation:  # fmt: skip
    """Explain a request at `now` (Unix seconds); the arguments are those of `evaluate`."""
    if presented.provider is None:
        return Explanation(presented.checks)
    caller = Caller.suppose(presented.provider, derive(presented.provider.rules, presented.claims), now)
    try:
        evaluation = evaluate(policies, caller, runs, now, integration=integration, audience=audience)
    except Refused as refusal:
        failed = make_check(refusal.code, "identities", False, refusal.detail)
        nearest = _check_nearest(policies, caller, refusal.code, now)
        return Explanation(presented.checks, (failed, *nearest), refusal=refusal.detail)
    decision = evaluation.decision
    warnings = decision.warnings if isinstance(decision, Grant) else ()
    return Explanation(presented.checks, decision.checks, warnings, evaluation.registration)


def _check_nearest(policies: PolicySet, caller: Caller, code: Code, now: int) -> Iterator[Check]:
    """Yield checks of the nearest registrations, for an operator who looks for the wrong id."""
    buckets = policies.registrations.values()
    registrations = [one for bucket in buckets for one in bucket if one.provider == caller.provider]
    registrations.sort(key=lambda registration: -sum(_match_pins(registration, caller).values()))
    for registration in registrations[:NEAREST]:
        where = f"{registration.policy.integration}/{registration.identity.id}"
        for name, matches in _match_pins(registration, caller).items():
            actual = f"the identity token's {name} is {show_value(caller.claims.get(name))}"
            yield make_check(code, f"{where}: pins.{name}", matches, actual, registration.identity.pins[name])
        if pins_match(registration.identity, caller.claims):
            for check in check_identity(registration, caller, now):
                yield replace(check, of=replace(check.of, place=f"{where}: {check.rule}"))


def _match_pins(registration: Registration, caller: Caller) -> dict[str, bool]:
    return {name: equals(caller.claims.get(name), value) for name, value in registration.identity.pins.items()}
