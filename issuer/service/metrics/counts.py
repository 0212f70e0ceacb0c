"""What workers count, in memory that all processes of a service share: the board has a row for each worker.

A worker alone writes to its row, a few additions for each request. The row outlives it: the next worker in its place
goes on with the counts. The state in a row counts only while its worker lives (`told`). There is no file, no lock, and
one writer for each number: eight aligned bytes, which a reader sees before or after an addition, never in between. We
considered prometheus_client's files: a full disk ends a process that writes to them (SIGBUS), and each worker that dies
leaves a set behind.

Every value of a label is one of ours: an endpoint, an outcome, a code, the id of a registered integration or provider.
Names are Prometheus' (base units, `_total`); times are kept in nanoseconds.
"""

from __future__ import annotations

import mmap
import os
import struct
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator
from time import perf_counter_ns
from typing import Any, ParamSpec, TypeVar, cast

import msgspec
from msgspec import Struct

from issuer.audit.events import AbuseSignal
from issuer.codes import Code
from issuer.errors import IssuerError, Refused
from issuer.service.metrics.bounds import METRIC_KEY_BYTES, METRIC_NUMBERS, METRIC_SPARE_BYTES, METRIC_SPARE_NUMBERS
from issuer.service.metrics.bounds import METRIC_STATE_BYTES as STATE_BYTES

# -- the board ---------------------------------------------------------------------------------------------------------

# The name of a metric, and the value of each of its labels.
Key = tuple[str, ...]
# In place of the last label's value where a row has no room for one more; and that value where nobody is named. For
# these two there is always room.
OTHER, NOBODY = "(other)", "-"
# A row: bytes of keys that are there; a number that is odd while the state is written, the length of the state, and the
# pid that wrote it; then keys, numbers and state.
_USED, _VERSION, _LENGTH, _PID = range(4)
_KEYS_AT = 4 * 8
_NUMBERS_AT = _KEYS_AT + METRIC_KEY_BYTES
_STATE_AT = _NUMBERS_AT + METRIC_NUMBERS * 8
_ROW_END = _STATE_AT + STATE_BYTES
_SIZE = struct.Struct("<I")


class _Written(Struct, frozen=True, array_like=True):
    """A key as it stands in a row; its numbers are the next `width` ones."""

    key: Key
    width: int


_read = msgspec.msgpack.Decoder(_Written).decode
_write = msgspec.msgpack.Encoder().encode


class Row:
    """One worker's row, and the `memory` that it is. `numbers` are 64-bit integers; those of a key begin where `place`
    says."""

    def __init__(self, memory: memoryview) -> None:
        self.memory = memory
        self.head = memory[:_KEYS_AT].cast("q")
        self._keys = memory[_KEYS_AT:_NUMBERS_AT]
        self.numbers = memory[_NUMBERS_AT:_STATE_AT].cast("q")
        self._state = memory[_STATE_AT:]
        self._places: dict[Key, tuple[int, int]] = {}
        self._read_to = self._numbers_used = 0

    def place(self, *key: str, width: int = 1) -> int:
        """Return where the numbers of a key begin; where there is no room for it, those of `OTHER` in the place of its
        last label."""
        self._catch_up()
        if (found := self._places.get(key)) is not None:
            return found[0]
        if not self._has_room(key, width):
            return self.place(*key[:-1], OTHER, width=width)
        raw = _write(_Written(key, width))
        end = self._read_to + _SIZE.size + len(raw)
        self._keys[self._read_to : end] = _SIZE.pack(len(raw)) + raw
        self.head[_USED] = end  # last: a reader, or a worker after this one, sees all of a key or nothing
        self._catch_up()
        return self._places[key][0]

    def _has_room(self, key: Key, width: int) -> bool:
        is_kept_for = key[-1] in {OTHER, NOBODY} or width > 1
        spare_bytes, spare = (0, 0) if is_kept_for else (METRIC_SPARE_BYTES, METRIC_SPARE_NUMBERS)
        used = self._read_to + sum(map(len, key)) * 4 + 64
        return used <= len(self._keys) - spare_bytes and self._numbers_used + width <= len(self.numbers) - spare

    def tell(self, state: bytes) -> None:
        """Write how this worker is. What is longer than its place is left out."""
        if len(state) <= STATE_BYTES:
            self.head[_VERSION] += 1 + self.head[_VERSION] % 2
            self._state[: len(state)] = state
            self.head[_LENGTH], self.head[_PID] = len(state), os.getpid()
            self.head[_VERSION] += 1

    def counted(self) -> Iterator[tuple[Key, list[int]]]:
        """Yield each key with its numbers."""
        self._catch_up()
        for key, (place, width) in self._places.items():
            yield key, self.numbers[place : place + width].tolist()

    def told(self) -> bytes | None:
        """Return how its worker is; None where no worker lives that has said so, or while it says so."""
        version = self.head[_VERSION]
        state = bytes(self._state[: self.head[_LENGTH]])
        if version == 0 or version % 2 or version != self.head[_VERSION]:
            return None
        return state if _is_alive(self.head[_PID]) else None

    def _catch_up(self) -> None:
        used = self.head[_USED]
        while self._read_to < used:
            begin = self._read_to + _SIZE.size
            (size,) = _SIZE.unpack_from(self._keys, self._read_to)
            written = _read(self._keys[begin : begin + size])
            self._places[written.key] = (self._numbers_used, written.width)
            self._numbers_used += written.width
            self._read_to = begin + size


