"""Kinds of runs of lm-evaluation-harness with its dummy model, and what its results and logged samples report of each.

    python tests/harness/lm_eval_runs.py FOLDER

Calls lm-eval's own command for each kind in FOLDER, and writes FOLDER/reports.json. Needs only lm-eval, and no network.
"""

import functools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SIZE = 4
TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: data.jsonl, train: shots.jsonl}}}}
{split}: test
doc_to_text: "{{{{question}}}}"
metadata: {{version: 1.0}}
{more}
"""
CHOICE = """output_type: multiple_choice
doc_to_target: 0
doc_to_choice: ["{{answer}}", "no"]
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
"""
FILTERS = """output_type: generate_until
doc_to_target: "{{answer}}"
repeats: 2
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
filter_list:
  - {name: strict, filter: [{function: regex, regex_pattern: "([0-9]+)"}, {function: take_first}]}
  - {name: loose, filter: [{function: take_first}]}
"""
PLAIN = """output_type: generate_until
doc_to_target: "{{answer}}"
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
ROLLING = """output_type: loglikelihood_rolling
doc_to_target: "{{question}}"
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
"""
SHOTS = "training_split: train\nfewshot_split: train\n"
TASKS: dict[str, str | tuple[str, str]] = {  # the task's members, and its split if that is not the test split
    "choice": CHOICE + SHOTS,
    "filters": FILTERS,
    "plain": PLAIN + SHOTS,
    "rolling": ROLLING,
    "shown": PLAIN + SHOTS + "num_fewshot: 2\n",
    "tagged": CHOICE + "tag: marked\n",
    "named": CHOICE + "task_alias: Another name\ndescription: Be brief.\n",
    "three": PLAIN + "repeats: 3\nprocess_docs: !function code.first_three\n",
    "gap": PLAIN + "process_results: !function code.without_the_second\n",
    "dies": PLAIN + "process_results: !function code.die\n",
    "warm": PLAIN + "generation_kwargs: {until: [x], temperature: 0.5, do_sample: true}\n",
    "checked": (CHOICE, "validation_split"),
}
CODE = """
import os, signal

def first_three(docs):
    return docs.select(range(3))

def without_the_second(doc, results):
    found = {"exact_match": 0.0}
    return found if doc["answer"] == "2" else {**found, "other": 1.0}

def die(doc, results):
    os.kill(os.getpid(), signal.SIGKILL)
"""
MEAN = "aggregate_metric_list: [{{metric: {}, aggregation: mean, weight_by_size: {}}}]\nmetadata: {{version: 1.0}}\n"
GROUPS = {
    "both": "task: [choice, filters]\n" + MEAN.format("acc", "true"),
    "uneven": "task: [plain, three]\n" + MEAN.format("exact_match", "false"),
    "weighted": "task: [plain, three]\n" + MEAN.format("exact_match", "true"),
    "outer": "task: [both, plain]\n" + MEAN.format("exact_match", "true"),
    "bare": "task: [choice, plain]\n",
    "inline": "task:\n  - {group: inner, task: [choice, tagged], aggregate_metric_list: [{metric: acc}]}\n  - plain\n",
}

# The options of lm-eval; --tasks comes first. None: the run ends before its results are written.
KINDS: dict[str, tuple[str, ...]] = {
    "multiple choice": ("choice",),
    "two filters": ("filters",),
    "generation": ("plain",),
    "perplexity": ("rolling",),
    "validation split": ("checked",),
    "alias and description": ("named",),
    "several tasks": ("choice,filters,plain",),
    "tag": ("marked",),
    "documents chosen by the task": ("three",),
    "a metric of some documents": ("gap",),
    "group": ("both",),
    "group of groups": ("outer",),
    "group within a group's file": ("inline",),
    "group, mean of tasks": ("uneven",),
    "group, mean of documents": ("weighted",),
    "group without a mean": ("bare",),
    "limit": ("choice", "--limit", "2"),
    "limit above the size": ("choice", "--limit", "100"),
    "limit as a share": ("choice", "--limit", "0.5"),
    "limit, group of groups": ("outer", "--limit", "3"),
    "chosen documents": ("choice", "--samples", '{"choice": [1, 3]}'),
    "chosen documents, all": ("choice", "--samples", '{"choice": [0, 1, 2, 3]}'),
    "chosen documents, group": ("both", "--samples", '{"choice": [1, 3], "filters": [0, 1, 2]}'),
    "shots": ("choice,plain", "--num_fewshot", "2"),
    "shots of the task": ("shown",),
    "shots of the task, none": ("shown", "--num_fewshot", "0"),
    "shots, group": ("bare", "--num_fewshot", "1"),
    "gen_kwargs": ("plain", "--gen_kwargs", "temperature=0.7,do_sample=True,max_gen_toks=9"),
    "gen_kwargs of the task": ("warm",),
    "gen_kwargs over the task's": ("warm", "--gen_kwargs", "temperature=0.9"),
    "system instruction": ("plain", "--system_instruction", "Be brief."),
    "one seed": ("choice", "--seed", "7"),
    "four seeds": ("choice", "--seed", "1,2,3,None"),
    "batch size": ("choice", "--batch_size", "8"),
    "cached answers": ("choice", "--use_cache", "cache"),
    "metadata": ("choice", "--metadata", '{"k": 1}'),
    "answers alone": ("plain", "--predict_only"),
    "killed": ("dies",),
}


