"""`issuer leaderboard build`: from a folder of everything to four files, and the exit code of the worst."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support import make
from tests.support.boards import unsigned, write_bad
from tests.support.in_process import Done, run
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


def test_a_folder_becomes_four_files_that_say_their_trust_file(hub: Path) -> None:
    done = build(hub, "--metric", "accuracy=higher")
    assert done.code == 0, done
    assert {path.name for path in (hub.parent / "site").iterdir()} == FILES
    made = document(hub)
    assert made["tables"][0]["rows"][0]["rank"] == 1
    for name in FILES:
        assert made["basis"]["trust"] in (hub.parent / "site" / name).read_text("utf-8")
    assert "rows with a rank (tier verified or better): 1" in done.out


def test_without_a_definition_nothing_is_ranked_and_that_is_said(hub: Path) -> None:
    done = build(hub)
    assert "tables without ranks: 1; give the direction of their metrics" in done.out
    assert document(hub)["tables"][0]["rows"][0]["rank"] is None


@pytest.mark.parametrize(
    ("text", "more", "code"),
    [
        (unsigned(model_repo="acme/two"), (), 0),
        (unsigned(model_repo="acme/two"), ("--require-token",), 1),
        (entry_text("acme/two", 1).replace("0.5", "0.6"), (), 1),
        (entry_text("acme/two", 1) + "  value: 0.5\n", (), 4),
        ("- [", (), 3),
        (entry_text("acme/two", 1), ("--metric", "accuracy=up"), 2),
        (entry_text("acme/two", 1), ("--hub", "javascript:alert(1)"), 2),
        (entry_text("acme/two", 1), ("--received-now",), 2),
        (entry_text("acme/two", 1), ("--receipts", "absent"), 6),
    ],
)
def test_the_worst_decides_the_exit_code(hub: Path, text: str, more: tuple[str, ...], code: int) -> None:
    write_result(hub, "acme/two", "task_1.yaml", text)
    done = build(hub, *more)
    assert done.code == code, done
    assert (hub.parent / "site/index.html").exists() == (code not in {2, 6})


def test_a_folder_that_is_not_there_is_missing_input(tmp_path: Path) -> None:
    write_trust(tmp_path)
    assert build(tmp_path / "nowhere").code == 3


def test_what_cannot_be_read_is_a_row_with_its_reason(hub: Path) -> None:
    write_result(hub, "acme/two", "a<b>.yaml", "- [")
    (hub / "acme/two/.eval_results/link.yaml").symlink_to("/etc/passwd")
    assert build(hub).code == 3
    assert [(Path(one["file"]).name, one["code"]) for one in document(hub)["unread"]] == [
        ("a<b>.yaml", "file.syntax"), ("link.yaml", "file.unreadable"),
    ]  # fmt: skip


def test_two_tokens_with_one_jti_are_both_refuted(hub: Path) -> None:
    write_result(hub, "acme/two", "task_0.yaml", entry_text("acme/two", 0))
    assert build(hub).code == 1
    made = document(hub)
    assert (len(made["refuted"]), made["tables"]) == (2, [])


def test_a_file_with_line_ends_of_other_kinds_in_its_texts_is_one_row(hub: Path) -> None:
    details = {"benchmark_subset": "a\u2028b\x85c"}
    write_result(hub, "acme/two", "gsm8k.yaml", unsigned(details, model_repo="acme/two"))
    assert build(hub).code == 0
    assert details["benchmark_subset"] in {table["subject"]["subset"] for table in document(hub)["tables"]}


@pytest.mark.long
def test_bad_files_by_the_thousand_are_rows_with_their_reasons_and_the_good_one_is_ranked(hub: Path) -> None:
    """Broken, huge, doubled, linked out of the tree, no plain files, with hostile names: 6,000 in all."""
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
    assert not {
        sign for sign in page + (hub.parent / "site/LEADERBOARD.md").read_text("utf-8") if not sign.isprintable()
    } - {"\n"}
