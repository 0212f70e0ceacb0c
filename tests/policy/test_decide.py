"""The decision: every code, in order, with its place; what a refused caller sees; and that more is never granted."""

import string
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from issuer.codes import Code
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


def test_a_registered_run_is_granted_the_life_and_audience_of_its_policy(tmp_path: Path) -> None:
    verdict = judged(tmp_path)
    assert isinstance(verdict, Grant)
    assert (verdict.ttl_s, verdict.audience, verdict.warnings) == (3600, "https://hub.example", ())
    assert all(check.passed for check in verdict.checks)
    named = judged(tmp_path, integration="inspect-ai", audience="https://hub.example")
    assert msgspec.structs.replace(named, checks=()) == msgspec.structs.replace(judged(tmp_path), checks=())


def test_a_name_that_differs_only_warns_and_is_shown_only_where_disclosed(tmp_path: Path) -> None:
    closed = POLICY + "disclose: [benchmarks]\n"
    for text, repository, warning in (
        (POLICY, "evil/evals", "repository is evil/evals, registered as org/evals: only ids decide; tell the operator"),
        (POLICY, None, "repository is absent, registered as org/evals: only ids decide; tell the operator"),
        (closed, "evil/evals", "repository is evil/evals, not as registered: only ids decide; tell the operator"),
    ):
        verdict = judged(tmp_path, text=text, repository=repository)
        assert isinstance(verdict, Grant)
        assert verdict.warnings == (f"the identity token's {warning}",)
    text = changed(closed, "    require:", "    expires: 2026-11-01\n    require:")
    policy = registration(load(tmp_path, inspect_ai=text)).policy
    assert b"2026-11-01" not in msgspec.json.encode(refusal_for(judged(tmp_path, text=text).checks, policy).checks)


def test_another_integration_or_audience_is_refused_without_naming_any(tmp_path: Path) -> None:
    hub = "https://hub.example"
    for member, code, names, wanted in (
        (
            "integration", Code.INTEGRATION_UNKNOWN, ("other", "inspect-ai2", "Inspect-AI", "inspect-ai\n", "lm-eval"),
            "the integration of this identity; rule: integration",
        ),
        (
            "audience", Code.POLICY_AUDIENCE, ("https://other.example", f"{hub}/", hub.replace("h", "H", 1), f"{hub}\n"),
            "one of the integration's audiences; rule: token.audiences",
        ),
    ):  # fmt: skip
        for name in names:
            sent: dict[str, Any] = {member: name}
            detail = f"the request's {member} is {name}; expected none, or {wanted}"
            assert only_fault(judged(tmp_path, **sent)) == (code, f"/{member}", detail)


def test_a_registration_ends_at_midnight_utc_of_its_date(tmp_path: Path) -> None:
    for expires, now, granted in (
        ("2026-11-22", 1_795_305_599, True),  # the last second of the day before
        ("2026-11-22", 1_795_305_600, False),  # 00:00 UTC
        ("0001-01-01", NOW, False),
        ("9999-12-31", 2**33, True),
    ):
        text = changed(POLICY, "    require:", f"    expires: {expires}\n    require:")
        verdict = judged(tmp_path, text=text, now=now)
        assert isinstance(verdict, Grant) is granted
        if not granted:
            day = datetime.fromtimestamp(now, UTC).date()
            assert only_fault(verdict) == (
                Code.IDENTITY_REGISTRATION_EXPIRED, "",
                f"the request is of {day}; expected a day before {expires}; rule: identities.main.expires",
            )  # fmt: skip


def test_events_are_those_of_the_policy_or_of_the_provider_or_of_the_profile(tmp_path: Path) -> None:
    code, pointer, detail = only_fault(judged(tmp_path, event_name="pull_request"))
    assert (code, pointer) == (Code.IDENTITY_EVENT_FORBIDDEN, "")
    assert detail.endswith(
        "; expected one of push, workflow_dispatch, schedule, release; rule: providers.github-actions.events"
    )
    text = changed(POLICY, "    require:", '    require:\n      event_name: {any_of: ["merge_group", "push"]}')
    assert isinstance(judged(tmp_path, text=text, event_name="merge_group"), Grant)
    assert isinstance(judged(tmp_path, text=text, event_name="push"), Grant)
    assert failed(judged(tmp_path, text=text, event_name="schedule")) == [Code.IDENTITY_CLAIM_MISMATCH]
    assert failed(judged(tmp_path, text=text, event_name=None)) == [Code.IDENTITY_CLAIM_MISSING]
    providers = changed(PROVIDERS, "{profile: github-actions}", "{profile: github-actions, events: [merge_group]}")
    assert isinstance(judged(tmp_path, providers=providers, event_name="merge_group"), Grant)
    assert failed(judged(tmp_path, providers=providers, event_name="push")) == [Code.IDENTITY_EVENT_FORBIDDEN]
    none = changed(PROVIDERS, "{profile: github-actions}", "{profile: github-actions, events: []}")
    assert failed(judged(tmp_path, providers=none, event_name="push")) == [Code.IDENTITY_EVENT_FORBIDDEN]


