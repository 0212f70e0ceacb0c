"""Reading a benchmark's eval.yaml."""

from __future__ import annotations

import pytest

from issuer.errors import InputError
from issuer.results.benchmark import read_benchmark

LIVE = b"name: AIME 2026\ndescription: Exam.\ntasks:\n  - id: MathArena/aime_2026\n    split: test\n"
TARGET = LIVE + b"metrics:\n  - {id: acc, higher_is_better: true, primary: true}\n  - {id: wer}\n"


def test_both_forms_are_read() -> None:
    live, target = read_benchmark(LIVE, "eval.yaml"), read_benchmark(TARGET, "eval.yaml")
    assert live.task_ids == target.task_ids == {"MathArena/aime_2026"}
    assert (len(live.metric_ids), live.primary) == (0, None)
    assert (sorted(target.metric_ids), target.primary) == (["acc", "wer"], "acc")


@pytest.mark.parametrize(
    ("metrics", "primary"),
    [
        (b"[{id: a}]", "a"),
        (b"[{id: a}, {id: b}]", None),
        (b"[{id: a, primary: true}, {id: b, primary: true}]", None),
    ],
)
def test_a_primary_metric_is_the_only_one_or_the_one_that_is_marked(metrics: bytes, primary: str | None) -> None:
    assert read_benchmark(LIVE + b"metrics: " + metrics + b"\n", "eval.yaml").primary == primary


def test_a_file_without_tasks_is_refused_with_its_place() -> None:
    with pytest.raises(InputError) as caught:
        read_benchmark(b"name: x\ntasks: []\n", "eval.yaml")
    assert str(caught.value).startswith("eval.yaml:2:8: file.schema")
