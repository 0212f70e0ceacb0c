"""What the Hub answers, as values. Pure."""

from __future__ import annotations

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Refused

ENDPOINT = "https://huggingface.co"


class FileAt(Struct, frozen=True):
    """A file of a repository at a commit, whose full hash is `commit`."""

    repo: str
    path: str
    commit: str
    text: str

    @property
    def name(self) -> str:
        """The file's name for people."""
        return f"{self.repo}/{self.path}@{self.commit[:7]}"


class PullRequest(Struct, frozen=True):
    """An open pull request; `existed`: it was there already, and nothing was made. `ref` is its branch."""

    url: str
    number: int
    existed: bool

    @property
    def ref(self) -> str:
        """The git reference of its branch."""
        return f"refs/pr/{self.number}"


class Proposal(Struct, frozen=True):
    """What a pull request is to hold: files by path, and the content digests of their new results."""

    repo: str
    files: dict[str, bytes]
    title: str
    description: str
    content_digests: frozenset[str]


class Moved(Refused):
    """A file has changed on main since it was read: read it again, merge again, and propose that.

    `paths` are the files; no pull request stays open.
    """

    def __init__(self, paths: tuple[str, ...], detail: str) -> None:
        super().__init__(Code.HUB_MOVED, detail)
        self.paths = paths
