"""A leaderboard of a table: the same files as of the folder of that table; no other file is accepted."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from issuer.errors import FormatError
from issuer.relying.bulk import Listener, processes
from issuer.relying.folders import BenchmarkFolder
from issuer.relying.leaderboard.page import as_html
from issuer.relying.leaderboard.ranking import Leaderboard, RankOptions
from issuer.relying.leaderboard.sources import build_board
from issuer.relying.leaderboard.text_formats import as_csv, as_json, as_markdown
from issuer.relying.verifier import Basis, FileVerifier, TableHead, Writer, read_head
from issuer.results.benchmark import AcceptedDefinitions
from issuer.verify import Context
from issuer.verify.reproduction import Tolerance
from tests.support import make
from tests.support.boards import BASIS, PAYLOADS, REVISION, unsigned
from tests.support.in_process import Done, run
from tests.support.tree import entry_text, write_result, write_trust
from tests.support.whole_hub import WholeHub

HUB = "https://hub.example"
HEAD = TableHead(
    replace(BASIS, absent=("/x: is not there",), release="1"), Tolerance({"accuracy": 0.5}), 3, 4096,
    AcceptedDefinitions({"a/b": ("c",)}),
)  # fmt: skip


def test_a_table_s_head_comes_back_as_it_was_written() -> None:
    assert read_head(HEAD.as_text()) == HEAD
    of_trust = TableHead(Basis.of(make.trust(), make.NOW))
    assert read_head(of_trust.as_text()) == of_trust
    older = {name: text for name, text in HEAD.as_text().items() if name != "definitions"}
    assert read_head(older) == replace(HEAD, definitions=AcceptedDefinitions())


def test_the_head_of_another_version_or_file_is_refused() -> None:
    invalid = "has invalid metadata"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"table_version": None}, "is not a table of results"), ({"table_version": "1"}, "that this release cannot read"),
        ({"table_version": "3"}, "that this release cannot read"), ({"judged_at": "yesterday"}, invalid),
        ({"judged_at": "2026-11-18"}, invalid), ({"trust_digest": None}, invalid), ({"issuers": "["}, invalid),
        ({"issuers": '[{"issuer": 5}]'}, invalid), ({"bytes": None}, invalid), ({"tolerance": '{"accuracy": "much"}'}, invalid),
        ({"definitions": '{"a/b": "c"}'}, invalid),
    ]  # fmt: skip
    for change, rule in cases:
        text = {name: value for name, value in {**HEAD.as_text(), **change}.items() if value is not None}
        with pytest.raises(FormatError, match=rule) as refused:
            read_head(text)
        assert "issuer verify DIR --to" in str(refused.value), "the next command"


def test_an_option_for_folders_is_a_usage_error_for_a_table(tmp_path: Path) -> None:
    (tmp_path / "r.parquet").write_bytes(b"PAR1")
    (tmp_path / "r.csv").write_bytes(b"")
    for more in (("--received-now",), ("--at", make.NOW), ("--jobs", 2), ("--issuer", make.ISSUER), ("--offline",)):
        done = run(["leaderboard", "build", "r.parquet", "-o", "site", *map(str, more)], tmp_path)
        assert (done.code, f"{more[0]} is for a DIR" in done.err) == (2, True), done
    done = run(["leaderboard", "build", "r.csv", "-o", "site"], tmp_path)
    assert (done.code, "or a FILE.parquet" in done.err) == (2, True), done
    assert run(["leaderboard", "build", "absent.parquet", "-o", "site"], tmp_path).code == 3
    assert not (tmp_path / "site").exists()


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """Entries of every kind and form, files that cannot be read, tokens that share a jti, and a broken definition."""
    WholeHub(tmp_path, 200, make.NOW)
    root = tmp_path / "hub"
    details: dict[str, Any] = {
        "benchmark_subset": PAYLOADS[0], "normalization": {"b": [1, 0.5, True], "a": {"x": "\u2028"}},
        "run": {"selection": {"accuracy": PAYLOADS[3], "f1 (hard)": "strict"}, "completeness": "full"},
        "date": "2026-11-17",
    }  # fmt: skip
    metrics = [{"metric_id": "accuracy", "value": 20}, {"metric_id": "f1", "value": 1e-7, "slice": "hard"}]
    rich = make.submission(details, model_repo="acme/rich", metrics=metrics)
    terms: dict[str, Any] = {"attempt": {"number": 64, "since": make.NOW - 9}}
    write_result(root, "acme/rich", "gsm8k.yaml", make.file_for(rich, **terms))
    two = unsigned(details, model_repo="acme/two") + "- {dataset: {id: a/b}, value: 1}\n"
    write_result(root, "acme/two", "gsm8k.yaml", two)
    write_result(root, "acme/lone", "gsm8k.yaml", '- {dataset: {id: "openai/gsm8k", task_id: "gsm8k"}, value: 0.25}\n')
    for repo in ("a/first", "zz/last"):
        write_result(root, repo, "task_2.yaml", entry_text(repo, 7))
    with open(os.fsencode(root / "acme/two/.eval_results") + b"/\xff.yaml", "wb"):
        pass
    (tmp_path / "benchmarks" / "bench/task-4" / REVISION / "eval.yaml").write_text("- [")
    return root


def judge(folder: Path, **trust: Any) -> FileVerifier:
    benchmarks = BenchmarkFolder(folder / "benchmarks")
    by = replace(
        make.trust(**{"require": frozenset(), **trust}), tolerance=Tolerance({"accuracy": 0.001}),
        definitions=AcceptedDefinitions.of({"bench/task-1": "0" * 40}),
    )  # fmt: skip
    return FileVerifier(by, make.NOW, Context(make.NOW, witnessed=True, benchmarks=benchmarks))


def written(board: Leaderboard) -> tuple[bytes | str, ...]:
    return as_json(board), as_csv(board, HUB), as_markdown(board, HUB), as_html(board, HUB)


@pytest.mark.long
def test_the_files_are_those_of_the_folder_byte_for_byte(hub: Path) -> None:
    from issuer.relying.leaderboard.sources import build_board_of_table
    from issuer.relying.table import judge_into

    folder, to = hub.parent, hub.parent / "results.parquet"
    silent = Listener(lambda _: None)
    judge_into(to, hub, judge(folder), Writer(lambda *_: "", lambda _: ""), silent, engine=processes(1))
    every = RankOptions(best=True, every_metric=True, rank_from="self-reported", stated={"f1": "higher"})
    for asked in (RankOptions(), every):
        of_folder, summary = build_board(hub, judge(folder), asked, jobs=1)
        assert summary.by_tier.keys() >= {"verified", "self-reported", "undecided", "refuted"}
        assert any("eval.yaml" in one.file for one in of_folder.unread)
        assert "f1" in {table.subject.metric for table in of_folder.tables}
        primary = {table.subject.benchmark for table in of_folder.tables if table.primary}
        assert ("bench/task-1" in primary, "bench/task-2" in primary) == (False, True), "as the definitions say"
        of_table, counted = build_board_of_table(to, BenchmarkFolder(folder / "benchmarks"), asked, None)
        assert written(of_table) == written(of_folder)
        assert of_table.basis.trust == judge(folder).trust.digest
        assert (counted.files, counted.verdicts, counted.by_tier) == (summary.files, summary.verdicts, summary.by_tier)


JUDGING = ("--trust", "trust.yaml", "--at", str(make.NOW), "--jobs", "1")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A hub with a trust file, and the table of it."""
    write_trust(tmp_path)
    write_result(tmp_path / "hub", "acme/one", "task_0.yaml", entry_text("acme/one", 0))
    done = run(["verify", "hub", *JUDGING, "--to", "r.parquet"], tmp_path)
    assert done.code == 0, done
    return tmp_path


