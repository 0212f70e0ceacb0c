"""What stands where in a leaderboard: pure, of judged entries and the benchmarks' definitions.

A table is for one benchmark, task, metric and slice, and for one `benchmark_subset` and `normalization`, which make
another measurement. Rows of another framework, major version, selection or completeness stay in one table, each with
the mark of its setting, and are ranked once more within it. Nothing that anybody may write into a pull request takes
the place of another row: of a model and setting, verified, signed and other results are chosen apart, and refuted
entries are in no table. Text of a file is a stranger's, whatever the tier: writers escape it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from issuer.errors import InputError
from issuer.relying.verifier import Basis
from issuer.results.benchmark import Benchmark
from issuer.results.claims import REVISION, is_repo
from issuer.verify.report import AtFrom, Report, Said, Tier
from issuer.verify.reproduction import EXACTLY, Tolerance
from issuer.verify.tiers import RANKS

FRESH = 5  # the check that says how it is known when the result was received


class BoardScore(Struct, frozen=True):
    """One number of an entry. `metric` is "" for the lone value of the live Hub's entries, which names none."""

    metric: str
    slice: str
    value: float
    selection: str


class BoardEntry(Struct, frozen=True, tag="entry"):
    """A judged entry. `file` and `pointer` say where it stands; `repo` is the model's repository.

    `when` (Unix seconds) is the token's `iat`, which its issuer vouches for; of an entry that nobody has signed, the
    date that the file says, or None. `received` and `freshness` are how it is known when the file was received, and the
    evidence of check 5. `issuer`, `integration`, `run_url`, `issued_at` and `attempt` are the token's; empty or None
    where no good signature is over what the file says.
    """

    file: str
    pointer: str
    repo: str
    model_revision: str
    benchmark: str
    benchmark_revision: str
    task: str
    scores: tuple[BoardScore, ...]
    framework: str
    framework_version: str
    completeness: str
    subset: str
    normalization: str
    tier: Tier
    tier_reason: str
    received: AtFrom
    freshness: str
    when: int | None = None
    issuer: str = ""
    integration: str = ""
    run_url: str = ""
    issued_at: int | None = None
    attempt: int | None = None
    attempts_since: int | None = None
    token_digest: str = ""

    @property
    def standing(self) -> int:
        """How much stands behind it, as a number: the higher, the more (`verify.tiers.RANKS`)."""
        return RANKS[self.tier]


class Unread(Struct, frozen=True, tag="finding"):
    """What could not be read: the file, line and column (0: the whole), the code and the reason."""

    file: str
    line: int
    column: int
    code: str
    reason: str


BoardItem = BoardEntry | Unread


def listed(file: str, report: Report) -> BoardEntry:
    """List the entry of a report. What its token says is left out where that is not what the file says."""
    said, signed = report.said, report.verdict != "failed" and report.issued_at is not None
    normalization = normalization_text(said.normalization)
    entry = BoardEntry(
        file, report.pointer, report.repo, _text(said.model_revision), said.dataset.id, _text(said.dataset.revision),
        _text(said.dataset.task_id), scores_of(said), _text(said.framework.name), _text(said.framework.version),
        said.completeness, said.benchmark_subset, normalization, report.tier, report.tier_reason, report.at_from,
        report.checks[FRESH - 1].evidence, moment_of(said.date), token_digest=report.token_digest,
    )  # fmt: skip
    return _with_token(entry, report) if signed else entry


def _with_token(entry: BoardEntry, report: Report) -> BoardEntry:
    attempt = report.attempt
    return msgspec.structs.replace(
        entry, when=report.issued_at, issuer=report.issuer, integration=report.integration, run_url=report.run_url,
        issued_at=report.issued_at, attempt=None if attempt is None else attempt.number,
        attempts_since=None if attempt is None else attempt.since,
    )  # fmt: skip


def unread(error: InputError) -> Unread:
    """List what could not be read."""
    return Unread(error.place.file, error.place.line, error.place.column, str(error.code), error.detail)


def scores_of(said: Said) -> tuple[BoardScore, ...]:
    """Return the numbers that an entry says, each with what was chosen of the run for it."""
    if not said.metrics:
        return () if said.value is UNSET else (lone_score(said.value),)
    return tuple(score_of(one.metric_id, _text(one.slice), one.value, said.selection) for one in said.metrics)


