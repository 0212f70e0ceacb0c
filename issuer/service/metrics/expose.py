"""The board for Prometheus: the counts of all workers, and the state of the living ones.

A gauge has the worst value of all workers, because one worker with a broken folder is an incident, whatever the others
report. Each digest of policies in force has its own series, so two series at a time show workers that disagree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from issuer import __version__
from issuer.service.metrics import counts
from issuer.service.metrics.counts import Key
from issuer.service.metrics.state import BoardReader, WorkerState

# By name: the labels, in the order of the board, and the help text.
COUNTERS: dict[str, tuple[tuple[str, ...], str]] = {
    counts.HTTP_REQUESTS: ((), "Requests whose head was read, for any path."),
    counts.REQUESTS: (
        ("endpoint", "outcome", "code", "integration"),
        "Answers of the endpoints for tokens and of /verify, and problems of all others (endpoint=other).",
    ),
    counts.FETCHES: (("outcome", "provider"), "Requests to a registered provider, for its keys or about a token."),
    counts.SIGNALS: (("signal", "then", "integration"), "Signals of abuse, by signal and consequence."),
    counts.AUDIT_FAILURES: ((), "Failed writes and syncs of the audit."),
    counts.STARTS: ((), "Starts of workers."),
    counts.CPU_NS: ((), "CPU time of workers."),
}
HISTOGRAMS: dict[str, tuple[tuple[str, ...], str]] = {
    counts.DURATION: (("endpoint",), "Time from a request's head to its answer."),
    counts.ADMISSION: ((), "Time of an admission, with the wait for the store."),
    counts.SIGNING: ((), "Time to sign a request's tokens."),
    counts.APPEND: ((), "Time to append a request's leaves to the transparency log."),
    counts.LAG: ((), "Delay of a task of the event loop, measured four times a second."),
}
_NANO = 1e9


class BoardCollector(Collector):
    """The collector that prometheus_client calls at each scrape."""

    def __init__(self, reader: BoardReader) -> None:
        self._reader = reader

    def collect(self) -> list[Metric]:
        """Return the current metrics."""
        board = self._reader.read()
        return [
            *_counted(board.counted),
            *_of_process(board.expected, board.states),
            *_of_workers(board.states, board.now),
        ]


def _counted(counted: dict[Key, list[int]]) -> Iterator[Metric]:
    by_name: defaultdict[str, list[tuple[Key, list[int]]]] = defaultdict(list)
    for key, numbers in counted.items():
        by_name[key[0]].append((key[1:], numbers))
    for name, (labels, text) in COUNTERS.items():
        counter = CounterMetricFamily(name, text, labels=labels)
        scale = _NANO if name == counts.CPU_NS else 1
        for values, (number,) in by_name[name]:
            counter.add_metric(values, number / scale)
        yield counter
    for name, (labels, text) in HISTOGRAMS.items():
        histogram = HistogramMetricFamily(name, text, labels=labels)
        for values, numbers in by_name[name]:
            histogram.add_metric(values, list(_buckets(numbers[:-1])), numbers[-1] / _NANO)
        yield histogram


def _buckets(numbers: Sequence[int]) -> Iterator[tuple[str, float]]:
    """Yield each bound with the sum of the numbers up to it."""
    total = 0
    for bound, number in zip((*counts.BUCKETS_S, float("inf")), numbers, strict=True):
        total += number
        yield "+Inf" if bound == float("inf") else repr(bound), total


# A gauge of the workers: its name, its help text, the choice among their values, and one worker's value, if any.
Gauge = tuple[str, str, Callable[[Iterable[float]], float], Callable[[WorkerState], float | None]]
GAUGES: tuple[Gauge, ...] = (
    ("policies_loaded_timestamp_seconds", "When the policies in force were loaded.", min,
     lambda one: one.policies.loaded_at),
    ("policies_stale", "1 if the policy folder fails to load, so earlier policies stay in force.", max,
     lambda one: one.policies.stale),
    ("policies_narrowed", "Integrations that a policy folder restricts although it fails to load.", max,
     lambda one: one.policies.narrowed),
    ("integrations", "Registered integrations.", max, lambda one: one.policies.integrations),
    ("keys_stale", "1 if the key folders have an error, or the key history cannot be written.", max,
     lambda one: one.keys_stale),
    ("revoked_items", "Revoked tokens and intervals.", max, lambda one: one.revocations.items),
    ("revocations_unlisted", "Revoked items that the signed list lacks.", max, lambda one: one.revocations.unlisted),
    ("revocations_stale", "1 if the files of revocations have an error.", max, lambda one: one.revocations.stale),
    ("revocation_list_number", "The number of the signed list.", min,
     lambda one: one.revocations.signed_list.number if one.revocations.signed_list else None),
    ("revocation_list_next_update_timestamp_seconds", "When the signed list expires.", min,
     lambda one: one.revocations.signed_list.next_update if one.revocations.signed_list else None),
    ("stops", "Emergency stops in force.", max, lambda one: one.stops.count),
    ("stops_stale", "1 if stops.yaml has an error.", max, lambda one: one.stops.stale),
    ("everything_stopped", "1 if a signal has stopped everything.", max, lambda one: one.stops.everything),
    ("store_up", "1 if the store accepts every worker's writes.", min, lambda one: not one.store.is_lost),
    ("store_epoch_timestamp_seconds", "When the store's records of uses begin.", max,
     lambda one: one.store.bearing.epoch if one.store.bearing else None),
    ("store_used_bytes", "Memory that the store uses.", max,
     lambda one: one.store.memory.used if one.store.memory else None),
    ("store_max_bytes", "Memory that the store may use: its maxmemory, or its machine's.", min,
     lambda one: one.store.memory.most or one.store.memory.machine if one.store.memory else None),
    ("log_up", "1 if every worker can append a leaf.", min, lambda one: not one.log.is_lost if one.log else None),
    ("audit_fails", "1 if a worker cannot write its audit, so it issues no token.", max, lambda one: one.audit_fails),
    ("data_free_bytes", "Free bytes on the disk of `data`.", min, lambda one: one.data_free_bytes),
    ("backup_timestamp_seconds", "When deploy/backup.sh last succeeded.", min, lambda one: one.backed_up_at),
)  # fmt: skip


def _gauge(name: str, text: str, value: float | None) -> Iterator[Metric]:
    """Yield a gauge, but no series without a value: an operator notices an absent series, but not an invented zero."""
    if value is not None:
        yield GaugeMetricFamily(f"issuer_{name}", text, value=value)


def _series(name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]) -> Metric:
    gauge = GaugeMetricFamily(f"issuer_{name}", text, labels=labels)
    for label_values, value in sorted(dict(values).items()):
        gauge.add_metric(label_values, value)
    return gauge


def _of_process(workers: int, states: Sequence[WorkerState]) -> Iterator[Metric]:
    yield _series("build_info", "The running version.", ("version",), [((__version__,), 1)])
    yield from _gauge("workers", "Workers that live and have reported in the last ten seconds.", len(states))
    yield from _gauge("workers_expected", "Workers that should exist.", workers)
    yield from _gauge("resident_bytes", "Memory of all workers; shared pages count for each.",
                      sum(state.resident_bytes for state in states))  # fmt: skip


def _of_workers(states: Sequence[WorkerState], now: float) -> Iterator[Metric]:
    if not states:
        return
    yield _series("policies_info", "The digest of the policies in force.", ("digest",),
                  [((state.policies.digest,), 1) for state in states])  # fmt: skip
    keys = [((key.kid, key.state), key.since) for state in states for key in state.keys]
    yield _series("signing_key_since_timestamp_seconds", "When a published key entered its state.",
                  ("kid", "state"), keys)  # fmt: skip
    yield _series("store_role_info", "The role of the store: master, replica, unknown.", ("role",),
                  [((state.store.bearing.role,), 1) for state in states if state.store.bearing])  # fmt: skip
    for name, text, worst, value_of in GAUGES:
        values = [value for state in states if (value := value_of(state)) is not None]
        yield from _gauge(name, text, worst(values) if values else None)
    yield from _log(states, now)


def _log(states: Sequence[WorkerState], now: float) -> Iterator[Metric]:
    statuses = [(one.log.status, now - one.log.looked_at) for one in states if one.log and one.log.status]
    if not statuses:
        return
    newest, _ = max(statuses, key=lambda one: one[0].size)
    cosigned = [(one.cosigned.size, one.cosigned.age_s + ago) for one, ago in statuses if one.cosigned is not None]
    yield from _gauge("log_size", "Leaves of the transparency log.", newest.size)
    yield from _gauge("log_cosigned_size", "Leaves of the newest checkpoint with a quorum's cosignatures.",
                      max((size for size, _ in cosigned), default=None))  # fmt: skip
    yield from _gauge("log_cosigned_age_seconds", "The age of the newest checkpoint with a quorum's cosignatures.",
                      min((age for _, age in cosigned), default=None))  # fmt: skip
    yield from _gauge("log_witnesses_failing", "Failing witnesses.", len(newest.failing_witnesses))