def build(folder: Path, *more: object, table: str = "r.parquet") -> Done:
    return run(["leaderboard", "build", table, "-o", "site", *map(str, more)], folder)


@pytest.mark.long
def test_a_table_says_its_trust_file_and_one_by_another_is_refused(small: Path) -> None:
    done = build(small, "--trust", "trust.yaml", "--metric", "accuracy=higher")
    assert (done.code, done.err) == (0, ""), done
    assert "files judged 1" in done.out
    made = json.loads((small / "site/leaderboard.json").read_bytes())
    assert made["tables"][0]["rows"][0]["rank"] == 1
    unchecked = build(small)
    assert f"was judged by the trust file {made['basis']['trust']}" in unchecked.err
    for name in ("index.html", "leaderboard.csv", "LEADERBOARD.md"):
        assert made["basis"]["trust"] in (small / "site" / name).read_text("utf-8")
    (small / "other.yaml").write_text((small / "trust.yaml").read_text() + "tolerance: {accuracy: 0.1}\n")
    (small / "site/index.html").write_text("of before")
    refused = build(small, "--trust", "other.yaml")
    assert (refused.code, "was judged by the trust file" in refused.err) == (3, True), refused
    assert (small / "site/index.html").read_text() == "of before"


@pytest.mark.long
def test_the_exit_code_is_that_of_the_folder(small: Path) -> None:
    for text, more, code in (
        (unsigned(model_repo="acme/two"), (), 0), (unsigned(model_repo="acme/two"), ("--require-token",), 1),
        (entry_text("acme/two", 1).replace("0.5", "0.6"), (), 1), ("- [", (), 3),
        (make.two_metrics(model_repo="acme/two", benchmark_repo="bench/task-1"), (), 4),
    ):  # fmt: skip
        write_result(small / "hub", "acme/two", "task_1.yaml", text)
        run(["verify", "hub", *JUDGING, "--to", "r.parquet", "--quiet"], small)
        assert build(small, *more).code == code
        assert build(small, *JUDGING, *more, table="hub").code == code


