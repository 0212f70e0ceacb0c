"""Kinds of runs of lighteval with its dummy model, and what its own trackers report of each.

    python tests/harness/lighteval_runs.py FOLDER

Runs lighteval's pipeline for each kind in FOLDER, and writes FOLDER/reports.json. Needs only lighteval, and no network.
Lighteval's own tasks are left out: two of them ask the network as soon as tasks are listed.
"""

# mypy: ignore-errors

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from lighteval.logging.evaluation_tracker import EvaluationTracker
from lighteval.models.dummy.dummy_model import DummyModelConfig
from lighteval.models.model_input import GenerationParameters
from lighteval.pipeline import ParallelismManager, Pipeline, PipelineParameters
from lighteval.tasks.registry import Registry

SIZE = 4
TASKS = """
from lighteval.metrics.metrics import Metrics
from lighteval.tasks.lighteval_task import LightevalTaskConfig
from lighteval.tasks.requests import Doc


def prompt(line, task_name=None):
    number = line["number"]
    if "high" in task_name and number < 2:
        return None
    return Doc(task_name=task_name, query=f"{number} + {number}?", choices=[line["answer"], "no"], gold_index=0)


def task(name, metrics=(Metrics.exact_match,), **more):
    return LightevalTaskConfig(
        name=name, prompt_function=prompt, hf_repo="sums", hf_subset="default", hf_avail_splits=["train", "test"],
        evaluation_splits=["test"], few_shots_split="train", generation_size=8, metrics=list(metrics),
        stop_sequence=["\\n"], **more,
    )


TASKS_TABLE = [
    task("sums:low"), task("sums:high"), task("alone"),
    task("choice", [Metrics.loglikelihood_acc]),
    task("two", [Metrics.exact_match, Metrics.f1_score]),
    task("often", [Metrics.pass_at_k(sample_params={"k": 1, "n": 4})]),
    task("kept", hf_filter=lambda row: row["number"] > 0),
    task("corpus", [Metrics.bleu]),
]
"""

# The tasks, then the pipeline's parameters and the model's.
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "one task": ("alone|0", {}, {}),
    "average of subtasks": ("sums:low|0,sums:high|0", {}, {}),
    "one subtask": ("sums:high|0", {}, {}),
    "several tasks": ("alone|0,choice|0", {}, {}),
    "two metrics": ("two|0", {}, {}),
    "metric of the corpus": ("corpus|0", {"bootstrap_iters": 10}, {}),
    "several answers": ("often|0", {}, {}),
    "rows chosen by the task": ("kept|0", {}, {}),
    "max_samples": ("alone|0", {"max_samples": 2}, {}),
    "max_samples above the size": ("alone|0", {"max_samples": 100}, {}),
    "max_samples, average": ("sums:low|0,sums:high|0", {"max_samples": 1}, {}),
    "shots": ("alone|2", {}, {}),
    "shots and none": ("alone|0,alone|2", {}, {}),
    "seeds of shots": ("alone|2", {"num_fewshot_seeds": 2}, {}),
    "generation": ("alone|0", {}, {"generation_parameters": GenerationParameters(temperature=0.5, max_new_tokens=9, seed=7)}),
    "system prompt": ("alone|0", {}, {"system_prompt": "Be brief."}),
    "seed": ("choice|0", {}, {"seed": 7}),
    "another name": ("alone|0", {}, {"model_name": "acme/dummy"}),
}  # fmt: skip


OF_TASKS = (
    "few_shots_select", "few_shots_split", "generation_grammar", "generation_size", "num_samples", "prompt_function",
    "stop_sequence",
)  # fmt: skip


def arguments(pipeline: Pipeline, task: str) -> dict[str, Any]:
    """Return what a task, or the subtasks of an average, were run with, by lighteval's own objects."""
    name, _, shots = task.rpartition("|")
    prefix = name.removesuffix("_average")
    configs = [
        own.config for own in pipeline.tasks_dict.values()
        if own.full_name == task or (name != prefix and own.full_name.startswith(prefix))
    ]  # fmt: skip
    model = pipeline.model.config
    shared = {}
    for member in OF_TASKS:
        values = [getattr(value := getattr(config, member), "__name__", value) for config in configs]
        shared[member] = values[0] if all(value == values[0] for value in values) else "sha256:"
    generation = {key: value for key, value in model.generation_parameters.model_dump().items() if key != "seed"}
    seeds = pipeline.pipeline_parameters.num_fewshot_seeds
    return {
        "num_fewshot": int(shots), "num_fewshot_seeds": seeds, "generation": generation,
        "system_prompt": model.system_prompt, **shared,
    }  # fmt: skip


def run(number: int, tasks: str, given: dict[str, Any], model: dict[str, Any]) -> list[dict[str, Any]]:
    """Run one kind, and return the report of each task and average by lighteval's own trackers."""
    tracker = EvaluationTracker(output_dir=f"out{number}", save_details=False)
    pipeline = Pipeline(
        tasks=tasks,
        pipeline_parameters=PipelineParameters(
            launcher_type=ParallelismManager.NONE, custom_tasks_directory="tasks.py", **given
        ),
        evaluation_tracker=tracker,
        model_config=DummyModelConfig(**{"model_name": "dummy", "cache_dir": f"cache{number}", **model}),
    )
    pipeline.evaluate()
    pipeline.save_and_push_results()
    (file,) = Path(f"out{number}").rglob("results_*.json")
    return [
        {
            "path": str(file),
            "task": task,
            "arguments": arguments(pipeline, task),
            "scores": [
                {
                    "scorer": "", "reducer": "", "metric": metric, "slice": "", "value": value, "samples": None,
                    "epochs": int((re.findall(r"n=([0-9]+)", metric) or [1])[0]),
                    "whole": None if "max_samples" in given or "_average" in task else True,
                }
                for metric, value in found.items()
            ],
        }
        for task, found in tracker.results["results"].items()
        if task != "all"
    ]  # fmt: skip


def main(folder: Path) -> None:
    Registry._load_from_files = Registry._load_from_subdirs = staticmethod(lambda *_: {})
    os.chdir(folder)
    Path("tasks.py").write_text(TASKS)
    Path("sums").mkdir()
    # The dummy always answers alike. It is right in one of the four.
    rows = [{"number": n, "answer": str(2 * n) if n < 3 else "random baseline"} for n in range(SIZE)]
    for split in ("train", "test"):
        Path("sums", f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = [
        {"kind": kind, **one}
        for number, (kind, given) in enumerate(KINDS.items())
        for one in run(number, *given)
    ]  # fmt: skip
    (folder / "reports.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
