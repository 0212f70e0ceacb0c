"""Records of Every Eval Ever: real conversions give their claims; scraped numbers never become claims."""

import json
import math
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from issuer.adapters import Run, every_eval_ever
from issuer.codes import Code
from issuer.results.claims import Metric
from tests.support.every_eval_ever import RECORD
from tests.support.runs import ALL, edited, refusal, shared
from tests.support.shared import needs_shared

SIMPLEQA = "records/simpleqa__from_inspect__schema-0.3.0.json"
PUBMEDQA = "records/pubmedqa__from_inspect__schema-0.3.0.json"
MATH = "records/math_perturbed__from_lm_eval__schema-0.3.0.json"
RESULT = "/evaluation_results/0"
RECORD_NEEDS = replace(ALL, framework_version=None)


def only(raw: bytes) -> Run:
    (run,) = every_eval_ever.read(raw, "record.json")
    return run


def text(given: Any) -> str | None:
    return given.text if given else None


def test_the_claims_of_a_record_of_a_whole_run() -> None:
    run = only(RECORD)
    assert (text(run.framework_name), text(run.framework_version)) == ("lm-eval", "0.4.13")
    assert (text(run.model_repo), text(run.benchmark_repo)) == ("acme/open-model", "openai/gsm8k")
    assert (run.model_revision, run.benchmark_revision, run.command) == (None, None, None)
    supplied = replace(ALL, benchmark_repo=None, model_repo=None, framework_version=None)
    built = run.claims(supplied, allow_partial=True)
    # Not exact-match, which is the record's own word.
    assert built.claims.metrics == (Metric("exact_match", 0.625, sample_size=8),)
    assert built.details["date"] == "2026-01-21T02:59:43Z"  # of the evaluation, not of the record's retrieval
    assert built.details["run"] == {
        "task": "gsm8k", "model": "acme/open-model", "selection": {"exact_match": "exact_match"}, "num_samples": 8,
        "completeness": "not known",
    }  # fmt: skip
    assert built.details["runtime_context"] == {"inference_engine": "transformers"}
    assert built.details["notes"] == (
        "Not known whether the whole benchmark was run: the record was converted, and does not prove how many samples the benchmark has."
    )
    split = only(edited(RECORD, f"{RESULT}/source_data/hf_split", "test")).claims(RECORD_NEEDS, allow_partial=True)
    assert split.details["run"]["split"] == "test"  # type: ignore[index,call-overload]


def test_a_platform_that_served_the_model_is_noted() -> None:
    (remark,) = only(edited(RECORD, "/model_info/inference_platform", "somewhere")).remarks
    assert remark == ("The model was reached at 'somewhere'; the record does not say which weights were served there.")
    assert only(edited(RECORD, "/model_info/inference_platform", "unknown")).remarks == ()


def test_scraped_numbers_are_refused_whatever_is_allowed() -> None:
    for kind in ("documentation", "scraped", ""):
        error = refusal(only, edited(RECORD, "/source_metadata/source_type", kind))
        assert (error.code, error.pointer) == (Code.FILE_RULE, "/source_metadata/source_type")


def test_only_known_versions_are_read() -> None:
    for version in ("0.2.0", "0.2.2", "0.3.0"):
        only(edited(RECORD, "/schema_version", version))
    for version in ("0.1.0", "0.3.1", "0.4.0", "1.0.0", "0.2.0 ", "0.2.", ""):
        error = refusal(only, edited(RECORD, "/schema_version", version))
        assert error.pointer == "/schema_version"


def test_a_record_of_fewer_samples_than_there_are_is_partial() -> None:
    run = only(edited(RECORD, f"{RESULT}/source_data/samples_number", 500))
    error = refusal(run.claims, RECORD_NEEDS)
    assert error.pointer == f"{RESULT}/score_details/uncertainty/num_samples"
    assert error.detail == "8 of 500 samples were used (--allow-partial)"
    details: dict[str, Any] = run.claims(RECORD_NEEDS, allow_partial=True).details
    assert details["notes"] == "Partial run: 8 of 500 samples were used."
    assert (details["run"]["completeness"], details["run"]["num_samples"]) == ("partial", 8)


