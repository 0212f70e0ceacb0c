"""The tests that a policy file holds, run by the evaluator that judges requests. Pure.

A test is judged as far as it goes: the whole identity, and of the run those members that it gives, each as a whole.
The policy counts as active, and without `date` nothing counts as expired: neither an emergency suspension nor the
passing of time makes a file fail its own tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import InputError, Place, Refused
from issuer.formats.findings import Findings
from issuer.formats.strict_json import JSON
from issuer.formats.strict_yaml import Document
from issuer.identity.profiles import derive
from issuer.identity.table import Provider
from issuer.identity.token import Caller
from issuer.policy.authoring.signals import Follows, compare, differ, follows, stated
from issuer.policy.check import Check
from issuer.policy.decide import evaluate
from issuer.policy.match import Key, PolicySet, key_of_caller
from issuer.policy.model import Counts, Policy, PolicyTest
from issuer.results.claims import STAND_IN, RunClaims, read_claims

GRANTED = "granted"
_MODES = {Code.INTEGRATION_SUSPENDED, Code.INTEGRATION_STAGED}
# Not in a policy, and so not of its tests.
_ELSEWHERE = {Code.INTEGRATION_STOPPED, Code.IDENTITY_NETWORK_FORBIDDEN}
# What a test can expect: its mode does not count, and a test names no audience.
EXPECTABLE = (
    GRANTED,
    *sorted(
        code for code in Code if code.meaning.status == 403 and code not in {*_MODES, *_ELSEWHERE, Code.POLICY_AUDIENCE}
    ),
)


class Outcome(Struct, frozen=True):
    """How a test went. `expected` and `actual` are `granted` or a code; `detail` is why, where it was refused.

    `signals` are what follows from the counts of the test, None where it gives none or is refused before they count;
    `difference` says where these are not what it expects.
    `checks` are those of what the test gives; empty where the caller is not registered. `asked` is under which key
    identities were looked for: the outcome depends on no others. `at` is the pointer to the test's `expect`.
    """

    integration: str
    name: str
    expected: str
    actual: str
    detail: str
    checks: tuple[Check, ...]
    asked: Key
    document: Document
    at: str
    signals: Follows | None = None
    difference: str = ""

    @property
    def place(self) -> Place:
        """The place of the test's `expect` in the policy file."""
        return self.document.place(self.at)

    @property
    def passed(self) -> bool:
        """Whether the policy decides as the test expects."""
        return self.actual == self.expected and not self.difference

    @property
    def verdict(self) -> str:
        """What was expected, and what the policy says."""
        if self.actual == self.expected:
            return f"{self.actual}, as expected, but for its signals: {self.difference}"
        return f"expected {self.expected}, the policy says {self.actual}"


class _Case(Struct, frozen=True):
    """A test, complete with what it takes from an earlier one. `time` is Unix seconds."""

    provider: Provider
    identity: Mapping[str, JSON]
    run: Mapping[str, JSON]
    time: int


def run_tests(policies: PolicySet, policy: Policy, document: Document, findings: Findings) -> tuple[Outcome, ...]:
    """Run the tests of one policy, in the set of all. A test that fails or is malformed is an error."""
    return tuple(_Suite(policies, policy, document, findings).run())


def doubt_tests(policy: Policy, document: Document, findings: Findings) -> None:
    """Warn where the tests of a policy show little."""
    if not policy.tests:
        findings.warn(document, "", Code.LINT_UNTESTED, "this policy has no tests")
    elif all(test.expect == GRANTED for test in policy.tests):
        findings.warn(document, "/tests", Code.LINT_UNTESTED, "none of the tests expects a refusal")


