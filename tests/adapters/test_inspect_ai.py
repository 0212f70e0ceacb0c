"""Inspect AI logs: real ones give their claims; partial, incomplete and ambiguous ones are refused with the place."""

import copy
import hashlib
import json
import math
import tracemalloc
from typing import Any

import msgspec
from msgspec import UNSET

from issuer.adapters import Built, Supplied, inspect_ai
from issuer.adapters.inspect_log import MAX_OBJECTS
from issuer.codes import Code
from issuer.errors import InputError
from issuer.formats import jcs
from issuer.results.claims import Metric
from tests.support import runs
from tests.support.runs import ALL, BENCHMARK_COMMIT, DATA, MODEL_COMMIT, OTHER_COMMIT, refusal_or_none, zipped
from tests.support.shared import ROOT

ONE_SCORER = (ROOT / "issuer" / "dev" / "runs" / "gsm8k_mini_inspect_ai.json").read_bytes()
TWO_SCORERS = (DATA / "inspect_two_scorers.json").read_bytes()
ASKED = {"epochs": 1, "solver.0.name": "generate", "solver.0.params.tool_calls": "loop"}
NEEDED = Supplied(model_repo=ALL.model_repo, model_revision=MODEL_COMMIT, command="inspect eval gsm8k_mini.py")


def supplied(**more: Any) -> Supplied:
    return msgspec.structs.replace(NEEDED, **more)


def built(raw: bytes, with_: Supplied = NEEDED) -> Built:
    return inspect_ai.read(raw, "log.json").claims(with_, allow_mock=True)


def metric(metric_id: str, value: float) -> Metric:
    """Return a metric of all the eight samples."""
    return Metric(metric_id, value, sample_size=8)


def edited(pointer: str, value: object, raw: bytes = ONE_SCORER) -> bytes:
    return runs.edited(raw, pointer, value)


def refusal(raw: bytes, with_: Supplied = NEEDED, *, allow_mock: bool = True) -> InputError:
    error = runs.refusal(lambda: inspect_ai.read(raw, "log.json").claims(with_, allow_mock=allow_mock))
    assert error.place.file == "log.json"
    return error


def details(raw: bytes, with_: Supplied = NEEDED) -> dict[str, Any]:
    """Return the details of a log's claims, partial or not."""
    return inspect_ai.read(raw, "log.json").claims(with_, allow_mock=True, allow_partial=True).details


# -- the claims of a whole run ---------------------------------------------------------------------------------------


def test_the_only_scorer_gives_all_its_metrics_under_their_own_names() -> None:
    claims = built(ONE_SCORER).claims
    assert claims.metrics == (metric("accuracy", 0.625), metric("stderr", 0.18298126367784995))
    assert (claims.benchmark_repo, claims.benchmark_revision) == ("openai/gsm8k", BENCHMARK_COMMIT)
    assert (claims.task_id, claims.framework.version) == ("gsm8k_mini", "0.3.285")
    # Each claim has its origin.
    ours = ("model_repo", "model_revision", "framework.command")
    theirs = ("benchmark_repo", "benchmark_revision", "task_id", "metrics", "framework.name", "framework.version")
    assert built(ONE_SCORER).origins == {**dict.fromkeys(ours, "supplied"), **dict.fromkeys(theirs, "run")}
    assert built(ONE_SCORER, supplied(benchmark_repo="openai/gsm8k")).origins["benchmark_repo"] == "run"


def test_details_bind_the_log_its_date_its_names_the_selection_and_the_samples() -> None:
    run = inspect_ai.read(ONE_SCORER, "runs/gsm8k.json")
    digest = hashlib.sha256(ONE_SCORER).hexdigest()
    assert run.details == {
        "date": json.loads(ONE_SCORER)["stats"]["completed_at"],
        # Not runs/gsm8k.json: folders of the machine that made the claims are private.
        "artifacts": [{"name": "gsm8k.json", "sha256": f"sha256:{digest}"}],
        "run": {"task": "gsm8k_mini", "model": "mockllm/model"},
    }
    answer = built(TWO_SCORERS, supplied(metrics={"accuracy": "includes/accuracy", "error": "match/stderr"}))
    assert answer.details["run"] == {
        "task": "gsm8k_mini", "model": "mockllm/model", "completeness": "full", "num_samples": 8, "arguments": ASKED,
        "selection": {"accuracy": "includes/accuracy", "error": "match/stderr"},
    }  # fmt: skip


