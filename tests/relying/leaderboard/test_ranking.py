"""The order of a leaderboard: ties, newest and best, settings, and that no row replaces another party's."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from issuer.relying.leaderboard.page import as_html
from issuer.relying.leaderboard.ranking import BoardEntry, BoardScore, major_of, moment_of
from issuer.relying.leaderboard.size import fit
from issuer.relying.leaderboard.text_formats import as_csv, as_markdown, notes_of, titles_of
from issuer.results.benchmark import BenchmarkMetric
from issuer.verify.reproduction import Tolerance
from tests.support import make
from tests.support.boards import DEFINITIONS, REVISION, board, entry, only, ranks, stated_definition

OLD = make.NOW - 86_400
SIGNED = {"tier": "signed"}


def scored(value: float, metric: str = "accuracy", of_slice: str = "", selection: str = "") -> dict[str, Any]:
    return {"scores": (BoardScore(metric, of_slice, value, selection),)}


def test_equal_values_have_equal_ranks_and_the_next_counts_them_all() -> None:
    made = board(entry("a/a", 3), entry("b/b", 2), entry("c/c", 2), entry("d/d", 1))
    assert ranks(only(made).rows) == [(1, "a/a", 3), (2, "b/b", 2), (2, "c/c", 2), (4, "d/d", 1)]
    many = [entry("a/a", 10 + number, when=OLD + number) for number in range(5)]
    rows = only(board(*many, entry("b/b", 1))).rows
    assert [row.rank for row in rows] == [1, 1, 1, 1, 1, 2], "many rows of a model push nobody further down than one"


def test_direction_and_primary_metric_are_the_definition_s_at_the_row_s_commit() -> None:
    lower = stated_definition(make.BENCHMARK_TEXT.replace("higher_is_better: true", "higher_is_better: false"))
    table = only(board(entry("a/a", 3), entry("b/b", 2), definitions=lower))
    assert (table.primary, ranks(table.rows)) == (True, [(1, "b/b", 2), (2, "a/a", 3)])
    other = "a" * 40
    both = {**DEFINITIONS, (make.BENCHMARK, other): lower[make.BENCHMARK, REVISION]}
    made = board(entry("a/a", 3), entry("b/b", 2, benchmark_revision=other), definitions=both)
    assert [table.subject.direction for table in made.tables] == ["higher", "lower"]
    older = entry(value=1, when=OLD, model_revision="a" * 40)
    (row,) = only(board(older, entry(value=2), definitions=lower, best=True)).rows
    assert row.value == 1, "the best is the least"


def test_other_metrics_than_the_primary_one_are_listed_on_demand() -> None:
    result = entry(scores=(BoardScore("accuracy", "", 1, ""), BoardScore("pass_at_5", "", 2, "")))
    assert only(board(result)).subject.metric == "accuracy"
    named = [(table.subject.metric, table.primary) for table in board(result, every_metric=True).tables]
    assert named == [("accuracy", True), ("pass_at_5", False)]


def test_a_metric_without_a_definition_has_ranks_only_by_a_stated_direction() -> None:
    unknown: list[dict[str, Any]] = [
        {"benchmark_revision": "b" * 40}, {"task": "easy"}, scored(1, "accuracy_of_mine"), scored(1, ""),
    ]  # fmt: skip
    for members in unknown:
        table = only(board(entry("a/a", 1, **members), entry("b/b", 1, **members)))
        assert (table.subject.direction, [row.rank for row in table.rows]) == ("unknown", [None, None])
        stated = {table.subject.metric or "not named": "lower"}
        ranked = only(board(entry("a/a", 1, **members), stated=stated))
        assert (ranked.subject.direction, ranked.primary, [row.rank for row in ranked.rows]) == ("lower", False, [1])
    assert only(board(entry(), stated={"accuracy": "lower"})).subject.direction == "higher", "the definition decides"


def test_the_newest_result_of_a_model_counts_with_the_number_of_all_runs() -> None:
    made = board(entry(value=3, when=OLD, model_revision="a" * 40), entry(value=2))
    (row,) = only(made).rows
    assert (row.value, row.chosen_from, row.contradicted) == (2, 2, False)
    (row,) = only(board(entry(value=3, when=OLD, model_revision="a" * 40), entry(value=2), best=True)).rows
    assert (row.value, row.chosen_from) == (3, 2)
    assert [row.chosen_from for row in only(board(entry(), entry(pointer="/1"))).rows] == [1], "a copy is no other run"
    bare: dict[str, Any] = {"tier": "self-reported", "token_digest": ""}
    assert [row.chosen_from for row in only(board(entry(**bare), entry(**bare, pointer="/1"))).rows] == [2]
    made = board(entry(value=1, **bare), entry(value=2, when=make.NOW + 86_400, **bare))
    assert [row.value for row in only(made).rows] == [1], "a date in the future makes a row no newer"


@pytest.mark.parametrize("best", [False, True])
def test_a_reproduction_does_not_hide_what_it_reproduces(best: bool) -> None:
    first = entry(value=1, when=OLD, tier="reproduced")
    near = board(first, entry(value=1.25), best=best, tolerance=Tolerance({"accuracy": 0.5}))
    for made in (board(first, entry(token_digest="x"), best=best), near):
        assert [(row.entry.tier, row.value, row.chosen_from) for row in only(made).rows] == [("reproduced", 1, 2)]
    later = board(first, entry(model_revision="a" * 40, token_digest="x"))
    assert [row.entry.tier for row in only(later).rows] == ["verified"], "of another commit"


def test_verified_results_that_contradict_are_all_listed() -> None:
    made = board(entry(value=1, when=OLD), entry(value=2), entry(value=2, when=OLD - 1, token_digest="x"))
    rows = only(made).rows
    assert [(row.value, row.contradicted, row.chosen_from) for row in rows] == [(2, True, 3), (1, True, 3)]
    near = board(entry(value=1, when=OLD), entry(value=1.25), tolerance=Tolerance({"accuracy": 0.5}))
    assert [(row.value, row.contradicted) for row in only(near).rows] == [(1.25, False)]
    unsigned: dict[str, Any] = {"tier": "self-reported", "token_digest": ""}
    assert len(only(board(entry(value=1, when=OLD, **unsigned), entry(value=2, **unsigned))).rows) == 1


@pytest.mark.parametrize("tier", ["self-reported", "undecided", "signed"])
def test_what_is_not_verified_is_seen_without_a_rank_and_takes_nobody_s_place(tier: str) -> None:
    loud = entry("evil/model", 100, tier=tier)
    own = entry("a/a", 99, tier=tier, when=make.NOW + 1)
    made = board(entry("a/a", 2), entry("b/b", 1), loud, own)
    rows = [(None, "evil/model", 100), (None, "a/a", 99), (1, "a/a", 2), (2, "b/b", 1)]
    assert ranks(only(made).rows) == rows
    everybody = board(entry("a/a", 2), loud, rank_from="self-reported")
    assert ranks(only(everybody).rows) == [(1, "evil/model", 100), (2, "a/a", 2)]


def test_refuted_entries_are_apart_and_change_nothing() -> None:
    forged = entry("a/a", 0, tier="refuted", when=make.NOW + 9)
    made = board(entry("a/a", 2), forged, best=True)
    assert (made.refuted, only(made)) == ((forged,), only(board(entry("a/a", 2), best=True)))
    assert made.by_tier == {"verified": 1, "refuted": 1}


def test_slices_have_separate_tables_and_settings_separate_marks_and_ranks() -> None:
    each = [entry(), entry(**scored(1, of_slice="hard")), entry(subset="first 100"), entry(normalization='{"x":1}')]
    assert len(board(*each, every_metric=True).tables) == 4
    made = board(
        entry("a/a", 4), entry("b/b", 3, framework="lm-eval"), entry("c/c", 2, framework_version="1.0"),
        entry("d/d", **scored(1, selection="match/accuracy")), entry("e/e", 0.5, completeness="partial"),
        entry("f/f", 0.25, framework_version="0.9"),
    )  # fmt: skip
    table = only(made)
    assert len(table.settings) == 5
    assert [row.rank for row in table.rows] == [1, 2, 3, 4, 5, 6]
    assert [row.rank_in_setting for row in table.rows] == [1, 1, 1, 1, 1, 2]
    assert [table.settings[row.setting].framework for row in table.rows][1] == "lm-eval"
    made = board(entry("a/a", 4, when=OLD), entry("a/a", 3, framework="lm-eval"))
    assert ranks(only(made).rows) == [(1, "a/a", 4), (1, "a/a", 3)], "a run of another setting replaces no row"


def test_numbers_of_another_scale_value_type_or_definition_share_no_table() -> None:
    other = "a" * 40
    edited = stated_definition(make.BENCHMARK_TEXT.replace('{id: "gsm8k",', '{id: "gsm8k", split: "train",'))
    both = {**DEFINITIONS, (make.BENCHMARK, other): edited[make.BENCHMARK, REVISION]}
    as_percentage = {"scores": (BoardScore("accuracy", "", 61, "", "percentage"),)}
    each: list[dict[str, Any]] = [
        {}, as_percentage, {"normalization": '{"scale":"percent"}'}, {"subset": "hard"}, {"benchmark_revision": other},
        {"benchmark_revision": "c" * 40}, {"benchmark_revision": "d" * 40}, scored(1, of_slice="hard"),
    ]  # fmt: skip
    made = board(*(entry("a/a", **members) for members in each), definitions=both, every_metric=True)
    assert [len(table.rows) for table in made.tables] == [1] * len(each)
    assert len(set(titles_of(made))) == len(each)


def test_a_slice_is_primary_only_if_the_definition_names_it() -> None:
    sliced = stated_definition(make.BENCHMARK_TEXT.replace("primary: true", 'primary: true, slice: "all"'))
    whole, every = entry(**scored(1)), entry(**scored(1, of_slice="all"))
    for definitions, of_slice in ((DEFINITIONS, ""), (sliced, "all")):
        table = only(board(whole, every, definitions=definitions))
        assert (table.subject.slice, table.primary, table.other_slice) == (of_slice, True, False)
        both = board(whole, every, definitions=definitions, every_metric=True).tables
        assert {table.subject.slice: (table.primary, table.other_slice) for table in both} == {
            of_slice: (True, False), "all" if not of_slice else "": (False, True),
        }  # fmt: skip


def test_a_result_of_few_samples_replaces_no_other_and_is_ranked_among_its_like() -> None:
    def of(samples: int | None) -> dict[str, Any]:
        return {"scores": (BoardScore("accuracy", "", 1 - (samples or 5000) / 9999, "", "", samples),)}

    made = only(board(entry("a/a", **of(1319), when=OLD), entry("a/a", **of(10)), entry("b/b", **of(None))))
    rows = [(row.entry.repo, row.samples, row.rank_in_setting, made.settings[row.setting].small) for row in made.rows]
    assert rows == [("a/a", 10, 1, True), ("a/a", 1319, 1, False), ("b/b", None, 2, False)]


def test_titles_differ_even_where_texts_of_strangers_look_the_same() -> None:
    same = "x", "x, slice y", "\u202e", "\\u202e", "a b", "a  b", f"a b, benchmark commit {REVISION[:12]}, table 2"
    made = board(*(entry(**scored(1, metric)) for metric in same), entry(**scored(1, "x", "y")), definitions={})
    titles = titles_of(made)
    assert len(titles) == len(set(titles)) == len(same) + 1


def test_rows_of_commits_with_one_definition_of_the_task_share_a_table_with_a_note() -> None:
    other = "a" * 40
    renamed = stated_definition(make.BENCHMARK_TEXT.replace("Grade school", "School"))
    both = {**DEFINITIONS, (make.BENCHMARK, other): renamed[make.BENCHMARK, REVISION]}
    made = board(entry("a/a", 2), entry("b/b", 1, benchmark_revision=other), definitions=both)
    assert only(made).benchmark_revisions == (REVISION, other)
    assert "Rows are of 2 commits of the benchmark." in [note.text for note in notes_of(only(made), made)]
    one = board(entry("a/a", 2), entry("b/b", 1))
    assert not any("commits" in note.text for note in notes_of(only(one), one))


def test_dates_and_major_versions_are_read_from_text() -> None:
    moments = {"1970-01-02": 86_400, "1970-01-01T01:00:00+01:00": 0, "1970-01-01T00:00:01Z": 1, "soon": None, "": None}
    majors = {"0.3.285": "0", "v2": "2", "2024-1": "2024-1", "": ""}
    assert {text: moment_of(text) for text in moments} == moments
    assert {text: major_of(text) for text in majors} == majors


class Name(str):
    """A name whose comparisons can be counted."""

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        return str.__lt__(self, other)

    __hash__ = str.__hash__


def lines(work: Callable[[], object]) -> int:
    """Return how many lines of Python run, each turn of a loop included."""
    count = 0

    def see(*_: object) -> Any:
        nonlocal count
        count += 1
        return see

    before = sys.gettrace()
    sys.settrace(see)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("kind", ["settings", "metrics", "models", "revisions", "results"])
def test_twice_the_input_takes_twice_the_steps(kind: str) -> None:
    def of(number: int) -> BoardEntry:
        varied: dict[str, dict[str, Any]] = {
            "settings": {"framework": f"f{number}"}, "metrics": scored(1, f"m{number}"), "models": {"repo": f"a/{number}"},
            "revisions": {"benchmark_revision": f"{number}"},
            "results": {"repo": "a/a", "tier": "verified", "token_digest": f"{number}"},
        }  # fmt: skip
        usual: dict[str, Any] = {"repo": f"a/{number // 100}", "value": number, "pointer": f"/{number}", **SIGNED}
        return entry(**{**usual, **varied[kind]})

    def steps(count: int) -> list[int]:
        """Return how many lines run in each step, comparisons of a framework's name included."""
        entries = [of(number) for number in range(count)]
        named = [replace(one, framework=Name(one.framework)) for one in entries]
        metrics = tuple(BenchmarkMetric(f"m{number}") for number in range(count))
        definitions = {(make.BENCHMARK, REVISION): replace(make.benchmark(), metrics=metrics)}
        made, hub = board(*entries), "https://hub.example"
        work: list[Callable[[], object]] = [partial(board, *named, definitions=definitions, every_metric=True)]
        work += [partial(write, made, hub) for write in (as_csv, as_markdown, as_html)]
        work.append(partial(fit, made, 10**6))
        return [lines(step) for step in work]

    for once, twice in zip(steps(150), steps(300), strict=True):
        assert twice < 2.5 * once
