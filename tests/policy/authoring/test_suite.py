"""Tests in a policy's file: judged as requests are, run at every load, and no policy loads that fails its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.errors import InputError
from issuer.policy.authoring.load import check_policies, try_policies
from issuer.policy.authoring.suite import EXPECTABLE, merge
from tests.support.policies import ISSUER_URL, NOW, POLICY, TESTS, changed, load, outcomes, write


def derived(name: str, expect: str, override: str, more: str = "") -> str:
    return f"  - {{name: {name}, claims_from: main, expect: {expect}, override: {override}{more}}}\n"


def actual(folder: Path, override: str, text: str = POLICY, more: str = "") -> str:
    """What a test that differs from the good one by its override comes to."""
    done, _ = outcomes(folder, TESTS + derived("other", "granted", override, more), text)
    assert done[0].passed
    return done[1].actual


# -- what a test comes to ------------------------------------------------------------------------------------------------


def test_a_policy_whose_tests_pass_loads(tmp_path: Path) -> None:
    tests = TESTS + derived("fork", "identity.event_forbidden", '{identity: {event_name: "fork"}}')
    assert set(load(tmp_path, inspect_ai=POLICY + tests).policies) == {"inspect-ai"}


@pytest.mark.parametrize(
    ("override", "code"),
    [
        ('{identity: {repository_id: "8"}}', "integration.unknown"),
        ("{identity: {repository_id: 7}}", "integration.unknown"),
        ("{identity: {event_name: null}}", "identity.event_forbidden"),
        ('{identity: {ref: "refs/heads/main2"}}', "identity.claim_mismatch"),
        ("{identity: {ref: null}}", "identity.claim_missing"),
        ('{run: {framework: {name: "helm", version: "1"}}}', "policy.framework"),
        ('{run: {framework: {name: "inspect-ai", version: "0.4"}}}', "policy.version"),
        ('{run: {framework: {name: "inspect-ai", version: "0.3.285"}}}', "granted"),
        ('{run: {benchmark_repo: "openai/gsm8k2"}}', "policy.benchmark"),
        ("{run: {benchmark_repo: null}}", "granted"),
        ('{run: {model_repo: "any/model"}}', "granted"),
        ("{}", "granted"),
    ],
)
def test_a_test_is_decided_as_a_request_would_be(tmp_path: Path, override: str, code: str) -> None:
    assert actual(tmp_path, override) == code


@pytest.mark.parametrize(
    ("grants", "override", "code"),
    [
        ('tasks: ["a*"]', "{run: {task_id: b}}", "policy.task"),
        ('tasks: ["a*"]', "{}", "granted"),
        ('tasks: ["a*"]', "{run: {task_id: a}}", "granted"),
        ('tasks: ["*"]\n  deny: {models: ["org/*"]}', '{run: {model_repo: "b/c"}}', "granted"),
        ('tasks: ["*"]\n  command: required', '{run: {framework: {name: "inspect-ai", version: "0.3.100"}}}',
         "policy.command"),
    ],
)  # fmt: skip
def test_of_a_run_the_members_that_a_test_gives_are_judged_each_as_a_whole(
    tmp_path: Path, grants: str, override: str, code: str
) -> None:
    text = changed(POLICY, 'tasks: ["*"]', grants)
    tests = changed(TESTS, '"org/model"', '"good/model"') + derived("other", "granted", override)
    assert outcomes(tmp_path, tests, text)[0][1].actual == code


@pytest.mark.parametrize(("value", "code"), [("0.5", "granted"), ("1.5", "policy.metric")])
def test_a_metric_is_judged_with_its_value(tmp_path: Path, value: str, code: str) -> None:
    text = changed(POLICY, 'metrics: ["*"]', 'metrics: [{id: "accuracy", max: 1}]')
    assert actual(tmp_path, f"{{run: {{metrics: [{{metric_id: accuracy, value: {value}}}]}}}}", text) == code


def test_a_registered_benchmark_is_judged_where_its_commit_is_given(tmp_path: Path) -> None:
    text = changed(POLICY, 'metrics: ["*"]', 'metrics: ["*"]\n  registered_only: true')
    assert actual(tmp_path, "{run: {task_id: x}}", text) == "granted"
    assert actual(tmp_path, f'{{run: {{benchmark_revision: "{"b" * 40}"}}}}', text) == "policy.benchmark"
    folder = tmp_path / "benchmarks" / "openai" / "gsm8k"
    folder.mkdir(parents=True)
    (folder / "eval.yaml").write_text('name: "x"\ntasks: [{id: "main"}]\n')
    assert actual(tmp_path, "{run: {task_id: x}}", text) == "policy.task"


def test_a_caller_of_another_integration_is_unknown_to_this_one(tmp_path: Path) -> None:
    other = POLICY.replace("integration: inspect-ai", "integration: other").replace('"7"', '"8"')
    write(tmp_path, other=other, inspect_ai=POLICY + TESTS + derived(
        "theirs", "integration.unknown", '{identity: {repository_id: "8"}}'
    ))  # fmt: skip
    done, findings = try_policies(tmp_path, ISSUER_URL, NOW)
    assert [outcome.actual for outcome in done] == ["granted", "integration.unknown"]
    assert all(finding.severity == "warning" for finding in findings)


def test_an_outcome_holds_the_checks_of_what_the_test_gives_and_no_others(tmp_path: Path) -> None:
    (outcome,) = outcomes(tmp_path, TESTS)[0]
    assert (outcome.integration, outcome.name, outcome.expected, outcome.actual) == (
        "inspect-ai", "main", "granted", "granted",
    )  # fmt: skip
    assert (outcome.place.line, outcome.place.column) == (
        (POLICY + TESTS[: TESTS.index("granted")]).count("\n") + 1,
        13,
    )
    pointers = {check.pointer for check in outcome.checks if check.pointer.startswith("/claims")}
    assert pointers == {"/claims/benchmark_repo", "/claims/model_repo"}


# -- neither the clock nor an emergency fails a test ---------------------------------------------------------------------

EXPIRING = changed(POLICY, "    require:", "    expires: 2026-01-01\n    require:")


@pytest.mark.parametrize("mode", ["active", "staged", "suspended"])
def test_a_policy_is_tested_as_if_it_were_active(tmp_path: Path, mode: str) -> None:
    text = changed(POLICY, "mode: active", f"mode: {mode}")
    assert actual(tmp_path, "{}", text) == "granted"


def test_without_a_date_nothing_has_expired(tmp_path: Path) -> None:
    assert actual(tmp_path, "{}", EXPIRING) == "granted"


@pytest.mark.parametrize(
    ("date", "code"),
    [("2025-12-31", "granted"), ("2026-01-01", "identity.registration_expired"), ('"2027-01-01"', "identity.registration_expired")],
)  # fmt: skip
def test_a_test_may_name_its_date(tmp_path: Path, date: str, code: str) -> None:
    assert actual(tmp_path, "{}", EXPIRING, f", date: {date}") == code


# -- a test that fails ---------------------------------------------------------------------------------------------------


def test_a_policy_that_fails_its_own_test_does_not_load_and_says_why(tmp_path: Path) -> None:
    text = POLICY + TESTS + derived("typo", "granted", '{run: {benchmark_repo: "openai/gsm8"}}')
    with pytest.raises(InputError) as error:
        load(tmp_path, inspect_ai=text)
    line = text.count("\n")
    column = text.splitlines()[-1].index("granted") + 1
    assert str(error.value) == (
        f"{tmp_path / 'inspect-ai.yaml'}:{line}:{column}: policy.test_failed: "
        'the test "typo" expects granted, and the policy says policy.benchmark: the run names openai/gsm8; '
        "expected one of openai/gsm8k, cais/*; rule: grants.benchmarks"
    )


def test_a_refusal_that_is_granted_fails_its_test(tmp_path: Path) -> None:
    _, errors = outcomes(tmp_path, TESTS + derived("hole", "policy.model", '{run: {model_repo: "evil/model"}}'))
    (finding,) = errors
    assert finding.code is Code.POLICY_TEST_FAILED
    assert finding.detail == 'the test "hole" expects policy.model, and the policy says granted'
    assert finding.pointer == "/tests/1/expect"


def test_a_refusal_for_another_reason_fails_its_test(tmp_path: Path) -> None:
    _, errors = outcomes(tmp_path, TESTS + derived("x", "policy.model", '{run: {benchmark_repo: "a/b"}}'))
    assert [finding.detail.partition(":")[0] for finding in errors] == [
        'the test "x" expects policy.model, and the policy says policy.benchmark',
    ]


def test_every_failing_test_of_every_file_is_found(tmp_path: Path) -> None:
    bad = TESTS + derived("a", "policy.task", "{}") + derived("b", "policy.task", "{}")
    other = POLICY.replace("integration: inspect-ai", "integration: other").replace('"7"', '"8"')
    write(tmp_path, inspect_ai=POLICY + bad, other=other + bad.replace('"7"', '"8"'))
    policies, findings = check_policies(tmp_path, ISSUER_URL, NOW)
    assert policies is None
    assert [finding.code for finding in findings if finding.severity == "error"] == [Code.POLICY_TEST_FAILED] * 4


# -- what is not a test -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "snippet", "reason"),
    [
        ("expect: granted", "expect: grant", "grant\n", "not a code: write `granted`, or one of"),
        ("expect: granted", "expect: integration.suspended", "integration.sus", "no test can expect this code"),
        ("expect: granted", "expect: integration.staged", "integration.sta", "no test can expect this code"),
        ("expect: granted", "expect: identity.expired", "identity.exp", "no test can expect this code"),
        ("provider: github-actions", "provider: github", "github\n", "not a provider of providers.yaml"),
        ("    provider: github-actions\n", "", "name: main", "give `provider` and `identity`, or `claims_from`"),
        ("    run:", "    date: 2026-02-30\n    run:", "2026-02-30", "must be a date"),
        ("    run:", '    date: "2026-2-3"\n    run:', '"2026-2-3"', "must be a date"),
        ("    run:", "    override: {run: {x: 1}}\n    run:", "{run: {x", "`override` changes the test"),
        ("    run:\n", "    run:\n      benchmark: 1\n", "1\n      benchmark_repo", "not known here (did you mean"),
        ('"openai/gsm8k"\n', '"gsm8k"\n', '"gsm8k"', "must be `owner/name`"),
        ("    run:\n", "    run:\n      framework: {name: x}\n", "{name: x}", "missing required field `version`"),
        ("    run:\n", "    run:\n      benchmark_revision: main\n", "main\n      benchmark_repo", "must be a full commit"),
    ],
)  # fmt: skip
def test_what_is_no_test_is_refused_at_its_place(tmp_path: Path, old: str, new: str, snippet: str, reason: str) -> None:
    head, tests = POLICY, changed(TESTS, old, new)
    _, (finding, *_) = outcomes(tmp_path, tests, head)
    before = head + tests[: tests.index(snippet)]
    assert tests.count(snippet) == 1
    assert (finding.place.line, finding.place.column) == (before.count("\n") + 1, len(before) - before.rfind("\n"))
    codes = {
        "not known here (did you mean": Code.FILE_UNKNOWN_MEMBER,
        "missing required field `version`": Code.FILE_SCHEMA,
    }
    assert finding.code is codes.get(reason, Code.FILE_RULE)
    assert reason in finding.detail


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("{name: main, claims_from: main, expect: granted}", "another test of this file has this name"),
        ("{name: x, claims_from: y, expect: granted}", "not the name of an earlier test"),
        ("{name: x, claims_from: x, expect: granted}", "not the name of an earlier test"),
        ("{name: x, claims_from: main, provider: acme, expect: granted}", "change them under `override`"),
        ("{name: x, claims_from: main, run: {task_id: x}, expect: granted}", "change them under `override`"),
        ("{name: x, claims_from: main, identity: {}, expect: granted}", "change them under `override`"),
        ("{name: x, claims_from: main, override: {run: {task_id: 7}}, expect: granted}", "expected text"),
    ],
)
def test_a_derived_test_that_is_none_is_refused(tmp_path: Path, test: str, reason: str) -> None:
    _, errors = outcomes(tmp_path, f"{TESTS}  - {test}\n")
    assert [finding.pointer.startswith("/tests/1") for finding in errors] == [True]
    assert reason in errors[0].detail


def test_a_test_with_an_error_is_told_once_and_not_by_those_that_start_from_it(tmp_path: Path) -> None:
    tests = changed(TESTS, "    run:\n", "    run:\n      task_id: 7\n")
    tests += derived("a", "granted", "{}") + "  - {name: b, claims_from: a, expect: granted}\n"
    done, errors = outcomes(tmp_path, tests)
    assert done == []
    assert [(finding.pointer, finding.detail) for finding in errors] == [
        ("/tests/0/run/task_id", "expected text, got a whole number: put it in double quotes"),
    ]


def test_a_test_may_start_from_one_that_itself_starts_from_another(tmp_path: Path) -> None:
    tests = TESTS + derived("a", "policy.benchmark", '{run: {benchmark_repo: "a/b"}}')
    tests += '  - {name: b, claims_from: a, expect: granted, override: {run: {benchmark_repo: "cais/x"}}}\n'
    done, errors = outcomes(tmp_path, tests)
    assert ([outcome.passed for outcome in done], errors) == ([True] * 3, [])


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_an_override_is_a_json_merge_patch(target: object, patch: object, result: object) -> None:
    assert merge(target, patch) == result


# -- warnings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tests", "warned"),
    [
        ("", ["this policy has no tests"]),
        (TESTS, ["none of the tests expects a refusal"]),
        (TESTS + derived("x", "policy.benchmark", '{run: {benchmark_repo: "a/b"}}'), []),
    ],
)
def test_a_policy_that_tests_no_refusal_is_warned_of(tmp_path: Path, tests: str, warned: list[str]) -> None:
    policies, findings = check_policies(write(tmp_path, inspect_ai=POLICY + tests), ISSUER_URL, NOW)
    assert policies is not None
    assert [(f.severity, f.detail) for f in findings if f.code is Code.LINT_UNTESTED] == [
        ("warning", detail) for detail in warned
    ]


def test_what_a_test_may_expect_is_granted_or_what_a_policy_decides() -> None:
    assert EXPECTABLE[0] == "granted"
    assert set(EXPECTABLE[1:]) == {
        "integration.unknown", "integration.ambiguous", "identity.claim_missing", "identity.claim_mismatch",
        "identity.event_forbidden", "identity.registration_expired", "policy.framework", "policy.version",
        "policy.benchmark", "policy.model", "policy.task", "policy.metric", "policy.command",
        "abuse.quarantined",
    }  # fmt: skip