def test_a_date_is_a_moment_of_completion_or_else_of_creation() -> None:
    raw = edited("/stats/completed_at", "")
    assert built(raw).details["date"] == json.loads(raw)["eval"]["created"]
    for date in ("yesterday", "2026-11-21", "2026-11-21T09:00:00", "2026-02-30T00:00:00Z"):
        error = refusal(edited("/stats/completed_at", date))
        assert (error.code, error.pointer) == (Code.FILE_RULE, "/stats/completed_at")


# -- runs that are not whole --------------------------------------------------------------------------------------


def test_a_run_that_is_not_whole_is_refused() -> None:
    places: dict[str, list[object]] = {
        "/status": ["error", "started", "cancelled"], "/invalidated": [True], "/eval/config/limit": [4, [0, 4]],
        "/eval/config/sample_id": [[1, 2]], "/eval/revision": [{"type": "git", "origin": "o", "commit": "5b525c0", "dirty": True}],
        "/results": [None], "/results/completed_samples": [7, 9], "/results/logged_samples": [7],
        "/results/early_stopping": [{"manager": "m"}], "/results/scores": [[]], "/results/scores/0/metrics": [{}],
        "/results/scores/0/unscored_samples": [1],
    }  # fmt: skip
    for pointer, value in ((pointer, value) for pointer, values in places.items() for value in values):
        assert refusal(edited(pointer, value)).code is Code.FILE_RULE, (pointer, value)
    empty = edited("/results/total_samples", 0, edited("/results/completed_samples", 0))
    assert refusal(empty).pointer == "/results/total_samples"


def test_samples_without_a_score_make_a_run_partial() -> None:
    # A scorer that returns None: completed_samples is the whole, unscored_samples 0.
    raw = edited("/results/scores/0/scored_samples", 5)
    error = refusal(raw)
    assert error.pointer == "/results/scores/0/scored_samples"
    assert error.detail == "5 of 8 samples were scored by 'match' (--allow-partial)"
    entry = details(raw)
    assert (entry["run"]["completeness"], entry["run"]["num_samples"]) == ("partial", 5)
    assert entry["notes"].startswith("Partial run: 5 of 8 samples were scored by 'match'.")


def test_samples_with_an_error_make_a_run_partial_whatever_its_results_count() -> None:
    failed, called = {"error": {"message": "timeout"}}, {"events": [{"event": "tool", "error": {"type": "timeout"}}]}
    raw = edited("/samples", [{"error": None}, called, failed, {**failed, "scores": {"match": {}}}])
    error = refusal(raw)
    assert (error.pointer, error.detail) == ("/samples", "2 of 8 samples ended with an error (--allow-partial)")
    assert details(raw)["run"]["completeness"] == "partial"
    header = ("header.json", json.dumps({**json.loads(ONE_SCORER), "reductions": None}).encode())
    packed = zipped([("samples/0_epoch_1.json", json.dumps(failed).encode()), header])
    assert [fault.pointer for fault in inspect_ai.read(packed).partial] == ["/samples"]
    for sample in (called, {"error": None}):
        built(edited("/samples", [sample]))


def in_epochs(scored: int = 16) -> bytes:
    """Return a log of eight samples in two epochs, with this number of scores."""
    raw = edited("/eval/config/epochs", 2)
    for pointer in ("/results/total_samples", "/results/completed_samples"):
        raw = edited(pointer, 16, raw)
    return edited("/samples", [{"scores": {"match": {}}}] * scored + [{"scores": {}}, {}] * (16 - scored), raw)


def test_epochs_are_told_apart_from_the_samples() -> None:
    raw = in_epochs()
    answer = built(edited("/eval/config/epochs_reducer", ["mean"], raw))
    assert answer.claims.metrics[0] == metric("accuracy", 0.625)
    assert answer.details["run"] == {
        "task": "gsm8k_mini", "model": "mockllm/model", "completeness": "full", "num_samples": 8, "epochs": 2,
        "arguments": {**ASKED, "epochs": 2, "epochs_reducer.0": "mean"},
        "selection": {"accuracy": "match@mean/accuracy", "stderr": "match@mean/stderr"},
    }  # fmt: skip
    error = refusal(edited("/results/total_samples", 14, edited("/results/completed_samples", 14, raw)))
    assert error.detail == "14 of 16 samples (8 in each of 2 epochs) were run (--allow-partial)"
    # A score that is missing in one epoch makes a run partial.
    error = refusal(in_epochs(scored=15))  # Inspect AI says that all eight samples were scored
    assert error.pointer == "/samples"
    assert error.detail == "15 of 16 samples, in all epochs, were scored by 'match' (--allow-partial)"
    for raw in (edited("/samples", ..., in_epochs()), edited("/samples", [], in_epochs())):
        assert "'match' scored them in each epoch" in refusal(raw).detail
        assert details(raw)["run"]["completeness"] == "not known"
    # Those of an archive are counted in its summaries.
    log = json.loads(in_epochs())
    samples, header = log.pop("samples"), ("header.json", json.dumps(log).encode())
    for count, completeness in ((16, "full"), (15, "partial")):
        summaries = ("summaries.json", json.dumps(samples[:count]).encode())
        assert details(zipped([summaries, header]))["run"]["completeness"] == completeness
    for without in ([header], [("summaries.json", b"[]"), header]):  # the second is what log_samples=False writes
        assert details(zipped(without))["run"]["completeness"] == "not known"


