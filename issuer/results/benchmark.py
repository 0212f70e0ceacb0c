"""Benchmark definitions (`eval.yaml`): tasks, metrics and the primary metric (contract section 3). Pure.

It reads the form of today's Hub (without `metrics`) and the target form, and ignores other tools' members.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from issuer.codes import Code
from issuer.errors import Fault, Finding, InputError, Place
from issuer.formats import strict_yaml
from issuer.formats.strict_json import pointer_to
from issuer.formats.strict_yaml import quoted
from issuer.results.claims import IDENTIFIER, REVISION, RunClaims, is_repo
from issuer.results.entry import Profile


class NewMetric(Struct, frozen=True):
    """A metric for a new benchmark definition. One of several must be `primary`."""

    id: str
    display_name: str
    higher_is_better: bool
    primary: bool


class NewBenchmark(Struct, frozen=True):
    """The content of a new benchmark definition; None leaves a member out. Today's Hub requires `evaluation_framework`.
    Every task has the same `config`, `split` and `dataset` (repository, commit). `lint_benchmark` checks the rules."""

    name: str
    description: str
    evaluation_framework: str | None
    metrics: tuple[NewMetric, ...]
    tasks: tuple[str, ...]
    config: str | None = None
    split: str | None = None
    dataset: tuple[str, str] | None = None

    def text(self) -> str:
        """Return the text of the file. All strings are double-quoted, because every YAML reader reads these alike."""
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


def _members(members: Mapping[str, str | None]) -> Iterator[str]:
    return (f"{name}: {quoted(text)}" for name, text in members.items() if text is not None)


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
    """The dataset of a task."""

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
    """An `eval.yaml`. In the form of today's Hub, `metrics` is empty, which does not mean that it has no metrics."""

    name: str
    tasks: Annotated[tuple[Task, ...], Meta(min_length=1)]
    description: str | UnsetType = UNSET
    metrics: tuple[BenchmarkMetric, ...] = ()
    evaluation_framework: str | UnsetType = UNSET

    @property
    def task_ids(self) -> frozenset[str]:
        """The ids of its tasks."""
        return frozenset(task.id for task in self.tasks)

    @property
    def metric_ids(self) -> frozenset[str]:
        """The ids of its metrics."""
        return frozenset(metric.id for metric in self.metrics)

    @property
    def primary_metric(self) -> BenchmarkMetric | None:
        """The primary metric: the marked one, or the only one. None if this is ambiguous."""
        candidates = [metric for metric in self.metrics if metric.primary] or self.metrics
        return candidates[0] if len(candidates) == 1 else None

    @property
    def primary(self) -> str | None:
        """The id of the primary metric, if there is one."""
        return None if self.primary_metric is None else self.primary_metric.id

    def undefined(self, task_id: str | None, metric_ids: Sequence[str | None]) -> Iterator[Fault]:
        """Yield a fault for each id that it does not define, with the pointer in run claims. None ids are skipped."""
        if task_id is not None and task_id not in self.task_ids:
            yield Fault(Code.RESULT_UNDEFINED, "/task_id", f"the benchmark defines no task {task_id!r}")
        for index, metric_id in enumerate(metric_ids if self.metrics else ()):
            if metric_id is not None and metric_id not in self.metric_ids:
                rule = f"the benchmark defines no metric {metric_id!r}"
                yield Fault(Code.RESULT_UNDEFINED, f"/metrics/{index}/metric_id", rule)


def demand_defined(benchmark: Benchmark | None, claims: RunClaims, place: Place) -> None:
    """Raise InputError(`result.undefined`) if the benchmark, when it is known, does not define the task or a metric of
    a result. A relying party with the benchmark would refuse the result (check 10)."""
    faults = benchmark.undefined(claims.task_id, [metric.metric_id for metric in claims.metrics]) if benchmark else ()
    if errors := [InputError(fault.code, fault.detail, place) for fault in faults]:
        raise InputError.of(errors)


def named_primary(benchmark: Benchmark | None, stated: str | None, place: Place) -> str | None:
    """Return the primary metric that the benchmark or the author names, or None. Raises InputError(`result.value`) if
    they name different ones: readers with the benchmark would refuse the result (check 8)."""
    defined = benchmark.primary if benchmark else None
    if stated is not None and defined not in (None, stated):
        raise InputError(Code.RESULT_VALUE, f"--primary is {stated}, but the benchmark's is {defined}", place)
    return stated if defined is None else defined


# -- whose definition decides ------------------------------------------------------------------------------------------

ANY = "any"
Commits = str | Annotated[tuple[str, ...], Meta(min_length=1)]  # `any`, a commit, or a list of commits
_COMMIT = "a full commit (40 or 64 lowercase hex characters)"


class AcceptedDefinitions(Struct, frozen=True):
    """The commits whose definition of a benchmark counts for a relying party, or for an operator, by the lowercase name
    of the repository. Every commit of any other benchmark counts. Case is ignored: the Hub finds a repository in any
    case, so another spelling must not evade the list."""

    commits: Mapping[str, tuple[str, ...]] = {}

    @classmethod
    def of(cls, stated: Mapping[str, Commits]) -> AcceptedDefinitions:
        """Return the commits that a map `definitions` states."""
        named = {repo.lower(): commits for repo, commits in stated.items() if commits != ANY}
        return cls({repo: (each,) if isinstance(each, str) else each for repo, each in named.items()})

    def listed(self, repo: str) -> tuple[str, ...]:
        """Return the commits that count for a benchmark; () if every commit does."""
        return self.commits.get(repo.lower(), ())

    def accept(self, repo: str, commit: str) -> bool:
        """Say whether the definition at a commit counts."""
        listed = self.listed(repo)
        return not listed or commit in listed


