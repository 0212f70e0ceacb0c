"""HELM run directories: everything is chosen and supplied, and a capped run is partial."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from issuer.adapters import helm
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
    artifacts = helm.read(FILES, "runs/s1/x").details["artifacts"]
    assert [one["name"] for one in artifacts] == ["run_spec.json", "scenario.json", "stats.json"]  # type: ignore[union-attr,index,call-overload]


def test_nothing_is_claimed_unless_it_is_chosen() -> None:
    error = refusal(lambda: helm.read(real()).claims(ALL))
    assert "none chosen" in error.detail


@pytest.mark.parametrize(
    "selector", ["test/exact_match", "test@robustness.worst/exact_match", "test@fairness.worst/exact_match"]
)
def test_a_stat_is_chosen_by_its_split_and_perturbation(selector: str) -> None:
    chosen = replace(ALL, metrics={"em": selector})
    assert helm.read(real()).claims(chosen).claims.metrics == (Metric("em", 0),)


@pytest.mark.parametrize("selector", ["exact_match", "valid/exact_match", "test@robustness/exact_match"])
def test_a_stat_of_several_splits_and_perturbations_is_ambiguous_by_its_name(selector: str) -> None:
    error = refusal(lambda: helm.read(real()).claims(replace(ALL, metrics={"em": selector})))
    assert error.code is Code.FILE_RULE
    assert "--metric" in error.detail


def test_a_run_that_reached_its_cap_is_partial() -> None:
    model = "acme/open-model"
    run = helm.read({**FILES, "run_spec.json": edited(FILES["run_spec.json"], "/adapter_spec/model", model)})
    assert refusal(lambda: run.claims(SUPPLIED)).pointer == "/run_spec.json/adapter_spec/max_eval_instances"
    assert (
        run.claims(SUPPLIED, allow_partial=True).details["notes"] == "Partial run: the run was limited to 5 instances."
    )


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
    assert "2 scores answer" in refusal(lambda: helm.read(files).claims(SUPPLIED)).detail


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
    files = {**FILES, "stats.json": b"[" * (helm.MAX_BYTES + 1)}
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
    assert {path.name for path in Path(FOLDER).iterdir()} == set(helm.REQUIRED) | set(helm.OPTIONAL)
