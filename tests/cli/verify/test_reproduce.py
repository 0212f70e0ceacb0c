"""`issuer reproduce compare`, and `--reproduces`: two runs that agree, and the entry that says which one it reproduces."""

import json
from pathlib import Path
from typing import Any

from issuer.results.edit import merge
from issuer.results.entry import content_digest, read_entries
from tests.support.in_process import Done, run
from tests.support.runs import DATA

PLAIN = DATA / "plain_run.json"


def second(folder: Path, *changes: tuple[str, Any], framework: str = "other-harness") -> Path:
    """Write the run again, by another framework, with other members."""
    document = json.loads(PLAIN.read_text())
    run = document["runs"][0]
    run["framework"]["name"] = framework
    for name, value in changes:
        at: Any = run
        *parents, last = name.split(".")
        for part in parents:
            at = at[int(part) if part.isdecimal() else part]
        at[last] = value
    path = folder / "second.json"
    path.write_text(json.dumps(document))
    return path


def compare(*arguments: object) -> Done:
    return run(["reproduce", "compare", *map(str, arguments)])


def test_runs_get_the_command_for_a_reproduction_or_the_places_where_they_differ(tmp_path: Path) -> None:
    answer = compare(PLAIN, second(tmp_path))
    assert answer.code == 0
    for text in (
        "plain_run.json, acme-harness 2.1.0\nsecond: ", "  acc (algebra) 0.75\n", "issuer submit --reproduces sha256:",
        "do not prove that there were two runs",
    ):  # fmt: skip
        assert text in answer.out
    changes = ("metrics.0.value", 0.76), ("model_revision", "0" * 40), ("details.benchmark_subset", "hard")
    answer = compare(PLAIN, second(tmp_path, *changes))
    assert (answer.code, "they differ at 3 places:" in answer.out) == (1, True)
    assert "  /metrics/0/value\n    first:  acc (algebra) 0.75\n    second: acc (algebra) 0.76\n" in answer.out
    assert "  benchmark_subset\n    first:  all\n    second: hard\n" in answer.out


def test_values_agree_within_the_stated_tolerance_of_their_metric(tmp_path: Path) -> None:
    other = second(tmp_path, ("metrics.0.value", 0.76))
    for stated, code in (("acc=0.01", 0), ("acc=0.009", 1), ("rank=5", 1)):
        assert compare(PLAIN, other, "--tolerance", stated).code == code
    for stated in ("acc", "acc=", "=1", "acc=-1", "acc=nan", "acc=inf", "acc=one"):
        answer = compare(PLAIN, PLAIN, "--tolerance", stated)
        assert (answer.code, "give ID=NUMBER" in answer.err) == (2, True), stated
    document = json.loads(compare(PLAIN, other, "--json").out)
    found = {"where": "/metrics/0/value", "first": "acc (algebra) 0.75", "second": "acc (algebra) 0.76"}
    assert (document["agree"], document["differences"]) == (False, [found])
    assert compare(PLAIN).code == 2
    assert compare(PLAIN, PLAIN, "--task", "math_all", "--task", "other").code == 2


def build(*arguments: object) -> Done:
    return run(["results", "build", *map(str, arguments)])


def test_a_reproduction_of_one_run_is_merged_beside_the_result_that_it_names(tmp_path: Path) -> None:
    assert build(PLAIN, "-o", tmp_path / "one.yaml").code == 0
    first = (tmp_path / "one.yaml").read_text()
    digest = content_digest(read_entries(first.encode(), "one.yaml")[0].form)
    assert digest in compare(PLAIN, second(tmp_path)).out
    assert build(tmp_path / "second.json", "-o", tmp_path / "two.yaml", "--reproduces", digest).code == 0
    text = (tmp_path / "two.yaml").read_text()
    both = merge(first, [text], "math.yaml")
    names = [entry.framework.name for entry in read_entries(both.encode(), "math.yaml")]
    assert names == ["acme-harness", "other-harness"]
    again = merge(both, [text.replace("0.75", "0.76")], "math.yaml")
    assert len(read_entries(again.encode(), "math.yaml")) == 3, "without a token, each may be another party's"
    wrong = build(PLAIN, "-o", tmp_path / "three.yaml", "--reproduces", "5" * 64)
    assert (wrong.code, "give a content digest" in wrong.err) == (2, True)
    document = json.loads(PLAIN.read_text())
    document["runs"].append({**document["runs"][0], "task_id": "other", "task": "other"})
    (tmp_path / "both.json").write_text(json.dumps(document))
    command = (tmp_path / "both.json", "-o", tmp_path / "three.yaml", "--reproduces", digest)
    several = build(*command)
    assert (several.code, "--reproduces is for one run, and these are 2" in several.err) == (3, True)
    assert build(*command, "--task", "other").code == 0
