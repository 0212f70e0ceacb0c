"""The Hub as its user sees it: what is on main, and what is proposed."""

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

# Open pull requests are looked at before and after one is made. Of two of one account with a result in common the one
# with the lower number stays: so jobs that run at once agree without a message, and the next job repairs what a killed
# one left. Only the account's own count, because anybody can write another's marker.


class _Open(Struct, frozen=True):
    """An open pull request of this account, and which results it is of, as its marker names them."""

    number: int
    results: frozenset[str]


class PullRequests:
    """Pull requests of the account whose token `asking` has."""

    def __init__(self, asking: HubRequests) -> None:
        self._asking = asking
        self._account = ""
        self._markers: dict[tuple[str, int], frozenset[str]] = {}

    def holding(self, repo: str, content_digests: Iterable[str]) -> dict[str, PullRequest]:
        """Say of each digest which open pull request has it, the lowest number first."""
        wanted = {short(digest): digest for digest in content_digests}
        found: dict[str, PullRequest] = {}
        for one in self._open(repo, frozenset(wanted)):
            for name in one.results & wanted.keys():
                found.setdefault(wanted[name], self._known(repo, one.number, existed=True))
        return found

    def propose(self, proposal: Proposal, read_at: str) -> PullRequest | None:
        """Do what `Hub.open_pull_request` promises."""
        until = time.monotonic() + self._asking.patience_s
        for attempt in itertools.count(1):
            base = self._asking.commit_of(proposal.repo, "main")
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
                number = self._asking.create(proposal, changed, base)
            except Lost as lost:
                # It may have been taken: the next turn finds it. One that may still be taken is not sent again.
                if lost.going_on or not wait(lost, attempt, until):
                    raise
            else:
                return None if number is None else self._made(proposal, number, changed, base)
        return None

    def _made(self, proposal: Proposal, number: int, changed: Iterable[str], base: str) -> PullRequest:
        """Return the one that stays, now that there is a new one."""
        kept = self._settle(proposal, number)
        if kept == number:
            self._demand_unmoved(proposal, changed, base, number)
        return self._known(proposal.repo, kept or number, existed=kept != number)

    def _changed(self, proposal: Proposal, read_at: str, now: str) -> dict[str, bytes]:
        """Return the files that main does not have as proposed. Raises Moved where it has others than were read."""
        repo, there = proposal.repo, {path: self._fetch(proposal.repo, now, path) for path in proposal.files}
        changed = {path: data for path, data in proposal.files.items() if there[path] != data}
        if now != read_at:
            _demand_same(repo, {path: self._fetch(repo, read_at, path) for path in changed}, there)
        return changed

    def _demand_unmoved(self, proposal: Proposal, changed: Iterable[str], base: str, number: int) -> None:
        """Close the pull request and raise Moved where main has other files now than those it was made of: with
        `create_pr` the Hub takes an older parent without a word."""
        repo, now = proposal.repo, self._asking.commit_of(proposal.repo, "main")
        if now == base:
            return
        was, there = ({path: self._fetch(repo, commit, path) for path in changed} for commit in (base, now))
        try:
            _demand_same(repo, was, there)
        except Moved:
            self._withdraw(repo, number)
            raise

    def _withdraw(self, repo: str, number: int) -> None:
        self._asking.close(repo, number, "The file has changed on main meanwhile: this is to be proposed anew.")

    def _fetch(self, repo: str, commit: str, path: str) -> bytes | None:
        return self._asking.fetch(repo, commit, path)

    def _settle(self, proposal: Proposal, own: int | None = None) -> int | None:
        """Leave one open pull request of these results, and return its number; None where there is none. `own` is the
        one that was just made: it counts although the Hub may not list it yet. Raises Refused(`hub.proposed`) where the
        one that stays lacks some of the results."""
        repo, wanted = proposal.repo, frozenset(map(short, proposal.content_digests))
        found = {one.number: one for one in self._open(repo, wanted)}
        if own is not None:
            found[own] = _Open(own, wanted)
        if not found:
            return None
        first = found.pop(min(found))
        for one in found.values():
            if one.number == own or one.results <= first.results:
                self._asking.close(repo, one.number, f"#{first.number} proposes the same results and stays open.")
        if not wanted <= first.results:
            detail = f"{self._url(repo, first.number)} has {len(wanted & first.results)} of these {len(wanted)} results"
            raise Refused(Code.HUB_PROPOSED, detail)
        return first.number

    def _open(self, repo: str, wanted: frozenset[str]) -> list[_Open]:
        """Return this account's open pull requests with any of the results, by number."""
        self._account = self._account or self._asking.account()
        found = []
        for number in sorted(self._asking.open_ones(repo, self._account)):
            if (repo, number) not in self._markers:
                self._markers[repo, number] = marker_in(self._asking.description(repo, number))
            if (results := self._markers[repo, number]) & wanted:
                found.append(_Open(number, results))
        return found

    def _known(self, repo: str, number: int, *, existed: bool) -> PullRequest:
        return PullRequest(self._url(repo, number), number, existed)

    def _url(self, repo: str, number: int) -> str:
        return f"{self._asking.endpoint}/{repo}/discussions/{number}"


