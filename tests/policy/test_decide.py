"""The decision: every code, in order, with its place; what a refused caller sees; and that more is never granted."""

from __future__ import annotations

import string
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats import strict_yaml
from issuer.formats.strict_json import JSON
from issuer.identity.profiles import PROFILES
from issuer.identity.table import Provider
from issuer.identity.token import Caller
from issuer.policy.compiled import CompiledGrants, CompiledProvider, allows_version
from issuer.policy.decide import Denial, Grant, decide
from issuer.policy.disclose import disclose, refusal_for
from issuer.policy.model import (
    Deny,
    FrameworkGrant,
    Grants,
    Identity,
    Matcher,
    MetricGrant,
    Policy,
    RegisteredBenchmarks,
    TokenRules,
)
from issuer.policy.registration import Registration
from issuer.results.benchmark import Benchmark, BenchmarkMetric, Task
from issuer.results.entry import Submission
from tests.support.policies import (
    GITHUB,
    NOW,
    POLICY,
    PROVIDERS,
    caller,
    changed,
    load,
    registration,
    runs_of,
    submission,
)
from tests.support.shared import examples


def judged(
    folder: Path,
    *submissions: Submission,
    text: str = POLICY,
    providers: str = PROVIDERS,
    now: int = NOW,
    integration: str = "",
    audience: str = "",
    **claims: JSON,
) -> Grant | Denial:
    policies = load(folder, providers, inspect_ai=text)
    who = caller(policies, **claims)
    results = submissions or (submission(),)
    return decide(
        registration(policies, **claims), who, runs_of(*results), now, integration=integration, audience=audience
    )


def failed(verdict: Grant | Denial) -> list[Code]:
    return [check.code for check in verdict.checks if not check.passed]


# What a policy discloses by default.
PLAIN = strict_yaml.load(POLICY.encode(), "").convert(Policy)


def only_fault(verdict: Grant | Denial) -> tuple[Code, str, str]:
    assert isinstance(verdict, Denial)
    refusal = refusal_for(verdict.checks, PLAIN)
    (fault,) = refusal.faults
    assert (refusal.code, refusal.detail) == (verdict.code, fault.detail)
    return fault.code, fault.pointer, fault.detail


# -- yes ---------------------------------------------------------------------------------------------------------------


def test_a_registered_run_is_granted_the_life_and_audience_of_its_policy(tmp_path: Path) -> None:
    verdict = judged(tmp_path)
    assert isinstance(verdict, Grant)
    assert (verdict.ttl_s, verdict.audience, verdict.warnings) == (3600, "https://hub.example", ())
    assert all(check.passed for check in verdict.checks)


def test_naming_the_own_integration_and_audience_changes_nothing(tmp_path: Path) -> None:
    named = judged(tmp_path, integration="inspect-ai", audience="https://hub.example")
    assert msgspec.structs.replace(named, checks=()) == msgspec.structs.replace(judged(tmp_path), checks=())


def test_a_name_that_differs_only_warns(tmp_path: Path) -> None:
    verdict = judged(tmp_path, repository="evil/evals")
    assert isinstance(verdict, Grant)
    assert verdict.warnings == (
        "the identity token's repository is evil/evals, registered as org/evals: only ids decide; tell the operator",
    )
    gone = judged(tmp_path, repository=None)
    assert isinstance(gone, Grant)
    assert "repository is absent, registered as org/evals" in gone.warnings[0]