def test_a_claim_that_differs_is_shown_with_what_was_expected(tmp_path: Path) -> None:
    missing = only_fault(judged(tmp_path, ref=None))
    assert missing == (
        Code.IDENTITY_CLAIM_MISSING, "",
        "the identity token has no claim ref; expected refs/heads/main; rule: identities.main.require.ref",
    )  # fmt: skip
    claims: list[tuple[JSON, str]] = [
        *[(text, text) for text in ("refs/heads/main\n", "refs/heads/main2", "refs/heads/mаin", "refs/heads/main\u200b", "")],
        (True, "the boolean true"), (1, "the number 1"), (["refs/heads/main"], 'the structure ["refs/heads/main"]'),
        ("x" * 300, "x" * 200 + "..."),
    ]  # fmt: skip
    for ref, shown in claims:
        assert only_fault(judged(tmp_path, ref=ref)) == (
            Code.IDENTITY_CLAIM_MISMATCH, "",
            f"the identity token's ref is {shown}; expected refs/heads/main; rule: identities.main.require.ref",
        )  # fmt: skip
    for rule, wanted in {
        '{any_of: ["a", 1, true]}': "one of a, the number 1, the boolean true",
        '{glob: "refs/tags/v*"}': "text of the form refs/tags/v*",
    }.items():
        text = changed(POLICY, '"refs/heads/main"', rule)
        assert only_fault(judged(tmp_path, text=text, ref="1"))[2] == (
            f"the identity token's ref is 1; expected {wanted}; rule: identities.main.require.ref"
        )
    text = changed(POLICY, '{any_of: ["github-hosted"]}', "{absent: true}")
    assert isinstance(judged(tmp_path, text=text, runner_environment=None), Grant)
    code, _, detail = only_fault(judged(tmp_path, text=text))
    assert (code, "runner_environment is github-hosted; expected no such claim" in detail) == (
        Code.IDENTITY_CLAIM_MISMATCH, True,
    )  # fmt: skip


def test_what_is_not_granted_is_refused_without_naming_the_grants(tmp_path: Path) -> None:
    text = changed(changed(POLICY, '"*/*"', '"org/*"'), 'tasks: ["*"]', 'tasks: ["gsm8k"]')
    for code, member, rule, name, actual in (
        (Code.POLICY_BENCHMARK, "benchmark_repo", "benchmarks", "benchmark", "openai/gsm8k2"),
        (Code.POLICY_BENCHMARK, "benchmark_repo", "benchmarks", "benchmark", "Cais/hle"),
        (Code.POLICY_MODEL, "model_repo", "models", "model", "other/model"),
        (Code.POLICY_TASK, "task_id", "tasks", "task", "gsm8k-hard"),
    ):
        run: dict[str, Any] = {name: actual}
        verdict = judged(tmp_path, submission(**run), text=text)
        assert only_fault(verdict) == (code, f"/claims/{member}", f"the run names {actual}; rule: grants.{rule}")
        shown = disclose(verdict.checks, PLAIN)
        assert all(check.expected == "" for check in shown if check.rule == f"grants.{rule}")
    assert isinstance(judged(tmp_path, submission(benchmark="cais/mmlu")), Grant)


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
    items = [submission(f"/results/{index}", benchmark="a/b" if index == 3 else "cais/hle") for index in range(5)]
    assert only_fault(judged(tmp_path, *items))[:2] == (Code.POLICY_BENCHMARK, "/results/3/claims/benchmark_repo")


def test_no_fault_of_a_refusal_shows_a_pin_a_name_a_contact_or_a_limit(tmp_path: Path) -> None:
    text = changed(POLICY, '"openai/gsm8k", "cais/*"', '"secret-org/secret-benchmark"')
    text = changed(text, '"org/evals"', '"secret-name/repo"')
    refusal = refusal_for(judged(tmp_path, text=text, ref="x", audience="x", integration="x").checks, PLAIN)
    shown = " ".join(fault.detail for fault in refusal.faults) + repr(refusal.checks)
    secrets = ("secret-org", "secret-name", "evals@example.org", "600", "https://hub.example")
    assert [secret for secret in secrets if secret in shown] == []


