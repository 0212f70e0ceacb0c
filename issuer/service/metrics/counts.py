"""The counters of the workers, in memory that all processes of a service share: a board with a row for each worker.

Only its worker writes to a row, a few additions for each request. The next worker in its place continues the counts.
The state in a row is valid only while its worker lives. A number needs no lock: it has one writer, and is eight aligned
bytes, which a reader sees before or after an addition, never in between. We considered prometheus_client's files: a
full disk ends a process that writes to them (SIGBUS), and each dead worker leaves a set behind.

Every value of a label is from this project: an endpoint, an outcome, a code, the id of a registered integration or
provider. Names follow Prometheus (base units, `_total`). Times are stored in nanoseconds.
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
# The last label's value if the row has no space for the real value, and for a caller without an integration. A row
# always has space for these two.
OTHER, NOBODY = "(other)", "-"
# The head of a row: the used bytes of its keys, a version that is odd during a write of the state, the length of the
# state, and the pid of its writer. Then come keys, numbers and state.
_USED, _VERSION, _LENGTH, _PID = range(4)
_KEYS_AT = 4 * 8
_NUMBERS_AT = _KEYS_AT + METRIC_KEY_BYTES
_STATE_AT = _NUMBERS_AT + METRIC_NUMBERS * 8
_ROW_END = _STATE_AT + STATE_BYTES
_SIZE = struct.Struct("<I")


class _Written(Struct, frozen=True, array_like=True):
    """A key in a row. The next `width` numbers belong to it."""

    key: Key
    width: int


_read = msgspec.msgpack.Decoder(_Written).decode
_write = msgspec.msgpack.Encoder().encode


class Row:
    """One worker's row in its `memory`. `numbers` are 64-bit integers; `place` returns where those of a key begin."""

    def __init__(self, memory: memoryview) -> None:
        self.memory = memory
        self.head = memory[:_KEYS_AT].cast("q")
        self._keys = memory[_KEYS_AT:_NUMBERS_AT]
        self.numbers = memory[_NUMBERS_AT:_STATE_AT].cast("q")
        self._state = memory[_STATE_AT:]
        self._places: dict[Key, tuple[int, int]] = {}
        self._read_to = self._numbers_used = 0

    def place(self, *key: str, width: int = 1) -> int:
        """Return where the numbers of a key begin. Without room for it, its last label becomes `OTHER`."""
        self._catch_up()
        if (found := self._places.get(key)) is not None:
            return found[0]
        if not self._has_room(key, width):
            return self.place(*key[:-1], OTHER, width=width)
        raw = _write(_Written(key, width))
        end = self._read_to + _SIZE.size + len(raw)
        self._keys[self._read_to : end] = _SIZE.pack(len(raw)) + raw
        self.head[_USED] = end  # comes last: a reader, or a later worker, must never see half a key
        self._catch_up()
        return self._places[key][0]

    def _has_room(self, key: Key, width: int) -> bool:
        may_use_spare = key[-1] in {OTHER, NOBODY} or width > 1
        spare_bytes, spare = (0, 0) if may_use_spare else (METRIC_SPARE_BYTES, METRIC_SPARE_NUMBERS)
        used = self._read_to + sum(map(len, key)) * 4 + 64
        return used <= len(self._keys) - spare_bytes and self._numbers_used + width <= len(self.numbers) - spare

    def write_state(self, state: bytes) -> None:
        """Write the state of this worker. A state that is too long is not written."""
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

    def state(self) -> bytes | None:
        """Return the state of a living worker. None before its first write, or during a write."""
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
    """The rows of all workers. It is made before they are forked."""

    def __init__(self, workers: int = 1) -> None:
        memory = memoryview(mmap.mmap(-1, workers * _ROW_END))
        self.rows = [Row(memory[at : at + _ROW_END]) for at in range(0, len(memory), _ROW_END)]

    def counted(self) -> dict[Key, list[int]]:
        """Return the numbers of each key, summed over all workers, dead ones included."""
        sums: dict[Key, list[int]] = {}
        for row in self.rows:
            for key, numbers in row.counted():
                before = sums.get(key, [0] * len(numbers))
                sums[key] = [one + other for one, other in zip(before, numbers, strict=True)]
        return sums

    def states(self) -> list[bytes]:
        """Return the state of each living worker. Try up to three times if a worker is just writing."""
        return [state for row in self.rows if (state := row.state() or row.state() or row.state()) is not None]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return pid != 0


# -- the counters of one worker ----------------------------------------------------------------------------------------

