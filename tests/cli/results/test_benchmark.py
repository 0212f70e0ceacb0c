"""`issuer benchmark init|lint`: an author's options become an eval.yaml, and no file is replaced."""

from pathlib import Path

from issuer.results.benchmark import Benchmark, lint_benchmark, read_benchmark
from tests.support.in_process import Done, run

COMMIT = "5503434ddd753f426f4b38109466949a1217c2bb"
GIVEN = ("--name", 'Acme\'s "Last" Exam', "--description", "Questions: hard ones.", "--higher", "accuracy=Top-1",
         "--lower", "wer=Error = rate")  # fmt: skip
CONFIG = ("--config", "default", "--split", "test", "--dataset", f"acme/exam@{COMMIT}")
TASKS = ("--task", "exam", "--task", "hard", *CONFIG)


def benchmark(*arguments: object, env: dict[str, str] | None = None) -> Done:
    return run(["benchmark", *map(str, arguments)], env=env)


def made(out: Path, *arguments: object) -> Benchmark:
    done = benchmark("init", *arguments, "--out", out)
    assert done.code == 0, done.err
    return read_benchmark(out.read_bytes(), "eval.yaml")


def test_init_writes_every_option_and_keeps_the_rules_of_each_profile(tmp_path: Path) -> None:
    out = tmp_path / "eval.yaml"
    framed = ("--evaluation-framework", "acme-exam", "--profile", "both")
    found = made(out, *GIVEN, *TASKS, "--primary", "wer", *framed)
    assert (found.name, found.description) == ('Acme\'s "Last" Exam', "Questions: hard ones.")
    assert [(one.id, one.display_name, one.higher_is_better, one.primary) for one in found.metrics] == [
        ("accuracy", "Top-1", True, False), ("wer", "Error = rate", False, True),
    ]  # fmt: skip
    tasks = [(task.id, task.config, task.split) for task in found.tasks]
    assert tasks == [(name, "default", "test") for name in ("exam", "hard")]
    assert found.evaluation_framework == "acme-exam"
    for profile in ("both", "target", "hub"):
        linted = benchmark("lint", out, "--profile", profile)
        assert (linted.code, linted.out) == (0, ""), linted
    done = benchmark("init", *GIVEN[:6], "--task", "exam", "--out", tmp_path / "one.yaml")
    assert (done.code, "lacks `dataset`" in done.out) == (0, True)
    assert read_benchmark((tmp_path / "one.yaml").read_bytes(), "e").primary == "accuracy", "the only metric"
    hub = ("--profile", "hub", "--evaluation-framework", "acme-exam")
    assert made(tmp_path / "hub.yaml", *GIVEN[:4], "--task", "exam", *hub).metrics == ()


def test_an_invalid_definition_is_not_written_and_no_existing_one_replaced(tmp_path: Path) -> None:
    rows: list[tuple[tuple[str, ...], str]] = [
        ((*GIVEN, *TASKS), "several metrics, but none has"),
        ((*GIVEN, *TASKS, "--primary", "f1"), "give the id of one of the metrics"),
        ((*GIVEN[:4], *TASKS), "lacks `metrics`"),
        ((*GIVEN[:6], *TASKS, "--profile", "both"), "lacks `evaluation_framework`"),
        ((*GIVEN[:4], "--higher", "accuracy", *TASKS), "ID=NAME"),
        ((*GIVEN[:6], "--lower", "accuracy=Again", *TASKS, "--primary", "accuracy"), "a second time"),
        ((*GIVEN[:6], "--task", "a b"), "/tasks/0/id must be 1 to 128 printable ASCII characters without space"),
        ((*GIVEN[:6], "--task", "exam", "--dataset", "acme/exam"), "OWNER/NAME@COMMIT"),
        ((*GIVEN[:6], "--task", "exam", "--dataset", f"exam@{COMMIT}"), "by the Hub's rules"),
    ]
    for arguments, rule in rows:
        done = benchmark("init", *arguments, "--out", tmp_path / "new" / "eval.yaml", env={"COLUMNS": "300"})
        assert (done.code, rule in " ".join(done.err.split())) == (2, True), done.err
    assert not (tmp_path / "new").exists()
    file, link = tmp_path / "file.yaml", tmp_path / "link.yaml"
    file.write_text("mine")
    link.symlink_to("elsewhere")
    for out in (file, link):
        done = benchmark("init", *GIVEN[:6], "--task", "exam", "--out", out)
        assert (done.code, "exists already" in done.err) == (3, True)
    assert (file.read_text(), (tmp_path / "elsewhere").exists()) == ("mine", False)


def test_lint_reads_any_given_file_and_in_folders_only_eval_yaml(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("- dataset: {id: a/b}\n")
    done = benchmark("lint", tmp_path / "other.yaml")
    assert (done.code, "benchmark.absent" in done.out) == (3, True)
    assert "has no eval.yaml" in benchmark("lint", tmp_path).out
    (tmp_path / ".eval_results").mkdir()
    (tmp_path / ".eval_results" / "b.yaml").write_text("malformed")
    made(tmp_path / "eval.yaml", *GIVEN[:6], "--task", "exam")
    assert benchmark("lint", tmp_path).err.startswith("1 files: 0 errors")


def test_any_text_is_read_again_as_it_was_given(tmp_path: Path) -> None:
    texts = ("yes", "1e3", "a: b # c", "\u00e9\u4e2d\U0001f600", "line\nbreak", "\u0085\u2028", "- x", '"')
    for number, text in enumerate(texts):
        out = tmp_path / f"{number}.yaml"
        assert made(out, "--name", text, "--description", text, "--higher", f"m={text}", "--task", "t").name == text
        assert not [found for found in lint_benchmark(out.read_bytes(), "e") if found.severity == "error"]
