"""What one worker counts: a few additions for each request, in its row of the board (board.py).

Belongs to one event loop. Every value of a label is one of ours: an endpoint, an outcome, a code, the id of a
registered integration or provider. Names are Prometheus' (base units, `_total`); times are kept in nanoseconds.
"""

from __future__ import annotations

from bisect import bisect_left

from issuer.audit_events import AbuseSignal
from issuer.codes import Code
from issuer.errors import IssuerError, Refused
from issuer.service.metrics.board import NOBODY, Row

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


class Counter:
    """How often something happened."""

    __slots__ = ("_numbers", "_place")

    def __init__(self, row: Row, *key: str) -> None:
        self._numbers, self._place = row.numbers, row.place(*key)

    def add(self, count: int = 1) -> None:
        """Count one, or more."""
        self._numbers[self._place] += count


class Counts:
    """The counts of one worker. What is not there yet begins at zero, so that a first time is seen as a rise."""

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