def test_an_identity_alone_can_be_judged(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    verdict = decide(registration(policies), caller(policies), (), NOW)
    assert isinstance(verdict, Grant)


# -- no, one reason at a time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["other", "inspect-ai2", "Inspect-AI", "inspect-ai\n", "lm-eval"])
def test_another_integration_than_one_s_own_is_unknown_whether_it_exists_or_not(tmp_path: Path, name: str) -> None:
    verdict = judged(tmp_path, integration=name)
    assert only_fault(verdict) == (
        Code.INTEGRATION_UNKNOWN, "/integration",
        f"the request's integration is {name}; expected none, or the integration of this identity; rule: integration",
    )  # fmt: skip


def test_a_suspended_integration_is_refused(tmp_path: Path) -> None:
    verdict = judged(tmp_path, text=changed(POLICY, "mode: active", "mode: suspended"))
    assert only_fault(verdict) == (Code.INTEGRATION_SUSPENDED, "", "the integration is suspended; rule: mode")


@pytest.mark.parametrize(("expires", "now", "granted"), [
    ("2026-11-22", 1_795_305_599, True),  # the last second of the day before
    ("2026-11-22", 1_795_305_600, False),  # 00:00 UTC
    ("2026-11-22", 1_795_305_601, False),
    ("2020-01-01", NOW, False),
    ("0001-01-01", NOW, False),
    ("9999-12-31", 2**33, True),
])  # fmt: skip
def test_a_registration_ends_at_midnight_utc_of_its_date(tmp_path: Path, expires: str, now: int, granted: bool) -> None:
    verdict = judged(tmp_path, text=changed(POLICY, "    require:", f"    expires: {expires}\n    require:"), now=now)
    assert isinstance(verdict, Grant) is granted
    if not granted:
        code, pointer, detail = only_fault(verdict)
        assert (code, pointer) == (Code.IDENTITY_REGISTRATION_EXPIRED, "")
        day = datetime.fromtimestamp(now, UTC).date()
        told = f"the request is of {day}; expected a day before {expires}; rule: identities.main.expires"
        assert detail == told


STRANGERS = [
    "pull_request", "pull_request_target", "pull_request_review", "pull_request_review_comment", "workflow_run",
    "issues", "issue_comment", "discussion", "discussion_comment", "merge_group", "fork", "watch",
    "repository_dispatch", "workflow_call", "push\n", "Push", "pushh", "", None, True, ["push"],
]  # fmt: skip


@pytest.mark.parametrize("event", STRANGERS)
def test_an_event_that_is_not_on_the_profile_s_list_is_refused(tmp_path: Path, event: JSON) -> None:
    verdict = judged(tmp_path, event_name=event)
    code, pointer, detail = only_fault(verdict)
    assert (code, pointer) == (Code.IDENTITY_EVENT_FORBIDDEN, "")
    assert detail.endswith(
        "; expected one of push, workflow_dispatch, schedule, release; rule: providers.github-actions.events"
    )


@pytest.mark.parametrize("event", ["push", "workflow_dispatch", "schedule", "release"])
def test_an_event_that_strangers_cannot_cause_is_allowed(tmp_path: Path, event: str) -> None:
    assert isinstance(judged(tmp_path, event_name=event), Grant)


def test_a_policy_that_names_an_event_allows_that_one_and_no_other(tmp_path: Path) -> None:
    text = changed(POLICY, "    require:", '    require:\n      event_name: {any_of: ["merge_group", "push"]}')
    assert isinstance(judged(tmp_path, text=text, event_name="merge_group"), Grant)
    assert isinstance(judged(tmp_path, text=text, event_name="push"), Grant)
    assert failed(judged(tmp_path, text=text, event_name="schedule")) == [Code.IDENTITY_CLAIM_MISMATCH]
    assert failed(judged(tmp_path, text=text, event_name=None)) == [Code.IDENTITY_CLAIM_MISSING]


def test_a_provider_s_own_list_of_events_replaces_the_profile_s(tmp_path: Path) -> None:
    providers = changed(PROVIDERS, "{profile: github-actions}", "{profile: github-actions, events: [merge_group]}")
    assert isinstance(judged(tmp_path, providers=providers, event_name="merge_group"), Grant)
    assert failed(judged(tmp_path, providers=providers, event_name="push")) == [Code.IDENTITY_EVENT_FORBIDDEN]
    none = changed(PROVIDERS, "{profile: github-actions}", "{profile: github-actions, events: []}")
    assert failed(judged(tmp_path, providers=none, event_name="push")) == [Code.IDENTITY_EVENT_FORBIDDEN]


def test_a_generic_provider_has_no_events(tmp_path: Path) -> None:
    text = changed(
        POLICY[: POLICY.index("    names:")] + POLICY[POLICY.index("grants:") :],
        'provider: github-actions\n    pins: {repository_id: "7", repository_owner_id: "6"}',
        'provider: acme\n    pins: {sub: "robot"}',
    )
    policies = load(tmp_path, inspect_ai=text)
    claims: dict[str, JSON] = {"iss": "https://id.acme.example", "sub": "robot", "event_name": "pull_request"}
    verdict = decide(registration(policies, claims), caller(policies, claims), runs_of(submission()), NOW)
    assert isinstance(verdict, Grant)


def test_a_claim_that_is_missing_says_which_and_what_it_should_be(tmp_path: Path) -> None:
    assert only_fault(judged(tmp_path, ref=None)) == (
        Code.IDENTITY_CLAIM_MISSING, "",
        "the identity token has no claim ref; expected refs/heads/main; rule: identities.main.require.ref",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ref", "shown"),
    [
        ("refs/heads/other", "refs/heads/other"),
        ("refs/heads/main\n", "refs/heads/main\n"),
        ("refs/heads/main2", "refs/heads/main2"),
        ("refs/heads/mаin", "refs/heads/mаin"),
        ("refs/heads/main\u200b", "refs/heads/main\u200b"),
        ("", ""),
        (True, "the boolean true"),
        (1, "the number 1"),
        (["refs/heads/main"], 'the structure ["refs/heads/main"]'),
        ("x" * 300, "x" * 200 + "..."),
    ],
)
def test_a_claim_that_differs_is_shown_with_what_was_expected(tmp_path: Path, ref: JSON, shown: str) -> None:
    assert only_fault(judged(tmp_path, ref=ref)) == (
        Code.IDENTITY_CLAIM_MISMATCH, "",
        f"the identity token's ref is {shown}; expected refs/heads/main; rule: identities.main.require.ref",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ('{any_of: ["a", 1, true]}', "one of a, the number 1, the boolean true"),
        ('{glob: "refs/tags/*"}', "text of the form refs/tags/*"),
        ("1", "the number 1"),
    ],
)
def test_a_refusal_tells_a_number_from_the_text_that_looks_like_it(tmp_path: Path, rule: str, said: str) -> None:
    text = changed(POLICY, '"refs/heads/main"', rule)
    assert only_fault(judged(tmp_path, text=text, ref="1"))[2] == (
        f"the identity token's ref is 1; expected {said}; rule: identities.main.require.ref"
    )


