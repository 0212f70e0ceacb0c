"""A benchmark's `eval.yaml`: its tasks, its metrics, and which of them is primary (contract section 3). Pure.

Reads the Hub's live form, which has no `metrics`, and the target form alike. Members of other tools (`field_spec`,
`solvers`, `scorers`) are left alone.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from issuer.codes import Code
from issuer.errors import Fault, Finding, InputError, Place
from issuer.formats import strict_yaml
from issuer.formats.strict_json import JSON, pointer_to
from issuer.formats.strict_yaml import quoted
from issuer.results.claims import IDENTIFIER, REVISION, RunClaims, is_repo
from issuer.results.entry import Profile

# Strings are double-quoted, so that every YAML reader reads them alike. `lint_benchmark` says which rules it breaks.


class NewMetric(Struct, frozen=True):
    """A metric as its author says it; one of several is `primary`."""

    id: str
    display_name: str
    higher_is_better: bool
    primary: bool


class NewBenchmark(Struct, frozen=True):
    """What goes into the file. None is left out; `evaluation_framework` is what today's Hub asks for. Every task has
    the same `members`: `config` and `split`, and `dataset`, a repository and its commit."""

    name: str
    description: str
    evaluation_framework: str | None
    metrics: tuple[NewMetric, ...]
    tasks: tuple[str, ...]
    config: str | None = None
    split: str | None = None
    dataset: tuple[str, str] | None = None

    def text(self) -> str:
        """Write the file."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from _members({"name": self.name, "description": self.description})
        yield from _members({"evaluation_framework": self.evaluation_framework})
        if self.metrics:
            yield from ("", "metrics:")
        for metric in self.metrics:
            yield from _item(_members({"id": metric.id, "display_name": metric.display_name}))
            yield f"    higher_is_better: {'true' if metric.higher_is_better else 'false'}"
            if metric.primary:
                yield "    primary: true"
        yield from ("", "tasks:")
        for task in self.tasks:
            yield from _item(_members({"id": task, "config": self.config, "split": self.split}))
            if self.dataset:
                yield "    dataset:"
                repo, commit = self.dataset
                yield from (f"      {line}" for line in _members({"id": repo, "revision": commit}))


def _members(said: Mapping[str, str | None]) -> Iterator[str]:
    return (f"{name}: {quoted(text)}" for name, text in said.items() if text is not None)


def _item(lines: Iterable[str]) -> Iterator[str]:
    for index, line in enumerate(lines):
        yield f"  {'  ' if index else '- '}{line}"


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
        """The id of the primary metric: the only one, or the one that is marked; None where that is ambiguous."""
        marked = [metric.id for metric in self.metrics if metric.primary]
        candidates = marked or [metric.id for metric in self.metrics]
        return candidates[0] if len(candidates) == 1 else None

    def undefined(self, task_id: str | None, metric_ids: Sequence[str | None]) -> Iterator[Fault]:
        """Yield what it does not define, with its pointer in run claims; None: not there."""
        if task_id is not None and task_id not in self.task_ids:
            yield Fault(Code.RESULT_UNDEFINED, "/task_id", f"the benchmark defines no task {task_id!r}")
        for index, metric_id in enumerate(metric_ids if self.metrics else ()):
            if metric_id is not None and metric_id not in self.metric_ids:
                rule = f"the benchmark defines no metric {metric_id!r}"
                yield Fault(Code.RESULT_UNDEFINED, f"/metrics/{index}/metric_id", rule)


def demand_defined(benchmark: Benchmark | None, claims: RunClaims, place: Place) -> None:
    """Raise InputError(`result.undefined`) for a result that its benchmark, where it is at hand, does not define: no
    reader who looks there takes it (check 10)."""
    found = benchmark.undefined(claims.task_id, [metric.metric_id for metric in claims.metrics]) if benchmark else ()
    if errors := [InputError(fault.code, fault.detail, place) for fault in found]:
        raise InputError.of(errors)


def read_benchmark(raw: bytes, name: str, *, max_values: int = strict_yaml.MAX_NODES) -> Benchmark:
    """Read an `eval.yaml`; `name` is what the file is called. Raises InputError with file, line and column. The code is
    `benchmark.absent` where the file is sound YAML but does not define a benchmark: other tools also have files of this
    name."""
    document = strict_yaml.load(raw, name, max_values=max_values)
    _demand_benchmark(document)
    return document.convert(Benchmark)


def is_benchmark(value: JSON) -> bool:
    """Say whether a document means to be a benchmark definition: a map with `tasks` or `metrics`."""
    return isinstance(value, Mapping) and not value.keys().isdisjoint({"tasks", "metrics"})


def _demand_benchmark(document: strict_yaml.Document) -> None:
    if not is_benchmark(document.value):
        rule = "not a benchmark definition: neither `tasks` nor `metrics`"
        raise document.error(Code.BENCHMARK_ABSENT, "", rule)


# -- lint -------------------------------------------------------------------------------------------------------------

# Members that other tools have in tasks; Inspect's, as the Hub's documentation shows them.
_FOREIGN = frozenset({"field_spec", "solvers", "scorers"})