def test_only_a_limit_that_the_dataset_does_not_reach_leaves_the_run_full() -> None:
    assert details(edited("/eval/config/sample_id", list(range(8))))["run"]["completeness"] == "full"
    assert refusal(edited("/eval/config/sample_id", list(range(7)))).pointer == "/eval/config/sample_id"
    assert refusal(edited("/eval/config/sample_id", "*")).pointer == "/eval/config/sample_id"
    for limit in (8, 100, [0, 8], [0, 100]):
        assert details(edited("/eval/config/limit", limit))["run"]["completeness"] == "full"
    bad: list[Any] = [7, [1, 8], [0, 4], 0, -1, "8", [8], [0, "8"], True]
    for limit in bad:
        assert refusal(edited("/eval/config/limit", limit)).pointer == "/eval/config/limit"
    error = refusal(edited("/eval/dataset/samples", 1319))
    assert (error.pointer, error.detail) == ("/results/total_samples", "8 of 1319 samples were run (--allow-partial)")


def test_a_run_with_unclear_counts_is_neither_full_nor_partial() -> None:
    for pointer, value, rule in (
        ("/eval/dataset/samples", None, "the log does not say how many samples the dataset has"),
        ("/eval/dataset/samples", 7, "8 of 7 samples were run, more than there are"),
        ("/results/scores/0/scored_samples", None, "the log does not say how many samples 'match' scored"),
        ("/results/scores/0/scored_samples", 9, "9 of 8 samples were scored by 'match', more than were run"),
    ):
        raw = edited(pointer, value)
        assert f"not known whether the whole benchmark was run: {rule}" in refusal(raw).detail
        entry = details(raw)
        assert entry["run"]["completeness"] == "not known"
        assert entry["notes"].startswith(f"Not known whether the whole benchmark was run: {rule}.")
        assert entry["run"].get("num_samples", 8) == 8, "an impossible count is left out"


def test_a_run_of_a_task_with_passed_arguments_is_not_known_to_be_whole() -> None:
    given = {"n": 3, "subset": "a", "folder": "/home/me/data", "other": None}
    for passed, known in (({"n": 3}, False), ({}, True), (..., False)):
        raw = edited("/eval/task_args_passed", passed, edited("/eval/task_args", given))
        run = details(raw)["run"]
        assert run["completeness"] == ("full" if known else "not known")
        asked = {name: value for name, value in run["arguments"].items() if name.startswith("task.")}
        assert asked == {"task.n": 3, "task.subset": "a", "task.folder": jcs.digest("/home/me/data")}
    error = refusal(edited("/eval/task_args_passed", {"n": 3}))
    assert (error.pointer, "by default: 'n' (--allow-partial)" in error.detail) == ("/eval/task_args_passed", True)
    built(edited("/eval/task_args", {}, edited("/eval/task_args_passed", ...)))


def test_what_can_change_a_score_is_an_argument_and_the_connection_is_not() -> None:
    plan = {
        "steps": [{"solver": "few_shot", "params": {"k": 2, "template": "x" * 300}, "params_passed": {"agent": "a"}}],
        "config": {
            "temperature": 0.5,
            "top_p": None,
            "seed": 7,
            "max_connections": 1,
            "extra_headers": {"x": "Bearer y"},
        },
    }
    raw = edited("/eval/model_generate_config", {"temperature": 1, "top_p": 0.9, "timeout": 5}, edited("/plan", plan))
    raw = edited("/eval/config/message_limit", 30, raw)
    assert details(raw)["run"]["arguments"] == {
        "epochs": 1, "generation.extra_headers": jcs.digest({"x": "Bearer y"}), "generation.temperature": 0.5, "generation.top_p": 0.9,
        "message_limit": 30, "solver.0.name": "few_shot", "solver.0.params.agent": "a", "solver.0.params.k": 2,
        "solver.0.params.template": jcs.digest("x" * 300),
    }  # fmt: skip
    many = details(edited("/eval/task_args", {f"n{i}": i for i in range(64)}))["run"]
    assert ([*many["arguments"]], many["completeness"]) == (["all"], "not known")


