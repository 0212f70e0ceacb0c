"""A folder's reports as a Parquet table: a row for each entry with the members of its line, written completely or not."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from issuer.cli.verify.formats import JSON_LINES
from issuer.io import files
from issuer.relying.bulk import CHUNK_FILES, Listener, judge_folder, processes
from issuer.relying.table_columns import COLUMNS, METRIC, ColumnKind, rows_of
from issuer.relying.verifier import TABLE_VERSION, Basis, FileVerifier, JudgedFile, TableHead
from issuer.verify import Context
from issuer.verify.report import Report
from tests.support.boards import write_bad
from tests.support.cluster import cluster
from tests.support.command import issuer
from tests.support.in_process import run
from tests.support.make import AUDIENCE, ISSUER, NOW, RECEIPT_KEY, file_for, submission, trust
from tests.support.shared import ROOT
from tests.support.tls import certificate
from tests.support.tree import entry_text, write_result, write_tree, write_trust

PAGE = (ROOT / "issuer/relying/TABLE.md").read_text("utf-8")
TRUST = trust(require=frozenset())


def judge() -> FileVerifier:
    return FileVerifier(TRUST, NOW, Context(NOW, witnessed=True))


# -- the schema, without the library ------------------------------------------------------------------------------------


def reports(folder: Path, text: str) -> tuple[Report, ...]:
    path = write_result(folder, "acme/open-model", "gsm8k.yaml", text)
    return judge().verify(path.read_bytes(), str(path), "acme/open-model")


def test_the_page_shows_the_columns_that_there_are() -> None:
    shown = [row.split(" | ") for row in PAGE.partition("## Columns")[2].splitlines() if row.startswith("| `")]
    columns = [column for column in COLUMNS if not column.name.startswith("check_")]
    expected = [[f"| `{column.name}`", column.kind, f"{column.meaning} |"] for column in columns]
    assert [row for row in shown if "check_" not in row[0]] == expected
    assert f"version {TABLE_VERSION} " in PAGE
    for kind in get_args(ColumnKind):
        assert f"`{kind}`" in PAGE
    for name in METRIC:
        assert f"`{name}`" in PAGE


def test_a_row_has_each_column_once_and_no_other(tmp_path: Path) -> None:
    names = [column.name for column in COLUMNS]
    assert len(names) == len(set(names))
    good = file_for(submission())
    (row,) = rows_of(JudgedFile("f", reports(tmp_path, good)))
    assert row.keys() <= set(names)
    assert set(names) - row.keys() == {
        *(f"check_{number}_evidence" for number in range(1, 12) if row[f"check_{number}"] == "pass" and number != 5),
        "finding", "finding_detail", "line", "column",
    }  # fmt: skip
    assert (row["file"], row["verdict"], row["check_5"], row["signed_issuer"]) == ("f", "verified", "pass", ISSUER)
    assert row["check_5_evidence"], "by which evidence it was in time"
    (false,) = rows_of(JudgedFile("f", reports(tmp_path, good.replace("20.9", "29.9"))))
    assert (false["verdict"], false["check_8"]) == ("failed", "fail")
    assert "29.9" in str(false["check_8_evidence"])


def test_the_table_is_for_a_folder_and_has_its_file_suffix(tmp_path: Path) -> None:
    write_trust(tmp_path)
    path = write_result(tmp_path / "hub", "acme/open-model", "gsm8k.yaml", "[]\n")
    common = ["--trust", tmp_path / "trust.yaml"]
    for arguments in (
        [tmp_path / "hub", "--to", tmp_path / "results.csv"],
        [path, "--repo", "acme/open-model", "--to", tmp_path / "results.parquet"],
        [tmp_path / "hub", "--engine", "dask://127.0.0.1:1", "--jobs", "2"],
        [tmp_path / "hub", "--engine", "dask://127.0.0.1:1", "--keep-receipts", tmp_path / "receipts"],
        [tmp_path / "hub", "--engine-tls", tmp_path],
    ):
        done = run(["verify", *map(str, [*arguments, *common])], tmp_path)
        assert (done.code, "Error: --" in done.err) == (2, True), done.err


# -- the file -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good entries, false ones, some without a token, files that cannot be read, and two tokens with one jti."""
    root = tmp_path_factory.mktemp("mixed")
    list(write_tree(root, 150))
    text = file_for(submission(model_repo="acme/one"))
    write_result(root, "acme/one", "gsm8k.yaml", text)
    write_result(root, "acme/two", "gsm8k.yaml", text)
    bare = "\n".join(line for line in text.splitlines() if "verify_token" not in line) + "\n"
    write_result(root, "acme/three", "gsm8k.yaml", bare + text.replace("20.9", "29.9"))
    write_result(root, "a/first", "task_2.yaml", entry_text("a/first", 7))  # the jti of the tree's number 7
    for name, raw in {"a.yaml": b"- [", "b.yaml": b"\xff", "c.yaml": b"x" * 2_000_000}.items():
        write_result(root, "bad/one", name, raw)
    (root / "bad/one/.eval_results/h.yaml").symlink_to("a.yaml")
    with open(os.fsencode(root / "bad/one/.eval_results") + b"/\xff\x1b[2J.yaml", "wb"):
        pass
    write_result(root, "zz/=cmd()", "gsm8k\n'\".yaml", text)
    return root


