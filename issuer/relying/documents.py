"""Key sets, archives and revocation lists by URL, through a cache on disk: ETag, max-age, stale-if-error, offline use.

This file knows when a copy may be used (RFC 9111, RFC 5861); the caller decides which documents may be cached (`good`).
A bad document never replaces a good one; hishel and CacheControl cannot promise that. A damaged cache file is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError, InputError, SetupError, Undecided
from issuer.io import files
from issuer.io.http_client import RETRIED, HttpAnswer, HttpRequest, check_url, send

MAX_DOCUMENT_BYTES = 4 * 1024 * 1024  # a revocation list may have so many; other parsers have smaller limits
MAX_CACHE_BYTES = 64 * 1024 * 1024
# The max-age of an answer that states none. A day is the longest, as in the service for providers' keys.
DEFAULT_AGE_S = 300
LONGEST_AGE_S = 86_400
# The pause between two requests that a stranger's file causes; all processes with one cache share it.
PAUSE_S = 10
DEADLINE_S = 10.0

_MAX_ETAG = 1024
_OURS = re.compile(rf"[0-9a-f]{{64}}|{files.DRAFT.pattern}")


class Copy(Struct, frozen=True):
    """A document from a URL, fetched at `fetched_at` (Unix seconds). It had spent `age_s` in other caches by then."""

    url: str
    body: bytes
    etag: str
    fetched_at: int
    max_age_s: int
    stale_if_error_s: int
    may_be_kept: bool = True
    age_s: int = 0

    @property
    def confirmed_at(self) -> int:
        """When the origin last confirmed this document, in Unix seconds."""
        return self.fetched_at - self.age_s

    def is_fresh(self, now: int) -> bool:
        """Say whether it may be used without a request. A copy from the future, after the clock was set back, may
        not."""
        return 0 <= now - self.fetched_at < self.max_age_s

    def may_bridge(self, now: int) -> bool:
        """Say whether it may be used if a request fails (RFC 5861 section 4)."""
        return 0 <= now - self.fetched_at < self.max_age_s + self.stale_if_error_s


Good = Callable[[bytes], object]  # raises FormatError for a document that must not be kept


class Documents:
    """Documents by URL, at the moment `now`. `folder` is the cache, if any; if `offline`, documents come only from it.
    `unpublished` are the URLs whose servers answered that the document does not exist."""

    def __init__(self, folder: Path | None, now: int, *, offline: bool = False, deadline_s: float = DEADLINE_S) -> None:
        self._folder = None if folder is None else _Folder(folder)
        self.now = now
        self.unpublished: set[str] = set()
        self._renewed: set[str] = set()
        self.offline = offline
        self._deadline_s = deadline_s

    def get(self, url: str, good: Good) -> Copy | None:
        """Return the document, or None if it is unavailable. Raises SetupError for a URL that is not https."""
        check_url(url, query=True)
        kept = self._read_kept(url, good)
        if self.offline or (kept is not None and kept.is_fresh(self.now)):
            return kept
        try:
            found = self._ask(url, kept, good)
        except (Undecided, FormatError):  # no answer, or one that must not replace the copy
            return kept if kept is not None and kept.may_bridge(self.now) else None
        self._keep(found)
        return found

    def renew(self, url: str, good: Good, known: int) -> Copy | None:
        """Return a copy that the origin confirmed later than `known` (Unix seconds), or None. Sends at most one
        request, and none within PAUSE_S of the last confirmation: otherwise a stranger's files could make this party
        send any number. If several processes share a cache, one sends the request and the others use its copy."""
        if self.offline or known >= self.now:
            return None
        with contextlib.nullcontext() if self._folder is None else self._folder.locked():
            kept = self._read_kept(url, good)
            if kept is not None and kept.confirmed_at > known:
                return kept
            if url in self._renewed or self.now - known < PAUSE_S:
                return None
            self._renewed.add(url)
            try:
                found = self._ask(url, kept, good, fresh=True)
            except (Undecided, FormatError):
                return None
            self._keep(found)
            return found

    def _keep(self, found: Copy | None) -> None:
        if found is not None and found.may_be_kept and self._folder is not None:
            self._folder.write(found)

    def _read_kept(self, url: str, good: Good) -> Copy | None:
        kept = None if self._folder is None else self._folder.read(url)
        if kept is not None:
            try:
                good(kept.body)
            except FormatError:
                return None
        return kept

    def _ask(self, url: str, kept: Copy | None, good: Good, *, fresh: bool = False) -> Copy | None:
        """Fetch the URL; None if the server answers that the document does not exist. Raises Undecided and FormatError.
        With `fresh`, caches on the way must ask the origin (RFC 9111 5.2.1.4)."""
        headers = {"Accept": "application/json", "User-Agent": "eval-token-issuer"}
        if fresh:
            headers["Cache-Control"] = "no-cache"
        if kept is not None and kept.etag:
            headers["If-None-Match"] = kept.etag
        request = HttpRequest("GET", url, headers, max_bytes=MAX_DOCUMENT_BYTES)
        answer = send(request, deadline_s=self._deadline_s)
        if answer.status == 304 and kept is not None:
            return self._make_copy(url, kept.body, answer, kept.etag)
        if answer.status == 200:
            good(answer.body)
            return self._make_copy(url, answer.body, answer, "")
        if answer.status in {404, 410}:
            self.unpublished.add(url)
        if 400 <= answer.status < 500 and answer.status not in {408, *RETRIED}:
            return None
        # Redirects are refused as well: a captive portal sends them.
        raise Undecided(Code.DEPENDENCY_SERVER, f"HTTP status {answer.status}")

    def _make_copy(self, url: str, body: bytes, answer: HttpAnswer, etag: str) -> Copy:
        etag = answer.headers.get("etag", etag)
        directives = _parse_directives(answer.headers.get("cache-control", ""))
        max_age_s = 0 if {"no-cache", "no-store"} & directives.keys() else directives.get("max-age", DEFAULT_AGE_S)
        spent_s = _parse_seconds(answer.headers.get("age", ""))  # in a cache on the way (RFC 9111 4.2.3)
        left_s = max(0, min(max_age_s, LONGEST_AGE_S) - spent_s)
        bridge_s = min(directives.get("stale-if-error", 0), LONGEST_AGE_S)
        etag = etag if len(etag) <= _MAX_ETAG else ""
        return Copy(url, body, etag, self.now, left_s, bridge_s, "no-store" not in directives, spent_s)


def _parse_directives(cache_control: str) -> dict[str, int]:
    """Return the directives of a Cache-Control header (RFC 9111 5.2) with their seconds; of equal names, the first."""
    directives: dict[str, int] = {}
    for part in cache_control.split(","):
        name, _, value = part.strip().partition("=")
        directives.setdefault(name.strip().lower(), _parse_seconds(value.strip().strip('"')))
    return directives


def _parse_seconds(text: str) -> int:
    """Read delta-seconds (RFC 9111 1.2.2). Any other text is 0, so bad input cannot make a copy live longer."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else 0


