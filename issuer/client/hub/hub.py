"""The Hub as its user sees it: what is on main, and what is proposed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from issuer.client.hub.asking import Asking
from issuer.client.hub.kinds import ENDPOINT, FileAt, Proposal, PullRequest
from issuer.client.hub.marker import marked
from issuer.client.hub.proposing import Proposing
from issuer.codes import Code
from issuer.errors import InputError, Place, Refused
from issuer.http_client import PATIENCE_S
from issuer.results.claims import REVISION, is_repo


class Hub:
    """One endpoint of the Hub, and the token that is sent to it and nowhere else; "" asks without one.

    A question is repeated within `patience_s` where nothing was decided. Raises SetupError: `hub.token` for a token
    that is the issuer's own or can be none, `url.invalid` for the endpoint. Every method raises Refused, SetupError and
    Undecided(`hub.unavailable`) with the Hub's codes.
    """

    def __init__(self, endpoint: str = ENDPOINT, token: str = "", *, patience_s: float = PATIENCE_S) -> None:
        self._asking = Asking(endpoint, token, patience_s)
        self._proposing = Proposing(self._asking)

    @classmethod
    def here(cls) -> Hub:
        """Return the Hub of $HF_ENDPOINT (else https://huggingface.co), with the token of $HF_TOKEN."""
        return cls(os.environ.get("HF_ENDPOINT", "").strip() or ENDPOINT, os.environ.get("HF_TOKEN", "").strip())

    @property
    def endpoint(self) -> str:
        """The Hub's URL, without a slash at its end."""
        return self._asking.endpoint

    # -- what is there ------------------------------------------------------------------------------------------------

    def main(self, repo: str) -> str:
        """Return the commit that a model repository's main is at."""
        return self._asking.commit_of(_checked(repo), "main")

    def read(self, repo: str, path: str, *, revision: str = "main") -> FileAt | None:
        """Return a text file of a model repository, and the commit it was read at; None where it has none.

        Raises InputError for one that is too large or not UTF-8.
        """
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
        same call again finds it.
        """
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