class _Suite(Struct, frozen=True):
    """The tests of one policy, with the set that they are run in."""

    policies: PolicySet
    policy: Policy
    document: Document
    findings: Findings

    def run(self) -> Iterator[Outcome]:
        cases: dict[str, _Case | None] = {}  # None: the test is there, and has an error
        for index, test in enumerate(self.policy.tests):
            at = f"/tests/{index}"
            if not self.demand(f"{at}/name", test.name not in cases, "another test of this file has this name"):
                continue
            case = self.read_case(test, at, cases)
            claims = self.read_run(case, at if test.claims_from is UNSET else f"{at}/override") if case else None
            cases[test.name] = case if claims else None
            if case is not None and claims is not None:
                yield self.judge_test(test, case, claims, at)

    def demand(self, at: str, condition: object, rule: str) -> bool:
        return self.findings.demand(self.document, at, condition, rule)

    # -- what a test gives --------------------------------------------------------------------------------------------

    def read_case(self, test: PolicyTest, at: str, earlier: Mapping[str, _Case | None]) -> _Case | None:
        """Complete a test; None where that cannot be done, and an error was recorded."""
        expectable = self.demand(f"{at}/expect", test.expect in EXPECTABLE, _expect_rule(test.expect))
        now = 0 if test.date is UNSET else _midnight(test.date)
        self.demand(f"{at}/date", now is not None, "must be a date, as 2027-06-30")
        expectable = self.demand_counts(test, at) and expectable
        case = self.read_own(test, at) if test.claims_from is UNSET else self.derive(test, at, earlier)
        return msgspec.structs.replace(case, time=now) if case and expectable and now is not None else None

    def demand_counts(self, test: PolicyTest, at: str) -> bool:
        """Demand counts where a test speaks of what follows from them, and a grant where it gives them."""
        if test.counts is not UNSET:
            admitted = test.expect in {GRANTED, Code.ABUSE_QUARANTINED}
            rule = "only what is granted is counted: expect granted, or abuse.quarantined, or give no `counts`"
            return self.demand(f"{at}/counts", admitted, rule)
        bare = self.demand(f"{at}/signals", not stated(test.signals), "signals follow from `counts`: give them")
        rule = "a quarantine follows from `counts`: give them"
        return self.demand(f"{at}/expect", test.expect != Code.ABUSE_QUARANTINED, rule) and bare

    def read_own(self, test: PolicyTest, at: str) -> _Case | None:
        whole = test.provider is not UNSET and test.identity is not UNSET
        self.demand(at, whole, "give `provider` and `identity`, or `claims_from`")
        bare = not (test.override.identity or test.override.run)
        self.demand(f"{at}/override", bare, "there is nothing to override without `claims_from`")
        named = (provider for provider in self.policies.providers.values() if provider.id == test.provider)
        provider = next(named, None)
        there = provider is not None or test.provider is UNSET
        self.demand(f"{at}/provider", there, "not a provider of providers.yaml")
        if provider is None or test.identity is UNSET or not bare:
            return None
        return _Case(provider, test.identity, {} if test.run is UNSET else test.run, 0)

    def derive(self, test: PolicyTest, at: str, earlier: Mapping[str, _Case | None]) -> _Case | None:
        own = test.provider is not UNSET or test.identity is not UNSET or test.run is not UNSET
        self.demand(at, not own, "provider, identity and run come from `claims_from`: change them under `override`")
        case = earlier.get(test.claims_from or "")
        known = test.claims_from in earlier
        self.demand(f"{at}/claims_from", known, "not the name of an earlier test of this file")
        if case is None or own:
            return None
        identity, run = merge(case.identity, test.override.identity), merge(case.run, test.override.run)
        return msgspec.structs.replace(case, identity=identity, run=run)

    def read_run(self, case: _Case, at: str) -> RunClaims | None:
        """Read a test's run as a request's, filled in where it gives nothing: checks of that are dropped."""
        run = {**STAND_IN, **case.run}
        try:
            self.document.convert_part(f"{at}/run", run, RunClaims)  # it tells of quotes, too
            return read_claims(run)
        except InputError as error:
            self.findings.refuse(error)
        except Refused as refusal:
            for fault in refusal.faults:
                self.demand(f"{at}/run{fault.pointer}", False, fault.detail)
        return None

    # -- its outcome --------------------------------------------------------------------------------------------------

    def judge_test(self, test: PolicyTest, case: _Case, claims: RunClaims, at: str) -> Outcome:
        caller = Caller.suppose(case.provider, derive(case.provider.rules, case.identity), case.time)
        actual, detail, checks = self.judge(case, caller, claims)
        asked, name = key_of_caller(caller), self.policy.integration
        outcome = Outcome(name, test.name, test.expect, actual, detail, checks, asked, self.document, f"{at}/expect")
        if test.counts is not UNSET and actual == GRANTED:
            outcome = self.judge_counts(test, test.counts, outcome, f"{at}/signals")
        because = f": {outcome.detail}" if outcome.detail else ""
        rule = f'the test "{test.name}" expects {test.expect}, and the policy says {outcome.actual}{because}'
        if outcome.difference and outcome.actual == test.expect:
            rule = f'the test "{test.name}" expects other signals: {outcome.difference}'
        self.findings.demand(self.document, outcome.at, outcome.passed, rule, Code.POLICY_TEST_FAILED)
        return outcome

    def judge_counts(self, test: PolicyTest, counts: Counts, granted: Outcome, at: str) -> Outcome:
        """Judge what follows from the counts of a run that is granted, at the pointer of its `signals`."""
        abuse = self.policy.abuse
        expected, actual, rows = stated(test.signals), follows(abuse, counts), compare(abuse, counts)
        difference = differ(expected, actual, rows)
        outcome = msgspec.structs.replace(granted, signals=actual, difference=difference)
        for row in rows:
            if row.crossed and row.then == "quarantine":
                detail = f"counted {row.count}, and {row.limit} is the limit; rule: {row.rule}"
                outcome = msgspec.structs.replace(outcome, actual=str(Code.ABUSE_QUARANTINED), detail=detail)
                break
        return msgspec.structs.replace(outcome, at=at) if outcome.actual == test.expect and difference else outcome

    def judge(self, case: _Case, caller: Caller, claims: RunClaims) -> tuple[str, str, tuple[Check, ...]]:
        """Return the verdict as `granted` or a code, why it was refused, and the checks that count."""
        runs = (("/claims", claims),)
        try:
            found = evaluate(self.policies, caller, runs, case.time, integration=self.policy.integration)
        except Refused as refusal:
            return str(refusal.code), refusal.detail, ()
        checks = tuple(check for check in found.decision.checks if _counts(check, case.run))
        failed = next((check for check in checks if not check.passed), None)
        if failed is None:
            return GRANTED, "", checks
        wanted = f"; expected {failed.expected}" if failed.expected else ""
        return str(failed.code), f"{failed.actual}{wanted}; rule: {failed.rule}", checks


def _expect_rule(expected: str) -> str:
    why = "not a code" if Code.named(expected) is None else "not what a test can expect"
    return f"{why}: `granted`, or one of {', '.join(EXPECTABLE[1:])}"


def _midnight(text: str) -> int | None:
    """Return 00:00 UTC of an ISO date in Unix seconds, or None for any other text."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) if day.isoformat() == text else None


def _counts(check: Check, run: Mapping[str, JSON]) -> bool:
    """Say whether a check is about what a test gives, and not of the policy's mode."""
    _, _, inside = check.pointer.partition("/claims/")
    given = not inside or inside.partition("/")[0] in run
    return given and (check.passed or check.code not in _MODES)


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396): maps are merged, null removes, everything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    kept = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = merge(kept.get(name), value)
    return kept