def lint_benchmark(raw: bytes, name: str, profile: Profile = "target") -> tuple[Finding, ...]:
    """Return everything that is wrong with an `eval.yaml` for the profile's Hub, in the file's order; never raises."""
    document, refusals = strict_yaml.examine(raw, name)
    findings = [refusal.finding for refusal in refusals]
    if document is not None:
        try:
            _demand_benchmark(document)
            rules = _Lint(document, {refusal.pointer for refusal in refusals}, profile)
            findings += (_judged(found, profile) for found in rules.findings())
        except InputError as error:
            findings.append(error.finding)
    return tuple(sorted(findings, key=lambda finding: (finding.place.line, finding.place.column)))


def _judged(found: Finding, profile: Profile) -> Finding:
    """Turn an error into a warning where today's Hub does not look: at metrics, and at the dataset of a task."""
    unseen = found.pointer.startswith("/metrics") or "/dataset" in found.pointer
    return replace(found, severity="warning") if profile == "hub" and unseen else found


class _Lint:
    """The rules of contract section 3 for `eval.yaml`, and of today's Hub; each method is one of them."""

    def __init__(self, document: strict_yaml.Document, refused: set[str], profile: Profile) -> None:
        self._document = document
        self._refused = refused
        self._profile = profile
        self.members: Mapping[str, Any] = document.value  # type: ignore[assignment]

    def findings(self) -> Iterator[Finding]:
        yield from self._texts()
        yield from self._unknown("", self.members, Benchmark, frozenset())
        if "metrics" in self.members:
            metrics = yield from self._items("metrics", BenchmarkMetric, frozenset())
            yield from self._scores(metrics)
        else:
            rule = "lacks `metrics`: no metric is defined, none is primary"
            rule += " (today's Hub takes it: --profile hub)" if self._profile == "target" else ""
            yield self._warn("", rule) if self._profile == "hub" else self._error("", rule)
        tasks = yield from self._items("tasks", Task, _FOREIGN)
        yield from self._datasets(tasks)

    def _error(self, pointer: str, detail: str, code: Code = Code.BENCHMARK_RULE) -> Finding:
        return Finding(code, self._document.place(pointer), detail, pointer)

    def _warn(self, pointer: str, detail: str) -> Finding:
        return Finding(Code.BENCHMARK_RULE, self._document.place(pointer), detail, pointer, "warning")

    def _texts(self) -> Iterator[Finding]:
        for name in ("name", "description", "evaluation_framework"):
            if name in self.members and not isinstance(self.members[name], str):
                yield self._error(f"/{name}", "expected text: put it in double quotes", Code.FILE_SCHEMA)
        for name in ("name", "description"):
            if name not in self.members:
                yield self._error("", f"lacks `{name}`")
        if self._profile != "target" and "evaluation_framework" not in self.members:
            yield self._error("", "lacks `evaluation_framework`, which today's Hub demands")

    def _unknown(
        self, at: str, item: Mapping[str, Any], kind: type[Struct], foreign: frozenset[str]
    ) -> Iterator[Finding]:
        for name in item:
            if name not in kind.__struct_fields__ and name not in foreign:
                yield self._warn(pointer_to(at, name), "no reader knows this member")

    def _items(
        self, name: str, kind: type[Struct], foreign: frozenset[str]
    ) -> Generator[Finding, None, dict[str, Mapping[str, Any]]]:
        """Report what is wrong with each item of a list; return the good ones by their pointer."""
        items = self.members.get(name)
        if not isinstance(items, list) or not items:
            yield self._error(f"/{name}" if name in self.members else "", f"`{name}` must be a list of one or more")
            return {}
        good: dict[str, Mapping[str, Any]] = {}
        ids: set[str] = set()
        for index, item in enumerate(items):
            at = f"/{name}/{index}"
            if any(other == at or other.startswith(f"{at}/") for other in self._refused):
                continue
            try:
                self._document.convert_part(at, item, kind)
            except InputError as error:
                yield error.finding
                continue
            yield from self._unknown(at, item, kind, foreign)
            yield from self._ids(at, item, ids)
            ids.add(item["id"])
            good[at] = item
        return good

    def _ids(self, at: str, item: Mapping[str, Any], others: set[str]) -> Iterator[Finding]:
        if not IDENTIFIER.fullmatch(item["id"]):
            yield self._error(f"{at}/id", "must be 1 to 128 printable ASCII characters without space")
        if item["id"] in others:
            yield self._error(f"{at}/id", "stands here a second time")

    def _scores(self, metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
        for at, metric in metrics.items():
            for name in ("display_name", "higher_is_better"):
                if name not in metric:
                    yield self._error(at, f"lacks `{name}`")
        primary = [at for at, metric in metrics.items() if metric.get("primary")]
        if len(metrics) > 1 and not primary:
            yield self._error("/metrics", "none of several metrics is marked `primary: true`: mark exactly one")
        for at in primary[1:]:
            yield self._error(f"{at}/primary", "a second primary metric: mark exactly one")

    def _datasets(self, tasks: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
        """Warn where the two texts of the specification disagree: one demands a dataset, examples lack it."""
        for at, task in tasks.items():
            dataset = task.get("dataset")
            if dataset is None and "metrics" in self.members:
                yield self._warn(at, "lacks `dataset`, with `id` and `revision`: what data it runs on is not said")
            elif isinstance(dataset, Mapping) and not is_repo(dataset["id"]):
                yield self._error(f"{at}/dataset/id", "must be `owner/name` by the Hub's rules, in ASCII")
            elif isinstance(dataset, Mapping) and not REVISION.fullmatch(dataset.get("revision") or ""):
                yield self._warn(f"{at}/dataset", "lacks a full commit as `revision`: the data may change")
