"""Comparison of the signed results of all identities, from an audit, for the operator. Pure.

It is evidence only, and callers do not see it: two honest teams may evaluate one model, and a model in training has
many commits. An identity's counts restart with each new run key, and an empty commit makes one. So models are
counted here over all their commits, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import UNSET, Struct

from issuer.audit.events import Decision, ResultRead

MAX_KEPT = 500_000  # run keys, and pairs of model and task, in one reading: some 500 bytes each
MAX_APART = 1000  # distinct identities or commits that are kept for each of these

_decode = msgspec.json.Decoder(Decision).decode


class Seen(Struct, frozen=True, omit_defaults=True):
    """One observation about a model and a task: the `identities`, and the numbers of `commits` of the model and of
    `tokens`. `model_revision` and `benchmark_revision` are empty if it is over all commits."""

    model_repo: str
    benchmark_repo: str
    task_id: str
    framework: str
    identities: list[str]
    commits: int
    tokens: int
    model_revision: str = ""
    benchmark_revision: str = ""


class _Count(Struct):
    tokens: int = 0
    identities: set[str] = msgspec.field(default_factory=set)
    commits: set[str] = msgspec.field(default_factory=set)


# Model, commit, benchmark, commit, task, framework; over all commits both commits are "".
_Run = tuple[str, str, str, str, str, str]


class Across:
    """Counts over the issued results in an audit. `unread` is the number of batches whose events do not have their
    results, `left_out` the number of results beyond the capacity."""

    def __init__(self, capacity: int = MAX_KEPT) -> None:
        self._capacity = capacity
        self._counts: dict[_Run, _Count] = {}
        self.unread = 0
        self.left_out = 0

    def read(self, line: bytes) -> None:
        """Count the results of a line of an audit, if it is an issuance."""
        if b'"issued"' not in line:
            return
        try:
            event = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        if event.verdict == "issued" and event.results is UNSET:
            self.unread += 1
        elif event.verdict == "issued" and event.results:
            for result in event.results:
                self._count(f"{event.integration}/{event.identity}", result)

    def _count(self, identity: str, result: ResultRead) -> None:
        model, benchmark = result.model_repo.lower(), result.benchmark_repo.lower()
        framework = result.framework.name
        runs: tuple[_Run, ...] = (
            (model, result.model_revision, benchmark, result.benchmark_revision, result.task_id, framework),
            (model, "", benchmark, "", result.task_id, framework),
        )
        if len(self._counts) + sum(run not in self._counts for run in runs) > self._capacity:
            self.left_out += 1
            return
        for run in runs:
            count = self._counts.setdefault(run, _Count())
            count.tokens += 1
            _add(count.identities, identity)
            _add(count.commits, result.model_revision)

    def shared(self, identities: int) -> Iterator[Seen]:
        """Yield the run keys that at least this many identities share, those with the most first."""
        runs = [(len(count.identities), run) for run, count in self._counts.items() if run[1]]
        return self._ranked(runs, identities)

    def committed(self, commits: int) -> Iterator[Seen]:
        """Yield the models and tasks with at least this many commits of the model, those with the most first."""
        models = [(len(count.commits), run) for run, count in self._counts.items() if not run[1]]
        return self._ranked(models, commits)

    def _ranked(self, runs: list[tuple[int, _Run]], least: int) -> Iterator[Seen]:
        for number, run in sorted(runs, key=lambda counted: (-counted[0], counted[1])):
            if number >= least:
                count = self._counts[run]
                model, revision, benchmark, benchmark_revision, task, framework = run
                sums = sorted(count.identities), len(count.commits), count.tokens
                yield Seen(model, benchmark, task, framework, *sums, revision, benchmark_revision)


def _add(members: set[str], member: str) -> None:
    if len(members) < MAX_APART:
        members.add(member)


def describe(seen: Seen) -> str:
    """Describe an observation in one line, for people."""
    commit = f"@{seen.model_revision[:12]}" if seen.model_revision else ""
    commits = "" if seen.model_revision else f"{seen.commits} commits, "
    subject = f"{seen.model_repo}{commit}  {seen.benchmark_repo} {seen.task_id} ({seen.framework})"
    identities = f"{len(seen.identities)} identities: {', '.join(seen.identities[:5])}"
    return f"{subject}  {commits}{seen.tokens} tokens  {identities}"
