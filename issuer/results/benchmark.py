"""A benchmark's `eval.yaml`: its tasks, its metrics, and which of them is primary (contract section 3). Pure.

Reads the Hub's live form, which has no `metrics`, and the target form alike. Members of other tools (`field_spec`,
`solvers`, `scorers`) are left alone.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from issuer import strict_yaml

Text = Annotated[str, Meta(min_length=1)]


class BenchmarkMetric(Struct, frozen=True):
    """A metric that the benchmark defines."""

    id: Text
    display_name: str | UnsetType = UNSET
    higher_is_better: bool | UnsetType = UNSET
    primary: bool = False
    unit: str | UnsetType = UNSET
    aggregation: str | UnsetType = UNSET
    slice: str | UnsetType = UNSET


class TaskDataset(Struct, frozen=True):
    """The dataset that a task runs on, where the file says so."""

    id: str
    revision: str | UnsetType = UNSET


class Task(Struct, frozen=True):
    """A task that the benchmark defines."""

    id: Text
    display_name: str | UnsetType = UNSET
    dataset: TaskDataset | UnsetType = UNSET
    config: str | UnsetType = UNSET
    split: str | UnsetType = UNSET


class Benchmark(Struct, frozen=True):
    """An `eval.yaml`. `metrics` is empty in the live form: then no metric is known to be defined."""

    name: str
    tasks: Annotated[tuple[Task, ...], Meta(min_length=1)]
    description: str | UnsetType = UNSET
    metrics: tuple[BenchmarkMetric, ...] = ()
    evaluation_framework: str | UnsetType = UNSET

    @property
    def task_ids(self) -> frozenset[str]:
        """The ids of the tasks that it defines."""
        return frozenset(task.id for task in self.tasks)

    @property
    def metric_ids(self) -> frozenset[str]:
        """The ids of the metrics that it defines."""
        return frozenset(metric.id for metric in self.metrics)

    @property
    def primary(self) -> str | None:
        """The id of the primary metric: the only one, or the one that is marked; None where that is not one."""
        marked = [metric.id for metric in self.metrics if metric.primary]
        candidates = marked or [metric.id for metric in self.metrics]
        return candidates[0] if len(candidates) == 1 else None


def read_benchmark(raw: bytes, name: str) -> Benchmark:
    """Read an `eval.yaml`; `name` is what the file is called. Raises InputError with file, line and column."""
    return strict_yaml.load(raw, name).convert(Benchmark)
