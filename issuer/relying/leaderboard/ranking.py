"""The ranking of a leaderboard: tables from judged entries and the benchmarks' definitions. Pure.

A table has numbers of one kind: one benchmark, task, metric, slice, `benchmark_subset`, `normalization`, value type and
definition. It may mix frameworks, major versions, selections, completeness, and small and large samples. Each of its
rows has the mark of its setting, and is also ranked within the setting. A stranger's pull request cannot replace
another row: for each model and setting, verified, signed and other results are chosen separately, and refuted entries
are in no table. Text of a file comes from a stranger, whatever the tier: writers escape it. The time is linear in the
number of scores, apart from sorting.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from issuer.errors import InputError
from issuer.relying.verifier import Basis
from issuer.results.benchmark import AcceptedDefinitions, Benchmark, BenchmarkMetric
from issuer.verify.report import AtFrom, Tier
from issuer.verify.reproduction import EXACTLY, Tolerance
from issuer.verify.tiers import RANKS

# With fewer samples than about this, chance alone can move a share of one half by more than 10 points (95 %):
# 1.96 * sqrt(0.25 / 97) = 0.0995.
SMALL_SAMPLE = 100
# The rows of one repository. A model that takes part in every benchmark needs some hundred. Those without a good token
# have a lower bound, because anyone can write them: 2,000 hostile repositories then fit in 400 MiB of memory.
MAX_REPO_ROWS = 256
MAX_UNSIGNED_ROWS = 64


class BoardScore(Struct, frozen=True, omit_defaults=True):
    """One number of an entry. `metric` is "" for the lone value of the live Hub's entries, which has no metric name.
    `samples` is None if the file does not say how many there were."""

    metric: str
    slice: str
    value: float
    selection: str = ""
    value_type: str = ""
    samples: int | None = None


class BoardEntry(Struct, frozen=True, tag="entry", omit_defaults=True):
    """A judged entry. `file` and `pointer` are its place; `repo` is the model's repository. `when` (Unix seconds) is
    the token's `iat`, which its issuer vouches for; for an unsigned entry, the date in the file or None. `received` is
    the source of the time of receipt, and `freshness` the evidence of check 5. `issuer`, `integration`, `run_url`,
    `issued_at` and `attempt` are the token's; empty or None unless a good signature covers the file's content. A row's
    entry lacks what its table and row say: `scores`, `benchmark`, `task`, `subset` and `normalization`."""

    file: str
    pointer: str
    repo: str
    tier: Tier
    tier_reason: str
    received: AtFrom
    freshness: str
    model_revision: str = ""
    benchmark: str = ""
    benchmark_revision: str = ""
    task: str = ""
    scores: tuple[BoardScore, ...] = ()
    framework: str = ""
    framework_version: str = ""
    completeness: str = ""
    subset: str = ""
    normalization: str = ""
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
    """The subject of a table. `direction` is the better direction, by the `eval.yaml` of each row's commit.
    `definition` is the digest of what that file says about the task and the metric, or, without such a file, the
    benchmark's commit."""

    benchmark: str
    task: str
    metric: str
    slice: str
    subset: str
    normalization: str
    value_type: str
    direction: Direction
    definition: str


class Setting(Struct, frozen=True, order=True):
    """The circumstances in which rows of one table may differ; compare rows of two settings with care. `small`: the
    result is of fewer than SMALL_SAMPLE samples."""

    framework: str
    major: str
    selection: str
    completeness: str
    small: bool


class BoardRow(Struct, frozen=True):
    """A row of a table. `rank` is one more than the number of other models with a better ranked row, so equal values
    have equal ranks; None if the row has no rank. `rank_in_setting` is the same among rows of its setting; `setting` is
    an index in the table's settings. The row was chosen from `chosen_from` results of its model, setting and kind of
    evidence. `contradicted`: verified results of the same commits and setting have other values, and each has a row."""

    rank: int | None
    rank_in_setting: int | None
    setting: int
    value: float
    samples: int | None
    chosen_from: int
    contradicted: bool
    entry: BoardEntry


class BoardTable(Struct, frozen=True):
    """A table in rank order. If the better direction is unknown, it has no ranks and is sorted by model name.
    `primary`: the definition names this metric with this slice as the benchmark's primary one. `other_slice`: it names
    the metric, but with other slices. `title` and `unit` come from the definition."""

    subject: TableSubject
    primary: bool
    other_slice: bool
    title: str
    unit: str
    settings: tuple[Setting, ...]
    benchmark_revisions: tuple[str, ...]
    rows: tuple[BoardRow, ...]


