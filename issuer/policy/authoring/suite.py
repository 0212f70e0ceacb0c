"""The tests of a policy file, run by the evaluator that judges requests. Pure.

A test covers the whole identity, and those members of the run that the test gives. The policy counts as active, and
without `date` nothing has expired: neither an emergency suspension nor the passing of time makes a file fail its tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
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
from issuer.policy.authoring.lint import is_date
from issuer.policy.authoring.signals import Follows, compare, differ, follows, stated
from issuer.policy.check import Check
from issuer.policy.decide import evaluate
from issuer.policy.match import Key, PolicySet, key_of_caller
from issuer.policy.model import Counts, Policy, PolicyTest
from issuer.results.claims import STAND_IN, RunClaims, read_claims

GRANTED = "granted"
_MODES = {Code.INTEGRATION_SUSPENDED, Code.INTEGRATION_STAGED}
# Tests ignore the mode and name no audience, and no policy decides about stops and networks.
_NEVER = {*_MODES, Code.INTEGRATION_STOPPED, Code.IDENTITY_NETWORK_FORBIDDEN, Code.POLICY_AUDIENCE}
# The results that a test can expect.
EXPECTABLE = (GRANTED, *sorted(code for code in Code if code.meaning.status == 403 and code not in _NEVER))


class PolicyTestOutcome(Struct, frozen=True):
    """The result of a test. `expected` and `actual` are `granted` or a code; `detail` is the reason of a refusal.

    `checks` are about the members that the test gives; empty if the caller is not registered. `asked` is the key under
    which identities were looked up: the result depends on no others. `at` is the pointer to the test's `expect`.
    `signals` are the consequences of the test's counts, None without counts or after a refusal; `difference` says how
    they differ from the expected ones.
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
        """The result in words."""
        if self.actual == self.expected:
            return f"{self.actual}, as expected, but with other signals: {self.difference}"
        return f"expected {self.expected}, the policy says {self.actual}"


class _Case(Struct, frozen=True):
    """A test completed with the parts of an earlier one. `time` is Unix seconds."""

    provider: Provider
    identity: Mapping[str, JSON]
    run: Mapping[str, JSON]
    time: int


def run_tests(
    policies: PolicySet, policy: Policy, document: Document, findings: Findings
) -> tuple[PolicyTestOutcome, ...]:
    """Run the tests of one policy against the set of all policies. A failed or malformed test is an error."""
    return tuple(_Suite(policies, policy, document, findings).run())


def doubt_tests(policy: Policy, document: Document, findings: Findings) -> None:
    """Warn if a policy has no tests, or only tests that expect a grant."""
    if not policy.tests:
        findings.warn(document, "", Code.LINT_UNTESTED, "this policy has no tests")
    elif all(test.expect == GRANTED for test in policy.tests):
        findings.warn(document, "/tests", Code.LINT_UNTESTED, "none of the tests expects a refusal")


