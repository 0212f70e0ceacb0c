"""The idle entries of the policies, which matched no recent decision, for the operator's view.

The source is the audit file. Every worker writes to it before an answer, with the identity and the requested results,
so this costs the workers nothing. The process that shows the view follows the file. Decisions before the last part of
the file, and those of other hosts, do not count, and the view says so.
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

# Every decision reads every rule, so a rule is never idle, but its entries can be: an identity, or a glob of a list. An
# entry is named by its place in the file, and compared with each decision in the audit file, granted or not.


def _lists(policy: Policy) -> tuple[tuple[str, Sequence[object], Judge], ...]:
    """Return the lists of a policy: the name, the entries, and the function that compares an entry with a result."""
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
    """Yield for each entry, in the order of `places`, whether it matches a result of an identity."""
    yield from (one.id == identity for one in policy.identities)
    for _, entries, matches in _lists(policy):
        yield from (matches(entry, result) for entry in entries)


def _names(grant: FrameworkGrant, result: ResultRead) -> bool:
    return grant.name == result.framework.name and allows_version(grant.versions or "", result.framework.version)


def _allows(entry: str | MetricGrant, metric: MetricRead) -> bool:
    """Compare the id of a metric, and its value if the audit has one: it has the values that a rule reads."""
    if isinstance(entry, str):
        return glob_matches(entry, metric.metric_id)
    if not glob_matches(entry.id, metric.metric_id):
        return False
    value = metric.value
    if value is UNSET:
        return True
    return (entry.min is UNSET or entry.min <= value) and (entry.max is UNSET or value <= entry.max)


# Every relevant line has both marks. Other lines are about a stranger, or are not decisions.
_MARKS = (b'"event":"decision"', b'"integration":"')
# The number of compared results that are kept, to skip equal ones: some hundred bytes each.
_KEPT_RESULTS = 4096


class _Decision(Struct):
    """The relevant members of a decision. `bucket` is set if the caller only resembles the identity."""

    time: int
    integration: str
    identity: str
    results: tuple[ResultRead, ...] | UnsetType = UNSET
    bucket: int | UnsetType = UNSET
    counts: msgspec.Raw | UnsetType = UNSET


class _Matches(Struct):
    """A policy, and its matched entries as bits, in their order."""

    policy: Policy
    bits: int = 0


_decode = msgspec.json.Decoder(_Decision).decode


class AuditWatch:
    """Follows an audit file in a separate thread after `start`. `policies` returns the policies in force."""

    def __init__(self, audit: Path, policies: Callable[[], Mapping[str, Policy]]) -> None:
        self._audit = audit
        self._policies = policies
        self._since = int(time.time())
        self._matches: dict[str, _Matches] = {}
        self._compared: set[object] = set()
        self._unread = 0

    def start(self) -> None:
        """Begin to read, for as long as the process lives."""
        Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                for line in follow_end(self._audit, METRIC_AUDIT_BYTES, lambda: time.sleep(LOOK_S)):
                    self.read(line)
            except InputError:  # the file does not exist yet
                time.sleep(LOOK_S)

    def read(self, line: bytes) -> None:
        """Read a line of the audit. Only a decision about a registered identity counts."""
        if any(mark not in line for mark in _MARKS):
            return
        try:
            decision = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        self._since = min(self._since, decision.time)
        policy = self._policies().get(decision.integration)
        if policy is None or decision.bucket is not UNSET:
            return
        if decision.results is UNSET:
            self._unread += decision.counts is not UNSET
            return
        matches = self._matches_of(decision.integration, policy)
        for result in decision.results:
            self._match(matches, decision.identity, result)

    def _matches_of(self, name: str, policy: Policy) -> _Matches:
        matches = self._matches.get(name)
        if matches is None or matches.policy != policy:
            matches = self._matches[name] = _Matches(policy)
            self._compared.clear()
        matches.policy = policy
        return matches

    def _match(self, matches: _Matches, identity: str, result: ResultRead) -> None:
        what = (matches.policy.integration, identity, result.model_repo, result.benchmark_repo, result.task_id,
                result.framework, result.metrics)  # fmt: skip
        if what in self._compared:
            return
        if len(self._compared) >= _KEPT_RESULTS:
            self._compared.clear()
        self._compared.add(what)
        for place, is_match in enumerate(matched(matches.policy, identity, result)):
            matches.bits |= is_match << place

    def found(self) -> Unmatched:
        """Return the entries that no decision has matched since the first one that was read."""
        policies, known = self._policies(), dict(self._matches)
        rows: list[Unneeded] = []
        silent: list[str] = []
        for name, policy in policies.items():
            matches = known.get(name)
            if matches is None or matches.policy != policy:
                silent.append(name)
                continue
            entries = places(policy)
            if idle := [place for at, place in enumerate(entries) if not matches.bits >> at & 1]:
                rows.append(Unneeded(name, idle, len(entries)))
        return Unmatched(self._since, rows, silent, self._unread)