def test_a_record_that_does_not_show_a_whole_run_is_not_known_to_be_one() -> None:
    used = "score_details/uncertainty"
    places: list[tuple[str, object, str, int | None]] = [
        ("source_data/samples_number", ..., "the record does not say how many samples the benchmark has", 8),
        (used, ..., "the record does not say how many samples were used", None),
        (f"{used}/num_samples", 0, "the record does not say how many samples were used", None),
        # A converter counts a sample once for each epoch.
        (
            f"{used}/num_samples",
            8,
            "the record was converted, and does not prove how many samples the benchmark has",
            8,
        ),
        (f"{used}/num_samples", 16, "16 uses of 8 samples are recorded; the record does not say how often", None),
    ]
    for pointer, value, rule, samples in places:
        run, unknown = only(edited(RECORD, f"{RESULT}/{pointer}", value)), "whether the whole benchmark was run:"
        assert f"not known {unknown} {rule}" in refusal(run.claims, RECORD_NEEDS).detail
        built = run.claims(RECORD_NEEDS, allow_partial=True)
        details: dict[str, Any] = built.details
        assert details["notes"].startswith(f"Not known {unknown} {rule}")
        assert (details["run"]["completeness"], details["run"].get("num_samples")) == ("not known", samples)
        assert built.claims.metrics[0].sample_size == (samples or UNSET)


def test_a_filter_of_lm_eval_is_the_scorer_and_a_group_has_no_sample_count() -> None:
    record = json.loads(RECORD)
    (one,) = record["evaluation_results"]
    strict = {**one, "evaluation_name": "gsm8k/strict", "evaluation_result_id": "exact_match:strict"}
    record["evaluation_results"] = [one, strict]
    run = only(json.dumps(record).encode())
    assert (run.task, text(run.task_id)) == ("gsm8k", "gsm8k")
    assert [score.selector for score in run.scores] == ["exact_match", "strict/exact_match"]
    del strict["source_data"]["hf_repo"]  # a group has no dataset, and the converter counts samples without the metric
    assert [
        score.samples for score in only(json.dumps({**record, "evaluation_results": [strict]}).encode()).scores
    ] == [None]


def test_a_split_and_a_perturbation_of_helm_tell_its_stats_apart() -> None:
    record = json.loads(RECORD)
    record["eval_library"]["name"] = "helm"
    (one,) = record["evaluation_results"]
    stats = [{**one["score_details"], "details": {"split": "valid", "perturbation": name}} for name in ("", "typos")]
    record["evaluation_results"] = [{**one, "score_details": stat} for stat in stats]
    run = only(json.dumps(record).encode())
    assert [(score.split, score.reducer) for score in run.scores] == [("valid", ""), ("valid", "typos")]


def test_an_old_record_is_refused_by_its_version_and_one_of_0_2_0_has_no_task() -> None:
    old = refusal(only, b'{"schema_version": "0.1.0", "evaluation_results": {}, "source_metadata": 1}')
    assert old.pointer == "/schema_version"
    raw = edited(edited(RECORD, "/eval_library/name", "inspect_ai"), "/schema_version", "0.2.0")
    assert only(raw).task_id is None


def test_scores_of_one_name_are_chosen_by_their_place() -> None:
    record = json.loads(RECORD)  # of a run with three reducers, whose names the converter does not keep
    one = record["evaluation_results"][0]
    record["eval_library"]["name"] = "inspect_ai"
    one["evaluation_result_id"] = "match:accuracy"
    scores = ({**one["score_details"], "score": n / 4} for n in (1, 2, 3))
    record["evaluation_results"] = [{**one, "score_details": score} for score in scores]
    run = only(json.dumps(record).encode())
    for selector in ("", "match/exact_match", "exact_match", "match:accuracy", "match/exact_match#4"):
        metrics = {"em": selector} if selector else {}
        detail = refusal(run.claims, replace(RECORD_NEEDS, metrics=metrics)).detail
        assert "'match/exact_match#1', 'match/exact_match#2', 'match/exact_match#3'" in detail
    built = run.claims(replace(RECORD_NEEDS, metrics={"em": "match/exact_match#2"}), allow_partial=True)
    assert built.claims.metrics[0].value == 0.5
    assert built.details["run"]["selection"] == {"em": "match/exact_match#2"}  # type: ignore[index,call-overload]


