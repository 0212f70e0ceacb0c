"""The sources of a leaderboard: a folder of repositories, or a table of results that was judged earlier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple, replace

from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.relying.bulk import Listener, judge_folder, processes
from issuer.relying.folders import take_faults
from issuer.relying.leaderboard.ranking import (
    BoardEntry,
    BoardItem,
    BoardScore,
    Definitions,
    Leaderboard,
    RankOptions,
    Unread,
    moment_of,
    rank,
    unread,
)
from issuer.relying.leaderboard.size import bounded, fit
from issuer.relying.table_columns import rows_of
from issuer.relying.verifier import Basis, FileVerifier, JudgedFile, TableHead, Writer
from issuer.verify.report import AtFrom, Report, Tier, Verdict
from issuer.verify.summary import NOT_SIGNED, Summary, SummaryKey
from issuer.verify.trust import TrustFile

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(BoardItem).decode


def build_board(
    root: Path,
    verifier: FileVerifier,
    options: RankOptions,
    *,
    jobs: int = 0,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[Leaderboard, Summary]:
    """Judge every result file below `root` and rank the results; also return the counts of the run. Holds every entry
    in memory, about a kilobyte each. Raises SetupError as `judge_folder` does."""
    gathered = EntryCollector()
    listener = Listener(gathered.take, stopped=stopped)
    summary = judge_folder(
        root, verifier, Writer(_write, lambda error: _line(unread(error))), listener, engine=processes(jobs)
    )
    options = replace(options, tolerance=verifier.trust.tolerance, accepted=verifier.trust.definitions)
    basis = Basis.of(verifier.trust, verifier.context.now)
    return gathered.ranked(verifier.context.benchmarks, basis, options, summary), summary


class EntryCollector:
    """The entries and faults so far. An entry that comes again replaces the first: two tokens share a jti."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], BoardEntry] = {}
        self._unread: dict[Unread, None] = {}  # each process reports a bad definition

    def take(self, lines: str) -> None:
        """Add entries and faults, one line of JSON each."""
        for line in lines.split("\n"):  # not splitlines: JSON does not escape other line ends
            if line:
                self.add(_decode(line))

    def add(self, item: BoardItem) -> None:
        """Add an entry or a fault."""
        if isinstance(item, Unread):
            self._unread[item] = None
        else:
            self._entries[item.file, item.pointer] = item

    def ranked(self, definitions: Definitions, basis: Basis, options: RankOptions, summary: Summary) -> Leaderboard:
        """Rank all entries, and count the definitions that turn out to be unusable."""
        board = rank(list(self._entries.values()), definitions, basis, options)
        faults = [fault for fault in map(unread, take_faults(definitions)) if fault not in self._unread]
        summary.add(0, (), [fault.code for fault in faults])
        places = sorted({*self._unread, *faults}, key=astuple)
        return fit(replace(board, unread=tuple(places)), summary.bytes)


def _write(file: str, reports: tuple[Report, ...]) -> str:
    rows = rows_of(JudgedFile(file, reports))
    return "".join(_line(_entry_of(msgspec.convert(row, _Entry))) for row in rows)


def _line(item: BoardItem) -> str:
    return _encode(item).decode() + "\n"


Text = str | None
_Index = Annotated[int, Meta(ge=0)]


class _Metric(Struct, frozen=True):
    metric_id: str
    value: float
    slice: Text
    value_type: Text
    sample_size: int | None


class _Entry(Struct, frozen=True):
    """The columns of an entry's row that a leaderboard uses."""

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
    path: Path, definitions: Definitions, options: RankOptions, trust: TrustFile | None
) -> tuple[Leaderboard, Summary]:
    """Rank the rows of a table; also return their counts. Raises InputError if the file is not a table of this version,
    or was not judged by `trust`, if that is given."""
    from issuer.relying.table import open_table  # pyarrow is optional

    gathered, tallies, findings = EntryCollector(), Counter[SummaryKey](), list[str]()
    with open_table(path) as table:
        head = table.head
        _demand_trust(path, head, trust)
        for number, row in enumerate(table.rows(_NAMES)):
            with _naming_row(path, number):
                if row["finding"] is None:
                    entry = msgspec.convert(row, _Entry)
                    gathered.add(_entry_of(entry))
                    tallies[_tally(entry)] += 1
                else:
                    found = msgspec.convert(row, _Finding)
                    place = found.file, found.line or 0, found.column or 0
                    gathered.add(Unread(*place, found.finding, found.finding_detail or ""))
                    findings.append(found.finding)
    summary = Summary(bytes=head.bytes)
    summary.add(head.files, tallies.items(), findings)
    options = replace(options, tolerance=head.tolerance, accepted=head.definitions)
    return gathered.ranked(definitions, head.basis, options, summary), summary


def _demand_trust(path: Path, head: TableHead, trust: TrustFile | None) -> None:
    if trust is not None and trust.digest != head.basis.trust:
        rule = f"was judged by the trust file {head.basis.trust}, but the given one is {trust.digest}"
        again = "make it again with `issuer verify DIR --trust FILE --to FILE.parquet`"
        raise InputError(Code.FILE_RULE, f"{rule}: {again}", Place(str(path)))


@contextmanager
def _naming_row(path: Path, number: int) -> Iterator[None]:
    try:
        yield
    except msgspec.DecodeError as error:  # in a value, or in its JSON
        raise InputError(Code.FILE_RULE, f"row {number}: {error}", Place(str(path))) from None


def _tally(entry: _Entry) -> SummaryKey:
    named = entry.signed_issuer or NOT_SIGNED, entry.signed_framework or NOT_SIGNED
    return SummaryKey(*named, entry.verdict, "", entry.tier)


def _entry_of(row: _Entry) -> BoardEntry:
    """Return the entry of a row. The token's statements are left out if the file contradicts them."""
    # One text for equal values.
    normalization = msgspec.json.encode(_json(row.normalization), order="deterministic").decode()
    entry = BoardEntry(
        row.file, row.pointer, row.repo, row.tier, bounded(row.tier_reason or ""), row.at_from,
        bounded(row.check_5_evidence), _said(row.model_revision), _said(row.benchmark_repo),
        _said(row.benchmark_revision), _said(row.task_id), _scores(row), _said(row.framework),
        _said(row.framework_version), _said(row.completeness), _said(row.benchmark_subset),
        _said(normalization if row.normalization else ""), moment_of(row.date or ""),
        token_digest=row.token_digest or "",
    )  # fmt: skip
    if row.verdict == "failed" or row.signed_issued_at is None:
        return entry
    return replace(
        entry, when=row.signed_issued_at, issuer=row.signed_issuer or "", integration=row.signed_integration or "",
        run_url=row.signed_run_url or "", issued_at=row.signed_issued_at, attempt=row.signed_attempt,
        attempts_since=row.signed_attempts_since,
    )  # fmt: skip


def _said(text: Text) -> str:
    return bounded(text or "")


def _scores(row: _Entry) -> tuple[BoardScore, ...]:
    if not row.metrics:
        return () if row.value is None else (BoardScore("", "", row.value),)
    selection = msgspec.convert(_json(row.selection), dict[str, str])
    pairs = [(one, f"{one.metric_id} ({one.slice})" if one.slice else one.metric_id) for one in row.metrics]
    return tuple(
        BoardScore(
            _said(one.metric_id), _said(one.slice), one.value, _said(selection.get(pair)), _said(one.value_type),
            one.sample_size,
        )
        for one, pair in pairs
    )  # fmt: skip


def _json(text: Text) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
