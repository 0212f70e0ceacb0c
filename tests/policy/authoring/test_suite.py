"""Tests in a policy's file: judged as requests are, run at every load, and no policy loads that fails its own."""

from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.errors import InputError
from issuer.policy.authoring.load import check_policies, try_policies
from issuer.policy.authoring.suite import merge
from tests.support.policies import ISSUER_URL, NOW, POLICY, TESTS, changed, load, outcomes, write

FRAMEWORK = '{run: {framework: {name: "inspect-ai", version: "0.3.100"}}}'


def derived(name: str, expect: str, override: str, more: str = "") -> str:
    return f"  - {{name: {name}, claims_from: main, expect: {expect}, override: {override}{more}}}\n"


def actual(folder: Path, override: str, text: str = POLICY, more: str = "") -> str:
    """What a test that differs from the good one by its override comes to."""
    done, _ = outcomes(folder, TESTS + derived("other", "granted", override, more), text)
    assert done[0].passed
    return done[1].actual


def test_a_test_is_decided_as_a_request_would_be(tmp_path: Path) -> None:
    for override, code in {
        '{identity: {repository_id: "8"}}': "integration.unknown",
        "{identity: {repository_id: 7}}": "integration.unknown",
        "{identity: {event_name: null}}": "identity.event_forbidden",
        '{identity: {ref: "refs/heads/main2"}}': "identity.claim_mismatch",
        "{identity: {ref: null}}": "identity.claim_missing",
        '{run: {framework: {name: "helm", version: "1"}}}': "policy.framework",
        '{run: {framework: {name: "inspect-ai", version: "0.4"}}}': "policy.version",
        '{run: {framework: {name: "inspect-ai", version: "0.3.285"}}}': "granted",
        '{run: {benchmark_repo: "openai/gsm8k2"}}': "policy.benchmark",
        "{run: {benchmark_repo: null}}": "granted",
        '{run: {model_repo: "any/model"}}': "granted",
        "{}": "granted",
    }.items():
        assert actual(tmp_path, override) == code, override


def test_the_members_of_a_run_that_a_test_gives_are_judged(tmp_path: Path) -> None:
    task, metric = 'tasks: ["*"]', 'metrics: ["*"]'
    value = "{{run: {{metrics: [{{metric_id: accuracy, value: {}}}]}}}}"
    for old, new, override, code in (
        (task, 'tasks: ["a*"]', "{run: {task_id: b}}", "policy.task"),
        (task, 'tasks: ["a*"]', "{}", "granted"),
        (task, 'tasks: ["a*"]', "{run: {task_id: a}}", "granted"),
        (task, 'tasks: ["*"]\n  deny: {models: ["o*/*"]}', '{run: {model_repo: "b/c"}}', "granted"),
        (task, 'tasks: ["*"]\n  command: required', FRAMEWORK, "policy.command"),
        (metric, 'metrics: [{id: "accuracy", max: 1}]', value.format("0.5"), "granted"),
        (metric, 'metrics: [{id: "accuracy", max: 1}]', value.format("1.5"), "policy.metric"),
    ):
        tests = changed(TESTS, '"org/model"', '"good/model"') + derived("other", "granted", override)
        assert outcomes(tmp_path, tests, changed(POLICY, old, new))[0][1].actual == code, override
    text = changed(POLICY, metric, f"{metric}\n  registered_only: true")
    assert actual(tmp_path, "{run: {task_id: x}}", text) == "granted", "its commit is not given"
    assert actual(tmp_path, f'{{run: {{benchmark_revision: "{"b" * 40}"}}}}', text) == "policy.benchmark"
    folder = tmp_path / "benchmarks" / "openai" / "gsm8k"
    folder.mkdir(parents=True)
    (folder / "eval.yaml").write_text('name: "x"\ntasks: [{id: "main"}]\n')
    assert actual(tmp_path, "{run: {task_id: x}}", text) == "policy.task"


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


def test_a_policy_is_tested_as_if_it_were_active_and_before_its_end(tmp_path: Path) -> None:
    for mode in ("active", "staged", "suspended"):
        assert actual(tmp_path, "{}", changed(POLICY, "mode: active", f"mode: {mode}")) == "granted"
    expiring, expired = changed(POLICY, "    require:", "    expires: 2026-01-01\n    require:"), "registration_expired"
    assert actual(tmp_path, "{}", expiring) == "granted"
    for date, code in (("2025-12-31", "granted"), ("2026-01-01", expired), ('"2027-01-01"', expired)):
        assert actual(tmp_path, "{}", expiring, f", date: {date}").removeprefix("identity.") == code


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


