"""lm-eval results: the commit that the Hub answered, one run a task or group, and no `main`, `N/A` or standard error."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from issuer.adapters import Run, Supplied, lm_eval
from issuer.codes import Code
from issuer.results.claims import Metric
from tests.support.runs import (
    BENCHMARK_COMMIT,
    DATA,
    MODEL_COMMIT,
    OTHER_COMMIT,
    edited,
    refusal,
    refusal_or_none,
    shared,
)
from tests.support.shared import needs_shared

DUMMY = (DATA / "lm_eval_dummy.json").read_bytes()
SHARED_FILE = "lm_eval/results_2026-01-21T03-44-18.458309.json"
SUPPLIED = Supplied(benchmark_repo="openai/gsm8k", benchmark_revision=BENCHMARK_COMMIT, command="lm_eval run")
STRICT = {"exact_match": "strict-match/exact_match"}


def hub(**config: Any) -> bytes:
    """Make the real file one of a transformers model of the Hub."""
    members = {"model": "hf", "model_args": "pretrained=acme/open-model,dtype=auto", "model_sha": MODEL_COMMIT}
    raw = DUMMY
    for name, value in {**members, "model_revision": "main", **config}.items():
        raw = edited(raw, f"/config/{name}", value)
    return raw


def task(raw: bytes, name: str = "gsm8k_mini") -> Run:
    return {run.task: run for run in lm_eval.read(raw, "results.json")}[name]


def text(said: Any) -> str | None:
    return said.text if said else None


def test_each_task_and_group_is_a_run() -> None:
    assert [run.task for run in lm_eval.read(DUMMY)] == ["gsm8k_mini", "choice_mini", "mini"]


def test_what_a_file_says_and_nothing_else() -> None:
    run = task(hub())
    assert (text(run.model_repo), text(run.model_revision)) == ("acme/open-model", MODEL_COMMIT)
    assert (run.benchmark_repo, run.benchmark_revision, run.command) == (None, None, None)
    assert text(run.framework_version) == "0.4.13"
    built = run.claims(replace(SUPPLIED, metrics=STRICT))
    assert built.claims.metrics == (Metric("exact_match", 0),)
    assert built.origins["model_revision"] == "run"
    assert built.details["date"] == "2026-11-21T05:09:31Z"
    assert built.details["run"] == {
        "num_samples": 4,
        "task": "gsm8k_mini",
        "model": "acme/open-model",
        "selection": {"exact_match": "strict-match/exact_match"},
        "completeness": "full",
    }


def test_the_asked_revision_main_is_never_the_model_s() -> None:
    run = task(hub(model_sha=...))
    assert (run.model_repo, run.model_revision) == (None, None)
    assert task(hub(model_sha="")).model_repo is None  # the Hub does not know it: a folder called acme/open-model
    assert task(hub(model_args="pretrained=./open-model")).model_repo is None
    assert "--model-revision" in refusal(lambda: run.claims(replace(SUPPLIED, metrics=STRICT))).detail


@pytest.mark.parametrize(
    "args", ["pretrained=acme/open-model,trust_remote_code=True", {"pretrained": "acme/open-model", "n": 1}]
)
def test_model_args_are_text_or_a_map(args: object) -> None:
    assert text(task(hub(model_args=args)).model_repo) == "acme/open-model"


@pytest.mark.parametrize(
    "args", ["pretrained=a/b,pretrained=c/d", "", None, 7, {"pretrained": ["a/b"]}, "steer_path=x,pretrained=a/b"]
)
def test_model_args_that_name_no_one_model_give_none(args: object) -> None:
    assert task(hub(model_args=args)).model_repo is None


@pytest.mark.parametrize("member", ["peft", "delta"])
def test_the_commit_of_an_adapter_is_taken_and_not_that_of_its_base(member: str) -> None:
    raw = hub(model_args=f"pretrained=acme/base,{member}=acme/adapter", **{f"{member}_sha": OTHER_COMMIT})
    run = task(raw)
    assert (text(run.model_repo), text(run.model_revision)) == ("acme/adapter", OTHER_COMMIT)
    words: Any = run.details["run"]
    assert (words["base_model"], words["base_model_revision"]) == ("acme/base", MODEL_COMMIT)
    without = task(edited(raw, f"/config/{member}_sha", ""))
    assert (without.model_repo, without.model_revision) == (None, None)


def test_a_backend_that_asks_no_hub_gives_the_name_and_a_commit_only_if_it_was_told_one() -> None:
    run = task(hub(model="vllm", model_sha=...))
    assert (text(run.model_repo), run.model_revision) == ("acme/open-model", None)
    pinned = task(hub(model="vllm", model_sha=..., model_args=f"pretrained=acme/open-model,revision={MODEL_COMMIT}"))
    assert text(pinned.model_revision) == MODEL_COMMIT
    assert task(hub(model="openai-completions", model_args="model=acme/open-model")).model_repo is None


def test_a_commit_other_than_the_one_asked_for_is_refused() -> None:
    raw = hub(model_args=f"pretrained=acme/open-model,revision={OTHER_COMMIT}")
    assert refusal(lambda: lm_eval.read(raw)).pointer == "/config/model_sha"


def test_the_dataset_is_the_benchmark_where_it_is_a_repository_and_all_tasks_share_it() -> None:
    one = edited(hub(), "/configs/gsm8k_mini/dataset_path", "openai/gsm8k")
    assert text(task(one).benchmark_repo) == "openai/gsm8k"
    assert task(one, "mini").benchmark_repo is None
    both = edited(one, "/configs/choice_mini/dataset_path", "openai/gsm8k")
    assert text(task(both, "mini").benchmark_repo) == "openai/gsm8k"
    pinned = edited(both, "/configs/gsm8k_mini/dataset_kwargs", {"revision": BENCHMARK_COMMIT})
    assert text(task(pinned).benchmark_revision) == BENCHMARK_COMMIT
    assert task(pinned, "mini").benchmark_revision is None
    assert task(edited(pinned, "/configs/gsm8k_mini/dataset_kwargs/revision", "main")).benchmark_revision is None


def test_a_group_of_itself_ends() -> None:
    assert task(edited(DUMMY, "/group_subtasks/mini", ["mini", "mini"]), "mini").benchmark_repo is None


def test_two_filters_need_a_selector() -> None:
    error = refusal(lambda: task(hub()).claims(SUPPLIED))
    assert "'flexible-extract/exact_match'" in error.detail
    assert "stderr" not in error.detail
    native = replace(SUPPLIED, metrics={"exact_match": "exact_match,strict-match"})
    assert task(hub()).claims(native).claims.metrics == (Metric("exact_match", 0),)


def test_one_filter_gives_its_metrics_without_standard_errors() -> None:
    assert task(hub(), "choice_mini").claims(SUPPLIED).claims.metrics == (Metric("acc", 0.5),)


@pytest.mark.parametrize(
    ("value", "code"),
    [("N/A", Code.FILE_SCHEMA), (None, Code.FILE_SCHEMA), (True, Code.FILE_SCHEMA), (math.nan, Code.FILE_NUMBER)],
)
def test_what_is_no_number_is_refused_only_where_it_is_chosen(value: object, code: Code) -> None:
    raw = edited(hub(), "/results/choice_mini/acc_stderr,none", value)
    task(raw, "choice_mini").claims(SUPPLIED)
    chosen = replace(SUPPLIED, metrics={"e": "none/acc_stderr"})
    error = refusal(lambda: task(raw, "choice_mini").claims(chosen))
    assert (error.code, error.pointer) == (code, "/results/choice_mini/acc_stderr,none")


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/config/limit", 10),
        ("/config/limit", 0.1),
        ("/config/samples", {"t": [1]}),
        ("/n-samples/choice_mini/effective", 3),
    ],
)
def test_a_limited_run_is_refused_by_default(pointer: str, value: object) -> None:
    raw = edited(hub(), pointer, value)
    for name in ("choice_mini", "mini"):
        run = task(raw, name)
        assert refusal(lambda run=run: run.claims(SUPPLIED)).code is Code.FILE_RULE  # type: ignore[misc]
    assert "Partial run" in str(task(raw, "choice_mini").claims(SUPPLIED, allow_partial=True).details["notes"])


def test_the_dummy_model_is_a_mock() -> None:
    run = task(DUMMY, "choice_mini")
    supplied = replace(SUPPLIED, model_repo="acme/open-model", model_revision=MODEL_COMMIT)
    assert refusal(lambda: run.claims(supplied)).pointer == "/config/model"
    run.claims(supplied, allow_mock={"dummy"})


@needs_shared
def test_the_real_file_gives_two_runs_of_two_benchmarks() -> None:
    runs = lm_eval.read(shared(SHARED_FILE))
    assert [text(run.benchmark_repo) for run in runs] == [
        "stellaathena/math_perturbed_5000",
        "stellaathena/math_rephrased_full",
    ]


def test_more_metrics_than_any_run_has_are_refused() -> None:
    task = {f"m{number},none": 0.5 for number in range(1000)}
    tasks = {f"t{number}": task for number in range(lm_eval.MAX_SCORES // 1000 + 1)}
    error = refusal(lambda: lm_eval.read(json.dumps({"results": tasks, "config": {"model": "hf"}}).encode()))
    assert (error.code, f"more than {lm_eval.MAX_SCORES} scores" in error.detail) == (Code.FILE_RULE, True)
    assert refusal(lambda: lm_eval.read(b"{" * (lm_eval.MAX_BYTES + 1))).code is Code.FILE_TOO_LARGE


@pytest.mark.parametrize("pointer", ["/results", "/config", "/config/model", "/results/mini"])
@pytest.mark.parametrize("value", [..., [], "\x1b[2J", 1])
def test_a_member_that_is_missing_or_of_a_wrong_type_is_refused(pointer: str, value: object) -> None:
    if (pointer, value) in [("/results/mini", ...), ("/config/model", "\x1b[2J")]:
        return
    error = refusal(lambda: lm_eval.read(edited(DUMMY, pointer, value), "r.json"))
    assert error.code is Code.FILE_SCHEMA
    assert "\x1b" not in str(error)


@given(st.integers(0, len(DUMMY) - 3))
def test_a_truncated_file_is_refused(end: int) -> None:
    assert refusal(lambda: lm_eval.read(DUMMY[:end])).code is Code.FILE_SYNTAX


@given(st.integers(0, len(DUMMY) - 1), st.integers(0, 40), st.binary(max_size=8))
def test_no_other_exception_escapes(at: int, length: int, instead: bytes) -> None:
    raw = DUMMY[:at] + instead + DUMMY[at + length :]
    error = refusal_or_none(lambda: [run.claims(SUPPLIED, allow_mock=True) for run in lm_eval.read(raw)])
    assert error is None or error.code.value.startswith(("file.", "claims."))