def write_tasks() -> None:
    for name, more in TASKS.items():
        text, split = (more, "test_split") if isinstance(more, str) else more
        Path(f"{name}.yaml").write_text(TASK.format(name=name, split=split, more=text))
    for name, more in GROUPS.items():
        Path(f"{name}.yaml").write_text(f"group: {name}\n{more}")
    Path("code.py").write_text(CODE)
    rows = [json.dumps({"question": f"{n} + {n}?", "answer": str(2 * n)}) for n in range(SIZE)]
    Path("data.jsonl").write_text("\n".join(rows) + "\n")
    Path("shots.jsonl").write_text("\n".join(rows) + "\n")


def called(tasks: str, *options: str, out: Path) -> list[str]:
    """Return the arguments of lm-eval's command."""
    logged = () if "--predict_only" in options else ("--log_samples",)
    return [
        "run", "--model", "dummy", "--tasks", tasks, "--include_path", ".", *logged, "--output_path", str(out), *options
    ]  # fmt: skip


def leaves(task: str, groups: dict[str, list[str]]) -> list[str]:
    """Return the tasks in a group, also of groups in it; a task contains only itself."""
    return [leaf for part in groups[task] for leaf in leaves(part, groups)] if groups.get(task) else [task]


PROMPTS = ("description", "doc_to_text", "doc_to_target", "doc_to_choice", "target_delimiter", "fewshot_delimiter")
OF_THE_RUN = ("system_instruction", "chat_template", "fewshot_as_multiturn")


def arguments(task: str, written: dict[str, Any]) -> dict[str, Any]:
    """Return what a task, or all tasks of a group, were run with; `tasks` replaces those in which they differ."""
    every = []
    for leaf in leaves(task, written["group_subtasks"]):
        config = written["configs"][leaf]
        every.append({
            "num_fewshot": written["n-shot"][leaf],
            "repeats": config["repeats"],
            **{f"generation.{name}": value for name, value in (config.get("generation_kwargs") or {}).items()},
            **{f"prompt.{name}": config.get(name) for name in PROMPTS},
        })  # fmt: skip
    shared = {name: value for name, value in every[0].items() if all(one.get(name) == value for one in every)}
    differ = {"tasks": "sha256:"} if any(one != every[0] for one in every) else {}
    of_the_run = {name: written.get(name) for name in OF_THE_RUN}
    return {**of_the_run, "gen_kwargs": written["config"].get("gen_kwargs"), **shared, **differ}


def reports(kind: str, out: Path) -> Iterator[dict[str, Any]]:
    """Yield for each task and group what lm-eval wrote of it: values in its results, counts in its logged samples."""
    files = list(out.rglob("results_*.json"))
    if not files:
        yield {"kind": kind, "path": str(out), "refused": "no results"}
        return
    (file,) = files
    written = json.loads(file.read_text())
    logged: dict[tuple[str, str], set[int]] = {}
    for task in written["configs"]:
        (samples,) = file.parent.glob(f"samples_{task}_*.jsonl")
        for row in map(json.loads, samples.read_text().splitlines()):
            logged.setdefault((task, row["filter"]), set()).add(row["doc_id"])
    for task, found in written["results"].items():
        own = leaves(task, written["group_subtasks"])
        short = [
            leaf for leaf in own for (name, _), ids in logged.items()
            if name == leaf and len(ids) < written["n-samples"][leaf]["original"]
        ]  # fmt: skip
        repeats = {written["configs"][leaf]["repeats"] for leaf in own}
        scores = []
        for key, value in found.items():
            metric, comma, scorer = key.rpartition(",")
            having = [leaf for leaf in own if key in written["results"][leaf]]
            if comma:
                scores.append({
                    "scorer": scorer, "reducer": "", "metric": metric, "slice": "", "value": value,
                    "samples": sum(len(logged.get((leaf, scorer), ())) for leaf in having),
                    "whole": not short,
                })  # fmt: skip
        epochs = repeats.pop() if len(repeats) == 1 else 1
        asked = arguments(task, written)
        yield {"kind": kind, "path": str(file), "task": task, "epochs": epochs, "arguments": asked, "scores": scores}


def main(folder: Path) -> None:
    from lm_eval import tasks
    from lm_eval.__main__ import cli_evaluate

    # Without its own tasks, as it takes seconds to list them, for each kind of run.
    tasks.TaskManager = functools.partial(tasks.TaskManager, include_defaults=False)
    os.chdir(folder)
    write_tasks()
    found: list[dict[str, Any]] = []
    for number, (kind, options) in enumerate(KINDS.items()):
        out = folder / f"out{number}"
        sys.argv[1:] = called(*options, out=out)
        if kind == "killed":
            if (child := os.fork()) == 0:
                cli_evaluate()
            os.waitpid(child, 0)
        else:
            cli_evaluate()
        found += reports(kind, out)
    (folder / "reports.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
