"""Does one run reproduce another: the same thing evaluated again, with the same numbers? Pure.

`differences` compares what two runs say, whoever says it. `objection` is about two signed results: the second names the
first by its content digest (`run.reproduces`), and another party had it signed. What that shows are two signatures over
agreeing numbers; it is no proof that there was a second run. `run.split`, `run.epochs` and `run.completeness` are not
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
    """By how much two values of one metric may differ and still agree: `absolute`, in the metric's unit. It is the
    relying party's to say, for each metric id; without one, values agree where they are the same number."""

    absolute: Mapping[str, float] = {}

    def agree(self, metric_id: str, one: float, other: float) -> bool:
        """Say whether two values of this metric agree. A bound that is written as 0.1 takes 0.3 and 0.2, too."""
        limit = self.absolute.get(metric_id, 0.0)
        return one == other or abs(one - other) <= limit or (limit > 0 and math.isclose(abs(one - other), limit))


EXACTLY = Tolerance()


class RunDifference(Struct, frozen=True):
    """Where two runs part: a JSON pointer into the run claims, or the name of a detail, and what each of them says."""

    where: str
    first: str
    second: str


def differences(first: RunClaims, second: RunClaims, tolerance: Tolerance = EXACTLY) -> Iterator[RunDifference]:
    """Yield where two runs do not say the same. The framework may be another one: that makes them no less equal."""
    for name in _BOUND:
        yield from _parted(f"/{name}", getattr(first, name), getattr(second, name))
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
    """Yield where two results, whose details are bound, were made by another setting."""
    yield from _parted("run.selection", _written(first.selection), _written(second.selection))
    yield from _parted("benchmark_subset", first.benchmark_subset, second.benchmark_subset)
    yield from _parted("normalization", _written(first.normalization), _written(second.normalization))


def aside(second: Said, first: Said) -> str:
    """Say what is not compared and parts all the same: whether the whole benchmark was run. "" where it does not."""
    if second.completeness == first.completeness:
        return ""
    return f"; run.completeness, which is not compared: {_shown(first.completeness)} and {_shown(second.completeness)}"


def describe(metric: Metric) -> str:
    """Say what a metric is called, its slice in brackets, and its value."""
    of_slice = f" ({metric.slice})" if metric.slice else ""
    return f"{metric.metric_id}{of_slice} {number_text(metric.value)}"


def objection(second: Report, first: Report, tolerance: Tolerance = EXACTLY) -> str:
    """Return why `second`, which names `first`, does not reproduce it, or "". Both are at least `verified`."""
    if first.claims is None or second.claims is None or first.issued_at is None or second.issued_at is None:
        return "one of them is not signed"
    if first.issued_at >= second.issued_at:
        return "it was not signed after the one that it names"
    found = [*differences(first.claims, second.claims, tolerance), *setting_differences(first.said, second.said)]
    if found:
        return f"they part at {found[0].where}: {_shown(found[0].first)} and {_shown(found[0].second)}"
    return _dependence(second, first)


def _shown(text: str) -> str:
    """Cut what somebody else wrote: it stands in the report of each entry that it names."""
    return text[:_MOST] + "..." if len(text) > _MOST else text or "-"


def _dependence(second: Report, first: Report) -> str:
    """Return why it cannot be told that two parties had the results signed, or ""."""
    if first.integration == second.integration:
        return f"both were signed for {first.integration}"
    return doubt_of_two_owners(first.caller, second.caller)


def _parted(where: str, first: str, second: str) -> Iterator[RunDifference]:
    if first != second:
        yield RunDifference(where, first, second)


def _pair(metric: Metric) -> Pair:
    return metric.metric_id, metric.slice or ""


def _written(value: Mapping[str, Any]) -> str:
    return jcs.canonical(value).decode() if value else ""
