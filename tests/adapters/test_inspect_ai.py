"""Inspect AI logs: real ones give their claims; what is not whole, not said or not clear is refused with its place."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import struct
import subprocess
import sys
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.adapters import Built, Supplied, inspect_ai
from issuer.adapters.inspect_log import MAX_OBJECTS, MAX_SAMPLES
from issuer.codes import Code
from issuer.errors import InputError
from issuer.formats import jcs
from issuer.results.claims import Metric
from tests.support.runs import zipped
from tests.support.shared import ROOT, SHARED, needs_shared, vectors

ONE_SCORER = (ROOT / "issuer" / "dev" / "runs" / "gsm8k_mini_inspect_ai.json").read_bytes()
TWO_SCORERS = (ROOT / "tests" / "data" / "inspect_two_scorers.json").read_bytes()

MODEL_COMMIT = "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321"
BENCHMARK_COMMIT = "5503434ddd753f426f4b38109466949a1217c2bb"
OTHER_COMMIT = "0" * 40
COMMAND = "inspect eval gsm8k_mini.py --model mockllm/model"
NEEDED = Supplied(model_repo="acme/open-model", model_revision=MODEL_COMMIT, command=COMMAND)


def supplied(**more: Any) -> Supplied:
    return msgspec.structs.replace(NEEDED, **more)


def built(raw: bytes, with_: Supplied = NEEDED) -> Built:
    return inspect_ai.read(raw, "log.json").claims(with_, allow_mock=True)


def metric(metric_id: str, value: float) -> Metric:
    """Return a metric of all the eight samples."""
    return Metric(metric_id, value, sample_size=8)


def edited(pointer: str, value: object, raw: bytes = ONE_SCORER) -> bytes:
    """Return the log with one member set, or taken out where the value is `...`."""
    log = json.loads(raw)
    *parents, last = pointer[1:].split("/")
    place: Any = log
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place.setdefault(name, {})
    key: Any = int(last) if isinstance(place, list) else last
    if value is ...:
        del place[key]
    else:
        place[key] = value
    return json.dumps(log).encode()


def refusal(raw: bytes, with_: Supplied = NEEDED, *, allow_mock: bool = True) -> InputError:
    with pytest.raises(InputError) as caught:
        inspect_ai.read(raw, "log.json").claims(with_, allow_mock=allow_mock)
    assert caught.value.place.file == "log.json"
    return caught.value


def refusal_or_none(raw: bytes, with_: Supplied = NEEDED) -> InputError | None:
    """Return the refusal, or None where the log is taken; any other exception is the test's failure."""
    try:
        built(raw, with_)
    except InputError as error:
        return error
    return None


# -- what a whole run gives ---------------------------------------------------------------------------------------


def test_the_only_scorer_gives_all_its_metrics_under_their_own_names() -> None:
    claims = built(ONE_SCORER).claims
    assert claims.metrics == (metric("accuracy", 0.625), metric("stderr", 0.18298126367784995))
    assert (claims.benchmark_repo, claims.benchmark_revision) == ("openai/gsm8k", BENCHMARK_COMMIT)
    assert (claims.task_id, claims.framework.version) == ("gsm8k_mini", "0.3.285")


def test_each_claim_says_whether_the_run_or_its_owner_said_it() -> None:
    assert built(ONE_SCORER).origins == {
        "model_repo": "supplied",
        "model_revision": "supplied",
        "benchmark_repo": "run",
        "benchmark_revision": "run",
        "task_id": "run",
        "metrics": "run",
        "framework.name": "run",
        "framework.version": "run",
        "framework.command": "supplied",
    }


def test_details_bind_the_log_and_the_runs_own_words() -> None:
    run = inspect_ai.read(ONE_SCORER, "runs/gsm8k.json")
    digest = hashlib.sha256(ONE_SCORER).hexdigest()
    assert run.details == {
        "date": json.loads(ONE_SCORER)["stats"]["completed_at"],
        # Not runs/gsm8k.json: folders of the machine that made the claims are private.
        "artifacts": [{"name": "gsm8k.json", "sha256": f"sha256:{digest}"}],
        "run": {"task": "gsm8k_mini", "model": "mockllm/model"},
    }


def test_the_entry_binds_which_scores_were_chosen_and_of_how_many_samples_they_are() -> None:
    answer = built(TWO_SCORERS, supplied(metrics={"accuracy": "includes/accuracy", "error": "match/stderr"}))
    assert answer.details["run"] == {
        "task": "gsm8k_mini",
        "model": "mockllm/model",
        "selection": {"accuracy": "includes/accuracy", "error": "match/stderr"},
        "completeness": "full",
        "num_samples": 8,
    }


