"""Which entries of a policy match what was decided: an entry that never does grants, or denies, nothing. Pure.

A whole rule is judged in every decision, so it is its entries that can be needless: one identity, one glob of a list.
They are named by their places in the file. What is matched is what the audit holds of a decision, whatever its verdict.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from issuer.audit_events import MetricRead, ResultRead
from issuer.policy.compiled import allows_version
from issuer.policy.globs import denies, glob_matches
from issuer.policy.model import FrameworkGrant, MetricGrant, Policy


def places(policy: Policy) -> list[str]:
    """Return the place of each entry."""
    grants, deny = policy.grants, policy.grants.deny
    lists = (
        ("frameworks", grants.frameworks), ("benchmarks", grants.benchmarks), ("models", grants.models),
        ("tasks", grants.tasks), ("metrics", grants.metrics), ("deny.benchmarks", deny.benchmarks),
        ("deny.models", deny.models), ("deny.tasks", deny.tasks),
    )  # fmt: skip
    listed = [f"grants.{name}[{index}]" for name, entries in lists for index in range(len(entries))]
    return [*(f"identities.{one.id}" for one in policy.identities), *listed]


def matched(policy: Policy, identity: str, result: ResultRead) -> Iterator[bool]:
    """Say of each entry, in the order of `places`, whether it matches a result of an identity."""
    grants, deny = policy.grants, policy.grants.deny
    framework = result.framework
    for one in policy.identities:
        yield one.id == identity
    for grant in grants.frameworks:
        yield _names(grant, framework.name, framework.version)
    for globs, value in (
        (grants.benchmarks, result.benchmark_repo), (grants.models, result.model_repo), (grants.tasks, result.task_id),
    ):  # fmt: skip
        for glob in globs:
            yield glob_matches(glob, value)
    for entry in grants.metrics:
        yield any(_allows(entry, metric) for metric in result.metrics)
    for globs, value in (
        (deny.benchmarks, result.benchmark_repo), (deny.models, result.model_repo), (deny.tasks, result.task_id),
    ):  # fmt: skip
        for glob in globs:
            yield denies((glob,), value)


def _names(grant: FrameworkGrant, name: str, version: str) -> bool:
    return grant.name == name and allows_version(grant.versions or "", version)


def _allows(entry: str | MetricGrant, metric: MetricRead) -> bool:
    """Judge an id and, where it was written down because a rule reads it, its value."""
    if isinstance(entry, str):
        return glob_matches(entry, metric.metric_id)
    if not glob_matches(entry.id, metric.metric_id):
        return False
    value = metric.value
    if value is UNSET:
        return True
    return (entry.min is UNSET or entry.min <= value) and (entry.max is UNSET or value <= entry.max)
