"""The Hub's badges for an entry (contract section 6). Pure.

A badge is a function of the report, the entry and what only the Hub knows (`Hub`). What the Hub does not say is
`unknown`, never `no`; no member of the file can earn the badge `verified`.
"""

from __future__ import annotations

from msgspec import UNSET, Struct

from issuer.results.benchmark import Benchmark
from issuer.results.details import is_public_url
from issuer.results.entry import Entry
from issuer.verify.report import Badge, Badges, Report, Verdict

_VERIFIED: dict[Verdict, Badge] = {
    "verified": "yes", "failed": "no", "unverified": "no", "undecided": "unknown", "good_when_issued": "unknown",
}  # fmt: skip


class Hub(Struct, frozen=True):
    """What only the Hub knows of an entry; None is what it does not say.

    `open_pull_request`: the entry sits on one. `registered`: the benchmark repository is a registered benchmark.
    `benchmark`: that benchmark's `eval.yaml`.
    """

    open_pull_request: bool | None = None
    registered: bool | None = None
    benchmark: Benchmark | None = None


def badges_of(report: Report, entry: Entry, hub: Hub) -> Badges:
    """Return the badges of an entry whose report this is."""
    return Badges(
        verified=_VERIFIED[report.verdict],
        community=_badge(hub.open_pull_request),
        leaderboard=_leaderboard(entry, hub),
        source=_badge(_has_source(entry)),
    )


def _badge(value: bool | None) -> Badge:
    return "unknown" if value is None else "yes" if value else "no"


def _leaderboard(entry: Entry, hub: Hub) -> Badge:
    """Ask for a registered benchmark that defines the task and at least one of the metrics; one clear no is a no."""
    parts = (hub.registered, _task_defined(entry, hub.benchmark), _metric_defined(entry, hub.benchmark))
    if False in parts:
        return "no"
    return _badge(None if None in parts else True)


def _task_defined(entry: Entry, benchmark: Benchmark | None) -> bool | None:
    return None if benchmark is None else entry.dataset.task_id in benchmark.task_ids


def _metric_defined(entry: Entry, benchmark: Benchmark | None) -> bool | None:
    """Return None for an `eval.yaml` in the live form: it defines no metrics, so this cannot be decided."""
    if benchmark is None or not benchmark.metrics:
        return None
    return any(metric.metric_id in benchmark.metric_ids for metric in entry.metrics or ())


def _has_source(entry: Entry) -> bool:
    source = entry.details.source
    return source is not UNSET and source.url is not UNSET and is_public_url(source.url)