def test_another_audience_than_the_integration_s_is_refused_without_naming_it(tmp_path: Path) -> None:
    for audience in ("https://other.example", "https://hub.example/", "HTTPS://hub.example", "https://hub.example\n"):
        assert only_fault(judged(tmp_path, audience=audience)) == (
            Code.POLICY_AUDIENCE, "/audience",
            f"the request's audience is {audience}; expected none, or one of the integration's audiences; rule: token.audiences",
        )  # fmt: skip


@pytest.mark.parametrize("name", ["inspect", "inspect-ai2", "Inspect-AI", " inspect-ai", "inspect_ai"])
def test_another_framework_is_refused_and_the_registered_ones_are_named(tmp_path: Path, name: str) -> None:
    assert only_fault(judged(tmp_path, submission(framework=name))) == (
        Code.POLICY_FRAMEWORK, "/claims/framework/name",
        f"the run names the framework {name}; expected one of inspect-ai; rule: grants.frameworks[].name",
    )  # fmt: skip


def test_another_version_is_refused_and_the_registered_range_is_named(tmp_path: Path) -> None:
    assert only_fault(judged(tmp_path, submission(version="0.4.0"))) == (
        Code.POLICY_VERSION, "/claims/framework/version",
        "the run names version 0.4.0; expected >=0.3.100,<0.4; rule: grants.frameworks[].versions",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("code", "pointer", "rule", "run"),
    [
        (Code.POLICY_BENCHMARK, "benchmark_repo", "benchmarks", {"benchmark": "openai/gsm8k2"}),
        (Code.POLICY_BENCHMARK, "benchmark_repo", "benchmarks", {"benchmark": "Cais/hle"}),
        (Code.POLICY_BENCHMARK, "benchmark_repo", "benchmarks", {"benchmark": "caiss/hle"}),
        (Code.POLICY_MODEL, "model_repo", "models", {"model": "other/model"}),
        (Code.POLICY_TASK, "task_id", "tasks", {"task": "gsm8k-hard"}),
        (Code.POLICY_TASK, "task_id", "tasks", {"task": "gsm/8k"}),
    ],
)
def test_what_is_not_granted_is_refused_and_the_grants_are_not_told(
    tmp_path: Path, code: Code, pointer: str, rule: str, run: dict[str, Any]
) -> None:
    text = changed(changed(POLICY, '"*/*"', '"org/*"'), 'tasks: ["*"]', 'tasks: ["gsm8k"]')
    verdict = judged(tmp_path, submission(**run), text=text)
    (actual,) = run.values()
    assert only_fault(verdict) == (code, f"/claims/{pointer}", f"the run names {actual}; rule: grants.{rule}")
    shown = disclose(verdict.checks, PLAIN)
    assert all(check.expected == "" for check in shown if check.rule == f"grants.{rule}")