def _demand_same(repo: str, was: dict[str, bytes | None], now: dict[str, bytes | None]) -> None:
    if moved := tuple(path for path, data in was.items() if now[path] != data):
        raise Moved(moved, f"{', '.join(moved)} of {repo} has changed on main")


class Hub:
    """One endpoint of the Hub, and the token that is sent to it and nowhere else; "" asks without one. A question is
    repeated within `patience_s` where nothing was decided. Raises SetupError: `hub.token` for a token that is the
    issuer's own or can be none, `url.invalid` for the endpoint. Every method raises Refused, SetupError and
    Undecided(`hub.unavailable`) with the Hub's codes."""

    def __init__(self, endpoint: str = ENDPOINT, token: str = "", *, patience_s: float = PATIENCE_S) -> None:
        self._asking = HubRequests(endpoint, token, patience_s)
        self._proposing = PullRequests(self._asking)

    @classmethod
    def here(cls) -> Hub:
        """Return the Hub of $HF_ENDPOINT (else https://huggingface.co), with the token of $HF_TOKEN."""
        return cls(os.environ.get("HF_ENDPOINT", "").strip() or ENDPOINT, os.environ.get("HF_TOKEN", "").strip())

    @property
    def endpoint(self) -> str:
        """The Hub's URL, without a slash at its end."""
        return self._asking.endpoint

    def main(self, repo: str) -> str:
        """Return the commit that a model repository's main is at."""
        return self._asking.commit_of(_checked(repo), "main")

    def read(self, repo: str, path: str, *, revision: str = "main") -> FileAt | None:
        """Return a text file of a model repository, and the commit it was read at; None where it has none. Raises
        InputError for one that is too large or not UTF-8."""
        found = revision if REVISION.fullmatch(revision) else self._asking.commit_of(_checked(repo), revision)
        return _text(repo, path, found, self._asking.fetch(_checked(repo), found, path))

    def read_dataset_file(self, repo: str, revision: str, path: str) -> FileAt | None:
        """Return a text file of a dataset repository at a full commit; None where it has none."""
        return _text(repo, path, revision, self._asking.fetch(_checked(repo), revision, path, "dataset"))

    def proposed(self, repo: str, content_digests: Sequence[str]) -> dict[str, PullRequest]:
        """Say of each of these content digests which open pull request of this account has it, if any."""
        self._asking.demand_token()
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
        """Propose files, by path, that were made of those at `parent_commit` of main; None where main has them already.
        An open pull request of this account that has all of these digests is returned as it is. Raises Moved, and
        Refused(`hub.proposed`) where open ones have some of them. After Undecided it may be there all the same: the
        same call again finds it."""
        self._asking.demand_token()
        described = marked(description, content_digests)
        proposal = Proposal(_checked(repo), dict(files), title, described, frozenset(content_digests))
        return self._proposing.propose(proposal, parent_commit)


def _checked(repo: str) -> str:
    if not is_repo(repo):
        raise Refused(Code.HUB_NOT_FOUND, f"{repo!r} is no name of a repository: it is OWNER/NAME")
    return repo


def _text(repo: str, path: str, commit: str, data: bytes | None) -> FileAt | None:
    try:
        return None if data is None else FileAt(repo, path, commit, data.decode())
    except UnicodeDecodeError:
        raise InputError(Code.FILE_ENCODING, "is not UTF-8", Place(f"{repo}/{path}")) from None
