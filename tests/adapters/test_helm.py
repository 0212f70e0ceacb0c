"""HELM run directories: everything is chosen and supplied, and of a run at its cap nobody knows whether it is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
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


def changed(file: str, pointer: str, value: object) -> dict[str, bytes]:
    return {**FILES, file: edited(FILES[file], pointer, value)}


def real(**model: str) -> dict[str, bytes]:
    """Make the real run one of a real model that was not capped."""
    raw = edited(FILES["run_spec.json"], "/adapter_spec/model", model.get("model", "eleutherai/pythia-1b-v0"))
    return {**FILES, "run_spec.json": edited(raw, "/adapter_spec/max_eval_instances", 1000)}


def stat(name: str) -> int:
    stats = json.loads(FILES["stats.json"])
    return next(i for i, one in enumerate(stats) if one["name"]["name"] == name and "perturbation" not in one["name"])


def test_helm_says_neither_model_nor_benchmark_nor_version_nor_command_nor_time() -> None:
    run = helm.read(real(), "run")
    assert (run.model_repo, run.model_revision, run.benchmark_repo, run.benchmark_revision) == (None, None, None, None)
    assert (run.framework_version, run.command, run.details.get("date")) == (None, None, None)
    built = run.claims(SUPPLIED)
    assert set(built.origins.values()) == {"supplied", "run"}
    assert [name for name, origin in built.origins.items() if origin == "run"] == ["framework.name", "metrics"]


def test_every_file_that_is_read_is_evidence() -> None:
    artifacts: Any = helm.read(FILES, "runs/s1/x").details["artifacts"]
    read = ["per_instance_stats.json", "run_spec.json", "scenario.json", "stats.json"]
    assert [one["name"] for one in artifacts] == read


def test_nothing_is_claimed_unless_it_is_chosen() -> None:
    error = refusal(lambda: helm.read(real()).claims(ALL))
    assert "none chosen" in error.detail


@pytest.mark.parametrize(
    "selector", ["test/exact_match", "test@robustness.worst/exact_match", "test@fairness.worst/exact_match"]
)
def test_a_stat_is_chosen_by_its_split_and_perturbation(selector: str) -> None:
    chosen = replace(ALL, metrics={"em": selector})
    assert helm.read(real()).claims(chosen).claims.metrics == (
        Metric("em", 0, sample_size=5 if selector == "test/exact_match" else UNSET),
    )


@pytest.mark.parametrize("selector", ["exact_match", "valid/exact_match", "test@robustness/exact_match"])
def test_a_stat_of_several_splits_and_perturbations_is_ambiguous_by_its_name(selector: str) -> None:
    error = refusal(lambda: helm.read(real()).claims(replace(ALL, metrics={"em": selector})))
    assert error.code is Code.FILE_RULE
    assert "--metric" in error.detail


def test_of_a_run_that_reached_its_cap_nobody_knows_whether_it_is_whole() -> None:
    run = helm.read({**FILES, "run_spec.json": edited(FILES["run_spec.json"], "/adapter_spec/model", "a/b")})
    assert refusal(lambda: run.claims(SUPPLIED)).pointer == "/run_spec.json/adapter_spec/max_eval_instances"
    built = run.claims(SUPPLIED, allow_partial=True)
    assert words(built)["completeness"] == "not known"
    assert "limited to 5 instances, and HELM does not write how many exist" in str(built.details["notes"])


@pytest.mark.parametrize("cap", [1000, 6, None])
def test_a_run_that_stayed_below_its_cap_is_full(cap: int | None) -> None:
    raw = edited(real()["run_spec.json"], "/adapter_spec/max_eval_instances", cap)
    assert words(helm.read({**real(), "run_spec.json": raw}).claims(SUPPLIED))["completeness"] == "full"


def words(built: Any) -> Any:
    return built.details["run"]


def test_a_score_is_of_the_instances_that_have_it() -> None:
    """`num_instances` says 5 of the split, whatever an instance lacks."""
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


def test_trials_are_epochs_and_not_samples() -> None:
    raw = edited(real()["run_spec.json"], "/adapter_spec/num_train_trials", 3)
    built = helm.read({**real(), "run_spec.json": raw}).claims(SUPPLIED)
    assert (words(built)["num_samples"], words(built)["epochs"]) == (5, 3)


def test_which_perturbation_a_number_comes_from_stands_beside_it() -> None:
    built = helm.read(real()).claims(replace(ALL, metrics={"em": "test@fairness.worst/exact_match"}))
    assert words(built)["selection"] == {"em": "test@fairness.worst/exact_match"}


def test_what_is_known_of_each_instance_is_left_out_where_it_is_too_much(tmp_path: Path) -> None:
    for name, raw in real().items():
        (tmp_path / name).write_bytes(raw)
    assert words(adapters.read(tmp_path).claims(SUPPLIED))["num_samples"] == 5
    with (tmp_path / helm.PER_INSTANCE).open("ab") as file:
        file.truncate(helm.MAX_PER_INSTANCE + 1)  # sparse
    assert "num_samples" not in words(adapters.read(tmp_path).claims(SUPPLIED))


def test_a_run_that_counts_no_instances_may_be_capped() -> None:
    stats = [one for one in json.loads(FILES["stats.json"]) if one["name"]["name"] != "num_instances"]
    files = {**real(), "stats.json": json.dumps(stats).encode()}
    assert "limited to 1000" in refusal(lambda: helm.read(files).claims(SUPPLIED)).detail


def test_the_simple_models_are_mocks() -> None:
    error = refusal(lambda: helm.read(FILES).claims(SUPPLIED, allow_partial=True))
    assert "'simple/model1'" in error.detail


@pytest.mark.parametrize(("member", "value"), [("mean", 0.9), ("sum", 5), ("sum", None), ("count", 0), ("mean", None)])
def test_a_mean_that_its_sum_does_not_give_is_refused(member: str, value: object) -> None:
    files = {**real(), "stats.json": edited(FILES["stats.json"], f"/{stat('exact_match')}/{member}", value)}
    error = refusal(lambda: helm.read(files).claims(SUPPLIED))
    assert error.pointer == f"/stats.json/{stat('exact_match')}/mean"


def test_one_stat_listed_twice_is_ambiguous() -> None:
    stats = json.loads(FILES["stats.json"])
    files = {**real(), "stats.json": json.dumps([*stats, stats[stat("exact_match")]]).encode()}
    assert "2 scores fit" in refusal(lambda: helm.read(files).claims(SUPPLIED)).detail


@pytest.mark.parametrize("file", ["run_spec.json", "stats.json"])
def test_a_folder_without_its_files_is_no_run(file: str) -> None:
    error = refusal(lambda: helm.read({name: raw for name, raw in FILES.items() if name != file}, "folder"))
    assert (error.code, file in error.detail) == (Code.FILE_RULE, True)


def test_the_scenario_may_be_missing_and_the_task_is_then_supplied() -> None:
    run = helm.read({name: raw for name, raw in real().items() if name != "scenario.json"})
    assert "--task-id" in refusal(lambda: run.claims(replace(SUPPLIED, task_id=None))).detail


def test_absurdly_many_stats_are_refused() -> None:
    files = {**FILES, "stats.json": b"[" + b",".join([b'{"name":{"name":"a"},"count":1}'] * 20_001) + b"]"}
    assert refusal(lambda: helm.read(files)).code is Code.FILE_RULE
    files = {**FILES, "stats.json": b"[" * (MAX_BYTES + 1)}
    assert refusal(lambda: helm.read(files)).code is Code.FILE_TOO_LARGE


def test_an_error_names_the_file_in_the_folder() -> None:
    assert refusal(lambda: helm.read(changed("stats.json", "/3/count", "1"), "run")).place.file == "run/stats.json"


@pytest.mark.parametrize("file", sorted(FILES))
@given(data=st.data())
def test_no_other_exception_escapes(file: str, data: st.DataObject) -> None:
    raw = FILES[file]
    at, length = data.draw(st.integers(0, len(raw))), data.draw(st.integers(0, 40))
    files = {**FILES, file: raw[:at] + data.draw(st.binary(max_size=8)) + raw[at + length :]}
    error = refusal_or_none(lambda: helm.read(files).claims(SUPPLIED, allow_mock=True, allow_partial=True))
    assert error is None or error.code.value.startswith(("file.", "claims."))


def test_the_fixture_is_what_helm_wrote() -> None:
    assert {path.name for path in Path(FOLDER).iterdir()} == {*helm.REQUIRED, *helm.OPTIONAL, helm.PER_INSTANCE}