class Leaderboard(Struct, frozen=True):
    """A leaderboard. `refuted` entries and unreadable files are separate, with reasons. `by_tier` counts all entries,
    `by_received` the verified ones by the source of the time of receipt (check 5), and `left_out` the rows, refuted
    entries and unreadable files that are not listed because there are too many."""

    version: Literal[1]
    basis: Basis
    chosen: Literal["newest", "best"]
    rank_from: Tier
    tables: tuple[BoardTable, ...]
    refuted: tuple[BoardEntry, ...]
    unread: tuple[Unread, ...]
    by_tier: Mapping[str, int]
    by_received: Mapping[str, int]
    left_out: Mapping[str, int] = {}


def rank(entries: Sequence[BoardEntry], definitions: Definitions, basis: Basis, options: RankOptions) -> Leaderboard:
    """Return the leaderboard of these entries, without unreadable files."""
    refuted = tuple(entry for entry in entries if entry.tier == "refuted")
    tables, left_out = _tables(entries, _Definitions(definitions, options), options, basis.judged_at)
    return Leaderboard(
        BOARD_VERSION, basis, "best" if options.best else "newest", options.rank_from, tables, refuted, (),
        dict(Counter(entry.tier for entry in entries)),
        dict(Counter(entry.received for entry in entries if entry.strength >= RANKS["verified"])),
        {"rows": left_out} if left_out else {},
    )  # fmt: skip


# -- which definition --------------------------------------------------------------------------------------------------


class _Defined(Struct, frozen=True):
    """A metric and its slice, as the definition at a row's commit describes them. `listed`: it gets a table."""

    direction: Direction
    definition: str
    primary: bool = False
    other_slice: bool = False
    title: str = ""
    unit: str = ""
    listed: bool = True


class _Definition:
    """An index of a benchmark's definition, which may have thousands of tasks and metrics. Of equal ids, the first
    counts."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._tasks = {task.id: _digest(task) for task in reversed(benchmark.tasks)}
        self._metrics = {(one.id, one.slice or ""): one for one in reversed(benchmark.metrics)}
        self._by_id = {one.id: one for one in reversed(benchmark.metrics)}
        self.primary = benchmark.primary_metric

    def find(self, task: str, score: BoardScore) -> tuple[str, BenchmarkMetric | None, bool]:
        """Return the digest of its members for a task and a metric ("" without the task), the metric or None, and
        whether it names the metric with this slice."""
        if task not in self._tasks:
            return "", None, False
        exact = self._metrics.get((score.metric, score.slice))
        metric = exact or self._by_id.get(score.metric)
        said = self._tasks[task], metric, exact is not None, metric is self.primary
        return f"sha256:{_digest(said)}", metric, exact is not None


def _digest(value: object) -> str:
    return sha256(msgspec.json.encode(value)).hexdigest()


class _Definitions:
    """The given definitions, each indexed once, and the rules about tables and directions."""

    def __init__(self, given: Definitions, options: RankOptions) -> None:
        self._given, self._options = given, options
        self._known: dict[tuple[str, str], _Definition] = {}

    def find(self, entry: BoardEntry, score: BoardScore) -> _Defined:
        """Return what the definition at the entry's commit says about a score."""
        stated = self._options.stated.get(score.metric or NOT_NAMED, "unknown")
        named = entry.benchmark, entry.benchmark_revision
        known = self._index(named) if self._options.accepted.accept(*named) else None
        definition, metric, has_slice = known.find(entry.task, score) if known else ("", None, False)
        if known is None or metric is None:
            return _Defined(stated, definition or entry.benchmark_revision)
        primary = has_slice and metric is known.primary
        if not (primary or known.primary is None or self._options.every_metric):
            return _Defined(stated, definition, listed=False)
        better = metric.higher_is_better
        direction: Direction = stated if better is UNSET else "higher" if better else "lower"
        title, unit = ("" if text is UNSET else text for text in (metric.display_name, metric.unit))
        return _Defined(direction, definition, primary, not has_slice, title, unit)

    def _index(self, key: tuple[str, str]) -> _Definition | None:
        if key not in self._known and (found := self._given.get(key)) is not None:
            self._known[key] = _Definition(found)
        return self._known.get(key)


# -- which table -------------------------------------------------------------------------------------------------------


class _Candidate(Struct, frozen=True):
    """A number of an entry that may get a row. `when` is None if the file states a time in the future."""

    entry: BoardEntry
    value: float
    samples: int | None
    setting: Setting
    when: int | None

    @property
    def age(self) -> tuple[int, str, str]:
        """Sort key with the newest last; ties have a fixed order."""
        return (-1 if self.when is None else self.when), self.entry.file, self.entry.pointer


class _Chosen(Struct, frozen=True):
    """A candidate that gets a row."""

    candidate: _Candidate
    chosen_from: int
    contradicted: bool


# Results of one model, of which one gets a row: for a table, in a setting, with one kind of evidence.
_Group = tuple[TableSubject, Setting, int]
_REST, _SIGNED, _VERIFIED = range(3)  # results of one kind never replace those of another


