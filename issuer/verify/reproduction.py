"""Reproductions: whether one run evaluated the same thing as another and got the same numbers. Pure.

`differences` compares two runs, whatever their source. `objection` compares two signed results: the second names the
first by its content digest (`run.reproduces`), and another party had it signed. This shows two signatures over agreeing
numbers; it does not prove that a second run took place. `run.split`, `run.epochs` and `run.completeness` are not
compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from issuer.formats import jcs
from issuer.formats.strict_yaml import number_text
from issuer.results.claims import Metric, RunClaims
from issuer.verify.provenance import doubt_of_two_owners
from issuer.verify.report import Report, Said

Pair = tuple[str, str]  # a metric's id and slice ("" without one)
_MOST = 200  # characters of a value that is shown
_BOUND = ("model_repo", "model_revision", "benchmark_repo", "benchmark_revision", "task_id")


class Tolerance(Struct, frozen=True):
    """How far two values of one metric may differ and still agree: `absolute`, in the metric's unit, by metric id. The
    relying party sets it; without it, values agree only if they are the same number."""

    absolute: Mapping[str, float] = {}

    def agree(self, metric_id: str, one: float, other: float) -> bool:
        """Say whether two values of this metric agree. A tolerance of 0.1 also accepts 0.3 and 0.2."""
        limit = self.absolute.get(metric_id, 0.0)
        return one == other or abs(one - other) <= limit or (limit > 0 and math.isclose(abs(one - other), limit))


EXACTLY = Tolerance()


class RunDifference(Struct, frozen=True):
    """A difference of two runs: a JSON pointer into the run claims or the name of a detail, and both values."""

    where: str
    first: str
    second: str


def differences(first: RunClaims, second: RunClaims, tolerance: Tolerance = EXACTLY) -> Iterator[RunDifference]:
    """Yield the differences of two runs. Another framework is not a difference."""
    for name in _BOUND:
        yield from _different(f"/{name}", getattr(first, name), getattr(second, name))
    theirs = {_pair(metric): metric for metric in second.metrics}
    for index, metric in enumerate(first.metrics):
        where, other = f"/metrics/{index}", theirs.pop(_pair(metric), None)
        if other is None:
            yield RunDifference(where, describe(metric), "")
        elif not tolerance.agree(metric.metric_id, metric.value, other.value):
            yield RunDifference(f"{where}/value", describe(metric), describe(other))
    for metric in theirs.values():
        yield RunDifference("/metrics", "", describe(metric))


def setting_differences(first: Said, second: Said) -> Iterator[RunDifference]:
    """Yield differences in the settings of two results, which are in their bound details. Another framework has other
    names for its arguments, and older results have none: then arguments are not compared."""
    yield from _different("run.selection", _written(first.selection), _written(second.selection))
    if first.framework.name == second.framework.name and first.arguments and second.arguments:
        only = _only_in(first.arguments, second.arguments), _only_in(second.arguments, first.arguments)
        yield from _different("run.arguments", *map(_written, only))
    yield from _different("benchmark_subset", first.benchmark_subset, second.benchmark_subset)
    yield from _different("normalization", _written(first.normalization), _written(second.normalization))


def aside(second: Said, first: Said) -> str:
    """Describe a difference that does not count: whether the whole benchmark was run. Returns "" without a
    difference."""
    if second.completeness == first.completeness:
        return ""
    return f"; run.completeness, which is not compared: {_shown(first.completeness)} and {_shown(second.completeness)}"


def describe(metric: Metric) -> str:
    """Return a metric's name, its slice in brackets, and its value."""
    of_slice = f" ({metric.slice})" if metric.slice else ""
    return f"{metric.metric_id}{of_slice} {number_text(metric.value)}"


def objection(second: Report, first: Report, tolerance: Tolerance = EXACTLY) -> str:
    """Return why `second`, which names `first`, does not reproduce it, or "". Both are at least `verified`."""
    if first.claims is None or second.claims is None or first.issued_at is None or second.issued_at is None:
        return "one of them is not signed"
    if first.issued_at >= second.issued_at:
        return "it was not signed later than the result that it names"
    found = [*differences(first.claims, second.claims, tolerance), *setting_differences(first.said, second.said)]
    if found:
        return f"they differ at {found[0].where}: {_shown(found[0].first)} and {_shown(found[0].second)}"
    return _dependence(second, first)


def _shown(text: str) -> str:
    """Shorten foreign text, because each entry that it names repeats it in its report."""
    return text[:_MOST] + "..." if len(text) > _MOST else text or "-"


def _dependence(second: Report, first: Report) -> str:
    """Return why two different parties may not have had the results signed, or ""."""
    if first.integration == second.integration:
        return f"both were signed for {first.integration}"
    return doubt_of_two_owners(first.caller, second.caller)


def _different(where: str, first: str, second: str) -> Iterator[RunDifference]:
    if first != second:
        yield RunDifference(where, first, second)


def _only_in(arguments: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that the others lack or have with another value."""
    members = arguments.items()
    return {name: item for name, item in members if jcs.canonical([item]) != jcs.canonical([others.get(name)])}


def _pair(metric: Metric) -> Pair:
    return metric.metric_id, metric.slice or ""


def _written(value: Mapping[str, Any]) -> str:
    return jcs.canonical(value).decode() if value else ""
