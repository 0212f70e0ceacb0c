"""The last good value of something that others change on the disk, or in a database, while this process runs.

Signing keys, their history, revocations, policies and the trust file of `POST /verify` are followed with it. It starts
no thread and reads no clock: its user calls `turn` as often as a change must be noticed.
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
    """Return the code of a failure and what is wrong; `otherwise` is the code of an OSError."""
    if isinstance(error, IssuerError):
        return error.code, error.detail
    return otherwise, f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


class Complaint:
    """A failure that may last. `tell` gets each failure once, and None when all is well again."""

    def __init__(self, tell: Callable[[Failure | None], object]) -> None:
        self.error: Failure | None = None
        self._tell = tell

    def note(self, error: Failure | None, *, anew: bool = False) -> None:
        """Note a failure, or that there is none. `anew`: also tell the failure that was told last."""
        if str(error) == str(self.error) and (error is None or not anew):
            return
        self.error = error
        self._tell(error)


class Reading(Struct, Generic[T], frozen=True):
    """What one reading found: a value, and what is wrong with it. After an error the value is read again when it looks
    different; with `again`, at each look."""

    value: T
    error: Failure | None = None
    again: bool = False


class Followed(Generic[T]):
    """Follow one thing. The constructor reads it, and raises what is wrong. All calls block.

    `look` returns a fingerprint and raises nothing: equal fingerprints mean that nothing was written in between. `read`
    gets the last good value, at first None, and returns a Reading, or raises a Failure. To take a good part of
    something damaged, return it with the error, and let `narrow` decide.

    `narrow` gets the last good value and the one that was found, and returns the last good value without what is gone,
    or the same object where nothing is gone. Something that is gone counts at the first look, together with everything
    else that this look shows, and also beside an error. Without `narrow`, an error leaves the last good value as it is.

    `confirm` demands that two looks in a row, and a third one after the reading, see the same: a copy or a checkout
    that is under way does not count. `tell` gets each failure once, and None when the value is good again.

    value     the last good value. Its user may replace it, as with what another process has read: then say `forget`
    error     what is wrong since, None for nothing
    seen      the fingerprint that `value` and `error` follow from, None where the next turn reads again
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
        """Return what is wrong, None where `value` is what is there."""
        return self._complaint.error

    def forget(self) -> None:
        """Have the next turn read again, whatever it sees."""
        self.seen = None

    def turn(self, asked: bool = False) -> bool:
        """Look, and read what looks different; return whether `value` is another one.

        `asked`: an operator wants it read now, without a second look, and told again what is wrong. A turn during
        another one, whose reading hangs, changes nothing.
        """
        if not self._turning.acquire(blocking=False):
            return False
        try:
            before, self._before = self._before, self._look()
            if self._before == self.seen and not asked:
                return False
            self.seen = None  # until the reading is taken: the thing may look as it did and be half written
            return self._take(asked or not self._confirm or self._before == before, anew=asked)
        finally:
            self._turning.release()

    def _take(self, confirmed: bool, *, anew: bool) -> bool:
        if not confirmed and self._narrow is None:
            return False
        last = self.value
        narrowed, reading = self._found(last)
        if self._confirm:
            confirmed = confirmed and self._look() == self._before
        if not confirmed and narrowed is last:
            return False
        self.value = reading.value if reading.error is None else narrowed
        self._complaint.note(reading.error, anew=anew)
        self.seen = None if reading.again else self._before
        return self.value is not last

    def _found(self, last: T) -> tuple[T, Reading[T]]:
        """Read, and return the last good value without what is gone, too."""
        try:
            reading = self._read(last)
        except (IssuerError, OSError) as error:
            return last, Reading(last, error, again=True)
        return last if self._narrow is None else self._narrow(last, reading.value), reading


# -- fingerprints of files and folders --------------------------------------------------------------------------------

# We considered watchfiles: the kernel reports nothing that another host writes to NFS.

# Of one file or folder: inode, size, mtime and ctime in nanoseconds.
Seen = tuple[int, int, int, int]
# By path.
Look = Mapping[str, Seen]


def look(folder: Path, depth: int, without: str = "") -> Look:
    """Look at a folder, `depth` levels deep, but not at the file in it that is named `without`. Follows links, as a
    mounted ConfigMap has them; what cannot be read is noted as such."""
    return {path: look_at(path) for path in paths(folder, depth, without)}


def look_at(path: str) -> Seen:
    """Look at one file or folder, which may be absent."""
    try:
        found = os.stat(path)
    except OSError as error:
        return 0, error.errno or 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def paths(folder: Path, depth: int, without: str = "") -> frozenset[str]:
    """Return what `look` looks at: an eighth of its work."""
    return frozenset(_paths(str(folder), depth)) - {f"{folder}/{without}"}


def _paths(folder: str, depth: int) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        yield folder
        return
    for entry in entries:
        yield entry.path
        with suppress(OSError):  # a link that leads nowhere, or to itself
            if depth > 1 and entry.is_dir():
                yield from _paths(entry.path, depth - 1)