def default_folder() -> Path | None:
    """Return the default folder: in $XDG_CACHE_HOME, or in ~/.cache; None for a user without a home."""
    return user_folder("XDG_CACHE_HOME", ".cache")


def user_folder(variable: str, otherwise: str) -> Path | None:
    """Return this program's folder of one kind, by the XDG specification; None for a user without a home."""
    stated = os.environ.get(variable, "")
    try:
        # The specification says to ignore relative paths.
        parent = Path(stated) if stated.startswith("/") else Path.home() / otherwise
    except RuntimeError:
        return None
    return parent / "eval-token-issuer"


def demand_own(folder: Path, option: str) -> None:
    """Raise SetupError if others can write to the folder: they could choose what this party trusts."""
    with contextlib.suppress(OSError):  # a missing folder has no files to trust
        found = folder.stat()
        if found.st_uid not in {os.geteuid(), 0}:
            detail = f"the folder {folder} belongs to another user. Give another {option}"
            raise SetupError(Code.CACHE_UNSAFE, detail)
        if found.st_mode & 0o022:
            detail = f"the folder {folder} can be written by others. Run `chmod 700 {folder}`, or give another {option}"
            raise SetupError(Code.CACHE_UNSAFE, detail)


class _Folder:
    """The cache folder, 0700: one file for each URL, 0600, replaced in one step. Failed writes are ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with contextlib.suppress(OSError):
            files.make_folder(path)
        demand_own(path, "--cache")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock, so one process fetches for all. In a read-only folder, each process fetches."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                stack.enter_context(files.locked(self._path / ".lock"))
            yield

    def read(self, url: str) -> Copy | None:
        """Return the copy of a URL, or None if it is missing or damaged."""
        try:
            raw = files.read(self._file(url), 2 * MAX_DOCUMENT_BYTES, private=True)
            digest, _, packed = raw.partition(b"\n")
            if digest != _digest_of(packed):
                return None
            copy = msgspec.msgpack.decode(packed, type=Copy)
        except (InputError, OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return copy if copy.url == url else None

    def write(self, copy: Copy) -> None:
        """Store a copy, and delete the oldest others beyond MAX_CACHE_BYTES."""
        packed = msgspec.msgpack.encode(copy)
        with contextlib.suppress(OSError):
            files.replace(self._file(copy.url), _digest_of(packed) + b"\n" + packed, mode=0o600, durable=False)
            self._prune()

    def _file(self, url: str) -> Path:
        return self._path / hashlib.sha256(url.encode()).hexdigest()

    def _prune(self) -> None:
        left = MAX_CACHE_BYTES
        ours = [path for path in self._path.iterdir() if _OURS.fullmatch(path.name)]  # the folder may hold other files
        for path in sorted(ours, key=lambda path: path.stat().st_mtime_ns, reverse=True):
            left -= path.stat().st_size
            if left < 0:
                path.unlink(missing_ok=True)


def _digest_of(raw: bytes) -> bytes:
    return hashlib.sha256(raw).hexdigest().encode()
