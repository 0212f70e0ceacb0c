"""The ranking of a leaderboard: tables from judged entries and the benchmarks' definitions. Pure.

Each benchmark, task, metric and slice has a table, and so has each `benchmark_subset` and `normalization`, because
these change the measurement. A table may mix frameworks, major versions, selections and completeness. Each of its rows
has the mark of its setting, and is also ranked within the setting. A stranger's pull request cannot replace another
row: for each model and setting, verified, signed and other results are chosen separately, and refuted entries are in no
table. Text of a file comes from a stranger, whatever the tier: writers escape it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from issuer.errors import InputError
from issuer.relying.verifier import Basis
from issuer.results.benchmark import AcceptedDefinitions, Benchmark
from issuer.verify.report import AtFrom, Tier
from issuer.verify.reproduction import EXACTLY, Tolerance
from issuer.verify.tiers import RANKS


class BoardScore(Struct, frozen=True):
    """One number of an entry. `metric` is "" for the lone value of the live Hub's entries, which has no metric name."""

    metric: str
    slice: str
    value: float
    selection: str


class BoardEntry(Struct, frozen=True, tag="entry"):
    """A judged entry. `file` and `pointer` are its place; `repo` is the model's repository. `when` (Unix seconds) is
    the token's `iat`, which its issuer vouches for; for an unsigned entry, the date in the file or None. `received` is
    the source of the time of receipt, and `freshness` the evidence of check 5. `issuer`, `integration`, `run_url`,
    `issued_at` and `attempt` are the token's; empty or None unless a good signature covers the file's content."""

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
    def strength(self) -> int:
        """The rank of its tier: a higher number means more evidence (`verify.tiers.RANKS`)."""
        return RANKS[self.tier]


class Unread(Struct, frozen=True, tag="finding"):
    """An unreadable file or definition: its name, line and column (0 for the whole file), error code and reason."""

    file: str
    line: int
    column: int
    code: str
    reason: str


BoardItem = BoardEntry | Unread


def unread(error: InputError) -> Unread:
    """Return the item for an error."""
    return Unread(error.place.file, error.place.line, error.place.column, str(error.code), error.detail)


def moment_of(date: str) -> int | None:
    """Return an ISO date or time as Unix seconds, in UTC if it has no offset; None if it is not a date."""
    try:
        moment = datetime.fromisoformat(date)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


BOARD_VERSION: Literal[1] = 1
NOT_NAMED = "not named"  # the metric of a lone value; no metric id has a space
_LEEWAY_S = 60

Direction = Literal["higher", "lower", "unknown"]
Definitions = Mapping[tuple[str, str], Benchmark]


class RankOptions(Struct, frozen=True):
    """The rules of a ranking. `best` takes the best result of a model instead of the newest; `every_metric` adds
    metrics that are not primary. Entries of the tier `rank_from` and above get a rank. `stated` gives the better
    direction of metrics without a definition. Values within `tolerance` do not contradict each other. Only `accepted`
    definitions count: a submitter chooses the commit, and so could turn the direction round."""

    best: bool = False
    every_metric: bool = False
    rank_from: Tier = "verified"
    stated: Mapping[str, Direction] = {}
    tolerance: Tolerance = EXACTLY
    accepted: AcceptedDefinitions = AcceptedDefinitions()


class TableSubject(Struct, frozen=True, order=True):
    """The subject of a table. `direction` is the better direction, by the `eval.yaml` of each row's commit."""

    benchmark: str
    task: str
    metric: str
    slice: str
    subset: str
    normalization: str
    direction: Direction


class Setting(Struct, frozen=True, order=True):
    """The circumstances in which rows of one table may differ; compare rows of two settings with care."""

    framework: str
    major: str
    selection: str
    completeness: str


class BoardRow(Struct, frozen=True):
    """A row of a table. `rank` is one more than the number of other models with a better ranked row, so equal values
    have equal ranks; None if the row has no rank. `rank_in_setting` is the same among rows of its setting; `setting` is
    an index in the table's settings. The row was chosen from `chosen_from` results of its model, setting and kind of
    evidence. `contradicted`: verified results of the same commits and setting have other values, and each has a row."""

    rank: int | None
    rank_in_setting: int | None
    setting: int
    value: float
    chosen_from: int
    contradicted: bool
    entry: BoardEntry


class BoardTable(Struct, frozen=True):
    """A table in rank order. If the better direction is unknown, it has no ranks and is sorted by model name.
    `primary`: a definition names this metric as the benchmark's primary one. `title` and `unit` come from the
    definition."""

    subject: TableSubject
    primary: bool
    title: str
    unit: str
    settings: tuple[Setting, ...]
    benchmark_revisions: tuple[str, ...]
    rows: tuple[BoardRow, ...]


