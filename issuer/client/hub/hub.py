"""The Hub as its user sees it: read, and propose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from issuer.client.hub.kinds import FileAt, PullRequest


class Hub:
    """One endpoint of the Hub, and the token that is sent to it and nowhere else; "" asks without one.

    Raises SetupError(`hub.token`) for a token that is the issuer's own, before anything is sent.
    """

    def __init__(self, endpoint: str, token: str) -> None:
        self.endpoint = endpoint
        self._token = token

    @classmethod
    def here(cls) -> Hub:
        """Return the Hub of $HF_ENDPOINT (else https://huggingface.co), with the token of $HF_TOKEN."""
        raise NotImplementedError

    def main(self, repo: str) -> str:
        """Return the commit that a model repository's main is at."""
        raise NotImplementedError

    def read(self, repo: str, path: str, *, revision: str = "main") -> FileAt | None:
        """Return a text file of a model repository, and the commit it was read at; None where it has none."""
        raise NotImplementedError

    def read_dataset_file(self, repo: str, revision: str, path: str) -> FileAt | None:
        """Return a text file of a dataset repository at a full commit; None where it has none."""
        raise NotImplementedError

    def proposed(self, repo: str, content_digests: Sequence[str]) -> Mapping[str, PullRequest]:
        """Say of each of these content digests which open pull request of this account has it, if any."""
        raise NotImplementedError

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

        Raises Moved, Refused(`hub.proposed`) where open pull requests have some of the digests, and as `read` does.
        """
        raise NotImplementedError
