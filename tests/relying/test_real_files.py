"""The real result files beside the repository: nobody signed any of them, and every number of them is seen."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.support.in_process import run
from tests.support.shared import SHARED, needs_shared
from tests.support.tree import write_result, write_trust

pytestmark = [needs_shared, pytest.mark.long]

FILES = sorted((SHARED / "eval_results_yaml").glob("*.yaml"))
# The example in the target specification has a token that ends in dots.
ELIDED = "target001__hle_full.yaml"
# Definitions that the target specification gives, and the benchmarks that its results name.
DEFINED = {"MathArena/aime_2026": "matharena", "cais/hle": "hle", "ScaleAI/SWE-bench_Pro": "swe_bench_pro"}


def entries(path: Path) -> list[dict[str, Any]]:
    """Read a file with a reader that is not ours."""
    found: list[dict[str, Any]] = yaml.safe_load(path.read_bytes())
    return found


def numbers(entry: dict[str, Any]) -> list[float]:
    return [metric["value"] for metric in entry.get("metrics", [entry])]


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """The files as repositories, by where they are from, with the definitions that there are."""
    write_trust(tmp_path)
    for path in FILES:
        owner, *name, file = path.stem.split("__")
        write_result(tmp_path / "hub", f"{owner}/{'-'.join(name) or 'files'}", f"{file}.yaml", path.read_bytes())
        for entry in entries(path):
            dataset = entry["dataset"]
            if dataset["id"] in DEFINED and "revision" in dataset:
                to = tmp_path / "benchmarks" / dataset["id"] / dataset["revision"] / "eval.yaml"
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes((SHARED / "eval_yaml" / f"target001__{DEFINED[dataset['id']]}.yaml").read_bytes())
    return tmp_path


def tiers() -> dict[str, int]:
    count = sum(len(entries(path)) for path in FILES)
    assert count >= len(FILES) > 10
    return {"self-reported": count - 1, "undecided": 1}


def test_a_table_has_each_entry_with_all_its_numbers(hub: Path) -> None:
    import duckdb

    done = run(["verify", "hub", "--trust", "trust.yaml", "--to", "r.parquet", "--jobs", "1"], hub)
    assert done.code == 1, done
    asked = "select tier, finding, value, list_transform(metrics, lambda one: one.value) from read_parquet(?)"
    rows = duckdb.connect().execute(asked, [str(hub / "r.parquet")]).fetchall()
    assert Counter(row[0] for row in rows) == tiers()
    assert {row[1] for row in rows} == {None}, "each can be read"
    said = sorted(numbers(entry) for path in FILES for entry in entries(path))
    assert sorted(metrics or [value] for *_, value, metrics in rows) == said


def test_a_leaderboard_shows_every_number_and_ranks_none_of_them_unasked(hub: Path) -> None:
    build = [
        "leaderboard",
        "build",
        "hub",
        "-o",
        "site",
        "--trust",
        "trust.yaml",
        "--benchmarks",
        "benchmarks",
        "--every-metric",
        "--jobs",
        "1",
    ]
    done = run([*build], hub)
    assert done.code == 1, done
    made = json.loads((hub / "site/leaderboard.json").read_bytes())
    assert (made["by_tier"], made["refuted"], made["unread"]) == (tiers(), [], [])
    rows = [row for table in made["tables"] for row in table["rows"]]
    said = sorted(number for path in FILES for entry in entries(path) for number in numbers(entry))
    assert sorted(row["value"] for row in rows) == said
    assert {row["rank"] for row in rows} == {None}
    assert f"{sum(tiers().values()) - 1} self-reported" in done.out

    assert run([*build, "--rank-from", "self-reported"], hub).code == 1
    made = json.loads((hub / "site/leaderboard.json").read_bytes())
    ranked = {table["subject"]["benchmark"] for table in made["tables"] if table["rows"][0]["rank"]}
    assert ranked == {"MathArena/aime_2026"}, "the two other examples name tasks that their definitions do not have"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_badge_of_each_says_that_nobody_vouches_for_it(path: Path, tmp_path: Path) -> None:
    write_trust(tmp_path)
    given = ("--path", f".eval_results/{path.stem}.yaml", "--trust", "trust.yaml", "--badge", "badges", "--json")
    done = run(["verify", str(path), "--repo", "acme/open-model", *given], tmp_path)
    assert done.code == 1, done
    tier = "undecided" if path.name == ELIDED else "self-reported"
    for number, entry in enumerate(entries(path)):
        pictures = [tmp_path / "badges" / f"{path.stem}-{number}.{kind}" for kind in ("json", "svg")]
        shield = json.loads(pictures[0].read_bytes())
        assert tier in shield["message"]
        assert "verified" not in shield["message"]
        assert ("source" in shield["message"]) == ("source" in entry)
        assert ElementTree.fromstring(pictures[1].read_bytes()).get("aria-label", "").endswith(shield["message"])
    assert len(list((tmp_path / "badges").iterdir())) == 2 * len(entries(path))