class Leaderboard(Struct, frozen=True):
    """A leaderboard. `refuted` entries and unreadable files are separate, with reasons. `by_tier` counts all entries,
    `by_received` the verified ones by the source of the time of receipt (check 5)."""

    version: Literal[1]
    basis: Basis
    chosen: Literal["newest", "best"]
    rank_from: Tier
    tables: tuple[BoardTable, ...]
    refuted: tuple[BoardEntry, ...]
    unread: tuple[Unread, ...]
    by_tier: Mapping[str, int]
    by_received: Mapping[str, int]


def rank(entries: Sequence[BoardEntry], definitions: Definitions, basis: Basis, options: RankOptions) -> Leaderboard:
    """Return the leaderboard of these entries, without unreadable files."""
    refuted = tuple(entry for entry in entries if entry.tier == "refuted")
    return Leaderboard(
        BOARD_VERSION, basis, "best" if options.best else "newest", options.rank_from,
        tuple(_tables(entries, definitions, options, basis.judged_at)), refuted, (),
        dict(Counter(entry.tier for entry in entries)),
        dict(Counter(entry.received for entry in entries if entry.strength >= RANKS["verified"])),
    )  # fmt: skip


# -- which table -------------------------------------------------------------------------------------------------------


class _Candidate(Struct, frozen=True):
    """A number of an entry that may get a row. `when` is None if the file states a time in the future."""

    entry: BoardEntry
    value: float
    setting: Setting
    when: int | None

    @property
    def age(self) -> tuple[int, str, str]:
        """Sort key with the newest last; ties have a fixed order."""
        return (-1 if self.when is None else self.when), self.entry.file, self.entry.pointer


class _Defined(Struct, frozen=True):
    """The definition of a metric at a row's commit. `listed`: it gets a table."""

    direction: Direction = "unknown"
    primary: bool = False
    title: str = ""
    unit: str = ""
    listed: bool = True


def _tables(
    entries: Iterable[BoardEntry], definitions: Definitions, options: RankOptions, now: int
) -> Iterator[BoardTable]:
    drafts: dict[TableSubject, tuple[_Defined, list[_Candidate]]] = {}
    for entry in entries:
        if entry.tier == "refuted":
            continue
        named = entry.benchmark, entry.benchmark_revision
        definition = definitions.get(named) if options.accepted.accept(*named) else None
        for score in entry.scores:
            if (defined := _defined(definition, entry.task, score, options)).listed:
                subject = TableSubject(
                    entry.benchmark, entry.task, score.metric, score.slice, entry.subset, entry.normalization,
                    defined.direction,
                )  # fmt: skip
                drafts.setdefault(subject, (defined, []))[1].append(_candidate(entry, score, now))
    for subject in sorted(drafts):
        yield _table(subject, *drafts[subject], options)


def _defined(definition: Benchmark | None, task: str, score: BoardScore, options: RankOptions) -> _Defined:
    stated = options.stated.get(score.metric or NOT_NAMED, "unknown")
    known = definition if definition is not None and task in definition.task_ids else None
    metric = next((one for one in known.metrics if one.id == score.metric), None) if known else None
    if known is None or metric is None:
        return _Defined(stated)
    primary = known.primary == metric.id
    if not (primary or known.primary is None or options.every_metric):
        return _Defined(listed=False)
    better = metric.higher_is_better
    direction: Direction = stated if better is UNSET else "higher" if better else "lower"
    title, unit = ("" if text is UNSET else text for text in (metric.display_name, metric.unit))
    return _Defined(direction, primary, title, unit)


def _candidate(entry: BoardEntry, score: BoardScore, now: int) -> _Candidate:
    setting = Setting(entry.framework, major_of(entry.framework_version), score.selection, entry.completeness)
    when = entry.when if entry.when is not None and entry.when <= now + _LEEWAY_S else None
    return _Candidate(entry, score.value, setting, when)


def major_of(version: str) -> str:
    """Return the major version, the part before the first dot."""
    found = re.match(r"v?([0-9]+)(?:\.|$)", version)
    return found[1] if found else version


# -- which rows --------------------------------------------------------------------------------------------------------


