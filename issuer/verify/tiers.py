"""How much stands behind a result: its tier, and why. Pure.

A function of the entry's report and, for `reproduced`, of the reports of the entries that name it; never of a member of
the file. More evidence never lowers a tier. `refuted` is apart: anyone may put such an entry into a pull request, so it
says nothing of the other results of its model.
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

# What the Hub does not say is `unknown`, never `no`; no member of the file can earn the badge `verified`.
_VERIFIED: dict[Verdict, Badge] = {
    "verified": "yes", "failed": "no", "unverified": "no", "undecided": "unknown", "good_when_issued": "unknown",
}  # fmt: skip


class HubFacts(Struct, frozen=True):
    """What only the Hub knows of an entry; None is what it does not say. `open_pull_request`: the entry sits on one.
    `registered`: the benchmark repository is a registered benchmark. `benchmark`: that benchmark's `eval.yaml`."""

    open_pull_request: bool | None = None
    registered: bool | None = None
    benchmark: Benchmark | None = None


def badges_of(report: Report, entry: Entry, hub: HubFacts) -> Badges:
    """Return the badges of an entry whose report this is."""
    return Badges(
        verified=_VERIFIED[report.verdict],
        community=_badge(hub.open_pull_request),
        leaderboard=_leaderboard(entry, hub),
        source=_badge(_has_source(entry)),
    )


def _badge(value: bool | None) -> Badge:
    return "unknown" if value is None else "yes" if value else "no"


def _leaderboard(entry: Entry, hub: HubFacts) -> Badge:
    """Ask for a registered benchmark that defines the task and at least one of the metrics; one clear no is a no."""
    task = None if hub.benchmark is None else entry.dataset.task_id in hub.benchmark.task_ids
    parts = (hub.registered, task, _metric_defined(entry, hub.benchmark))
    if False in parts:
        return "no"
    return _badge(None if None in parts else True)


def _metric_defined(entry: Entry, benchmark: Benchmark | None) -> bool | None:
    """Return None for an `eval.yaml` in the live form: it defines no metrics, so this cannot be decided."""
    if benchmark is None or not benchmark.metrics:
        return None
    return any(metric.metric_id in benchmark.metric_ids for metric in entry.metrics or ())


def _has_source(entry: Entry) -> bool:
    source = entry.details.source
    return source is not UNSET and source.url is not UNSET and is_public_url(source.url)


# What ranks alike has one number, the higher the more; `refuted` ranks nowhere.
RANKS: dict[Tier, int] = {
    "reproduced": 5, "logged": 4, "verified": 3, "signed": 2, "self-reported": 1, "undecided": 1, "refuted": 0,
}  # fmt: skip

# Where one of these fails, the token is no issuer's, or signs another result than the file shows.
_CONTRADICTS = frozenset({3, 7, 8, 9})
_SIGNED = frozenset({1, 2, 3, 4, 6, 7, 8, 9})


class RankedTier(Struct, frozen=True):
    """A tier, and the reason in words for people."""

    tier: Tier
    reason: str

    @property
    def rank(self) -> int:
        """The place of the tier: the higher, the more stands behind the result."""
        return RANKS[self.tier]


def ranked(report: Report) -> Report:
    """Put a report in its tier, as far as it says so itself."""
    own = standing(report)
    return replace(report, tier=own.tier, tier_reason=own.reason)


def with_reproductions(reports: Sequence[Report], tolerance: Tolerance = EXACTLY) -> tuple[Report, ...]:
    """Raise the ranked reports of a file, in their order, that others of them reproduce. `tolerance` is by how much the
    numbers of a reproduction may differ. All results of a model on a benchmark are in one file, so no other one has to
    be looked at."""
    named: defaultdict[str, dict[str, Report]] = defaultdict(dict)  # by its token: a copy of an entry is no other one
    for report in reports:
        if report.said.reproduces and RANKS[report.tier] >= RANKS["verified"]:
            named[report.said.reproduces][report.token_digest] = report
    if not named:
        return tuple(reports)  # nearly every file
    return tuple(_raised(report, named.get(report.content_digest, {}), tolerance) for report in reports)


def standing(report: Report) -> RankedTier:
    """Return what stands behind a result by its own report: everything but `reproduced`."""
    if report.verdict == "verified":
        return _verified(report)
    if not report.token_digest:
        return RankedTier("self-reported", "nobody vouches for it: it has no token")
    if reason := _refuted(report):
        return RankedTier("refuted", reason)
    if _is_signed(report):
        return RankedTier("signed", _first_open(report))
    return RankedTier("undecided", _first_open(report) or report.reason)


def _refuted(report: Report) -> str:
    if report.revoked or report.shared_jti:
        return next(made.evidence for made in report.checks if made.number == 5)
    failed = [made for made in report.checks if made.number in _CONTRADICTS and made.status is Status.FAIL]
    return f"check {failed[0].number}, {failed[0].name}: {failed[0].evidence}" if failed else ""


def _verified(report: Report) -> RankedTier:
    received = {"clock": "received in time, by this party's own clock", "receipt": "received in time, by a receipt"}
    own = received.get(report.at_from)
    if own and report.witnessed_at is not None:
        return RankedTier("logged", f"{own}; in the issuer's log, witnessed at {show_time(report.witnessed_at)}")
    if own:
        return RankedTier("verified", own)
    if report.at_from == "log":
        return RankedTier("verified", f"it existed in time, by the log's witnesses, at {show_time(report.at)}")
    return RankedTier("verified", "in time" if report.at_from == "unknown" else "received in time, as stated")


def _is_signed(report: Report) -> bool:
    """Say whether a good token binds the entry, and all that is missing is what could not be found out."""
    passed = {made.number for made in report.checks if made.status is Status.PASS}
    return passed >= _SIGNED and report.verdict in {"undecided", "good_when_issued"}


def _first_open(report: Report) -> str:
    """Return the check that keeps a report from being verified: the first that failed, or else is not known."""
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
