"""`issuer verify DIR` in lines: for people, what is not verified and a summary; for machines, JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import get_args

import msgspec

from issuer.cli.report import WORDS
from issuer.cli.terminal import printable, to_json
from issuer.errors import InputError
from issuer.formats.times import show_span
from issuer.relying.verifier import Writer
from issuer.verify.report import REPORT_VERSION, TIERS, Check, Report, Status, Verdict
from issuer.verify.summary import Summary
from issuer.verify.trust import Trust

_VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
_DECISIVE: dict[Verdict, Status] = {
    "failed": Status.FAIL, "undecided": Status.UNKNOWN, "good_when_issued": Status.UNKNOWN,
}  # fmt: skip


# -- for people -------------------------------------------------------------------------------------------------------


def render_reports(file: str, reports: tuple[Report, ...]) -> str:
    """Write a line for each entry that has a token and is not verified; the rest is for the summary."""
    return "".join(
        f"{printable(file)}, entry {report.pointer.removeprefix('/')}: {describe_report(report)}\n"
        for report in reports
        if report.verdict in _DECISIVE
    )


def describe_report(report: Report) -> str:
    """Say on one line what the answer is, and which checks decided it."""
    reasons = [_reason(check) for check in decisive_checks(report)] or [report.reason]
    return printable(": ".join(filter(None, (WORDS[report.verdict], "; ".join(reasons)))))


def decisive_checks(report: Report) -> list[Check]:
    """Return the checks that keep a report from being verified; none where there was nothing to check."""
    decisive = _DECISIVE.get(report.verdict)
    return [check for check in report.checks if check.status is decisive]


def _reason(check: Check) -> str:
    values = f" (token: {check.token or '-'}, here: {check.file or '-'})" if check.token or check.file else ""
    return f"{check.number} {check.name}: {check.evidence}{values}"


def render_finding(error: InputError) -> str:
    """Write a line for what could not be read, and where."""
    return f"{printable(str(error))}\n"


def render_summary(summary: Summary, trust: Trust, now: int) -> str:
    """Write the counts: verdicts, by issuer, by framework, and the reasons of what is not verified."""
    counts = ", ".join(f"{summary.verdicts[verdict]:,} {_word(verdict)}" for verdict in _VERDICTS)
    lines = [f"{summary.entries:,} entries in {summary.files:,} files: {counts}"]
    if summary.findings:
        lines.append(f"{summary.findings:,} findings in files that could not be read whole")
    if summary.entries:
        counted = (f"{summary.by_tier[tier]:,} {tier}" for tier in TIERS if summary.by_tier[tier])
        lines.append(f"by tier: {', '.join(counted)}")
    lines += _render_names("by issuer", summary.by_issuer) + _render_names("by framework", summary.by_framework)
    if summary.by_reason:
        lines += ["not verified, because"]
        lines += [f"  {count:>9,}  {reason}" for reason, count in summary.by_reason.most_common() if count]
    lines += [f"key set of {issuer}, fetched {show_span(now - at)} ago" for issuer, at in _fetch_times(trust)]
    if summary.interrupted:
        lines.append("interrupted: this is what was judged until then")
    return "\n".join(map(printable, lines)) + "\n"


def _word(verdict: Verdict) -> str:
    """Return a verdict as the summary counts it, by the word that JSON has, too."""
    return verdict.replace("_", " ")


def _render_names(title: str, counts: Mapping[str, Counter[str]]) -> list[str]:
    ranked = sorted(counts.items(), key=lambda item: (-item[1].total(), item[0]))
    lines = [
        f"  {name}: " + ", ".join(f"{kinds[verdict]:,} {_word(verdict)}" for verdict in _VERDICTS if kinds[verdict])
        for name, kinds in ranked
        if kinds.total()
    ]
    return [title, *lines] if lines else []


FOR_PEOPLE = Writer(render_reports, render_finding)


# -- for machines -----------------------------------------------------------------------------------------------------


def render_json_reports(_file: str, reports: tuple[Report, ...]) -> str:
    """Write one report a line."""
    return "".join(to_json(report) + "\n" for report in reports)


def render_json_finding(error: InputError) -> str:
    """Write a line with the one member `finding` beside `version`."""
    place = error.place
    finding = {
        "code": str(error.code), "file": place.file, "line": place.line, "column": place.column,
        "pointer": error.pointer, "detail": error.detail,
    }  # fmt: skip
    return to_json({"version": REPORT_VERSION, "finding": finding}) + "\n"


def render_json_summary(summary: Summary, trust: Trust, _now: int) -> str:
    """Write the last line, with the one member `summary` beside `version`."""
    key_sets = [{"issuer": issuer, "fetched_at": at} for issuer, at in _fetch_times(trust)]
    document = {**msgspec.to_builtins(summary), "key_sets": key_sets}
    return to_json({"version": document.pop("version"), "summary": document}) + "\n"


JSON_LINES = Writer(render_json_reports, render_json_finding)


def _fetch_times(trust: Trust) -> list[tuple[str, int]]:
    return [
        (name, issuer.keys_fetched_at) for name, issuer in trust.issuers.items() if issuer.keys_fetched_at is not None
    ]
