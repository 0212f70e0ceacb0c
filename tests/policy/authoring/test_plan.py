"""What recorded decisions would change: judged again by the real evaluator, on events that the real audit wrote."""

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


def test_the_same_policies_or_another_rate_change_nothing_whatever_the_audit_holds(policies: Directory) -> None:
    old = policies()
    lines = [recorded(old), recorded(old, ref="x"), recorded(old, submission(benchmark="a/b")),
             without(recorded(old), "caller", "claims", "ref"), recorded(old, repository_id="8", repository="x" * 600)]  # fmt: skip
    plan = make_plan(old, policies(), [*lines, b'{"event": "policies_loaded", "time": 1}'])
    assert (plan.decisions, plan.torn, counts(plan), plan.groups) == (5, 0, (5, 0, 0, 0), [])
    another_rate = policies(("count: 600", "count: 601"))
    assert counts(make_plan(old, another_rate, [lines[0], lines[4]])) == (2, 0, 0, 0), "only ids decide"


REFUSING = [
    ((REF, 'ref: "refs/heads/release"'), "identity.claim_mismatch", "identities.main.require.ref"),
    ((BENCHMARKS, 'benchmarks: ["cais/*"]'), "policy.benchmark", "grants.benchmarks"),
    ((METRICS, f'{METRICS}\n  definitions: {{"openai/gsm8k": "{"c" * 40}"}}'), "policy.definition", "grants.definitions"),
    ((METRICS, 'metrics: ["f1"]'), "policy.metric", "grants.metrics"),
    ((">=0.3.100,<0.4", ">=0.4"), "policy.version", "grants.frameworks[].versions"),
    (("mode: active", "mode: staged"), "integration.staged", "mode"),
    (("mode: active", "mode: suspended"), "integration.suspended", "mode"),
    (('names: {repository: "org/evals"}', "expires: 2026-11-21"), "identity.registration_expired", "identities.main.expires"),
    (('repository_id: "7"', 'repository_id: "8"'), "integration.unknown", "identities"),
    (('audiences: ["https://hub.example"]', 'audiences: ["https://other.example"]'), "policy.audience", "token.audiences"),
]  # fmt: skip


def test_what_would_be_refused_has_a_code_and_a_rule_and_the_reverse_is_granted(policies: Directory) -> None:
    one = policies()
    for change, code, rule in REFUSING:
        other = policies(change)
        audience = ("", "https://hub.example") if code == "policy.audience" else ("", "")
        plan = make_plan(one, other, [recorded(one, named=audience)])
        assert counts(plan) == (0, 1, 0, 0)
        assert only(plan) == ("refused", code, rule)
        if code != "integration.unknown":
            back = only(make_plan(other, one, [recorded(other, named=audience)]))
            unread = code.startswith("identity.") or code == "integration.suspended"
            assert back == (("untold", "the run", "") if unread else ("granted", code, rule)), code
    other = policies(('repository_id: "7"', 'repository_id: "8"'))
    assert only(make_plan(one, other, [recorded(one, repository_id="8")]))[:2] == ("untold", "the run")
    ghes = '{profile: github-actions, issuer: "https://github.example.com/_services/token"}'
    gone = policies(providers=PROVIDERS.replace("{profile: github-actions}", ghes))
    assert only(make_plan(one, gone, [recorded(one)])) == ("refused", "identity.issuer_unknown", "providers")


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
    nowhere = "https://issuer.invalid"  # a token of our own is judged without knowing our URL
    blind = policies(*TO_ROBOTS, providers=ROBOTS, url=nowhere)
    assert counts(make_plan(blind, blind, lines[:1])) == (1, 0, 0, 0)
    renamed = [*TO_ROBOTS, ("provider: robots", "provider: others")]
    other = policies(*renamed, providers=ROBOTS.replace("robots:", "others:"), url=nowhere)
    assert only(make_plan(blind, other, lines[:1])) == ("refused", "identity.issuer_unknown", "providers")


JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln"


def test_a_credential_in_the_place_of_a_name_is_not_recorded(policies: Directory) -> None:
    old, new = policies(), policies(("ttl_s: 3600", "ttl_s: 60"))
    for sent in (JWT, f"Bearer {JWT}", "evi_pat_4Fq0ZtB2x9Lm_" + "a" * 49, "hf_" + "a" * 34, "x" * 513):
        for named in ((sent, ""), ("", sent)):
            line = recorded(old, named=named)
            assert sent.encode() not in line
            assert list(msgspec.json.decode(line)["named"].values()) == ["(withheld)"]
            assert counts(make_plan(old, new, [line])) == (1, 0, 0, 0), "refused, then as now"
    honest = ("inspect-ai", "https://hub.example/" + "a" * 400)
    assert list(msgspec.json.decode(recorded(old, named=honest))["named"].values()) == list(honest)


def test_a_rule_whose_input_the_audit_lacks_is_unknown_unless_another_refuses(policies: Directory) -> None:
    old = policies()
    for change, missing in (
        ((REF, f'{REF}\n      environment: "prod"'), "the claim environment"),
        ((METRICS, 'metrics: [{id: "accuracy", max: 100}]'), "the value of accuracy"),
        (("grants:\n", "grants:\n  command: required\n"), "the command"),
    ):
        assert only(make_plan(old, policies(change), [recorded(old)])) == ("untold", missing, "")
        refusing = policies(change, (BENCHMARKS, 'benchmarks: ["cais/*"]'))
        assert only(make_plan(old, refusing, [recorded(old)]))[:2] == ("refused", "policy.benchmark")


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


def test_a_derived_claim_is_known_where_its_source_is_and_a_long_one_is_not_held(policies: Directory) -> None:
    """`job_workflow_ref` is recorded as provenance; no rule read a claim that is derived of it."""
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
    new = policies((REF, f'{REF}\n      workflow: {{glob: "x*"}}'))
    assert only(make_plan(old, new, [recorded(old, workflow="x" * 600)])) == ("untold", "the claim workflow", "")
    # Whether a job borrowed code is in a claim that was too long to be recorded.
    line = recorded(old, job_workflow_ref="org/evals/" + "x" * 600 + "@refs/heads/main")
    plan = make_plan(old, policies(("ttl_s: 3600", "ttl_s: 60")), [line])
    assert only(plan) == ("untold", "the claim job_workflow_ref", "")


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


def test_identities_with_the_same_pins_are_told_apart_only_by_recorded_claims(policies: Directory) -> None:
    old, new = policies(), policies((IDENTITIES, TWINS.replace("environment: {absent: true}, ", "")))
    assert counts(make_plan(old, new, [recorded(old)])) == (1, 0, 0, 0)
    line = without(recorded(old), "caller", "claims", "ref")
    missing = "the claim ref, the claim head_ref, the claim environment"
    assert only(make_plan(old, new, [line]))[:2] == ("untold", missing)
    plan = make_plan(old, policies((IDENTITIES, TWINS)), [recorded(old)])
    assert only(plan) == ("untold", "the claim environment", "")


OTHER = """\
  - id: dev
    provider: github-actions
    pins: {repository_id: "7", repository_owner_id: "6"}
    require: {ref: "refs/heads/dev", environment: "prod"}
grants:
"""


def test_a_caller_that_may_be_another_identity_is_not_refused_as_the_nearest(policies: Directory) -> None:
    """The second of the new identities would do, if its environment were the one that was not recorded."""
    old, new = policies((REF, 'ref: "refs/heads/dev"')), policies(("grants:\n", OTHER))
    plan = make_plan(old, new, [recorded(old, ref="refs/heads/dev", environment="prod")])
    assert counts(plan) == (0, 0, 0, 1)
    assert plan.groups[0].why == "the claim environment"
    # It was judged as the nearest identity. The rules of that one do not read the environment, and have not changed.
    line = recorded(new, ref="refs/heads/dev", environment="staging")
    assert counts(make_plan(new, policies(("grants:\n", OTHER)), [line])) == (1, 0, 0, 0)


