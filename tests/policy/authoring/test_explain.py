"""An explanation as a Python caller gets it. The command's tests hold its rules and its text."""

from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.policy.authoring.explain import NEAREST, ReadCredential, explain, present_claims
from issuer.policy.authoring.load import load_policies
from issuer.policy.check import make_check
from issuer.policy.match import PolicySet
from tests.support.policies import GITHUB, ISSUER_URL, NOW, POLICY, changed, load, runs_of, submission, write


@pytest.fixture
def policies(tmp_path: Path) -> PolicySet:
    return load(tmp_path, inspect_ai=POLICY)


def test_claims_are_explained_as_those_of_a_good_credential(policies: PolicySet) -> None:
    explanation = explain(policies, present_claims(policies, GITHUB), runs_of(submission(benchmark="a/b")), NOW)
    assert (explanation.authenticated, explanation.code) == (True, Code.POLICY_BENCHMARK)
    assert explanation.registration is not None
    assert explanation.registration.identity.id == "main"
    (failed,) = [check for check in explanation.checks_for_operator() if not check.passed]
    assert failed.expected == "one of openai/gsm8k, cais/*"
    (failed,) = [check for check in explanation.checks_for_caller() if not check.passed]
    assert failed.expected == "", "benchmarks are not disclosed"


def test_a_caller_whose_token_is_not_good_learns_nothing_of_its_registration(policies: PolicySet) -> None:
    provider = present_claims(policies, GITHUB).provider
    stale = make_check(Code.IDENTITY_EXPIRED, "providers.github-actions.max_age_s", False, "expired")
    explanation = explain(policies, ReadCredential(provider, {**GITHUB, "repository": "x"}, (stale,)), (), NOW)
    assert explanation.registration is not None, "the operator sees it"
    assert explanation.warnings
    assert explanation.checks_for_caller() == ()
    hidden = explanation.redact()
    assert (hidden.code, hidden.registration, hidden.warnings, hidden.checks) == (Code.IDENTITY_EXPIRED, None, (), ())


def test_only_the_nearest_registrations_are_shown_to_an_unknown_caller(tmp_path: Path) -> None:
    many = {
        f"other_{number}": changed(
            changed(POLICY, "integration: inspect-ai", f"integration: other-{number}"), '"7"', f'"7{number}"'
        )
        for number in range(2 * NEAREST)
    }
    policies = load_policies(write(tmp_path, inspect_ai=POLICY, **many), ISSUER_URL)
    stranger = present_claims(policies, {**GITHUB, "repository_owner_id": "8"})
    rules = [check.rule for check in explain(policies, stranger, (), NOW).checks]
    assert rules[0] == "identities"
    assert {rule.partition("/")[0] for rule in rules[1:]} == {"inspect-ai", "other-0", "other-1"}
