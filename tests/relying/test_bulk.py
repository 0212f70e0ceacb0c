"""A folder that is judged: the reports of each file alone, in order, bounded, and with shared jtis found."""

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from issuer.cli.verify.formats import FOR_PEOPLE, JSON_LINES
from issuer.errors import InputError, SetupError
from issuer.relying import bulk
from issuer.relying.bulk import CHUNK_BYTES, CHUNK_FILES, Listener, ResultFile, judge_folder, processes
from issuer.relying.folders import MAX_BENCHMARKS, BenchmarkFolder, ReceiptFolder
from issuer.relying.verifier import FileVerifier, Writer, path_in_repo
from issuer.results.entry import read_entries
from issuer.verify import Context, verify_entries
from issuer.verify.report import Report
from issuer.verify.summary import Summary
from tests.support.make import BENCHMARK_TEXT, NOW, RECEIPT_KEY, claims, file_for, key_set, submission, trust
from tests.support.tree import entry_text, write_result, write_tree

FILES = CHUNK_FILES + 6
TRUST = trust(receipt_keys=key_set(RECEIPT_KEY), require=frozenset())


def judge(**context: Any) -> FileVerifier:
    return FileVerifier(TRUST, NOW, Context(NOW, witnessed=True, **context))


def lines(
    root: Path, by: FileVerifier, writer: Writer = JSON_LINES, *, jobs: int = 0, **listener: Any
) -> tuple[list[Any], Summary]:
    written: list[str] = []
    summary = judge_folder(root, by, writer, Listener(written.append, **listener), engine=processes(jobs))
    return [json.loads(line) for line in "".join(written).splitlines()], summary


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good entries, bad ones of every kind, and files that cannot be read."""
    root = tmp_path_factory.mktemp("mixed")
    list(write_tree(root, FILES))
    good = submission(model_repo="acme/one")
    text = file_for(good)
    write_result(root, "acme/one", "gsm8k.yaml", text)
    write_result(root, "acme/two", "gsm8k.yaml", text)  # a copied token: check 6
    write_result(root, "acme/one", "other.yaml", text)  # under another name: check 6
    write_result(root, "acme/three", "gsm8k.yaml", text.replace("20.9", "29.9"))
    bare = "\n".join(line for line in text.splitlines() if "verify_token" not in line) + "\n"
    write_result(root, "acme/four", "gsm8k.yaml", bare + text)
    write_result(root, "acme/five", "gsm8k.yaml", text.replace('verify_token: "', 'verify_token: "x'))
    bad = (b"- [", b"\xff", b"", b"- {}\n", b"[" * 100_000, b"x" * 2_000_000, text.encode() * 20)
    for name, raw in zip("abcdefg", bad, strict=True):
        write_result(root, "bad/one", f"{name}.yaml", raw)
    (root / "bad/one/.eval_results/h.yaml").symlink_to("a.yaml")
    (root / "loop").symlink_to("loop")
    return root


def one_by_one(root: Path, by: FileVerifier) -> list[Any]:
    """Read and judge file by file, without the code that judges many."""
    expected: list[Any] = []
    for file in sorted(root.glob("*/*/.eval_results/*.yaml"), key=lambda path: path.parts):
        if file.is_symlink():
            continue
        repo = "/".join(file.parts[-4:-2])
        try:
            entries = read_entries(file.read_bytes(), str(file))
        except InputError as error:
            expected.append((str(file), str(error.code), error.place.line, error.place.column))
            continue
        path = f".eval_results/{file.name}"
        reports = verify_entries(entries, repo, path, by.trust, by.at, by.context)
        expected += json.loads(msgspec.json.encode(reports))
    return expected


def test_a_folder_is_judged_like_its_files_one_by_one(mixed: Path) -> None:
    found, summary = lines(mixed, judge(), jobs=3)
    flat = [
        tuple(line["finding"][name] for name in ("file", "code", "line", "column")) if "finding" in line else line
        for line in found
        if "symbolic link" not in str(line)
    ]
    assert flat == one_by_one(mixed, judge())
    verdicts = [line["verdict"] for line in flat if isinstance(line, dict)]
    assert Counter(verdicts) == summary.verdicts
    assert (summary.verdicts["verified"], summary.findings) == (FILES + 1, 6 + 2)


def test_all_output_is_the_same_however_many_processes_judge(mixed: Path) -> None:
    for writer in (JSON_LINES, FOR_PEOPLE):
        outputs = set()
        for jobs in (1, 3):
            written: list[str] = []
            judge_folder(mixed, judge(), writer, Listener(written.append), engine=processes(jobs))
            outputs.add("".join(written))
        assert len(outputs) == 1


# -- chunks -----------------------------------------------------------------------------------------------------------


def test_chunks_are_bounded_by_files_and_by_bytes() -> None:
    small = list(bulk.split_into_chunks(ResultFile(0, f"{number}", "a/b", 10) for number in range(2 * CHUNK_FILES + 1)))
    assert [len(chunk) for chunk in small] == [CHUNK_FILES, CHUNK_FILES, 1]
    assert [found.file for chunk in small for found in chunk] == [str(number) for number in range(2 * CHUNK_FILES + 1)]
    large = list(bulk.split_into_chunks(ResultFile(0, f"{number}", "a/b", CHUNK_BYTES) for number in range(3)))
    assert [len(chunk) for chunk in large] == [1, 1, 1]


def test_a_stopped_run_counts_what_it_has_judged(mixed: Path) -> None:
    ticks: list[float] = []
    found, summary = lines(
        mixed, judge(), jobs=1, tick=lambda fraction, _: ticks.append(fraction), stopped=lambda: bool(ticks)
    )
    assert summary.interrupted
    assert 0 < summary.files < len(list(bulk.walk(mixed)))
    assert len(found) == summary.entries + summary.findings


# -- one jti twice ----------------------------------------------------------------------------------------------------


def shared(root: Path) -> None:
    list(write_tree(root, FILES))
    for repo in ("a/first", "m/second", "z/third"):  # three tokens with the jti of the tree's number 7
        write_result(root, repo, "task_2.yaml", entry_text(repo, 7))


def test_different_tokens_with_one_jti_all_fail_in_their_last_lines(tmp_path: Path) -> None:
    shared(tmp_path)
    found, summary = lines(tmp_path, judge(), jobs=3)
    last = {(line["repo"], line["path"], line["pointer"]): line for line in found}
    failed = sorted(repo for (repo, _, _), line in last.items() if line["verdict"] == "failed")
    assert failed == ["a/first", "m/second", "owner0/model1", "z/third"]
    for line in last.values():
        if line["verdict"] == "failed":
            (check,) = [check for check in line["checks"] if check["status"] == "fail"]
            assert check["number"] == 5
            assert "another good token with the jti" in check["evidence"]
            assert f"/{line['repo']}/" not in check["evidence"], "it names the other place, not its own"
    assert summary.verdicts == {"verified": FILES - 1, "failed": 4}
    assert summary.by_issuer == {"https://issuer.example": {"verified": FILES - 1, "failed": 4}}
    assert summary.by_reason == {"check 5, fresh": 4}
    assert summary.entries == FILES + 3


def test_a_file_that_appears_meanwhile_hides_no_shared_jti(tmp_path: Path) -> None:
    shared(tmp_path)

    def out(_: str) -> None:
        write_result(tmp_path, "0/new", "task_0.yaml", "[]\n")

    assert judge_folder(tmp_path, judge(), JSON_LINES, Listener(out)).verdicts == {"verified": FILES - 1, "failed": 4}


def test_only_different_good_tokens_share_a_jti(tmp_path: Path) -> None:
    one = entry_text("a/one", 0)
    write_result(tmp_path / "three", "a/one", "task_0.yaml", one + entry_text("a/one", 0, value=0.75))
    write_result(tmp_path / "three", "b/two", "task_0.yaml", entry_text("b/two", 0))
    write_result(tmp_path / "same", "a/one", "task_0.yaml", one + one)
    write_result(tmp_path / "bad", "a/copy", "task_0.yaml", entry_text("a/one", 0, value=0.7))  # another's repository
    write_result(tmp_path / "bad", "a/one", "task_0.yaml", one)
    verdicts = {name: lines(tmp_path / name, judge())[1].verdicts for name in ("three", "same", "bad")}
    assert verdicts == {"three": {"failed": 3}, "same": {"verified": 2}, "bad": {"verified": 1, "failed": 1}}


# -- receipts ---------------------------------------------------------------------------------------------------------


def with_receipts(folder: Path, now: int = NOW, *, witnessed: bool = True, write: bool = True) -> FileVerifier:
    receipts = ReceiptFolder(folder)
    context = Context(now, witnessed=witnessed, receipts=receipts)
    return FileVerifier(TRUST, now, context, receipts, RECEIPT_KEY if write else None)


@pytest.fixture
def receipts(tmp_path: Path) -> Path:
    folder = tmp_path / "receipts"
    folder.mkdir()
    return folder


def test_receipts_are_written_by_one_run_and_serve_one_a_year_later(tmp_path: Path, receipts: Path) -> None:
    list(write_tree(tmp_path / "tree", FILES))
    lines(tmp_path / "tree", with_receipts(receipts))
    assert len(list(receipts.iterdir())) == FILES
    assert {file.stat().st_mode & 0o777 for file in receipts.iterdir()} == {0o600}
    year = NOW + 365 * 86_400
    late, summary = lines(tmp_path / "tree", with_receipts(receipts, year))
    assert summary.verdicts == {"verified": FILES}
    assert {line["at_from"] for line in late} == {"receipt"}
    _, without = lines(tmp_path / "tree", FileVerifier(TRUST, year, Context(year, witnessed=True)))
    assert without.verdicts == {"failed": FILES}


def test_a_receipt_is_written_only_by_a_key_and_a_clock_and_for_verified_entries(mixed: Path, receipts: Path) -> None:
    for options in ({"witnessed": False}, {"write": False}):
        _, summary = lines(mixed, with_receipts(receipts, **options))
        assert summary.verdicts["verified"] == FILES + 1
        assert list(receipts.iterdir()) == []
    lines(mixed, with_receipts(receipts))
    assert len(list(receipts.iterdir())) == FILES + 1


def test_the_first_receipt_is_never_replaced_and_an_unusable_one_ends_the_run(tmp_path: Path, receipts: Path) -> None:
    list(write_tree(tmp_path / "tree", 1))
    lines(tmp_path / "tree", with_receipts(receipts))
    (file,) = receipts.iterdir()
    before = file.read_bytes()
    lines(tmp_path / "tree", with_receipts(receipts, NOW + 60))
    assert file.read_bytes() == before
    file.write_bytes(b"of a key that is listed again tomorrow")
    with pytest.raises(SetupError, match="is not a receipt that this trust accepts"):
        lines(tmp_path / "tree", with_receipts(receipts, NOW + 60))
    assert file.read_bytes() == b"of a key that is listed again tomorrow"
    file.write_bytes(b"")  # a crash leaves an empty file, which is not a receipt
    lines(tmp_path / "tree", with_receipts(receipts, NOW + 60))
    assert len(file.read_bytes()) > 100
    file.unlink()
    file.mkdir()
    with pytest.raises(SetupError, match="folder of receipts"):
        lines(tmp_path / "tree", with_receipts(receipts))
    with pytest.raises(SetupError, match="is not a folder"):
        ReceiptFolder(tmp_path / "none")


def test_entries_that_share_a_jti_lose_the_receipts_of_this_run_alone(tmp_path: Path, receipts: Path) -> None:
    write_result(tmp_path / "tree", "a/old", "task_1.yaml", entry_text("a/old", 1))
    lines(tmp_path / "tree", with_receipts(receipts))
    (old,) = receipts.iterdir()
    write_result(tmp_path / "tree", "b/new", "task_1.yaml", entry_text("b/new", 1))
    for repo in ("c/one", "d/two"):
        write_result(tmp_path / "tree", repo, "task_0.yaml", entry_text(repo, 0) + entry_text(repo, 5))
    _, summary = lines(tmp_path / "tree", with_receipts(receipts, NOW + 60))
    assert summary.verdicts == {"failed": 6}
    assert list(receipts.iterdir()) == [old]


# -- benchmarks -------------------------------------------------------------------------------------------------------

REVISION = claims()["benchmark_revision"]


def required(folder: Path) -> FileVerifier:
    demanding = trust(require=frozenset({"benchmark"}))
    return FileVerifier(demanding, NOW, Context(NOW, witnessed=True, benchmarks=BenchmarkFolder(folder)))


def test_definitions_are_found_by_repository_and_commit(tmp_path: Path) -> None:
    write_result(tmp_path / "tree", "acme/open-model", "gsm8k.yaml", file_for(submission()))
    definition = tmp_path / "benchmarks" / "openai/gsm8k" / REVISION / "eval.yaml"
    _, absent = lines(tmp_path / "tree", required(tmp_path / "benchmarks"))
    assert absent.by_reason == {"check 10, benchmark definition": 1}
    definition.parent.mkdir(parents=True)
    definition.write_text(BENCHMARK_TEXT)
    _, good = lines(tmp_path / "tree", required(tmp_path / "benchmarks"))
    assert good.verdicts == {"verified": 1}
    folder = BenchmarkFolder(tmp_path / "benchmarks")
    assert ("openai/gsm8k", REVISION) in folder
    assert ("openai/gsm8k", "0" * 40) not in folder
    definition.write_text("- [")
    found, summary = lines(tmp_path / "tree", required(tmp_path / "benchmarks"))
    assert summary.verdicts == {"undecided": 1}
    assert [line["finding"]["file"] for line in found if "finding" in line] == [str(definition)]


def test_definitions_are_looked_up_inside_their_folder_and_bounded(tmp_path: Path) -> None:
    (tmp_path / REVISION).mkdir()
    (tmp_path / REVISION / "eval.yaml").write_text(BENCHMARK_TEXT)
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    folder = BenchmarkFolder(tmp_path / "a" / "b")
    for repo in ("../..", "..", "a/..", "/etc/passwd", "a/b/c", "", "a\0/b"):
        assert (repo, REVISION) not in folder
    assert ("a/b", "../" + REVISION) not in folder
    assert folder.faults == []
    for number in range(MAX_BENCHMARKS + 50):
        assert (f"a/b{number}", REVISION) not in folder
    assert len(folder._cache) == MAX_BENCHMARKS


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_dead_process_is_a_finding_for_its_files_and_the_rest_is_judged(tmp_path: Path) -> None:
    list(write_tree(tmp_path, 2 * FILES))

    def deadly(file: str, reports: tuple[Report, ...]) -> str:
        if file.endswith("model3/.eval_results/task_2.yaml"):
            os.kill(os.getpid(), signal.SIGKILL)
        return JSON_LINES.reports(file, reports)

    found, summary = lines(tmp_path, judge(), Writer(deadly, JSON_LINES.finding), jobs=2)
    assert summary.by_reason == {"internal": CHUNK_FILES}
    assert summary.verdicts == {"verified": 2 * FILES - CHUNK_FILES}
    assert sum("its worker process ended" in str(line) for line in found) == CHUNK_FILES


def test_a_file_is_named_by_its_place_in_the_repository() -> None:
    assert path_in_repo("/a/b/.eval_results/x.yaml") == ".eval_results/x.yaml"
    assert path_in_repo("/a/b/docs/x.yaml") == "docs/x.yaml"
