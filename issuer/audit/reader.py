"""Reads audit files: line by line in bounded memory, rotated ones in their order, and a growing one as it grows.

Says also which events a search wants, and what people see of them.
"""

from __future__ import annotations

import gzip
import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cmp_to_key
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from issuer.audit.events import AbuseOrdered, AbuseSignal, Decision, Event, RefusalsCounted
from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.formats.times import show_time
from issuer.io.files import open_plain, unreadable

# The longest line that is read whole; the longest event is a change of thousands of policies at once.
MAX_LINE_BYTES = 1024 * 1024
# How much of a line that is too long is passed over: what has no line feed for longer is no audit.
MAX_SKIPPED_BYTES = 64 * 1024 * 1024
# How many lines of a file are looked at for where it begins.
_FIRST_LINES = 1000
POLL_S = 0.25
_GZIP = b"\x1f\x8b"


class _Place(Struct):
    time: int
    worker: str
    seq: int


class _Beginning(Struct):
    """When a file begins, Unix seconds, and with which number of each worker."""

    time: int = 0
    numbers: dict[str, int] = {}


_decode_place = msgspec.json.Decoder(_Place).decode


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, gzipped or not, without their line feeds; of one that is too long its beginning, which
    is then no event. Raises InputError (`file.unreadable`)."""
    with open_plain(path, pipe=True) as file:
        try:
            yield from _lines(_unzipped(file), path)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise unreadable(path, "the gzip file is broken") from None


def read_in_order(paths: Iterable[Path]) -> Iterator[bytes]:
    """Yield the lines of several files, the oldest file first, whatever their names are. Raises InputError."""
    begun = {path: _beginning(path) for path in paths}
    in_order = cmp_to_key(_compare)
    for path in sorted(begun, key=lambda path: in_order(begun[path])):
        yield from read_lines(path)


def follow(path: Path, last: int, pause: Callable[[], None] = lambda: time.sleep(POLL_S)) -> Iterator[bytes]:
    """Yield the last few lines of a file, then every line that is added to it, and to the one that takes its name when
    it is rotated; for ever. Calls `pause` whenever there is nothing new. Raises InputError where there is no file."""
    with open_plain(path) as file:
        yield from deque(_lines(file, path, whole=True), last)
        yield from _grow(file, path, pause)
    yield from _follow_rotated(path, pause)


def follow_end(path: Path, within: int, pause: Callable[[], None]) -> Iterator[bytes]:
    """Yield the lines in the last bytes of a file, so many at most, then go on as `follow` does."""
    with open_plain(path) as file:
        if os.fstat(file.fileno()).st_size > within:
            file.seek(-within, os.SEEK_END)
            file.readline(MAX_LINE_BYTES)  # the rest of one
        yield from _grow(file, path, pause)
    yield from _follow_rotated(path, pause)


def _follow_rotated(path: Path, pause: Callable[[], None]) -> Iterator[bytes]:
    """Yield every line of the files that take a name, one after the other."""
    while True:
        try:
            with open_plain(path) as file:
                yield from _grow(file, path, pause)
        except InputError as error:  # between two files
            if error.code is not Code.FILE_UNREADABLE:
                raise
            pause()


def _grow(file: BufferedReader, path: Path, pause: Callable[[], None]) -> Iterator[bytes]:
    """Yield the lines of a file until another one has its name, and nothing more came to this one since."""
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


def _lines(file: BinaryIO, path: Path, *, whole: bool = False) -> Iterator[bytes]:
    """Yield lines without their line feeds; with `whole` a last one without it is left to be read later. Raises
    InputError (`file.too_large`) for a line without an end."""
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
                rule = f"a line is larger than {MAX_SKIPPED_BYTES} bytes: this is no audit"
                raise InputError(Code.FILE_TOO_LARGE, rule, Place(str(path)))


def _unzipped(file: BufferedReader) -> BinaryIO:
    return gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == _GZIP else file  # type: ignore[return-value]


def _beginning(path: Path) -> _Beginning:
    found = _Beginning()
    for line in islice(read_lines(path), _FIRST_LINES):
        try:
            place = _decode_place(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        found.time = found.time or place.time
        found.numbers.setdefault(place.worker, place.seq)
    return found


def _compare(one: _Beginning, other: _Beginning) -> int:
    """Return below 0 where one file is older than the other: by the numbers of a worker that wrote to both, for a file
    may be rotated several times a second."""
    for worker in one.numbers.keys() & other.numbers.keys():
        return one.numbers[worker] - other.numbers[worker]
    return one.time - other.time


# -- the search --------------------------------------------------------------------------------------------------------

# Of the event, or of its line in the file.
_NOT_SHOWN = {"version", "time", "worker", "seq", "prev"}
_events: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def read_event(line: bytes) -> Event | None:
    """Read a line of an audit file; None for half a line and for an event of a kind that is not known here."""
    try:
        return _events.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class Wanted(Struct, frozen=True):
    """Which events are asked for: those of which every member that is not "" is true.

    `content` and `claims` are digests, with or without `sha256:`; `identity` may be `INTEGRATION/IDENTITY`.
    """

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
        """Return the event of a line if it is asked for."""
        rare = (self.jti, _hex(self.content), _hex(self.claims), self.request)
        if any(text.encode() not in line for text in rare):  # far cheaper than reading it
            return None
        event = read_event(line)
        return event if event is not None and self._is_met(event) else None

    def _is_met(self, event: Event) -> bool:
        if isinstance(event, RefusalsCounted):
            said = (self.code in {"", *event.codes}, self.verdict in {"", "refused"}, not self.signal)
            return all(said) and self._is_whose(event) and not (self.jti or self.content or self.claims or self.request)
        if isinstance(event, AbuseSignal):
            is_it = self.request in {"", event.request_id} and self.signal in {"", event.signal}
            return is_it and self._is_whose(event) and self._names_no_decision()
        if isinstance(event, AbuseOrdered):
            return self._is_whose(event) and self._names_no_decision() and not (self.signal or self.request)
        if not isinstance(event, Decision):
            return self == Wanted()
        return self._is_whose(event) and all((
            not self.signal,
            not self.jti or self.jti in (event.jti or ()),
            not self.content or _named(self.content) in (event.content_digest or ()),
            not self.claims or _named(self.claims) in (event.claims_digest or ()),
            self.request in {"", event.request_id},
            self.code in {"", event.code},
            self.verdict in {"", event.verdict},
        ))  # fmt: skip

    def _names_no_decision(self) -> bool:
        return not (self.jti or self.content or self.claims or self.code or self.verdict)

    def _is_whose(self, event: Decision | RefusalsCounted | AbuseSignal | AbuseOrdered) -> bool:
        integration, _, name = self.identity.rpartition("/")
        return {self.integration, integration} <= {"", event.integration} and name in {"", event.identity}


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _named(digest: str) -> str:
    return f"sha256:{_hex(digest)}"


def describe(event: Event) -> str:
    """Say an event in one line, for people; what callers chose is in it as it is."""
    return f"{show_time(event.time)}  {'  '.join(_parts(event))}"


def _parts(event: Event) -> Iterator[str]:
    if isinstance(event, RefusalsCounted):
        counts = ", ".join(f"{count} x {code}" for code, count in event.codes.items())
        yield f"refused   {_whose(event)}  {counts}: not told one by one since {show_time(event.since)}"
    elif isinstance(event, Decision):
        yield f"{event.verdict:<8}  {_whose(event)}  {event.endpoint}"
        yield event.code or ", ".join((event.jti or ())[:3]) or "-"
        yield event.request_id
    elif isinstance(event, AbuseSignal):
        yield f"signal    {event.integration}/{event.identity}  {event.signal}"
        yield _evidence(event)
        yield event.then
        yield event.request_id
    else:  # of policies and keys: few, and short
        said = msgspec.to_builtins(event)
        yield str(said.pop("event")).replace("_", " ")
        yield from (f"{name} {said[name]}" for name in said if name not in _NOT_SHOWN and said[name])


def _evidence(event: AbuseSignal) -> str:
    """Say what was counted, or who has the name of an identity now."""
    if isinstance(event.caller, msgspec.UnsetType):
        return f"{event.count} > {event.limit} ({event.rule})"
    claims = ", ".join(f"{name} {value}" for name, value in event.caller.claims.items())
    return f"{event.count} x by {event.caller.provider}: {claims}"


def _whose(event: Decision | RefusalsCounted) -> str:
    if not event.integration:
        provider = event.caller.provider if isinstance(event, Decision) else event.provider
        return f"(unregistered, {provider})" if provider else "(others)"
    bucket = "" if isinstance(event.bucket, msgspec.UnsetType) else f" (resembles it, bucket {event.bucket})"
    return f"{event.integration}/{event.identity}{bucket}"