def faults_of_definitions(stated: Mapping[str, Commits]) -> Iterator[tuple[str, str]]:
    """Yield the pointer and the rule of each fault in a map `definitions`."""
    seen: set[str] = set()
    for repo, commits in stated.items():
        at = pointer_to("", repo)
        if not is_repo(repo):
            yield at, "must be a benchmark's repository: `owner/name`"
        if repo.lower() in seen:
            yield at, "this benchmark occurs twice: upper and lower case are the same here"
        seen.add(repo.lower())
        if isinstance(commits, str):
            if commits != ANY and not REVISION.fullmatch(commits):
                yield at, f"must be `any`, {_COMMIT}, or a list of commits"
            continue
        for index, commit in enumerate(commits):
            if not REVISION.fullmatch(commit):
                yield f"{at}/{index}", f"must be {_COMMIT}"


def read_benchmark(raw: bytes, name: str, *, max_values: int = strict_yaml.MAX_NODES) -> Benchmark:
    """Read an `eval.yaml` that people know as `name`. Raises InputError with file, line and column: `benchmark.absent`
    if it is good YAML but not a benchmark definition, because other tools also have files with this name."""
    document = strict_yaml.load(raw, name, max_values=max_values)
    _demand_benchmark(document)
    return document.convert(Benchmark)


def _demand_benchmark(document: strict_yaml.Document) -> None:
    value = document.value
    if not isinstance(value, Mapping) or value.keys().isdisjoint({"tasks", "metrics"}):
        rule = "not a benchmark definition: neither `tasks` nor `metrics`"
        raise document.error(Code.BENCHMARK_ABSENT, "", rule)


# -- lint -------------------------------------------------------------------------------------------------------------

# Members of Inspect in tasks, which the Hub's documentation shows.
_FOREIGN = frozenset({"field_spec", "solvers", "scorers"})


def lint_benchmark(raw: bytes, name: str, profile: Profile = "target") -> tuple[Finding, ...]:
    """Return all faults of an `eval.yaml` for readers of the profile, in the file's order. Never raises."""
    document, refusals = strict_yaml.examine(raw, name)
    findings = [refusal.finding for refusal in refusals]
    if document is not None:
        try:
            _demand_benchmark(document)
            rules = _Lint(document, {refusal.pointer for refusal in refusals}, profile)
            findings += (_with_severity(finding, profile) for finding in rules.findings())
        except InputError as error:
            findings.append(error.finding)
    return tuple(sorted(findings, key=lambda finding: (finding.place.line, finding.place.column)))


def _with_severity(finding: Finding, profile: Profile) -> Finding:
    """Turn errors in members that today's Hub ignores (metrics, the dataset of a task) into warnings."""
    ignored = finding.pointer.startswith("/metrics") or "/dataset" in finding.pointer
    return replace(finding, severity="warning") if profile == "hub" and ignored else finding


class _Lint:
    """The rules for `eval.yaml` of contract section 3 and of today's Hub, one in each method."""

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
            rule = "lacks `metrics`: it defines no metric and no primary metric"
            rule += " (today's Hub accepts this: --profile hub)" if self._profile == "target" else ""
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
            yield self._error("", "lacks `evaluation_framework`, which today's Hub requires")

    def _unknown(
        self, at: str, item: Mapping[str, Any], kind: type[Struct], foreign: frozenset[str]
    ) -> Iterator[Finding]:
        for name in item:
            if name not in kind.__struct_fields__ and name not in foreign:
                yield self._warn(pointer_to(at, name), "unknown member")

    def _items(
        self, name: str, kind: type[Struct], foreign: frozenset[str]
    ) -> Generator[Finding, None, dict[str, Mapping[str, Any]]]:
        """Yield the faults of the items of a list, and return the good items by pointer."""
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
            yield self._error(f"{at}/id", "is here a second time")

    def _scores(self, metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
        for at, metric in metrics.items():
            for name in ("display_name", "higher_is_better"):
                if name not in metric:
                    yield self._error(at, f"lacks `{name}`")
        primary = [at for at, metric in metrics.items() if metric.get("primary")]
        if len(metrics) > 1 and not primary:
            yield self._error("/metrics", "several metrics, but none has `primary: true`: mark exactly one")
        for at in primary[1:]:
            yield self._error(f"{at}/primary", "a second primary metric: mark exactly one")

    def _datasets(self, tasks: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
        """Warn about a missing dataset. The specification's text requires it, but its examples lack it."""
        for at, task in tasks.items():
            dataset = task.get("dataset")
            if dataset is None and "metrics" in self.members:
                yield self._warn(at, "lacks `dataset` with `id` and `revision`: readers cannot know the task's data")
            elif isinstance(dataset, Mapping) and not is_repo(dataset["id"]):
                yield self._error(f"{at}/dataset/id", "must be `owner/name` by the Hub's rules, in ASCII")
            elif isinstance(dataset, Mapping) and not REVISION.fullmatch(dataset.get("revision") or ""):
                yield self._warn(f"{at}/dataset", "lacks a full commit as `revision`: the data may change")