def test_a_version_is_in_a_range_by_pep_440_in_its_normal_form_only() -> None:
    """A local version, a pre-release or a development build is in a range that names one."""
    within = [
        (">=0.3.100,<0.4", "0.3.100"), (">=0.3.100,<0.4", "0.3.100.post1"), ("==0.3.*", "0.3.7"), ("==0.3.7+local", "0.3.7+local"),
        ("===0.3.7+local", "0.3.7+local"), (">=0.3.dev0", "0.3.5rc1"), ("===0.3", "0.3"), ("", "main"), ("", "0.3.5rc1"),
    ]  # fmt: skip
    outside = [
        (">=0.3.100,<0.4", "0.3.99"), (">=0.3.100,<0.4", "0.4"), ("~=0.3.7", "0.4"), ("==0.3.7", "0.3.7+local"), (">=0.3", "0.3.7+local"),
        ("==0.3.7+local", "0.3.7+other"), ("!=0.3.7+local", "0.3.7+other"), ("==0.3.7", " 0.3.7 "), ("==0.3.7", "v0.3.7"),
        ("==0.3.7", "0.03.7"), ("==0.3.7", "0.3.7-1"), (">=0.3", "0.3.7.RC1"), ("===0.3.07", "0.3.07"), ("==0.3.7+local.1", "0.3.7+local-1"),
        (">=0.3", "0.3.5rc1"), (">=0.3", "0.4.dev1"), (">=0.3.100,<0.4", "0.4.0rc1"), (">=0.3.dev0,<0.4", "0.4.0rc1"),
        ("!=0.3.5rc1", "0.3.6rc1"), (">=0", "main"), (">=0", "0.3.x"), (">=0", "0.3.285-dirty+a b"), ("!=1", "unknown"),
    ]  # fmt: skip
    assert [case for case in within if not allows_version(*case)] == []
    assert [case for case in outside if allows_version(*case)] == []


def test_a_framework_is_granted_in_its_ranges_or_without_one_in_any_version(tmp_path: Path) -> None:
    text = changed(
        POLICY, "frameworks:\n", 'frameworks:\n    - {name: "inspect-ai", versions: "==0.1"}\n    - {name: "helm"}\n'
    )
    for run in (submission(version="0.1"), submission(version="0.3.285"), submission(framework="helm", version="4f3a")):
        assert isinstance(judged(tmp_path, run, text=text), Grant)
    assert only_fault(judged(tmp_path, submission(version="0.2"), text=text))[2] == (
        "the run names version 0.2; expected ==0.1 or >=0.3.100,<0.4; rule: grants.frameworks[].versions"
    )
    for name in ("inspect", "inspect-ai2", "Inspect-AI", " inspect-ai", "inspect_ai"):
        assert only_fault(judged(tmp_path, submission(framework=name))) == (
            Code.POLICY_FRAMEWORK, "/claims/framework/name",
            f"the run names the framework {name}; expected one of inspect-ai; rule: grants.frameworks[].name",
        )  # fmt: skip
    for version, hint in {
        "v0.3.285": "Send the version in its normal form: 0.3.285",
        "0.3.285+patched": "Evaluate with a released version; a local one (`+...`) must be named by the policy",
        "0.4.0": "Run a registered version",
    }.items():
        verdict = judged(tmp_path, submission(version=version))
        assert only_fault(verdict) == (
            Code.POLICY_VERSION, "/claims/framework/version",
            f"the run names version {version}; expected >=0.3.100,<0.4; rule: grants.frameworks[].versions",
        )  # fmt: skip
        assert [check.hint[: len(hint)] for check in verdict.checks if not check.passed] == [hint]


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
BOUNDS: st.SearchStrategy[Any] = st.sampled_from([UNSET, -1.0, 0.0, 0.5, 20.9, 100.0])
METRICS = st.lists(
    st.one_of(GLOBS, st.builds(MetricGrant, id=GLOBS, min=BOUNDS, max=BOUNDS)), min_size=1, max_size=3
).map(tuple)
BENCHMARK = Benchmark("b", (Task("a"), Task("x")), metrics=(BenchmarkMetric("accuracy"),))
REGISTERED = st.sampled_from([
    RegisteredBenchmarks(),
    RegisteredBenchmarks({("a/b", "b" * 40): BENCHMARK}),
    RegisteredBenchmarks({}, {"a/b": BENCHMARK}),
])  # fmt: skip
COMMITS: st.SearchStrategy[str | tuple[str, ...]] = st.sampled_from(
    ["any", "b" * 40, ("b" * 40,), ("c" * 40, "b" * 40), "d" * 64]
)
DEFINITIONS = st.just(UNSET) | st.dictionaries(st.sampled_from(["a/b", "A/C"]), COMMITS)
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
        models=draw(PATTERNS), tasks=draw(PATTERNS), metrics=draw(METRICS), definitions=draw(DEFINITIONS), deny=draw(st.just(Deny()) | DENIES),
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
Question = tuple[Registration, dict[str, JSON], tuple[Submission, ...], int, str, str]


