"""Where a submission's files come from and go to: the Hub, by a pull request, or a folder of model repositories."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from issuer import files
from issuer.client.hub import FileAt, Hub, Moved, PullRequest, pull_request_text
from issuer.client.proposal import Change
from issuer.formats.strict_yaml import MAX_BYTES

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

    def put(self, change: Change) -> PullRequest | None:
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

    def _demand_unmoved(self, change: Change) -> None:
        there = {path: self.read(change.repo, path, revision=_LOCAL) for path in change.before}
        if moved := tuple(path for path, file in there.items() if (file.text if file else "") != change.before[path]):
            raise Moved(moved, f"{', '.join(moved)} in {self.folder / change.repo} has changed since it was read")