def test_a_run_without_completion_time_is_dated_by_its_creation() -> None:
    raw = edited("/stats/completed_at", "")
    assert built(raw).details["date"] == json.loads(raw)["eval"]["created"]


@pytest.mark.parametrize("date", ["yesterday", "2026-11-21", "2026-11-21T09:00:00", "2026-02-30T00:00:00Z"])
def test_a_date_that_names_no_moment_is_refused(date: str) -> None:
    error = refusal(edited("/stats/completed_at", date))
    assert (error.code, error.pointer) == (Code.FILE_RULE, "/stats/completed_at")


@needs_shared
def test_the_golden_claims_come_out_byte_for_byte() -> None:
    golden = vectors("golden_core_claims.json")[0]
    given_ = golden["supplied"]
    metrics = given_.pop("metric_map")
    run = inspect_ai.read((SHARED / golden["input"]).read_bytes(), golden["input"])
    claims = run.claims(Supplied(**given_, metrics=metrics)).claims
    assert jcs.canonical(claims.to_json()).decode() == golden["jcs"]
    assert claims.digest == f"sha256:{golden['sha256']}"


@needs_shared
@pytest.mark.parametrize(
    ("file", "pointer"),
    [
        ("data_arc_qwen.json", "/eval/config/limit"),
        ("data_pubmedqa_gpt4o_mini.json", "/eval/config/limit"),
        ("data_cvebench_empty_choices.json", "/eval/revision/dirty"),
    ],
)
def test_real_logs_of_partial_runs_are_refused(file: str, pointer: str) -> None:
    with pytest.raises(InputError) as caught:
        inspect_ai.read((SHARED / "inspect" / file).read_bytes(), file).claims(NEEDED, allow_mock=True)
    assert (caught.value.code, caught.value.pointer) == (Code.FILE_RULE, pointer)


def test_the_reader_does_not_import_its_framework() -> None:
    seen = "import sys, issuer.adapters.inspect_ai; print('inspect_ai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", seen], capture_output=True, check=True, cwd=ROOT).stdout == b"False\n"


# -- runs that are not whole --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/status", "error"),
        ("/status", "started"),
        ("/status", "cancelled"),
        ("/invalidated", True),
        ("/eval/config/limit", 4),
        ("/eval/config/limit", [0, 4]),
        ("/eval/config/sample_id", [1, 2]),
        ("/eval/revision", {"type": "git", "origin": "o", "commit": "5b525c0", "dirty": True}),
        ("/results", None),
        ("/results/completed_samples", 7),
        ("/results/logged_samples", 7),
        ("/results/early_stopping", {"manager": "m"}),
        ("/results/scores", []),
        ("/results/scores/0/metrics", {}),
        ("/results/scores/0/unscored_samples", 1),
    ],
)
def test_a_run_that_is_not_whole_is_refused(pointer: str, value: object) -> None:
    assert refusal(edited(pointer, value)).code is Code.FILE_RULE


def test_an_empty_run_is_refused() -> None:
    raw = edited("/results/total_samples", 0, edited("/results/completed_samples", 0))
    assert refusal(raw).pointer == "/results/total_samples"


def test_a_mock_model_is_refused_unless_it_is_asked_for_by_name() -> None:
    error = refusal(ONE_SCORER, allow_mock=False)
    assert (error.code, error.pointer) == (Code.FILE_RULE, "/eval/model")
    assert "--allow-mock" in error.detail


def details(raw: bytes, with_: Supplied = NEEDED) -> dict[str, Any]:
    """Return the details of a log's claims, partial or not."""
    return inspect_ai.read(raw, "log.json").claims(with_, allow_mock=True, allow_partial=True).details


def test_samples_that_no_scorer_gave_a_score_are_missing_though_inspect_calls_none_unscored() -> None:
    # A scorer that returns None: completed_samples is the whole, unscored_samples 0.
    raw = edited("/results/scores/0/scored_samples", 5)
    error = refusal(raw)
    assert (error.pointer, error.detail) == (
        "/results/scores/0/scored_samples",
        "5 of 8 samples were scored by 'match' (--allow-partial)",
    )
    said = details(raw)
    assert (said["run"]["completeness"], said["run"]["num_samples"]) == ("partial", 5)
    assert said["notes"].startswith("Partial run: 5 of 8 samples were scored by 'match'.")


def in_epochs(scored: int = 16) -> bytes:
    """Return a log of eight samples in two epochs, of whose sixteen so many have a score."""
    raw = edited("/eval/config/epochs", 2)
    for pointer in ("/results/total_samples", "/results/completed_samples"):
        raw = edited(pointer, 16, raw)
    return edited("/samples", [{"scores": {"match": {}}}] * scored + [{"scores": {}}, {}] * (16 - scored), raw)


