"""lighteval results: a run for each task or average, the known commit, and counts if the release writes them."""

import json
from typing import Any

from msgspec.structs import replace

from issuer.adapters import Run, lighteval
from issuer.codes import Code
from issuer.formats import jcs
from issuer.results.claims import Metric
from tests.support.runs import ALL, BENCHMARK_COMMIT, DATA, MODEL_COMMIT, edited, refusal

DUMMY = (DATA / "lighteval_dummy.json").read_bytes()
SUPPLIED = replace(ALL, task_id=None)
ASKED = {
    "generation_size": 8,
    "num_fewshot": 0,
    "num_fewshot_seeds": 1,
    "prompt_function": "prompt",
    "stop_sequence.0": "\n",
}
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


def own(run: Run) -> dict[str, str]:
    members = ("model_repo", "model_revision", "benchmark_repo", "benchmark_revision", "task_id", "framework_version")
    return {name: getattr(run, name).text for name in members if getattr(run, name)}


def test_each_task_and_average_is_a_run_with_the_claims_of_the_file() -> None:
    assert [run.task for run in lighteval.read(DUMMY)] == ["alone|0", "sums:high|0", "sums:low|0", "sums:_average|0"]
    assert own(task(DUMMY)) == {"task_id": "alone"}
    assert own(task(real())) == {"task_id": "alone", "model_repo": "acme/open-model", "model_revision": MODEL_COMMIT}
    built = task(real()).claims(replace(SUPPLIED, model_repo=None, model_revision=None))
    assert built.claims.metrics == (Metric("em", 0.25),)
    assert "date" not in built.details
    assert words(built) == {
        "task": "alone|0", "model": "acme/open-model", "seed": 1234, "batch_size": 8, "split": "test",
        "completeness": "full", "selection": {"em": "em"}, "arguments": ASKED,
    }  # fmt: skip
    assert (built.details["runtime_context"], built.details["benchmark_subset"]) == ({"dtype": "bfloat16"}, "default")


def test_shots_generation_and_prompts_are_arguments() -> None:
    raw = real(
        system_prompt="Think.", generation_parameters={"temperature": 0.5, "seed": 1234, "stop_tokens": ["x", "y"]}
    )
    generation = {"generation.temperature": 0.5, "generation.stop_tokens.0": "x", "generation.stop_tokens.1": "y"}
    assert task(raw).arguments == {**ASKED, **generation, "system_prompt": "Think."}
    assert task(raw, "sums:_average|0").arguments == task(raw).arguments
    other = edited(raw, "/config_tasks/sums:low|0/generation_size", 9)
    assert task(other, "sums:_average|0").arguments["generation_size"] == jcs.digest([8, 9])
    assert (
        task(edited(DUMMY, "/results", {"lighteval|alone|5": {"em": 1}}), "lighteval|alone|5").arguments["num_fewshot"]
        == 5
    )


def test_a_full_commit_of_the_dataset_is_its_revision() -> None:
    raw = edited(DUMMY, "/config_tasks/alone|0/hf_repo", "openai/gsm8k")
    raw = edited(raw, "/config_tasks/alone|0/hf_revision", BENCHMARK_COMMIT)
    claims = {"task_id": "alone", "benchmark_repo": "openai/gsm8k", "benchmark_revision": BENCHMARK_COMMIT}
    assert own(task(raw)) == claims
    assert "benchmark_revision" not in own(task(edited(raw, "/config_tasks/alone|0/hf_revision", "main")))
    one = edited(DUMMY, "/config_tasks/sums:low|0/hf_repo", "openai/gsm8k")
    assert "benchmark_repo" not in own(task(one, "sums:_average|0"))


def test_a_model_outside_of_the_hub_has_no_repository() -> None:
    configs: tuple[dict[str, Any], ...] = (
        {"revision": ...}, {"base_model": "acme/base"}, {"endpoint_name": "e"}, {"model_name": "./open-model"}, {"revision": "main"},
    )  # fmt: skip
    for config in configs:
        assert "model_revision" not in own(task(real(**config))), config
    assert [own(task(real(**config))) for config in configs[:4]] == [{"task_id": "alone"}] * 4
    # A server that chose the weights is noted.
    for member in sorted(lighteval.SERVER_MEMBERS):
        server: dict[str, Any] = {member: "http://localhost:1", "revision": ...}
        (remark,) = task(real(**server)).remarks
        assert "the file does not say which weights the server had" in remark
        nowhere: dict[str, Any] = {member: None}
        assert task(real(**nowhere)).remarks == ()


def test_a_file_of_an_older_release_has_the_commit_and_the_counts() -> None:
    unknown = task(older(model_sha=""), "lighteval|alone|0")
    assert "model_repo" not in own(unknown), "the Hub was asked, and did not know it"
    run = task(older(), "lighteval|alone|0")
    assert own(run) == {"task_id": "alone", "model_repo": "acme/open-model", "model_revision": MODEL_COMMIT}
    built = run.claims(replace(SUPPLIED, model_repo=None, model_revision=None))
    assert built.claims.metrics == (Metric("em", 0.25, sample_size=4),)
    assert (words(built)["num_samples"], words(built)["batch_size"], words(built)["completeness"]) == (4, 16, "full")
    own_model = replace(SUPPLIED, model_repo=None, model_revision=None)
    average = task(older(), "lighteval|sums:_average|0").claims(own_model, allow_partial=True)
    assert words(average)["completeness"] == "not known", "it may lack subtasks"
    assert (words(average)["num_samples"], average.claims.metrics[0].value) == (8, 0.375)


def test_fewer_samples_are_partial_and_a_run_at_its_limit_is_not_known_to_be_whole() -> None:
    raw = edited(older(), "/config_tasks/lighteval|sums:low/effective_num_docs", 3)
    for name in ("lighteval|sums:low|0", "lighteval|sums:_average|0"):
        assert "3 of 4 samples" in refusal(task(raw, name).claims, SUPPLIED).detail
    assert words(task(raw, "lighteval|alone|0").claims(SUPPLIED))["completeness"] == "full"
    raw = edited(real(), "/config_general/max_samples", 10)
    assert refusal(lambda: task(raw).claims(SUPPLIED)).pointer == "/config_general/max_samples"
    assert words(task(raw).claims(SUPPLIED, allow_partial=True))["completeness"] == "not known"
    unlimited = edited(real(), "/config_general/max_samples", ...)
    assert "may have been limited" in refusal(task(unlimited).claims, SUPPLIED).detail
    counted = task(older(max_samples=10), "lighteval|alone|0").claims(SUPPLIED)
    assert words(counted)["completeness"] == "full"


def test_answers_for_each_sample_are_epochs() -> None:
    raw = edited(real(), "/results/alone|0", {"pass@k:k=1&n=8": 0.5, "pass@k:k=1&n=8_stderr": 0.1})
    built = task(raw).claims(SUPPLIED)
    assert (words(built)["epochs"], built.claims.metrics) == (8, (Metric("pass@k:k=1&n=8", 0.5),))


def test_the_dummy_is_a_mock_under_any_name() -> None:
    assert refusal(lambda: task(DUMMY).claims(SUPPLIED)).pointer == "/config_general/model_name"
    renamed = edited(DUMMY, "/config_general/model_name", "a/b")
    renamed = edited(renamed, "/config_general/model_config/model_name", "a/b")
    assert "'a/b' is a mock model" in refusal(lambda: task(renamed).claims(SUPPLIED)).detail
    assert refusal(lighteval.read, edited(DUMMY, "/results", {"all": {"em": 1}})).code is Code.FILE_RULE