def table(root: Path, to: Path, **more: Any) -> list[dict[str, Any]]:
    """Judge a folder into a table, and read it with another reader than the one that wrote it."""
    from issuer.relying.table import judge_into

    judge_into(to, root, judge(), JSON_LINES, Listener(lambda _: None), **more)
    return read(to)


def read(path: Path) -> list[dict[str, Any]]:
    import duckdb

    found = duckdb.connect().execute("select * from read_parquet(?)", [str(path)])
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@pytest.mark.long
def test_a_table_has_the_members_of_the_lines_the_findings_and_its_trust_and_time(mixed: Path, tmp_path: Path) -> None:
    to, written = tmp_path / "results.parquet", list[str]()
    rows = table(mixed, to, engine=processes(1))
    assert table(mixed, tmp_path / "other.parquet", engine=processes(3)) == rows
    entries = {(row["repo"], row["path"], row["pointer"]): row for row in rows if row["finding"] is None}
    judge_folder(mixed, judge(), JSON_LINES, Listener(written.append))
    lines = [json.loads(line) for line in "".join(written).splitlines()]
    # The last report of each entry.
    expected = {(one["repo"], one["path"], one["pointer"]): one for one in lines if "finding" not in one}
    assert entries.keys() == expected.keys()
    assert len(entries) == sum(row["finding"] is None for row in rows)
    for place, report in expected.items():
        row, checks = entries[place], report["checks"]
        assert [row[f"check_{made['number']}"] for made in checks] == [made["status"] for made in checks]
        judged = (report["verdict"], report["tier"], report["jti"] or None)
        assert (row["verdict"], row["tier"], row["signed_jti"]) == judged
        metrics = [
            [(metric["metric_id"], metric["value"]) for metric in said["metrics"]] for said in (row, report["said"])
        ]
        assert metrics[0] == metrics[1]
        assert msgspec.json.decode(row["signed_claims"] or "null") == report["claims"]
        for made in checks:
            evidence = row[f"check_{made['number']}_evidence"]
            left_out = made["status"] == "pass" and made["number"] != 5
            assert evidence is None if left_out else made["evidence"] in evidence
    failed = {row["repo"]: row for row in rows if row["shared_jti"]}
    assert failed.keys() == {"a/first", "owner0/model1"}, "both tokens, in rows that were written already"
    assert {(row["verdict"], row["tier"], row["check_5"]) for row in failed.values()} == {("failed", "refuted", "fail")}
    assert len(rows) == len({(row["file"], row["pointer"]) for row in rows}), "each is there once"
    # An unreadable file is a row with its reason.
    found = [row for row in rows if row["finding"] is not None]
    codes = {Path(row["file"]).name: row["finding"] for row in found}
    assert codes == {
        "a.yaml": "file.syntax", "b.yaml": "file.encoding", "c.yaml": "file.too_large", "h.yaml": "file.unreadable",
        "\\udcff\x1b[2J.yaml": "file.unreadable",
    }  # fmt: skip
    assert all(row["finding_detail"] and row["verdict"] is None for row in found)
    assert [row["line"] for row in found if row["finding"] == "file.syntax"] == [1]
    import duckdb

    kept = duckdb.connect().execute("select key, value from parquet_kv_metadata(?)", [str(to)])
    head = {key.decode(): value.decode() for key, value in kept.fetchall()}
    assert head["table_version"] == TABLE_VERSION
    assert (head["trust_digest"], head["audience"]) == (TRUST.digest, AUDIENCE)
    assert head["judged_at"] == "2026-11-18T11:06:40Z"
    fetched = TRUST.issuers[ISSUER].keys_fetched_at
    assert json.loads(head["issuers"]) == [{"issuer": ISSUER, "keys_fetched_at": fetched}]
    assert (int(head["files"]), head["absent"], head["tolerance"]) == (160, "[]", "{}")