@pytest.mark.parametrize("benchmark", ["openai/gsm8k", "cais/hle", "cais/mmlu"])
def test_a_granted_benchmark_is_signed(tmp_path: Path, benchmark: str) -> None:
    assert isinstance(judged(tmp_path, submission(benchmark=benchmark)), Grant)


# -- no, for several reasons -------------------------------------------------------------------------------------------


def test_every_rule_is_tried_and_the_first_that_fails_names_the_code(tmp_path: Path) -> None:
    text = changed(POLICY, "mode: active", "mode: suspended")
    text = changed(text, "    require:", "    expires: 2020-01-01\n    require:")
    text = changed(changed(text, '"*/*"', '"org/*"'), 'tasks: ["*"]', 'tasks: ["gsm8k"]')
    bad = submission(benchmark="a/b", model="a/b", task="x", framework="x")
    old = submission("/results/1", version="0.1")
    verdict = judged(
        tmp_path, bad, old, text=text, integration="x", audience="x", event_name="fork", ref=None,
        runner_environment="self-hosted",
    )  # fmt: skip
    assert failed(verdict) == [
        Code.INTEGRATION_SUSPENDED, Code.INTEGRATION_UNKNOWN, Code.IDENTITY_REGISTRATION_EXPIRED,
        Code.IDENTITY_EVENT_FORBIDDEN, Code.IDENTITY_CLAIM_MISSING, Code.IDENTITY_CLAIM_MISMATCH, Code.POLICY_AUDIENCE,
        Code.POLICY_FRAMEWORK, Code.POLICY_BENCHMARK, Code.POLICY_MODEL, Code.POLICY_TASK, Code.POLICY_VERSION,
    ]  # fmt: skip
    assert isinstance(verdict, Denial)
    refusal = refusal_for(verdict.checks, PLAIN)
    assert refusal.code is verdict.code is Code.INTEGRATION_SUSPENDED
    assert len(refusal.faults) == 12


def test_a_batch_is_refused_for_one_item_which_is_pointed_at(tmp_path: Path) -> None:
    items = [submission(f"/results/{index}", benchmark="a/b" if index == 3 else "cais/hle") for index in range(5)]
    assert only_fault(judged(tmp_path, *items))[:2] == (Code.POLICY_BENCHMARK, "/results/3/claims/benchmark_repo")


