"""Records of Every Eval Ever: real conversions give what they kept; scraped numbers never become claims."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from issuer.adapters import Run, every_eval_ever
from issuer.codes import Code
from issuer.results.claims import Metric
from tests.support.every_eval_ever import RECORD
from tests.support.runs import ALL, edited, refusal, refusal_or_none, shared
from tests.support.shared import needs_shared

SIMPLEQA = "records/simpleqa__from_inspect__schema-0.3.0.json"
PUBMEDQA = "records/pubmedqa__from_inspect__schema-0.3.0.json"
MATH = "records/math_perturbed__from_lm_eval__schema-0.3.0.json"
RESULT = "/evaluation_results/0"


def only(raw: bytes) -> Run:
    (run,) = every_eval_ever.read(raw, "record.json")
    return run


def text(said: Any) -> str | None:
    return said.text if said else None


def test_what_a_record_of_a_whole_run_gives() -> None:
    run = only(RECORD)
    assert (text(run.framework_name), text(run.framework_version)) == ("lm-eval", "0.4.13")
    assert (text(run.model_repo), text(run.benchmark_repo)) == ("acme/open-model", "openai/gsm8k")
    built = run.claims(replace(ALL, benchmark_repo=None, model_repo=None, framework_version=None))
    assert built.claims.metrics == (
        Metric("exact_match", 0.625, sample_size=8),
    )  # not exact-match, which is the record's own word
    assert built.details["date"] == "2026-01-21T02:59:43Z"  # of the evaluation, not of the record's retrieval
    assert built.details["run"] == {
        "task": "gsm8k",
        "model": "acme/open-model",
        "selection": {"exact_match": "exact_match"},
        "completeness": "full",
        "num_samples": 8,
    }
    assert built.details["runtime_context"] == {"inference_engine": "transformers"}
    assert "notes" not in built.details


def test_a_record_says_no_revision_even_where_it_holds_a_commit() -> None:
    run = only(RECORD)
    assert (run.model_revision, run.benchmark_revision, run.command) == (None, None, None)


def test_a_platform_that_served_the_model_is_said() -> None:
    (remark,) = only(edited(RECORD, "/model_info/inference_platform", "somewhere")).remarks
    assert remark == ("The model was reached at 'somewhere'; the record does not say which weights were served there.")
    assert only(edited(RECORD, "/model_info/inference_platform", "unknown")).remarks == ()


@pytest.mark.parametrize("kind", ["documentation", "scraped", ""])
def test_scraped_numbers_are_refused_whatever_is_allowed(kind: str) -> None:
    error = refusal(lambda: only(edited(RECORD, "/source_metadata/source_type", kind)))
    assert (error.code, error.pointer) == (Code.FILE_RULE, "/source_metadata/source_type")


@needs_shared
@pytest.mark.parametrize(
    "file",
    [
        "demo__documentation__schema-0.3.0",
        "hfopenllm_v2__documentation__schema-0.2.0",
        "mmlu_pro_yi__documentation__schema-0.2.2",
    ],
)
def test_real_scraped_records_are_refused(file: str) -> None:
    assert (
        refusal(lambda: every_eval_ever.read(shared(f"records/{file}.json"))).pointer == "/source_metadata/source_type"
    )


@pytest.mark.parametrize("version", ["0.2.0", "0.2.2", "0.3.0"])
def test_versions_that_are_read(version: str) -> None:
    only(edited(RECORD, "/schema_version", version))


@pytest.mark.parametrize("version", ["0.1.0", "0.3.1", "0.4.0", "1.0.0", "0.2.0 ", "0.2.", ""])
def test_versions_that_are_not(version: str) -> None:
    assert refusal(lambda: only(edited(RECORD, "/schema_version", version))).pointer == "/schema_version"


RECORD_NEEDS = replace(ALL, framework_version=None)


def test_a_record_of_fewer_samples_than_there_are_is_partial() -> None:
    run = only(edited(RECORD, f"{RESULT}/source_data/samples_number", 500))
    error = refusal(lambda: run.claims(RECORD_NEEDS))
    assert (error.pointer, error.detail) == (
        f"{RESULT}/score_details/uncertainty/num_samples",
        "8 of 500 samples were used (--allow-partial)",
    )
    details: dict[str, Any] = run.claims(RECORD_NEEDS, allow_partial=True).details
    assert details["notes"] == "Partial run: 8 of 500 samples were used."
    assert (details["run"]["completeness"], details["run"]["num_samples"]) == ("partial", 8)


@pytest.mark.parametrize(
    ("pointer", "value", "rule", "samples"),
    [
        ("source_data/samples_number", ..., "the record does not say how many samples the benchmark has", 8),
        ("score_details/uncertainty", ..., "the record does not say how many samples were used", None),
        ("score_details/uncertainty/num_samples", 0, "the record does not say how many samples were used", None),
        # A converter counts a sample once for each epoch.
        ("score_details/uncertainty/num_samples", 16, "16 uses of 8 samples are recorded; the record does not say how often", None),
    ],
)  # fmt: skip
def test_a_record_that_does_not_show_a_whole_run_is_not_known_to_be_one(
    pointer: str, value: object, rule: str, samples: int | None
) -> None:
    run = only(edited(RECORD, f"{RESULT}/{pointer}", value))
    assert f"not known whether the whole benchmark was run: {rule}" in refusal(lambda: run.claims(RECORD_NEEDS)).detail
    built = run.claims(RECORD_NEEDS, allow_partial=True)
    details: dict[str, Any] = built.details
    assert details["notes"].startswith(f"Not known whether the whole benchmark was run: {rule}")
    assert (details["run"]["completeness"], details["run"].get("num_samples")) == ("not known", samples)
    assert built.claims.metrics[0].sample_size == (samples or UNSET)


def test_the_split_stands_in_the_entry() -> None:
    run = only(edited(RECORD, f"{RESULT}/source_data/hf_split", "test"))
    details: dict[str, Any] = run.claims(RECORD_NEEDS).details
    assert details["run"]["split"] == "test"


def test_scores_of_one_name_are_chosen_by_their_place() -> None:
    record = json.loads(RECORD)  # of a run with three reducers, whose names the converter does not keep
    one = record["evaluation_results"][0]
    one["evaluation_result_id"] = "match:accuracy"
    record["evaluation_results"] = [
        {**one, "score_details": {**one["score_details"], "score": n / 4}} for n in (1, 2, 3)
    ]
    run = only(json.dumps(record).encode())
    for metrics in (
        {},
        {"em": "match/exact_match"},
        {"em": "exact_match"},
        {"em": "match:accuracy"},
        {"em": "match/exact_match#4"},
    ):
        detail = refusal(lambda metrics=metrics: run.claims(replace(RECORD_NEEDS, metrics=metrics))).detail  # type: ignore[misc]
        assert "'match/exact_match#1', 'match/exact_match#2', 'match/exact_match#3'" in detail
    built = run.claims(replace(RECORD_NEEDS, metrics={"em": "match/exact_match#2"}))
    assert built.claims.metrics[0].value == 0.5
    assert built.details["run"]["selection"] == {"em": "match/exact_match#2"}  # type: ignore[index,call-overload]


def test_a_mock_judge_is_a_mock() -> None:
    judges = {"judges": [{"model_info": {"id": "a/b"}}, {"model_info": {"id": "mockllm/x"}}], "input_prompt": "?"}
    run = only(edited(RECORD, f"{RESULT}/metric_config/llm_scoring", judges))
    error = refusal(lambda: run.claims(RECORD_NEEDS))
    assert error.pointer == f"{RESULT}/metric_config/llm_scoring/judges/1/model_info/id"
    assert "'mockllm/x' is a mock model" in error.detail


@pytest.mark.parametrize("version", ["inspect_ai:0.3.285", "inspect_evals:0.3.1,inspect_ai:0.3.285", "0.3.285"])
def test_the_version_of_inspect_ai_is_taken_from_its_list_of_packages(version: str) -> None:
    raw = edited(RECORD, "/eval_library", {"name": "inspect_ai", "version": version})
    assert text(only(raw).framework_version) == "0.3.285"


@needs_shared
def test_the_record_of_a_whole_inspect_run_gives_its_score() -> None:
    run = only(shared(SIMPLEQA))
    assert (text(run.framework_name), text(run.framework_version)) == ("inspect-ai", "0.3.162")
    assert run.model_repo is None  # anthropic/claude-opus-4-6 looks like a Hub name
    assert text(run.task_id) == "simpleqa_verified"
    supplied = replace(
        ALL, benchmark_repo=None, framework_version=None, metrics={"accuracy": "simpleqa_scorer/accuracy"}
    )
    assert run.claims(supplied).claims.metrics == (Metric("accuracy", 0.431, sample_size=1000),)


@needs_shared
@pytest.mark.parametrize(
    ("file", "rule"),
    [(PUBMEDQA, "2 of 500 samples were used"), (MATH, "does not say how many samples the benchmark has")],
)
def test_real_records_of_lost_limits_are_partial(file: str, rule: str) -> None:
    run = only(shared(file))
    supplied = replace(
        ALL, model_repo=None if run.model_repo else ALL.model_repo, benchmark_repo=None, framework_version=None
    )
    assert rule in refusal(lambda: run.claims(supplied)).detail


@pytest.mark.parametrize("engine", ["openai", "", None])
def test_a_model_that_no_engine_loaded_is_no_hub_model(engine: str | None) -> None:
    assert only(edited(RECORD, "/model_info/inference_engine/name", engine)).model_repo is None


@pytest.mark.parametrize("library", [..., {"name": "unknown", "version": "unknown"}])
def test_a_library_that_is_not_named_is_supplied(library: object) -> None:
    run = only(edited(RECORD, "/eval_library", library))
    detail = refusal(lambda: run.claims(replace(ALL, framework_version=None))).detail
    assert "--framework-name" in detail
    assert "--framework-version" in detail
    assert run.claims(replace(ALL, framework_name="helm")).origins["framework.name"] == "supplied"


def test_each_evaluation_is_a_run_and_one_metric_twice_is_ambiguous() -> None:
    record = json.loads(RECORD)
    record["evaluation_results"] *= 2
    (run,) = every_eval_ever.read(json.dumps(record).encode())
    assert "none chosen" in refusal(lambda: run.claims(replace(ALL, framework_version=None))).detail
    record["evaluation_results"] = [record["evaluation_results"][0], json.loads(RECORD)["evaluation_results"][0]]
    record["evaluation_results"][1]["source_data"]["hf_repo"] = "acme/other"
    assert [text(run.benchmark_repo) for run in every_eval_ever.read(json.dumps(record).encode())] == [
        "openai/gsm8k",
        "acme/other",
    ]


def test_a_mock_s_record_is_a_mock_s() -> None:
    run = only(edited(RECORD, "/model_info/id", "mockllm/model"))
    assert "'mockllm/model'" in refusal(lambda: run.claims(ALL)).detail


@pytest.mark.parametrize(
    ("score", "code"), [(math.nan, Code.FILE_NUMBER), ("0.5", Code.FILE_SCHEMA), (None, Code.FILE_SCHEMA)]
)
def test_a_score_that_is_no_number_is_refused(score: object, code: Code) -> None:
    error = refusal(
        lambda: only(edited(RECORD, f"{RESULT}/score_details/score", score)).claims(
            replace(ALL, framework_version=None)
        )
    )
    assert (error.code, error.pointer) == (code, f"{RESULT}/score_details/score")


def test_absurdly_many_results_are_refused() -> None:
    record = json.loads(RECORD)
    record["evaluation_results"] *= 5001
    assert refusal(lambda: every_eval_ever.read(json.dumps(record).encode())).code is Code.FILE_SCHEMA


@given(st.integers(0, len(RECORD) - 1))
def test_a_truncated_record_is_refused(end: int) -> None:
    assert refusal(lambda: every_eval_ever.read(RECORD[:end])).code is Code.FILE_SYNTAX


@given(st.integers(0, len(RECORD) - 1), st.integers(0, 40), st.binary(max_size=8))
def test_no_other_exception_escapes(at: int, length: int, instead: bytes) -> None:
    raw = RECORD[:at] + instead + RECORD[at + length :]
    error = refusal_or_none(lambda: [run.claims(ALL, allow_partial=True) for run in every_eval_ever.read(raw)])
    assert error is None or error.code.value.startswith(("file.", "claims."))
