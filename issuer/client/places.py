"""Where a submission's files come from and go to: the Hub, by a pull request, or a folder of model repositories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from issuer import files
from issuer.client.hub import FileAt, Hub, PullRequest, pull_request_text
from issuer.client.proposal import Change
from issuer.formats.strict_yaml import MAX_BYTES

_LOCAL = "0" * 40  # the commit of a folder, which has none


class OnHub:
    """Model repositories of the Hub. Raises as `client.hub.Hub` does."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.main = hub.main
        self.read = hub.read
        self.read_dataset_file = hub.read_dataset_file
        self.proposed = hub.proposed

    def put(self, change: Change) -> PullRequest | None:
        """Open a pull request, or find the one that has these results."""
        text = pull_request_text(change.repo, change.entries, self._hub.endpoint)
        return self._hub.open_pull_request(
            change.repo, change.after, text.title, text.description, change.commit, change.content_digests
        )


class InFolder:
    """Model repositories as folders: `FOLDER/OWNER/NAME`. Asks nobody, so no benchmark is known."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def main(self, repo: str) -> str:  # noqa: ARG002
        """Return a stand-in: what is there is what there is."""
        return _LOCAL

    def read(self, repo: str, path: str, *, revision: str) -> FileAt | None:
        """Return a file. Raises InputError for one that is no text."""
        place = self.folder / repo / path
        if not place.exists():
            return None
        try:
            return FileAt(repo, path, revision, files.read(place, MAX_BYTES, follow=False).decode())
        except UnicodeDecodeError as error:
            raise files.unreadable(place, str(error)) from None

    def read_dataset_file(self, repo: str, revision: str, path: str) -> FileAt | None:  # noqa: ARG002
        """Return None."""
        return None

    def proposed(self, repo: str, content_digests: Sequence[str]) -> Mapping[str, PullRequest]:  # noqa: ARG002
        """Return nothing: no pull requests are here."""
        return {}

    def put(self, change: Change) -> PullRequest | None:
        """Write the files that change, each in one step; the proofs first. Raises OSError."""
        changed = {path: raw for path, raw in change.after.items() if change.before.get(path, "").encode() != raw}
        for path, raw in sorted(changed.items(), key=lambda item: item[0] in change.before):
            place = self.folder / change.repo / path
            files.make_folder(place.parent, mode=0o777, follow=False)
            files.replace(place, raw, mode=None, durable=True, follow=False)
        return PullRequest(str(self.folder / change.repo), 0, existed=False) if changed else None
