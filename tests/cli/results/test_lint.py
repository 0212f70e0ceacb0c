"""`issuer results lint|fmt|digest|diff`: files and folders in, findings and exit codes out."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from issuer.client.files import put_entry
from issuer.results.entry import read_entries, write_entry
from tests.support import make
from tests.support.command import issuer

SAID = make.submission({"notes": "no tools"})
GOOD = make.file_for(SAID)
BAD = GOOD.replace('"9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321"', '"9f3c"').replace("value: 20.9", "value: 2e1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model repository with one good file, and a benchmark's beside it."""
    results = tmp_path / "acme" / "open-model" / ".eval_results"
    results.mkdir(parents=True)
    (results / "gsm8k.yaml").write_text(GOOD)
    (tmp_path / "eval.yaml").write_text(make.BENCHMARK_TEXT)
    return tmp_path


def test_a_folder_of_good_files_is_good(folder: Path) -> None:
    done = issuer("results", "lint", folder, "--repo", make.REPO, "--benchmark", folder / "eval.yaml")
    assert (done.returncode, done.stderr.strip()) == (0, "2 files: 0 errors, 1 warnings")
    assert "eval.yaml:7:" in done.stdout


def test_every_finding_stands_on_a_line_of_its_own_with_its_place(folder: Path) -> None:
    file = folder / "acme/open-model/.eval_results/gsm8k.yaml"
    file.write_text(BAD)
    done = issuer("results", "lint", file)
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    assert [line.removeprefix(f"{file}:").split(": ")[:2] for line in lines] == [
        ["5:19", "claims.revision"],
        ["12:14", "file.scalar"],
    ]
    assert "write 20," in lines[1]


def test_each_form_says_the_same(folder: Path) -> None:
    file = folder / "acme/open-model/.eval_results/gsm8k.yaml"
    file.write_text(BAD)
    said = {form: issuer("results", "lint", file, "--format", form) for form in ("json", "github", "junit", "sarif")}
    assert {done.returncode for done in said.values()} == {3}
    codes = ["claims.revision", "file.scalar"]
    assert [found["code"] for found in json.loads(said["json"].stdout)["findings"]] == codes
    assert [line.partition("title=")[2].partition("::")[0] for line in said["github"].stdout.splitlines()] == codes
    assert ElementTree.fromstring(said["junit"].stdout).get("failures") == "1"
    assert [found["ruleId"] for found in json.loads(said["sarif"].stdout)["runs"][0]["results"]] == codes


