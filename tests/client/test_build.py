"""Results built by the library: their content, that no file is written before, and that no existing file changes."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from issuer.adapters import Run, Supplied, read
from issuer.adapters.mapping import read_mapping
from issuer.client import BuildOptions, build_results, request_of, write_results
from issuer.client.build import build_each
from issuer.codes import Code
from issuer.errors import InputError
from issuer.formats import jcs
from issuer.results.entry import content_digest, read_entries
from tests.support.runs import DATA, edited, refusal

SUPPLIED = Supplied(model_repo="acme/open-model", command="run", metrics={"accuracy": "match/accuracy"})
GIVEN = BuildOptions(SUPPLIED, allow_mock=frozenset({"mockllm/model"}))
LOG = (DATA / "inspect_two_scorers.json").read_bytes()


@pytest.fixture
def run() -> Run:
    return read(DATA / "inspect_two_scorers.json")


@pytest.fixture
def other(tmp_path: Path) -> Run:
    """Return the run of another benchmark, under another task."""
    path = tmp_path / "other.json"
    path.write_bytes(edited(edited(LOG, "/eval/dataset/location", "acme/other"), "/eval/task", "other_task"))
    return read(path)


def test_only_the_good_runs_of_the_tasks_are_built_with_what_they_lack(tmp_path: Path, run: Run, other: Run) -> None:
    (result,) = build_results([run], Path(), GIVEN)
    assert result.file == Path("acme/open-model/.eval_results/gsm8k.yaml")
    (result,) = build_results([run, other], tmp_path / "o.yaml", GIVEN, tasks=["other_task"])
    assert (result.run, result.file) == (other, tmp_path / "o.yaml")
    assert "is a mock model" in refusal(lambda: build_results([run], tmp_path)).detail
    deep = replace(run, details={**run.details, "run": {"words": json.loads("[" * 14 + "1" + "]" * 14)}})
    results, (unbuilt,) = build_each([run, deep], tmp_path / "out", GIVEN)
    assert [each.run for each in results] == [run], "details that no file can have are the fault of their run alone"
    assert (unbuilt.error.code, unbuilt.error.place.file) == (Code.FILE_TOO_LARGE, run.name)


def test_results_are_built_before_anything_is_written_and_none_if_a_file_exists(
    tmp_path: Path, run: Run, other: Run
) -> None:
    out = tmp_path / "out"
    results = build_results([run, other], out, GIVEN)
    assert not out.exists()
    assert [result.file.relative_to(out) for result in results] == [
        Path("acme/open-model/.eval_results/gsm8k.yaml"), Path("acme/open-model/.eval_results/other.yaml"),
    ]  # fmt: skip
    write_results(results)
    for result in results:
        (entry,) = read_entries(result.file.read_bytes(), "")
        assert content_digest(entry.form) == content_digest(result.entry)
        assert json.loads(result.claims_file.read_bytes()) == json.loads(jcs.canonical(request_of(result.built)))
    first, second = build_results([run, other], tmp_path / "taken", GIVEN)
    second.claims_file.parent.mkdir(parents=True)
    second.claims_file.write_bytes(b"mine")
    with pytest.raises(InputError, match="exists already"):
        write_results([first, second])
    assert second.claims_file.read_bytes() == b"mine"
    assert (first.file.exists(), first.claims_file.exists()) == (False, False)


def test_results_built_into_one_folder_at_once_are_all_written(tmp_path: Path) -> None:
    def build(number: int) -> None:
        (own := tmp_path / f"{number}.json").write_bytes(edited(LOG, "/eval/task", f"task-{number}"))
        results = build_results([read(own)], tmp_path / "out", GIVEN)
        ready.wait()
        write_results(results, update=True)

    count = 8
    ready = threading.Barrier(count)
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(build, range(count)))
    (file,) = (tmp_path / "out").rglob("*.yaml")
    tasks = sorted(str(entry.dataset.task_id) for entry in read_entries(file.read_bytes(), ""))
    assert tasks == [f"task-{number}" for number in range(count)]
    assert len(list((tmp_path / "out" / "claims").iterdir())) == count


def test_a_rule_of_the_mapping_may_be_of_a_run_that_is_left_out(tmp_path: Path, run: Run, other: Run) -> None:
    def given(task: str) -> BuildOptions:
        text = f'supply: {{model_revision: "{"0" * 40}"}}\nruns: [{{task: "{task}", supply: {{scale: 100}}}}]\n'
        return BuildOptions(SUPPLIED, read_mapping(text.encode(), "map.yaml"), GIVEN.allow_mock)

    error = refusal(lambda: build_results([run, other], tmp_path, given("mistyped"), tasks=["other_task"]))
    assert "fits none" in error.detail
    error = refusal(lambda: build_results([run, other], tmp_path, given(run.task), tasks=["other_task"]))
    assert "the run says model_revision" in error.detail