def _table(
    subject: TableSubject, defined: _Defined, candidates: Sequence[_Candidate], options: RankOptions
) -> BoardTable:
    settings = tuple(sorted({one.setting for one in candidates}))
    groups: defaultdict[tuple[str, Setting, int], list[_Candidate]] = defaultdict(list)
    for one in candidates:
        groups[one.entry.repo, one.setting, _kind(one.entry)].append(one)
    rows = [row for group in groups.values() for row in _chosen(group, subject, settings, options)]
    revisions = tuple(sorted({row.entry.benchmark_revision for row in rows}))
    members = subject, defined.primary, defined.title, defined.unit, settings, revisions
    return BoardTable(*members, tuple(_ranked(rows, subject.direction, RANKS[options.rank_from])))


_REST, _SIGNED, _VERIFIED = range(3)  # results of one kind never replace those of another


def _kind(entry: BoardEntry) -> int:
    if entry.strength >= RANKS["verified"]:
        return _VERIFIED
    return _SIGNED if entry.tier == "signed" else _REST


def _chosen(
    group: Sequence[_Candidate], subject: TableSubject, settings: Sequence[Setting], options: RankOptions
) -> Iterator[BoardRow]:
    """Yield the row of a model, and a row for each verified result that contradicts it."""
    results = _without_copies(group)
    newest = max(results, key=lambda one: one.age)
    first = _strongest(_best(results, subject.direction) if options.best else newest, results, subject.metric, options)
    others = _contradicting(first, results, subject.metric, options) if _kind(first.entry) == _VERIFIED else []
    for one in (first, *others):
        setting = settings.index(one.setting)
        yield BoardRow(None, None, setting, one.value, len(results), bool(others), one.entry)


def _without_copies(group: Sequence[_Candidate]) -> list[_Candidate]:
    """Remove further copies of one signed result: they do not show further runs."""
    kept: dict[object, _Candidate] = {}
    for number, one in enumerate(group):
        kept.setdefault((one.entry.token_digest, one.value) if one.entry.token_digest else number, one)
    return list(kept.values())


def _best(results: Sequence[_Candidate], direction: Direction) -> _Candidate:
    if direction == "unknown":
        return max(results, key=lambda one: one.age)
    sign = 1 if direction == "higher" else -1
    return max(results, key=lambda one: (sign * one.value, one.age))


def _strongest(first: _Candidate, results: Sequence[_Candidate], metric: str, options: RankOptions) -> _Candidate:
    """Return the result with the strongest evidence among those of the same commits that agree with the first. A
    reproduction is newer than its original, and would hide it."""
    same = (one for one in results if _commits(one.entry) == _commits(first.entry))
    agreeing = (one for one in same if options.tolerance.agree(metric, first.value, one.value))
    return max(agreeing, key=lambda one: (one.entry.strength, one.age))


def _contradicting(
    first: _Candidate, results: Sequence[_Candidate], metric: str, options: RankOptions
) -> list[_Candidate]:
    """Return the verified results of the same commits with other values: the newest of each value."""
    found: dict[float, _Candidate] = {}
    for one in sorted(results, key=lambda one: one.age, reverse=True):
        same = _commits(one.entry) == _commits(first.entry)
        if same and not options.tolerance.agree(metric, first.value, one.value):
            found.setdefault(one.value, one)
    return list(found.values())


def _commits(entry: BoardEntry) -> tuple[str, str]:
    return entry.model_revision, entry.benchmark_revision


# -- in which order ----------------------------------------------------------------------------------------------------


def _ranked(rows: Sequence[BoardRow], direction: Direction, floor: int) -> list[BoardRow]:
    if direction == "unknown":
        return sorted(rows, key=lambda row: (row.entry.repo, -row.entry.strength, row.setting, row.value))
    sign = -1 if direction == "higher" else 1
    ordered = sorted(rows, key=lambda row: (sign * row.value, -row.entry.strength, row.entry.repo, row.setting))
    in_all = _ranks(ordered, floor, lambda _row: 0)
    in_setting = _ranks(ordered, floor, lambda row: row.setting)
    ranks = zip(ordered, in_all, in_setting, strict=True)
    return [replace(row, rank=whole, rank_in_setting=own) for row, whole, own in ranks]


def _ranks(ordered: Sequence[BoardRow], floor: int, within: Callable[[BoardRow], int]) -> Iterator[int | None]:
    """Yield the rank of each row among those of one kind. It counts models, so many rows of one model do not push
    others down."""
    better: defaultdict[int, set[str]] = defaultdict(set)
    equal: defaultdict[int, tuple[float | None, set[str]]] = defaultdict(lambda: (None, set()))
    for row in ordered:
        if row.entry.strength < floor:
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