def test_the_groups_of_a_grouped_metric_are_slices() -> None:
    params = {"metric": {"type": "metric", "name": "inspect_ai/mean", "params": {}}, "group_key": "topic"}
    metrics = {
        "accuracy": {"name": "accuracy", "value": 0.5}, "math": {"name": "math", "value": 0.25, "params": params},
        "High School1": {"name": "High School", "value": 0.75, "params": params}, "all": {"name": "all", "value": 0.5, "params": params},
        "x": {"name": "é" * 30, "value": 1, "params": params}, "all1": {"name": "all", "value": 1, "params": {**params, "all": False}},
    }  # fmt: skip
    claimed = built(edited("/results/scores/0/metrics", metrics)).claims.metrics
    assert {(metric.metric_id, metric.slice or ""): metric.sample_size for metric in claimed} == {
        ("accuracy", ""): 8, ("all", ""): 8, ("mean", "High%20School"): UNSET, ("mean", "math"): UNSET, ("mean", "all"): UNSET,
        ("mean", jcs.digest("é" * 30)): UNSET,
    }  # fmt: skip


def test_a_group_s_size_is_counted_in_the_samples_if_they_are_all_those_with_a_score() -> None:
    params = {"metric": {"name": "mean"}, "group_key": "topic", "name_template": "of {group_name}"}
    metrics = {name: {"name": f"of {name}", "value": 1, "params": params} for name in ("math", "True")}
    raw = edited("/results/scores/0/metrics", metrics)
    topics = ["math"] * 5 + [True] * 3
    samples: list[dict[str, Any]] = [
        {"id": n, "metadata": {"topic": topic, "x": math.nan}, "scores": {"match": {}}} for n, topic in enumerate(topics)
    ]  # fmt: skip
    header = ("header.json", json.dumps({**json.loads(raw), "samples": None}).encode())
    unscored, unknown = [{**samples[0], "scores": None}, *samples[1:]], [None, None]
    for logged, sizes in ((samples, [5, 3]), (samples * 2, [5, 3]), (samples[1:], unknown), (unscored, unknown)):
        packed = [(f"samples/{n}.json", json.dumps(one).encode()) for n, one in enumerate(logged)]
        archive = zipped([header, *packed])
        for text in (edited("/samples", logged, raw), archive):
            assert [score.samples for score in inspect_ai.read(text).scores] == sizes
    # Groups and keys that a scorer's metrics cannot have in such numbers are not counted.
    for keys, groups, size in ((16, 256, 1), (16, 257, None), (17, 1, None)):
        numbers = {
            f"m{n}": {"name": "of g0", "value": 1, "params": {**params, "group_key": f"k{n}"}} for n in range(keys)
        }
        many = edited("/results/scores/0/metrics", numbers, edited("/results/scores/0/scored_samples", groups))
        logged = [
            {"id": n, "metadata": {f"k{key}": f"g{n}" for key in range(keys)}, "scores": {"match": {}}}
            for n in range(groups)
        ]
        text = edited("/samples", logged, edited("/results/total_samples", groups, many))
        text = edited("/results/completed_samples", groups, text)
        assert {score.samples for score in inspect_ai.read(text).scores} == {size}, (keys, groups)


# -- scores that were edited --------------------------------------------------------------------------------------


EDITED_SAMPLE = {"id": 1, "scores": {"match": {"value": "C", "history": [{"value": "I"}, {"value": "C"}]}}}
EDIT_EVENT = {"id": 1, "events": [{"event": "model"}, {"event": "score_edit", "score_name": "match"}]}


def test_scores_that_were_edited_by_hand_are_refused_where_they_are_claimed() -> None:
    for sample in (EDITED_SAMPLE, {**EDITED_SAMPLE, "x": math.nan}, EDIT_EVENT):
        raw = edited("/samples", [{"id": 0, "scores": None}, sample], TWO_SCORERS)
        error = refusal(raw, supplied(metrics={"accuracy": "match/accuracy"}))
        assert (error.code, error.pointer) == (Code.FILE_RULE, "/samples")
        assert "edited by hand after the run" in error.detail
        if sample is not EDIT_EVENT:  # an event alone does not name the score
            built(raw, supplied(metrics={"accuracy": "includes/accuracy"}))


