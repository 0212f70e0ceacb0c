"""Runs lighteval with its dummy model over three small tasks: `python make_lighteval_run.py OUT [MAX_SAMPLES]`, offline.

Needs a Python with lighteval 0.13.0, which is no dependency of this project. Lighteval's own tasks are left out: two of
them ask the network as soon as tasks are listed.
"""

# mypy: ignore-errors

import json
import os
import sys
from pathlib import Path


def write_tasks(folder: Path) -> None:
    """Write four questions; the dummy, which always answers alike, is right in one, which is one of the two of `high`."""
    rows = [{"number": n, "answer": str(2 * n) if n < 3 else "random baseline"} for n in range(4)]
    (folder / "sums").mkdir(parents=True)
    (folder / "sums" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "tasks.py").write_text("""
from lighteval.metrics.metrics import Metrics
from lighteval.tasks.lighteval_task import LightevalTaskConfig
from lighteval.tasks.requests import Doc


def prompt(line, task_name=None):
    number = line["number"]
    if "high" in task_name and number < 2:
        return None
    return Doc(task_name=task_name, query=f"{number} + {number}?", choices=[line["answer"]], gold_index=0)


def task(name):
    return LightevalTaskConfig(
        name=name, prompt_function=prompt, hf_repo="sums", hf_subset="default", hf_avail_splits=["test"],
        evaluation_splits=["test"], generation_size=8, metrics=[Metrics.exact_match], stop_sequence=["\\n"],
    )


TASKS_TABLE = [task("sums:low"), task("sums:high"), task("alone")]
""")


def run(out: Path, max_samples: int | None) -> None:
    from lighteval.logging.evaluation_tracker import EvaluationTracker
    from lighteval.models.dummy.dummy_model import DummyModelConfig
    from lighteval.pipeline import ParallelismManager, Pipeline, PipelineParameters
    from lighteval.tasks.registry import Registry

    Registry._load_from_subdirs = staticmethod(lambda _: {})
    write_tasks(out)
    os.chdir(out)  # the tasks name their data by where it is
    pipeline = Pipeline(
        tasks="alone|0,sums:low|0,sums:high|0",
        pipeline_parameters=PipelineParameters(
            launcher_type=ParallelismManager.NONE, custom_tasks_directory="tasks.py", max_samples=max_samples
        ),
        evaluation_tracker=EvaluationTracker(output_dir=".", save_details=False),
        model_config=DummyModelConfig(model_name="dummy"),
    )
    pipeline.evaluate()
    pipeline.save_and_push_results()
    pipeline.show_results()


if __name__ == "__main__":
    run(Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else None)