class Board:
    """The rows of so many workers. It is made before they are forked."""

    def __init__(self, workers: int = 1) -> None:
        memory = memoryview(mmap.mmap(-1, workers * _ROW_END))
        self.rows = [Row(memory[at : at + _ROW_END]) for at in range(0, len(memory), _ROW_END)]

    def counted(self) -> dict[Key, list[int]]:
        """Return the numbers of each key, of all workers together, of those that are gone, too."""
        sums: dict[Key, list[int]] = {}
        for row in self.rows:
            for key, numbers in row.counted():
                before = sums.get(key, [0] * len(numbers))
                sums[key] = [one + other for one, other in zip(before, numbers, strict=True)]
        return sums

    def told(self) -> list[bytes]:
        """Return what each living worker says of itself; one that is just writing is asked again."""
        return [state for row in self.rows for state in [row.told() or row.told() or row.told()] if state is not None]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != 0


# -- what one worker counts --------------------------------------------------------------------------------------------

P = ParamSpec("P")
T = TypeVar("T")
Port = TypeVar("Port")
# The upper ends of a histogram's buckets, in seconds, for all of them: one token takes 1 to 3 ms.
BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ENDS = tuple(round(end * 1e9) for end in BUCKETS_S)
# A number for each bucket, one for what is above all of them, and the sum.
WIDTH = len(_ENDS) + 2
TOKEN_ENDPOINTS = ("/tokens", "/tokens/batch", "/tokens/explain")
# Of requests that are for none of the endpoints that are counted by name: of these the problems alone.
ELSEWHERE = "other"
OK = "ok"
HTTP_REQUESTS, REQUESTS, FETCHES = "issuer_http_requests", "issuer_requests", "issuer_provider_fetches"
SIGNALS = "issuer_abuse_signals"
AUDIT_FAILURES, STARTS, CPU_NS = "issuer_audit_failures", "issuer_worker_starts", "issuer_worker_cpu_seconds"
DURATION, ADMISSION = "issuer_request_duration_seconds", "issuer_admission_duration_seconds"
SIGNING, APPEND = "issuer_signing_duration_seconds", "issuer_log_append_duration_seconds"
LAG = "issuer_event_loop_lag_seconds"


class Histogram:
    """How long something took."""

    __slots__ = ("_first", "_numbers", "_sum")

    def __init__(self, row: Row, *key: str) -> None:
        self._numbers, self._first = row.numbers, row.place(*key, width=WIDTH)
        self._sum = self._first + WIDTH - 1

    def observe(self, took_ns: int) -> None:
        """Count one that took so many nanoseconds."""
        numbers = self._numbers
        numbers[self._first + bisect_left(_ENDS, took_ns)] += 1
        numbers[self._sum] += took_ns

    def timed(self, port: Port, *names: str) -> Port:
        """Return the port with a clock before its methods of these names: how long each took, whatever it answered."""
        timed = _Timed(port)
        for name in names:
            setattr(timed, name, self._clocked(getattr(port, name)))
        return cast("Port", timed)

    def _clocked(self, work: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        async def clocked(*args: P.args, **kwargs: P.kwargs) -> T:
            began = perf_counter_ns()
            try:
                return await work(*args, **kwargs)
            finally:
                self.observe(perf_counter_ns() - began)

        return clocked


class _Timed:
    """A port before another one: all that `Histogram.timed` does not replace is the other's."""

    def __init__(self, port: object) -> None:
        self._port = port

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


class Counter:
    """How often something happened."""

    __slots__ = ("_numbers", "_place")

    def __init__(self, row: Row, *key: str) -> None:
        self._numbers, self._place = row.numbers, row.place(*key)

    def add(self, count: int = 1) -> None:
        """Count one, or more."""
        self._numbers[self._place] += count


class Counts:
    """The counts of one worker, in one event loop. All begin at zero, so that a first time is seen as a rise."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._answered: dict[tuple[str, str, str, str], Counter] = {}
        self._fetched: dict[tuple[str, str], Counter] = {}
        self.durations = {path: Histogram(row, DURATION, path) for path in (*TOKEN_ENDPOINTS, "/verify")}
        self.admission, self.signing = Histogram(row, ADMISSION), Histogram(row, SIGNING)
        self.append, self.lag = Histogram(row, APPEND), Histogram(row, LAG)
        self.http_requests, self.audit_failures = Counter(row, HTTP_REQUESTS), Counter(row, AUDIT_FAILURES)
        self.starts, self.cpu_ns = Counter(row, STARTS), Counter(row, CPU_NS)
        self.answered(ELSEWHERE, "undecided", Code.INTERNAL, count=0)

    def answered(
        self, endpoint: str, outcome: str, code: str = OK, integration: str = NOBODY, *, count: int = 1
    ) -> None:
        """Count an answer. `integration` is the id of a registered one, or NOBODY."""
        key = (endpoint, outcome, code, integration)
        if (counter := self._answered.get(key)) is None:
            counter = Counter(self._row, REQUESTS, *map(str, key))
            if len(self._answered) < len(self._row.numbers):
                self._answered[key] = counter
        counter.add(count)

    def problem(self, error: IssuerError, endpoint: str = ELSEWHERE) -> None:
        """Count an answer that is a problem, to whom nobody knows."""
        self.answered(endpoint, outcome_of(error), error.code)

    def fetched(self, provider: str, outcome: str) -> None:
        """Count an answer of a registered provider, or that there was none: `answered`, `failed`."""
        key = (outcome, provider)
        if (counter := self._fetched.get(key)) is None:
            counter = self._fetched[key] = Counter(self._row, FETCHES, *key)
        counter.add()

    def signalled(self, signal: AbuseSignal) -> None:
        """Count a signal of abuse, of a registered identity; the answer to the same request again has it, too."""
        if not signal.repeat:
            Counter(self._row, SIGNALS, signal.signal, signal.then, signal.integration).add()


def outcome_of(error: IssuerError) -> str:
    """Say, for logs and counts, whether an error is a no, or nobody decided."""
    return "no" if isinstance(error, Refused) else "undecided"