def verdict_of(question: Question) -> Grant | Denial:
    who, claims, submissions, now, integration, audience = question
    presented = Caller(PROVIDER, claims, ("use", "x", "x"), NOW, NOW)
    return decide(who, presented, runs_of(*submissions), now, integration=integration, audience=audience)


def with_policy(question: Question, **parts: object) -> Question:
    who = question[0]
    identities = [parts.pop("identity", who.identity)]
    policy = msgspec.structs.replace(who.policy, identities=identities, **parts)
    return (registration_of(policy, who.benchmarks), *question[1:])


CHANGES = st.sampled_from([
    "grant", "requirement", "deny", "command", "definition", "registered", "range", "mode", "another run",
])  # fmt: skip


@examples(400)
@given(REQUESTS, CHANGES, st.data())
def test_no_narrower_policy_and_no_larger_request_is_granted_more(
    question: Question, change: str, data: st.DataObject
) -> None:
    grants, identity = question[0].policy.grants, question[0].identity
    narrower = question
    if change == "grant":
        kind = data.draw(st.sampled_from(["frameworks", "benchmarks", "models", "tasks", "metrics"]))
        index = data.draw(st.integers(0, 2))
        fewer = tuple(grant for place, grant in enumerate(getattr(grants, kind)) if place != index)
        narrower = with_policy(question, grants=msgspec.structs.replace(grants, **{kind: fewer}))
    elif change == "requirement":
        name = data.draw(st.sampled_from(["ref", "sha", "environment"]))
        require = {name: data.draw(st.one_of(SCALARS, MATCHERS)), **identity.require}
        narrower = with_policy(question, identity=msgspec.structs.replace(identity, require=require))
    elif change == "deny":
        kind = data.draw(st.sampled_from(["benchmarks", "models", "tasks"]))
        denied = {kind: (*getattr(grants.deny, kind), data.draw(GLOBS))}
        deny = msgspec.structs.replace(grants.deny, **denied)
        narrower = with_policy(question, grants=msgspec.structs.replace(grants, deny=deny))
    elif change == "command":
        narrower = with_policy(question, grants=msgspec.structs.replace(grants, command="required"))
    elif change == "definition":
        stated = {"a/b": data.draw(COMMITS), **(grants.definitions or {})}
        narrower = with_policy(question, grants=msgspec.structs.replace(grants, definitions=stated))
    elif change == "registered":
        narrower = with_policy(question, grants=msgspec.structs.replace(grants, registered_only=True))
    elif change == "range":
        low, high = data.draw(BOUNDS), data.draw(BOUNDS)
        ranged = tuple(MetricGrant(grant, low, high) if isinstance(grant, str) else grant for grant in grants.metrics)
        narrower = with_policy(question, grants=msgspec.structs.replace(grants, metrics=ranged))
    elif change == "mode":
        narrower = with_policy(question, mode=data.draw(st.sampled_from(["staged", "suspended"])))
        assert isinstance(verdict_of(narrower), Denial)
    else:
        who, claims, submissions, now, integration, audience = question
        narrower = (who, claims, (*submissions, data.draw(runs())), now, integration, audience)
    verdict = verdict_of(question)
    assert isinstance(verdict_of(narrower), Denial) or isinstance(verdict, Grant)
    assert verdict == verdict_of(question)
    if isinstance(verdict, Denial):
        assert verdict.code is failed(verdict)[0]
        assert all(fault.detail for fault in refusal_for(verdict.checks, PLAIN).faults)
    else:
        assert failed(verdict) == []


def test_the_properties_see_both_verdicts(tmp_path: Path) -> None:
    """The generators above are of use only if they can make a request that is granted."""
    plain: Question = (registration(load(tmp_path, inspect_ai=POLICY)), dict(GITHUB), (submission(),), NOW, "", "")
    assert isinstance(verdict_of(with_policy(plain, mode="active")), Grant)
    for mode, code in (("staged", Code.INTEGRATION_STAGED), ("suspended", Code.INTEGRATION_SUSPENDED)):
        assert failed(verdict_of(with_policy(plain, mode=mode))) == [code]
