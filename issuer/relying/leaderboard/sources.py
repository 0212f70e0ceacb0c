"""The sources of a leaderboard: a folder of repositories, or a table of results, which was judged when it was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.relying.bulk import Listener, judge_folder, processes
from issuer.relying.folders import take_faults
from issuer.relying.leaderboard.ranking import (
    Board,
    BoardEntry,
    BoardItem,
    BoardScore,
    Definitions,
    RankOptions,
    Unread,
    listed,
    lone_score,
    moment_of,
    normalization_text,
    rank,
    score_of,
    unread,
)
from issuer.relying.verifier import Basis, TableHead, Verifier, Writer
from issuer.verify.report import AtFrom, Report, Tier, Verdict
from issuer.verify.summary import NOT_SIGNED, Summary, Tally
from issuer.verify.trust import TrustFile

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(BoardItem).decode


def build_board(
    root: Path, verifier: Verifier, asked: RankOptions, *, jobs: int = 0, stopped: Callable[[], bool] = lambda: False
) -> tuple[Board, Summary]:
    """Judge every result file below `root` and rank what is in them; return the counts of the run, too. Holds every
    entry, about a kilobyte each. Raises SetupError as `judge_folder` does."""
    gathered = EntryCollector()
    listener = Listener(gathered.take, stopped=stopped)
    summary = judge_folder(root, verifier, Writer(_write, _write_unread), listener, engine=processes(jobs))
    asked = msgspec.structs.replace(asked, tolerance=verifier.trust.tolerance)
    basis = Basis.of(verifier.trust, verifier.context.now)
    return gathered.ranked(verifier.context.benchmarks, basis, asked, summary), summary


class EntryCollector:
    """What came so far. An entry that comes once more was corrected: two tokens share a jti."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], BoardEntry] = {}
        self._unread: dict[Unread, None] = {}  # a definition that no process can read is told by each of them

    def take(self, lines: str) -> None:
        """Take entries and findings, a line of JSON each."""
        for line in lines.split("\n"):  # a text may hold other line ends, which JSON does not escape
            if line:
                self.add(_decode(line))

    def add(self, item: BoardItem) -> None:
        """Take an entry or a finding."""
        if isinstance(item, Unread):
            self._unread[item] = None
        else:
            self._entries[item.file, item.pointer] = item

    def ranked(self, definitions: Definitions, basis: Basis, asked: RankOptions, summary: Summary) -> Board:
        """Rank it all, and count the definitions that turn out to be unusable."""
        board = rank(list(self._entries.values()), (), definitions, basis, asked)
        told = [fault for fault in map(unread, take_faults(definitions)) if fault not in self._unread]
        summary.add(0, (), [fault.code for fault in told])
        places = sorted({*self._unread, *told}, key=lambda one: (one.file, one.line, one.column, one.code, one.reason))
        return msgspec.structs.replace(board, unread=tuple(places))


def _write(file: str, reports: tuple[Report, ...]) -> str:
    return "".join(_line(listed(file, report)) for report in reports)


def _write_unread(error: InputError) -> str:
    return _line(unread(error))


def _line(item: BoardItem) -> str:
    return _encode(item).decode() + "\n"


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
    path: Path, definitions: Definitions, asked: RankOptions, trust: TrustFile | None
) -> tuple[Board, Summary]:
    """Rank the rows of a table; return their counts, too. Raises InputError for a file that is no table of this
    version, or that was judged by another trust file than `trust`, where that is given."""
    from issuer.relying.table import open_table  # pyarrow, which is optional

    gathered, tallies, findings = EntryCollector(), Counter[Tally](), list[str]()
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


def _listed(row: _Entry) -> BoardEntry:
    entry = BoardEntry(
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


def _scores(row: _Entry) -> tuple[BoardScore, ...]:
    if not row.metrics:
        return () if row.value is None else (lone_score(row.value),)
    selection = msgspec.convert(_json(row.selection), dict[str, str])
    return tuple(score_of(one.metric_id, one.slice or "", one.value, selection) for one in row.metrics)


def _json(text: Text) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