def test_epochs_are_told_apart_from_the_samples() -> None:
    raw = in_epochs()
    answer = built(edited("/eval/config/epochs_reducer", ["mean"], raw))
    assert answer.claims.metrics[0] == metric("accuracy", 0.625)
    assert answer.details["run"] == {
        "task": "gsm8k_mini",
        "model": "mockllm/model",
        "selection": {"accuracy": "match@mean/accuracy", "stderr": "match@mean/stderr"},
        "completeness": "full",
        "num_samples": 8,
        "epochs": 2,
    }
    error = refusal(edited("/results/total_samples", 14, edited("/results/completed_samples", 14, raw)))
    assert error.detail == "14 of 16 samples (8 in each of 2 epochs) were run (--allow-partial)"


def test_a_score_that_is_missing_in_one_epoch_makes_a_run_partial() -> None:
    error = refusal(in_epochs(scored=15))  # Inspect AI says that all eight samples were scored
    assert (error.pointer, error.detail) == (
        "/samples",
        "15 of 16 samples, in all epochs, were scored by 'match' (--allow-partial)",
    )


def test_epochs_without_samples_are_not_known_to_be_whole() -> None:
    for raw in (edited("/samples", ..., in_epochs()), edited("/samples", [], in_epochs())):
        assert "'match' scored them in each epoch" in refusal(raw).detail
        assert details(raw)["run"]["completeness"] == "not known"


def test_the_epochs_of_an_archive_are_counted_in_its_summaries() -> None:
    log = json.loads(in_epochs())
    summaries = json.dumps(log.pop("samples")).encode()
    header = json.dumps(log).encode()
    assert details(zipped([("summaries.json", summaries), ("header.json", header)]))["run"]["completeness"] == "full"
    less = json.dumps(json.loads(summaries)[:15]).encode()
    assert details(zipped([("summaries.json", less), ("header.json", header)]))["run"]["completeness"] == "partial"
    assert details(zipped([("header.json", header)]))["run"]["completeness"] == "not known"


@pytest.mark.parametrize("limit", [8, 100, [0, 8], [0, 100]])
def test_a_limit_that_the_dataset_does_not_reach_leaves_the_run_full(limit: object) -> None:
    assert details(edited("/eval/config/limit", limit))["run"]["completeness"] == "full"


@pytest.mark.parametrize("limit", [7, [1, 8], [0, 4], 0, -1, "8", [8], [0, "8"], True])
def test_any_other_limit_makes_it_partial(limit: object) -> None:
    assert refusal(edited("/eval/config/limit", limit)).pointer == "/eval/config/limit"


def test_results_of_fewer_samples_than_the_dataset_has_are_partial() -> None:
    error = refusal(edited("/eval/dataset/samples", 1319))
    assert (error.pointer, error.detail) == ("/results/total_samples", "8 of 1319 samples were run (--allow-partial)")


@pytest.mark.parametrize(
    ("pointer", "value", "rule"),
    [
        ("/eval/dataset/samples", None, "the log does not say how many samples the dataset has"),
        ("/eval/dataset/samples", 7, "8 of 7 samples were run, more than there are"),
        ("/results/scores/0/scored_samples", None, "the log does not say how many samples 'match' scored"),
        ("/results/scores/0/scored_samples", 9, "9 of 8 samples were scored by 'match', more than were run"),
    ],
)
def test_what_nothing_says_to_be_whole_is_neither_full_nor_partial(pointer: str, value: object, rule: str) -> None:
    raw = edited(pointer, value)
    assert f"not known whether the whole benchmark was run: {rule}" in refusal(raw).detail
    said = details(raw)
    assert said["run"]["completeness"] == "not known"
    assert said["notes"].startswith(f"Not known whether the whole benchmark was run: {rule}.")
    assert said["run"].get("num_samples", 8) == 8  # never a count that cannot be


# -- scores that were edited --------------------------------------------------------------------------------------


EDITED_SAMPLE = {"id": 1, "scores": {"match": {"value": "C", "history": [{"value": "I"}, {"value": "C"}]}}}
EDIT_EVENT = {"id": 1, "events": [{"event": "model"}, {"event": "score_edit", "score_name": "match"}]}


