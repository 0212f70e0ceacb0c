"""The columns of a table of results, which has a row for each entry and one for each finding.

The schema of `issuer verify DIR --to FILE`, without the library that writes it (`table.py`); TABLE.md shows it. Columns
may be added; a new meaning of a column needs a new version (`verifier.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from issuer.errors import InputError
from issuer.relying.verifier import JudgedFile
from issuer.results.entry import EntryMetric
from issuer.verify.report import NAMES, Check, Report, Status

# `json` is text, `time` a moment in UTC, `metrics` a list of structs with the members of METRIC.
ColumnKind = Literal["text", "json", "time", "whole", "number", "flag", "metrics"]
METRIC: dict[str, ColumnKind] = {
    "metric_id": "text", "slice": "text", "value": "number", "value_type": "text", "sample_size": "whole",
}  # fmt: skip
# A row by column. A `time` is in Unix seconds.
Row = Mapping[str, object]

_FRESH = 5


class Column(Struct, frozen=True):
    """A column with its kind and meaning. A missing value is null."""

    name: str
    kind: ColumnKind
    meaning: str


_CHECKS = (
    column
    for number, name in NAMES.items()
    for column in (
        Column(f"check_{number}", "text", f"{name}: `pass`, `fail`, `unknown` or `skip`"),
        Column(f"check_{number}_evidence", "text", "the evidence" if number == _FRESH else "why it did not pass"),
    )
)
COLUMNS: tuple[Column, ...] = (
    Column("file", "text", "the file, as DIR names it"),
    Column("repo", "text", "the model repository, `OWNER/NAME`"),
    Column("path", "text", "the file's place in it"),
    Column("pointer", "text", "the entry in the file, as a JSON pointer: `/0` is the first"),
    Column("verdict", "text", "`verified`, `failed`, `undecided`, `good_when_issued` or `unverified`"),
    Column("reason", "text", "why it is unverified, or was good when it was issued"),
    Column("tier", "text", "the strength of its evidence"),
    Column("tier_reason", "text", "why it has this tier; for a verified one, the evidence that it was in time"),
    Column("at", "time", "when the file counts as received"),
    Column("at_from", "text", "the source of that time: `clock`, `stated`, `receipt`, `log` or `unknown`"),
    Column("witnessed_at", "time", "a time by which witnesses of the issuer's log had seen the token"),
    Column("revoked", "flag", "whether its issuer has revoked it"),
    Column("shared_jti", "flag", "whether it failed only because another good token has its jti"),
    *_CHECKS,
    Column("model_revision", "text", "the file says: the model's commit"),
    Column("benchmark_repo", "text", "the file says: the benchmark"),
    Column("benchmark_revision", "text", "the file says: the benchmark's commit"),
    Column("task_id", "text", "the file says: the task"),
    Column("metrics", "metrics", "the file says: the metrics"),
    Column("value", "number", "the file says: the lone value of an entry that names no metric"),
    Column("framework", "text", "the file says: the framework"),
    Column("framework_version", "text", "the file says: its version"),
    Column("selection", "json", "the file says: which of a run's numbers each metric is"),
    Column("completeness", "text", "the file says: whether the whole benchmark was run"),
    Column("benchmark_subset", "text", "the file says: the part of the benchmark"),
    Column("normalization", "json", "the file says: how the values were normalised"),
    Column("date", "text", "the file says: when the evaluation was run"),
    Column("reproduces", "text", "the file says: the content digest of the result that it reproduces"),
    Column("token_digest", "text", "SHA-256 of the token's text"),
    Column("signed_issuer", "text", "the token says: its issuer"),
    Column("signed_integration", "text", "the token says: for which registered integration"),
    Column("signed_framework", "text", "the token says: the framework"),
    Column("signed_run_url", "text", "the token says: where people can look at the run"),
    Column("signed_issued_at", "time", "the token says: `iat`"),
    Column("signed_expires_at", "time", "the token says: `exp`"),
    Column("signed_attempt", "whole", "the token says: the attempt"),
    Column("signed_attempts_since", "time", "the token says: since when attempts are counted"),
    Column("signed_jti", "text", "the token says: `jti`"),
    Column("signed_kid", "text", "the token says: the key that signed it"),
    Column("signed_content_digest", "text", "the token says: the digest of the entry"),
    Column("signed_claims", "json", "the token says: the claims of the run"),
    Column("signed_caller", "json", "the token says: the caller that requested it"),
    Column("finding", "text", "the error code of an unreadable file"),
    Column("finding_detail", "text", "why it could not be read"),
    Column("line", "whole", "its line in the file"),
    Column("column", "whole", "its column in that line"),
)


def rows_of(judged: JudgedFile) -> list[Row]:
    """Return the rows of a file: one for each entry, and one for each fault."""
    entries: list[Row] = [
        {"file": judged.file, **_answer(report), **_checked(report.checks), **_said(report), **_signed(report)}
        for report in judged.reports
    ]
    return entries + [_finding(fault) for fault in judged.faults]


def _answer(report: Report) -> Row:
    return {
        "repo": report.repo, "path": report.path, "pointer": report.pointer, "verdict": report.verdict,
        "reason": _text(report.reason), "tier": report.tier, "tier_reason": _text(report.tier_reason),
        "at": report.at, "at_from": report.at_from, "witnessed_at": report.witnessed_at, "revoked": report.revoked,
        "shared_jti": report.shared_jti,
    }  # fmt: skip


def _checked(checks: tuple[Check, ...]) -> Row:
    row: dict[str, object] = {}
    for check in checks:
        row[f"check_{check.number}"] = str(check.status)
        # Verified entries, too, need the evidence that they were in time.
        if check.status is not Status.PASS or check.number == _FRESH:
            differ = f" (token: {check.token or '-'}, here: {check.file or '-'})" if check.token or check.file else ""
            row[f"check_{check.number}_evidence"] = f"{check.evidence}{differ}"
    return row


def _said(report: Report) -> Row:
    said = report.said
    return {
        "model_revision": _text(said.model_revision), "benchmark_repo": said.dataset.id,
        "benchmark_revision": _text(said.dataset.revision), "task_id": _text(said.dataset.task_id),
        "metrics": [_metric(metric) for metric in said.metrics], "value": _number(said.value),
        "framework": _text(said.framework.name), "framework_version": _text(said.framework.version),
        "selection": _json(said.selection), "completeness": _text(said.completeness),
        "benchmark_subset": _text(said.benchmark_subset), "normalization": _json(said.normalization),
        "date": _text(said.date), "reproduces": _text(said.reproduces),
    }  # fmt: skip


def _metric(metric: EntryMetric) -> Row:
    return {
        "metric_id": metric.metric_id, "slice": _text(metric.slice), "value": _number(metric.value),
        "value_type": _text(metric.value_type), "sample_size": _whole(metric.sample_size),
    }  # fmt: skip


def _signed(report: Report) -> Row:
    attempt = report.attempt
    return {
        "token_digest": _text(report.token_digest), "signed_issuer": _text(report.issuer),
        "signed_integration": _text(report.integration), "signed_framework": _text(report.framework),
        "signed_run_url": _text(report.run_url), "signed_issued_at": report.issued_at,
        "signed_expires_at": report.expires_at, "signed_attempt": attempt and attempt.number,
        "signed_attempts_since": attempt and attempt.since, "signed_jti": _text(report.jti),
        "signed_kid": _text(report.kid), "signed_content_digest": _text(report.content_digest),
        "signed_claims": _json(report.claims), "signed_caller": _json(report.caller),
    }  # fmt: skip


def _finding(fault: InputError) -> Row:
    place = fault.place
    return {
        "file": _spelled(place.file), "pointer": _text(fault.pointer), "finding": str(fault.code),
        "finding_detail": _spelled(fault.detail), "line": place.line or None, "column": place.column or None,
    }  # fmt: skip


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None  # at most 17 digits: a file with more is a finding


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _json(value: object) -> str | None:
    return msgspec.json.encode(value).decode() if value else None


def _spelled(text: str) -> str:
    """Escape the bytes of a file's name that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()
