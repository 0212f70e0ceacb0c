"""Run inspect-ai with its mock model in the ways that change what a number is of, and print its own report of each.

    python tests/data/run_inspect_variants.py FOLDER

Writes `NAME.json` and `NAME.eval` for each variant into the folder, and one line of JSON to standard output: for each
file the status and, as Inspect AI's reader has them, the dataset's size, the epochs, the counts and every score.
"""

import contextlib
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from inspect_ai import Epochs, Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import ProvenanceData, edit_score, read_eval_log, write_eval_log
from inspect_ai.model import ChatMessage, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import (
    Score,
    ScoreEdit,
    Scorer,
    Target,
    accuracy,
    includes,
    match,
    mean,
    model_graded_qa,
    scorer,
    stderr,
)  # fmt: skip
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver

SIZE = 6


def answer(messages: list[ChatMessage], *_: object) -> ModelOutput:
    """Be the model, who says the number in two of three answers, and the one that grades, which takes every second answer."""
    number = int(re.findall(r"([0-9])[?]", messages[-1].text)[0])
    grade, said = "IC"[number % 2], ("no", "so 2", "2 it is")[number % 3]
    output = ModelOutput.from_content("mockllm/model", f"GRADE: {grade}, {said}")
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return output


def not_the_second() -> Scorer:
    """Give the second sample no score in the first epoch, and in the only one."""

    async def score(state: TaskState, _target: Target) -> Score | None:
        if state.sample_id == 2 and state.epoch == 1:
            return None
        return Score(value="C" if state.epoch == 1 else "I")

    return score


def in_parts() -> Scorer:
    """Give a score of two parts, each with metrics of its own."""

    async def score(state: TaskState, _target: Target) -> Score | None:
        return Score(value={"right": 1, "short": int(state.sample_id) % 2})

    return score


def failing_at_four() -> Solver:
    async def solve(state: TaskState, going_on: Generate) -> TaskState:
        if state.sample_id == 4:
            raise ValueError("four")
        return await going_on(state)

    return solve


def graded_by(role: bool) -> dict[str, Any]:
    """Grade by another mock model: by a role, or by the scorer's argument."""
    grader = get_model("mockllm/grader", custom_outputs=answer)
    return {"model_roles": {"grader": grader}} if role else {"scorer": model_graded_qa(model=grader)}


scored = scorer(metrics=[accuracy(), stderr()])(not_the_second)
parted = scorer(metrics={"right": [mean(), stderr()], "short": [mean()]})(in_parts)
failing = solver(failing_at_four)

VARIANTS: dict[str, dict[str, Any]] = {
    "whole": {"scorer": [match(), includes()]}, "unscored": {"scorer": [includes(), scored()]},
    "parts": {"scorer": parted()}, "parts_in_epochs": {"scorer": parted(), "epochs": 2},
    "epochs": {"scorer": includes(), "epochs": 2},
    "reducers": {"scorer": scored(), "epochs": Epochs(2, ["mean", "max"])},
    "unscored_epoch": {"scorer": scored(), "epochs": 2}, "limit_reached": {"scorer": includes(), "limit": 3},
    "limit_not_reached": {"scorer": includes(), "limit": 100}, "range": {"scorer": includes(), "limit": (2, 5)},
    "chosen": {"scorer": includes(), "sample_id": [1, 2]},
    "failing": {"scorer": includes(), "solver": failing(), "fail_on_error": False},
    "seeded": {"scorer": includes(), "seed": 7}, "grader_role": {"scorer": model_graded_qa(), **graded_by(True)},
    "grader_argument": graded_by(False), "edited": {"scorer": [includes(), match()]},
}  # fmt: skip


def run(name: str, suffix: str, given: dict[str, Any], folder: Path) -> Path:
    """Evaluate one variant in an empty folder; return where its log is."""
    out, given = folder / f"{name}.{suffix}", dict(given)
    with tempfile.TemporaryDirectory() as empty, contextlib.chdir(empty):
        samples = [Sample(id=number, input=f"{number}?", target="2") for number in range(1, SIZE + 1)]
        (log,) = eval(
            Task(
                name="mini",
                dataset=MemoryDataset(samples, name="mini", location="acme/mini"),
                scorer=given.pop("scorer"),
                epochs=given.pop("epochs", None),
                solver=given.pop("solver", generate()),
            ),
            model=get_model("mockllm/model", custom_outputs=answer),
            log_dir="logs",
            log_format=suffix,
            display="none",
            **given,
        )
        if log.status != "success":
            sys.exit(f"{name}: the evaluation ended as {log.status}: {log.error}")
        shutil.copyfile(log.location, out)
    if name == "edited":
        log = read_eval_log(str(out))
        edit_score(log, 1, "includes", ScoreEdit(value="I", provenance=ProvenanceData(author="a", reason="r")))
        write_eval_log(log, str(out))
    return out


def report(path: Path) -> dict[str, Any]:
    """Return what Inspect AI's reader says of a log."""
    log = read_eval_log(str(path))
    return {
        "status": log.status,
        "dataset": log.eval.dataset.samples,
        "epochs": log.eval.config.epochs,
        "total": log.results.total_samples,
        "completed": log.results.completed_samples,
        "scores": [
            {
                "name": score.name,
                "reducer": score.reducer,
                "scored": score.scored_samples,
                "given": sum(score.scorer in (sample.scores or {}) for sample in log.samples or []),
                "metrics": {metric: found.value for metric, found in score.metrics.items()},
            }
            for score in log.results.scores
        ],
    }


if __name__ == "__main__":
    logs = [run(name, kind, given, Path(sys.argv[1])) for name, given in VARIANTS.items() for kind in ("json", "eval")]
    print(json.dumps({path.name: report(path) for path in logs}))