def test_every_failing_test_of_every_file_is_found(tmp_path: Path) -> None:
    bad = TESTS + derived("hole", "policy.model", '{run: {model_repo: "evil/model"}}')
    bad += derived("x", "policy.model", '{run: {benchmark_repo: "a/b"}}')
    other = POLICY.replace("integration: inspect-ai", "integration: other").replace('"7"', '"8"')
    write(tmp_path, inspect_ai=POLICY + bad, other=other + bad.replace('"7"', '"8"'))
    policies, findings = check_policies(tmp_path, ISSUER_URL, NOW)
    assert policies is None
    found = [finding for finding in findings if finding.severity == "error"]
    assert [finding.code for finding in found] == [Code.POLICY_TEST_FAILED] * 4
    assert [finding.pointer for finding in found] == ["/tests/1/expect", "/tests/2/expect"] * 2
    assert found[0].detail == 'the test "hole" expects policy.model, and the policy says granted'
    assert found[1].detail.startswith('the test "x" expects policy.model, and the policy says policy.benchmark:')
    theirs = derived("theirs", "integration.unknown", '{identity: {repository_id: "8"}}')  # unknown to this integration
    write(tmp_path, inspect_ai=POLICY + TESTS + theirs, other=other)
    done, findings = try_policies(tmp_path, ISSUER_URL, NOW)
    assert [outcome.actual for outcome in done] == ["granted", "integration.unknown"]
    assert {finding.severity for finding in findings} == {"warning"}


def test_an_invalid_test_is_refused_at_its_place(tmp_path: Path) -> None:
    for old, new, snippet, reason in [
        ("expect: granted", "expect: grant", "grant\n", "not a code: write `granted`, or one of"),
        ("expect: granted", "expect: integration.suspended", "integration.sus", "no test can expect this code"),
        ("expect: granted", "expect: integration.staged", "integration.sta", "no test can expect this code"),
        ("expect: granted", "expect: identity.expired", "identity.exp", "no test can expect this code"),
        ("provider: github-actions", "provider: github", "github\n", "not a provider of providers.yaml"),
        ("    provider: github-actions\n", "", "name: main", "give `provider` and `identity`, or `claims_from`"),
        ("    run:", '    date: "2026-02-30"\n    run:', '"2026-02-30"', "must be a date"),
        ("    run:", '    date: "2026-2-3"\n    run:', '"2026-2-3"', "must be a date"),
        ("    run:", "    override: {run: {x: 1}}\n    run:", "{run: {x", "`override` changes the test"),
        ("    run:\n", "    run:\n      benchmark: 1\n", "1\n      benchmark_repo", "not known here (did you mean"),
        ('"openai/gsm8k"\n', '"gsm8k"\n', '"gsm8k"', "must be `owner/name`"),
        ("    run:\n", "    run:\n      framework: {name: x}\n", "{name: x}", "missing required field `version`"),
        ("    run:\n", "    run:\n      benchmark_revision: main\n", "main\n      benchmark_repo", "must be a full commit"),
    ]:  # fmt: skip
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


def test_an_invalid_derived_test_is_refused(tmp_path: Path) -> None:
    for test, reason in [
        ("{name: main, claims_from: main, expect: granted}", "another test of this file has this name"),
        ("{name: x, claims_from: y, expect: granted}", "not the name of an earlier test"),
        ("{name: x, claims_from: x, expect: granted}", "not the name of an earlier test"),
        ("{name: x, claims_from: main, provider: acme, expect: granted}", "change them under `override`"),
        ("{name: x, claims_from: main, run: {task_id: x}, expect: granted}", "change them under `override`"),
        ("{name: x, claims_from: main, identity: {}, expect: granted}", "change them under `override`"),
        ("{name: x, claims_from: main, override: {run: {task_id: 7}}, expect: granted}", "expected text"),
    ]:
        _, (finding,) = outcomes(tmp_path, f"{TESTS}  - {test}\n")
        assert (finding.pointer.startswith("/tests/1"), reason in finding.detail) == (True, True), finding


def test_tests_may_be_derived_in_two_steps_and_an_error_is_found_once(tmp_path: Path) -> None:
    tests = TESTS + derived("a", "policy.benchmark", '{run: {benchmark_repo: "a/b"}}')
    tests += '  - {name: b, claims_from: a, expect: granted, override: {run: {benchmark_repo: "cais/x"}}}\n'
    done, errors = outcomes(tmp_path, tests)
    assert ([outcome.passed for outcome in done], errors) == ([True] * 3, [])
    done, errors = outcomes(tmp_path, changed(tests, "    run:\n", "    run:\n      task_id: 7\n"))
    assert [(finding.pointer, finding.detail) for finding in errors] == [
        ("/tests/0/run/task_id", "expected text, got a whole number: put it in double quotes")
    ], "an error is found once, and not in the tests that are derived"
    assert done == []


def test_an_override_is_a_json_merge_patch() -> None:
    cases: list[tuple[object, object, object]] = [  # RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ]
    assert [(target, patch, result) for target, patch, result in cases if merge(target, patch) != result] == []


def test_a_policy_that_tests_no_refusal_is_warned_of(tmp_path: Path) -> None:
    for tests, warned in [
        ("", ["this policy has no tests"]),
        (TESTS, ["none of the tests expects a refusal"]),
        (TESTS + derived("x", "policy.benchmark", '{run: {benchmark_repo: "a/b"}}'), []),
    ]:
        policies, findings = check_policies(write(tmp_path, inspect_ai=POLICY + tests), ISSUER_URL, NOW)
        assert policies is not None
        assert [(f.severity, f.detail) for f in findings if f.code is Code.LINT_UNTESTED] == [
            ("warning", detail) for detail in warned
        ]
