"""`issuer leaderboard build`: from a folder of everything to four files, and the exit code of the worst."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support import make
from tests.support.boards import unsigned, write_bad, write_hostile
from tests.support.in_process import Done, run
from tests.support.processes import peak_mib
from tests.support.tree import entry_text, write_result, write_trust

FILES = {"index.html", "leaderboard.json", "leaderboard.csv", "LEADERBOARD.md"}


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    write_trust(tmp_path)
    write_result(tmp_path / "hub", "acme/one", "task_0.yaml", entry_text("acme/one", 0))
    return tmp_path / "hub"


def build(hub: Path, *more: object) -> Done:
    folder = hub.parent
    given = (hub, "-o", folder / "site", "--trust", folder / "trust.yaml", "--at", make.NOW, "--jobs", 1, *more)
    return run(["leaderboard", "build", *map(str, given)], folder)


def document(hub: Path) -> Any:
    return json.loads((hub.parent / "site/leaderboard.json").read_bytes())


def test_a_folder_becomes_four_files_that_name_their_trust_file(hub: Path) -> None:
    done = build(hub, "--metric", "accuracy=higher")
    assert done.code == 0, done
    assert {path.name for path in (hub.parent / "site").iterdir()} == FILES
    made = document(hub)
    assert made["tables"][0]["rows"][0]["rank"] == 1
    for name in FILES:
        assert made["basis"]["trust"] in (hub.parent / "site" / name).read_text("utf-8")
    assert "rows with a rank (tier verified or better): 1" in done.out
    without = build(hub)
    assert "tables without ranks: 1; give the direction of their metrics" in without.out
    assert document(hub)["tables"][0]["rows"][0]["rank"] is None


def test_the_worst_entry_decides_the_exit_code(hub: Path) -> None:
    good = entry_text("acme/two", 1)
    rows: list[tuple[str, tuple[str, ...], int]] = [
        (unsigned(model_repo="acme/two"), (), 0), (unsigned(model_repo="acme/two"), ("--require-token",), 1),
        (good.replace("0.5", "0.6"), (), 1), ("- [", (), 3),
        (make.two_metrics(model_repo="acme/two", benchmark_repo="bench/task-1"), (), 4),
        (good, ("--metric", "accuracy=up"), 2), (good, ("--hub", "javascript:alert(1)"), 2),
        (good, ("--received-now",), 2), (good, ("--receipts", "absent"), 6),
    ]  # fmt: skip
    for text, more, code in rows:
        shutil.rmtree(hub.parent / "site", ignore_errors=True)
        write_result(hub, "acme/two", "task_1.yaml", text)
        done = build(hub, *more)
        assert (done.code, (hub.parent / "site/index.html").exists()) == (code, code not in {2, 6}), done
    assert build(hub.parent / "nowhere").code == 3


def test_an_unreadable_file_is_a_row_and_two_tokens_with_one_jti_are_refuted(hub: Path) -> None:
    details = {"benchmark_subset": "a\u2028b\x85c"}  # unusual line breaks make no further row
    write_result(hub, "acme/two", "gsm8k.yaml", unsigned(details, model_repo="acme/two"))
    assert build(hub).code == 0
    assert details["benchmark_subset"] in {table["subject"]["subset"] for table in document(hub)["tables"]}
    (hub / "acme/two/.eval_results/gsm8k.yaml").unlink()
    write_result(hub, "acme/two", "task_0.yaml", entry_text("acme/two", 0))
    assert build(hub).code == 1
    made = document(hub)
    assert (len(made["refuted"]), made["tables"]) == (2, [])
    write_result(hub, "acme/two", "a<b>.yaml", "- [")
    (hub / "acme/two/.eval_results/link.yaml").symlink_to("/etc/passwd")
    assert build(hub).code == 3
    assert [(Path(one["file"]).name, one["code"]) for one in document(hub)["unread"]] == [
        ("a<b>.yaml", "file.syntax"), ("link.yaml", "file.unreadable"),
    ]  # fmt: skip


@pytest.mark.long
def test_thousands_of_bad_files_are_rows_and_the_good_one_is_ranked(hub: Path) -> None:
    """Broken, huge, doubled, linked out of the tree, pipes, with hostile names: 6,000 in all."""
    expected = write_bad(hub, 100)
    done = build(hub, "--metric", "accuracy=higher")
    assert done.code == 3, done.err[-500:]
    made = document(hub)
    assert Counter(one["code"] for one in made["unread"]) == expected
    assert len({one["file"] for one in made["unread"]}) == 6_000
    assert all(one["reason"] for one in made["unread"])
    assert [row["rank"] for row in made["tables"][0]["rows"]] == [1]
    page = (hub.parent / "site/index.html").read_text("utf-8")
    assert page.count("<tr><td") == 6_000
    text = page + (hub.parent / "site/LEADERBOARD.md").read_text("utf-8")
    assert text.replace("\n", "").isprintable()


def test_a_flipped_definition_of_a_submitter_makes_no_second_primary_table(hub: Path) -> None:
    """A commit outside of its main branch turns `higher_is_better` round, so the worst model is first in a second table."""
    folder, commit, stray = hub.parent, str(make.claims()["benchmark_revision"]), "0" * 40
    flipped = make.BENCHMARK_TEXT.replace("true, primary: true", "false, primary: true")
    for revision, text in ((commit, make.BENCHMARK_TEXT), (stray, flipped)):
        definition = folder / "benchmarks" / make.BENCHMARK / revision / "eval.yaml"
        definition.parent.mkdir(parents=True)
        definition.write_text(text)
    cheat: dict[str, Any] = {"benchmark_revision": stray, "metrics": [{"metric_id": "accuracy", "value": 1}]}
    evil = make.file_for(make.submission(model_repo="evil/model", **cheat), jti="B" * 21 + "A")
    write_result(hub, "evil/model", "gsm8k.yaml", evil)
    write_result(hub, "evil/other", "gsm8k.yaml", unsigned(model_repo="evil/other", **cheat))
    write_result(hub, "acme/two", "gsm8k.yaml", make.file_for(make.submission(model_repo="acme/two")))

    def primary_tables() -> list[tuple[str, list[tuple[str, int | None]]]]:
        primary = [table for table in document(hub)["tables"] if table["primary"]]
        rows = [[(row["entry"]["repo"], row["rank"]) for row in table["rows"]] for table in primary]
        return [(table["subject"]["direction"], each) for table, each in zip(primary, rows, strict=True)]

    honest = ("higher", [("acme/two", 1)])
    assert build(hub, "--benchmarks", folder / "benchmarks").code == 0
    assert primary_tables() == [honest, ("lower", [("evil/model", 1), ("evil/other", None)])], "any definition counts"
    write_trust(folder, f'definitions: {{"{make.BENCHMARK}": "{commit}"}}\n')
    assert build(hub, "--benchmarks", folder / "benchmarks").code == 1
    assert (primary_tables(), document(hub)["refuted"]) == ([honest], [])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_hostile_repositories_make_small_files_in_little_memory(hub: Path) -> None:
    read = write_hostile(hub, 2_000)
    site = hub.parent / "site"
    given = ("--trust", hub.parent / "trust.yaml", "--at", make.NOW, "--jobs", 1, "--metric", "accuracy=higher")
    code, peak = peak_mib("-m", "issuer", "leaderboard", "build", hub, "-o", site, *given)
    assert code == 3
    assert peak <= 400
    assert sum(path.stat().st_size for path in site.iterdir()) <= 3 * read + 2 * 2**20
    made = document(hub)
    assert made["left_out"]["rows"] > 60_000
    rows = [(table["subject"], row) for table in made["tables"] for row in table["rows"]]
    assert [row["rank"] for _, row in rows if row["entry"]["repo"] == "acme/one"] == [1]
    assert max(len(text) for subject, _ in rows for text in subject.values()) <= 256
