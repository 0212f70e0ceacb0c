"""What the owner of a model reads in the pull request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct


class PullRequestText(Struct, frozen=True):
    """A title in one line, and a description in Markdown."""

    title: str
    description: str


def pull_request_text(repo: str, entries: Mapping[str, Sequence[str]]) -> PullRequestText:
    """Describe signed entries, in the form of `IssuedToken.entry`, by the path of their file."""
    raise NotImplementedError
