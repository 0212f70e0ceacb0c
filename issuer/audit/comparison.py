"""What all identities together had signed, as an audit tells it: for the operator, who alone may compare them. Pure.

A caller learns nothing from it, and nothing follows: two honest teams evaluate one model, and a model that is trained
has many commits. An empty commit makes a new run key, which the counts of one identity begin anew with; here models are
counted without their commits.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import UNSET, Struct

from issuer.audit.events import Decision, ResultRead

# Runs, and models by task, that one reading keeps: some 500 bytes each.
MAX_KEPT = 500_000
# Of each, so many identities or commits are told apart.
MAX_APART = 1000

_decode = msgspec.json.Decoder(Decision).decode


class Seen(Struct, frozen=True, omit_defaults=True):
    """One observation: how many `identities`, `commits` of the model and `tokens` there were of a model and a task.

    `model_revision` and `benchmark_revision` are empty where it is over all commits.
    """

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


# Model, commit, benchmark, commit, task, framework; of all commits together both are "".
_Run = tuple[str, str, str, str, str, str]


class Across:
    """Counts what decisions say was issued. `unread` are batches whose results are not in their events, `left_out`
    results for which there was no room."""

    def __init__(self, capacity: int = MAX_KEPT) -> None:
        self._capacity = capacity
        self._counts: dict[_Run, _Count] = {}
        self.unread = 0
        self.left_out = 0

    def read(self, line: bytes) -> None:
        """Take a line of an audit; passes over all but what was issued."""
        if b'"issued"' not in line:
            return
        try:
            event = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        if event.verdict != "issued":
            return
        if event.results is UNSET:
            self.unread += 1
            return
        for result in event.results:
            self._count(f"{event.integration}/{event.identity}", result)

    def _count(self, whose: str, result: ResultRead) -> None:
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
            _add(count.identities, whose)
            _add(count.commits, result.model_revision)

    def shared(self, identities: int) -> Iterator[Seen]:
        """Yield the run keys that so many identities had signed, those of the most identities first."""
        found = [(run, count) for run, count in self._counts.items() if run[1] and len(count.identities) >= identities]
        yield from (_seen(*each) for each in sorted(found, key=lambda each: (-len(each[1].identities), each[0])))

    def committed(self, commits: int) -> Iterator[Seen]:
        """Yield the models of which so many commits were signed for one task, those with the most commits first."""
        found = [(run, count) for run, count in self._counts.items() if not run[1] and len(count.commits) >= commits]
        yield from (_seen(*each) for each in sorted(found, key=lambda each: (-len(each[1].commits), each[0])))


def _add(apart: set[str], one: str) -> None:
    if len(apart) < MAX_APART:
        apart.add(one)


def _seen(run: _Run, count: _Count) -> Seen:
    model, revision, benchmark, benchmark_revision, task, framework = run
    return Seen(
        model_repo=model,
        benchmark_repo=benchmark,
        task_id=task,
        framework=framework,
        identities=sorted(count.identities),
        commits=len(count.commits),
        tokens=count.tokens,
        model_revision=revision,
        benchmark_revision=benchmark_revision,
    )


def describe(seen: Seen) -> str:
    """Say an observation in one line, for people."""
    what = f"{seen.model_repo}{f'@{seen.model_revision[:12]}' if seen.model_revision else ''}"
    of = f"{what}  {seen.benchmark_repo} {seen.task_id} ({seen.framework})"
    whose = f"{len(seen.identities)} identities: {', '.join(seen.identities[:5])}"
    return (
        f"{of}  {seen.tokens} tokens  {whose}"
        if seen.model_revision
        else (f"{of}  {seen.commits} commits, {seen.tokens} tokens  {whose}")
    )
