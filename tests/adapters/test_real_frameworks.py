"""The frameworks themselves, run here where they are installed, and their output read: formats change with releases.

`check.lock` has all but HELM, which asks for a zstandard that nothing else takes any more. Each is looked for beside this
Python, in the folders of $EVAL_FRAMEWORKS (`bin` folders of virtual environments, separated by colons) and on PATH.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from issuer import adapters
from issuer.adapters import Anchors, Supplied
from issuer.adapters.score import names
from issuer.codes import Code
from issuer.results.claims import Metric
from tests.support.runs import ALL, BENCHMARK_COMMIT, DATA, MODEL_COMMIT, refusal
from tests.support.verievals import REAL

pytestmark = pytest.mark.long
BESIDE = str(Path(sys.executable).parent)
FOLDERS = os.pathsep.join([BESIDE, *os.environ.get("EVAL_FRAMEWORKS", "").split(":"), os.environ["PATH"]])


def framework(command: str) -> str:
    found = shutil.which(command, path=FOLDERS)
    if found is None:
        pytest.skip(f"needs {command}: install it, and name its folder in $EVAL_FRAMEWORKS")
    return found


def run(folder: Path, *command: object) -> str:
    """Run a framework in an empty folder, offline, with nothing of this environment."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, cwd=folder, env=env, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


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
    assert refusal(lambda: limited.claims(supplied, allow_mock=True)).pointer == "/eval/config/limit"


# Which of Inspect AI's variants are whole, by the scorer; all others are partial.
WHOLE = {
    "whole",
    "parts",
    "parts_in_epochs",
    "epochs",
    "limit_not_reached",
    "seeded",
    "grader_role",
    "grader_argument",
    "edited",
}


def test_every_number_that_inspect_ai_reports_comes_out_as_it_is(tmp_path: Path) -> None:
    python = Path(framework("inspect")).with_name("python")
    said = run(tmp_path, python, DATA / "run_inspect_variants.py", tmp_path)
    reports = json.loads(said.splitlines()[-1])
    assert len(reports) == 2 * 16
    supplied = replace(ALL, framework_version=None, benchmark_repo=None)
    for file, report in reports.items():
        read = adapters.read(tmp_path / file)
        compared = []
        for score, known in itertools.zip_longest(*scores_of(report, read)):
            assert score == known, file
            compared.append(known)
        assert compared, file
        name = file.partition(".")[0]
        for selector, score in names(read.scores).items():
            if score.fault:
                assert (name, score.scorer) == ("edited", "includes")
                continue
            built = read.claims(replace(supplied, metrics={"x": selector}), allow_mock=True, allow_partial=True)
            (metric,) = built.claims.metrics
            run_: dict[str, Any] = built.details["run"]  # type: ignore[assignment]
            assert (metric.value, metric.sample_size, run_["num_samples"]) == (
                score.value,
                score.samples,
                score.samples,
            )
            assert run_["selection"] == {"x": selector}
            assert run_.get("epochs") == (report["epochs"] if report["epochs"] > 1 else None)
            whole = name in WHOLE or (name, score.scorer) == ("unscored", "includes")
            assert run_["completeness"] == ("full" if whole else "partial"), file
            assert run_.get("seed") == (7 if name == "seeded" else None)
            assert read.mock is not None


def scores_of(report: dict[str, Any], read: adapters.Run) -> tuple[list[object], list[object]]:
    """Return every score as Inspect AI has it, and as the adapter has it."""
    ours = [(score.scorer, score.reducer, score.metric, score.value, score.samples) for score in read.scores]
    theirs = [
        (score["name"], score["reducer"] or "", metric, value, score["scored"])
        for score in report["scores"]
        for metric, value in score["metrics"].items()
    ]
    return list(ours), list(theirs)


TASK = """
task: gsm8k_mini
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_target: 0
doc_to_choice: ["{{answer}}", "no"]
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata: {version: 1.0}
"""


def test_lm_eval(tmp_path: Path) -> None:
    command = framework("lm_eval")
    (tmp_path / "task.yaml").write_text(TASK)
    rows = [json.dumps({"question": f"{n} + {n}?", "answer": str(2 * n)}) for n in range(4)]
    (tmp_path / "data.jsonl").write_text("\n".join(rows) + "\n")
    called = (command, "run", "--model", "dummy", "--tasks", "gsm8k_mini", "--include_path", ".")
    run(tmp_path, *called, "--output_path", "whole")
    run(tmp_path, *called, "--output_path", "part", "--limit", "2")
    supplied = replace(ALL, framework_version=None, task_id=None)
    (whole,) = adapters.read_all(tmp_path / "whole", "lm-eval")
    built = whole.claims(supplied, allow_mock={"dummy"})
    assert [metric.metric_id for metric in built.claims.metrics] == ["acc"]
    assert built.origins["framework.version"] == "run"
    (part,) = adapters.read_all(tmp_path / "part")
    assert refusal(lambda: part.claims(supplied, allow_mock=True)).pointer == "/config/limit"
    assert "2 of 4 samples" in str(part.claims(supplied, allow_mock=True, allow_partial=True).details["notes"])


def test_helm(tmp_path: Path) -> None:
    command = framework("helm-run")
    entry = ("--run-entries", "simple_mcqa:model=simple/model1", "--suite", "s")
    called = (command, *entry, "-o", "out", "--max-eval-instances")
    run(tmp_path, *called, "1000")
    supplied = replace(ALL, task_id=None, metrics={"exact_match": "test/exact_match"})
    (whole,) = adapters.read_all(tmp_path / "out" / "runs")
    built = whole.claims(supplied, allow_mock={"simple/model1"})
    assert (built.claims.task_id, [metric.metric_id for metric in built.claims.metrics]) == (
        "simple_mcqa",
        ["exact_match"],
    )
    shutil.rmtree(tmp_path / "out" / "runs")
    run(tmp_path, *called, "5")
    (part,) = adapters.read_all(tmp_path / "out" / "runs", "helm")
    assert "limited to 5 instances" in refusal(lambda: part.claims(supplied, allow_mock=True)).detail


def test_verievals(tmp_path: Path) -> None:
    command = framework("verievals")
    benchmark = tmp_path / "sums"
    benchmark.mkdir()
    (benchmark / "benchmark.yaml").write_text('id: sums\nversion: "1.0.0"\nscorer: numeric\ndescription: Sums.\n')
    tasks = ({"id": f"t{n}", "prompt": f"{n} + {n}?", "expected": str(2 * n)} for n in range(4))
    (benchmark / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    run(tmp_path, command, "keygen", "--out", "runner")
    signing = ("--key", "runner.key", "--signer", "ci")
    called = (command, "run", "--benchmark", benchmark, "--model", "echo", *signing, "--out")
    run(tmp_path, *called, "records")
    (record,) = (tmp_path / "records").iterdir()
    said = run(tmp_path, command, "ledger", "--ledger", "ledger", "append", record)
    ledger = (tmp_path / "ledger" / "entries.jsonl").read_bytes()
    anchors = Anchors((tmp_path / "runner.pub").read_text().strip(), said.split()[-1], ledger)
    read = adapters.read(record, anchors=anchors)
    assert (
        read.claims(replace(ALL, framework_version=None), allow_mock={"mock:echo"}).claims.framework.name == "verievals"
    )
    # The same run by another key: verievals takes it, as the key is in the record.
    stranger = replace(anchors, public_key=(REAL / "runner.pub").read_text().strip())
    error = refusal(lambda: adapters.read(record, anchors=stranger))
    assert (error.code, error.pointer) == (Code.FILE_RULE, "/signature/public_key")