@pytest.mark.parametrize("sample", [EDITED_SAMPLE, {**EDITED_SAMPLE, "x": math.nan}, EDIT_EVENT])
def test_scores_that_were_edited_by_hand_are_refused_where_they_are_claimed(sample: object) -> None:
    raw = edited("/samples", [{"id": 0, "scores": None}, sample], TWO_SCORERS)
    error = refusal(raw, supplied(metrics={"accuracy": "match/accuracy"}))
    assert (error.code, error.pointer) == (Code.FILE_RULE, "/samples")
    assert "edited by hand after the run" in error.detail
    if sample is not EDIT_EVENT:  # an event alone does not say whose score it was
        built(raw, supplied(metrics={"accuracy": "includes/accuracy"}))


@pytest.mark.parametrize(
    ("sample", "faults"), [({"scores": {"match": {"history": []}}, "store": {"history": [1]}}, 0), (EDITED_SAMPLE, 2), (EDIT_EVENT, 2)]
)  # fmt: skip
def test_edits_are_seen_in_the_samples_of_an_archive_though_its_summaries_hide_them(
    sample: object, faults: int
) -> None:
    header = json.dumps({**json.loads(ONE_SCORER), "reductions": None}).encode()
    members = [("samples/1_epoch_1.json", json.dumps(sample).encode()), ("header.json", header)]
    raw = zipped([("samples/0_epoch_1.json", b"{}"), *members, ("summaries.json", b"[]")])
    assert sum(score.fault is not None for score in inspect_ai.read(raw).scores) == faults


