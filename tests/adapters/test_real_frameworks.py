"""The frameworks themselves, run here where they are installed, and their output read: formats change with releases.

tests/support/frameworks.py looks for them.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from issuer import adapters
from issuer.adapters import Anchors, Supplied
from issuer.adapters.score import names
from issuer.codes import Code
from issuer.results.claims import Metric
from tests.support.frameworks import framework, run
from tests.support.runs import ALL, BENCHMARK_COMMIT, DATA, MODEL_COMMIT, refusal
from tests.support.verievals import REAL

pytestmark = pytest.mark.long


@pytest.mark.parametrize("suffix", ["json", "eval"])
def test_inspect_ai(suffix: str, tmp_path: Path) -> None:
    python = Path(framework("inspect")).with_name("python")
    program = """
import sys; from pathlib import Path
sys.path.insert(0, sys.argv[1]); import make_inspect_log as made
revisions = {"model_revision": made.MODEL_REVISION, "benchmark_revision": made.BENCHMARK_REVISION}
out, limit = Path(sys.argv[2]), int(sys.argv[3]) or None
made.run([made.match(), made.includes()], revisions, out, limit)
"""
    for limit in (0, 3):
        run(tmp_path, python, "-c", program, DATA, tmp_path / f"{limit}.{suffix}", limit)
    supplied = Supplied(model_repo="acme/open-model", command="inspect eval", metrics={"accuracy": "match/accuracy"})
    whole = adapters.read(tmp_path / f"0.{suffix}")
    built = whole.claims(supplied, allow_mock={"mockllm/model"})
    assert built.claims.metrics == (Metric("accuracy", 0.625, sample_size=8),)
    assert (built.claims.model_revision, built.claims.benchmark_revision) == (MODEL_COMMIT, BENCHMARK_COMMIT)
    limited = adapters.read(tmp_path / f"3.{suffix}")
    assert refusal(limited.claims, supplied, allow_mock=True).pointer == "/eval/config/limit"


# Which of Inspect AI's variants are whole, by the scorer; all others are partial.
WHOLE = {"whole", "parts", "parts_in_epochs", "epochs", "limit_not_reached", "seeded", "edited"}
WHOLE |= {"grader_role", "grader_argument"}


def test_every_number_that_inspect_ai_reports_comes_out_as_it_is(tmp_path: Path) -> None:
    python = Path(framework("inspect")).with_name("python")
    printed = run(tmp_path, python, DATA / "run_inspect_variants.py", tmp_path)
    reports = json.loads(printed.splitlines()[-1])
    assert len(reports) == 2 * 16
    supplied = replace(ALL, framework_version=None, benchmark_repo=None)
    for file, report in reports.items():
        read = adapters.read(tmp_path / file)
        ours = [(score.scorer, score.reducer, score.metric, score.value, score.samples) for score in read.scores]
        theirs = [
            (score["name"], score["reducer"] or "", metric, value, score["scored"])
            for score in report["scores"]
            for metric, value in score["metrics"].items()
        ]
        assert ours == theirs != [], file
        name = file.partition(".")[0]
        for selector, score in names(read.scores).items():
            if score.fault:
                assert (name, score.scorer) == ("edited", "includes")
                continue
            built = read.claims(replace(supplied, metrics={"x": selector}), allow_mock=True, allow_partial=True)
            (metric,) = built.claims.metrics
            run_: dict[str, Any] = built.details["run"]  # type: ignore[assignment]
            assert (metric.value, metric.sample_size) == (score.value, score.samples)
            assert run_["num_samples"] == score.samples
            assert run_["selection"] == {"x": selector}
            assert run_.get("epochs") == (report["epochs"] if report["epochs"] > 1 else None)
            whole = name in WHOLE or (name, score.scorer) == ("unscored", "includes")
            assert run_["completeness"] == ("full" if whole else "partial"), file
            assert run_.get("seed") == (7 if name == "seeded" else None)
            assert read.mock is not None


TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: data.jsonl}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
metadata: {{version: 1.0}}
{more}
"""
CHOICE = """output_type: multiple_choice
doc_to_target: 0
doc_to_choice: ["{{answer}}", "no"]
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]"""
FILTERS = """output_type: generate_until
doc_to_target: "{{answer}}"
repeats: 2
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
filter_list:
  - {name: strict, filter: [{function: regex, regex_pattern: "([0-9]+)"}, {function: take_first}]}
  - {name: loose, filter: [{function: take_first}]}"""