@pytest.mark.long
def test_bad_files_by_the_thousand_are_rows_and_the_run_ends(tmp_path: Path) -> None:
    """Broken, huge, doubled, linked out of the tree, no plain files, with hostile names: 6,000 in all."""
    expected = write_bad(tmp_path / "tree", 100)
    write_result(tmp_path / "tree", "acme/one", "task_0.yaml", entry_text("acme/one", 0))
    write_trust(tmp_path)
    to = tmp_path / "results.parquet"
    done = run(["verify", "tree", "--trust", "trust.yaml", "--at", str(NOW), "--to", str(to), "--jobs", "2"], tmp_path)
    assert done.code == 3, done.err[-500:]
    rows = read(to)
    assert Counter(row["finding"] for row in rows if row["finding"]) == expected
    assert len(rows) == len({row["file"] for row in rows}) == 6_001
    assert all(row["finding_detail"] for row in rows if row["finding"])
    assert [row["verdict"] for row in rows if row["finding"] is None] == ["verified"]


@pytest.mark.long
def test_a_large_table_is_written_and_corrected_in_row_groups(tmp_path: Path) -> None:
    from issuer.relying.table import GROUP_ROWS, Table, rows_as_bytes

    good = reports(tmp_path, file_for(submission()))
    false = reports(tmp_path, file_for(submission()).replace("20.9", "29.9"))
    count = 5 * GROUP_ROWS // 2
    with files.replacing(tmp_path / "r.parquet") as file:
        made = Table(tmp_path / "r.parquet", file)
        for start in range(0, count, 64):
            made.add(rows_as_bytes([JudgedFile(str(number), good) for number in range(start, start + 64)]))
        written = file.tell()
        made.correct(rows_as_bytes([JudgedFile("7", false)]))
        made.finish(TableHead(Basis.of(judge().trust, 0)))
    assert written > 1000, "row groups are written as they come"
    import duckdb

    found = duckdb.connect()
    asked = f"from '{tmp_path}/r.parquet'"
    assert found.execute(f"select count(*), count(distinct file) {asked}").fetchall() == [(count, count)]
    assert found.execute(f"select file {asked} where verdict = 'failed'").fetchall() == [("7",)]
    groups = f"select count(distinct row_group_id) from parquet_metadata('{tmp_path}/r.parquet')"
    assert found.execute(groups).fetchone()[0] >= 3


