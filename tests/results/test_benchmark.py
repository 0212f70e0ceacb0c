"""The reader, writer and linter of a benchmark's eval.yaml."""

import pytest

from issuer.codes import Code
from issuer.errors import InputError
from issuer.results.benchmark import lint_benchmark, read_benchmark
from issuer.results.entry import PROFILES, Profile
from tests.support.shared import hub_files

LIVE = b"name: AIME 2026\ndescription: Exam.\ntasks:\n  - id: MathArena/aime_2026\n    split: test\n"
TARGET = LIVE + b"metrics:\n  - {id: acc, higher_is_better: true, primary: true}\n  - {id: wer}\n"


def test_both_forms_are_read_and_the_primary_metric_is_the_only_or_the_marked_one() -> None:
    live, target = read_benchmark(LIVE, "eval.yaml"), read_benchmark(TARGET, "eval.yaml")
    assert live.task_ids == target.task_ids == {"MathArena/aime_2026"}
    assert (len(live.metric_ids), live.primary) == (0, None)
    assert (sorted(target.metric_ids), target.primary) == (["acc", "wer"], "acc")
    for metrics, primary in (
        (b"[{id: a}]", "a"), (b"[{id: a}, {id: b}]", None), (b"[{id: a, primary: true}, {id: b, primary: true}]", None),
    ):  # fmt: skip
        assert read_benchmark(LIVE + b"metrics: " + metrics + b"\n", "eval.yaml").primary == primary
    with pytest.raises(InputError) as caught:
        read_benchmark(b"name: x\ntasks: []\n", "eval.yaml")
    assert str(caught.value).startswith("eval.yaml:2:8: file.schema")


FULL = """name: "GSM8K"
description: "Grade school mathematics."
metrics:
  - {id: "acc", display_name: "Accuracy", higher_is_better: true, primary: true, unit: "percent"}
  - {id: "cost", display_name: "Cost", higher_is_better: false, aggregation: "mean", slice: "all"}
tasks:
  - id: "gsm8k"
    config: "default"
    split: "test"
    dataset: {id: "openai/gsm8k", revision: "5503434ddd753f426f4b38109466949a1217c2bb"}
"""


def lint(text: str | bytes, profile: Profile = "target") -> list[tuple[str, int, str]]:
    raw = text.encode() if isinstance(text, str) else text
    return [(str(found.code), found.place.line, found.severity) for found in lint_benchmark(raw, "eval.yaml", profile)]


def test_a_broken_rule_is_found_at_its_place() -> None:
    for old, new, line, severity in [
        ('name: "GSM8K"\n', "", 1, "error"),
        ('description: "Grade school mathematics."\n', "", 1, "error"),
        ("primary: true", "primary: false", 4, "error"),
        ("higher_is_better: false", "higher_is_better: false, primary: true", 5, "error"),
        (', display_name: "Cost"', "", 5, "error"),
        (", higher_is_better: false", "", 5, "error"),
        ('id: "cost"', 'id: "acc"', 5, "error"),
        ('id: "cost"', 'id: "a b"', 5, "error"),
        ('id: "gsm8k"', 'id: ""', 7, "error"),
        ('id: "openai/gsm8k"', 'id: "gsm8k"', 10, "error"),
        (', revision: "5503434ddd753f426f4b38109466949a1217c2bb"', "", 10, "warning"),
        ('    dataset: {id: "openai/gsm8k", revision: "5503434ddd753f426f4b38109466949a1217c2bb"}\n', "", 7, "warning"),
        ('unit: "percent"', 'units: "percent"', 4, "warning"),
        ('split: "test"', 'splits: "test"', 9, "warning"),
        ("tasks:", "licence: x\ntasks:", 6, "warning"),
        ("tasks:", "tasks: []\nevaluation_framework:", 6, "error"),
        ('split: "test"', "split: on", 9, "error"),
        ('split: "test"', "solvers: [x]", 0, ""),
        ("tasks:", "evaluation_framework: x\ntasks:", 0, ""),
    ]:
        assert old in FULL
        found = lint(FULL.replace(old, new, 1))
        expected = [(line, severity)] if line else []
        assert [(at, how) for _, at, how in found if (at, how) == (line, severity)] == expected
        assert found == found[:1] or "evaluation_framework:" in new


def test_today_s_hub_demands_a_framework_and_does_not_look_at_metrics() -> None:
    live = LIVE + b"evaluation_framework: acme\n"  # its form defines no metric, and is one for the Hub alone
    assert lint(live, "hub") == [("benchmark.rule", 1, "warning")]
    assert lint(live) == lint(live, "both") == [("benchmark.rule", 1, "error")]
    assert lint(FULL, "hub") == lint(FULL, "both") == [("benchmark.rule", 1, "error")]
    framed = FULL.replace("tasks:", "evaluation_framework: acme\ntasks:")
    assert {profile: lint(framed, profile) for profile in PROFILES} == {profile: [] for profile in PROFILES}
    for old, new in ((', display_name: "Cost"', ""), ('id: "openai/gsm8k"', 'id: "gsm8k"')):
        assert [severity for *_, severity in lint(framed.replace(old, new), "both")] == ["error"]
        assert [severity for *_, severity in lint(framed.replace(old, new), "hub")] == ["warning"]
    assert [severity for *_, severity in lint(framed.replace("description:", "about:"), "hub")] == ["error", "warning"]


def test_another_kind_of_file_is_told_apart_from_a_broken_definition() -> None:
    for text in ("a: b", "- 1", "x", "model: m\ndataset: d", "{}"):
        assert lint(text) == [("benchmark.absent", 1, "error")]
    for text in ("a: b", "- 1", "x", "{}", "tasks: x", "tasks: [", "metrics: []", "tasks: [{}]\nname: &a x", ""):
        absent = "benchmark.absent" in {code for code, *_ in lint(text)}
        with pytest.raises(InputError) as caught:
            read_benchmark(text.encode(), "eval.yaml")
        assert (caught.value.code is Code.BENCHMARK_ABSENT) == absent == (text in {"a: b", "- 1", "x", "{}"})


def test_a_definition_of_many_tasks_is_linted_in_linear_time() -> None:
    """In quadratic time it would take minutes."""
    text = "name: a\ndescription: b\ntasks:\n" + "".join(f"- id: t{index}\n" for index in range(30_000)) + "- id: t0\n"
    assert [(line, severity) for _, line, severity in lint(text)] == [(1, "error"), (30_004, "error")]


def test_real_files_break_no_rule_and_are_warned_of_what_they_leave_open() -> None:
    """Live files define no metric. The target specification's examples lack the dataset that its text requires."""
    for path in hub_files("benchmark", "eval_yaml"):
        live, raw = not path.name.startswith("target001"), path.read_bytes()
        found = lint_benchmark(raw, path.name, "hub" if live else "target")
        assert {each.severity for each in found} == {"warning"}
        others: tuple[Profile, Profile] = ("target", "both") if live else ("hub", "both")
        for other in others:
            assert "error" in {each.severity for each in lint_benchmark(raw, path.name, other)}
        assert any(("lacks `metrics`" if live else "lacks `dataset`") in each.detail for each in found)
        unknown = {each.pointer for each in found if "unknown member" in each.detail}
        assert unknown == ({"/metrics/2/value_type"} if path.stem == "target001__matharena" else set())
