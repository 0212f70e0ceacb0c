"""Kinds of runs of HELM with its model `simple/model1`, and what its files report of each.

    python tests/harness/helm_runs.py FOLDER

Calls HELM's own command for each kind in FOLDER, and writes FOLDER/reports.json. Needs only crfm-helm, and no network.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

SIZE = 79  # test instances of `simple_mcqa`, `simple_short_answer_qa` and `simple_classification`

# The run's name and arguments, then the options of helm-run, which asks for a cap on the instances: 1,000 by default.
KINDS: dict[str, tuple[str, ...]] = {
    "cap above the size": ("simple_mcqa",),
    "cap of the size": ("simple_mcqa", "-m", str(SIZE)),
    "cap": ("simple_mcqa", "-m", "5"),
    "cap in the entry": ("simple_mcqa:max_eval_instances=7",),
    "classes": ("simple_classification",),
    "train trials": ("simple_mcqa", "-m", "20", "-t", "3"),
    "trials": ("simple_classification", "-t", "2"),
    "trials of the task": ("simple1",),
    "no examples": ("simple_mcqa:max_train_instances=0",),
    "two examples": ("simple_mcqa:max_train_instances=2",),
    "perturbation": ("simple_mcqa:data_augmentation=lower",),
    "perturbation and a cap": ("simple_mcqa:data_augmentation=misspelling_hard", "-m", "9"),
    "perturbation that changes nothing": ("simple_mcqa:data_augmentation=contract",),
    "perturbation and trials": ("simple_mcqa:data_augmentation=typo_easy", "-t", "2"),
    "one split": ("simple_mcqa:eval_split=test",),
    "temperature": ("simple_mcqa:temperature=0.5",),
    "instructions": ("simple_mcqa:instructions=expert",),
    "prompt": ("simple_mcqa:global_prefix=nlg",),
    "several outputs": ("simple_mcqa:num_outputs=3",),
    "dry run": ("simple_mcqa", "-m", "5", "-d"),
    "killed": ("simple_mcqa",),
}


def spelled(name: dict[str, Any]) -> tuple[str, str, str]:
    """Return a stat's split and sub-split, its perturbation with the side it was computed on, and its name."""
    changed = name.get("perturbation") or {}
    split = ".".join(filter(None, (name.get("split"), name.get("sub_split"))))
    return split, ".".join(filter(None, (changed.get("name"), changed.get("computed_on")))), name["name"]


def report(run: Path) -> dict[str, Any]:
    """Return the values and counts in HELM's files of one run, and whether it ran every instance, as HELM knows it."""
    if not (run / "stats.json").exists():
        return {"refused": "no results"}
    spec, stats, state, instances = (
        json.loads((run / f"{name}.json").read_text())
        for name in ("run_spec", "stats", "scenario_state", "per_instance_stats")
    )
    adapter = spec["adapter_spec"]
    asked = [one["instance"] for one in state["request_states"]]
    ran = {(one["split"], one["id"]) for one in asked if "perturbation" not in one}
    having: dict[tuple[str, str, str], set[str]] = {}
    for one in instances:
        for stat in one["stats"]:
            if stat["count"]:
                having.setdefault(spelled(stat["name"]), set()).add(one["instance_id"])
    cap = adapter.get("max_eval_instances")
    trials = adapter.get("num_train_trials", 1) * adapter.get("num_trials", 1)
    scores = []
    for stat in stats:
        split, changed, name = spelled(stat["name"])
        scores.append({
            "scorer": split, "reducer": changed, "metric": name, "slice": "",
            "value": stat["mean"] if stat["count"] else None,
            "samples": len(having.get((split, changed, name), ())) or None,
            "whole": True if cap is None or len(ran) < cap else None,
        })  # fmt: skip
    not_arguments = ("model", "model_deployment", "max_eval_instances")
    arguments = {
        "adapter": {name: value for name, value in adapter.items() if name not in not_arguments},
        "scenario": spec["scenario_spec"].get("args"),
        "augmenter": spec.get("data_augmenter_spec"),
    }
    return {"epochs": trials, "arguments": arguments, "scores": scores}


def main(folder: Path) -> None:
    from helm.benchmark import runner
    from helm.benchmark.run import main as helm_run

    os.chdir(folder)
    found = []
    for number, (kind, (entry, *options)) in enumerate(KINDS.items()):
        named = f"{entry}{',' if ':' in entry else ':'}model=simple/model1"
        sys.argv[1:] = ["--run-entries", named, "--suite", "s", "-o", f"out{number}", "--disable-cache", *options]
        if "-m" not in options:
            sys.argv += ["-m", "1000"]
        if kind != "killed":
            helm_run()
        elif (child := os.fork()) == 0:
            runner.write = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
            helm_run()
        else:
            os.waitpid(child, 0)
        run = next((path.parent for path in Path(f"out{number}").rglob("run_spec.json")), Path(f"out{number}"))
        found.append({"kind": kind, "path": str(run), **report(run)})
    (folder / "reports.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