GROUP = """
group: both
task: [choice, filters]
aggregate_metric_list: [{metric: acc, aggregation: mean, weight_by_size: true}]
metadata: {version: 1.0}
"""


def write_tasks(folder: Path) -> None:
    """Write two tasks over four questions, one with two filters, and the group of both."""
    (folder / "choice.yaml").write_text(TASK.format(name="choice", more=CHOICE))
    (folder / "filters.yaml").write_text(TASK.format(name="filters", more=FILTERS))
    (folder / "both.yaml").write_text(GROUP)
    rows = [json.dumps({"question": f"{n} + {n}?", "answer": str(2 * n)}) for n in range(4)]
    (folder / "data.jsonl").write_text("\n".join(rows) + "\n")


def logged(folder: Path, task: str, scorer: str) -> set[int]:
    """Return the documents that lm-eval logged as scored, by task and filter."""
    (samples,) = folder.rglob(f"samples_{task}_*.jsonl")
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    return {line["doc_id"] for line in lines if line["filter"] == scorer}


SOME = ("--samples", '{"choice": [1, 3], "filters": [0, 1, 2]}')


@pytest.mark.parametrize(
    ("options", "answer"),
    [((), "full"), (("--limit", "2"), "partial"), (("--limit", "100"), "full"), (SOME, "partial")],
)
def test_every_number_and_count_of_lm_eval_is_its_own(options: tuple[str, ...], answer: str, tmp_path: Path) -> None:
    command = framework("lm_eval")
    write_tasks(tmp_path)
    called = (command, "run", "--model", "dummy", "--tasks", "both", "--include_path", ".", "--log_samples")
    run(tmp_path, *called, "--output_path", "out", *options)
    runs = adapters.read_all(tmp_path / "out", "lm-eval")
    assert {run.task for run in runs} == {"both", "choice", "filters"}
    (file,) = (tmp_path / "out").rglob("results_*.json")
    report = json.loads(file.read_text())["results"]
    for each in runs:
        assert {score.spelling: score.value for score in each.scores if not score.fault} == {
            key: value for key, value in report[each.task].items() if "," in key and isinstance(value, int | float)
        }
        for score in each.scores:
            task = "choice" if score.metric.startswith("acc") else "filters"
            assert score.samples == len(logged(tmp_path, task, score.scorer)), (each.task, score.selector)
            assert (score.split, score.epochs) == ("test", 2 if each.task == "filters" else None)
        chosen = next(score for score in each.scores if not score.aside)
        supplied = replace(ALL, framework_version=None, task_id=None, metrics={"m": chosen.selector})
        built: Any = each.claims(supplied, allow_mock={"dummy"}, allow_partial=True)
        assert (built.details["run"]["completeness"], built.origins["framework.version"]) == (answer, "run")
        assert built.details["run"]["selection"] == {"m": chosen.selector}
        if answer == "partial":
            assert refusal(each.claims, supplied, allow_mock=True).pointer.startswith("/n-samples/")


def test_helm(tmp_path: Path) -> None:
    command = framework("helm-run")
    called = (command, "--run-entries", "simple_mcqa:model=simple/model1", "--suite", "s", "-o", "out")
    supplied = replace(ALL, task_id=None, metrics={"exact_match": "test/exact_match"})
    for cap, answer in ((1000, "full"), (5, "not known")):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        run(tmp_path, *called, "--max-eval-instances", cap)
        (read,) = adapters.read_all(tmp_path / "out" / "runs", "helm")
        built: Any = read.claims(supplied, allow_mock={"simple/model1"}, allow_partial=True)
        assert (built.claims.task_id, built.details["run"]["completeness"]) == ("simple_mcqa", answer)
        (state,) = (tmp_path / "out").rglob("scenario_state.json")
        states = json.loads(state.read_text())["request_states"]
        there = {one["instance"]["id"] for one in states if one["instance"]["split"] == "test"}
        stats = json.loads(state.with_name("stats.json").read_text())
        assert [score.value for score in read.scores if not score.fault] == [s["mean"] for s in stats if s["count"]]
        assert built.claims.metrics[0].sample_size == built.details["run"]["num_samples"] == len(there)