def score_of(metric: str, of_slice: str, value: float, selection: Mapping[str, str]) -> BoardScore:
    """Return a number of a run, with what the run's `selection` says of it."""
    pair = f"{metric} ({of_slice})" if of_slice else metric
    return BoardScore(metric, of_slice, value, selection.get(pair, ""))


def lone_score(value: float) -> BoardScore:
    """Return the `value` of an entry that names no metric."""
    return BoardScore("", "", value, "")


def normalization_text(normalization: Mapping[str, Any]) -> str:
    """Return `normalization` as one text, equal where it says the same; "" where it is not there."""
    return msgspec.json.encode(normalization, order="deterministic").decode() if normalization else ""


def moment_of(date: str) -> int | None:
    """Read an ISO date or time as Unix seconds; without an offset it is UTC. None where it is no date."""
    try:
        moment = datetime.fromisoformat(date)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def commit_path(entry: BoardEntry) -> str:
    """Return the path of the model's commit on a Hub, or "" where the file does not say a full one."""
    known = is_repo(entry.repo) and REVISION.fullmatch(entry.model_revision)
    return f"{entry.repo}/commit/{entry.model_revision}" if known else ""


def _text(value: str | UnsetType) -> str:
    return "" if value is UNSET else value


BOARD_VERSION: Literal[1] = 1
NOT_NAMED = "not named"  # how a lone value's metric is called; no metric id has a space
_LEEWAY_S = 60

Direction = Literal["higher", "lower", "unknown"]
Definitions = Mapping[tuple[str, str], Benchmark]


class RankOptions(Struct, frozen=True):
    """How to rank. `best` takes the best result of a model instead of the newest, `every_metric` the metrics that are
    not primary too. A rank is for entries of the tier `rank_from` and those above. `stated` says for metrics that no
    definition at hand has which way is better. Values that differ by no more than `tolerance` do not contradict."""

    best: bool = False
    every_metric: bool = False
    rank_from: Tier = "verified"
    stated: Mapping[str, Direction] = {}
    tolerance: Tolerance = EXACTLY


class TableSubject(Struct, frozen=True, order=True):
    """What a table is of. `direction` is which way is better, by the `eval.yaml` of each row's own commit."""

    benchmark: str
    task: str
    metric: str
    slice: str
    subset: str
    normalization: str
    direction: Direction


class Setting(Struct, frozen=True, order=True):
    """How a row was made, where that differs within a table: rows of two settings compare with care."""

    framework: str
    major: str
    selection: str
    completeness: str


class BoardRow(Struct, frozen=True):
    """A line of a table. `rank` is one more than the number of other models with a better row that has a rank, so equal
    values have equal ranks; None where it has none. `rank_in_setting` is the same among rows of its setting, which is
    the number of one of the table's. It was chosen from `chosen_from` results of its model, setting and standing;
    `contradicted`: verified results of the same model commit and setting say something else, and each has a row."""

    rank: int | None
    rank_in_setting: int | None
    setting: int
    value: float
    chosen_from: int
    contradicted: bool
    entry: BoardEntry


class BoardTable(Struct, frozen=True):
    """A ranked table, best first; where the direction is not known, in the order of the models' names, without ranks.
    `primary`: a definition says that this is the benchmark's primary metric. `title` and `unit` are the
    definition's."""

    subject: TableSubject
    primary: bool
    title: str
    unit: str
    settings: tuple[Setting, ...]
    benchmark_revisions: tuple[str, ...]
    rows: tuple[BoardRow, ...]


class Board(Struct, frozen=True):
    """A leaderboard. `refuted` entries and what could not be read stand apart, each with its reason. The counts are of
    all entries: by tier, and by how it is known when they were received (check 5)."""

    version: Literal[1]
    basis: Basis
    chosen: Literal["newest", "best"]
    rank_from: Tier
    tables: tuple[BoardTable, ...]
    refuted: tuple[BoardEntry, ...]
    unread: tuple[Unread, ...]
    by_tier: Mapping[str, int]
    by_received: Mapping[str, int]