class _Suite(Struct, frozen=True):
    """The tests of one policy, and the policies that they run against."""

    policies: PolicySet
    policy: Policy
    document: Document
    findings: Findings

    def run(self) -> Iterator[PolicyTestOutcome]:
        cases: dict[str, _Case | None] = {}  # None: the test has an error
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
        """Complete a test. Returns None after recording an error."""
        expectable = self.demand(f"{at}/expect", test.expect in EXPECTABLE, _expect_rule(test.expect))
        now = 0 if test.date is UNSET else _midnight(test.date)
        self.demand(f"{at}/date", now is not None, "must be a date such as 2027-06-30")
        expectable = self.demand_counts(test, at) and expectable
        case = self.read_own(test, at) if test.claims_from is UNSET else self.derive(test, at, earlier)
        return msgspec.structs.replace(case, time=now) if case and expectable and now is not None else None

    def demand_counts(self, test: PolicyTest, at: str) -> bool:
        """Demand `counts` of a test that expects their consequences, and a grant of a test with `counts`."""
        if test.counts is not UNSET:
            admitted = test.expect in {GRANTED, Code.ABUSE_QUARANTINED}
            rule = "only granted results are counted: expect granted or abuse.quarantined, or remove `counts`"
            return self.demand(f"{at}/counts", admitted, rule)
        bare = self.demand(f"{at}/signals", not stated(test.signals), "signals follow from `counts`: add `counts`")
        rule = "a quarantine follows from `counts`: add `counts`"
        return self.demand(f"{at}/expect", test.expect != Code.ABUSE_QUARANTINED, rule) and bare

    def read_own(self, test: PolicyTest, at: str) -> _Case | None:
        whole = test.provider is not UNSET and test.identity is not UNSET
        self.demand(at, whole, "give `provider` and `identity`, or `claims_from`")
        bare = not (test.override.identity or test.override.run)
        self.demand(f"{at}/override", bare, "`override` changes the test that `claims_from` names: add `claims_from`")
        provider = next((each for each in self.policies.providers.values() if each.id == test.provider), None)
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
        """Read a test's run like the run of a request, with stand-ins for absent members; their checks are dropped."""
        run = {**STAND_IN, **case.run}
        try:
            self.document.convert_part(f"{at}/run", run, RunClaims)  # its errors also name missing quotes
            return read_claims(run)
        except InputError as error:
            self.findings.refuse(error)
        except Refused as refusal:
            for fault in refusal.faults:
                self.demand(f"{at}/run{fault.pointer}", False, fault.detail)
        return None

    # -- its outcome --------------------------------------------------------------------------------------------------

    def judge_test(self, test: PolicyTest, case: _Case, claims: RunClaims, at: str) -> PolicyTestOutcome:
        caller = Caller.suppose(case.provider, derive(case.provider.rules, case.identity), case.time)
        actual, detail, checks = self.judge(case, caller, claims)
        asked, name = key_of_caller(caller), self.policy.integration
        outcome = PolicyTestOutcome(
            name, test.name, test.expect, actual, detail, checks, asked, self.document, f"{at}/expect"
        )
        if test.counts is not UNSET and actual == GRANTED:
            outcome = self.judge_counts(test, test.counts, outcome, f"{at}/signals")
        because = f": {outcome.detail}" if outcome.detail else ""
        rule = f'the test "{test.name}" expects {test.expect}, and the policy says {outcome.actual}{because}'
        if outcome.difference and outcome.actual == test.expect:
            rule = f'the test "{test.name}" expects other signals: {outcome.difference}'
        self.findings.demand(self.document, outcome.at, outcome.passed, rule, Code.POLICY_TEST_FAILED)
        return outcome

    def judge_counts(self, test: PolicyTest, counts: Counts, granted: PolicyTestOutcome, at: str) -> PolicyTestOutcome:
        """Add the signals of a granted run's counts to its outcome. `at` is the pointer to the test's `signals`."""
        abuse = self.policy.abuse
        expected, actual, rows = stated(test.signals), follows(abuse, counts), compare(abuse, counts)
        difference = differ(expected, actual, rows)
        outcome = msgspec.structs.replace(granted, signals=actual, difference=difference)
        for row in rows:
            if row.crossed and row.then == "quarantine":
                detail = f"counted {row.count}, the limit is {row.limit}; rule: {row.rule}"
                outcome = msgspec.structs.replace(outcome, actual=str(Code.ABUSE_QUARANTINED), detail=detail)
                break
        return msgspec.structs.replace(outcome, at=at) if outcome.actual == test.expect and difference else outcome

    def judge(self, case: _Case, caller: Caller, claims: RunClaims) -> tuple[str, str, tuple[Check, ...]]:
        """Return `granted` or a code, the reason of a refusal, and the checks that count."""
        runs = (("/claims", claims),)
        try:
            evaluation = evaluate(self.policies, caller, runs, case.time, integration=self.policy.integration)
        except Refused as refusal:
            return str(refusal.code), refusal.detail, ()
        checks = tuple(check for check in evaluation.decision.checks if _counts(check, case.run))
        failed = next((check for check in checks if not check.passed), None)
        if failed is None:
            return GRANTED, "", checks
        wanted = f"; expected {failed.expected}" if failed.expected else ""
        return str(failed.code), f"{failed.actual}{wanted}; rule: {failed.rule}", checks


def _expect_rule(expected: str) -> str:
    why = "not a code" if Code.named(expected) is None else "no test can expect this code"
    return f"{why}: write `granted`, or one of {', '.join(EXPECTABLE[1:])}"


def _midnight(text: str) -> int | None:
    """Return 00:00 UTC of an ISO date in Unix seconds, or None for any other text."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) if is_date(text) else None


def _counts(check: Check, run: Mapping[str, JSON]) -> bool:
    """Return whether a check is about a member that the test gives, and not about the policy's mode."""
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
