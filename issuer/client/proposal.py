"""Proposals to model repositories: result files with signed entries, and the proofs beside them.

This module chooses the form of each entry, finds results that are already on main, and verifies each entry by the
issuer's keys before it is proposed. A `Destination` reads and proposes files: on the Hub, or in a folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Protocol

from msgspec import UNSET, Struct
from msgspec.structs import replace

from issuer.client.build import Result
from issuer.client.files import STAND_IN, LogProof, read_text, shaped
from issuer.client.hub import FileAt, Hub, Moved, PullRequest, merge_entries, pull_request_text
from issuer.codes import Code
from issuer.errors import InputError, IssuerError, Place, Refused, VerificationError
from issuer.formats import jose
from issuer.io import files
from issuer.results import edit
from issuer.results.benchmark import Benchmark, BenchmarkMetric, Task, demand_defined, named_primary, read_benchmark
from issuer.results.details import read_details
from issuer.results.entry import (
    Entry,
    Profile,
    Submission,
    content_digest,
    default_profile,
    read_entries,
    result_file_name,
)
from issuer.token.verify_token import read_unverified, unverified_leaf
from issuer.token.wire import IssuedToken
from issuer.verify import Context, Status, verify_entry
from issuer.verify.check_log import AtHand, Proofs, sidecar_name
from issuer.verify.report import Report
from issuer.verify.trust import Trust, TrustedIssuer

BENCHMARK_FILE = "eval.yaml"
ResultKey = tuple[str, str]  # a result's model repository and content digest


class ProposedResult(Struct, frozen=True):
    """One result to propose: its submission for signing, the named primary metric, and the form with its reason."""

    result: Result
    said: Submission
    benchmark: Benchmark | None
    primary: str | None
    profile: Profile
    why: str

    @property
    def repo(self) -> str:
        """The result's model repository."""
        return self.said.claims.model_repo

    @property
    def path(self) -> str:
        """The path of the result's file in the model repository."""
        return result_file_name(self.said.claims.benchmark_repo)

    @property
    def key(self) -> ResultKey:
        """The unique key of the result."""
        return self.repo, self.said.content_digest

    def entry(self, token: str) -> str:
        """Return the entry with this token, in its form."""
        return shaped(self.said.entry(token), self.profile, self.primary)

    @property
    def definition(self) -> Benchmark | None:
        """The benchmark for check 8. If only the author names the primary metric, it is a definition that says so."""
        if self.primary is None or (self.benchmark and self.benchmark.primary):
            return self.benchmark
        metrics = {metric.metric_id: BenchmarkMetric(metric.metric_id) for metric in self.said.claims.metrics}
        metrics[self.primary] = BenchmarkMetric(self.primary, primary=True)
        return Benchmark("", (Task(self.said.claims.task_id),), metrics=tuple(metrics.values()))


class RepoChange(Struct, frozen=True):
    """The proposed files of one model repository, by path, with their texts on main at `commit`. `replaced` are the
    entries of main whose content these files lack."""

    repo: str
    commit: str
    items: tuple[ProposedResult, ...]
    before: dict[str, str]
    after: dict[str, bytes]
    entries: dict[str, list[str]]
    replaced: tuple[Entry, ...] = ()


class Destination(Protocol):
    """A source and target of files: some methods of `client.hub.Hub`, and `put`, which is tried up to `tries` times."""

    tries: int

    def main(self, repo: str) -> str:
        """Return main's commit."""

    def read(self, repo: str, path: str, *, revision: str) -> FileAt | None:
        """Return a file of a model repository."""

    def read_dataset_file(self, repo: str, revision: str, path: str) -> FileAt | None:
        """Return a file of a benchmark's repository."""

    def proposed(self, repo: str, content_digests: Sequence[str]) -> Mapping[str, PullRequest]:
        """Return by content digest the open pull requests with these results."""

    def put(self, change: RepoChange) -> PullRequest | None:
        """Propose a change; None if main already has it. Raises `hub.Moved` if the files changed on main: then the
        change must be made anew."""


# -- before signing ---------------------------------------------------------------------------------------------------


