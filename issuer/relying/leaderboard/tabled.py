"""A leaderboard of a table of results, which was judged when it was made: nothing is judged here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.relying.basis import TableHead
from issuer.relying.leaderboard.gather import Gathered
from issuer.relying.leaderboard.listed import (
    Listed,
    Score,
    Unread,
    lone_score,
    moment_of,
    normalization_text,
    score_of,
)
from issuer.relying.leaderboard.ranking import Asked, Board, Definitions
from issuer.relying.table import open_table
from issuer.verify.report import AtFrom, Tier, Verdict
from issuer.verify.summary import NOT_SIGNED, Summary, Tally
from issuer.verify.trust import TrustFile

Text = str | None
_Index = Annotated[int, Meta(ge=0)]


class _Metric(Struct, frozen=True):
    metric_id: str
    value: float
    slice: Text


class _Entry(Struct, frozen=True):
    """What a leaderboard reads of the row of an entry, by the names of the columns."""

    file: str
    pointer: str
    repo: str
    verdict: Verdict
    tier: Tier
    tier_reason: Text
    at_from: AtFrom
    check_5_evidence: str
    model_revision: Text
    benchmark_repo: Text
    benchmark_revision: Text
    task_id: Text
    metrics: tuple[_Metric, ...]
    value: float | None
    framework: Text
    framework_version: Text
    selection: Text
    completeness: Text
    benchmark_subset: Text
    normalization: Text
    date: Text
    token_digest: Text
    signed_issuer: Text
    signed_integration: Text
    signed_framework: Text
    signed_run_url: Text
    signed_issued_at: int | None
    signed_attempt: int | None
    signed_attempts_since: int | None


class _Finding(Struct, frozen=True):
    file: str
    finding: str
    finding_detail: Text
    line: _Index | None
    column: _Index | None


_NAMES = tuple(dict.fromkeys((*_Entry.__struct_fields__, *_Finding.__struct_fields__)))


def build_board_of_table(
    path: Path, definitions: Definitions, asked: Asked, trust: TrustFile | None
) -> tuple[Board, Summary]:
    """Rank the rows of a table; return their counts, too.

    Raises InputError for a file that is no table of this version, or that was judged by another trust file than
    `trust`, where that is given.
    """
    gathered, tallies, findings = Gathered(), Counter[Tally](), list[str]()
    with open_table(path) as table:
        head = table.head
        _demand_trust(path, head, trust)
        for number, row in enumerate(table.rows(_NAMES)):
            with _naming_row(path, number):
                if row["finding"] is None:
                    entry = msgspec.convert(row, _Entry)
                    gathered.add(_listed(entry))
                    tallies[_tally(entry)] += 1
                else:
                    finding = msgspec.convert(row, _Finding)
                    gathered.add(_unread(finding))
                    findings.append(finding.finding)
    summary = Summary()
    summary.add(head.files, tallies.items(), findings)
    asked = msgspec.structs.replace(asked, tolerance=head.tolerance)
    return gathered.ranked(definitions, head.basis, asked, summary), summary


def _demand_trust(path: Path, head: TableHead, trust: TrustFile | None) -> None:
    if trust is not None and trust.digest != head.basis.trust:
        rule = f"was judged by the trust file {head.basis.trust}, and the one that is given is {trust.digest}"
        again = "make it anew by that one with `issuer verify DIR --trust FILE --to FILE.parquet`"
        raise InputError(Code.FILE_RULE, f"{rule}: {again}", Place(str(path)))


@contextmanager
def _naming_row(path: Path, number: int) -> Iterator[None]:
    try:
        yield
    except msgspec.DecodeError as error:  # of a value, or of the JSON in one
        raise InputError(Code.FILE_RULE, f"row {number}: {error}", Place(str(path))) from None


def _tally(entry: _Entry) -> Tally:
    named = entry.signed_issuer or NOT_SIGNED, entry.signed_framework or NOT_SIGNED
    return Tally(*named, entry.verdict, "", entry.tier)


def _unread(finding: _Finding) -> Unread:
    reason = finding.finding_detail or ""
    return Unread(finding.file, finding.line or 0, finding.column or 0, finding.finding, reason)


def _listed(row: _Entry) -> Listed:
    entry = Listed(
        row.file, row.pointer, row.repo, row.model_revision or "", row.benchmark_repo or "",
        row.benchmark_revision or "", row.task_id or "", _scores(row), row.framework or "",
        row.framework_version or "", row.completeness or "", row.benchmark_subset or "",
        normalization_text(_json(row.normalization)), row.tier, row.tier_reason or "", row.at_from,
        row.check_5_evidence, moment_of(row.date or ""), token_digest=row.token_digest or "",
    )  # fmt: skip
    if row.verdict == "failed" or row.signed_issued_at is None:  # as `listed` has it
        return entry
    return msgspec.structs.replace(
        entry, when=row.signed_issued_at, issuer=row.signed_issuer or "", integration=row.signed_integration or "",
        run_url=row.signed_run_url or "", issued_at=row.signed_issued_at, attempt=row.signed_attempt,
        attempts_since=row.signed_attempts_since,
    )  # fmt: skip


def _scores(row: _Entry) -> tuple[Score, ...]:
    if not row.metrics:
        return () if row.value is None else (lone_score(row.value),)
    selection = msgspec.convert(_json(row.selection), dict[str, str])
    return tuple(score_of(one.metric_id, one.slice or "", one.value, selection) for one in row.metrics)


def _json(text: Text) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