def test_edits_are_seen_in_the_samples_of_an_archive_though_its_summaries_hide_them() -> None:
    header = json.dumps({**json.loads(ONE_SCORER), "reductions": None}).encode()
    unedited = {"scores": {"match": {"history": []}}, "store": {"history": [1]}}
    for sample, faults in ((unedited, 0), (EDITED_SAMPLE, 2), (EDIT_EVENT, 2)):
        members = [("samples/1_epoch_1.json", json.dumps(sample).encode()), ("header.json", header)]
        raw = zipped([("samples/0_epoch_1.json", b"{}"), *members, ("summaries.json", b"[]")])
        assert sum(score.fault is not None for score in inspect_ai.read(raw).scores) == faults


def test_too_many_samples_are_not_unpacked_or_kept_and_the_entry_says_so() -> None:
    header = json.dumps({**json.loads(ONE_SCORER), "reductions": None}).encode()
    raw = zipped(
        [("header.json", header), *((f"samples/{at}_epoch_1.json", b"no JSON".ljust(2**20)) for at in range(40))]
    )
    entry = details(raw)
    assert "too large to search it for scores that were edited by hand" in entry["notes"]
    many = bytearray(edited("/samples", "HERE").replace(b'"HERE"', b'[{"history": [1]}' + b",{}" * MAX_OBJECTS + b"]"))
    tracemalloc.start()
    try:
        run = inspect_ai.read(many)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert run.remarks == ("The log is too large to search it for scores that were edited by hand after the run.",)


def test_only_an_edit_of_a_score_counts_as_one() -> None:
    scores = {"match": {"history": []}, "other": {"history": None}, "third": {}}
    for sample in (
        {"scores": scores, "store": {"history": [1]}},
        {"metadata": {"history": ["a", "b"]}, "events": [{"text": '"event": "score_edit"', "event": "model"}]},
    ):
        built(edited("/samples", [sample]))
    unclear: list[object] = [{"history": [1]}, ["history", {"history": [1]}], [{"scores": [{"history": [1]}]}]]
    for samples in unclear:
        assert refusal(edited("/samples", samples)).code is Code.FILE_SCHEMA


# -- code, seed and models ------------------------------------------------------------------------------------------


REAL = edited("/stats/model_usage", {}, edited("/eval/model", "hf/acme/open-model"))


def test_the_entry_has_the_run_s_code_seed_batch_and_runtime() -> None:
    raw = edited("/eval/revision", {"type": "git", "origin": "o", "commit": "5b525c0", "dirty": False}, REAL)
    raw = edited("/eval/model_generate_config", {"seed": 0, "temperature": 0.5}, raw)
    raw = edited("/eval/packages", {"inspect_ai": "0.3.285", "inspect_evals": "0.3.1"}, raw)
    arguments = {"batch_size": 4, "device": "cuda:0", "dtype": "bfloat16", "load_in_4bit": True, "api_key": "x"}
    named = supplied(model_repo=None)
    entry = details(edited("/eval/model_args", arguments, raw), named)
    assert entry["run"] == {
        "task": "gsm8k_mini", "model": "hf/acme/open-model", "code_revision": "5b525c0", "seed": 0, "batch_size": 4,
        "selection": {"accuracy": "match/accuracy", "stderr": "match/stderr"}, "completeness": "full", "num_samples": 8,
        "arguments": {**ASKED, "generation.temperature": 0.5},
    }  # fmt: skip
    assert entry["runtime_context"] == {
        "packages": {"inspect_evals": "0.3.1"}, "device": "cuda:0", "dtype": "bfloat16", "load_in_4bit": True,
    }  # fmt: skip
    assert "notes" not in entry
    for model, run, seed in ((None, 7, 7), (3, 7, 7), (3, 0, 0), (3, None, 3), (None, None, None)):
        raw = edited("/eval/model_generate_config", {"seed": model}, edited("/plan/config", {"seed": run}))
        assert details(raw)["run"].get("seed") == seed, "the run's, or else the model's"
    entry = details(edited("/eval/model_args/batch_size", "4", REAL), named)  # unknown members are left out
    assert set(entry) == {"date", "artifacts", "run"}
    assert set(entry["run"]) == {"task", "model", "selection", "completeness", "num_samples", "arguments"}