@pytest.mark.parametrize(("limit", "answer"), [((), "full"), ((2,), "not known")])
def test_lighteval(limit: tuple[int, ...], answer: str, tmp_path: Path) -> None:
    python = Path(framework("lighteval")).with_name("python")
    table = run(tmp_path, python, DATA / "make_lighteval_run.py", tmp_path / "out", *limit)
    runs = adapters.read_all(tmp_path / "out")
    assert {run.task for run in runs} == {"alone|0", "sums:low|0", "sums:high|0", "sums:_average|0"}
    shown = {
        row[0].replace(":0", "|0"): float(row[3])
        for row in (line.strip("| ").split("|") for line in table.replace(" ", "").splitlines())
        if len(row) > 3 and row[2] == "em"
    }
    for each in runs:
        built: Any = each.claims(replace(ALL, task_id=None), allow_mock={"dummy"}, allow_partial=True)
        assert built.claims.metrics[0].value == pytest.approx(shown[each.task], abs=5e-5)
        assert built.details["run"]["completeness"] == ("not known" if "_average" in each.task else answer)
        assert (built.details["run"]["seed"], built.details["run"]["split"]) == (42, "test")


def test_verievals(tmp_path: Path) -> None:
    command = framework("verievals")
    benchmark = tmp_path / "sums"
    benchmark.mkdir()
    (benchmark / "benchmark.yaml").write_text('id: sums\nversion: "1.0.0"\nscorer: numeric\ndescription: Sums.\n')
    tasks = ({"id": f"t{n}", "prompt": f"{n} + {n}?", "expected": str(2 * n)} for n in range(4))
    (benchmark / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    run(tmp_path, command, "keygen", "--out", "runner")
    signing = ("--key", "runner.key", "--signer", "ci")
    called = (command, "run", "--benchmark", benchmark, "--model", "echo", *signing, "--seed", 7, "--out")
    run(tmp_path, *called, "records")
    (record,) = (tmp_path / "records").iterdir()
    printed = run(tmp_path, command, "ledger", "--ledger", "ledger", "append", record)
    ledger = (tmp_path / "ledger" / "entries.jsonl").read_bytes()
    anchors = Anchors((tmp_path / "runner.pub").read_text().strip(), printed.split()[-1], ledger)
    supplied = replace(ALL, framework_version=None)
    built: Any = adapters.read(record, anchors=anchors).claims(supplied, allow_mock={"mock:echo"})
    assert built.claims.framework.name == "verievals"
    body = json.loads(record.read_text())["body"]
    assert {metric.metric_id: metric.value for metric in built.claims.metrics} == body["aggregate"]["metrics"]
    assert {metric.sample_size for metric in built.claims.metrics} == {len(body["results"])} == {4}
    words = built.details["run"]
    assert (words["num_samples"], words["seed"], words["completeness"]) == (4, 7, "full")
    for limit, answer in ((2, "not known"), (9, "full")):
        run(tmp_path, *called, f"limited-{limit}", "--limit", limit)
        (limited,) = (tmp_path / f"limited-{limit}").iterdir()
        printed = run(tmp_path, command, "ledger", "--ledger", f"ledger-{limit}", "append", limited)
        ledger = (tmp_path / f"ledger-{limit}" / "entries.jsonl").read_bytes()
        bound = adapters.read(limited, anchors=Anchors(anchors.public_key, printed.split()[-1], ledger))
        built = bound.claims(supplied, allow_mock=True, allow_partial=True)
        assert (built.details["run"]["num_samples"], built.details["run"]["completeness"]) == (min(limit, 4), answer)
    # The same run by another key: verievals takes it, as the key is in the record.
    stranger = replace(anchors, public_key=(REAL / "runner.pub").read_text().strip())
    error = refusal(adapters.read, record, anchors=stranger)
    assert (error.code, error.pointer) == (Code.FILE_RULE, "/signature/public_key")
