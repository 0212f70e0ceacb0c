"""The rules of `abuse` in a policy's file: checked, tested by counts that are stated, and warned of where they rest."""

from pathlib import Path

from issuer.codes import Code
from issuer.formats.strict_json import convert
from issuer.policy.authoring.explain import Explanation, explain, present_claims
from issuer.policy.authoring.load import check_policies
from issuer.policy.model import Counts
from tests.support.policies import (
    GITHUB,
    ISSUER_URL,
    NOW,
    POLICY,
    TESTS,
    changed,
    load,
    outcomes,
    runs_of,
    submission,
    write,
)


def found(folder: Path, abuse: str, text: str = POLICY) -> list[tuple[Code, str, str]]:
    """Return the findings of a file with this block: code, place in the file's last lines, and detail."""
    write(folder, inspect_ai=text + abuse)
    before = text.count("\n")
    _, findings = check_policies(folder, ISSUER_URL, NOW)
    return [
        (finding.code, f"{finding.place.line - before}:{finding.place.column}", finding.detail)
        for finding in findings
        if finding.severity == "error" or finding.code is Code.LINT_NO_EFFECT
    ]


def test_an_invalid_rule_is_an_error_at_its_place(tmp_path: Path) -> None:
    for block, code, place, said in [
        ("abuse: {attempts: {distinct: 64}}", Code.FILE_SCHEMA, "1:30", "63"),
        ("abuse: {attempts: {distinct: 0}}", Code.FILE_SCHEMA, "1:30", "1"),
        ("abuse:\n  attempts:\n    per_days: 91", Code.FILE_SCHEMA, "3:15", "90"),
        ("abuse: {twins: {then: warn}}", Code.FILE_SCHEMA, "1:23", "observe"),
        ("abuse: {spread: {then: refuse}}", Code.FILE_SCHEMA, "1:24", "quarantine"),
        ("abuse: {spread: {owner_a_day: 3}}", Code.FILE_UNKNOWN_MEMBER, "1:31", "did you mean `owners_a_day`?"),
        ("abuse: {atempts: {}}", Code.FILE_UNKNOWN_MEMBER, "1:18", "did you mean `attempts`?"),
        ("abuse: {throttle: {for_s: 59}}", Code.FILE_SCHEMA, "1:27", "60"),
        ('abuse: {attempts: {ignore: ["speed", "a metric"]}}', Code.FILE_RULE, "1:38", "printable ASCII"),
    ]:
        ((found_code, found_place, detail),) = found(tmp_path, f"{block}\n")
        assert (found_code, found_place, said in detail) == (code, place, True), detail


SLOW = changed(POLICY, "count: 600, per_s: 3600, burst: 200", "count: 10, per_s: 3600, burst: 5")
ONE_OWNER = changed(POLICY, 'models: ["*/*"]', 'models: ["acme/*", "Acme/x", "other/model"]')
SPEED = changed(POLICY, 'metrics: ["*"]', 'metrics: ["tokens_per_second", "first_token_ms"]')