def rank(
    entries: Sequence[BoardEntry],
    unread: Sequence[Unread],
    definitions: Definitions,
    basis: Basis,
    asked: RankOptions,
) -> Board:
    """Make the leaderboard of these entries."""
    refuted = tuple(entry for entry in entries if entry.tier == "refuted")
    return Board(
        BOARD_VERSION, basis, "best" if asked.best else "newest", asked.rank_from,
        tuple(_tables(entries, definitions, asked, basis.judged_at)), refuted, tuple(unread),
        dict(Counter(entry.tier for entry in entries)),
        dict(Counter(entry.received for entry in entries if entry.standing >= RANKS["verified"])),
    )  # fmt: skip


# -- which table -------------------------------------------------------------------------------------------------------


class _Candidate(Struct, frozen=True):
    """A number of an entry, on its way into a table. `when` is None where the file says a time that has not come."""

    entry: BoardEntry
    value: float
    setting: Setting
    when: int | None

    @property
    def age(self) -> tuple[int, str, str]:
        """Sorts the newest last; of two of one time, always the same."""
        return (-1 if self.when is None else self.when), self.entry.file, self.entry.pointer


class _Draft(Struct):
    candidates: list[_Candidate]
    primary: bool
    title: str
    unit: str


class _Defined(Struct, frozen=True):
    """What the definition at a row's commit says of a metric. `listed`: it has a table."""

    direction: Direction = "unknown"
    primary: bool = False
    title: str = ""
    unit: str = ""
    listed: bool = True


def _tables(
    entries: Iterable[BoardEntry], definitions: Definitions, asked: RankOptions, now: int
) -> Iterator[BoardTable]:
    drafts: dict[TableSubject, _Draft] = {}
    for entry in entries:
        if entry.tier == "refuted":
            continue
        definition = definitions.get((entry.benchmark, entry.benchmark_revision))
        for score in entry.scores:
            if (defined := _defined(definition, entry.task, score, asked)).listed:
                subject = _subject(entry, score, defined.direction)
                new = _Draft([], defined.primary, defined.title, defined.unit)
                drafts.setdefault(subject, new).candidates.append(_candidate(entry, score, now))
    for subject in sorted(drafts):
        yield _table(subject, drafts[subject], asked)


def _defined(definition: Benchmark | None, task: str, score: BoardScore, asked: RankOptions) -> _Defined:
    stated = asked.stated.get(score.metric or NOT_NAMED, "unknown")
    known = definition if definition is not None and task in definition.task_ids else None
    metric = next((one for one in known.metrics if one.id == score.metric), None) if known else None
    if known is None or metric is None:
        return _Defined(stated)
    primary = known.primary == metric.id
    if not (primary or known.primary is None or asked.every_metric):
        return _Defined(listed=False)
    better = metric.higher_is_better
    direction: Direction = stated if better is UNSET else "higher" if better else "lower"
    title, unit = ("" if text is UNSET else text for text in (metric.display_name, metric.unit))
    return _Defined(direction, primary, title, unit)


def _subject(entry: BoardEntry, score: BoardScore, direction: Direction) -> TableSubject:
    return TableSubject(
        entry.benchmark, entry.task, score.metric, score.slice, entry.subset, entry.normalization, direction
    )  # fmt: skip


def _candidate(entry: BoardEntry, score: BoardScore, now: int) -> _Candidate:
    setting = Setting(entry.framework, major_of(entry.framework_version), score.selection, entry.completeness)
    when = entry.when if entry.when is not None and entry.when <= now + _LEEWAY_S else None
    return _Candidate(entry, score.value, setting, when)


def major_of(version: str) -> str:
    """Return the major version: what stands before the first dot."""
    found = re.match(r"v?([0-9]+)(?:\.|$)", version)
    return found[1] if found else version


# -- which rows --------------------------------------------------------------------------------------------------------


def _table(subject: TableSubject, draft: _Draft, asked: RankOptions) -> BoardTable:
    candidates = draft.candidates
    settings = tuple(sorted({one.setting for one in candidates}))
    groups: defaultdict[tuple[str, Setting, int], list[_Candidate]] = defaultdict(list)
    for one in candidates:
        groups[one.entry.repo, one.setting, _kind(one.entry)].append(one)
    rows = [row for group in groups.values() for row in _chosen(group, subject, settings, asked)]
    revisions = tuple(sorted({row.entry.benchmark_revision for row in rows}))
    members = subject, draft.primary, draft.title, draft.unit, settings, revisions
    return BoardTable(*members, tuple(_ranked(rows, subject.direction, RANKS[asked.rank_from])))


