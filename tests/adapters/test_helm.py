"""HELM run directories: metrics are chosen, other claims supplied; a run at its cap is not known to be whole."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from issuer import adapters
from issuer.adapters import helm
from issuer.adapters.evidence import MAX_BYTES
from issuer.codes import Code
from issuer.results.claims import Metric
from tests.support.runs import ALL, DATA, edited, refusal, refusal_or_none

FOLDER = DATA / "helm_simple_mcqa"
FILES = {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir())}
SUPPLIED = replace(ALL, metrics={"exact_match": "test/exact_match"})


def real(**model: str) -> dict[str, bytes]:
    """Make the real run one of a real model that was not capped."""
    raw = edited(FILES["run_spec.json"], "/adapter_spec/model", model.get("model", "eleutherai/pythia-1b-v0"))
    return {**FILES, "run_spec.json": edited(raw, "/adapter_spec/max_eval_instances", 1000)}


def stat(name: str) -> int:
    stats = json.loads(FILES["stats.json"])
    return next(i for i, one in enumerate(stats) if one["name"]["name"] == name and "perturbation" not in one["name"])


def test_helm_names_no_model_benchmark_version_command_or_time() -> None:
    run = helm.read(real(), "run")
    assert (run.model_repo, run.model_revision, run.benchmark_repo, run.benchmark_revision) == (None, None, None, None)
    assert (run.framework_version, run.command, run.details.get("date")) == (None, None, None)
    built = run.claims(SUPPLIED)
    assert set(built.origins.values()) == {"supplied", "run"}
    assert [name for name, origin in built.origins.items() if origin == "run"] == ["framework.name", "metrics"]
    artifacts: Any = helm.read(FILES, "runs/s1/x").details["artifacts"]  # every file that is read
    read = ["per_instance_stats.json", "run_spec.json", "scenario.json", "stats.json"]
    assert [one["name"] for one in artifacts] == read


def test_a_stat_is_chosen_by_its_split_and_perturbation() -> None:
    assert "none chosen" in refusal(lambda: helm.read(real()).claims(ALL)).detail
    for selector in ("test/exact_match", "test@robustness.worst/exact_match", "test@fairness.worst/exact_match"):
        built = helm.read(real()).claims(replace(ALL, metrics={"em": selector}))
        samples = 5 if selector == "test/exact_match" else UNSET
        assert built.claims.metrics == (Metric("em", 0, sample_size=samples),)
        assert words(built)["selection"] == {"em": selector}
    for selector in ("exact_match", "valid/exact_match", "test@robustness/exact_match"):
        chosen = replace(ALL, metrics={"em": selector})
        error = refusal(helm.read(real()).claims, chosen)
        assert (error.code, "--metric" in error.detail) == (Code.FILE_RULE, True)


def words(built: Any) -> Any:
    return built.details["run"]


def test_the_adapter_s_settings_and_the_scenario_s_arguments_are_the_run_s() -> None:
    raw = edited(FILES["run_spec.json"], "/scenario_spec/args", {"subject": "anatomy"})
    asked = helm.read({**FILES, "run_spec.json": raw}).arguments
    spec = json.loads(raw)["adapter_spec"]
    assert {
        asked[f"adapter.{name}"] == spec[name] for name in ("max_train_instances", "temperature", "instructions")
    } == {True}
    assert (asked["scenario.subject"], asked["adapter.stop_sequences.0"]) == ("anatomy", "\n")
    assert not asked.keys() & {f"adapter.{name}" for name in helm.NOT_ARGUMENTS}


def test_a_run_is_full_only_below_its_cap() -> None:
    run = helm.read({**FILES, "run_spec.json": edited(FILES["run_spec.json"], "/adapter_spec/model", "a/b")})
    assert refusal(run.claims, SUPPLIED).pointer == "/run_spec.json/adapter_spec/max_eval_instances"
    built = run.claims(SUPPLIED, allow_partial=True)
    assert words(built)["completeness"] == "not known"
    assert "limited to 5 instances, and HELM does not write how many exist" in str(built.details["notes"])
    for cap in (1000, 6, None):
        raw = edited(real()["run_spec.json"], "/adapter_spec/max_eval_instances", cap)
        assert words(helm.read({**real(), "run_spec.json": raw}).claims(SUPPLIED))["completeness"] == "full"
    stats = [one for one in json.loads(FILES["stats.json"]) if one["name"]["name"] != "num_instances"]
    uncounted = {**real(), "stats.json": json.dumps(stats).encode()}
    assert "limited to 1000" in refusal(lambda: helm.read(uncounted).claims(SUPPLIED)).detail


def test_a_score_is_of_the_instances_that_have_it() -> None:
    """`num_instances` is 5 for the split even if an instance lacks the score."""
    files = real()
    whole = helm.read(files).claims(SUPPLIED)
    assert (words(whole)["num_samples"], words(whole)["split"], whole.claims.metrics[0].sample_size) == (5, "test", 5)
    instances = json.loads(FILES[helm.PER_INSTANCE])
    left_out = instances[0]["instance_id"]
    for one in instances:
        if one["instance_id"] == left_out:
            one["stats"] = [stat for stat in one["stats"] if stat["name"]["name"] != "exact_match"]
    short = helm.read({**files, helm.PER_INSTANCE: json.dumps(instances).encode()})
    assert words(short.claims(SUPPLIED))["num_samples"] == 4
    without = helm.read({name: raw for name, raw in files.items() if name != helm.PER_INSTANCE}).claims(SUPPLIED)
    assert "num_samples" not in words(without)
    worst = replace(ALL, metrics={"em": "test@robustness.worst/exact_match"})
    assert "num_samples" not in words(helm.read(files).claims(worst))
    # Trials are epochs and not samples.
    raw = edited(real()["run_spec.json"], "/adapter_spec/num_train_trials", 3)
    built = helm.read({**real(), "run_spec.json": raw}).claims(SUPPLIED)
    assert (words(built)["num_samples"], words(built)["epochs"]) == (5, 3)


def test_a_too_large_file_of_instances_is_left_out(tmp_path: Path) -> None:
    for name, raw in real().items():
        (tmp_path / name).write_bytes(raw)
    assert words(adapters.read(tmp_path).claims(SUPPLIED))["num_samples"] == 5
    with (tmp_path / helm.PER_INSTANCE).open("ab") as file:
        file.truncate(helm.MAX_PER_INSTANCE + 1)  # sparse
    assert "num_samples" not in words(adapters.read(tmp_path).claims(SUPPLIED))


def test_the_simple_models_are_mocks() -> None:
    error = refusal(lambda: helm.read(FILES).claims(SUPPLIED, allow_partial=True))
    assert "'simple/model1'" in error.detail


def test_a_mean_that_its_sum_does_not_give_or_a_stat_listed_twice_is_refused() -> None:
    at = stat("exact_match")
    values: list[tuple[str, object]] = [("mean", 0.9), ("sum", 5), ("sum", None), ("count", 0), ("mean", None)]
    for member, value in values:
        files = {**real(), "stats.json": edited(FILES["stats.json"], f"/{at}/{member}", value)}
        assert refusal(helm.read(files).claims, SUPPLIED).pointer == f"/stats.json/{at}/mean"
    stats = json.loads(FILES["stats.json"])
    files = {**real(), "stats.json": json.dumps([*stats, stats[at]]).encode()}
    assert "2 scores fit" in refusal(lambda: helm.read(files).claims(SUPPLIED)).detail


def test_a_folder_without_its_files_is_no_run_and_an_error_names_the_file() -> None:
    for file in ("run_spec.json", "stats.json"):
        files = {name: raw for name, raw in FILES.items() if name != file}
        error = refusal(helm.read, files, "folder")
        assert (error.code, file in error.detail) == (Code.FILE_RULE, True)
    wrong = {**FILES, "stats.json": edited(FILES["stats.json"], "/3/count", "1")}
    assert refusal(helm.read, wrong, "run").place.file == "run/stats.json"
    # The scenario may be missing, and the task is then supplied.
    run = helm.read({name: raw for name, raw in real().items() if name != "scenario.json"})
    assert "--task-id" in refusal(run.claims, replace(SUPPLIED, task_id=None)).detail


def test_absurdly_many_stats_are_refused() -> None:
    files = {**FILES, "stats.json": b"[" + b",".join([b'{"name":{"name":"a"},"count":1}'] * 20_001) + b"]"}
    assert refusal(helm.read, files).code is Code.FILE_RULE
    files = {**FILES, "stats.json": b"[" * (MAX_BYTES + 1)}
    assert refusal(helm.read, files).code is Code.FILE_TOO_LARGE


@given(st.data())
def test_any_bytes_are_a_run_or_an_input_error(data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(sorted(FILES)))
    raw = FILES[file]
    at, length = data.draw(st.integers(0, len(raw))), data.draw(st.integers(0, 40))
    files = {**FILES, file: raw[:at] + data.draw(st.binary(max_size=8)) + raw[at + length :]}
    error = refusal_or_none(lambda: helm.read(files).claims(SUPPLIED, allow_mock=True, allow_partial=True))
    assert error is None or error.code.value.startswith(("file.", "claims."))
