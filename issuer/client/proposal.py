"""What is proposed to a model repository: result files with signed entries, and the proofs beside them.

Decides the form of an entry, finds what is on main already, and lets nothing leave before it verifies by the issuer's
own keys. A `Destination` reads and proposes files: the Hub by pull requests (`OnHub`), or a folder (`InFolder`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Protocol

from msgspec import UNSET, Struct

from issuer.client.build import Result
from issuer.client.files import STAND_IN, LogProof, read_text, shaped
from issuer.client.hub import FileAt, Hub, Moved, PullRequest, merge_entries, pull_request_text
from issuer.codes import Code
from issuer.errors import FormatError, InputError, IssuerError, Place, Refused, VerificationError
from issuer.formats import jose
from issuer.io import files
from issuer.results.benchmark import Benchmark, demand_defined, read_benchmark
from issuer.results.details import read_details
from issuer.results.entry import (
    Entry,
    Profile,
    Submission,
    content_digest,
    primary_value,
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
ResultKey = tuple[str, str]  # of a result: its model repository and content digest


class ProposedResult(Struct, frozen=True):
    """One result on its way: what is to be signed, and the form in which it is written, with the reason for that."""

    result: Result
    said: Submission
    benchmark: Benchmark | None
    profile: Profile
    why: str

    @property
    def repo(self) -> str:
        """The model repository that it is for."""
        return self.said.claims.model_repo

    @property
    def path(self) -> str:
        """Its file there."""
        return result_file_name(self.said.claims.benchmark_repo)

    @property
    def key(self) -> ResultKey:
        """What tells it from every other result."""
        return self.repo, self.said.content_digest

    def entry(self, token: str) -> str:
        """Write the entry with a token, in its form."""
        primary = self.benchmark.primary if self.benchmark else None
        return shaped(self.said.entry(token), self.profile, primary)


class RepoChange(Struct, frozen=True):
    """The files of one model repository as they are to be, by path, with what each was; made of main at `commit`."""

    repo: str
    commit: str
    items: tuple[ProposedResult, ...]
    before: dict[str, str]
    after: dict[str, bytes]
    entries: dict[str, list[str]]

    @property
    def content_digests(self) -> list[str]:
        """The digests of the results in it."""
        return [item.said.content_digest for item in self.items]


class Destination(Protocol):
    """Where files come from and go to: `client.hub.Hub`'s methods, and `put`, which is tried `tries` times."""

    tries: int

    def main(self, repo: str) -> str:
        """Return the commit that main is at."""

    def read(self, repo: str, path: str, *, revision: str) -> FileAt | None:
        """Return a file of a model repository."""

    def read_dataset_file(self, repo: str, revision: str, path: str) -> FileAt | None:
        """Return a file of a benchmark's repository."""

    def proposed(self, repo: str, content_digests: Sequence[str]) -> Mapping[str, PullRequest]:
        """Say which results an open pull request has."""

    def put(self, change: RepoChange) -> PullRequest | None:
        """Propose a change; None where there is nothing to change. Raises `hub.Moved` where main has moved: it
        is to be made anew."""


# -- before anything is asked -----------------------------------------------------------------------------------------


def items_of(
    results: Sequence[Result], place: Destination, benchmark: Benchmark | None = None
) -> tuple[ProposedResult, ...]:
    """Find the form of each result, by its benchmark's `eval.yaml` at the commit that ran, or by the one that is given.
    Raises InputError for two results that would stand in one place of one file, and for what the benchmark does not
    define; and as `place` does."""
    _demand_one_each(results)
    found: dict[tuple[str, str], Benchmark | str] = {}
    items = []
    for result in results:
        claims = result.built.claims
        key = claims.benchmark_repo, claims.benchmark_revision
        if key not in found:
            found[key] = benchmark or _benchmark_at(place, *key)
        said = Submission.of(claims, read_details(result.built.details))
        items.append(_item(result, said, found[key]))
    return tuple(items)


def _demand_one_each(results: Sequence[Result]) -> None:
    first: dict[tuple[object, ...], Result] = {}
    errors = []
    for each in results:
        claims = each.built.claims
        slices = frozenset(metric.slice or "" for metric in claims.metrics)
        other = first.setdefault((claims.model_repo, claims.benchmark_repo, claims.task_id, slices), each)
        if other is not each:
            what = f"{claims.task_id} of {claims.benchmark_repo} for {claims.model_repo}"
            rule = f"two runs are for one entry, {what}: the other one is {other.run.name}; give one of them"
            errors.append(InputError(Code.FILE_RULE, rule, Place(each.run.name)))
    if errors:
        raise InputError.of(errors)