def test_a_mock_model_or_one_that_graded_is_refused_unless_it_is_allowed_by_name() -> None:
    roles, params = "/eval/model_roles", "/results/scores/0/params"
    error = refusal(ONE_SCORER, allow_mock=False)
    assert (error.code, error.pointer, "--allow-mock" in error.detail) == (Code.FILE_RULE, "/eval/model", True)
    places: list[tuple[str, object, str]] = [
        (roles, {"critic": {"model": "hf/a/b"}, "grader": {"model": "mockllm/x"}}, f"{roles}/grader"),
        (roles, {"grader": [{"model": "hf/a/b"}, {"model": "mockllm/x"}]}, f"{roles}/grader"),
        (params, {"grader_model": {"model": "mockllm/x"}}, f"{params}/grader_model"),
        (params, {"template": "t", "model": ["hf/a/b", "mockllm/x"]}, f"{params}/model"),
        ("/stats/model_usage", {"hf/acme/open-model": {}, "mockllm/x": {}}, "/stats/model_usage/mockllm~1x"),
    ]
    with_ = supplied(model_repo=None)
    for pointer, value, place in places:
        raw = edited(pointer, value, REAL)
        error = refusal(raw, with_, allow_mock=False)
        assert (error.code, error.pointer) == (Code.FILE_RULE, place)
        notes = inspect_ai.read(raw).claims(with_, allow_mock={"mockllm/x"}).details["notes"]
        assert notes == "'mockllm/x' is a mock model: its scores do not describe any real model."
    entry = details(edited(roles, {"grader": {"model": "openai/gpt-4o"}}, REAL), with_)
    assert entry["run"]["model_roles"] == {"grader": "openai/gpt-4o"}


def test_weights_from_elsewhere_are_not_those_of_the_name_and_the_entry_says_so() -> None:
    places: list[tuple[str, object, str]] = [
        ("/eval/model_base_url", "http://localhost:8000/v1", "the file does not say which weights the server had"),
        ("/eval/model_args", {"port": 8000}, "the file does not say which weights the server had"),
        ("/eval/model_args", {"model_path": "./weights"}, "loaded from a path"),
        ("/eval/model_args", {"enable_lora": True, "lora_modules": "a=/b"}, "('enable_lora', 'lora_modules')"),
    ]
    for pointer, value, words in places:
        raw = edited(pointer, value, edited("/eval/model", "vllm/acme/open-model", REAL))
        raw = edited("/eval/model_args/revision", MODEL_COMMIT, raw)
        run = inspect_ai.read(raw)
        assert (run.model_repo, run.model_revision) == (None, None)
        notes = details(raw)["notes"]
        assert (words in notes, "/b" in notes, "localhost" in notes) == (True, False, False), notes
    for model in ("openai-api/local/acme/open-model", "ollama/acme/open-model"):
        raw = edited("/eval/model_base_url", "http://localhost:1/v1", edited("/eval/model", model, REAL))
        assert "the file does not say which weights the server had" in details(raw)["notes"]
    unused = inspect_ai.read(edited("/eval/model_args", {"enable_lora": False, "adapter": None}, REAL))
    assert (unused.model_repo is None, unused.remarks) == (False, ())


# -- supplied and missing values --------------------------------------------------------------------


def test_every_missing_value_is_named_with_its_flag() -> None:
    error = refusal(edited("/eval/dataset/location", "/data/gsm8k", edited("/eval/metadata", None)), Supplied())
    assert error.code is Code.FILE_SCHEMA
    for flag in ("--model-repo", "--model-revision", "--benchmark-repo", "--benchmark-revision", "--command"):
        assert flag in error.detail
    assert "--task-id" not in error.detail
    assert "--task-id" in refusal(edited("/eval/task", ""), Supplied()).detail
    assert "--framework-version" in refusal(edited("/eval/packages", {}), Supplied()).detail
    # The commit of the evaluation's code is not the model's revision.
    code = {"type": "git", "origin": "git@example.org:evals.git", "commit": OTHER_COMMIT}
    assert "--model-revision" in refusal(edited("/eval/revision", code), supplied(model_revision=None)).detail


