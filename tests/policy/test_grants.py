"""The results that may be signed: deny lists, metrics and their values, definitions, registered benchmarks, commands, audiences, staged mode."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from issuer.codes import Code
from issuer.errors import InputError
from issuer.formats import jcs
from issuer.policy.compiled import CompiledGrants
from issuer.policy.decide import Denial, Grant, decide
from issuer.policy.disclose import disclose
from issuer.policy.model import Policy
from issuer.results.entry import Submission
from tests.support.policies import NOW, POLICY, caller, changed, load, registration, runs_of, submission


def granting(grants: str, text: str = POLICY) -> str:
    return changed(text, '  metrics: ["*"]\n', f'  metrics: ["*"]\n{grants}')


def judged(
    folder: Path, *runs: Submission, text: str = POLICY, audience: str = "", **claims: str
) -> tuple[Grant | Denial, Policy]:
    policies = load(folder, inspect_ai=text)
    found = registration(policies, **claims)
    who = caller(policies, **claims)
    return decide(found, who, runs_of(*(runs or (submission(),))), NOW, integration="", audience=audience), found.policy


def refusals(verdict: Grant | Denial) -> list[tuple[str, str, str]]:
    return [(str(check.code), check.pointer, check.rule) for check in verdict.checks if not check.passed]


def test_what_is_denied_is_refused_although_it_is_granted(tmp_path: Path) -> None:
    for deny, member, value, code, claim in (
        ('benchmarks: ["*/*"]', "benchmark", "cais/secret", "policy.benchmark", "benchmark_repo"),
        ('models: ["evil/*"]', "model", "EVIL/m", "policy.model", "model_repo"),
        ('models: ["Evil/*"]', "model", "evil/M", "policy.model", "model_repo"),
        ('tasks: ["gsm*"]', "task", "gsm8k", "policy.task", "task_id"),
    ):
        run: dict[str, Any] = {member: value}
        verdict, policy = judged(tmp_path, submission(**run), text=granting(f"  deny: {{{deny}}}\n"))
        rule = f"grants.deny.{deny.partition(':')[0]}"
        assert refusals(verdict) == [(code, f"/claims/{claim}", rule)]
        assert [check.expected for check in disclose(verdict.checks, policy) if check.rule == rule] == [""]
    text = granting('  deny: {models: ["evil/*"]}\n', POLICY + "disclose: [models]\n")
    verdict, policy = judged(tmp_path, submission(model="evil/m"), text=text)
    (check,) = [check for check in disclose(verdict.checks, policy) if not check.passed]
    assert check.expected == "none of evil/*"
    text = granting('  deny: {benchmarks: ["cais/x"], models: ["evil/*"], tasks: ["x*"]}\n')
    assert isinstance(judged(tmp_path, text=text)[0], Grant)
    text = changed(POLICY, '  tasks: ["*"]', '  tasks: ["*", "*:*", "*/*", "*@*"]\n  deny: {tasks: ["private*"]}')
    for task in ["private:x", "private/x", "private@x", "PRIVATE|a:b|5", "private"]:
        verdict, _ = judged(tmp_path, submission(task=task), text=text)
        assert refusals(verdict)[0][0] == "policy.task", "no sign is a way around it"


RANGED = changed(POLICY, 'metrics: ["*"]', 'metrics: ["f1", {id: "acc*", min: 0, max: 1}, {id: "elo", min: 0}]')


def test_a_metric_passes_where_a_grant_has_its_id_and_its_value(tmp_path: Path) -> None:
    """Of many refused metrics the first 16 are listed."""
    cases: list[tuple[dict[str, float], list[int]]] = [
        ({"f1": 1000}, []), ({"accuracy": 0}, []), ({"accuracy": 1}, []), ({"accuracy": 0.5, "f1": -3, "acc_norm": 1.0}, []),
        ({"accuracy": 1.0000000000000002}, [0]), ({"accuracy": -5e-324}, [0]), ({"elo": 1e15}, []), ({"elo": -0.5}, [0]),
        ({"F1": 0.5}, [0]), ({"f1_macro": 0.5}, [0]), ({"accuracy": 2, "pass@1": 0.5}, [0, 1]), ({"a": 1, "accuracy": 0.5, "zz": 1}, [0, 2]),
        ({f"m{number:03}": 1.0 for number in range(256)}, list(range(16))),
    ]  # fmt: skip
    for metrics, refused in cases:
        verdict, _ = judged(tmp_path, submission(metrics=metrics), text=RANGED)
        found = [(code, pointer) for code, pointer, _ in refusals(verdict)]
        assert found == [("policy.metric", f"/claims/metrics/{place}") for place in refused], metrics
    text = changed(POLICY, 'metrics: ["*"]', 'metrics: [{id: "x", max: 1}, {id: "x", min: 5, max: 6}]')
    for value, granted in ((0.5, True), (3, False), (5.5, True), (7, False)):
        verdict, _ = judged(tmp_path, submission(metrics={"x": value}), text=text)
        assert isinstance(verdict, Grant) is granted


def test_a_value_is_read_and_shown_only_where_its_range_decides_which_is_disclosed(tmp_path: Path) -> None:
    _, policy = judged(tmp_path, text=changed(RANGED, '"f1",', '"f1", "acc_x", {id: "open"},'))
    reads = {
        name: CompiledGrants(policy.grants).metrics.reads_value(name)
        for name in ("f1", "accuracy", "acc_x", "elo", "open", "other")
    }
    assert reads == {"f1": False, "accuracy": True, "acc_x": False, "elo": True, "open": False, "other": False}
    for metrics in ({"other": 0.4711}, {"f1": 0.4711}):
        verdict, _ = judged(tmp_path, submission(metrics=metrics), text=RANGED)
        assert "0.4711" not in repr(verdict.checks)
    verdict, policy = judged(tmp_path, submission(metrics={"accuracy": 62.5}), text=RANGED)
    for disclosed, wanted in (((), ""), (("metrics",), "one of f1, acc* from 0 up to 1, elo from 0")):
        shown = disclose(verdict.checks, msgspec.structs.replace(policy, disclose=disclosed))
        (check,) = [check for check in shown if not check.passed]
        assert (check.actual, check.expected) == ("the run names accuracy = 62.5", wanted)


def test_a_required_command_must_be_sent_and_the_first_audience_is_the_default(tmp_path: Path) -> None:
    text = granting("  command: required\n")
    verdict, _ = judged(tmp_path, text=text)
    assert refusals(verdict) == [("policy.command", "/claims/framework/command", "grants.command")]
    assert isinstance(judged(tmp_path, submission(command="inspect eval"), text=text)[0], Grant)
    assert isinstance(judged(tmp_path, text=granting("  command: optional\n"))[0], Grant)
    hub, board = "https://hub.example", "https://board.example"
    text = changed(POLICY, f'"{hub}"', f'"{hub}", "{board}"')
    for named, given in {"": hub, hub: hub, board: board, f"{board}/": None, "https://x.example": None}.items():
        verdict, _ = judged(tmp_path, text=text, audience=named)
        assert (verdict.audience if isinstance(verdict, Grant) else None) == given, named


def test_a_staged_policy_makes_every_check_grants_nothing_and_names_a_refusal_s_code(tmp_path: Path) -> None:
    staged = changed(POLICY, "mode: active", "mode: staged")
    verdict, _ = judged(tmp_path, text=staged)
    assert isinstance(verdict, Denial)
    assert verdict.code is Code.INTEGRATION_STAGED
    assert refusals(verdict) == [("integration.staged", "", "mode")]
    active, _ = judged(tmp_path)
    assert [check.rule for check in verdict.checks][:-1] == [check.rule for check in active.checks]
    for run, text in (
        (submission(model="x/y"), changed(staged, '"*/*"', '"org/*"')),
        (submission(version="9"), staged),
    ):
        codes = [
            verdict.code
            for each in (text, text.replace("mode: staged", "mode: active"))
            if isinstance(verdict := judged(tmp_path, run, text=each)[0], Denial)
        ]
        assert codes[0] is codes[1] is not Code.INTEGRATION_STAGED


def test_only_results_by_a_listed_definition_of_the_benchmark_are_signed(tmp_path: Path) -> None:
    """The attack: a commit outside of the main branch, whose `eval.yaml` turns `higher_is_better` round."""
    stated = f'{{"CAIS/Hle": "{B}", cais/mmlu: ["{B}", "{"d" * 64}"], cais/open: any}}'
    text = granting(f"  definitions: {stated}\n", POLICY + "disclose: [benchmarks]\n")
    two = f"one of {B}, {'d' * 64}"
    for benchmark, revision, expected, is_granted in (
        ("cais/hle", B, f"one of {B}", True), ("cais/hle", C, f"one of {B}", False), ("cais/HLE", C, f"one of {B}", False),
        ("cais/mmlu", B, two, True), ("cais/mmlu", C, two, False), ("cais/open", C, "", True), ("openai/gsm8k", C, "", True),
    ):  # fmt: skip
        verdict, policy = judged(tmp_path, submission(benchmark=benchmark, revision=revision), text=text)
        refused = [("policy.definition", "/claims/benchmark_revision", "grants.definitions")]
        assert (isinstance(verdict, Grant), refusals(verdict)) == (is_granted, [] if is_granted else refused)
        shown = [check for check in disclose(verdict.checks, policy) if check.rule == "grants.definitions"]
        wanted = [(f"the run names {benchmark} at {revision}", expected)] if expected else []
        assert [(check.actual, check.expected) for check in shown] == wanted
        hidden = disclose(verdict.checks, msgspec.structs.replace(policy, disclose=()))
        assert {check.expected for check in hidden if check.rule == "grants.definitions"} <= {""}
        assert all("or ask the operator to add this one" in check.hint for check in shown if not check.passed)


EVAL = """\
name: "A benchmark"
tasks:
  - id: main
  - id: hard