@pytest.mark.long
def test_an_interrupted_or_failed_run_leaves_the_previous_table(mixed: Path, tmp_path: Path) -> None:
    from issuer.relying.table import judge_into

    to = tmp_path / "results.parquet"
    to.write_bytes(b"of yesterday")
    ticks: list[float] = []
    listener = Listener(lambda _: None, lambda fraction, _: ticks.append(fraction), lambda: bool(ticks))
    assert judge_into(to, mixed, judge(), JSON_LINES, listener, engine=processes(1)).interrupted

    def fail(_: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        judge_into(to, mixed, judge(), JSON_LINES, Listener(fail))
    assert to.read_bytes() == b"of yesterday"
    assert list(tmp_path.iterdir()) == [to], "and no draft"


# -- a cluster ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # of Dask's library
def test_if_one_of_three_workers_is_killed_no_row_is_lost_or_repeated(tmp_path: Path) -> None:
    from issuer.relying.dask_engine import dask_engine
    from issuer.relying.table import judge_into

    root = tmp_path / "tree"
    list(write_tree(root, 2500))
    for repo in ("a/first", "zz/last"):  # many chunks of files: the first and the last one have one jti
        write_result(root, repo, "task_2.yaml", entry_text(repo, 7))
    write_result(root, "bad/one", "a.yaml", "- [")
    here = table(root, tmp_path / "here.parquet", engine=processes(1))
    killed: list[float] = []
    with cluster(tmp_path, 3) as found:

        def tick(fraction: float, _: object) -> None:
            if not killed:
                found.workers[0].kill()
                found.workers[0].wait()
                killed.append(fraction)

        engine = dask_engine(found.url, None, root)
        listener = Listener(lambda _: None, tick)
        judge_into(tmp_path / "there.parquet", root, judge(), JSON_LINES, listener, engine=engine)
    assert 0 < killed[0] < 0.5, "in the middle"
    assert len(here) > 30 * CHUNK_FILES
    assert read(tmp_path / "there.parquet") == here
    assert {row["repo"] for row in here if row["shared_jti"]} == {"a/first", "owner0/model1", "zz/last"}


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_a_cluster_with_tls_accepts_only_its_own_certificates(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        certificate("cluster.example", tmp_path / name)
        (tmp_path / name / "key.pem").chmod(0o600)
        (tmp_path / name / "ca.pem").write_bytes((tmp_path / name / "cert.pem").read_bytes())
    root = tmp_path / "tree"
    list(write_tree(root, 100))
    write_trust(tmp_path)
    common = ("verify", root, "--trust", tmp_path / "trust.yaml", "--at", NOW)
    with cluster(tmp_path, 1, tmp_path / "ours") as found:
        good = issuer(*common, "--engine", found.url, "--engine-tls", tmp_path / "ours", "--to", tmp_path / "r.parquet")
        assert good.returncode == 0, good
        assert len(read(tmp_path / "r.parquet")) == 100
        other = issuer(*common, "--engine", found.url, "--engine-tls", tmp_path / "theirs")
        assert (other.returncode, "dependency.server" in other.stderr) == (6, True), other


@pytest.mark.long
def test_a_cluster_off_loopback_needs_tls(tmp_path: Path) -> None:
    write_trust(tmp_path)
    (tmp_path / "tree").mkdir()
    for url, more in (
        ("dask://192.0.2.1:8786", ()), ("dask://localhost:8786", ()), ("tls://127.0.0.1:8786", ()),
        ("dask://127.0.0.1:8786", ("--engine-tls", tmp_path)), ("tcp://127.0.0.1:8786", ()), ("dask://127.0.0.1", ()),
        ("dask://u:p@127.0.0.1:8786", ()), ("dask://127.0.0.1:8786/x", ()),
    ):  # fmt: skip
        done = issuer("verify", tmp_path / "tree", "--trust", tmp_path / "trust.yaml", "--engine", url, *more)
        assert (done.returncode, "url.invalid" in done.stderr) == (6, True), done


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_a_worker_that_does_not_see_the_folder_ends_the_run(tmp_path: Path) -> None:
    from issuer.errors import SetupError
    from issuer.relying.dask_engine import dask_engine

    root = tmp_path / "tree"
    list(write_tree(root, 3))
    with cluster(tmp_path, 1) as found:
        engine = dask_engine(found.url, None, tmp_path / "elsewhere")
        with pytest.raises(SetupError, match="does not see the folder"):
            judge_folder(root, judge(), JSON_LINES, Listener(lambda _: None), engine=engine)


@pytest.mark.long
def test_no_private_key_goes_to_a_worker(tmp_path: Path) -> None:
    from issuer.relying.dask_engine import DaskPool

    keeping = FileVerifier(TRUST, NOW, Context(NOW, witnessed=True), receipt_key=RECEIPT_KEY)
    with pytest.raises(ValueError, match="must not leave this machine"):
        DaskPool("tcp://127.0.0.1:1", None, tmp_path, keeping, JSON_LINES)