def test_an_archive_of_too_many_samples_is_not_unpacked_and_the_entry_says_so() -> None:
    header = json.dumps({**json.loads(ONE_SCORER), "reductions": None}).encode()
    raw = zipped([("samples/1_epoch_1.json", b"{}" * 4321), ("header.json", header)], 0)
    larger = struct.pack("<2L", MAX_SAMPLES // 100, MAX_SAMPLES + 1)  # packed, unpacked
    said = details(raw.replace(struct.pack("<2L", 8642, 8642), larger))
    assert "too large to search it for scores that were edited by hand" in said["notes"]


@pytest.mark.parametrize(
    "samples",
    [
        [{"scores": {"match": {"history": []}, "other": {"history": None}, "third": {}}, "store": {"history": [1]}}],
        [{"metadata": {"history": ["a", "b"]}, "events": [{"text": '"event": "score_edit"', "event": "model"}]}],
    ],
)
def test_other_things_with_a_history_are_no_edits(samples: object) -> None:
    built(edited("/samples", samples))


@pytest.mark.parametrize("samples", [{"history": [1]}, ["history", {"history": [1]}], [{"scores": [{"history": [1]}]}]])
def test_samples_of_another_form_that_may_hold_an_edit_are_refused(samples: object) -> None:
    assert refusal(edited("/samples", samples)).code is Code.FILE_SCHEMA


def test_absurdly_many_samples_with_an_edit_among_them_are_not_kept_and_the_entry_says_so() -> None:
    raw = bytearray(edited("/samples", "HERE").replace(b'"HERE"', b'[{"history": [1]}' + b",{}" * MAX_OBJECTS + b"]"))
    tracemalloc.start()
    try:
        run = inspect_ai.read(raw)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert run.remarks == ("The log is too large to search it for scores that were edited by hand after the run.",)


# -- what the run ran on ------------------------------------------------------------------------------------------


REAL = edited("/stats/model_usage", {}, edited("/eval/model", "hf/acme/open-model"))


def test_what_a_run_knows_of_its_code_seed_and_batch_is_filled_in() -> None:
    raw = edited("/eval/revision", {"type": "git", "origin": "o", "commit": "5b525c0", "dirty": False}, REAL)
    raw = edited("/eval/model_generate_config", {"seed": 0, "temperature": 0.5}, raw)
    raw = edited("/eval/packages", {"inspect_ai": "0.3.285", "inspect_evals": "0.3.1"}, raw)
    arguments = {"batch_size": 4, "device": "cuda:0", "dtype": "bfloat16", "load_in_4bit": True, "api_key": "x"}
    said = details(edited("/eval/model_args", arguments, raw), supplied(model_repo=None))
    assert said["run"] == {
        "task": "gsm8k_mini",
        "model": "hf/acme/open-model",
        "code_revision": "5b525c0",
        "seed": 0,
        "batch_size": 4,
        "selection": {"accuracy": "match/accuracy", "stderr": "match/stderr"},
        "completeness": "full",
        "num_samples": 8,
    }
    assert said["runtime_context"] == {
        "packages": {"inspect_evals": "0.3.1"}, "device": "cuda:0", "dtype": "bfloat16", "load_in_4bit": True,
    }  # fmt: skip
    assert "notes" not in said


@pytest.mark.parametrize(
    ("model", "run", "seed"), [(None, 7, 7), (3, 7, 7), (3, 0, 0), (3, None, 3), (None, None, None)]
)
def test_the_seed_is_the_runs_or_else_the_models(model: int | None, run: int | None, seed: int | None) -> None:
    raw = edited("/eval/model_generate_config", {"seed": model}, edited("/plan/config", {"seed": run}))
    assert details(raw)["run"].get("seed") == seed


def test_what_a_run_does_not_know_is_not_invented() -> None:
    said = details(edited("/eval/model_args/batch_size", "4", REAL), supplied(model_repo=None))
    assert set(said) == {"date", "artifacts", "run"}
    assert set(said["run"]) == {"task", "model", "selection", "completeness", "num_samples"}


@pytest.mark.parametrize(
    ("pointer", "value", "place"),
    [
        ("/eval/model_roles", {"critic": {"model": "hf/a/b"}, "grader": {"model": "mockllm/x"}}, "/eval/model_roles/grader"),
        ("/eval/model_roles", {"grader": [{"model": "hf/a/b"}, {"model": "mockllm/x"}]}, "/eval/model_roles/grader"),
        ("/results/scores/0/params", {"grader_model": {"model": "mockllm/x"}}, "/results/scores/0/params/grader_model"),
        ("/results/scores/0/params", {"template": "t", "model": ["hf/a/b", "mockllm/x"]}, "/results/scores/0/params/model"),
        ("/stats/model_usage", {"hf/acme/open-model": {}, "mockllm/x": {}}, "/stats/model_usage/mockllm~1x"),
    ],
)  # fmt: skip
def test_a_mock_that_graded_a_real_model_is_a_mock(pointer: str, value: object, place: str) -> None:
    raw = edited(pointer, value, REAL)
    with_ = supplied(model_repo=None)
    error = refusal(raw, with_, allow_mock=False)
    assert (error.code, error.pointer) == (Code.FILE_RULE, place)
    said = inspect_ai.read(raw).claims(with_, allow_mock={"mockllm/x"}).details
    assert said["notes"] == "'mockllm/x' is a mock model: its scores do not describe any real model."


def test_the_models_that_grade_stand_in_the_entry() -> None:
    said = details(edited("/eval/model_roles", {"grader": {"model": "openai/gpt-4o"}}, REAL), supplied(model_repo=None))
    assert said["run"]["model_roles"] == {"grader": "openai/gpt-4o"}


@pytest.mark.parametrize(
    ("pointer", "value", "words"),
    [
        ("/eval/model_base_url", "http://localhost:8000/v1", "the file does not say which weights the server had"),
        ("/eval/model_args", {"port": 8000}, "the file does not say which weights the server had"),
        ("/eval/model_args", {"model_path": "./weights"}, "loaded from a path"),
        ("/eval/model_args", {"enable_lora": True, "lora_modules": "a=/b"}, "('enable_lora', 'lora_modules')"),
    ],
)
def test_weights_from_elsewhere_are_not_those_of_the_name_and_the_entry_says_so(
    pointer: str, value: object, words: str
) -> None:
    raw = edited("/eval/model", "vllm/acme/open-model", REAL)
    raw = edited("/eval/model_args/revision", MODEL_COMMIT, edited(pointer, value, raw))
    run = inspect_ai.read(raw)
    assert (run.model_repo, run.model_revision) == (None, None)
    said = details(raw)["notes"]
    assert words in said
    assert "/b" not in said
    assert "localhost" not in said


@pytest.mark.parametrize("model", ["openai-api/local/acme/open-model", "ollama/acme/open-model"])
def test_a_server_is_said_of_every_provider(model: str) -> None:
    raw = edited("/eval/model_base_url", "http://localhost:1/v1", edited("/eval/model", model, REAL))
    assert "the file does not say which weights the server had" in details(raw)["notes"]


def test_adapters_that_are_switched_off_change_nothing() -> None:
    run = inspect_ai.read(edited("/eval/model_args", {"enable_lora": False, "adapter": None}, REAL))
    assert (run.model_repo is None, run.remarks) == (False, ())


@pytest.mark.parametrize("model", ["anthropic/claude-opus-4-6", "vllm/acme/open-model:acme/adapter", "hf/local"])
def test_a_run_of_another_model_than_the_one_supplied_says_so_in_the_entry(model: str) -> None:
    said = details(edited("/eval/model", model, REAL))["notes"]
    assert said == f"The run names its model '{model}'; the run's owner says that it is acme/open-model."


# -- nothing is invented, nothing is overruled --------------------------------------------------------------------


def test_everything_that_nobody_says_is_named_with_its_flag() -> None:
    error = refusal(edited("/eval/dataset/location", "/data/gsm8k", edited("/eval/metadata", None)), Supplied())
    assert error.code is Code.FILE_SCHEMA
    for flag in ("--model-repo", "--model-revision", "--benchmark-repo", "--benchmark-revision", "--command"):
        assert flag in error.detail
    assert "--task-id" not in error.detail
    assert "--task-id" in refusal(edited("/eval/task", ""), Supplied()).detail
    assert "--framework-version" in refusal(edited("/eval/packages", {}), Supplied()).detail


def test_the_commit_of_the_evaluations_code_is_not_the_models_revision() -> None:
    code = {"type": "git", "origin": "git@example.org:evals.git", "commit": OTHER_COMMIT}
    assert "--model-revision" in refusal(edited("/eval/revision", code), supplied(model_revision=None)).detail


@pytest.mark.parametrize(
    ("member", "given_", "said", "pointer"),
    [
        ("model_revision", OTHER_COMMIT, MODEL_COMMIT, "/eval/metadata/model_revision"),
        ("benchmark_revision", OTHER_COMMIT, BENCHMARK_COMMIT, "/eval/metadata/benchmark_revision"),
        ("benchmark_repo", "acme/gsm8k", "openai/gsm8k", "/eval/dataset/location"),
        ("framework_version", "0.3.286", "0.3.285", "/eval/packages/inspect_ai"),
    ],
)
def test_a_supplied_value_that_contradicts_the_run_is_refused(
    member: str, given_: str, said: str, pointer: str
) -> None:
    error = refusal(TWO_SCORERS, supplied(**{member: given_}))
    assert (error.code, error.pointer) == (Code.FILE_RULE, pointer)
    assert given_ in error.detail
    assert said in error.detail


def test_a_supplied_value_that_the_run_says_too_counts_as_the_runs() -> None:
    assert built(ONE_SCORER, supplied(benchmark_repo="openai/gsm8k")).origins["benchmark_repo"] == "run"


def test_a_supplied_task_id_wins_and_the_runs_own_word_stays_in_the_details() -> None:
    answer = built(ONE_SCORER, supplied(task_id="default"))
    assert (answer.claims.task_id, answer.origins["task_id"]) == ("default", "supplied")
    assert isinstance(answer.details["run"], dict)
    assert answer.details["run"]["task"] == "gsm8k_mini"


def test_the_package_of_a_task_is_not_part_of_its_id() -> None:
    assert built(edited("/eval/task", "inspect_evals/arc_easy")).claims.task_id == "arc_easy"


@pytest.mark.parametrize(
    ("model", "repo"),
    [
        ("hf/acme/open-model", "acme/open-model"),
        ("vllm/acme/open-model", "acme/open-model"),
        ("hf-inference-providers/acme/open-model", "acme/open-model"),
        ("anthropic/claude-opus-4-6", None),  # the shape of a Hub name
        ("openai/azure/gpt-4o-mini", None),
        ("ollama/qwen2.5:0.5b", None),
        ("vllm/acme/open-model:acme/adapter", None),
        ("hf-inference-providers/acme/open-model:fastest", None),
        ("hf/local", None),
    ],
)
def test_a_model_name_is_a_hub_name_only_where_its_provider_means_one(model: str, repo: str | None) -> None:
    said = inspect_ai.read(edited("/eval/model", model)).model_repo
    assert (said.text if said else None) == repo


def test_weights_loaded_from_a_path_are_not_the_model_of_the_label() -> None:
    raw = edited("/eval/model_args/model_path", "./weights", edited("/eval/model", "hf/acme/open-model"))
    assert inspect_ai.read(raw).model_repo is None


def test_the_commit_that_the_provider_loaded_is_the_models_revision() -> None:
    hub = edited("/eval/model", "hf/acme/open-model")
    said = inspect_ai.read(edited("/eval/model_args/revision", MODEL_COMMIT, hub)).model_revision
    assert said is not None
    assert said.text == MODEL_COMMIT
    assert inspect_ai.read(edited("/eval/model_args/revision", "main", hub)).model_revision is None
    two = edited("/eval/metadata/model_revision", OTHER_COMMIT, edited("/eval/model_args/revision", MODEL_COMMIT, hub))
    error = refusal(two, supplied(model_revision=None))
    assert (error.code, error.pointer) == (Code.FILE_RULE, "/eval/metadata/model_revision")


@pytest.mark.parametrize("location", ["data/test.jsonl", "data/test.CSV", "/data/gsm8k", "gsm8k", "s3://b/c", None])
def test_a_dataset_that_is_no_hub_repository_must_be_supplied(location: str | None) -> None:
    raw = edited("/eval/dataset/location", location)
    assert "--benchmark-repo" in refusal(raw).detail
    assert built(raw, supplied(benchmark_repo="openai/gsm8k")).origins["benchmark_repo"] == "supplied"


def test_a_value_that_breaks_the_contract_is_refused_at_its_source() -> None:
    said = refusal(edited("/eval/metadata/benchmark_revision", "main"))
    assert (said.code, said.pointer) == (Code.CLAIMS_REVISION, "/eval/metadata/benchmark_revision")
    given_ = refusal(ONE_SCORER, supplied(model_revision="9f3c2c9"))
    assert (given_.code, given_.pointer) == (Code.CLAIMS_REVISION, "")
    assert given_.detail.startswith("--model-revision: ")
    assert refusal(ONE_SCORER, supplied(command="")).detail.startswith("--command: ")


def test_a_secret_in_the_command_is_refused_and_not_repeated() -> None:
    secret = "hf_" + "a1B2" * 8
    error = refusal(ONE_SCORER, supplied(command=f"HF_TOKEN={secret} inspect eval t.py"))
    assert error.code is Code.CLAIMS_SECRET
    assert secret not in str(error)


# -- metrics ------------------------------------------------------------------------------------------------------


def test_two_scorers_without_a_selector_are_refused_naming_the_selectors() -> None:
    error = refusal(TWO_SCORERS)
    assert error.code is Code.FILE_RULE
    for selector in ("'match/accuracy'", "'match/stderr'", "'includes/accuracy'", "'includes/stderr'"):
        assert selector in error.detail


def test_two_scorers_need_a_selector_even_if_no_metric_is_named_twice() -> None:
    raw = edited("/results/scores/1/metrics", {"f1": {"name": "f1", "value": 0.5}}, TWO_SCORERS)
    assert "'includes/f1'" in refusal(raw).detail
    assert built(raw, supplied(metrics={"f1": "f1"})).claims.metrics == (metric("f1", 0.5),)


@pytest.mark.parametrize(("selector", "value"), [("match/accuracy", 0.625), ("includes/accuracy", 0.75)])
def test_a_selector_chooses_among_scorers(selector: str, value: float) -> None:
    assert built(TWO_SCORERS, supplied(metrics={"accuracy": selector})).claims.metrics == (metric("accuracy", value),)


@pytest.mark.parametrize("selector", ["accuracy", "match/f1", "judge/accuracy", "", "match@mean/accuracy"])
def test_a_selector_that_means_no_score_or_several_is_refused(selector: str) -> None:
    error = refusal(TWO_SCORERS, supplied(metrics={"accuracy": selector}))
    assert error.code is Code.FILE_RULE
    assert "includes/accuracy" in error.detail


def test_two_reducers_of_one_scorer_are_told_apart_by_the_selector() -> None:
    log = json.loads(ONE_SCORER)
    mean = log["results"]["scores"][0]
    best = copy.deepcopy(mean)
    mean["reducer"], best["reducer"] = "mean", "max"
    best["metrics"]["accuracy"]["value"] = 1.0
    log["results"]["scores"].append(best)
    raw = json.dumps(log).encode()
    assert "match@max/accuracy" in refusal(raw).detail
    assert "match@max/accuracy" in refusal(raw, supplied(metrics={"accuracy": "match/accuracy"})).detail
    chosen = built(raw, supplied(metrics={"pass": "match@max/accuracy"}))
    assert chosen.claims.metrics == (metric("pass", 1),)
    assert chosen.details["run"]["selection"] == {"pass": "match@max/accuracy"}  # type: ignore[index,call-overload]


def test_one_scorer_listed_twice_is_ambiguous() -> None:
    log = json.loads(ONE_SCORER)
    log["results"]["scores"] *= 2
    assert refusal(json.dumps(log).encode()).code is Code.FILE_RULE


def test_a_metric_that_is_nan_is_refused_only_where_it_is_chosen() -> None:
    raw = edited("/results/scores/0/metrics/stderr/value", math.nan)
    assert b"NaN" in raw
    error = refusal(raw)
    assert (error.code, error.pointer) == (Code.FILE_NUMBER, "/results/scores/0/metrics/stderr/value")
    assert built(raw, supplied(metrics={"accuracy": "accuracy"})).claims.metrics == (metric("accuracy", 0.625),)


@pytest.mark.parametrize(
    "number", [b"1e999", b"1e99999999999999999999", b"0.1234567890123456789", b"-Infinity", b"1e16"]
)
def test_a_metric_that_a_double_cannot_carry_is_refused(number: bytes) -> None:
    assert refusal(ONE_SCORER.replace(b"0.625", number)).code is Code.FILE_NUMBER


@pytest.mark.parametrize("value", [True, None, "0.625", [0.625]])
def test_a_metric_that_is_no_number_is_refused(value: object) -> None:
    error = refusal(edited("/results/scores/0/metrics/accuracy/value", value))
    assert (error.code, error.pointer) == (Code.FILE_SCHEMA, "/results/scores/0/metrics/accuracy/value")


def test_a_metric_id_that_breaks_the_contract_is_refused_at_its_score() -> None:
    log = json.loads(ONE_SCORER)
    metrics = log["results"]["scores"][0]["metrics"]
    metrics["not an/id"] = metrics.pop("stderr")
    error = refusal(json.dumps(log).encode())
    assert (error.code, error.pointer) == (Code.CLAIMS_INVALID, "/results/scores/0/metrics/not an~1id/value")


# -- hostile bytes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", Code.FILE_SYNTAX),
        (b"[]", Code.FILE_SCHEMA),
        (b"null", Code.FILE_SCHEMA),
        (b"\xff", Code.FILE_ENCODING),
        (b"[" * 200_000, Code.FILE_SCHEMA),
        (b'{"a":' + b"[" * 200_000, Code.FILE_TOO_LARGE),
        (b'{"a":' * 500 + b"1" + b"}" * 500, Code.FILE_TOO_LARGE),
        (ONE_SCORER.replace(b'"status"', b'"status": "error", "status"', 1), Code.FILE_DUPLICATE_KEY),
        (edited("/version", 3), Code.FILE_SCHEMA),
    ],
)
def test_bytes_that_are_no_log_are_refused(raw: bytes, code: Code) -> None:
    assert refusal(raw).code is code


