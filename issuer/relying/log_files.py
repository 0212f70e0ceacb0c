"""A log's public files, as its readers get them: by URL, or out of a folder (c2sp.org/tlog-tiles).

Whoever serves them is not trusted: each file has a size that it may have at most, and says nothing until it has been
checked against a signed root (log_tree.py). Paths come from this package alone, never from a file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from issuer import files
from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, Undecided, VerificationError
from issuer.http_client import HttpAnswer, HttpRequest, check_url, send_until_decided
from issuer.tlog.leaf import MAX_LEAF_BYTES
from issuer.tlog.merkle import HASH_BYTES
from issuer.tlog.tiles import WIDTH, entries_path, read_entries, tile_path

# A log that stays silent for longer, or refuses for longer, is told as unavailable.
PATIENCE_S = 60.0

_MAX_BUNDLE_BYTES = WIDTH * (2 + MAX_LEAF_BYTES)


class LogFiles(Protocol):
    """Where a log's files are; `name` is for people."""

    name: str

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return the file at a path under the log's prefix; None where there is none.

        Raises VerificationError(`log.unverified`) for one that is larger, and Undecided(`log.unavailable`).
        """


def open_log(source: str) -> LogFiles:
    """Return the files of a log: `https://HOST/PREFIX`, `file:` with a path, or a folder.

    Raises SetupError for a URL that may not be asked, and InputError where there is no such folder.
    """
    if source.startswith(("https:", "http:")):
        return HttpFiles(source)
    parts = urlsplit(source) if source.startswith("file:") else None
    return FolderFiles(Path(unquote(parts.path) if parts and parts.hostname in {None, "localhost"} else source))


def unverified(detail: str) -> VerificationError:
    """Make the error for a log that is not what its checkpoint says."""
    return VerificationError(Code.LOG_UNVERIFIED, detail)


class HttpFiles:
    """The files under a URL. One request at a time; refused or unanswered ones are repeated for `patience_s`."""

    def __init__(self, url: str, patience_s: float = PATIENCE_S) -> None:
        self.name = check_url(url)
        self._patience_s = patience_s

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return the file at a path; None where the answer is that there is none."""
        answer = self.ask(path, max_bytes)
        return answer.body if answer.status == 200 else None

    def ask(self, path: str, max_bytes: int) -> HttpAnswer:
        """Return the answer at a path: 200, 404 or 410. Raises Undecided(`log.unavailable`) for any other."""
        headers = {"Accept-Encoding": "identity", "User-Agent": "eval-token-issuer"}
        request = HttpRequest("GET", f"{self.name}/{path}", headers, max_bytes=max_bytes)
        try:
            answer = send_until_decided(request, patience_s=self._patience_s)
        except Undecided as error:  # no answer, an endless one, one that is too large
            raise Undecided(Code.LOG_UNAVAILABLE, f"{path}: {error.detail}") from None
        if answer.status not in {200, 404, 410} or answer.headers.get("content-encoding", "identity") != "identity":
            raise Undecided(Code.LOG_UNAVAILABLE, f"{path}: {self.name} answers with HTTP status {answer.status}")
        return answer


class FolderFiles:
    """The files below a folder, as `issuer log export` writes them. No file in it may be a link."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise InputError(Code.FILE_UNREADABLE, "no folder, and no URL", Place(str(folder)))
        self.name = str(folder)
        self._folder = folder

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return the file at a path; None where there is none."""
        file = self._folder / path
        return files.read(file, max_bytes, follow=False) if os.path.lexists(file) else None


# -- one file of each kind --------------------------------------------------------------------------------------------


def read_tile(log: LogFiles, level: int, index: int, width: int) -> bytes:
    """Return the `width` hashes of a tile, which are still to be checked."""
    raw = _read(log, tile_path(level, index, width), width * HASH_BYTES)
    if raw is None and width < WIDTH:  # what was partial may be gone, once it is full
        raw = _read(log, tile_path(level, index), WIDTH * HASH_BYTES)
        raw = raw if raw is None else raw[: width * HASH_BYTES]
    if raw is None or len(raw) != width * HASH_BYTES:
        raise unverified(f"{tile_path(level, index, width)} {'is not there' if raw is None else 'has another length'}")
    return raw


def read_bundle(log: LogFiles, index: int, width: int) -> tuple[bytes, ...]:
    """Return the `width` leaves of an entry bundle, which are still to be checked."""
    path = entries_path(index, width)
    raw = _read(log, path, _MAX_BUNDLE_BYTES)
    whole = raw is None and width < WIDTH
    if whole:
        raw = _read(log, entries_path(index), _MAX_BUNDLE_BYTES)
    if raw is None:
        raise unverified(f"{path} is not there")
    try:
        entries = read_entries(raw)
    except FormatError as error:
        raise unverified(f"{path} is {error.detail}") from None
    if len(entries) < width or (len(entries) > width and not whole):
        raise unverified(f"{path} has {len(entries)} entries")
    return entries[:width]


def _read(log: LogFiles, path: str, max_bytes: int) -> bytes | None:
    try:
        return log.read(path, max_bytes)
    except InputError as error:  # a file that is too large, a link, a folder in its place
        raise unverified(f"{path} of {log.name}: {error.detail}") from None