def test_no_fault_of_a_refusal_tells_a_pin_a_name_a_contact_or_a_limit(tmp_path: Path) -> None:
    text = changed(POLICY, '"openai/gsm8k", "cais/*"', '"secret-org/secret-benchmark"')
    text = changed(text, '"org/evals"', '"secret-name/repo"')
    verdict = judged(tmp_path, text=text, ref="x", audience="x", integration="x")
    assert isinstance(verdict, Denial)
    refusal = refusal_for(verdict.checks, PLAIN)
    told = " ".join(fault.detail for fault in refusal.faults) + repr(refusal.checks)
    for secret in ("secret-org", "secret-name", "evals@example.org", "600", "https://hub.example"):
        assert secret not in told


# -- versions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "version", "granted"),
    [
        (">=0.3.100,<0.4", "0.3.100", True),
        (">=0.3.100,<0.4", "0.3.99", False),
        (">=0.3.100,<0.4", "0.4", False),
        (">=0.3.100,<0.4", "0.3.100.post1", True),
        ("==0.3.*", "0.3.7", True),
        # a local version only where the range names it
        ("==0.3.7", "0.3.7+local", False),
        (">=0.3", "0.3.7+local", False),
        ("==0.3.7+local", "0.3.7+local", True),
        ("===0.3.7+local", "0.3.7+local", True),
        ("==0.3.7+local", "0.3.7+other", False),
        ("!=0.3.7+local", "0.3.7+other", False),
        # one spelling, which is the one that is signed
        ("==0.3.7", " 0.3.7 ", False),
        ("==0.3.7", "v0.3.7", False),
        ("==0.3.7", "0.03.7", False),
        ("==0.3.7", "0.3.7-1", False),
        (">=0.3", "0.3.7.RC1", False),
        ("===0.3.07", "0.3.07", False),
        ("==0.3.7+local.1", "0.3.7+local-1", False),
        ("~=0.3.7", "0.4", False),
        # pre-releases and development builds only where the range names one
        (">=0.3", "0.3.5rc1", False),
        (">=0.3", "0.4.dev1", False),
        (">=0.3.100,<0.4", "0.4.0rc1", False),
        (">=0.3.dev0", "0.3.5rc1", True),
        (">=0.3.dev0,<0.4", "0.4.0rc1", False),
        ("!=0.3.5rc1", "0.3.6rc1", False),
        # what PEP 440 cannot order lies in no range
        (">=0", "main", False),
        (">=0", "0.3.x", False),
        (">=0", "0.3.285-dirty+a b", False),
        ("!=1", "unknown", False),
        ("===0.3", "0.3", True),
        # and in "every version"
        ("", "main", True),
        ("", "0.3.5rc1", True),
    ],
)
def test_a_version_lies_in_a_range_as_pep_440_says(allowed: str, version: str, granted: bool) -> None:
    assert allows_version(allowed, version) is granted


@pytest.mark.parametrize(
    ("version", "hint"),
    [
        ("v0.3.285", "Send the version in its normal form: 0.3.285"),
        ("0.3.285+patched", "Evaluate with a released version; a local one (`+...`) must be named by the policy"),
        ("0.2", "Run a registered version"),
    ],
)
def test_a_refused_version_says_what_to_send(tmp_path: Path, version: str, hint: str) -> None:
    decision = judged(tmp_path, submission(version=version))
    assert isinstance(decision, Denial)
    (failed,) = (check for check in decision.checks if not check.passed)
    assert (failed.code, failed.pointer) == (Code.POLICY_VERSION, "/claims/framework/version")
    assert failed.hint.startswith(hint)


def test_a_framework_without_versions_is_granted_in_every_version(tmp_path: Path) -> None:
    text = changed(POLICY, ', versions: ">=0.3.100,<0.4"', "")
    assert isinstance(judged(tmp_path, submission(version="commit 4f3a"), text=text), Grant)


