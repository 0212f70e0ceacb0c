"""A whole hub, judged by the commands: each result gets the tier that it was made for, and every time the same one."""

import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import Done, run
from tests.support.whole_hub import KINDS, WholeHub


def command(hub: WholeHub, *arguments: object) -> Done:
    judged = ("--trust", "trust.yaml", "--received-now", "--benchmarks", "benchmarks", "--jobs")
    return run([*map(str, arguments[:-1]), *judged, str(arguments[-1])], hub.folder)


def board_of(hub: WholeHub, out: str, jobs: int) -> dict[str, Any]:
    done = command(hub, "leaderboard", "build", "hub", "-o", out, jobs)
    assert done.code == 3, done
    made: dict[str, Any] = json.loads((hub.folder / out / "leaderboard.json").read_bytes())
    return made


def demand_board(hub: WholeHub, made: dict[str, Any]) -> None:
    """Demand that each number of a leaderboard is the one that the hub was made with."""
    assert made["by_tier"] == Counter(hub.tiers.values())
    assert len(made["unread"]) == hub.unread
    refuted = {(*place_of(entry), entry["pointer"]) for entry in made["refuted"]}
    assert refuted == hub.refuted_by.keys()
    for table in made["tables"]:
        for row in table["rows"]:
            tier = hub.tiers[*place_of(row["entry"]), row["entry"]["pointer"]]
            assert row["entry"]["tier"] == tier
            if row["rank"] is not None:
                assert tier in {"reproduced", "logged", "verified"}


def place_of(entry: dict[str, Any]) -> tuple[str, str]:
    return entry["repo"], Path(entry["file"]).name


def test_one_repository_of_each_kind_gets_its_tiers(tmp_path: Path) -> None:
    hub = WholeHub(tmp_path, len(KINDS), int(time.time()))
    demand_board(hub, board_of(hub, "site", 1))


@pytest.mark.long
def test_two_thousand_repositories_get_their_tiers_with_any_number_of_processes(tmp_path: Path) -> None:
    hub = WholeHub(tmp_path, 2000, int(time.time()))
    demand_board(hub, board_of(hub, "one", 1))
    board_of(hub, "two", 3)
    assert without_the_hour(tmp_path / "one") == without_the_hour(tmp_path / "two")
    rows = table_of(hub, 1)
    assert rows == table_of(hub, 3), "in the same order"
    assert sum(finding is not None for *_, finding in rows) == hub.unread
    entries = [row for row in rows if row[-1] is None]
    assert {(repo, name, pointer): tier for repo, name, pointer, tier, *_ in entries} == hub.tiers
    assert len(entries) == len(hub.tiers), "each is there once"
    for repo, name, pointer, tier, shared, *checks, _ in entries:
        number = hub.refuted_by.get((repo, name, pointer))
        assert (tier == "refuted") == (number is not None)
        assert number is None or checks[number - 1] == "fail", (repo, number)
        assert shared == ((repo, name, pointer) in hub.doubled)


def without_the_hour(site: Path) -> str:
    """Return a leaderboard without its times."""
    text = (site / "leaderboard.json").read_text()
    return re.sub(r'"judged_at":\d+|received [^;"]* before expiry', "", text)


def table_of(hub: WholeHub, jobs: int) -> list[tuple[Any, ...]]:
    import duckdb

    done = command(hub, "verify", "hub", "--quiet", "--to", "r.parquet", jobs)
    assert done.code == 3, done
    asked = "repo, parse_filename(path), pointer, tier, shared_jti, columns('^check_[0-9]+$'), finding"
    found: list[tuple[Any, ...]] = (
        duckdb.connect().execute(f"select {asked} from read_parquet(?)", [str(hub.folder / "r.parquet")]).fetchall()
    )
    return found
