"""Kinds of runs of other frameworks as the converters of Every Eval Ever write them, and what each record reports.

    python tests/harness/every_eval_ever_runs.py FOLDER

Runs the kinds beside this file anew in FOLDER, converts each, and writes FOLDER/reports.json. Every value of a record must
be a value that the framework itself reported. Needs every-eval-ever with the three frameworks, and no network.
"""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KINDS: dict[str, tuple[str, ...]] = {
    "inspect": ("whole", "multi-value scorer", "grouped", "epochs, two reducers", "limit", "task argument, a number"),
    "lm_eval": ("multiple choice", "two filters", "group of groups", "limit", "shots"),
    "helm": ("cap above the size", "cap", "perturbation", "trials", "several outputs"),
}


def reports(converter: str, record: dict[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    """Yield for each evaluation of a record its numbers. None is proved to be whole: a converter cannot know that."""
    tasks: dict[str, list[dict[str, Any]]] = {}
    asked: dict[str, Any] = {}
    for result in record["evaluation_results"]:
        id_, task = result["evaluation_result_id"], result["evaluation_name"]
        scorer = id_.rpartition(":")[0]
        if converter == "lm_eval":  # METRIC:FILTER, without a filter named none
            scorer = id_.partition(":")[2]
            task = task.removesuffix(f"/{scorer}")
        of_group = converter == "lm_eval" and "hf_repo" not in result["source_data"]
        details = result["score_details"].get("details", {})
        used = result["score_details"].get("uncertainty", {}).get("num_samples")
        there = result["source_data"].get("samples_number")
        asked.setdefault(task, {"generation": result.get("generation_config")})
        tasks.setdefault(task, []).append({
            "scorer": scorer,
            "reducer": details.get("perturbation", "") if converter == "helm" else "",
            "metric": result["metric_config"]["metric_name"],
            "slice": "",
            "value": result["score_details"]["score"],
            "samples": None if of_group or (there and used > there) else used,
            "whole": False if used and there and used < there else None,
        })  # fmt: skip
    for task, scores in tasks.items():
        yield {"path": str(path), "task": task, "arguments": asked[task], "scores": scores}


def converted(converter: str, kind: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Make one kind of run, convert it, and yield the reports of its records."""
    from every_eval_ever.cli import main as every_eval_ever

    runs: Any = importlib.import_module(f"{converter}_runs")
    every = runs.KINDS
    # The converter asks for the developer of the model.
    named = ("--model_args", "pretrained=acme/dummy") if converter == "lm_eval" else ()
    runs.KINDS = {kind: (*every[kind], *named) if named else every[kind]}
    folder.mkdir(parents=True)
    runs.main(folder)
    runs.KINDS = every
    own = json.loads((folder / "reports.json").read_text())
    values = {score["value"] for report in own for score in report["scores"]}
    for number, path in enumerate(sorted({folder / report["path"] for report in own})):
        out = folder / f"data{number}"
        if every_eval_ever(["convert", converter, "--log-path", str(path), "--output-dir", str(out)]):
            sys.exit(f"{converter}, {kind}: the converter failed")
        for record in sorted(out.rglob("*.json")):
            for report in reports(converter, json.loads(record.read_text()), record):
                if strange := [score for score in report["scores"] if score["value"] not in values]:
                    sys.exit(f"{converter}, {kind}: not what the framework reported: {strange}")
                yield {"kind": f"{converter}: {kind}", **report}


def main(folder: Path) -> None:
    from every_eval_ever.converters.inspect import utils

    utils.MODEL_HANDLER_MAP["mockllm"] = (
        utils.InferenceEngineHandler
    )  # the converter refuses providers that are new to it
    found = [
        report
        for converter, kinds in KINDS.items()
        for number, kind in enumerate(kinds)
        for report in converted(converter, kind, folder / f"{converter}{number}")
    ]
    (folder / "reports.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