@pytest.mark.long
def test_an_incomplete_table_and_another_kind_of_file_are_refused(small: Path) -> None:
    path = small / "r.parquet"
    raw = path.read_bytes()
    for spoilt in (b"", b"- [", raw[: len(raw) // 2], raw[:50] + bytes(200) + raw[250:], raw[:-200] + raw[-8:]):
        path.write_bytes(spoilt)
        done = build(small)
        assert (done.code, "file.rule: is not a complete Parquet file" in done.err) == (3, True), done
        assert not (small / "site").exists()
    os.mkfifo(small / "pipe.parquet")
    (small / "folder.parquet").mkdir()
    assert build(small, table="pipe.parquet").code == 3
    assert build(small, "--trust", "trust.yaml", "--at", make.NOW, table="folder.parquet").code == 1, "an empty hub"


@pytest.mark.long
def test_a_table_that_somebody_changed_is_read_strictly(small: Path) -> None:
    import pyarrow.parquet as pq

    path = small / "r.parquet"
    table, head = pq.read_table(path), pq.read_metadata(path).metadata
    for name, value, rule in (
        ("tier", None, "has no column tier"), ("tier", [5], "has no column tier"),
        ("tier", ["best"], "row 0: Invalid enum value 'best'"), ("metrics", None, "has no column metrics"),
        ("selection", ["["], "row 0: Expected `object`, got `array`"),
        ("selection", ['{"accuracy": 5}'], "row 0: Expected `str`, got `int`"),
    ):  # fmt: skip
        column = table.schema.get_field_index(name)
        changed = table.remove_column(column) if value is None else table.set_column(column, name, [value])
        for metadata, expected in ((head, rule), ({}, "is not a table of results")):
            pq.write_table(changed.replace_schema_metadata(metadata), path)
            done = build(small)
            assert (done.code, expected in done.err) == (3, True), done
