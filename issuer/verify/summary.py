"""Counts of a run over many result files, by verdict, issuer, framework and reason. Pure.

The size is bounded for any input: issuers and frameworks are counted by name up to MAX_NAMES, then together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, field

from issuer.verify.report import NAMES, Report, Status, Tier, Verdict

MAX_NAMES = 1000
OTHERS = "(others)"
NOT_SIGNED = "(no good signature)"

_ONE_REASON = {"failed": Status.FAIL, "undecided": Status.UNKNOWN}


class SummaryKey(Struct, frozen=True, order=True):
    """The categories that a report is counted under. `issuer` and `framework` are signed, or NOT_SIGNED."""

    issuer: str
    framework: str
    verdict: Verdict
    reason: str
    tier: Tier


def tally(report: Report) -> SummaryKey:
    """Return the categories of a report. The reason is the number and name of the first check that decided."""
    return SummaryKey(
        report.issuer or NOT_SIGNED, report.framework or NOT_SIGNED, report.verdict, reason_of(report), report.tier
    )


def reason_of(report: Report) -> str:
    """Return why a report is not verified, without the parts that vary between entries; "" if it is verified."""
    if report.reason:
        return report.reason.partition(":")[0]
    wanted = _ONE_REASON.get(report.verdict)
    decisive = next((check.number for check in report.checks if check.status is wanted), None)
    return "" if decisive is None else f"check {decisive}, {NAMES[decisive]}"


class Summary(Struct):
    """The counts of a run. `bytes` are those of the files that are small enough to be read. `by_issuer` and
    `by_framework` count verdicts by name, `by_reason` counts entries that are not verified, and `by_tier` counts
    entries by tier."""

    version: Literal[1] = 1
    files: int = 0
    bytes: int = 0
    entries: int = 0
    findings: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    by_issuer: dict[str, Counter[str]] = field(default_factory=dict)
    by_framework: dict[str, Counter[str]] = field(default_factory=dict)
    by_reason: Counter[str] = field(default_factory=Counter)
    by_tier: Counter[str] = field(default_factory=Counter)
    interrupted: bool = False

    def add(self, files: int, tallies: Iterable[tuple[SummaryKey, int]], findings: Iterable[str]) -> None:
        """Add the counts of some files: entries by category, and the error codes of unreadable files."""
        self.files += files
        for kind, number in tallies:
            self._count(kind, number)
        for code in findings:
            self.findings += 1
            self.by_reason[code] += 1

    def recount(self, before: SummaryKey, after: SummaryKey) -> None:
        """Move an entry from one category to another."""
        self._count(before, -1)
        self._count(after, 1)

    def _count(self, kind: SummaryKey, number: int) -> None:
        self.entries += number
        _add(self.verdicts, kind.verdict, number)
        _add(self.by_tier, kind.tier, number)
        _add(_named(self.by_issuer, kind.issuer), kind.verdict, number)
        _add(_named(self.by_framework, kind.framework), kind.verdict, number)
        if kind.reason:
            _add(self.by_reason, kind.reason, number)


def _add(counts: Counter[str], name: str, number: int) -> None:
    counts[name] += number
    if not counts[name]:
        del counts[name]


def _named(counts: dict[str, Counter[str]], name: str) -> Counter[str]:
    known = name if name in counts or len(counts) < MAX_NAMES else OTHERS
    return counts.setdefault(known, Counter())