def _benchmark_at(place: Destination, repo: str, commit: str) -> Benchmark | str:
    """Return the benchmark, or why none is known."""
    try:
        file = place.read_dataset_file(repo, commit, BENCHMARK_FILE)
        if file is None:
            return f"no {BENCHMARK_FILE} of {repo} at that commit is at hand"
        return read_benchmark(file.text.encode(), file.name)
    except InputError as error:
        return f"{BENCHMARK_FILE} of {repo} at that commit cannot be read: {error.detail}"
    except Refused as error:  # it is private, or gone
        return f"no {BENCHMARK_FILE} of {repo} at that commit is at hand: {error.detail}"


def _item(result: Result, said: Submission, found: Benchmark | str) -> ProposedResult:
    if isinstance(found, str):
        return ProposedResult(result, said, None, "target", found)
    demand_defined(found, said.claims, Place(result.run.name))
    if found.primary is None:
        return ProposedResult(result, said, found, "target", f"{BENCHMARK_FILE} marks no primary metric")
    try:
        primary_value(said.form, found.primary)
    except FormatError:
        return ProposedResult(result, said, found, "target", f"it has no score of the primary metric, {found.primary}")
    return ProposedResult(result, said, found, "both", f"the primary metric is {found.primary}")


def rehearse(items: Sequence[ProposedResult], place: Destination) -> tuple[RepoChange, ...]:
    """Make each repository's files with stand-ins for tokens: what cannot be written is found before one is asked for.
    Raises InputError for a file on main that is no result file or cannot take the entries, and as `place` does."""
    return tuple(change_of(repo, group, place, [STAND_IN] * len(group)) for repo, group in by_repo(items))


def by_repo(items: Sequence[ProposedResult]) -> Iterator[tuple[str, list[ProposedResult]]]:
    """Group results by their model repository."""
    for repo, group in groupby(sorted(items, key=lambda item: item.repo), key=lambda item: item.repo):
        yield repo, list(group)


def change_of(repo: str, items: Sequence[ProposedResult], place: Destination, tokens: Sequence[str]) -> RepoChange:
    """Put the entries of one repository, each with its token, into its files as they are on main."""
    commit = place.main(repo)
    before, after = dict[str, str](), dict[str, bytes]()
    entries: dict[str, list[str]] = {}
    for item, token in zip(items, tokens, strict=True):
        entries.setdefault(item.path, []).append(item.entry(token))
    for path, written in entries.items():
        file = place.read(repo, path, revision=commit)
        before[path] = file.text if file else ""
        after[path] = merge_entries(file, path, written)
    return RepoChange(repo, commit, tuple(items), before, after, entries)


class Issuer(Struct, frozen=True):
    """An issuer's URL and key set, fetched at `now` (Unix seconds)."""

    url: str
    keys: jose.KeySet
    now: int


def standing(changes: Sequence[RepoChange], issuer: Issuer) -> frozenset[ResultKey]:
    """Return the results that are on main already, as they would be written and with a token that is good, or was good
    when it was issued."""
    found = set[ResultKey]()
    for change in changes:
        there = _by_content({path: text.encode() for path, text in change.before.items()})
        for item in change.items:
            if any(_stands(entry, item, issuer) for entry in there.get((item.path, item.key[1]), [])):
                found.add(item.key)
    return frozenset(found)


def _by_content(files: Mapping[str, bytes]) -> dict[tuple[str, str], list[Entry]]:
    """Read files, and return their entries by path and content digest."""
    found: dict[tuple[str, str], list[Entry]] = {}
    for path, raw in files.items():
        for entry in read_entries(raw, path) if raw.strip() else ():
            found.setdefault((path, content_digest(entry.form)), []).append(entry)
    return found


def _stands(entry: Entry, item: ProposedResult, issuer: Issuer) -> bool:
    (written,) = read_entries(item.entry(STAND_IN).encode(), item.path)
    if entry.token is None or (entry.token_members, entry.value) != (written.token_members, written.value):
        return False
    try:
        report = _judge(entry, item, issuer, received=False)
    except IssuerError:
        return False
    return report.verdict in {"verified", "good_when_issued"}


# -- with tokens ------------------------------------------------------------------------------------------------------