def _tables(
    entries: Iterable[BoardEntry], definitions: _Definitions, options: RankOptions, now: int
) -> tuple[tuple[BoardTable, ...], int]:
    """Return the tables, and the number of rows that repositories have beyond their bounds."""
    repos: defaultdict[str, list[BoardEntry]] = defaultdict(list)
    for entry in entries:
        if entry.tier != "refuted":
            repos[entry.repo].append(entry)
    drafts: dict[TableSubject, tuple[_Defined, list[_Chosen]]] = {}
    settings: dict[Setting, Setting] = {}  # many rows share one
    left_out = 0
    for results in repos.values():
        groups: defaultdict[_Group, list[_Candidate]] = defaultdict(list)
        defined: dict[TableSubject, _Defined] = {}
        for subject, found, one in _candidates(results, definitions, now):
            setting = settings.setdefault(one.setting, one.setting)
            defined.setdefault(subject, found)
            groups[subject, setting, _kind(one.entry)].append(replace(one, setting=setting))
        # The strongest evidence first, then primary metrics.
        ordered = sorted(groups, key=lambda group: (group[2], defined[group[0]].primary), reverse=True)
        chosen = [(group, one) for group in ordered for one in _choose(groups[group], group[0], options)]
        unsigned = sum(kind == _REST for (_, _, kind), _ in chosen)
        most = min(MAX_REPO_ROWS, len(chosen) - max(0, unsigned - MAX_UNSIGNED_ROWS))
        left_out += len(chosen) - most
        for (subject, _, _), row in chosen[:most]:
            drafts.setdefault(subject, (defined[subject], []))[1].append(row)
    return tuple(_table(subject, *drafts.pop(subject), options) for subject in sorted(drafts)), left_out


def _candidates(
    results: Iterable[BoardEntry], definitions: _Definitions, now: int
) -> Iterator[tuple[TableSubject, _Defined, _Candidate]]:
    """Yield each number that gets a table, with the table's subject."""
    for entry in results:
        when = entry.when if entry.when is not None and entry.when <= now + _LEEWAY_S else None
        rest = replace(entry, scores=(), benchmark="", task="", subset="", normalization="")
        for score in entry.scores:
            if (defined := definitions.find(entry, score)).listed:
                candidate = _Candidate(rest, score.value, score.samples, _setting(entry, score), when)
                yield _subject(entry, score, defined), defined, candidate


def _subject(entry: BoardEntry, score: BoardScore, defined: _Defined) -> TableSubject:
    return TableSubject(
        entry.benchmark, entry.task, score.metric, score.slice, entry.subset, entry.normalization, score.value_type,
        defined.direction, defined.definition,
    )  # fmt: skip


def _setting(entry: BoardEntry, score: BoardScore) -> Setting:
    small = score.samples is not None and score.samples < SMALL_SAMPLE
    return Setting(entry.framework, major_of(entry.framework_version), score.selection, entry.completeness, small)


def major_of(version: str) -> str:
    """Return the major version, the part before the first dot."""
    found = re.match(r"v?([0-9]+)(?:\.|$)", version)
    return found[1] if found else version


# -- which rows --------------------------------------------------------------------------------------------------------


def _table(subject: TableSubject, defined: _Defined, chosen: Sequence[_Chosen], options: RankOptions) -> BoardTable:
    settings = tuple(sorted({one.candidate.setting for one in chosen}))
    numbers = {setting: number for number, setting in enumerate(settings)}
    rows = [_row(one, numbers[one.candidate.setting]) for one in chosen]
    revisions = tuple(sorted({row.entry.benchmark_revision for row in rows}))
    members = defined.primary, defined.other_slice, defined.title, defined.unit, settings, revisions
    return BoardTable(subject, *members, tuple(_ranked(rows, subject.direction, RANKS[options.rank_from])))


def _row(chosen: _Chosen, setting: int) -> BoardRow:
    one = chosen.candidate
    return BoardRow(None, None, setting, one.value, one.samples, chosen.chosen_from, chosen.contradicted, one.entry)


def _kind(entry: BoardEntry) -> int:
    if entry.strength >= RANKS["verified"]:
        return _VERIFIED
    return _SIGNED if entry.tier == "signed" else _REST


def _choose(group: Sequence[_Candidate], subject: TableSubject, options: RankOptions) -> Iterator[_Chosen]:
    """Yield the result of a model that counts, and each verified one that contradicts it."""
    results = _without_copies(group)
    newest = max(results, key=lambda one: one.age)
    first = _strongest(_best(results, subject.direction) if options.best else newest, results, subject.metric, options)
    others = _contradicting(first, results, subject.metric, options) if _kind(first.entry) == _VERIFIED else []
    for one in (first, *others):
        yield _Chosen(one, len(results), bool(others))


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