def test_absurdly_many_metrics_are_refused() -> None:
    metrics = {str(number): {"value": 0} for number in range(20_000)}
    assert refusal(edited("/results/scores/0/metrics", metrics)).code is Code.FILE_SCHEMA


REQUIRED = (
    "/status", "/eval", "/eval/created", "/eval/task", "/eval/model", "/eval/dataset", "/eval/config",
    "/results/total_samples", "/results/completed_samples", "/results/scores/0/name", "/results/scores/0/metrics",
    "/results/scores/0/metrics/accuracy/value",
)  # fmt: skip
OPTIONAL = (
    "/version", "/invalidated", "/eval/dataset/location", "/eval/dataset/samples", "/eval/config/epochs",
    "/eval/model_base_url", "/eval/model_roles", "/eval/model_generate_config", "/eval/model_generate_config/seed",
    "/results/scores/0/scored_samples", "/results/scores/0/params", "/stats/model_usage", "/plan", "/plan/config/seed", "/eval/packages", "/eval/packages/inspect_ai",
    "/eval/metadata", "/eval/metadata/model_revision", "/eval/metadata/benchmark_revision", "/eval/model_args",
    "/eval/revision", "/results", "/results/scores", "/results/scores/0", "/results/scores/0/reducer",
    "/results/scores/0/unscored_samples", "/results/scores/0/metrics/accuracy", "/results/logged_samples",
    "/stats", "/stats/completed_at",
)  # fmt: skip
# Of a type that none of these members has; 1e999 is written as Infinity.
WRONG: tuple[object, ...] = ([[]], [{"a": 1}], "\x1b[2J", -1.5, math.inf)


