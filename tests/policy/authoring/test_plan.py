"""What recorded decisions would change: judged again by the real evaluator, on events that the real audit wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.formats.strict_json import JSON
from issuer.policy.authoring.load import load_policies
from issuer.policy.authoring.plan import Plan, judge_again, make_plan, read_decision
from issuer.policy.authoring.signals import EXAMPLES
from issuer.policy.match import PolicySet
from tests.support.audited import recorded
from tests.support.policies import GITHUB, ISSUER_URL, NOW, POLICY, PROVIDERS, changed, submission, write


def without(line: bytes, *path: str | int) -> bytes:
    """Take a member out of a recorded event."""
    event: Any = msgspec.json.decode(line)
    *way, last = path
    inner = event
    for step in way:
        inner = inner[step]
    del inner[last]
    return msgspec.json.encode(event)


class Directory:
    """Loads variants of one directory."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._number = folder, 0

    def __call__(self, *changes: tuple[str, str], providers: str = PROVIDERS, url: str = ISSUER_URL) -> PolicySet:
        text = POLICY
        for old, new in changes:
            text = changed(text, old, new)
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        return load_policies(write(folder, providers, inspect_ai=text), url)


@pytest.fixture
def policies(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


def counts(plan: Plan) -> tuple[int, int, int, int]:
    return plan.unchanged, plan.refused, plan.granted, plan.untold


def only(plan: Plan) -> tuple[str, str, str]:
    """Return kind, reason and rule of a plan with one group of one decision."""
    assert (len(plan.groups), plan.decisions, plan.otherwise, plan.torn) == (1, 1, 0, 0), plan
    group = plan.groups[0]
    assert (group.count, group.examples[0].request_id, group.examples[0].time) == (1, "r1", NOW)
    return group.kind, group.why, group.examples[0].rule


REF = 'ref: "refs/heads/main"'
BENCHMARKS = 'benchmarks: ["openai/gsm8k", "cais/*"]'
METRICS = 'metrics: ["*"]'


def test_the_same_policies_change_nothing_whatever_the_audit_holds(policies: Directory) -> None:
    old = policies()
    lines = [recorded(old), recorded(old, ref="x"), recorded(old, submission(benchmark="a/b")),
             without(recorded(old), "caller", "claims", "ref"), recorded(old, repository_id="8")]  # fmt: skip
    plan = make_plan(old, policies(), lines)
    assert (plan.decisions, counts(plan), plan.groups) == (5, (5, 0, 0, 0), [])


def test_another_rate_changes_no_decision(policies: Directory) -> None:
    old = policies()
    assert counts(make_plan(old, policies(("count: 600", "count: 601")), [recorded(old)])) == (1, 0, 0, 0)


REFUSING = [
    ((REF, 'ref: "refs/heads/release"'), "identity.claim_mismatch", "identities.main.require.ref"),
    ((BENCHMARKS, 'benchmarks: ["cais/*"]'), "policy.benchmark", "grants.benchmarks"),
    ((METRICS, 'metrics: ["f1"]'), "policy.metric", "grants.metrics"),
    ((">=0.3.100,<0.4", ">=0.4"), "policy.version", "grants.frameworks[].versions"),
    (("mode: active", "mode: staged"), "integration.staged", "mode"),
    (("mode: active", "mode: suspended"), "integration.suspended", "mode"),
    ((REF, f"{REF}\n    expires: 2026-11-21"), "identity.registration_expired", "identities.main.expires"),
    (('repository_id: "7"', 'repository_id: "8"'), "integration.unknown", "identities"),
    (('audiences: ["https://hub.example"]', 'audiences: ["https://other.example"]'), "policy.audience", "token.audiences"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "code", "rule"), REFUSING)
def test_what_would_be_refused_is_told_with_code_and_rule_and_back_with_what_goes(
    policies: Directory, change: tuple[str, str], code: str, rule: str
) -> None:
    if "expires" in change[1]:
        change = ('ref: "refs/heads/main"\n      runner_environment: {any_of: ["github-hosted"]}',
                  'ref: "refs/heads/main"\n      runner_environment: {any_of: ["github-hosted"]}\n    expires: 2026-11-21')  # fmt: skip
    one, other = policies(), policies(change)
    audience = ("", "https://hub.example") if code == "policy.audience" else ("", "")
    plan = make_plan(one, other, [recorded(one, named=audience)])
    assert counts(plan) == (0, 1, 0, 0)
    assert only(plan) == ("refused", code, rule)
    if code == "integration.unknown":
        return
    back = only(make_plan(other, one, [recorded(other, named=audience)]))
    if code.startswith("identity.") or code == "integration.suspended":
        assert back == ("untold", "the run", ""), "its body was not read"
    else:
        assert back == ("granted", code, rule)


def test_who_was_unknown_has_no_recorded_run_so_that_nobody_can_tell(policies: Directory) -> None:
    old = policies()
    plan = make_plan(old, policies(('repository_id: "7"', 'repository_id: "8"')), [recorded(old, repository_id="8")])
    assert only(plan)[:2] == ("untold", "the run")


def test_a_name_that_is_not_held_is_not_missed_because_ids_decide(policies: Directory) -> None:
    old = policies()
    line = recorded(old, repository_id="8", repository="x" * 600)
    assert counts(make_plan(old, policies(("count: 600", "count: 601")), [line])) == (1, 0, 0, 0)


def test_an_issuer_that_goes_refuses(policies: Directory) -> None:
    old = policies()
    ghes = PROVIDERS.replace(
        "{profile: github-actions}", '{profile: github-actions, issuer: "https://github.example.com/_services/token"}'
    )
    assert only(make_plan(old, policies(providers=ghes), [recorded(old)])) == (
        "refused",
        "identity.issuer_unknown",
        "providers",
    )


ROBOTS = "version: 1\nproviders:\n  robots: {profile: pat}\n"
PAT: dict[str, JSON] = {"iss": ISSUER_URL, "account": "nightly", "token_id": "4Fq0ZtB2x9Lm", "scope": "tokens:issue"}
TO_ROBOTS = [
    ("provider: github-actions", "provider: robots"),
    ('''{repository_id: "7", repository_owner_id: "6"}
    names: {repository: "org/evals"}
    require:
      ref: "refs/heads/main"
      runner_environment: {any_of: ["github-hosted"]}''', "{account: nightly}"),
]  # fmt: skip


def test_a_reusable_identity_s_decisions_are_judged_again(policies: Directory) -> None:
    old = policies(*TO_ROBOTS, providers=ROBOTS)
    lines = [recorded(old, claims=PAT), recorded(old, claims=PAT, scope=None), recorded(old, claims=PAT, account="x")]
    assert [msgspec.json.decode(line)["verdict"] for line in lines] == ["issued", "refused", "refused"]
    assert counts(make_plan(old, old, lines)) == (3, 0, 0, 0)
    another = policies(*TO_ROBOTS, ("ttl_s: 3600", "ttl_s: 60"), providers=ROBOTS)
    assert counts(make_plan(old, another, lines)) == (3, 0, 0, 0), "the audit holds the scope, too"
    narrower = policies(*TO_ROBOTS, (BENCHMARKS, 'benchmarks: ["cais/*"]'), providers=ROBOTS)
    assert counts(make_plan(old, narrower, lines)) == (2, 1, 0, 0)


def test_a_decision_on_our_own_token_is_judged_by_who_does_not_know_our_url(policies: Directory) -> None:
    line = recorded(policies(*TO_ROBOTS, providers=ROBOTS), claims=PAT)
    nowhere = "https://issuer.invalid"
    blind = policies(*TO_ROBOTS, providers=ROBOTS, url=nowhere)
    assert counts(make_plan(blind, blind, [line])) == (1, 0, 0, 0)
    renamed = [*TO_ROBOTS, ("provider: robots", "provider: others")]
    other = policies(*renamed, providers=ROBOTS.replace("robots:", "others:"), url=nowhere)
    assert only(make_plan(blind, other, [line])) == ("refused", "identity.issuer_unknown", "providers")


JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln"


@pytest.mark.parametrize(
    "sent", [JWT, f"Bearer {JWT}", "evi_pat_4Fq0ZtB2x9Lm_" + "a" * 49, "hf_" + "a" * 34, "x" * 513]
)
def test_a_credential_in_the_place_of_a_name_is_not_recorded(policies: Directory, sent: str) -> None:
    old = policies()
    for named in ((sent, ""), ("", sent)):
        line = recorded(old, named=named)
        assert sent.encode() not in line
        assert list(msgspec.json.decode(line)["named"].values()) == ["(withheld)"]
        assert counts(make_plan(old, policies(("ttl_s: 3600", "ttl_s: 60")), [line])) == (1, 0, 0, 0), (
            "refused, then as now"
        )
    honest = ("inspect-ai", "https://hub.example/" + "a" * 400)
    assert list(msgspec.json.decode(recorded(old, named=honest))["named"].values()) == list(honest)


UNTOLD = [
    ((REF, f'{REF}\n      environment: "prod"'), "the claim environment"),
    ((METRICS, 'metrics: [{id: "accuracy", max: 100}]'), "the value of accuracy"),
    (("grants:\n", "grants:\n  command: required\n"), "the command"),
]


@pytest.mark.parametrize(("change", "missing"), UNTOLD)
def test_a_rule_whose_input_the_audit_does_not_hold_cannot_be_told(
    policies: Directory, change: tuple[str, str], missing: str
) -> None:
    old = policies()
    assert only(make_plan(old, policies(change), [recorded(old)])) == ("untold", missing, "")


@pytest.mark.parametrize(("change", "missing"), UNTOLD)
def test_what_another_rule_refuses_is_refused_whatever_the_untold_one_says(
    policies: Directory, change: tuple[str, str], missing: str
) -> None:
    old = policies()
    plan = make_plan(old, policies(change, (BENCHMARKS, 'benchmarks: ["cais/*"]')), [recorded(old)])
    assert only(plan)[:2] == ("refused", "policy.benchmark")


def test_an_input_that_the_audit_holds_is_judged(policies: Directory) -> None:
    """The old policy read it, so it was recorded: the value of a metric, whether there was a command, an absent claim."""
    old = policies((METRICS, 'metrics: [{id: "accuracy", max: 100}]'), ("grants:\n", "grants:\n  command: required\n"),
                   (REF, 'ref: "refs/heads/main"\n      environment: {absent: true}'))  # fmt: skip
    line = recorded(old, submission(command="x"))
    for change, code in [
        ((METRICS, 'metrics: [{id: "accuracy", max: 20}]'), "policy.metric"),
        ((REF, 'ref: "refs/heads/main"\n      environment: "prod"'), "identity.claim_missing"),
    ]:
        assert only(make_plan(old, policies(change), [line]))[:2] == ("refused", code)
    assert counts(make_plan(old, policies((METRICS, 'metrics: [{id: "accuracy", max: 21}]')), [line])) == (1, 0, 0, 0)
    required = policies(("grants:\n", "grants:\n  command: required\n"))
    assert counts(make_plan(old, required, [line])) == (1, 0, 0, 0)
    assert only(make_plan(required, policies((METRICS, 'metrics: ["accuracy"]')), [recorded(required)]))[0] == "granted"


def test_a_structured_or_long_claim_is_not_held(policies: Directory) -> None:
    old = policies()
    new = policies((REF, f'{REF}\n      workflow: {{glob: "x*"}}'))
    assert only(make_plan(old, new, [recorded(old, workflow="x" * 600)])) == ("untold", "the claim workflow", "")


def test_borrowed_code_that_the_audit_does_not_hold_cannot_be_told(policies: Directory) -> None:
    """Whether there was any is in a claim that was too long to be recorded."""
    old, new = policies(), policies(("ttl_s: 3600", "ttl_s: 60"))
    line = recorded(old, job_workflow_ref="org/evals/" + "x" * 600 + "@refs/heads/main")
    assert only(make_plan(old, new, [line])) == ("untold", "the claim job_workflow_ref", "")


def test_a_derived_claim_is_known_where_its_source_is(policies: Directory) -> None:
    """`job_workflow_ref` is recorded as provenance; nobody asked for what is derived of it."""
    old = policies()
    ref = "org/evals/.github/workflows/x.yml@refs/heads/main"
    line = recorded(old, job_workflow_ref=ref)
    same, other = (
        policies((REF, f'{REF}\n      job_workflow_path: "{path}"'))
        for path in ("org/evals/.github/workflows/x.yml", "org/evals/other.yml")
    )
    assert counts(make_plan(old, same, [line])) == (1, 0, 0, 0)
    assert counts(make_plan(old, other, [line])) == (0, 1, 0, 0)
    line = recorded(old)  # it says that there was no `job_workflow_ref`
    assert only(make_plan(old, other, [line]))[:2] == ("refused", "identity.claim_missing")


IDENTITIES = POLICY[POLICY.index("identities:") : POLICY.index("grants:")]
TWINS = """identities:
  - id: main
    provider: github-actions
    pins: {repository_id: "7", repository_owner_id: "6"}
    require: {environment: {absent: true}, ref: "refs/heads/main"}
  - id: second
    provider: github-actions
    pins: {repository_id: "7", repository_owner_id: "6"}
    require: {head_ref: {absent: true}, environment: "prod", ref: "refs/heads/dev"}
"""


def test_two_identities_with_the_same_pins_are_told_apart_by_recorded_claims_or_not_at_all(policies: Directory) -> None:
    old, new = policies(), policies((IDENTITIES, TWINS.replace("environment: {absent: true}, ", "")))
    assert counts(make_plan(old, new, [recorded(old)])) == (1, 0, 0, 0)
    line = without(recorded(old), "caller", "claims", "ref")
    assert only(make_plan(old, new, [line]))[:2] == (
        "untold",
        "the claim ref, the claim head_ref, the claim environment",
    )
    plan = make_plan(old, policies((IDENTITIES, TWINS)), [recorded(old)])
    assert only(plan) == ("untold", "the claim environment", "")


OTHER = """\
  - id: dev
    provider: github-actions
    pins: {repository_id: "7", repository_owner_id: "6"}
    require: {ref: "refs/heads/dev", environment: "prod"}
grants:
"""


def test_who_may_be_another_identity_is_not_refused_as_the_nearest(policies: Directory) -> None:
    """The second of the new identities would do, were its environment the one that nobody recorded."""
    old, new = policies((REF, 'ref: "refs/heads/dev"')), policies(("grants:\n", OTHER))
    plan = make_plan(old, new, [recorded(old, ref="refs/heads/dev", environment="prod")])
    assert counts(plan) == (0, 0, 0, 1)
    assert plan.groups[0].why == "the claim environment"


def test_rules_that_stay_the_same_decide_the_same_whoever_it_was(policies: Directory) -> None:
    """It was judged as the nearest, whose rules do not read the environment; neither has changed since."""
    old, new = policies(("grants:\n", OTHER)), policies(("grants:\n", OTHER))
    line = recorded(old, ref="refs/heads/dev", environment="staging")
    assert counts(make_plan(old, new, [line])) == (1, 0, 0, 0)


def test_decisions_are_judged_as_of_their_own_time(policies: Directory) -> None:
    old = policies()
    end = ('["github-hosted"]}', '["github-hosted"]}\n    expires: 2026-11-22')
    day = 86_400
    plan = make_plan(old, policies(end), [recorded(old, now=NOW), recorded(old, now=NOW + day)])
    assert counts(plan) == (1, 1, 0, 0)


def test_a_refusal_that_no_policy_made_is_counted_apart(policies: Directory) -> None:
    old = policies()
    event = msgspec.json.decode(recorded(old))
    lines = [
        msgspec.json.encode({**event, "verdict": "refused", "code": code})
        for code in ("rate.identity", "identity.replayed", "claims.invalid", "abuse.quarantined", "not.a_code")
    ]
    plan = make_plan(old, policies((REF, 'ref: "x"')), [*lines, recorded(old)])
    assert (plan.decisions, plan.not_decided, counts(plan)) == (6, 5, (0, 1, 0, 0))


def test_decisions_that_the_old_policies_do_not_explain_are_counted(policies: Directory) -> None:
    old, other = policies(), policies((METRICS, 'metrics: ["f1"]'))
    plan = make_plan(old, old, [recorded(other), recorded(old)])
    assert (plan.otherwise, counts(plan)) == (1, (2, 0, 0, 0))


TORN = [b'{"event": "decision", "time": 1, "req', b"\xff\xfe\n", b"[]", b"null", b'{"event": 1}', b'{"time": 1}', b"[" * 100_000,
        b'{"event": "decision", "time": -1}', b'{"event": "decision"}',
        b'{"event": "\xff"}', b'{"event": "decision", "x": "\xff"}', b'{"x": ' + b"[" * 100_000]  # fmt: skip


def test_a_run_that_no_service_would_have_judged_is_no_record(policies: Directory) -> None:
    old = policies()
    event = msgspec.json.decode(recorded(old))
    for member, value in (("version", "9" * 5000), ("name", "x" * 300)):
        wrong = {**event["results"][0], "framework": {**event["results"][0]["framework"], member: value}}
        line = msgspec.json.encode({**event, "results": [wrong]})
        assert make_plan(old, old, [line]).torn == 1


@pytest.mark.parametrize("line", TORN)
def test_a_torn_line_is_counted_and_skipped(policies: Directory, line: bytes) -> None:
    old = policies()
    plan = make_plan(old, old, [recorded(old), line, b"\n", recorded(old)])
    assert (plan.decisions, plan.torn, plan.unchanged) == (2, 1, 2)
    with pytest.raises(ValueError):
        read_decision(line)


def test_other_events_are_no_decisions(policies: Directory) -> None:
    old = policies()
    plan = make_plan(old, old, [b'{"event": "policies_loaded", "time": 1}'])
    assert (plan.decisions, plan.torn) == (0, 0)


def test_lines_are_read_one_at_a_time_and_only_the_first_examples_are_kept(policies: Directory) -> None:
    old, new = policies(), policies((BENCHMARKS, 'benchmarks: ["cais/*"]'))
    taken = []

    def lines() -> Iterator[bytes]:
        for number in range(500):
            taken.append(number)
            yield recorded(old)

    plan = make_plan(old, new, lines())
    assert (len(taken), plan.refused, len(plan.groups)) == (500, 500, 1)
    assert (plan.groups[0].count, len(plan.groups[0].examples)) == (500, EXAMPLES)
    assert plan.groups[0].why == Code.POLICY_BENCHMARK


# -- property ---------------------------------------------------------------------------------------------------------

CHANGES = [
    (), ((REF, 'ref: "refs/heads/dev"'),), ((REF, 'ref: {glob: "refs/heads/m*"}\n      environment: {absent: true}'),),
    ((METRICS, 'metrics: [{id: "accuracy", min: 50}]'),), (("grants:\n", "grants:\n  command: required\n"),),
    ((BENCHMARKS, 'benchmarks: ["cais/*"]'), ("mode: active", "mode: staged")),
    ((REF, REF + '\n      event_name: "pull_request"'),), (('repository_id: "7"', 'repository_id: "8"'),),
    ((REF, REF + '\n      job_workflow_path: "org/evals/.github/workflows/x.yml"'),), ((IDENTITIES, TWINS),),
    (("grants:\n", OTHER),),
]  # fmt: skip
WORKFLOW = "org/evals/.github/workflows/x.yml@refs/heads/main"


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory) -> list[PolicySet]:
    directory = Directory(tmp_path_factory.mktemp("variants"))
    return [directory(*changes) for changes in CHANGES]


