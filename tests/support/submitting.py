"""A model's and a benchmark's repository on a Hub, and real runs of two frameworks, for submissions."""

import json
from collections.abc import Mapping
from pathlib import Path

from issuer.api import trust_issuer, verify_file
from issuer.dev.sandbox import AUDIENCE
from issuer.results.benchmark import read_benchmark
from tests.support.hub_server import HubServer
from tests.support.hub_state import Commit, Repo
from tests.support.runs import BENCHMARK_COMMIT, DATA, MODEL_COMMIT, OTHER_COMMIT, edited

MODEL = "acme/open-model"
GSM8K = "openai/gsm8k"
PATH = ".eval_results/gsm8k.yaml"
BENCHMARK = b"""name: GSM8K
description: School mathematics.
metrics:
  - {id: accuracy, display_name: Accuracy, higher_is_better: true, primary: true}
  - {id: stderr, display_name: Standard error, higher_is_better: false}
tasks:
  - {id: gsm8k_mini}
"""
# The members that the run of Inspect AI lacks, and the claimed score.
INSPECT = (
    "--model-repo", MODEL, "--command", "inspect eval gsm8k_mini.py", "--metric", "accuracy=match/accuracy",
    "--allow-mock", "mockllm/model",
)  # fmt: skip
# The same of the run of lm-evaluation-harness.
LM_EVAL = (
    "--model-repo", MODEL, "--model-revision", MODEL_COMMIT, "--benchmark-repo", "acme/choice",
    "--benchmark-revision", OTHER_COMMIT, "--command", "lm_eval --tasks choice_mini", "--task", "choice_mini",
    "--allow-mock", "dummy",
)  # fmt: skip


def write_run(folder: Path, name: str = "inspect_two_scorers.json", **changes: object) -> Path:
    """Copy a run of a framework, with members changed, by the parts of their pointer: `eval__task="x"`."""
    raw = (DATA / name).read_bytes()
    for place, value in changes.items():
        raw = edited(raw, f"/{place.replace('__', '/')}", value)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(raw)
    return path


def plain_runs(folder: Path, *tasks: str, model: str = MODEL, benchmark: str = "acme/math") -> Path:
    """Write a file of plain JSON with a run for each task."""
    run = {
        "model_repo": model, "model_revision": MODEL_COMMIT, "benchmark_repo": benchmark,
        "benchmark_revision": BENCHMARK_COMMIT, "completeness": {"answer": "full"},
        "framework": {"name": "inspect-ai", "version": "0.3.285", "command": "inspect eval math"},
        "metrics": [{"metric_id": "acc", "value": 0.75, "scorer": "strict"}],
    }  # fmt: skip
    runs = [{**run, "task_id": task, "task": task} for task in tasks]
    path = folder / f"{model.replace('/', '-')}-{len(tasks)}.json"
    path.write_text(json.dumps({"format": "eval-token-issuer/run/v1", "runs": runs}))
    return path


def verify_open(hub: HubServer, issuer: str, folder: Path) -> None:
    """Verify the file of the one open pull request, as a checkout of its branch in a new folder."""
    repo = hub.repos["model", MODEL]
    (talk,) = repo.open
    raw = repo.file(PATH, talk.ref)
    assert raw is not None
    file = folder / PATH
    file.parent.mkdir(parents=True)
    file.write_bytes(raw)
    trust, benchmark = trust_issuer(issuer, AUDIENCE), read_benchmark(BENCHMARK, "eval.yaml")
    reports = verify_file(file, repo=MODEL, trust=trust, received="now", benchmark=benchmark)
    assert [report.verdict for report in reports] == ["verified"], reports


def texts_on(hub: HubServer) -> list[str]:
    """Return the public texts of the repositories of a Hub: pull requests, their comments, and files."""
    repos = hub.repos.values()
    talks = [text for repo in repos for talk in repo.talks for text in (talk.title, *talk.comments)]
    return talks + [raw.decode() for repo in repos for one in repo.commits.values() for raw in one.files.values()]


def fill(hub: HubServer, files: Mapping[str, bytes] | None = None, *, benchmark: bytes | None = BENCHMARK) -> Repo:
    """Make the model's repository, and the benchmark's with its eval.yaml at the commit that the run names."""
    there = {} if benchmark is None else {"eval.yaml": benchmark}
    dataset = hub.repo(GSM8K, {}, "dataset")
    dataset.commits[BENCHMARK_COMMIT] = Commit(BENCHMARK_COMMIT, dataset.main, there, "as it ran")
    return hub.repo(MODEL, {"README.md": b"# A model\n", **(files or {})})
