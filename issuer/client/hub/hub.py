"""The Hub's interface for callers: files on main, and pull requests of results."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from issuer.client.hub.pull_request import ENDPOINT, FileAt, Moved, Proposal, PullRequest, marked, marker_in, short
from issuer.client.hub.requests import HubRequests, Lost, wait
from issuer.codes import Code
from issuer.errors import InputError, Place, Refused
from issuer.io.http_client import PATIENCE_S
from issuer.results.claims import REVISION, is_repo

# Open pull requests are listed before and after one is made. If two of the account share a result, the one with the
# lower number stays. So concurrent jobs agree without a message, and the next job cleans up after a killed one. Only
# the account's own pull requests count, because anyone can write the marker of another account.


class _Open(Struct, frozen=True):
    """An open pull request of this account, and the results in its marker."""

    number: int
    results: frozenset[str]


class PullRequests:
    """The pull requests of one account. `requests` has its token."""

    def __init__(self, requests: HubRequests) -> None:
        self._requests = requests
        self._account = ""
        self._markers: dict[tuple[str, int], frozenset[str]] = {}

    def holding(self, repo: str, content_digests: Iterable[str]) -> dict[str, PullRequest]:
        """Return by digest the open pull request with this result, and of several the one with the lowest number."""
        wanted = {short(digest): digest for digest in content_digests}
        by_digest: dict[str, PullRequest] = {}
        for request in self._open(repo, frozenset(wanted)):
            for name in request.results & wanted.keys():
                by_digest.setdefault(wanted[name], self._known(repo, request.number, existed=True))
        return by_digest

    def propose(self, proposal: Proposal, read_at: str) -> PullRequest | None:
        """Open a pull request as `Hub.open_pull_request` describes it; `read_at` is its `parent_commit`."""
        until = time.monotonic() + self._requests.patience_s
        for attempt in itertools.count(1):
            base = self._requests.commit_of(proposal.repo, "main")
            try:
                changed = self._changed(proposal, read_at, base)
            except Moved:
                if attempt > 1 and (sent := self._settle(proposal)) is not None:
                    self._withdraw(proposal.repo, sent)
                raise
            if not changed:
                break
            if (kept := self._settle(proposal)) is not None:
                return self._known(proposal.repo, kept, existed=attempt == 1)
            try:
                number = self._requests.create(proposal, changed, base)
            except Lost as lost:
                # The next turn finds it if the Hub created it. A request that may still arrive is not repeated.
                if lost.going_on or not wait(lost, attempt, until):
                    raise
            else:
                return None if number is None else self._made(proposal, number, changed, base)
        return None

    def _made(self, proposal: Proposal, number: int, changed: Iterable[str], base: str) -> PullRequest:
        """Return the pull request that stays open after a new one was made."""
        kept = self._settle(proposal, number)
        if kept == number:
            self._demand_unmoved(proposal, changed, base, number)
        return self._known(proposal.repo, kept or number, existed=kept != number)

    def _changed(self, proposal: Proposal, read_at: str, now: str) -> dict[str, bytes]:
        """Return the proposed files that differ from main. Raises Moved if main has changed them since `read_at`."""
        repo, on_main = proposal.repo, {path: self._requests.fetch(proposal.repo, now, path) for path in proposal.files}
        changed = {path: data for path, data in proposal.files.items() if on_main[path] != data}
        if now != read_at:
            _demand_same(repo, {path: self._requests.fetch(repo, read_at, path) for path in changed}, on_main)
        return changed

    def _demand_unmoved(self, proposal: Proposal, changed: Iterable[str], base: str, number: int) -> None:
        """Close the pull request and raise Moved if its files have changed on main since `base`: with `create_pr` the
        Hub accepts an older parent without an error."""
        repo, now = proposal.repo, self._requests.commit_of(proposal.repo, "main")
        if now == base:
            return
        before, after = ({path: self._requests.fetch(repo, commit, path) for path in changed} for commit in (base, now))
        try:
            _demand_same(repo, before, after)
        except Moved:
            self._withdraw(repo, number)
            raise

    def _withdraw(self, repo: str, number: int) -> None:
        comment = "The file has changed on main since this was proposed. A new pull request is needed."
        self._requests.close(repo, number, comment)

    def _settle(self, proposal: Proposal, own: int | None = None) -> int | None:
        """Keep one open pull request of these results, close the others, and return its number, or None. `own` is the
        new one, which the Hub may not list yet. Raises Refused(`hub.proposed`) if the remaining one lacks some of the
        results."""
        repo, wanted = proposal.repo, frozenset(map(short, proposal.content_digests))
        by_number = {request.number: request for request in self._open(repo, wanted)}
        if own is not None:
            by_number[own] = _Open(own, wanted)
        if not by_number:
            return None
        first = by_number.pop(min(by_number))
        for other in by_number.values():
            if other.number == own or other.results <= first.results:
                self._requests.close(repo, other.number, f"#{first.number} proposes the same results and stays open.")
        if not wanted <= first.results:
            detail = f"{self._url(repo, first.number)} has {len(wanted & first.results)} of these {len(wanted)} results"
            raise Refused(Code.HUB_PROPOSED, detail)
        return first.number

    def _open(self, repo: str, wanted: frozenset[str]) -> list[_Open]:
        """Return this account's open pull requests with any of the results, in the order of their numbers."""
        self._account = self._account or self._requests.account()
        requests = []
        for number in sorted(self._requests.open_ones(repo, self._account)):
            if (repo, number) not in self._markers:
                self._markers[repo, number] = marker_in(self._requests.description(repo, number))
            if (results := self._markers[repo, number]) & wanted:
                requests.append(_Open(number, results))
        return requests

    def _known(self, repo: str, number: int, *, existed: bool) -> PullRequest:
        return PullRequest(self._url(repo, number), number, existed)

    def _url(self, repo: str, number: int) -> str:
        return f"{self._requests.endpoint}/{repo}/discussions/{number}"


