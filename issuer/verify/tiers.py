"""Tiers: ranks of the evidence for a result, with a reason for people. Pure.

A tier depends on the entry's report and, for `reproduced`, on the reports of the entries that name it; never on a
member of the file. More evidence never lowers a tier. `refuted` is not part of the order: anyone may put such an entry
into a pull request, so it says nothing about other results of the same model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import UNSET, Struct
from msgspec.structs import replace

from issuer.formats.times import show_time
from issuer.results.benchmark import Benchmark
from issuer.results.details import is_public_url
from issuer.results.entry import Entry
from issuer.verify.report import Badge, Badges, Report, Status, Tier, Verdict
from issuer.verify.reproduction import EXACTLY, Tolerance, aside, objection

# -- the Hub's badges (contract section 6) -----------------------------------------------------------------------------

# A fact that the Hub does not give makes a badge `unknown`, never `no`; no member of the file can earn the badge
# `verified`.
_VERIFIED: dict[Verdict, Badge] = {
    "verified": "yes", "failed": "no", "unverified": "no", "undecided": "unknown", "good_when_issued": "unknown",
}  # fmt: skip


class HubFacts(Struct, frozen=True):
    """Facts that only the Hub knows about an entry; None if it does not give one. `open_pull_request`: the entry is in
    an open pull request. `registered`: the benchmark repository is a registered benchmark. `benchmark`: that
    benchmark's `eval.yaml`."""

    open_pull_request: bool | None = None
    registered: bool | None = None
    benchmark: Benchmark | None = None


def badges_of(report: Report, entry: Entry, hub: HubFacts) -> Badges:
    """Return the badges of the entry of this report."""
    source = entry.details.source
    return Badges(
        verified=_VERIFIED[report.verdict],
        community=_badge(hub.open_pull_request),
        leaderboard=_leaderboard(entry, hub),
        source=_badge(source is not UNSET and source.url is not UNSET and is_public_url(source.url)),
    )


def _badge(value: bool | None) -> Badge:
    return "unknown" if value is None else "yes" if value else "no"


def _leaderboard(entry: Entry, hub: HubFacts) -> Badge:
    """Require a registered benchmark that defines the task and at least one of the metrics; one clear `no` decides."""
    task = None if hub.benchmark is None else entry.dataset.task_id in hub.benchmark.task_ids
    parts = (hub.registered, task, _metric_defined(entry, hub.benchmark))
    if False in parts:
        return "no"
    return _badge(None if None in parts else True)


def _metric_defined(entry: Entry, benchmark: Benchmark | None) -> bool | None:
    """Return None if the `eval.yaml` has the live form, which defines no metrics: this cannot be decided then."""
    if benchmark is None or not benchmark.metrics:
        return None
    return any(metric.metric_id in benchmark.metric_ids for metric in entry.metrics or ())


# Equal numbers rank alike; `refuted` has no rank.
RANKS: dict[Tier, int] = {
    "reproduced": 5, "logged": 4, "verified": 3, "signed": 2, "self-reported": 1, "undecided": 1, "refuted": 0,
}  # fmt: skip

# If one of these checks fails, no trusted issuer signed the token, or it signed another result than the file shows.
_CONTRADICTS = frozenset({3, 7, 8, 9})
_SIGNED = frozenset({1, 2, 3, 4, 6, 7, 8, 9})


def ranked(report: Report) -> Report:
    """Return the report with its tier and the reason for it; `reproduced` needs the other reports of the file."""
    tier, reason = _tier_of(report)
    return replace(report, tier=tier, tier_reason=reason)


def with_reproductions(reports: Sequence[Report], tolerance: Tolerance = EXACTLY) -> tuple[Report, ...]:
    """Raise the ranked reports of a file that other entries of it reproduce, and keep their order. `tolerance` is how
    far the numbers of a reproduction may differ. All results of a model on a benchmark are in one file, so no other
    file matters."""
    named: defaultdict[str, dict[str, Report]] = defaultdict(dict)  # by token: a copy of an entry does not count twice
    for report in reports:
        if report.said.reproduces and RANKS[report.tier] >= RANKS["verified"]:
            named[report.said.reproduces][report.token_digest] = report
    if not named:
        return tuple(reports)  # nearly every file
    return tuple(_raised(report, named.get(report.content_digest, {}), tolerance) for report in reports)


def _tier_of(report: Report) -> tuple[Tier, str]:
    if report.verdict == "verified":
        return _verified(report)
    if not report.token_digest:
        return "self-reported", "no issuer vouches for it: it has no token"
    if reason := _refuted(report):
        return "refuted", reason
    if _is_signed(report):
        return "signed", _first_open(report)
    return "undecided", _first_open(report) or report.reason


def _refuted(report: Report) -> str:
    if report.revoked or report.shared_jti:
        return next(made.evidence for made in report.checks if made.number == 5)
    failed = [made for made in report.checks if made.number in _CONTRADICTS and made.status is Status.FAIL]
    return f"check {failed[0].number}, {failed[0].name}: {failed[0].evidence}" if failed else ""


def _verified(report: Report) -> tuple[Tier, str]:
    received = {"clock": "received in time, by this party's own clock", "receipt": "received in time, by a receipt"}
    own = received.get(report.at_from)
    if own and report.witnessed_at is not None:
        return "logged", f"{own}; in the issuer's log, witnessed at {show_time(report.witnessed_at)}"
    if own:
        return "verified", own
    if report.at_from == "log":
        return "verified", f"it existed in time, by the log's witnesses, at {show_time(report.at)}"
    return "verified", "in time" if report.at_from == "unknown" else "received in time, as stated"


def _is_signed(report: Report) -> bool:
    """Say whether a good token binds the entry, and its other checks did not fail."""
    passed = {made.number for made in report.checks if made.status is Status.PASS}
    return passed >= _SIGNED and report.verdict in {"undecided", "good_when_issued"}


def _first_open(report: Report) -> str:
    """Return the check that keeps a report from being verified: the first that failed, or else the first unknown
    one."""
    for status in (Status.FAIL, Status.UNKNOWN):
        for made in report.checks:
            if made.status is status:
                return f"check {made.number}, {made.name}: {made.evidence}"
    return ""


def _raised(report: Report, named_by: Mapping[str, Report], tolerance: Tolerance) -> Report:
    if not named_by or RANKS[report.tier] < RANKS["verified"]:
        return report
    reasons = [objection(other, report, tolerance) for other in named_by.values()]
    for other, reason in zip(named_by.values(), reasons, strict=True):
        if not reason:
            by = f"reproduced by {other.integration}, {show_time(other.issued_at or 0)}"
            return replace(report, tier="reproduced", tier_reason=by + aside(other.said, report.said))
    which = "a reproduction does not count" if len(reasons) == 1 else f"{len(reasons)} reproductions do not count"
    return replace(report, tier_reason=f"{report.tier_reason}; {which}: {reasons[0]}")