def test_two_ranges_of_one_framework_add_up(tmp_path: Path) -> None:
    text = changed(POLICY, "frameworks:\n", 'frameworks:\n    - {name: "inspect-ai", versions: "==0.1"}\n')
    for version in ("0.1", "0.3.285"):
        assert isinstance(judged(tmp_path, submission(version=version), text=text), Grant)
    assert only_fault(judged(tmp_path, submission(version="0.2"), text=text))[2] == (
        "the run names version 0.2; expected ==0.1 or >=0.3.100,<0.4; rule: grants.frameworks[].versions"
    )


def test_the_range_of_one_framework_is_not_lent_to_another(tmp_path: Path) -> None:
    text = changed(POLICY, "frameworks:\n", 'frameworks:\n    - {name: "helm"}\n')
    assert failed(judged(tmp_path, submission(version="9"), text=text)) == [Code.POLICY_VERSION]
    assert isinstance(judged(tmp_path, submission(framework="helm", version="9"), text=text), Grant)


# -- properties --------------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(["a", "b", "ab", "a/b", "refs/heads/main", "push", "fork", "1", "", "\n"])
SCALARS = st.one_of(WORDS, st.booleans(), st.integers(-2, 2))
VALUES: st.SearchStrategy[JSON] = st.one_of(SCALARS, st.none(), st.lists(SCALARS, max_size=2), st.floats(0, 2))
CLAIMS = st.dictionaries(st.sampled_from(["event_name", "ref", "sha", "repository", "environment"]), VALUES)
MATCHERS = st.one_of(
    st.lists(SCALARS, min_size=1, max_size=3).map(lambda values: Matcher(any_of=tuple(values))),
    st.sampled_from(["*", "a*", "refs/*/main", "[", "(a"]).map(lambda glob: Matcher(glob=glob)),
)
RULES = st.dictionaries(st.sampled_from(["ref", "sha", "environment", "event_name"]), st.one_of(SCALARS, MATCHERS))
GLOBS = st.sampled_from(["*/*", "a/*", "a/b", "*", "x"])
PATTERNS = st.lists(GLOBS, min_size=1, max_size=3).map(tuple)
DENIES = st.builds(Deny, *[st.lists(GLOBS, max_size=1).map(tuple)] * 3)
BOUNDS = st.sampled_from([UNSET, -1.0, 0.0, 0.5, 20.9, 100.0])
METRICS = st.lists(
    st.one_of(GLOBS, st.builds(MetricGrant, id=GLOBS, min=BOUNDS, max=BOUNDS)), min_size=1, max_size=3
).map(tuple)
BENCHMARK = Benchmark("b", (Task("a"), Task("x")), metrics=(BenchmarkMetric("accuracy"),))
REGISTERED = st.sampled_from([
    RegisteredBenchmarks(),
    RegisteredBenchmarks({("a/b", "b" * 40): BENCHMARK}),
    RegisteredBenchmarks({}, {"a/b": BENCHMARK}),
])  # fmt: skip
FRAMEWORKS = st.builds(
    FrameworkGrant,
    name=st.sampled_from(["inspect-ai", "helm"]),
    versions=st.sampled_from([">=0.3", "<0.3", "==0.3.*", "===x", "~=0.3.1", "!=0.3"]),
)
VERSIONS = st.one_of(
    st.sampled_from(["0.3.285", "0.3", "0.2", "main", "0.3rc1", "1!0.3", "v0.3", "0.3+x", "9" * 64, " "]),
    st.text(string.printable[:95], min_size=1, max_size=64),
)
PROFILE = PROFILES["github-actions"]
PROVIDER = Provider(
    "github-actions", "github-actions", str(PROFILE.issuer), "https://issuer.example", ("RS256",), 1, 1, 1, "discovery",
    PROFILE.events,
)  # fmt: skip


def registration_of(policy: Policy, benchmarks: RegisteredBenchmarks) -> Registration:
    rules, grants = CompiledProvider(PROVIDER), CompiledGrants(policy.grants)
    return Registration.of(policy, policy.identities[0], rules, grants, "sha256:" + "0" * 64, benchmarks)