P = ParamSpec("P")
T = TypeVar("T")
Port = TypeVar("Port")
# The upper ends of the buckets of all histograms, in seconds. One token takes 1 to 3 ms.
BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ENDS = tuple(round(end * 1e9) for end in BUCKETS_S)
# A number for each bucket, one for all larger times, and the sum.
WIDTH = len(_ENDS) + 2
TOKEN_ENDPOINTS = ("/tokens", "/tokens/batch", "/tokens/explain", "/oauth/token")
# The label of all endpoints that are not counted by name. Only their problems are counted.
ELSEWHERE = "other"
OK = "ok"
HTTP_REQUESTS, REQUESTS, FETCHES = "issuer_http_requests", "issuer_requests", "issuer_provider_fetches"
SIGNALS = "issuer_abuse_signals"
AUDIT_FAILURES, STARTS, CPU_NS = "issuer_audit_failures", "issuer_worker_starts", "issuer_worker_cpu_seconds"
DURATION, ADMISSION = "issuer_request_duration_seconds", "issuer_admission_duration_seconds"
SIGNING, APPEND = "issuer_signing_duration_seconds", "issuer_log_append_duration_seconds"
LAG = "issuer_event_loop_lag_seconds"


class Histogram:
    """A histogram of durations."""

    __slots__ = ("_first", "_numbers", "_sum")

    def __init__(self, row: Row, *key: str) -> None:
        self._numbers, self._first = row.numbers, row.place(*key, width=WIDTH)
        self._sum = self._first + WIDTH - 1

    def observe(self, took_ns: int) -> None:
        """Count one duration, in nanoseconds."""
        numbers = self._numbers
        numbers[self._first + bisect_left(_ENDS, took_ns)] += 1
        numbers[self._sum] += took_ns

    def timed(self, port: Port, *names: str) -> Port:
        """Return a port whose methods of these names are timed, whether they return or raise."""
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
    """A wrapper of a port. It passes on every method that `Histogram.timed` does not replace."""

    def __init__(self, port: object) -> None:
        self._port = port

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


class Counter:
    """A counter of events."""

    __slots__ = ("_numbers", "_place")

    def __init__(self, row: Row, *key: str) -> None:
        self._numbers, self._place = row.numbers, row.place(*key)

    def add(self, count: int = 1) -> None:
        """Count one event, or several."""
        self._numbers[self._place] += count


class Counters:
    """The counts of one worker, for one event loop. All begin at zero, so Prometheus sees a first event as a rise."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._counters: dict[Key, Counter] = {}
        self.durations = {path: Histogram(row, DURATION, path) for path in (*TOKEN_ENDPOINTS, "/verify")}
        self.admission, self.signing = Histogram(row, ADMISSION), Histogram(row, SIGNING)
        self.append, self.lag = Histogram(row, APPEND), Histogram(row, LAG)
        self.http_requests, self.audit_failures = Counter(row, HTTP_REQUESTS), Counter(row, AUDIT_FAILURES)
        self.starts, self.cpu_ns = Counter(row, STARTS), Counter(row, CPU_NS)
        self.answered(ELSEWHERE, "undecided", Code.INTERNAL, count=0)

    def answered(
        self, endpoint: str, outcome: str, code: str = OK, integration: str = NOBODY, *, count: int = 1
    ) -> None:
        """Count an answer. `integration` is a registered id, or NOBODY."""
        self._counter(REQUESTS, endpoint, outcome, code, integration).add(count)

    def problem(self, error: IssuerError, endpoint: str = ELSEWHERE) -> None:
        """Count a problem, without an integration."""
        self.answered(endpoint, outcome_of(error), error.code)

    def fetched(self, provider: str, outcome: str) -> None:
        """Count a question to a registered provider, with the outcome `answered` or `failed`."""
        self._counter(FETCHES, outcome, provider).add()

    def signalled(self, signal: AbuseSignal) -> None:
        """Count an abuse signal of a registered identity once. The answer to a repeat has the signal, too."""
        if not signal.repeat:
            self._counter(SIGNALS, signal.signal, signal.then, signal.integration).add()

    def _counter(self, *key: str) -> Counter:
        if (counter := self._counters.get(key)) is None:
            counter = Counter(self._row, *map(str, key))
            if len(self._counters) < len(self._row.numbers):
                self._counters[key] = counter
        return counter


def outcome_of(error: IssuerError) -> str:
    """Return the outcome for logs and counts: "no" for a refusal, else "undecided"."""
    return "no" if isinstance(error, Refused) else "undecided"