def test_decisions_are_judged_as_of_their_own_time(policies: Directory) -> None:
    old, expiring = policies(), policies(('["github-hosted"]}', '["github-hosted"]}\n    expires: 2026-11-22'))
    plan = make_plan(old, expiring, [recorded(old, now=NOW), recorded(old, now=NOW + 86_400)])
    assert counts(plan) == (1, 1, 0, 0)


def test_a_decision_that_no_policy_made_or_explains_is_counted_apart(policies: Directory) -> None:
    old = policies()
    event = msgspec.json.decode(recorded(old))
    lines = [
        msgspec.json.encode({**event, "verdict": "refused", "code": code})
        for code in ("rate.identity", "identity.replayed", "claims.invalid", "abuse.quarantined", "not.a_code")
    ]
    plan = make_plan(old, policies((REF, 'ref: "x"')), [*lines, recorded(old)])
    assert (plan.decisions, plan.not_decided, counts(plan)) == (6, 5, (0, 1, 0, 0))
    old, other = policies(), policies((METRICS, 'metrics: ["f1"]'))
    plan = make_plan(old, old, [recorded(other), recorded(old)])
    assert (plan.otherwise, counts(plan)) == (1, (2, 0, 0, 0))


def test_a_torn_line_or_an_impossible_run_is_counted_and_skipped(policies: Directory) -> None:
    old = policies()
    line = recorded(old)
    event = msgspec.json.decode(line)
    for member, value in (("version", "9" * 5000), ("name", "x" * 300)):
        wrong = {**event["results"][0], "framework": {**event["results"][0]["framework"], member: value}}
        assert make_plan(old, old, [msgspec.json.encode({**event, "results": [wrong]})]).torn == 1
    for torn in (
        b'{"event": "decision", "time": 1, "req', b"\xff\xfe\n", b"[]", b"null", b'{"event": 1}', b'{"time": 1}', b"[" * 100_000,
        b'{"event": "decision", "time": -1}', b'{"event": "decision"}', b'{"event": "\xff"}',
        b'{"event": "decision", "x": "\xff"}', b'{"x": ' + b"[" * 100_000,
    ):  # fmt: skip
        plan = make_plan(old, old, [line, torn, b"\n", line])
        assert (plan.decisions, plan.torn, plan.unchanged) == (2, 1, 2)
        with pytest.raises(ValueError):
            read_decision(torn)


def test_lines_are_read_one_at_a_time_and_only_the_first_examples_are_kept(policies: Directory) -> None:
    old, new = policies(), policies((BENCHMARKS, 'benchmarks: ["cais/*"]'))
    taken, line = [], recorded(old)

    def lines() -> Iterator[bytes]:
        for number in range(100):
            taken.append(number)
            yield line

    plan = make_plan(old, new, lines())
    assert (len(taken), plan.refused, len(plan.groups)) == (100, 100, 1)
    assert (plan.groups[0].count, len(plan.groups[0].examples)) == (100, EXAMPLES)
    assert plan.groups[0].why == Code.POLICY_BENCHMARK


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
def test_a_plan_is_true_whatever_the_audit_leaves_out(variants: list[PolicySet], data: st.DataObject) -> None:
    """Decide a request under one policy, remove parts of its record, and judge that under another. An answer other than
    "cannot tell" is the real decision of the other policy."""
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
    planned = judge_again(new, decision)
    truth = msgspec.json.decode(recorded(new, run, claims={**GITHUB, **claims}))
    if planned.kind != "untold":
        assert (planned.kind == "refused") == (truth["verdict"] == "refused"), (planned, truth)
