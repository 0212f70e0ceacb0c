"""lighteval results: a run a task or average, the commit that is known, and counts where the release writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from issuer import adapters
from issuer.adapters import Run, lighteval
from issuer.codes import Code
from issuer.results.claims import Metric
from tests.support.runs import ALL, BENCHMARK_COMMIT, DATA, MODEL_COMMIT, edited, refusal, refusal_or_none

DUMMY = (DATA / "lighteval_dummy.json").read_bytes()
# Of the model and the benchmark all is supplied.
SUPPLIED = replace(ALL, task_id=None)
ENGINE = {"model_name": "acme/open-model", "revision": MODEL_COMMIT, "dtype": "bfloat16", "batch_size": 8, "seed": 1234}


def real(raw: bytes = DUMMY, **config: Any) -> bytes:
    """Make the dummy's file one of an engine that loads from the Hub, as 0.13 writes it."""
    raw = edited(raw, "/config_general/model_name", config.get("model_name", "acme/open-model"))
    members = {name: value for name, value in {**ENGINE, **config}.items() if value is not ...}
    return edited(raw, "/config_general/model_config", members)


def older(raw: bytes = DUMMY, **general: Any) -> bytes:
    """Write the file as releases before 0.11 do: by hand, after their documentation."""
    document = json.loads(raw)
    del document["config_general"]["model_config"]
    document["config_general"] |= {
        "model_name": "acme/open-model", "model_sha": MODEL_COMMIT, "model_dtype": "torch.bfloat16",
        "model_size": "2.7 GB", "override_batch_size": 16, "config": None, **general,
    }  # fmt: skip
    for member in ("results", "config_tasks"):
        document[member] = {
            name if name == "all" else f"lighteval|{name}": value for name, value in document[member].items()
        }
    document["config_tasks"] = {
        name.rpartition("|")[0]: {**config, "original_num_docs": 4, "effective_num_docs": 4}
        for name, config in document["config_tasks"].items()
    }
    return json.dumps(document).encode()


def task(raw: bytes, name: str = "alone|0") -> Run:
    return {run.task: run for run in lighteval.read(raw, "results.json")}[name]


def words(built: Any) -> Any:
    return built.details["run"]


def said(run: Run) -> dict[str, str]:
    members = ("model_repo", "model_revision", "benchmark_repo", "benchmark_revision", "task_id", "framework_version")
    return {name: getattr(run, name).text for name in members if getattr(run, name)}


def test_each_task_and_average_is_a_run_and_all_of_them_together_none() -> None:
    assert [run.task for run in lighteval.read(DUMMY)] == ["alone|0", "sums:high|0", "sums:low|0", "sums:_average|0"]


def test_what_a_file_says_and_nothing_else() -> None:
    assert said(task(DUMMY)) == {"task_id": "alone"}
    assert said(task(real())) == {"task_id": "alone", "model_repo": "acme/open-model", "model_revision": MODEL_COMMIT}
    built = task(real()).claims(replace(SUPPLIED, model_repo=None, model_revision=None))
    assert built.claims.metrics == (Metric("em", 0.25),)
    assert "date" not in built.details
    assert words(built) == {
        "task": "alone|0", "model": "acme/open-model", "seed": 1234, "batch_size": 8, "split": "test",
        "completeness": "full", "selection": {"em": "em"},
    }  # fmt: skip
    assert (built.details["runtime_context"], built.details["benchmark_subset"]) == ({"dtype": "bfloat16"}, "default")


def test_a_full_commit_of_the_dataset_is_its_revision() -> None:
    raw = edited(
        edited(DUMMY, "/config_tasks/alone|0/hf_repo", "openai/gsm8k"),
        "/config_tasks/alone|0/hf_revision",
        BENCHMARK_COMMIT,
    )
    assert said(task(raw)) == {
        "task_id": "alone",
        "benchmark_repo": "openai/gsm8k",
        "benchmark_revision": BENCHMARK_COMMIT,
    }
    assert "benchmark_revision" not in said(task(edited(raw, "/config_tasks/alone|0/hf_revision", "main")))
    one = edited(DUMMY, "/config_tasks/sums:low|0/hf_repo", "openai/gsm8k")
    assert "benchmark_repo" not in said(task(one, "sums:_average|0"))