def items_of(
    results: Sequence[Result], place: Destination, benchmark: Benchmark | None = None, primary: str | None = None
) -> tuple[ProposedResult, ...]:
    """Choose the form of each result (`default_profile`) by its benchmark's `eval.yaml` at the measured commit, or by
    the given benchmark; `primary` is the metric that the author names. Raises InputError for two results for the same
    entry of a file, for tasks and metrics that the benchmark does not define, and if the benchmark names another
    primary metric. Raises as `place` does."""
    _demand_one_each(results)
    benchmarks: dict[tuple[str, str], Benchmark | str] = {}
    items = []
    for result in results:
        claims = result.built.claims
        key = claims.benchmark_repo, claims.benchmark_revision
        if key not in benchmarks:
            benchmarks[key] = benchmark or _benchmark_at(place, *key)
        said = Submission.of(claims, read_details(result.built.details))
        items.append(_item(result, said, benchmarks[key], primary))
    return tuple(items)


def _demand_one_each(results: Sequence[Result]) -> None:
    first: dict[tuple[object, ...], Result] = {}
    errors = []
    for result in results:
        claims = result.built.claims
        slices = frozenset(metric.slice or "" for metric in claims.metrics)
        scores = claims.model_repo, claims.benchmark_repo, claims.task_id, slices, claims.framework.name
        other = first.setdefault(scores, result)
        if other is not result:
            entry = f"{claims.task_id} of {claims.benchmark_repo} for {claims.model_repo}"
            rule = f"two runs are for the same entry, {entry}: the other is {other.run.name}; give one of them"
            errors.append(InputError(Code.FILE_RULE, rule, Place(result.run.name)))
    if errors:
        raise InputError.of(errors)


def _benchmark_at(place: Destination, repo: str, commit: str) -> Benchmark | str:
    """Return the benchmark, or the reason why it is unavailable."""
    try:
        file = place.read_dataset_file(repo, commit, BENCHMARK_FILE)
        if file is None:
            return f"{BENCHMARK_FILE} of {repo} at that commit is unavailable"
        return read_benchmark(file.text.encode(), file.name)
    except InputError as error:
        return f"{BENCHMARK_FILE} of {repo} at that commit cannot be read: {error.detail}"
    except Refused as error:  # it is private or deleted
        return f"{BENCHMARK_FILE} of {repo} at that commit is unavailable: {error.detail}"


def _item(result: Result, said: Submission, found: Benchmark | str, stated: str | None) -> ProposedResult:
    benchmark = found if isinstance(found, Benchmark) else None
    demand_defined(benchmark, said.claims, Place(result.run.name))
    primary = named_primary(benchmark, stated, Place(result.run.name))
    profile, why = default_profile(said.form, primary)
    if profile == "target" and primary is None:
        why += f": {f'{BENCHMARK_FILE} marks none' if isinstance(found, Benchmark) else found}"
    return ProposedResult(result, said, benchmark, primary, profile, why)


def rehearse(items: Sequence[ProposedResult], place: Destination) -> tuple[RepoChange, ...]:
    """Return each repository's change with stand-ins for tokens, to find errors before tokens are requested. Raises
    InputError for a file on main that is not a result file or cannot contain the entries, and as `place` does."""
    return tuple(change_of(repo, group, place, [STAND_IN] * len(group)) for repo, group in by_repo(items))


def by_repo(items: Sequence[ProposedResult]) -> Iterator[tuple[str, list[ProposedResult]]]:
    """Yield the results of each model repository."""
    for repo, group in groupby(sorted(items, key=lambda item: item.repo), key=lambda item: item.repo):
        yield repo, list(group)


def change_of(repo: str, items: Sequence[ProposedResult], place: Destination, tokens: Sequence[str]) -> RepoChange:
    """Return the change that puts the entries of one repository, each with its token, into the files on main."""
    commit = place.main(repo)
    before, after = dict[str, str](), dict[str, bytes]()
    entries: dict[str, list[str]] = {}
    for item, token in zip(items, tokens, strict=True):
        entries.setdefault(item.path, []).append(item.entry(token))
    replaced: list[Entry] = []
    for path, written in entries.items():
        file = place.read(repo, path, revision=commit)
        before[path] = file.text if file else ""
        after[path] = merge_entries(file, path, written)
        replaced += edit.replaced(before[path], after[path].decode(), path)
    return RepoChange(repo, commit, tuple(items), before, after, entries, tuple(replaced))