def demand_verified(change: RepoChange, issuer: Issuer, proofs: Mapping[str, LogProof]) -> dict[ResultKey, Report]:
    """Judge each new entry in the file that is about to be proposed, as its reader will who receives it now. Returns
    what was found of each. Raises VerificationError(`answer.unverified`) for one that is not verified: nothing of the
    file may leave."""
    there = _by_content(change.after)
    reports = {}
    for item in change.items:
        (entry, *_) = there[item.path, item.key[1]]
        report = _judge(entry, item, issuer, received=True, proofs=proofs)
        if report.verdict != "verified":
            failed = [check for check in report.checks if check.status in {Status.FAIL, Status.UNKNOWN}]
            said = "; ".join(f"check {check.number}, {check.name}: {check.evidence}" for check in failed)
            raise VerificationError(Code.ANSWER_UNVERIFIED, f"the entry in {item.repo}, {item.path}: {said}")
        reports[item.key] = report
    return reports


def _judge(
    entry: Entry, item: ProposedResult, issuer: Issuer, *, received: bool, proofs: Mapping[str, LogProof] | None = None
) -> Report:
    """Judge an entry by the issuer's keys, for whatever audience its token is for: as received now, or as a reader
    who cannot know when. Raises IssuerError for what is no token."""
    token = entry.token or ""
    claims, run = read_unverified(jose.parse_compact(token).unverified_payload)
    trust = Trust(claims.aud, {issuer.url: TrustedIssuer(issuer.url, issuer.keys, keys_fetched_at=issuer.now)})
    benchmarks = {(run.benchmark_repo, run.benchmark_revision): item.benchmark} if item.benchmark else {}
    proof = (proofs or {}).get(token)
    at_hand: Proofs = {unverified_leaf(token): AtHand(proof.raw)} if proof else {}
    context = Context(issuer.now, witnessed=received, benchmarks=benchmarks, proofs=at_hand)
    return verify_entry(entry, item.repo, item.path, trust, issuer.now if received else None, context)


def with_proofs(change: RepoChange, tokens: Sequence[IssuedToken], proofs: Mapping[str, LogProof]) -> RepoChange:
    """Put the proofs that there are beside the files that have their tokens."""
    sidecars = {}
    for item, token in zip(change.items, tokens, strict=True):
        if token.log is not UNSET and (proof := proofs.get(token.verify_token)):
            path = PurePosixPath(item.path)
            sidecars[str(path.with_name(sidecar_name(path.name, proof.token)))] = proof.raw
    return RepoChange(
        change.repo, change.commit, change.items, change.before, {**change.after, **sidecars}, change.entries
    )


_LOCAL = "0" * 40  # the commit of a folder, which has none
_LOCK_S = 30.0  # jobs that write into one folder take turns, each for milliseconds


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
        text = pull_request_text(change.repo, change.entries, self._hub.endpoint)
        return self._hub.open_pull_request(
            change.repo, change.after, text.title, text.description, change.commit, change.content_digests
        )


class InFolder:
    """Model repositories as folders: `FOLDER/OWNER/NAME`. Asks nobody, so no benchmark is known."""

    tries = 100  # each is lost to a job that has written: no more than so many write into one folder at once

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def main(self, repo: str) -> str:  # noqa: ARG002
        """Return a stand-in: what is there is what there is."""
        return _LOCAL

    def read(self, repo: str, path: str, *, revision: str) -> FileAt | None:
        """Return a file. Raises InputError for one that is no text."""
        place = self.folder / repo / path
        return FileAt(repo, path, revision, read_text(place)) if place.exists() else None

    def read_dataset_file(self, repo: str, revision: str, path: str) -> FileAt | None:  # noqa: ARG002
        """Return None."""
        return None

    def proposed(self, repo: str, content_digests: Sequence[str]) -> Mapping[str, PullRequest]:  # noqa: ARG002
        """Return nothing: no pull requests are here."""
        return {}

    def put(self, change: RepoChange) -> PullRequest | None:
        """Write the files that change, each in one step; the proofs first. Others wait. Raises OSError, and Moved where
        one of them has written since the files were read."""
        changed = {path: raw for path, raw in change.after.items() if change.before.get(path, "").encode() != raw}
        if not changed:
            return None
        own = self.folder / change.repo
        with contextlib.ExitStack() as locks:
            for folder in sorted({(own / path).parent for path in changed}):
                files.make_folder(folder, mode=0o777, follow=False)
                locks.enter_context(files.folder_locked(folder, wait_s=_LOCK_S))
            self._demand_unmoved(change)
            for path, raw in sorted(changed.items(), key=lambda item: item[0] in change.before):
                files.replace(own / path, raw, mode=None, durable=True, follow=False)
        return PullRequest(str(own), 0, existed=False)

    def _demand_unmoved(self, change: RepoChange) -> None:
        there = {path: self.read(change.repo, path, revision=_LOCAL) for path in change.before}
        if moved := tuple(path for path, file in there.items() if (file.text if file else "") != change.before[path]):
            raise Moved(moved, f"{', '.join(moved)} in {self.folder / change.repo} has changed since it was read")
