"""A reader of audit files, in bounded memory: several rotated files in order, or a file while it grows.

Also the search for events, and their description for people.
"""

from __future__ import annotations

import gzip
import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cmp_to_key
from io import BufferedIOBase, BufferedReader
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from issuer.audit.events import AbuseOrdered, AbuseSignal, Decision, Event, RefusalsCounted
from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.formats.times import show_time
from issuer.io.files import open_plain, unreadable

# The longest line that is read whole; the longest event is a change of thousands of policies at once.
MAX_LINE_BYTES = 1024 * 1024
# How much of a longer line is skipped; without a line feed until then, the file is not an audit.
MAX_SKIPPED_BYTES = 64 * 1024 * 1024
_FIRST_LINES = 1000  # the lines of a file that are read to order it among others
POLL_S = 0.25
_GZIP = b"\x1f\x8b"


class _Place(Struct):
    time: int
    worker: str
    seq: int


class _Beginning(Struct):
    """The time of a file's first event (Unix seconds), and the first number of each worker in it."""

    time: int = 0
    numbers: dict[str, int] = {}


_decode_place = msgspec.json.Decoder(_Place).decode


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, gzipped or not, without their line feeds. A line that is too long is cut, so it is not
    a valid event. Raises InputError (`file.unreadable`)."""
    with open_plain(path, pipe=True) as file:
        try:
            unzipped = gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == _GZIP else file
            yield from _lines(unzipped, path)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise unreadable(path, "the gzip file is broken") from None


def read_in_order(paths: Iterable[Path]) -> Iterator[bytes]:
    """Yield the lines of several files, the oldest file first, whatever their names are. Raises InputError."""
    beginnings = {path: _beginning(path) for path in paths}
    in_order = cmp_to_key(_compare)
    for path in sorted(beginnings, key=lambda path: in_order(beginnings[path])):
        yield from read_lines(path)


def follow(path: Path, last: int, pause: Callable[[], None] = lambda: time.sleep(POLL_S)) -> Iterator[bytes]:
    """Yield the last few lines of a file, then without end every line that is added to it, or after a rotation to the
    new file of its name. Calls `pause` when it has to wait. Raises InputError if the file does not exist."""
    with open_plain(path) as file:
        yield from deque(_lines(file, path, whole=True), last)
        yield from _grow(file, path, pause)
    yield from _follow_rotated(path, pause)


def follow_end(path: Path, within: int, pause: Callable[[], None]) -> Iterator[bytes]:
    """Yield the lines within the last `within` bytes of a file, then go on as `follow` does."""
    with open_plain(path) as file:
        if os.fstat(file.fileno()).st_size > within:
            file.seek(-within, os.SEEK_END)
            file.readline(MAX_LINE_BYTES)  # the rest of a line
        yield from _grow(file, path, pause)
    yield from _follow_rotated(path, pause)


def _follow_rotated(path: Path, pause: Callable[[], None]) -> Iterator[bytes]:
    """Yield every line of the successive files of one name."""
    while True:
        try:
            with open_plain(path) as file:
                yield from _grow(file, path, pause)
        except InputError as error:  # the next file does not exist yet
            if error.code is not Code.FILE_UNREADABLE:
                raise
            pause()


def _grow(file: BufferedReader, path: Path, pause: Callable[[], None]) -> Iterator[bytes]:
    """Yield the lines of a file until another file has its name and this one does not grow any more."""
    rotated = False
    while True:
        read = False
        for line in _lines(file, path, whole=True):
            read = True
            yield line
        if rotated and not read:
            return
        rotated = _is_rotated(file, path)
        pause()


def _is_rotated(file: BufferedReader, path: Path) -> bool:
    try:
        return not os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except OSError:
        return True


def _lines(file: BufferedIOBase, path: Path, *, whole: bool = False) -> Iterator[bytes]:
    """Yield lines without their line feeds. With `whole`, a last line without a line feed is left for later. Raises
    InputError (`file.too_large`) for an endless line."""
    while line := file.readline(MAX_LINE_BYTES):
        if whole and not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
            file.seek(-len(line), os.SEEK_CUR)
            return
        yield line.removesuffix(b"\n")
        skipped = 0
        while len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES)
            skipped += len(line)
            if skipped > MAX_SKIPPED_BYTES:
                rule = f"a line is larger than {MAX_SKIPPED_BYTES} bytes: this is not an audit file"
                raise InputError(Code.FILE_TOO_LARGE, rule, Place(str(path)))


def _beginning(path: Path) -> _Beginning:
    beginning = _Beginning()
    for line in islice(read_lines(path), _FIRST_LINES):
        try:
            place = _decode_place(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        beginning.time = beginning.time or place.time
        beginning.numbers.setdefault(place.worker, place.seq)
    return beginning


def _compare(one: _Beginning, other: _Beginning) -> int:
    """Return a negative number if the first file is older. If a worker wrote to both, its numbers decide, because a
    file may be rotated several times a second."""
    for worker in one.numbers.keys() & other.numbers.keys():
        return one.numbers[worker] - other.numbers[worker]
    return one.time - other.time


# -- the search --------------------------------------------------------------------------------------------------------

_NOT_SHOWN = {"version", "time", "worker", "seq", "prev"}
_events: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def read_event(line: bytes) -> Event | None:
    """Read a line of an audit file; None for half a line, and for an event of an unknown kind."""
    try:
        return _events.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class Wanted(Struct, frozen=True):
    """A search: an event must match every member that is not "". `content` and `claims` are digests, with or without
    `sha256:`; `identity` may be `INTEGRATION/IDENTITY`."""

    jti: str = ""
    content: str = ""
    claims: str = ""
    request: str = ""
    integration: str = ""
    identity: str = ""
    code: str = ""
    verdict: str = ""
    signal: str = ""

    def search(self, line: bytes) -> Event | None:
        """Return the event of a line if it matches."""
        rare = (self.jti, _hex(self.content), _hex(self.claims), self.request)
        if any(text.encode() not in line for text in rare):  # far cheaper than decoding the line
            return None
        event = read_event(line)
        return event if event is not None and self._is_met(event) else None

    def _is_met(self, event: Event) -> bool:
        if not isinstance(event, Decision | RefusalsCounted | AbuseSignal | AbuseOrdered):
            return self == Wanted()
        if not self._is_met_by_identity(event):
            return False
        if isinstance(event, RefusalsCounted):
            matches = self.code in {"", *event.codes} and self.verdict in {"", "refused"}
            return matches and not (self.jti or self.content or self.claims or self.request or self.signal)
        if isinstance(event, AbuseSignal):
            matches = self.request in {"", event.request_id} and self.signal in {"", event.signal}
            return matches and not self._needs_decision()
        if isinstance(event, AbuseOrdered):
            return not (self._needs_decision() or self.signal or self.request)
        return all((
            not self.signal,
            not self.jti or self.jti in (event.jti or ()),
            not self.content or _named(self.content) in (event.content_digest or ()),
            not self.claims or _named(self.claims) in (event.claims_digest or ()),
            self.request in {"", event.request_id},
            self.code in {"", event.code},
            self.verdict in {"", event.verdict},
        ))  # fmt: skip

    def _needs_decision(self) -> bool:
        return bool(self.jti or self.content or self.claims or self.code or self.verdict)

    def _is_met_by_identity(self, event: Decision | RefusalsCounted | AbuseSignal | AbuseOrdered) -> bool:
        integration, _, name = self.identity.rpartition("/")
        return {self.integration, integration} <= {"", event.integration} and name in {"", event.identity}


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _named(digest: str) -> str:
    return f"sha256:{_hex(digest)}"


def describe(event: Event) -> str:
    """Describe an event in one line, for people. Strings from callers are not escaped."""
    return f"{show_time(event.time)}  {'  '.join(_parts(event))}"


def _parts(event: Event) -> Iterator[str]:
    if isinstance(event, RefusalsCounted):
        counts = ", ".join(f"{count} x {code}" for code, count in event.codes.items())
        yield f"refused   {_payer(event)}  {counts}: counted without events since {show_time(event.since)}"
    elif isinstance(event, Decision):
        yield f"{event.verdict:<8}  {_payer(event)}  {event.endpoint}"
        yield event.code or ", ".join((event.jti or ())[:3]) or "-"
        yield event.request_id
    elif isinstance(event, AbuseSignal):
        yield f"signal    {event.integration}/{event.identity}  {event.signal}"
        yield _evidence(event)
        yield event.then
        yield event.request_id
    else:  # events of policies and keys are few and short
        members = msgspec.to_builtins(event)
        yield str(members.pop("event")).replace("_", " ")
        yield from (f"{name} {members[name]}" for name in members if name not in _NOT_SHOWN and members[name])


def _evidence(event: AbuseSignal) -> str:
    """Return the count and its limit, or the caller that now has the name of an identity."""
    if isinstance(event.caller, msgspec.UnsetType):
        return f"{event.count} > {event.limit} ({event.rule})"
    claims = ", ".join(f"{name} {value}" for name, value in event.caller.claims.items())
    return f"{event.count} x by {event.caller.provider}: {claims}"


def _payer(event: Decision | RefusalsCounted) -> str:
    if not event.integration:
        provider = event.caller.provider if isinstance(event, Decision) else event.provider
        return f"(unregistered, {provider})" if provider else "(others)"
    bucket = "" if isinstance(event.bucket, msgspec.UnsetType) else f" (resembles it, bucket {event.bucket})"
    return f"{event.integration}/{event.identity}{bucket}"
