"""The comparison with a framework's report: it sees a difference in each column; with frameworks that are here, it sees none."""

import json
from pathlib import Path
from typing import Any

import pytest

from issuer.adapters.load import SourceName
from tests.harness.compare import compare, make, table
from tests.support.frameworks import framework
from tests.support.runs import DATA

SCORE = {"scorer": "none", "reducer": "", "slice": "", "samples": 4, "whole": True}
CONFIG = json.loads((DATA / "lm_eval_dummy.json").read_text())["configs"]["choice_mini"]
PROMPTS = ("description", "doc_to_text", "doc_to_target", "doc_to_choice", "target_delimiter", "fewshot_delimiter")
REPORT: dict[str, Any] = {
    "kind": "group",
    "path": str(DATA / "lm_eval_dummy.json"),
    "task": "choice_mini",
    "epochs": 1,
    "arguments": {"num_fewshot": 0, "repeats": 1, "prompt": {name: CONFIG[name] for name in PROMPTS}},
    "scores": [
        {**SCORE, "metric": "acc", "value": 0.5},
        {**SCORE, "metric": "acc_stderr", "value": 0.28867513459481287},
    ],
}


def columns(folder: Path, changes: dict[str, Any], of_score: dict[str, Any]) -> list[str]:
    changed = {**REPORT, "scores": [{**REPORT["scores"][0], **of_score}, REPORT["scores"][1]], **changes}
    (folder / "reports.json").write_text(json.dumps([changed]))
    (kind,) = compare(folder, "lm-eval")
    (row,) = list(table([kind]))[1:]
    assert row.count("≠") == len({one.column for one in kind.different})
    return [one.column for one in kind.different]


@pytest.mark.parametrize(
    ("changes", "of_score", "different"),
    [
        ({}, {}, []),
        ({}, {"value": 0.25}, ["value"]),
        ({}, {"value": None}, ["value"]),
        ({}, {"samples": 3}, ["count", "count"]),
        ({"epochs": 2}, {}, ["count", "count"]),
        ({}, {"whole": None}, ["completeness"]),
        ({}, {"metric": "f1"}, ["selection"]),
        ({"task": "absent"}, {}, ["selection"]),
        ({"arguments": {**REPORT["arguments"], "num_fewshot": 2}}, {}, ["arguments"]),
        ({"refused": "/status"}, {}, ["completeness"]),
    ],
)
def test_a_difference_is_seen_in_its_column(
    changes: dict[str, Any], of_score: dict[str, Any], different: list[str], tmp_path: Path
) -> None:
    assert columns(tmp_path, changes, of_score) == different


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "source", "program", "least"),
    [
        ("inspect", "inspect", "inspect_runs.py", 70),
        ("lm_eval", "lm-eval", "lm_eval_runs.py", 35),
        ("helm-run", "helm", "helm_runs.py", 20),
        ("lighteval", "lighteval", "lighteval_runs.py", 15),
    ],
)
def test_we_say_of_every_kind_of_run_what_the_framework_reports(
    command: str, source: SourceName, program: str, least: int, tmp_path: Path
) -> None:
    make(Path(framework(command)).with_name("python"), program, tmp_path)
    kinds = compare(tmp_path, source)
    assert [str(difference) for kind in kinds for difference in kind.different] == []
    assert len(kinds) >= least
