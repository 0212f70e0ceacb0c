"""The tokens that an integration has itself: what a monitor compares the log's leaves with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from issuer import files
from issuer.formats import jose, strict_yaml
from issuer.results.entry import read_entries
from issuer.tlog.leaf import token_digest


class OwnTokens:
    """The digests of the tokens in a folder: of entries in `*.yaml` result files, and of `*.jwt`, one token each.

    Read anew when called: tokens arrive while the monitor runs. About 100 bytes of memory a token.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self) -> frozenset[bytes]:
        """Return the digests as they are in leaves. Raises InputError for a file that cannot be read: what is in it
        would be missed."""
        return frozenset(token_digest(token.rpartition(".")[0].encode()) for token in self._tokens())

    def _tokens(self) -> Iterator[str]:
        for file in files.find(self._folder):
            if file.suffix == ".jwt":
                yield files.read(file, jose.MAX_TOKEN_BYTES + 1, follow=False).decode("ascii", "replace").strip()
            elif file.suffix == ".yaml":
                entries = read_entries(files.read(file, strict_yaml.MAX_BYTES, follow=False), str(file))
                yield from (entry.token for entry in entries if entry.token)