@pytest.mark.parametrize(
    "config",
    [{"revision": ...}, {"base_model": "acme/base"}, {"endpoint_name": "e"}, {"model_name": "./open-model"}],
)
def test_what_names_no_repository_of_the_hub_gives_none(config: dict[str, Any]) -> None:
    assert said(task(real(**config))) == {"task_id": "alone"}


@pytest.mark.parametrize("member", sorted(lighteval.SERVER_MEMBERS))
def test_a_server_that_chose_the_weights_is_said(member: str) -> None:
    server: dict[str, Any] = {member: "http://localhost:1", "revision": ...}
    (remark,) = task(real(**server)).remarks
    assert "the file does not say which weights the server had" in remark
    nowhere: dict[str, Any] = {member: None}
    assert task(real(**nowhere)).remarks == ()


def test_the_asked_revision_main_is_never_the_model_s() -> None:
    assert "model_revision" not in said(task(real(revision="main")))
    assert "model_repo" not in said(
        task(older(model_sha=""), "lighteval|alone|0")
    )  # the Hub was asked, and did not know it


def test_a_file_of_an_older_release_has_the_commit_and_the_counts() -> None:
    run = task(older(), "lighteval|alone|0")
    assert said(run) == {"task_id": "alone", "model_repo": "acme/open-model", "model_revision": MODEL_COMMIT}
    built = run.claims(replace(SUPPLIED, model_repo=None, model_revision=None))
    assert built.claims.metrics == (Metric("em", 0.25, sample_size=4),)
    assert (words(built)["num_samples"], words(built)["batch_size"], words(built)["completeness"]) == (4, 16, "full")
    average = task(older(), "lighteval|sums:_average|0").claims(replace(SUPPLIED, model_repo=None, model_revision=None))
    assert (words(average)["num_samples"], average.claims.metrics[0].value) == (8, 0.375)


def test_fewer_samples_than_there_are_are_partial() -> None:
    raw = edited(older(), "/config_tasks/lighteval|sums:low/effective_num_docs", 3)
    for name in ("lighteval|sums:low|0", "lighteval|sums:_average|0"):
        assert "3 of 4 samples" in refusal(lambda name=name: task(raw, name).claims(SUPPLIED)).detail  # type: ignore[misc]
    assert words(task(raw, "lighteval|alone|0").claims(SUPPLIED))["completeness"] == "full"


def test_a_limit_of_which_nobody_knows_whether_it_cut_is_not_known() -> None:
    raw = edited(real(), "/config_general/max_samples", 10)
    assert refusal(lambda: task(raw).claims(SUPPLIED)).pointer == "/config_general/max_samples"
    assert words(task(raw).claims(SUPPLIED, allow_partial=True))["completeness"] == "not known"
    counted = task(older(max_samples=10), "lighteval|alone|0").claims(SUPPLIED)
    assert words(counted)["completeness"] == "full"


def test_answers_for_each_sample_are_epochs() -> None:
    raw = edited(real(), "/results/alone|0", {"pass@k:k=1&n=8": 0.5, "pass@k:k=1&n=8_stderr": 0.1})
    built = task(raw).claims(SUPPLIED)
    assert (words(built)["epochs"], built.claims.metrics) == (8, (Metric("pass@k:k=1&n=8", 0.5),))


def test_the_dummy_is_a_mock_under_any_name() -> None:
    assert refusal(lambda: task(DUMMY).claims(SUPPLIED)).pointer == "/config_general/model_name"
    renamed = edited(
        edited(DUMMY, "/config_general/model_name", "a/b"), "/config_general/model_config/model_name", "a/b"
    )
    assert "'a/b' is a mock model" in refusal(lambda: task(renamed).claims(SUPPLIED)).detail


def test_it_is_recognised_by_its_members() -> None:
    assert adapters.read(DATA / "lighteval_dummy.json", task="alone|0").framework_name is not None
    assert refusal(lambda: lighteval.read(edited(DUMMY, "/results", {"all": {"em": 1}}))).code is Code.FILE_RULE


@given(st.integers(0, len(DUMMY) - 1), st.integers(0, 40), st.binary(max_size=8))
def test_no_other_exception_escapes(at: int, length: int, instead: bytes) -> None:
    raw = DUMMY[:at] + instead + DUMMY[at + length :]
    error = refusal_or_none(lambda: [run.claims(SUPPLIED, allow_mock=True) for run in lighteval.read(raw)])
    assert error is None or error.code.value.startswith(("file.", "claims."))