@st.composite
def registrations(draw: st.DrawFn) -> Registration:
    identity = Identity(
        id="main", provider="github-actions", pins={"repository_id": "7"}, names={"repository": "a/b"},
        require=draw(RULES), expires=draw(st.sampled_from(["2020-01-01", "2026-11-21", "2026-11-22", "9999-12-31"])),
    )  # fmt: skip
    grants = Grants(
        frameworks=draw(st.lists(FRAMEWORKS, min_size=1, max_size=3).map(tuple)), benchmarks=draw(PATTERNS),
        models=draw(PATTERNS), tasks=draw(PATTERNS), metrics=draw(METRICS), deny=draw(st.just(Deny()) | DENIES),
        registered_only=draw(st.sampled_from([False, False, True])),
        command=draw(st.sampled_from(["optional", "optional", "required"])),
    )  # fmt: skip
    policy = Policy(
        version=1, integration="a", mode=draw(st.sampled_from(["active", "active", "staged", "suspended"])),
        contacts=["c"], identities=[identity], grants=grants, token=TokenRules(audiences=("b", "ab")),
    )  # fmt: skip
    return registration_of(policy, draw(REGISTERED))


@st.composite
def runs(draw: st.DrawFn) -> Submission:
    name = st.sampled_from(["a/b", "a/c", "b/b", "x/y"])
    return submission(
        benchmark=draw(name), model=draw(name), task=draw(st.sampled_from(["a", "x", "a/b", "b:c"])),
        framework=draw(st.sampled_from(["inspect-ai", "helm", "other"])), version=draw(VERSIONS),
        command=draw(st.sampled_from(["", "run"])), revision=draw(st.sampled_from(["b" * 40, "c" * 40])),
        metrics=draw(st.sampled_from([{"accuracy": 20.9}, {"accuracy": 0.5}, {"x": 1}, {"a/b": 0, "x": 101}])),
    )  # fmt: skip


REQUESTS = st.tuples(
    registrations(), CLAIMS, st.lists(runs(), max_size=3).map(tuple), st.integers(0, 2**33), WORDS, WORDS
)
Asked = tuple[Registration, dict[str, JSON], tuple[Submission, ...], int, str, str]


def verdict_of(asked: Asked) -> Grant | Denial:
    who, claims, submissions, now, integration, audience = asked
    presented = Caller(PROVIDER, claims, ("use", "x", "x"), NOW, NOW)
    return decide(who, presented, runs_of(*submissions), now, integration=integration, audience=audience)


def with_policy(asked: Asked, **parts: object) -> Asked:
    who = asked[0]
    identities = [parts.pop("identity", who.identity)]
    policy = msgspec.structs.replace(who.policy, identities=identities, **parts)
    return (registration_of(policy, who.benchmarks), *asked[1:])


@examples(150)
@given(REQUESTS)
def test_decide_is_total_and_deterministic(asked: Asked) -> None:
    first = verdict_of(asked)
    assert first == verdict_of(asked)
    if isinstance(first, Denial):
        assert first.code is failed(first)[0]
        refusal = refusal_for(first.checks, PLAIN)
        assert isinstance(refusal, Refused)
        assert all(fault.detail for fault in refusal.faults)
    else:
        assert failed(first) == []


@examples(150)
@given(REQUESTS, st.sampled_from(["frameworks", "benchmarks", "models", "tasks", "metrics"]), st.integers(0, 2))
def test_removing_a_grant_never_allows_more(asked: Asked, kind: str, index: int) -> None:
    grants = asked[0].policy.grants
    fewer = tuple(grant for place, grant in enumerate(getattr(grants, kind)) if place != index)
    less = verdict_of(with_policy(asked, grants=msgspec.structs.replace(grants, **{kind: fewer})))
    assert isinstance(less, Denial) or isinstance(verdict_of(asked), Grant)


