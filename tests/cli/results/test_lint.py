"""`issuer results lint|fmt|digest|diff`: files and folders in, findings and exit codes out."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from issuer.client.files import put_entry
from issuer.results.entry import read_entries, write_entry
from tests.support import make
from tests.support.in_process import Done, run

SAID = make.submission({"notes": "no tools"})


def issuer(*arguments: object) -> Done:
    return run(list(map(str, arguments)))


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


def test_a_folder_of_good_files_is_good_and_an_unreadable_one_stops_no_other(folder: Path) -> None:
    done = issuer("results", "lint", folder, "--repo", make.REPO, "--benchmark", folder / "eval.yaml")
    assert (done.code, done.err.strip()) == (0, "2 files: 0 errors, 1 warnings")
    assert "eval.yaml:7:" in done.out
    assert issuer("results", "lint", "x", "--repo", "malformed").code == 2
    (folder / "empty").mkdir()
    (folder / "acme/open-model/.eval_results/gsm8k.yaml").write_bytes(b"\xff")
    done = issuer("results", "lint", folder / "gone.yaml", folder / "empty", folder)
    assert (done.code, done.out.count("file.unreadable"), "file.encoding" in done.out) == (3, 2, True)


def test_every_form_has_the_same_findings(folder: Path) -> None:
    file = folder / "acme/open-model/.eval_results/gsm8k.yaml"
    file.write_text(BAD)
    done = issuer("results", "lint", file)
    assert [line.removeprefix(f"{file}:").split(": ")[:2] for line in done.out.splitlines()] == [
        ["5:19", "claims.revision"], ["12:14", "file.scalar"],
    ]  # fmt: skip
    assert (done.code, "write 20," in done.out) == (3, True)
    forms = {form: issuer("results", "lint", file, "--format", form) for form in ("json", "github", "junit", "sarif")}
    assert {done.code for done in forms.values()} == {3}
    codes = ["claims.revision", "file.scalar"]
    assert [found["code"] for found in json.loads(forms["json"].out)["findings"]] == codes
    assert [line.partition("title=")[2].partition("::")[0] for line in forms["github"].out.splitlines()] == codes
    assert ElementTree.fromstring(forms["junit"].out).get("failures") == "1"
    assert [found["ruleId"] for found in json.loads(forms["sarif"].out)["runs"][0]["results"]] == codes


def test_a_file_is_linted_by_its_content_whatever_its_name(tmp_path: Path) -> None:
    file, definition = tmp_path / "bench.yaml", tmp_path / "eval.yaml"
    for text, found in (
        ("tasks: []\n", "benchmark.rule"),
        ("model: x\n", "benchmark.absent"),
        ("dataset: {id: a/b}\nmetrics: [{metric_id: m, value: 1}]\n", "a result file is a list of entries"),
    ):
        file.write_text(text)
        assert found in issuer("results", "lint", file).out
    file.write_text("- dataset: {id: openai/gsm8k, task_id: t}\n  value: 1\n")
    definition.write_text("name: a\ndescription: b\nevaluation_framework: c\ntasks: [{id: t}]\n")
    done = issuer("results", "lint", file, definition)
    assert (done.code, done.out.count("(today's Hub accepts this: --profile hub)")) == (3, 2)
    assert issuer("results", "lint", file, definition, "--profile", "hub").code == 0


def test_fmt_writes_a_file_only_without_check_and_once_and_drops_no_comment_unasked(tmp_path: Path) -> None:
    file, broken = tmp_path / "gsm8k.yaml", tmp_path / "broken.yaml"
    file.write_text(GOOD.replace("20.9", "20.90").replace('"no tools"', "no tools"))
    broken.write_text("a: b")
    checked = issuer("results", "fmt", "--check", file)
    assert (checked.code, "would be rewritten" in checked.out) == (1, True)
    assert issuer("results", "fmt", file, broken).code == 3
    assert "20.90" in file.read_text()
    assert (issuer("results", "fmt", file).code, file.read_text()) == (0, GOOD)
    assert (issuer("results", "fmt", "--check", file).code, issuer("results", "fmt", file).out) == (0, "")
    file.write_text(GOOD.replace("  notes:", "  # mind: this\n  notes:"))
    done = issuer("results", "fmt", file)
    assert (done.code, f"{file}:13:3: file.rule" in done.err) == (3, True)
    assert (issuer("results", "fmt", "--drop-comments", file).code, file.read_text()) == (0, GOOD)
    drawn = tmp_path / "k\x1b[2J.yaml"
    drawn.write_text(GOOD.replace("20.9", "20.90"))
    for command in (("fmt", "--check"), ("lint",), ("digest",), ("diff", file), ("fmt",)):
        done = issuer("results", *command, drawn)
        assert ("\x1b" in done.out + done.err, "k\\x1b[2J.yaml" in done.out) == (False, command[0] != "diff"), command


def test_fmt_writes_profiles(folder: Path) -> None:
    file = folder / "acme/open-model/.eval_results/gsm8k.yaml"
    other = issuer("results", "fmt", "--profile", "both", "--primary", "f1", file)
    assert (other.code, "a score of the primary metric, f1" in other.err, file.read_text()) == (3, True, GOOD)
    other = issuer("results", "fmt", "--primary", "f1", "--benchmark", folder / "eval.yaml", file)
    assert (other.code, "--primary is f1, but the benchmark's is accuracy" in other.err) == (3, True)
    assert issuer("results", "fmt", "--profile", "both", file).code == 0
    for profile in ("both", "target"):
        assert issuer("results", "fmt", "--profile", profile, "--benchmark", folder / "eval.yaml", file).code == 0
        assert file.read_text() == write_entry(SAID.form, make.token_for(SAID), profile=profile, primary="accuracy")


def test_digest_prints_the_token_s_digests(folder: Path) -> None:
    file = folder / "acme/open-model/.eval_results/gsm8k.yaml"
    (entry,) = json.loads(issuer("results", "digest", file, "--repo", make.REPO, "--json").out)["entries"]
    assert (entry["claims_digest"], entry["content_digest"]) == (SAID.claims_digest, SAID.content_digest)
    without = issuer("results", "digest", folder).out
    assert (SAID.content_digest in without, "give --repo" in without) == (True, True)


def test_diff_shows_which_differences_a_token_binds(tmp_path: Path) -> None:
    left, right = tmp_path / "l.yaml", tmp_path / "r.yaml"
    left.write_text(GOOD)
    for text, code, shown in (
        (GOOD.replace("20.9", "20.90"), 0, "entry left 0, right 0: the same\n"),
        (write_entry(SAID.form), 0, "/verify_token (not material)"),
        (GOOD.replace("no tools", "tools"), 1, "/notes (material)"),
    ):
        right.write_text(text)
        done = issuer("results", "diff", left, right)
        assert (done.code, shown in done.out) == (code, True), done
    document = json.loads(issuer("results", "diff", left, right, "--entry", "0", "--json").out)
    assert document["entries"][0]["differences"] == [
        {"pointer": "/notes", "left": '"no tools"', "right": '"tools"', "material": True}
    ]
    assert issuer("results", "diff", left, right, "--entry", "1").code == 3


def test_an_appended_entry_keeps_every_comment(tmp_path: Path) -> None:
    file = tmp_path / "new" / "gsm8k.yaml"
    put_entry(file, GOOD, profile="target")
    file.write_text("# mine\n" + file.read_text() + "# end")
    put_entry(file, GOOD, append=True, profile="target")
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


def test_a_broken_file_gets_readable_lines_and_is_not_changed(tmp_path: Path) -> None:
    file = tmp_path / "gsm8k.yaml"
    for name, raw in BROKEN.items():
        file.write_bytes(raw)
        for command in ("fmt", "digest", "lint"):
            done = issuer("results", command, file)
            assert (done.code, file.read_bytes() == raw) == (3, True), (name, command, done)
            assert all(len(line) < 400 and line.isprintable() for line in (done.out + done.err).splitlines())
            assert command != "lint" or done.out.startswith(f"{file}:")
    assert [path.name for path in tmp_path.iterdir()] == ["gsm8k.yaml"]
