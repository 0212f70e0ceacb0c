"""What stands where in a leaderboard: pure, of listed entries and the benchmarks' definitions.

A table is for one benchmark, task, metric and slice, and for one `benchmark_subset` and `normalization`, which make
another measurement. Rows that another framework, major version, selection or completeness made stay in one table, each
with the mark of its setting, and are ranked once more within it. Nothing that anybody may write into a pull request
takes the place of another row: of a model and setting, what is verified, what is signed and what is neither are chosen
apart, and refuted entries are in no table.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import UNSET, Struct

from issuer.relying.basis import Basis
from issuer.relying.leaderboard.listed import Listed, Score, Unread
from issuer.results.benchmark import Benchmark
from issuer.verify.report import Tier
from issuer.verify.reproduction import EXACTLY, Tolerance
from issuer.verify.tiers import RANKS

BOARD_VERSION: Literal[1] = 1
NOT_NAMED = "not named"  # how a lone value's metric is called; no metric id has a space
_LEEWAY_S = 60

Direction = Literal["higher", "lower", "unknown"]
Definitions = Mapping[tuple[str, str], Benchmark]


class Asked(Struct, frozen=True):
    """How to rank. `best` takes the best result of a model instead of the newest, `every_metric` the metrics that are
    not primary too. A rank is for entries of the tier `rank_from` and those above. `stated` says for metrics that no
    definition at hand has which way is better. Values that differ by no more than `tolerance` do not contradict."""

    best: bool = False
    every_metric: bool = False
    rank_from: Tier = "verified"
    stated: Mapping[str, Direction] = {}
    tolerance: Tolerance = EXACTLY


class Subject(Struct, frozen=True, order=True):
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


class Row(Struct, frozen=True):
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
    entry: Listed


class Table(Struct, frozen=True):
    """A ranked table, best first; where the direction is not known, in the order of the models' names, without ranks.

    `primary`: a definition says that this is the benchmark's primary metric. `title` and `unit` are the definition's.
    """

    subject: Subject
    primary: bool
    title: str
    unit: str
    settings: tuple[Setting, ...]
    benchmark_revisions: tuple[str, ...]
    rows: tuple[Row, ...]


class Board(Struct, frozen=True):
    """A leaderboard. `refuted` entries and what could not be read stand apart, each with its reason. The counts are of
    all entries: by tier, and by how it is known when they were received (check 5)."""

    version: Literal[1]
    basis: Basis
    chosen: Literal["newest", "best"]
    rank_from: Tier
    tables: tuple[Table, ...]
    refuted: tuple[Listed, ...]
    unread: tuple[Unread, ...]
    by_tier: Mapping[str, int]
    by_received: Mapping[str, int]


def rank(
    entries: Sequence[Listed], unread: Sequence[Unread], definitions: Definitions, basis: Basis, asked: Asked
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

    entry: Listed
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


def _tables(entries: Iterable[Listed], definitions: Definitions, asked: Asked, now: int) -> Iterator[Table]:
    drafts: dict[Subject, _Draft] = {}
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


def _defined(definition: Benchmark | None, task: str, score: Score, asked: Asked) -> _Defined:
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


def _subject(entry: Listed, score: Score, direction: Direction) -> Subject:
    return Subject(
        entry.benchmark, entry.task, score.metric, score.slice, entry.subset, entry.normalization, direction
    )  # fmt: skip


def _candidate(entry: Listed, score: Score, now: int) -> _Candidate:
    setting = Setting(entry.framework, major_of(entry.framework_version), score.selection, entry.completeness)
    when = entry.when if entry.when is not None and entry.when <= now + _LEEWAY_S else None
    return _Candidate(entry, score.value, setting, when)


def major_of(version: str) -> str:
    """Return the major version: what stands before the first dot."""
    found = re.match(r"v?([0-9]+)(?:\.|$)", version)
    return found[1] if found else version


# -- which rows --------------------------------------------------------------------------------------------------------


def _table(subject: Subject, draft: _Draft, asked: Asked) -> Table:
    candidates = draft.candidates
    settings = tuple(sorted({one.setting for one in candidates}))
    groups: defaultdict[tuple[str, Setting, int], list[_Candidate]] = defaultdict(list)
    for one in candidates:
        groups[one.entry.repo, one.setting, _kind(one.entry)].append(one)
    rows = [row for group in groups.values() for row in _chosen(group, subject, settings, asked)]
    revisions = tuple(sorted({row.entry.benchmark_revision for row in rows}))
    members = subject, draft.primary, draft.title, draft.unit, settings, revisions
    return Table(*members, tuple(_ranked(rows, subject.direction, RANKS[asked.rank_from])))


_REST, _SIGNED, _VERIFIED = range(3)  # one of these never takes the place of another


def _kind(entry: Listed) -> int:
    if entry.standing >= RANKS["verified"]:
        return _VERIFIED
    return _SIGNED if entry.tier == "signed" else _REST


def _chosen(group: Sequence[_Candidate], subject: Subject, settings: Sequence[Setting], asked: Asked) -> Iterator[Row]:
    """Yield the row of a model, and a row of each verified result that contradicts it."""
    results = _without_copies(group)
    newest = max(results, key=lambda one: one.age)
    first = _strongest(_best(results, subject.direction) if asked.best else newest, results, subject.metric, asked)
    others = _contradicting(first, results, subject.metric, asked) if _kind(first.entry) == _VERIFIED else []
    for one in (first, *others):
        setting = settings.index(one.setting)
        yield Row(None, None, setting, one.value, len(results), bool(others), one.entry)


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


def _strongest(first: _Candidate, results: Sequence[_Candidate], metric: str, asked: Asked) -> _Candidate:
    """Return the result behind which most stands, of those of the same commits that agree with the first.

    A reproduction is newer than what it reproduces, and would hide it.
    """
    agreeing = [
        one
        for one in results
        if _commits(one.entry) == _commits(first.entry) and asked.tolerance.agree(metric, first.value, one.value)
    ]
    return max(agreeing, key=lambda one: (one.entry.standing, one.age))


def _contradicting(first: _Candidate, results: Sequence[_Candidate], metric: str, asked: Asked) -> list[_Candidate]:
    """Return what was verified of the same commits with another number: the newest of each."""
    found: dict[float, _Candidate] = {}
    for one in sorted(results, key=lambda one: one.age, reverse=True):
        same = _commits(one.entry) == _commits(first.entry)
        if same and not asked.tolerance.agree(metric, first.value, one.value):
            found.setdefault(one.value, one)
    return list(found.values())


def _commits(entry: Listed) -> tuple[str, str]:
    return entry.model_revision, entry.benchmark_revision


# -- in which order ----------------------------------------------------------------------------------------------------


def _ranked(rows: Sequence[Row], direction: Direction, floor: int) -> list[Row]:
    if direction == "unknown":
        return sorted(rows, key=lambda row: (row.entry.repo, -row.entry.standing, row.setting, row.value))
    sign = -1 if direction == "higher" else 1
    ordered = sorted(rows, key=lambda row: (sign * row.value, -row.entry.standing, row.entry.repo, row.setting))
    in_all = _ranks(ordered, floor, lambda _row: 0)
    in_setting = _ranks(ordered, floor, lambda row: row.setting)
    return [
        Row(whole, own, row.setting, row.value, row.chosen_from, row.contradicted, row.entry)
        for row, whole, own in zip(ordered, in_all, in_setting, strict=True)
    ]


def _ranks(ordered: Sequence[Row], floor: int, within: Callable[[Row], int]) -> Iterator[int | None]:
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