@examples(150)
@given(REQUESTS, st.sampled_from(["ref", "sha", "environment"]), st.one_of(SCALARS, MATCHERS))
def test_adding_a_requirement_never_allows_more(asked: Asked, name: str, rule: str | bool | int | Matcher) -> None:
    identity = asked[0].identity
    added = {**identity.require, name: identity.require.get(name, rule)}
    more = msgspec.structs.replace(identity, require=added)
    assert isinstance(verdict_of(with_policy(asked, identity=more)), Denial) or isinstance(verdict_of(asked), Grant)


def never_more(asked: Asked, **grants: object) -> None:
    """What the grants so changed allow, the grants as they were allow, too."""
    less = msgspec.structs.replace(asked[0].policy.grants, **grants)
    assert isinstance(verdict_of(with_policy(asked, grants=less)), Denial) or isinstance(verdict_of(asked), Grant)


@examples(150)
@given(REQUESTS, st.sampled_from(["benchmarks", "models", "tasks"]), GLOBS)
def test_adding_a_deny_never_allows_more(asked: Asked, kind: str, pattern: str) -> None:
    deny = asked[0].policy.grants.deny
    never_more(asked, deny=msgspec.structs.replace(deny, **{kind: (*getattr(deny, kind), pattern)}))


@examples(100)
@given(REQUESTS)
def test_demanding_a_command_or_a_registered_benchmark_never_allows_more(asked: Asked) -> None:
    never_more(asked, command="required")
    never_more(asked, registered_only=True)


@examples(100)
@given(REQUESTS, BOUNDS, BOUNDS)
def test_a_range_of_values_never_allows_more(asked: Asked, low: float, high: float) -> None:
    grants = asked[0].policy.grants.metrics
    never_more(
        asked, metrics=tuple(MetricGrant(grant, low, high) if isinstance(grant, str) else grant for grant in grants)
    )


@examples(100)
@given(REQUESTS, st.sampled_from(["staged", "suspended"]))
def test_a_staged_or_suspended_policy_never_grants(asked: Asked, mode: str) -> None:
    assert isinstance(verdict_of(with_policy(asked, mode=mode)), Denial)


@examples(100)
@given(REQUESTS, runs())
def test_asking_for_more_results_never_allows_more(asked: Asked, another: Submission) -> None:
    who, claims, submissions, *rest = asked
    more: Asked = (who, claims, (*submissions, another), *rest)  # type: ignore[assignment]
    assert isinstance(verdict_of(more), Denial) or isinstance(verdict_of(asked), Grant)


def test_the_properties_see_both_verdicts(tmp_path: Path) -> None:
    """The generators above are of use only if plain requests of theirs can be granted."""
    plain = with_policy(
        (registration(load(tmp_path, inspect_ai=POLICY)), dict(GITHUB), (submission(),), NOW, "", ""),
        mode="active",
    )
    assert isinstance(verdict_of(plain), Grant)
    seen = {mode: verdict_of(with_policy(plain, mode=mode)) for mode in ("staged", "suspended")}
    assert {mode: verdict.code for mode, verdict in seen.items() if isinstance(verdict, Denial)} == {
        "staged": Code.INTEGRATION_STAGED, "suspended": Code.INTEGRATION_SUSPENDED,
    }  # fmt: skip


def test_the_end_of_a_registration_and_registered_names_are_told_only_where_they_are_disclosed(tmp_path: Path) -> None:
    text = changed(POLICY, "    require:", "    expires: 2026-11-01\n    require:") + "disclose: [benchmarks]\n"
    verdict = judged(tmp_path, text=text)
    assert isinstance(verdict, Denial)
    policy = registration(load(tmp_path, inspect_ai=text)).policy
    told = msgspec.json.encode(refusal_for(verdict.checks, policy).checks)
    assert b"2026-11-01" not in told
    renamed = judged(tmp_path, text=POLICY + "disclose: [benchmarks]\n", repository="evil/evals")
    assert isinstance(renamed, Grant)
    (warning,) = renamed.warnings
    assert (
        warning
        == "the identity token's repository is evil/evals, not as registered: only ids decide; tell the operator"
    )