def test_a_rule_without_an_effect_is_warned_of_where_it_is_written(tmp_path: Path) -> None:
    for block, text, place, said in [
        ("abuse: {spread: {tokens_a_day: 245}}", SLOW, "1:32", "at most 245 tokens in a day"),
        ("abuse: {spread: {owners_a_day: 2}}", ONE_OWNER, "1:32", "only 2 model owners"),
        ("abuse: {spread: {owners_a_run: 8, owners_a_day: 7}}", POLICY, "1:32", "`owners_a_day` is 7, and is always crossed first"),
        ("abuse: {spread: {tokens_a_day: 244}}", SLOW, "", ""),
        ("abuse: {spread: {owners_a_day: 10, owners_a_run: 10, tokens_a_run: 9}}", POLICY, "1:50", "`tokens_a_run` is 9"),
        ("abuse: {artifact: {distinct: 5}, attempts: {distinct: 5}}", POLICY, "1:30", "`attempts.distinct` is 5"),
        ("abuse: {artifact: {distinct: 5, then: throttle}, attempts: {distinct: 5}}", POLICY, "", ""),
        ("abuse: {throttle: {count: 5}}", POLICY, "1:19", "no rule says `then: throttle`"),
        ("abuse: {throttle: {count: 700, burst: 200}, spread: {then: throttle}}", POLICY, "1:19", "so it has no effect"),
        ("abuse: {attempts: {then: throttle}}", changed(SLOW, "burst: 5", "burst: 1"), "1:26", "is no slower than `limits.identity`"),
        ("abuse: {attempts: {then: throttle}, throttle: {count: 10, per_s: 3600, burst: 4}}", SLOW, "", ""),
        ("abuse: {quarantine_s: 60}", POLICY, "1:23", "no rule says `then: quarantine`"),
        ("abuse: {quarantine_s: 60, artifact: {then: quarantine}}", POLICY, "", ""),
        ('abuse: {attempts: {ignore: ["*"]}}', POLICY, "1:28", "matches every granted metric"),
        ('abuse: {attempts: {ignore: ["acc*"]}}', POLICY, "", ""),
        ("abuse: {}", SPEED, "-3:12", "matches every granted metric"),
        ("abuse: {}", changed(SPEED, "metrics:", "registered_only: true\n  metrics:"), "", ""),
        ("abuse: {}", changed(SLOW, "burst: 5", "burst: 1"), "", ""),  # a default that is never met does no harm
    ]:  # fmt: skip
        findings = found(tmp_path, f"{block}\n", text)
        assert [each[:2] for each in findings] == ([(Code.LINT_NO_EFFECT, place)] if place else []), findings
        assert not place or said in findings[0][2]


RULES = """\
abuse:
  attempts: {distinct: 3}
  artifact: {distinct: 1, then: quarantine}
  twins: {values: 3}
  spread: {owners_a_day: 9, owners_a_run: 8, tokens_a_day: 1000, tokens_a_run: 900, then: throttle}
"""


def case(counts: str, signals: str, expect: str = "granted", name: str = "counted") -> str:
    signals = f", signals: {signals}" if signals else ""
    return f"  - {{name: {name}, claims_from: main, counts: {counts}{signals}, expect: {expect}}}\n"


def judged(folder: Path, *cases: str) -> list[tuple[bool, str]]:
    done, findings = outcomes(folder, TESTS + "".join(cases), POLICY + RULES)
    assert (done[0].passed, len(findings)) == (True, sum(not outcome.passed for outcome in done)), findings
    return [(outcome.passed, outcome.difference or outcome.detail) for outcome in done[1:]]


def test_a_test_states_counts_and_exactly_what_follows(tmp_path: Path) -> None:
    cases = [
        ("{attempts: 3}", "", "granted"),
        ("{attempts: 3}", "{}", "granted"),
        ("{attempts: 4}", "{attempts: warn}", "granted"),
        ("{attempts: 4, is_new: false}", "", "granted"),
        ("{owners_a_day: 10, twins: true}", "{spread: throttle, twins: observe}", "granted"),
        ("{tokens_a_run: 901, owners_a_day: 10}", "{spread: throttle}", "granted"),
        ("{artifact: 2}", "{artifact: quarantine}", "abuse.quarantined"),
        ("{attempts: 4, artifact: 2}", "{attempts: warn, artifact: quarantine}", "abuse.quarantined"),
    ]
    assert [
        (counts, signals, expect)
        for counts, signals, expect in cases
        if not judged(tmp_path, case(counts, signals, expect))[0][0]
    ] == []