def test_a_supplied_value_that_contradicts_the_run_is_refused() -> None:
    for member, given_, own, pointer in (
        ("model_revision", OTHER_COMMIT, MODEL_COMMIT, "/eval/metadata/model_revision"),
        ("benchmark_revision", OTHER_COMMIT, BENCHMARK_COMMIT, "/eval/metadata/benchmark_revision"),
        ("benchmark_repo", "acme/gsm8k", "openai/gsm8k", "/eval/dataset/location"),
        ("framework_version", "0.3.286", "0.3.285", "/eval/packages/inspect_ai"),
    ):
        error = refusal(TWO_SCORERS, supplied(**{member: given_}))
        assert (error.code, error.pointer) == (Code.FILE_RULE, pointer)
        assert given_ in error.detail
        assert own in error.detail


def test_a_supplied_task_id_wins_and_the_package_of_a_task_is_not_part_of_its_id() -> None:
    answer = built(ONE_SCORER, supplied(task_id="default"))
    assert (answer.claims.task_id, answer.origins["task_id"]) == ("default", "supplied")
    assert isinstance(answer.details["run"], dict)
    assert answer.details["run"]["task"] == "gsm8k_mini"
    assert built(edited("/eval/task", "inspect_evals/arc_easy")).claims.task_id == "arc_easy"


def test_a_model_name_is_a_hub_name_only_under_a_provider_with_hub_names() -> None:
    for model in ("hf/acme/open-model", "vllm/acme/open-model", "hf-inference-providers/acme/open-model"):
        named = inspect_ai.read(edited("/eval/model", model)).model_repo
        assert named
        assert named.text == "acme/open-model"
    for model in (
        "anthropic/claude-opus-4-6", "openai/azure/gpt-4o-mini", "ollama/qwen2.5:0.5b", "vllm/acme/open-model:acme/adapter",
        "hf-inference-providers/acme/open-model:fastest", "hf/local",
    ):  # fmt: skip
        raw = edited("/eval/model", model, REAL)
        assert inspect_ai.read(raw).model_repo is None
        other = f"The run names its model '{model}'; the run's owner says that it is acme/open-model."
        assert details(raw)["notes"] == other


def test_the_commit_that_the_provider_loaded_is_the_model_s_revision() -> None:
    hub = edited("/eval/model", "hf/acme/open-model")
    loaded = inspect_ai.read(edited("/eval/model_args/revision", MODEL_COMMIT, hub)).model_revision
    assert loaded is not None
    assert loaded.text == MODEL_COMMIT
    assert inspect_ai.read(edited("/eval/model_args/revision", "main", hub)).model_revision is None
    two = edited("/eval/metadata/model_revision", OTHER_COMMIT, edited("/eval/model_args/revision", MODEL_COMMIT, hub))
    error = refusal(two, supplied(model_revision=None))
    assert (error.code, error.pointer) == (Code.FILE_RULE, "/eval/metadata/model_revision")


def test_a_dataset_that_is_no_hub_repository_must_be_supplied() -> None:
    for location in ("data/test.jsonl", "data/test.CSV", "/data/gsm8k", "gsm8k", "s3://b/c", None):
        raw = edited("/eval/dataset/location", location)
        assert "--benchmark-repo" in refusal(raw).detail
        assert built(raw, supplied(benchmark_repo="openai/gsm8k")).origins["benchmark_repo"] == "supplied"


def test_a_value_that_breaks_the_contract_is_refused_at_its_source() -> None:
    error = refusal(edited("/eval/metadata/benchmark_revision", "main"))
    assert (error.code, error.pointer) == (Code.CLAIMS_REVISION, "/eval/metadata/benchmark_revision")
    given_ = refusal(ONE_SCORER, supplied(model_revision="9f3c2c9"))
    assert (given_.code, given_.pointer) == (Code.CLAIMS_REVISION, "")
    assert given_.detail.startswith("--model-revision: ")
    assert refusal(ONE_SCORER, supplied(command="")).detail.startswith("--command: ")
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
    # Even if no metric is named twice.
    raw = edited("/results/scores/1/metrics", {"f1": {"name": "f1", "value": 0.5}}, TWO_SCORERS)
    assert "'includes/f1'" in refusal(raw).detail
    assert built(raw, supplied(metrics={"f1": "f1"})).claims.metrics == (metric("f1", 0.5),)


def test_a_selector_chooses_among_scorers() -> None:
    for selector, value in (("match/accuracy", 0.625), ("includes/accuracy", 0.75)):
        answer = built(TWO_SCORERS, supplied(metrics={"accuracy": selector}))
        assert answer.claims.metrics == (metric("accuracy", value),)
    for selector in ("accuracy", "match/f1", "judge/accuracy", "", "match@mean/accuracy"):
        error = refusal(TWO_SCORERS, supplied(metrics={"accuracy": selector}))
        assert (error.code, "includes/accuracy" in error.detail) == (Code.FILE_RULE, True)


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


