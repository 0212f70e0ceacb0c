"""The last good value of files or a database that others change while this process runs.

The service follows signing keys, their history, revocations, policies and the trust file of `POST /verify` with it. It
has no thread or clock: the caller of `turn` decides how fast it notices a change.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import IssuerError

T = TypeVar("T")
Failure = IssuerError | OSError


def describe(error: Failure, otherwise: Code = Code.FILE_UNREADABLE) -> tuple[Code, str]:
    """Return the code and the text of a failure. `otherwise` is the code for an OSError."""
    if isinstance(error, IssuerError):
        return error.code, error.detail
    return otherwise, f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


class Complaint:
    """A failure that may last. It calls `tell` once for each failure, and with None when all is well again."""

    def __init__(self, tell: Callable[[Failure | None], object]) -> None:
        self.error: Failure | None = None
        self._tell = tell

    def note(self, error: Failure | None, *, anew: bool = False) -> None:
        """Note a failure, or None if all is well. With `anew`, tell a failure again even if it is the same one."""
        if str(error) == str(self.error) and (error is None or not anew):
            return
        self.error = error
        self._tell(error)


class Reading(Struct, Generic[T], frozen=True):
    """The result of one reading: a value, and perhaps an error. After an error the next reading comes when the
    fingerprint changes; with `again`, it comes with the next turn."""

    value: T
    error: Failure | None = None
    again: bool = False


class Followed(Generic[T]):
    """A follower of one source. The constructor reads the source, and raises its error. All calls block.

    `look` returns a fingerprint, and never raises. Every write changes the fingerprint. `read`
    gets the last good value (at first None), and returns a Reading or raises a Failure. It may return the good part of
    a damaged source together with the error; then `narrow` decides.

    `narrow` gets the last good value and the new one. It returns the last good value without the items that are gone,
    or the same object if no item is gone. A lost item counts at once: without a second look, and even after an error.
    Without `narrow`, an error leaves the last good value unchanged.

    With `confirm`, a change counts only if two looks in a row and a third look after the reading return the same
    fingerprint. So a copy or checkout in progress does not count. `tell` gets each failure once, and None when the
    value is good again.

    value     the last good value. Its user may replace it, for example by a value that another process has read, and
              must then call `forget`
    error     the error since the last good value, or None
    seen      the fingerprint for `value` and `error`; None if the next turn must read again
    """

    def __init__(
        self,
        look: Callable[[], Hashable],
        read: Callable[[T | None], Reading[T]],
        tell: Callable[[Failure | None], object] = lambda _: None,
        *,
        confirm: bool = False,
        narrow: Callable[[T, T], T] | None = None,
    ) -> None:
        self._look = look
        self._read = read
        self._narrow = narrow
        self._confirm = confirm
        self._complaint = Complaint(tell)
        self._turning = threading.Lock()
        self.seen = self._before = look()
        first = read(None)
        if first.error is not None:
            raise first.error
        self.value = first.value

    @property
    def error(self) -> Failure | None:
        """The current error. None if `value` is the content of the source."""
        return self._complaint.error

    def forget(self) -> None:
        """Make the next turn read again, even if the fingerprint is the same."""
        self.seen = None

    def turn(self, asked: bool = False) -> bool:
        """Look at the source, and read it if the fingerprint has changed. Return whether `value` has changed.

        With `asked`, an operator wants a reading now, without a second look, and the error told again. If another turn
        is still running, because its reading hangs, this one returns at once.
        """
        if not self._turning.acquire(blocking=False):
            return False
        try:
            before, self._before = self._before, self._look()
            if self._before == self.seen and not asked:
                return False
            self.seen = None  # until the value is accepted: a half-written source may have the earlier fingerprint
            return self._take(asked or not self._confirm or self._before == before, anew=asked)
        finally:
            self._turning.release()

    def _take(self, confirmed: bool, *, anew: bool) -> bool:
        if not confirmed and self._narrow is None:
            return False
        last = self.value
        narrowed, reading = self._read_narrowed(last)
        if self._confirm:
            confirmed = confirmed and self._look() == self._before
        if not confirmed and narrowed is last:
            return False
        self.value = reading.value if reading.error is None else narrowed
        self._complaint.note(reading.error, anew=anew)
        self.seen = None if reading.again else self._before
        return self.value is not last

    def _read_narrowed(self, last: T) -> tuple[T, Reading[T]]:
        """Return the last good value without the items that are gone, and the new reading."""
        try:
            reading = self._read(last)
        except (IssuerError, OSError) as error:
            return last, Reading(last, error, again=True)
        return last if self._narrow is None else self._narrow(last, reading.value), reading


# -- fingerprints of files and folders --------------------------------------------------------------------------------

# We considered watchfiles, but the kernel does not report writes by another host to NFS.

# The fingerprint of one file or folder: inode, size, mtime and ctime in nanoseconds.
Seen = tuple[int, int, int, int]
# The fingerprints of a folder's content, by path.
Look = Mapping[str, Seen]


def look(folder: Path, depth: int, without: str = "") -> Look:
    """Return the fingerprints in a folder, `depth` levels deep, except the one of the file named `without` in it. Links
    are followed, because a mounted ConfigMap has links. The fingerprint of an unreadable file has its errno."""
    return {path: look_at(path) for path in paths(folder, depth, without)}


def look_at(path: str) -> Seen:
    """Return the fingerprint of one file or folder, which may be absent."""
    try:
        status = os.stat(path)
    except OSError as error:
        return 0, error.errno or 0, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def paths(folder: Path, depth: int, without: str = "") -> frozenset[str]:
    """Return the paths that `look` would return, in an eighth of its time."""
    return frozenset(_paths(str(folder), depth)) - {f"{folder}/{without}"}


def _paths(folder: str, depth: int) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        yield folder
        return
    for entry in entries:
        yield entry.path
        with suppress(OSError):  # a broken link, or one that leads to itself
            if depth > 1 and entry.is_dir():
                yield from _paths(entry.path, depth - 1)