def test_another_signal_or_quarantine_fails_the_test_at_its_place(tmp_path: Path) -> None:
    cases = [
        ("{attempts: 3}", "{attempts: warn}", "granted",
         "attempts: the test expects warn, but its counts cause no signal (abuse.attempts.distinct is 3, counted 3)"),
        ("{attempts: 4}", "", "granted",
         "attempts: the test expects no signal, but its counts cause warn (abuse.attempts.distinct is 3, counted 4)"),
        ("{owners_a_day: 10}", "{spread: warn}", "granted",
         "spread: the test expects warn, but its counts cause throttle (abuse.spread.owners_a_day is 9, counted 10)"),
        ("{attempts: 4, twins: true}", "{attempts: warn}", "granted",
         "twins: the test expects no signal, but its counts cause observe (abuse.twins.values is 3, counted 3)"),
        ("{artifact: 2}", "", "abuse.quarantined",
         "artifact: the test expects no signal, but its counts cause quarantine (abuse.artifact.distinct is 1, counted 2)"),
    ]  # fmt: skip
    assert [
        (counts, signals, expect, said)
        for counts, signals, expect, said in cases
        if judged(tmp_path, case(counts, signals, expect)) != [(False, said)]
    ] == []
    wrong = case("{artifact: 2}", "{artifact: quarantine}") + case("{attempts: 1}", "", "abuse.quarantined", "other")
    done, findings = outcomes(tmp_path, TESTS + wrong, POLICY + RULES)
    assert [(one.passed, one.actual) for one in done[1:]] == [(False, "abuse.quarantined"), (False, "granted")]
    assert findings[0].detail == (
        'the test "counted" expects granted, and the policy says abuse.quarantined: counted 2, the limit is 1; '
        "rule: abuse.artifact.distinct"
    )
    text = (
        POLICY + RULES + TESTS + "  - name: other\n    claims_from: main\n    counts: {attempts: 4}\n    signals: {}\n"
    )
    _, (finding,) = outcomes(tmp_path, f"{text}    expect: granted\n", "")
    line = text.split("\n").index("    signals: {}") + 1
    assert (finding.code, finding.place.line, finding.place.column) == (Code.POLICY_TEST_FAILED, line, 14)
    assert finding.detail.startswith('the test "other" expects other signals: attempts: the test expects no signal')


def test_what_a_policy_refuses_is_not_counted_and_counts_are_not_inherited(tmp_path: Path) -> None:
    refused = case("{attempts: 9}", "{attempts: warn}").replace("counts:", "override: {run: {task_id: x/y}}, counts:")
    done, _ = outcomes(tmp_path, TESTS + refused, POLICY + RULES)
    assert (done[1].actual, done[1].signals, done[1].difference) == ("policy.task", None, "")
    derived = "  - {name: later, claims_from: counted, expect: granted}\n"
    assert judged(tmp_path, case("{attempts: 4}", "{attempts: warn}"), derived) == [(True, ""), (True, "")]


def test_an_impossible_test_is_malformed(tmp_path: Path) -> None:
    for test, said in [
        ("{name: x, claims_from: main, signals: {attempts: warn}, expect: granted}", "signals follow from `counts`"),
        ("{name: x, claims_from: main, expect: abuse.quarantined}", "a quarantine follows from `counts`"),
        ("{name: x, claims_from: main, counts: {}, expect: policy.task}", "only granted results are counted"),
        ("{name: x, claims_from: main, counts: {attempt: 4}, expect: granted}", "did you mean `attempts`?"),
        ("{name: x, claims_from: main, counts: {attempts: 65}, expect: granted}", "64"),
        ("{name: x, claims_from: main, counts: {}, signals: {probing: warn}, expect: granted}", "not known"),
    ]:
        done, (finding,) = outcomes(tmp_path, f"{TESTS}  - {test}\n", POLICY + RULES)
        assert (len(done) <= 1, said in finding.detail) == (True, True), finding


def test_every_rule_is_explained_and_a_caller_sees_its_warnings_and_a_quarantine(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY + RULES)

    def explained(task: str = "gsm8k", **counts: int) -> Explanation:
        presented, runs = present_claims(policies, GITHUB), runs_of(submission(task=task))
        return explain(policies, presented, runs, NOW).with_counts(convert(dict(counts), Counts))

    found = explained(attempts=4, owners_a_day=9)
    assert [(each.rule, each.count, each.limit, each.then if each.crossed else "") for each in found.counted] == [
        ("abuse.attempts.distinct", 4, 3, "warn"), ("abuse.artifact.distinct", 0, 1, ""),
        ("abuse.twins.values", 0, 3, ""), ("abuse.spread.owners_a_day", 9, 9, ""),
        ("abuse.spread.owners_a_run", 0, 8, ""), ("abuse.spread.tokens_a_day", 0, 1000, ""),
        ("abuse.spread.tokens_a_run", 0, 900, ""),
    ]  # fmt: skip
    assert found.code is None
    counted = explained(attempts=4, twins=True).redact().counted
    assert [each.rule for each in counted] == ["abuse.attempts.distinct"], "no observation"
    assert explained(artifact=2).code is Code.ABUSE_QUARANTINED
    refused = explained("x/y", artifact=2)
    assert (refused.code, refused.counted) == (Code.POLICY_TASK, ()), "a refusal is not counted"