@pytest.mark.parametrize("pointer", REQUIRED + OPTIONAL)
def test_a_wrong_type_at_each_member_that_is_read_is_refused_and_nothing_else_escapes(pointer: str) -> None:
    refused = [error for wrong in WRONG if (error := refusal_or_none(edited(pointer, wrong)))]
    assert len(refused) >= len(WRONG) - 1  # text and numbers are right at some
    assert not any("\x1b" in str(error) for error in refused)


@pytest.mark.parametrize("pointer", REQUIRED)
def test_a_member_that_must_be_there_is_missed_at_its_place(pointer: str) -> None:
    error = refusal(edited(pointer, ...))
    assert error.code is Code.FILE_SCHEMA
    assert pointer.startswith(error.pointer)


@given(st.integers(0, len(ONE_SCORER) - 1))
def test_a_truncated_log_is_refused(end: int) -> None:
    assert refusal(ONE_SCORER[:end].rstrip()).code is Code.FILE_SYNTAX


@given(st.integers(0, len(TWO_SCORERS) - 1), st.integers(0, 40), st.binary(max_size=8))
def test_no_other_exception_escapes_for_any_bytes(at: int, length: int, instead: bytes) -> None:
    raw = TWO_SCORERS[:at] + instead + TWO_SCORERS[at + length :]
    error = refusal_or_none(raw, supplied(metrics={"accuracy": "match/accuracy"}))
    assert error is None or error.code.value.startswith(("file.", "claims."))