@settings(deadline=None)
@given(st.data())
def test_what_is_told_is_true_whatever_the_audit_leaves_out(variants: list[PolicySet], data: st.DataObject) -> None:
    """Decide a request under one policy, take things out of its record, and judge that under another: what is not
    "cannot tell" is what the other policy really says of the request."""
    old, new = data.draw(st.sampled_from(variants)), data.draw(st.sampled_from(variants))
    claims: dict[str, JSON] = {
        "ref": data.draw(st.sampled_from(["refs/heads/main", "refs/heads/dev", "x" * 600, None])),
        "event_name": data.draw(st.sampled_from(["push", "pull_request", None])),
        "environment": data.draw(st.sampled_from(["prod", None])),
        "repository_id": data.draw(st.sampled_from(["7", "8"])),
        "job_workflow_ref": data.draw(st.sampled_from([WORKFLOW, None])),
    }
    run = submission(
        benchmark=data.draw(st.sampled_from(["openai/gsm8k", "cais/hle"])),
        metrics={"accuracy": data.draw(st.sampled_from([20.9, 60.0]))},
        command=data.draw(st.sampled_from(["", "inspect eval"])),
    )
    event: Any = msgspec.json.decode(recorded(old, run, claims={**GITHUB, **claims}))
    for member in data.draw(st.sets(st.sampled_from(["ref", "event_name", "repository_id", "job_workflow_ref"]))):
        event["caller"]["claims"].pop(member, None)
        if data.draw(st.booleans()):
            event["caller"]["absent"] = [name for name in event["caller"]["absent"] if name != member]
    if "results" in event and data.draw(st.booleans()):
        event["results"][0].pop("has_command", None)
        event["results"][0]["metrics"][0].pop("value", None)
    decision = read_decision(msgspec.json.encode(event))
    assert decision is not None
    told = judge_again(new, decision)
    truth = msgspec.json.decode(recorded(new, run, claims={**GITHUB, **claims}))
    if told.kind != "untold":
        assert (told.kind == "refused") == (truth["verdict"] == "refused"), (told, truth)