def test_what_cannot_be_read_is_a_finding_and_the_others_are_still_linted(folder: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (folder / "acme/open-model/.eval_results/gsm8k.yaml").write_bytes(b"\xff")
    done = issuer("results", "lint", tmp_path / "gone.yaml", empty, folder)
    assert done.returncode == 3
    assert done.stdout.count("file.unreadable") == 2
    assert "file.encoding" in done.stdout


def test_a_repository_that_is_none_is_usage() -> None:
    assert issuer("results", "lint", "x", "--repo", "nobody").returncode == 2


def test_a_benchmark_file_under_any_name_is_linted_as_one(tmp_path: Path) -> None:
    file = tmp_path / "bench.yaml"
    file.write_text("tasks: []\n")
    assert "benchmark.rule" in issuer("results", "lint", file).stdout
    file.write_text("model: x\n")
    assert "benchmark.absent" in issuer("results", "lint", file).stdout
    file.write_text("dataset: {id: a/b, task_id: t}\nmetrics: [{metric_id: m, value: 1}]\n")
    assert "a result file is a list of entries" in issuer("results", "lint", file).stdout


def test_who_lints_a_file_of_today_s_hub_is_told_which_profile_that_is(tmp_path: Path) -> None:
    file, definition = tmp_path / "gsm8k.yaml", tmp_path / "eval.yaml"
    file.write_text("- dataset: {id: openai/gsm8k, task_id: t}\n  value: 1\n")
    definition.write_text("name: a\ndescription: b\nevaluation_framework: c\ntasks: [{id: t}]\n")
    said = issuer("results", "lint", file, definition)
    assert (said.returncode, said.stdout.count("(today's Hub accepts this: --profile hub)")) == (3, 2)
    assert issuer("results", "lint", file, definition, "--profile", "hub").returncode == 0


def test_fmt_checks_then_writes_then_is_content(tmp_path: Path) -> None:
    file = tmp_path / "gsm8k.yaml"
    file.write_text(GOOD.replace("20.9", "20.90").replace('"no tools"', "no tools"))
    checked = issuer("results", "fmt", "--check", file)
    assert (checked.returncode, "would be rewritten" in checked.stdout) == (1, True)
    assert file.read_text() != GOOD
    assert issuer("results", "fmt", file).returncode == 0
    assert file.read_text() == GOOD
    assert (issuer("results", "fmt", "--check", file).returncode, issuer("results", "fmt", file).stdout) == (0, "")


def test_fmt_loses_no_comment_unasked(tmp_path: Path) -> None:
    file = tmp_path / "gsm8k.yaml"
    file.write_text(GOOD.replace("  notes:", "  # mind: this\n  notes:"))
    done = issuer("results", "fmt", file)
    assert (done.returncode, f"{file}:13:3: file.rule" in done.stderr) == (3, True)
    assert issuer("results", "fmt", "--drop-comments", file).returncode == 0
    assert file.read_text() == GOOD


def test_fmt_writes_profiles(folder: Path) -> None:
    file = folder / "acme/open-model/.eval_results/gsm8k.yaml"
    assert issuer("results", "fmt", "--profile", "both", file).returncode == 2
    assert file.read_text() == GOOD
    for profile in ("both", "target"):
        assert issuer("results", "fmt", "--profile", profile, "--benchmark", folder / "eval.yaml", file).returncode == 0
        assert file.read_text() == write_entry(SAID.form, make.token_for(SAID), profile=profile, primary="accuracy")


def test_fmt_writes_nothing_where_one_file_is_broken(folder: Path) -> None:
    file, broken = folder / "acme/open-model/.eval_results/gsm8k.yaml", folder / "broken.yaml"
    file.write_text(GOOD.replace("20.9", "20.90"))
    broken.write_text("a: b")
    assert issuer("results", "fmt", file, broken).returncode == 3
    assert "20.90" in file.read_text()


def test_digests_are_those_of_the_token(folder: Path) -> None:
    file = folder / "acme/open-model/.eval_results/gsm8k.yaml"
    (entry,) = json.loads(issuer("results", "digest", file, "--repo", make.REPO, "--json").stdout)["entries"]
    assert (entry["claims_digest"], entry["content_digest"]) == (SAID.claims_digest, SAID.content_digest)
    without = issuer("results", "digest", folder).stdout
    assert SAID.content_digest in without
    assert "give --repo" in without


def test_diff_says_what_a_token_would_notice(tmp_path: Path) -> None:
    left, right = tmp_path / "l.yaml", tmp_path / "r.yaml"
    left.write_text(GOOD)
    right.write_text(GOOD.replace("20.9", "20.90"))
    same = issuer("results", "diff", left, right)
    assert (same.returncode, same.stdout) == (0, "entry left 0, right 0: the same\n")
    right.write_text(write_entry(SAID.form))
    spared = issuer("results", "diff", left, right)
    assert (spared.returncode, "/verify_token (not material)" in spared.stdout) == (0, True)
    right.write_text(GOOD.replace("no tools", "tools"))
    differs = issuer("results", "diff", left, right)
    assert (differs.returncode, "/notes (material)" in differs.stdout, '"tools"' in differs.stdout) == (1, True, True)
    told = json.loads(issuer("results", "diff", left, right, "--entry", "0", "--json").stdout)
    assert told["entries"][0]["differences"] == [
        {"pointer": "/notes", "left": '"no tools"', "right": '"tools"', "material": True}
    ]
    assert issuer("results", "diff", left, right, "--entry", "1").returncode == 3


def test_no_finding_draws_on_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(
        '- dataset: {id: "a/b\\e[2J", task_id: "x\\e[2J"}\n  "k\\e[2J": 1\n  metrics: [{metric_id: m, value: 1}]\n'
    )
    for command in (("lint", file), ("digest", file), ("diff", file, tmp_path / "e.yaml")):
        done = issuer("results", *command)
        assert "\x1b" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    drawn = tmp_path / "k\x1b[2J.yaml"
    drawn.write_text(GOOD.replace("20.9", "20.90"))
    for arguments in (("fmt", "--check"), ("lint",), ("digest",), ("fmt",)):
        done = issuer("results", *arguments, drawn)
        assert "\x1b" not in done.stdout + done.stderr
        assert "k\\x1b[2J.yaml" in done.stdout


def test_every_finding_ends_with_a_step_that_its_reader_can_take(tmp_path: Path) -> None:
    file = tmp_path / "gsm8k.yaml"
    file.write_text(GOOD.replace('"openai/gsm8k"', '"gsm8k"').replace('"no tools"', '"no tools"\n  date: "soon"'))
    said = issuer("results", "lint", file).stdout
    assert "claims.invalid" in said
    assert "details.invalid" in said
    assert "`errors`" not in said, "that is a member of the service's answers"


def test_an_appended_entry_keeps_every_comment(tmp_path: Path) -> None:
    file = tmp_path / "new" / "gsm8k.yaml"
    put_entry(file, GOOD)
    file.write_text("# mine\n" + file.read_text() + "# end")
    put_entry(file, GOOD, append=True)
    assert file.read_text() == "# mine\n" + GOOD + "# end\n" + GOOD
    assert len(read_entries(file.read_bytes(), "f")) == 2


BROKEN = {
    "cut in a text": GOOD.encode()[:-20],
    "cut in a sign": GOOD.replace("no tools", "\u00e9\u00e9").encode().partition(b"\xa9")[0],
    "doubled a thousand times": GOOD.encode() * 1001,
    "two documents": f"{GOOD}---\n{GOOD}".encode(),
    "one line twice": GOOD.replace("  notes:", "  notes: x\n  notes:").encode(),
    "larger than any file": GOOD.encode() + b"# " + b"x" * 2**20,
    "a program": bytes(range(256)) * 16,
    "an archive": b"PK\x03\x04" + bytes(200),
    "a byte order mark": b"\xef\xbb\xbf" + GOOD.encode(),
    "sixteen bits": GOOD.encode("utf-16"),
    "deep": b"- " + b"[" * 5000,
    "a bomb": b"- &a [1,1]\n- &b [*a,*a]\n- [*b,*b]\n",
    "nothing": b"",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_has_clear_lines_and_stays_as_it_is(tmp_path: Path, name: str) -> None:
    """For lint one finding a line; for fmt and digest the first; nothing is written."""
    file = tmp_path / "gsm8k.yaml"
    file.write_bytes(BROKEN[name])
    for command in ("lint", "fmt", "digest"):
        done = issuer("results", command, file)
        assert "Traceback" not in done.stderr
        assert all(len(line) < 400 and line.isprintable() for line in (done.stdout + done.stderr).splitlines())
        assert done.returncode == 3, (command, done)
        assert file.read_bytes() == BROKEN[name]
    assert [path.name for path in tmp_path.iterdir()] == ["gsm8k.yaml"]
    (first, *_) = issuer("results", "lint", file).stdout.splitlines()
    assert first.startswith(f"{file}:")