@lru_cache(maxsize=1)  # of many results, those for one file follow each other
def _entries_of(text: str, name: str) -> tuple[Entry, ...]:
    return read_entries(text.encode(), name) if text.strip() else ()


def earlier(item: ProposedResult, changes: Iterable[RepoChange], issuer: str, integration: str) -> Iterator[Entry]:
    """Yield the results on main that this one replaces if the issuer signs it for this integration."""
    (new,) = read_entries(item.entry(STAND_IN).encode(), item.path)
    for change in changes:
        text = change.before.get(item.path, "") if change.repo == item.repo else ""
        for old in _entries_of(text, item.path):
            own = edit.unverified_party(old) == (issuer, integration) and edit.subject(old) == edit.subject(new)
            if own and content_digest(old.form) != item.said.content_digest:
                yield old


class Issuer(Struct, frozen=True):
    """An issuer's URL and key set, fetched at `now` (Unix seconds)."""

    url: str
    keys: jose.KeySet
    now: int


def standing(changes: Sequence[RepoChange], issuer: Issuer) -> frozenset[ResultKey]:
    """Return the results that main already has in the same form, with a token that is valid now, or was when issued."""
    keys = set[ResultKey]()
    for change in changes:
        on_main = _by_content({path: text.encode() for path, text in change.before.items()})
        for item in change.items:
            if any(_is_same(entry, item, issuer) for entry in on_main.get((item.path, item.key[1]), [])):
                keys.add(item.key)
    return frozenset(keys)


def _by_content(files: Mapping[str, bytes]) -> dict[tuple[str, str], list[Entry]]:
    """Return the entries of these files by path and content digest."""
    entries: dict[tuple[str, str], list[Entry]] = {}
    for path, raw in files.items():
        for entry in read_entries(raw, path) if raw.strip() else ():
            entries.setdefault((path, content_digest(entry.form)), []).append(entry)
    return entries


def _is_same(entry: Entry, item: ProposedResult, issuer: Issuer) -> bool:
    (written,) = read_entries(item.entry(STAND_IN).encode(), item.path)
    if entry.token is None or (entry.token_members, entry.value) != (written.token_members, written.value):
        return False
    try:
        report = _judge(entry, item, issuer, received=False)
    except IssuerError:
        return False
    return report.verdict in {"verified", "good_when_issued"}


# -- after signing ----------------------------------------------------------------------------------------------------


def demand_verified(change: RepoChange, issuer: Issuer, proofs: Mapping[str, LogProof]) -> dict[ResultKey, Report]:
    """Verify each new entry in the files to propose, like a reader who receives them now. Return the reports. Raises
    VerificationError(`answer.unverified`) for an entry that is not verified: the change must not be proposed."""
    entries = _by_content(change.after)
    own = _by_content({path: "".join(new).encode() for path, new in change.entries.items()})
    reports = {}
    for item in change.items:
        (new,) = own[item.path, item.key[1]]  # another party's entry may have the same content
        (entry, *_) = (each for each in entries[item.path, item.key[1]] if each.token == new.token)
        report = _judge(entry, item, issuer, received=True, proofs=proofs)
        if report.verdict != "verified":
            failed = [check for check in report.checks if check.status in {Status.FAIL, Status.UNKNOWN}]
            evidence = "; ".join(f"check {check.number}, {check.name}: {check.evidence}" for check in failed)
            raise VerificationError(Code.ANSWER_UNVERIFIED, f"the entry in {item.repo}, {item.path}: {evidence}")
        reports[item.key] = report
    return reports