def _demand_same(repo: str, before: dict[str, bytes | None], now: dict[str, bytes | None]) -> None:
    if moved := tuple(path for path, data in before.items() if now[path] != data):
        raise Moved(moved, f"{', '.join(moved)} of {repo} has changed on main")


class Hub:
    """One endpoint of the Hub, and a token that is sent only there; "" sends none.

    Requests are repeated within `patience_s` until the Hub decides. Raises SetupError: `hub.token` for an issuer's
    token or an impossible one, `url.invalid` for the endpoint. Every method raises Refused, SetupError and
    Undecided(`hub.unavailable`) with the codes of the Hub.
    """

    def __init__(self, endpoint: str = ENDPOINT, token: str = "", *, patience_s: float = PATIENCE_S) -> None:
        self._requests = HubRequests(endpoint, token, patience_s)
        self._proposing = PullRequests(self._requests)

    @classmethod
    def here(cls) -> Hub:
        """Return the Hub at $HF_ENDPOINT, or else https://huggingface.co, with the token in $HF_TOKEN."""
        return cls(os.environ.get("HF_ENDPOINT", "").strip() or ENDPOINT, os.environ.get("HF_TOKEN", "").strip())

    @property
    def endpoint(self) -> str:
        """The Hub's URL, without a slash at the end."""
        return self._requests.endpoint

    def main(self, repo: str) -> str:
        """Return the commit of a model repository's main."""
        return self._requests.commit_of(_checked(repo), "main")

    def read(self, repo: str, path: str, *, revision: str = "main") -> FileAt | None:
        """Return a text file of a model repository at a commit; None if there is no such file. Raises InputError if it
        is too large or not UTF-8."""
        commit = revision if REVISION.fullmatch(revision) else self._requests.commit_of(_checked(repo), revision)
        return _text(repo, path, commit, self._requests.fetch(_checked(repo), commit, path))

    def read_dataset_file(self, repo: str, revision: str, path: str) -> FileAt | None:
        """Return a text file of a dataset repository at a full commit; None if there is no such file."""
        return _text(repo, path, revision, self._requests.fetch(_checked(repo), revision, path, "dataset"))

    def proposed(self, repo: str, content_digests: Sequence[str]) -> dict[str, PullRequest]:
        """Return by content digest the open pull requests of this account with these results."""
        self._requests.demand_token()
        return self._proposing.holding(_checked(repo), content_digests)

    def open_pull_request(
        self,
        repo: str,
        files: Mapping[str, bytes],
        title: str,
        description: str,
        parent_commit: str,
        content_digests: Sequence[str],
    ) -> PullRequest | None:
        """Propose files, by path, that were made from main's files at `parent_commit`.

        Return the pull request, or None if main already has the files. An open pull request of this account with all of
        these digests is returned unchanged. Raises Moved, and Refused(`hub.proposed`) if open ones have some of the
        digests. After Undecided the pull request may exist: the same call finds it.
        """
        self._requests.demand_token()
        described = marked(description, content_digests)
        proposal = Proposal(_checked(repo), dict(files), title, described, frozenset(content_digests))
        return self._proposing.propose(proposal, parent_commit)


def _checked(repo: str) -> str:
    if not is_repo(repo):
        raise Refused(Code.HUB_NOT_FOUND, f"{repo!r} is not the name of a repository, which has the form OWNER/NAME")
    return repo


def _text(repo: str, path: str, commit: str, data: bytes | None) -> FileAt | None:
    try:
        return None if data is None else FileAt(repo, path, commit, data.decode())
    except UnicodeDecodeError:
        raise InputError(Code.FILE_ENCODING, "is not UTF-8", Place(f"{repo}/{path}")) from None