metrics:
  - id: accuracy
"""
B, C = "b" * 40, "c" * 40


REGISTERED, RULE = granting("  registered_only: true\n"), "grants.registered_only"


def register(folder: Path, path: str, text: str = EVAL) -> None:
    file = folder / "benchmarks" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def test_only_what_a_registered_eval_yaml_defines_is_signed(tmp_path: Path) -> None:
    register(tmp_path, "cais/hle/eval.yaml")
    register(tmp_path, f"cais/hle/{B}.yaml", EVAL.replace("id: main", "id: other"))
    register(tmp_path, f"cais/mmlu/{B}.yaml")
    register(tmp_path, "cais/open/eval.yaml", EVAL.partition("metrics:")[0])
    register(tmp_path, "other/b/eval.yaml")
    metrics = {"accuracy": 1.0, "f1": 1.0, "x": 1.0}
    unregistered = [("policy.benchmark", "/claims/benchmark_revision", RULE)]
    cases: list[tuple[Submission, list[tuple[str, str, str]]]] = [
        (submission(benchmark="cais/mmlu", task="main"), []),
        (submission(benchmark="cais/hle", task="hard", revision=C), []),
        (submission(benchmark="cais/x", task="main"), unregistered),
        (submission(benchmark="cais/mmlu", task="main", revision=C), unregistered),
        (submission(benchmark="cais/hle", task="main"), [("policy.task", "/claims/task_id", RULE)]),
        (submission(benchmark="cais/hle", task="main", metrics=metrics, revision=C),
         [("policy.metric", "/claims/metrics/1", RULE), ("policy.metric", "/claims/metrics/2", RULE)]),
        (submission(benchmark="cais/open", task="main"), [("policy.metric", "/claims/metrics/0", RULE)]),
        (submission(benchmark="other/b", task="main"), [("policy.benchmark", "/claims/benchmark_repo", "grants.benchmarks")]),
    ]  # fmt: skip
    for run, expected in cases:
        verdict, _ = judged(tmp_path, run, text=REGISTERED)
        assert refusals(verdict) == expected
        assert isinstance(verdict, Grant) is (expected == [])


def test_a_registered_file_that_cannot_count_is_refused(tmp_path: Path) -> None:
    def refused() -> InputError:
        with pytest.raises(InputError) as error:
            load(tmp_path, inspect_ai=POLICY)
        return error.value

    for path in ("eval.yaml", "cais/eval.yaml", "cais/hle/main.yaml", "cais/hle/eval.yml", f"cais/hle/{B[:-1]}.yaml",
                 f"cais/hle/{B.upper()}.yaml", f"cais/h--e/{B}.yaml", "a/b/c/eval.yaml", f"cais/hle/{B}.YAML"):  # fmt: skip
        register(tmp_path, path)
        error = refused()
        assert (error.code, error.place.file) == (Code.FILE_RULE, str(tmp_path / "benchmarks" / path))
        assert "it would be overlooked" in error.detail
        (tmp_path / "benchmarks" / path).unlink()
    register(tmp_path, "cais/hle/eval.yaml", EVAL.replace("- id: hard", "- id: 7"))
    place = refused().place
    assert (place.file, place.line, place.column) == (str(tmp_path / "benchmarks/cais/hle/eval.yaml"), 4, 9)
    (tmp_path / "benchmarks").rename(tmp_path / "schema")
    (tmp_path / "benchmarks").write_text("not a folder")
    error = refused()
    assert (error.code, error.place.file) == (Code.FILE_UNREADABLE, str(tmp_path / "benchmarks"))


def digest_of(folder: Path, text: str) -> str:
    (policy_digest,) = load(folder, inspect_ai=text).digests
    return policy_digest


def test_benchmarks_that_can_decide_are_in_the_policy_s_digest_and_kept_with_it(tmp_path: Path) -> None:
    digests, plain = [digest_of(tmp_path, REGISTERED)], digest_of(tmp_path, POLICY)
    register(tmp_path, "other/b/eval.yaml")
    assert digest_of(tmp_path, REGISTERED) == digests[0], "it is not granted"
    for path, text in (
        ("cais/hle/eval.yaml", EVAL),
        (f"cais/hle/{B}.yaml", EVAL),
        ("cais/hle/eval.yaml", EVAL + "# !\n"),
    ):
        register(tmp_path, path, text)
        digests.append(digest_of(tmp_path, REGISTERED))
    assert len(set(digests)) == 4
    policies = load(tmp_path, inspect_ai=REGISTERED)
    (value,) = policies.digests.values()
    named = msgspec.json.decode(value)["benchmarks"]
    assert named.keys() == {"cais/hle/eval.yaml", f"cais/hle/{B}.yaml"}
    assert {digest: jcs.digest_of_bytes(raw) for digest, raw in policies.benchmarks.items()} == {
        digest: digest for digest in named.values()
    }
    assert jcs.canonical(msgspec.json.decode(value)) == value
    registrations = [one for bucket in policies.registrations.values() for one in bucket]
    assert {one.digest for one in registrations} == set(policies.digests), "it is the one that tokens carry"
    assert digest_of(tmp_path, POLICY) == plain, "it does not ask for registered ones"
    denying = changed(
        REGISTERED, "  registered_only: true", '  registered_only: true\n  deny: {benchmarks: ["CAIS/h*"]}'
    )
    assert not load(tmp_path, inspect_ai=denying).benchmarks