_REST, _SIGNED, _VERIFIED = range(3)  # one of these never takes the place of another


def _kind(entry: BoardEntry) -> int:
    if entry.standing >= RANKS["verified"]:
        return _VERIFIED
    return _SIGNED if entry.tier == "signed" else _REST


def _chosen(
    group: Sequence[_Candidate], subject: TableSubject, settings: Sequence[Setting], asked: RankOptions
) -> Iterator[BoardRow]:
    """Yield the row of a model, and a row of each verified result that contradicts it."""
    results = _without_copies(group)
    newest = max(results, key=lambda one: one.age)
    first = _strongest(_best(results, subject.direction) if asked.best else newest, results, subject.metric, asked)
    others = _contradicting(first, results, subject.metric, asked) if _kind(first.entry) == _VERIFIED else []
    for one in (first, *others):
        setting = settings.index(one.setting)
        yield BoardRow(None, None, setting, one.value, len(results), bool(others), one.entry)


def _without_copies(group: Sequence[_Candidate]) -> list[_Candidate]:
    """Leave out further copies of one signed result: they are no further run."""
    kept: dict[object, _Candidate] = {}
    for number, one in enumerate(group):
        kept.setdefault((one.entry.token_digest, one.value) if one.entry.token_digest else number, one)
    return list(kept.values())


def _best(results: Sequence[_Candidate], direction: Direction) -> _Candidate:
    if direction == "unknown":
        return max(results, key=lambda one: one.age)
    sign = 1 if direction == "higher" else -1
    return max(results, key=lambda one: (sign * one.value, one.age))


def _strongest(first: _Candidate, results: Sequence[_Candidate], metric: str, asked: RankOptions) -> _Candidate:
    """Return the result behind which most stands, of those of the same commits that agree with the first. A
    reproduction is newer than what it reproduces, and would hide it."""
    agreeing = [
        one
        for one in results
        if _commits(one.entry) == _commits(first.entry) and asked.tolerance.agree(metric, first.value, one.value)
    ]
    return max(agreeing, key=lambda one: (one.entry.standing, one.age))


def _contradicting(
    first: _Candidate, results: Sequence[_Candidate], metric: str, asked: RankOptions
) -> list[_Candidate]:
    """Return what was verified of the same commits with another number: the newest of each."""
    found: dict[float, _Candidate] = {}
    for one in sorted(results, key=lambda one: one.age, reverse=True):
        same = _commits(one.entry) == _commits(first.entry)
        if same and not asked.tolerance.agree(metric, first.value, one.value):
            found.setdefault(one.value, one)
    return list(found.values())


def _commits(entry: BoardEntry) -> tuple[str, str]:
    return entry.model_revision, entry.benchmark_revision


# -- in which order ----------------------------------------------------------------------------------------------------


def _ranked(rows: Sequence[BoardRow], direction: Direction, floor: int) -> list[BoardRow]:
    if direction == "unknown":
        return sorted(rows, key=lambda row: (row.entry.repo, -row.entry.standing, row.setting, row.value))
    sign = -1 if direction == "higher" else 1
    ordered = sorted(rows, key=lambda row: (sign * row.value, -row.entry.standing, row.entry.repo, row.setting))
    in_all = _ranks(ordered, floor, lambda _row: 0)
    in_setting = _ranks(ordered, floor, lambda row: row.setting)
    return [
        BoardRow(whole, own, row.setting, row.value, row.chosen_from, row.contradicted, row.entry)
        for row, whole, own in zip(ordered, in_all, in_setting, strict=True)
    ]


def _ranks(ordered: Sequence[BoardRow], floor: int, within: Callable[[BoardRow], int]) -> Iterator[int | None]:
    """Yield the rank of each row among those of one kind. Models are counted, not rows: who has many rows pushes nobody
    further down by them."""
    better: defaultdict[int, set[str]] = defaultdict(set)
    equal: defaultdict[int, tuple[float | None, set[str]]] = defaultdict(lambda: (None, set()))
    for row in ordered:
        if row.entry.standing < floor:
            yield None
            continue
        kind = within(row)
        value, models = equal[kind]
        if value != row.value:
            better[kind] |= models
            models = set()
            equal[kind] = row.value, models
        models.add(row.entry.repo)
        yield 1 + len(better[kind]) - (row.entry.repo in better[kind])