def test_a_mock_and_a_mock_judge_are_mocks() -> None:
    judges = {"judges": [{"model_info": {"id": "a/b"}}, {"model_info": {"id": "mockllm/x"}}], "input_prompt": "?"}
    run = only(edited(RECORD, f"{RESULT}/metric_config/llm_scoring", judges))
    error = refusal(run.claims, RECORD_NEEDS)
    assert error.pointer == f"{RESULT}/metric_config/llm_scoring/judges/1/model_info/id"
    assert "'mockllm/x' is a mock model" in error.detail
    of_a_mock = only(edited(RECORD, "/model_info/id", "mockllm/model"))
    assert "'mockllm/model'" in refusal(of_a_mock.claims, ALL).detail


def test_the_version_of_inspect_ai_is_taken_from_its_list_of_packages() -> None:
    for version in ("inspect_ai:0.3.285", "inspect_evals:0.3.1,inspect_ai:0.3.285", "0.3.285"):
        raw = edited(RECORD, "/eval_library", {"name": "inspect_ai", "version": version})
        assert text(only(raw).framework_version) == "0.3.285"


@needs_shared
def test_the_record_of_a_whole_inspect_run_gives_its_score() -> None:
    run = only(shared(SIMPLEQA))
    assert (text(run.framework_name), text(run.framework_version)) == ("inspect-ai", "0.3.162")
    assert run.model_repo is None  # anthropic/claude-opus-4-6 looks like a Hub name
    assert text(run.task_id) == "simpleqa_verified"
    supplied = replace(RECORD_NEEDS, benchmark_repo=None, metrics={"accuracy": "simpleqa_scorer/accuracy"})
    built = run.claims(supplied, allow_partial=True)
    assert built.claims.metrics == (Metric("accuracy", 0.431, sample_size=1000),)


@needs_shared
def test_real_records_of_lost_limits_are_partial() -> None:
    rules = {PUBMEDQA: "2 of 500 samples were used", MATH: "does not say how many samples the benchmark has"}
    for file, rule in rules.items():
        run = only(shared(file))
        model = None if run.model_repo else ALL.model_repo
        supplied = replace(ALL, model_repo=model, benchmark_repo=None, framework_version=None)
        assert rule in refusal(run.claims, supplied).detail


def test_a_model_without_an_engine_is_no_hub_model_and_a_missing_library_is_supplied() -> None:
    for engine in ("openai", "", None):
        assert only(edited(RECORD, "/model_info/inference_engine/name", engine)).model_repo is None
    libraries: tuple[object, ...] = (..., {"name": "unknown", "version": "unknown"})
    for library in libraries:
        run = only(edited(RECORD, "/eval_library", library))
        detail = refusal(run.claims, RECORD_NEEDS).detail
        assert ("--framework-name" in detail, "--framework-version" in detail) == (True, True)
        made = run.claims(replace(ALL, framework_name="helm"), allow_partial=True)
        assert made.origins["framework.name"] == "supplied"


def test_each_evaluation_is_a_run_and_one_metric_twice_is_ambiguous() -> None:
    record = json.loads(RECORD)
    record["evaluation_results"] *= 2
    (run,) = every_eval_ever.read(json.dumps(record).encode())
    assert "none chosen" in refusal(run.claims, RECORD_NEEDS).detail
    record["evaluation_results"][1:] = json.loads(RECORD)["evaluation_results"]
    record["evaluation_results"][1]["source_data"]["hf_repo"] = "acme/other"
    runs = every_eval_ever.read(json.dumps(record).encode())
    assert [text(run.benchmark_repo) for run in runs] == ["openai/gsm8k", "acme/other"]


def test_a_score_that_is_no_number_and_absurdly_many_results_are_refused() -> None:
    scores: dict[object, Code] = {math.nan: Code.FILE_NUMBER, "0.5": Code.FILE_SCHEMA, None: Code.FILE_SCHEMA}
    for score, code in scores.items():
        raw = edited(RECORD, f"{RESULT}/score_details/score", score)
        error = refusal(only(raw).claims, RECORD_NEEDS)
        assert (error.code, error.pointer) == (code, f"{RESULT}/score_details/score")
    record = json.loads(RECORD)
    record["evaluation_results"] *= 5001
    assert refusal(every_eval_ever.read, json.dumps(record).encode()).code is Code.FILE_SCHEMA
