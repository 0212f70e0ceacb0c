"""The board as Prometheus reads it: what all workers counted, and how those are that live.

Of what each worker says the worst is shown: one whose folder did not load is an incident, whatever the others say.
Which policies decide is a series for each digest: two at a time are workers that disagree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from issuer import __version__
from issuer.service.metrics import counts
from issuer.service.metrics.board import Key
from issuer.service.metrics.snapshot import BoardReader
from issuer.service.metrics.state import LogState, WorkerState

# What is counted: the labels, in the order in which the board has them, and what it is.
COUNTERS: dict[str, tuple[tuple[str, ...], str]] = {
    counts.HTTP_REQUESTS: ((), "Requests whose head was read, whatever was asked for."),
    counts.REQUESTS: (
        ("endpoint", "outcome", "code", "integration"),
        "Answers of the endpoints for tokens and of /verify, and problems of all others (endpoint=other).",
    ),
    counts.FETCHES: (("outcome", "provider"), "Questions to a registered provider: its keys, or what a token is."),
    counts.SIGNALS: (("signal", "then", "integration"), "Signals of abuse, and what followed from each."),
    counts.AUDIT_FAILURES: ((), "Events, or syncs, of the audit that did not get onto the disk."),
    counts.STARTS: ((), "Starts of workers."),
    counts.CPU_NS: ((), "CPU time of workers."),
}
HISTOGRAMS: dict[str, tuple[tuple[str, ...], str]] = {
    counts.DURATION: (("endpoint",), "From the head of a request to its answer."),
    counts.ADMISSION: ((), "A call of the admission script, its wait for the store included."),
    counts.SIGNING: ((), "The signatures of a request."),
    counts.APPEND: ((), "The entries of a request in the transparency log."),
    counts.LAG: ((), "How much later than it asked a task of the event loop goes on, four times a second."),
}
_NANO = 1e9


class BoardCollector(Collector):
    """What prometheus_client asks at each scrape."""

    def __init__(self, reader: BoardReader) -> None:
        self._reader = reader

    def collect(self) -> list[Metric]:
        """Return everything as it is now."""
        found = self._reader.read()
        return [
            *_counted(found.counted),
            *_of_process(found.expected, found.states),
            *_of_workers(found.states, found.now),
        ]


def _counted(numbers: dict[Key, list[int]]) -> Iterator[Metric]:
    by_name: defaultdict[str, list[tuple[Key, list[int]]]] = defaultdict(list)
    for key, found in numbers.items():
        by_name[key[0]].append((key[1:], found))
    for name, (labels, text) in COUNTERS.items():
        counter = CounterMetricFamily(name, text, labels=labels)
        scale = _NANO if name == counts.CPU_NS else 1
        for values, (number,) in by_name[name]:
            counter.add_metric(values, number / scale)
        yield counter
    for name, (labels, text) in HISTOGRAMS.items():
        histogram = HistogramMetricFamily(name, text, labels=labels)
        for values, found in by_name[name]:
            histogram.add_metric(values, list(_buckets(found[:-1])), found[-1] / _NANO)
        yield histogram


def _buckets(found: Sequence[int]) -> Iterator[tuple[str, float]]:
    """Yield how many there were up to each bound."""
    total = 0
    for bound, number in zip((*counts.BUCKETS_S, float("inf")), found, strict=True):
        total += number
        yield "+Inf" if bound == float("inf") else repr(bound), total


# -- how workers are ---------------------------------------------------------------------------------------------------


def _gauge(name: str, text: str, value: float | None) -> Iterator[Metric]:
    """Yield a gauge; where there is no value, nothing: an absent series is seen, a made-up zero is not."""
    if value is not None:
        yield GaugeMetricFamily(f"issuer_{name}", text, value=value)


def _series(name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]) -> Metric:
    gauge = GaugeMetricFamily(f"issuer_{name}", text, labels=labels)
    for given, value in sorted(dict(values).items()):
        gauge.add_metric(given, value)
    return gauge


def _of_process(workers: int, states: Sequence[WorkerState]) -> Iterator[Metric]:
    yield _series("build_info", "The version that runs.", ("version",), [((__version__,), 1)])
    yield from _gauge("workers", "Workers that live and have said so in the last ten seconds.", len(states))
    yield from _gauge("workers_expected", "Workers that there should be.", workers)
    yield from _gauge("resident_bytes", "Memory of all workers, shared pages counted once for each.",
                      sum(state.resident_bytes for state in states))  # fmt: skip


def _of_workers(states: Sequence[WorkerState], now: float) -> Iterator[Metric]:
    if states:
        yield from _policies(states)
        yield from _keys(states)
        yield from _revocations(states)
        yield from _stops(states)
        yield from _store(states)
        yield from _log([state.log for state in states if state.log is not None], now)
        yield from _gauge("audit_fails", "1 where a worker cannot write its audit, and issues nothing.",
                          max(state.audit_fails for state in states))  # fmt: skip
        yield from _gauge("data_free_bytes", "Room on the disk of the folder of data.",
                          min(state.data_free_bytes for state in states))  # fmt: skip
        copied = [state.backed_up_at for state in states if state.backed_up_at is not None]
        yield from _gauge("backup_timestamp_seconds", "When deploy/backup.sh last ended well.",
                          min(copied, default=None))  # fmt: skip


def _policies(states: Sequence[WorkerState]) -> Iterator[Metric]:
    all_of = [state.policies for state in states]
    yield _series("policies_info", "The digest of the policies that decide.", ("digest",),
                  [((each.digest,), 1) for each in all_of])  # fmt: skip
    yield from _gauge("policies_loaded_timestamp_seconds", "When the policies that decide were loaded.",
                      min(each.loaded_at for each in all_of))  # fmt: skip
    yield from _gauge("policies_stale", "1 where the folder has not loaded since.", max(each.stale for each in all_of))
    yield from _gauge("policies_narrowed", "Policies of which a folder that does not load has taken something away.",
                      max(each.narrowed for each in all_of))  # fmt: skip
    yield from _gauge("integrations", "Registered integrations.", max(each.integrations for each in all_of))


def _keys(states: Sequence[WorkerState]) -> Iterator[Metric]:
    keys = [((key.kid, key.state), key.since) for state in states for key in state.keys]
    yield _series("signing_key_since_timestamp_seconds", "Since when a published key is in its state.",
                  ("kid", "state"), keys)  # fmt: skip
    yield from _gauge("keys_stale", "1 where the folders of keys are not fit, or their history cannot be kept.",
                      max(state.keys_stale for state in states))  # fmt: skip


def _revocations(states: Sequence[WorkerState]) -> Iterator[Metric]:
    all_of = [state.revocations for state in states]
    lists = [each.signed_list for each in all_of if each.signed_list is not None]
    yield from _gauge("revoked_items", "Tokens and intervals that are revoked.", max(each.items for each in all_of))
    yield from _gauge("revocations_unlisted", "Revoked items that the signed list lacks.",
                      max(each.unlisted for each in all_of))  # fmt: skip
    yield from _gauge("revocations_stale", "1 where the files of what is revoked are not as they should be.",
                      max(each.stale for each in all_of))  # fmt: skip
    if lists:
        yield from _gauge("revocation_list_number", "The number of the signed list.", min(one.number for one in lists))
        yield from _gauge("revocation_list_next_update_timestamp_seconds", "Until when the signed list is good.",
                          min(one.next_update for one in lists))  # fmt: skip


def _stops(states: Sequence[WorkerState]) -> Iterator[Metric]:
    all_of = [state.stops for state in states]
    yield from _gauge("stops", "Emergency stops in force.", max(each.count for each in all_of))
    yield from _gauge("stops_stale", "1 where stops.yaml is not good.", max(each.stale for each in all_of))
    yield from _gauge("everything_stopped", "1 where a signal has stopped everything.",
                      max(each.everything for each in all_of))  # fmt: skip


def _store(states: Sequence[WorkerState]) -> Iterator[Metric]:
    all_of = [state.store for state in states]
    bearings = [each.bearing for each in all_of if each.bearing is not None]
    memories = [each.memory for each in all_of if each.memory is not None]
    yield from _gauge(
        "store_up", "1 where every worker's store takes writes.", not any(each.is_lost for each in all_of)
    )
    yield _series("store_role_info", "The role of the store: master, replica, unknown.", ("role",),
                  [((each.role,), 1) for each in bearings])  # fmt: skip
    epochs = [each.epoch for each in bearings if each.epoch is not None]
    yield from _gauge(
        "store_epoch_timestamp_seconds", "Since when the store remembers uses.", max(epochs, default=None)
    )
    yield from _gauge("store_used_bytes", "Memory that the store uses.",
                      max((each.used for each in memories), default=None))  # fmt: skip
    yield from _gauge("store_max_bytes", "The most that it may use: its maxmemory, or its machine's memory.",
                      min((each.most or each.machine for each in memories), default=None))  # fmt: skip


def _log(logs: Sequence[LogState], now: float) -> Iterator[Metric]:
    if not logs:
        return
    yield from _gauge("log_up", "1 where every worker could append an entry.", not any(each.is_lost for each in logs))
    found = [(each.status, now - each.looked_at) for each in logs if each.status is not None]
    if not found:
        return
    newest, _ = max(found, key=lambda one: one[0].size)
    cosigned = [(one.cosigned.size, one.cosigned.age_s + ago) for one, ago in found if one.cosigned is not None]
    yield from _gauge("log_size", "Entries of the transparency log.", newest.size)
    yield from _gauge("log_cosigned_size", "Entries of the newest tree that a quorum has cosigned.",
                      max((size for size, _ in cosigned), default=None))  # fmt: skip
    yield from _gauge("log_cosigned_age_seconds", "How long ago that was.",
                      min((age for _, age in cosigned), default=None))  # fmt: skip
    yield from _gauge(
        "log_witnesses_failing", "Witnesses that do not do their part.", float(len(newest.failing_witnesses))
    )