def _judge(
    entry: Entry, item: ProposedResult, issuer: Issuer, *, received: bool, proofs: Mapping[str, LogProof] | None = None
) -> Report:
    """Verify an entry by the issuer's keys, for the audience of its token. If not `received` now, the time of receipt
    is unknown. Raises IssuerError if the entry's token cannot be parsed."""
    token = entry.token or ""
    claims, run = read_unverified(jose.parse_compact(token).unverified_payload)
    trust = Trust(claims.aud, {issuer.url: TrustedIssuer(issuer.url, issuer.keys, keys_fetched_at=issuer.now)})
    benchmarks = {(run.benchmark_repo, run.benchmark_revision): item.definition} if item.definition else {}
    proof = (proofs or {}).get(token)
    at_hand: Proofs = {unverified_leaf(token): AtHand(proof.raw)} if proof else {}
    context = Context(issuer.now, witnessed=received, benchmarks=benchmarks, proofs=at_hand)
    return verify_entry(entry, item.repo, item.path, trust, issuer.now if received else None, context)


def with_proofs(change: RepoChange, tokens: Sequence[IssuedToken], proofs: Mapping[str, LogProof]) -> RepoChange:
    """Return the change with the available proofs beside the files of their tokens."""
    sidecars = {}
    for item, token in zip(change.items, tokens, strict=True):
        if token.log is not UNSET and (proof := proofs.get(token.verify_token)):
            path = PurePosixPath(item.path)
            sidecars[str(path.with_name(sidecar_name(path.name, proof.token)))] = proof.raw
    return replace(change, after={**change.after, **sidecars})


_LOCAL = "0" * 40  # a placeholder for the commit, which a folder lacks
_LOCK_S = 30.0  # jobs that write into the same folder take turns, each for milliseconds


class OnHub:
    """Model repositories of the Hub. Raises as `client.hub.Hub` does."""

    tries = 3

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.main = hub.main
        self.read = hub.read
        self.read_dataset_file = hub.read_dataset_file
        self.proposed = hub.proposed

    def put(self, change: RepoChange) -> PullRequest | None:
        """Open a pull request, or find the one that has these results."""
        text = pull_request_text(change.repo, change.entries, self._hub.endpoint, change.replaced)
        digests = [item.said.content_digest for item in change.items]
        return self._hub.open_pull_request(
            change.repo, change.after, text.title, text.description, change.commit, digests
        )


class InFolder:
    """Model repositories as folders: `FOLDER/OWNER/NAME`. No benchmark is known, because no server is asked."""

    tries = 100  # a try fails only if another job has written, so a hundred jobs may write at once

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def main(self, repo: str) -> str:  # noqa: ARG002
        """Return a stand-in for the commit."""
        return _LOCAL

    def read(self, repo: str, path: str, *, revision: str) -> FileAt | None:
        """Return a file. Raises InputError if it is not text."""
        place = self.folder / repo / path
        return FileAt(repo, path, revision, read_text(place)) if place.exists() else None

    def read_dataset_file(self, repo: str, revision: str, path: str) -> FileAt | None:  # noqa: ARG002
        """Return None."""
        return None

    def proposed(self, repo: str, content_digests: Sequence[str]) -> Mapping[str, PullRequest]:  # noqa: ARG002
        """Return {}: folders have no pull requests."""
        return {}

    def put(self, change: RepoChange) -> PullRequest | None:
        """Write the changed files, each in one step, the proofs first; other jobs wait. Raises OSError, and Moved if
        another job has written since the files were read."""
        changed = {path: raw for path, raw in change.after.items() if change.before.get(path, "").encode() != raw}
        if not changed:
            return None
        repo = self.folder / change.repo
        with contextlib.ExitStack() as locks:
            for folder in sorted({(repo / path).parent for path in changed}):
                files.make_folder(folder, mode=0o777, follow=False)
                locks.enter_context(files.folder_locked(folder, wait_s=_LOCK_S))
            self._demand_unmoved(change)
            for path, raw in sorted(changed.items(), key=lambda item: item[0] in change.before):
                files.replace(repo / path, raw, mode=None, durable=True, follow=False)
        return PullRequest(str(repo), 0, existed=False)

    def _demand_unmoved(self, change: RepoChange) -> None:
        now = {path: self.read(change.repo, path, revision=_LOCAL) for path in change.before}
        if moved := tuple(path for path, file in now.items() if (file.text if file else "") != change.before[path]):
            raise Moved(moved, f"{', '.join(moved)} in {self.folder / change.repo} has changed since it was read")
