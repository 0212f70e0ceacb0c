"""Which entries of the policies have matched nothing of what was decided, for the operator's view.

Told by the audit, which every worker writes before its answer: it names the identity and what was asked for, so that
nothing is added to a decision, and no worker's memory grows. It is read, as it grows, by the process that shows it.
What lies before its last part, and what other hosts decided, is not in it; that is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from issuer.audit.events import MetricRead, ResultRead
from issuer.audit.reader import follow_end
from issuer.errors import InputError
from issuer.io.bounds import LOOK_S
from issuer.page.operator import Unmatched, Unneeded
from issuer.policy.compiled import allows_version
from issuer.policy.model import FrameworkGrant, MetricGrant, Policy
from issuer.policy.patterns import denies, glob_matches
from issuer.service.metrics.bounds import METRIC_AUDIT_BYTES

Judge = Callable[[Any, ResultRead], bool]

# -- which entries match -----------------------------------------------------------------------------------------------

# A whole rule is judged in every decision, so it is its entries that can be needless: one identity, one glob of a list.
# They are named by their places in the file, and matched with what the audit holds of a decision, whatever its verdict.


def _lists(policy: Policy) -> tuple[tuple[str, Sequence[object], Judge], ...]:
    """Return the lists of a policy by their names, each with what says whether an entry of it matches a result."""
    grants, deny = policy.grants, policy.grants.deny
    return (
        ("frameworks", grants.frameworks, _names),
        ("benchmarks", grants.benchmarks, lambda glob, result: glob_matches(glob, result.benchmark_repo)),
        ("models", grants.models, lambda glob, result: glob_matches(glob, result.model_repo)),
        ("tasks", grants.tasks, lambda glob, result: glob_matches(glob, result.task_id)),
        ("metrics", grants.metrics, lambda entry, result: any(_allows(entry, metric) for metric in result.metrics)),
        ("deny.benchmarks", deny.benchmarks, lambda glob, result: denies((glob,), result.benchmark_repo)),
        ("deny.models", deny.models, lambda glob, result: denies((glob,), result.model_repo)),
        ("deny.tasks", deny.tasks, lambda glob, result: denies((glob,), result.task_id)),
    )


def places(policy: Policy) -> list[str]:
    """Return the place of each entry."""
    listed = [f"grants.{name}[{index}]" for name, entries, _ in _lists(policy) for index in range(len(entries))]
    return [*(f"identities.{one.id}" for one in policy.identities), *listed]


def matched(policy: Policy, identity: str, result: ResultRead) -> Iterator[bool]:
    """Say of each entry, in the order of `places`, whether it matches a result of an identity."""
    yield from (one.id == identity for one in policy.identities)
    for _, entries, matches in _lists(policy):
        yield from (matches(entry, result) for entry in entries)


def _names(grant: FrameworkGrant, result: ResultRead) -> bool:
    return grant.name == result.framework.name and allows_version(grant.versions or "", result.framework.version)


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


# What a line has that is read: one that has not is of a stranger, or no decision.
_MARKS = (b'"event":"decision"', b'"integration":"')
# What was matched before need not be matched again. So many are remembered, some hundred bytes each.
_REMEMBERED = 4096


class _Decided(Struct):
    """What is read of a decision; `bucket` is set where the caller only resembles the identity."""

    time: int
    integration: str
    identity: str
    results: tuple[ResultRead, ...] | UnsetType = UNSET
    bucket: int | UnsetType = UNSET
    counts: msgspec.Raw | UnsetType = UNSET


class _Seen(Struct):
    """A policy, and which of its entries were matched: a bit for each, in their order."""

    policy: Policy
    bits: int = 0


_decode = msgspec.json.Decoder(_Decided).decode


class AuditWatch:
    """Reads an audit in a thread of its own, once it was started; `policies` returns those that are in force."""

    def __init__(self, audit: Path, policies: Callable[[], Mapping[str, Policy]]) -> None:
        self._audit = audit
        self._policies = policies
        self._since = int(time.time())
        self._seen: dict[str, _Seen] = {}
        self._known: set[object] = set()
        self._unread = 0

    def start(self) -> None:
        """Read on, as long as the process lives."""
        Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                for line in follow_end(self._audit, METRIC_AUDIT_BYTES, lambda: time.sleep(LOOK_S)):
                    self.read(line)
            except InputError:  # it is not there yet
                time.sleep(LOOK_S)

    def read(self, line: bytes) -> None:
        """Take a line of the audit into account, where it is a decision on a registered identity."""
        if any(mark not in line for mark in _MARKS):
            return
        try:
            decided = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        self._since = min(self._since, decided.time)
        policy = self._policies().get(decided.integration)
        if policy is None or decided.bucket is not UNSET:
            return
        if decided.results is UNSET:
            self._unread += decided.counts is not UNSET
            return
        seen = self._seen_of(decided.integration, policy)
        for result in decided.results:
            self._match(seen, decided.identity, result)

    def _seen_of(self, name: str, policy: Policy) -> _Seen:
        seen = self._seen.get(name)
        if seen is None or (seen.policy is not policy and seen.policy != policy):
            seen = self._seen[name] = _Seen(policy)
            self._known.clear()
        seen.policy = policy
        return seen

    def _match(self, seen: _Seen, identity: str, result: ResultRead) -> None:
        what = (seen.policy.integration, identity, result.model_repo, result.benchmark_repo, result.task_id,
                result.framework, result.metrics)  # fmt: skip
        if what in self._known:
            return
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known.add(what)
        for place, holds in enumerate(matched(seen.policy, identity, result)):
            seen.bits |= holds << place

    def found(self) -> Unmatched:
        """Return what has matched nothing since the first decision that was read."""
        policies, seen = self._policies(), dict(self._seen)
        rows: list[Unneeded] = []
        silent: list[str] = []
        for name, policy in policies.items():
            known = seen.get(name)
            if known is None or (known.policy is not policy and known.policy != policy):
                silent.append(name)
                continue
            of = places(policy)
            never = [place for at, place in enumerate(of) if not known.bits >> at & 1]
            if never:
                rows.append(Unneeded(name, never, len(of)))
        return Unmatched(self._since, rows, silent, self._unread)
