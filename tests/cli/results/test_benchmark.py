"""`issuer benchmark init|lint`: what an author says becomes an eval.yaml; nothing else does, and nothing is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from issuer.results.benchmark import Benchmark, lint_benchmark, read_benchmark
from tests.support.command import issuer

COMMIT = "5503434ddd753f426f4b38109466949a1217c2bb"
SAID = (
    "--name",
    'Acme\'s "Last" Exam',
    "--description",
    "Questions: hard ones.",
    "--higher",
    "accuracy=Top-1",
    "--lower",
    "wer=Error = rate",
)
TASKS = (
    "--task",
    "exam",
    "--task",
    "hard",
    "--config",
    "default",
    "--split",
    "test",
    "--dataset",
    f"acme/exam@{COMMIT}",
)


def made(out: Path, *arguments: object) -> Benchmark:
    done = issuer("benchmark", "init", *arguments, "--out", out)
    assert done.returncode == 0, done.stderr
    return read_benchmark(out.read_bytes(), "eval.yaml")


def test_what_is_said_is_written_and_breaks_no_rule_of_its_profile(tmp_path: Path) -> None:
    out = tmp_path / "eval.yaml"
    framed = ("--evaluation-framework", "acme-exam", "--profile", "both")
    benchmark = made(out, *SAID, *TASKS, "--primary", "wer", *framed)
    assert (benchmark.name, benchmark.description) == ('Acme\'s "Last" Exam', "Questions: hard ones.")
    assert [(one.id, one.display_name, one.higher_is_better, one.primary) for one in benchmark.metrics] == [
        ("accuracy", "Top-1", True, False), ("wer", "Error = rate", False, True),
    ]  # fmt: skip
    assert [(task.id, task.config, task.split) for task in benchmark.tasks] == [
        ("exam", "default", "test"),
        ("hard", "default", "test"),
    ]
    assert benchmark.evaluation_framework == "acme-exam"
    for profile in ("both", "target", "hub"):
        linted = issuer("benchmark", "lint", out, "--profile", profile)
        assert (linted.returncode, linted.stdout) == (0, ""), linted


def test_the_only_metric_is_primary_and_what_is_left_open_is_said(tmp_path: Path) -> None:
    done = issuer("benchmark", "init", *SAID[:6], "--task", "exam", "--out", tmp_path / "eval.yaml")
    assert (done.returncode, "lacks `dataset`" in done.stdout) == (0, True)
    assert read_benchmark((tmp_path / "eval.yaml").read_bytes(), "e").primary == "accuracy"


def test_a_definition_for_today_s_hub_needs_no_metric(tmp_path: Path) -> None:
    hub = ("--profile", "hub", "--evaluation-framework", "acme-exam")
    assert made(tmp_path / "eval.yaml", *SAID[:4], "--task", "exam", *hub).metrics == ()


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ((*SAID, *TASKS), "several metrics, but none has"),
        ((*SAID, *TASKS, "--primary", "f1"), "give the id of one of the metrics"),
        ((*SAID[:4], *TASKS), "lacks `metrics`"),
        ((*SAID[:6], *TASKS, "--profile", "both"), "lacks `evaluation_framework`"),
        ((*SAID[:4], "--higher", "accuracy", *TASKS), "ID=NAME"),
        ((*SAID[:6], "--lower", "accuracy=Again", *TASKS, "--primary", "accuracy"), "a second time"),
        ((*SAID[:6], "--task", "a b"), "/tasks/0/id must be 1 to 128 printable ASCII characters without space"),
        ((*SAID[:6], "--task", "exam", "--dataset", "acme/exam"), "OWNER/NAME@COMMIT"),
        ((*SAID[:6], "--task", "exam", "--dataset", f"exam@{COMMIT}"), "by the Hub's rules"),
    ],
)
def test_what_would_be_no_definition_is_usage_and_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...], rule: str
) -> None:
    done = issuer("benchmark", "init", *arguments, "--out", tmp_path / "new" / "eval.yaml", env={"COLUMNS": "300"})
    assert (done.returncode, rule in " ".join(done.stderr.split())) == (2, True), done.stderr
    assert not (tmp_path / "new").exists()


def test_a_definition_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "eval.yaml"
    for kind in ("file", "link"):
        if kind == "file":
            out.write_text("mine")
        else:
            out.unlink()
            out.symlink_to("elsewhere")
        done = issuer("benchmark", "init", *SAID[:6], "--task", "exam", "--out", out)
        assert (done.returncode, "exists already" in done.stderr) == (3, True)
    assert not (tmp_path / "elsewhere").exists()


def test_lint_takes_every_file_for_a_definition_and_of_a_folder_those_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("- dataset: {id: a/b}\n")
    said = issuer("benchmark", "lint", tmp_path / "other.yaml")
    assert (said.returncode, "benchmark.absent" in said.stdout) == (3, True)
    assert "has no eval.yaml" in issuer("benchmark", "lint", tmp_path).stdout
    results = tmp_path / ".eval_results"
    results.mkdir()
    (results / "b.yaml").write_text("nonsense")
    made(tmp_path / "eval.yaml", *SAID[:6], "--task", "exam")
    assert issuer("benchmark", "lint", tmp_path).stderr.startswith("1 files: 0 errors")


def test_any_text_that_is_said_is_read_again_as_it_was(tmp_path: Path) -> None:
    for number, text in enumerate(
        ("yes", "1e3", "a: b # c", "\u00e9\u4e2d\U0001f600", "line\nbreak", "\u0085\u2028", "- x", '"')
    ):
        out = tmp_path / f"{number}.yaml"
        assert made(out, "--name", text, "--description", text, "--higher", f"m={text}", "--task", "t").name == text
        assert not [found for found in lint_benchmark(out.read_bytes(), "e") if found.severity == "error"]