def test_a_metric_that_is_no_number_or_of_a_bad_id_is_refused_where_it_is_chosen() -> None:
    raw = edited("/results/scores/0/metrics/stderr/value", math.nan)
    assert b"NaN" in raw
    error = refusal(raw)
    assert (error.code, error.pointer) == (Code.FILE_NUMBER, "/results/scores/0/metrics/stderr/value")
    assert built(raw, supplied(metrics={"accuracy": "accuracy"})).claims.metrics == (metric("accuracy", 0.625),)
    for number in (b"1e999", b"1e99999999999999999999", b"0.1234567890123456789", b"-Infinity", b"1e16"):
        assert refusal(ONE_SCORER.replace(b"0.625", number)).code is Code.FILE_NUMBER
    for value in (True, None, "0.625", [0.625]):
        error = refusal(edited("/results/scores/0/metrics/accuracy/value", value))
        assert (error.code, error.pointer) == (Code.FILE_SCHEMA, "/results/scores/0/metrics/accuracy/value")
    log = json.loads(ONE_SCORER)
    metrics = log["results"]["scores"][0]["metrics"]
    metrics["not an/id"] = metrics.pop("stderr")
    error = refusal(json.dumps(log).encode())
    assert (error.code, error.pointer) == (Code.CLAIMS_INVALID, "/results/scores/0/metrics/not an~1id/value")


# -- hostile bytes ------------------------------------------------------------------------------------------------


def test_bytes_that_are_no_log_are_refused() -> None:
    many = {str(number): {"value": 0} for number in range(20_000)}
    for raw, code in (
        (b"[]", Code.FILE_SCHEMA), (b"null", Code.FILE_SCHEMA), (b"[" * 200_000, Code.FILE_SCHEMA), (b'{"a":' + b"[" * 200_000, Code.FILE_TOO_LARGE),
        (b'{"a":' * 500 + b"1" + b"}" * 500, Code.FILE_TOO_LARGE), (edited("/version", 3), Code.FILE_SCHEMA),
        (ONE_SCORER.replace(b'"status"', b'"status": "error", "status"', 1), Code.FILE_DUPLICATE_KEY),
        (edited("/results/scores/0/metrics", many), Code.FILE_SCHEMA),
    ):  # fmt: skip
        assert refusal(raw).code is code, raw[:99]


REQUIRED = (
    "/status", "/eval", "/eval/created", "/eval/task", "/eval/model", "/eval/dataset", "/eval/config",
    "/results/total_samples", "/results/completed_samples", "/results/scores/0/name", "/results/scores/0/metrics",
    "/results/scores/0/metrics/accuracy/value",
)  # fmt: skip
OPTIONAL = (
    "/version", "/invalidated", "/eval/dataset/location", "/eval/dataset/samples", "/eval/config/epochs",
    "/eval/model_base_url", "/eval/model_roles", "/eval/model_generate_config", "/eval/task_args", "/eval/task_args_passed",
    "/results/scores/0/scored_samples", "/results/scores/0/params", "/stats/model_usage", "/plan", "/plan/steps", "/eval/packages", "/eval/packages/inspect_ai",
    "/eval/metadata", "/eval/metadata/model_revision", "/eval/metadata/benchmark_revision", "/eval/model_args",
    "/eval/revision", "/results", "/results/scores", "/results/scores/0", "/results/scores/0/reducer",
    "/results/scores/0/unscored_samples", "/results/scores/0/metrics/accuracy", "/results/logged_samples",
    "/stats", "/stats/completed_at",
)  # fmt: skip
# Of a type that none of these members has; 1e999 is written as Infinity.
WRONG: tuple[object, ...] = ([[]], [{"a": 1}], "\x1b[2J", -1.5, math.inf)


def test_a_wrong_type_and_a_missing_member_are_refused_at_their_place() -> None:
    for pointer in REQUIRED + OPTIONAL:
        errors = [refusal_or_none(built, edited(pointer, wrong)) for wrong in WRONG]
        refused = [error for error in errors if error]
        assert len(refused) >= len(WRONG) - 1, pointer  # some members are texts or numbers
        assert not any("\x1b" in str(error) for error in refused)
    for pointer in REQUIRED:
        error = refusal(edited(pointer, ...))
        assert (error.code, pointer.startswith(error.pointer)) == (Code.FILE_SCHEMA, True)
