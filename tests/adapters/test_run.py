"""Runs of every reader: scales, partial runs, mock models by name, and the selection of scores."""

import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from issuer.adapters import Run, RunText, Score, Supplied
from issuer.adapters.run import scaled
from issuer.codes import Code
from issuer.errors import Fault
from issuer.results.claims import Metric
from tests.support.runs import ALL, refusal

FAULT = Fault(Code.FILE_RULE, "/limit", "the run was limited to 4 samples")
SUPPLIED = replace(ALL, framework_name="lm-eval")


def run(*scores: Score, **members: Any) -> Run:
    scores = scores or (Score(scorer="none", metric="acc", value=0.28, pointer="/acc"),)
    return Run(**{"name": "run.json", "scores": scores, "details": {"run": {"task": "t"}}, **members})


def test_a_scale_multiplies_in_decimal() -> None:
    for value, scale, result in (
        (0.28, "100", 28.0),  # 0.28 * 100 is 28.000000000000004 in binary
        (0.431, "100", 43.1), (0.29, "100", 29.0), (0.0, "100", 0.0), (1, "100", 100.0), (57.3, "0.01", 0.573),
        (0.9166666666666666, "100", 91.66666666666666), (-0.07, "100.0", -7.0),
    ):  # fmt: skip
        assert scaled(value, scale) == result


@given(st.floats(allow_nan=False, allow_infinity=False, width=64), st.integers(1, 10**9 - 1), st.integers(0, 9))
def test_a_scale_rounds_exactly_once(value: float, digits: int, places: int) -> None:
    scale = Decimal(digits).scaleb(-places)
    exact = Fraction(Decimal(repr(value))) * Fraction(scale)
    assume(abs(exact) < Fraction(sys.float_info.max))
    assert scaled(value, format(scale, "f")) == float(exact)


def test_a_scale_is_a_plain_positive_number_listed_as_supplied_and_in_the_entry() -> None:
    for scale in ("0", "0.0", "-1", "1e2", "NaN", "", "1_0", " 1", "١", "1" * 10, "True", "1/2", "inf"):
        error = refusal(run().claims, replace(SUPPLIED, scale=scale))
        assert (error.code, error.detail[:7]) == (Code.FILE_NUMBER, "--scale"), scale
    huge = run(Score(metric="acc", value=1e308, pointer="/acc"))
    assert refusal(huge.claims, replace(SUPPLIED, scale="100")).code is Code.CLAIMS_NUMBER
    built = run().claims(replace(SUPPLIED, scale=100))
    assert built.claims.metrics == (Metric("acc", 28.0),)
    assert (built.origins["scale"], built.origins["metrics"]) == ("supplied", "run")
    selection = {"acc": "none/acc"}
    assert built.details["run"] == {"task": "t", "scale": "100", "selection": selection, "completeness": "full"}


def test_a_partial_run_is_refused_and_if_allowed_is_noted_in_the_entry() -> None:
    partial = run(partial=(FAULT, FAULT))
    error = refusal(partial.claims, SUPPLIED)
    assert (error.code, error.pointer, "--allow-partial" in error.detail) == (Code.FILE_RULE, "/limit", True)
    notes = partial.claims(SUPPLIED, allow_partial=True).details["notes"]
    assert notes == "Partial run: the run was limited to 4 samples."
    # A score of a part counts only where it is claimed.
    part = Score(scorer="a", metric="x", value=1, pointer="/x", partial=FAULT)
    both = run(part, Score(scorer="b", metric="y", value=2, pointer="/y"))
    chosen = replace(SUPPLIED, metrics={"x": "x"})
    assert refusal(both.claims, chosen).pointer == "/limit"
    assert both.claims(replace(SUPPLIED, metrics={"y": "y"})).claims.metrics == (Metric("y", 2),)
    assert "limited" in str(both.claims(chosen, allow_partial=True).details["notes"])


UNKNOWN = Fault(Code.FILE_RULE, "/count", "the run has no count")
OF_RUN: Any = {"partial": (FAULT,), "unknown": (UNKNOWN,)}
OF_SCORE: Any = {"partial": FAULT, "unknown": UNKNOWN}


def test_full_partial_and_not_known_are_three_answers() -> None:
    unknown = "the whole benchmark was run: the run has no count"
    partial = ("partial", f"Partial run: {FAULT.detail}.", f"{FAULT.detail} (--allow-partial)", "/limit")
    answers: list[tuple[list[str], tuple[str, str | None, str, str]]] = [
        ([], ("full", None, "", "")), (["partial"], partial), (["partial", "unknown"], partial),
        (["unknown"], ("not known", f"Not known whether {unknown}.", f"not known whether {unknown} (--allow-partial)", "/count")),
    ]  # fmt: skip
    for signs, (answer, notes, detail, pointer) in answers:
        score = Score(scorer="none", metric="acc", value=1, pointer="/a", **{sign: OF_SCORE[sign] for sign in signs})
        for one in (run(score), run(**{sign: OF_RUN[sign] for sign in signs})):
            details: dict[str, Any] = one.claims(SUPPLIED, allow_partial=True).details
            assert (details["run"]["completeness"], details.get("notes")) == (answer, notes)
            if signs:
                error = refusal(one.claims, SUPPLIED)
                assert (error.detail, error.pointer) == (detail, pointer)


def test_notes_have_the_missing_part_the_remarks_the_mock_and_the_other_name() -> None:
    noted = run(partial=(FAULT,), remarks=("It rained.",), details={"run": {"model": "anthropic/claude"}})
    assert noted.claims(SUPPLIED, allow_partial=True).details["notes"] == (
        "Partial run: the run was limited to 4 samples. It rained. "
        "The run names its model 'anthropic/claude'; the run's owner says that it is acme/open-model."
    )
    graded = run(mock=RunText("mockllm/model", "/roles"), details={"run": {"model": "hf/evil/other"}})
    notes = str(graded.claims(SUPPLIED, allow_mock=True).details["notes"])
    assert notes.startswith("'mockllm/model' is a mock model")
    assert "names its model 'hf/evil/other'" in notes, "a mock that graded hides no other name of the model"


def test_only_a_model_of_another_name_is_noted() -> None:
    names: tuple[object, ...] = ("acme/open-model", "hf/acme/open-model", "Acme/Open-Model", None, 1)
    for model in names:
        assert "notes" not in run(details={"run": {"model": model}}).claims(SUPPLIED).details
    for other in ("acme/open-model-2", "my-acme/open-model", "acme/open-model:acme/adapter", ""):
        notes = str(run(details={"run": {"model": other}}).claims(SUPPLIED).details["notes"])
        assert notes == f"The run names its model '{other}'; the run's owner says that it is acme/open-model."


def test_a_mock_model_is_allowed_by_its_name() -> None:
    mock = run(mock=RunText("mockllm/model", "/model"))
    allowed: tuple[Any, ...] = (True, {"mockllm/model"}, ["other", "mockllm/model"])
    for allow in allowed:
        notes = mock.claims(SUPPLIED, allow_mock=allow).details["notes"]
        assert notes == "'mockllm/model' is a mock model: its scores do not describe any real model."
    others: tuple[Any, ...] = (False, (), {"mockllm"}, {"mockllm/other"})
    for other in others:
        error = refusal(mock.claims, SUPPLIED, allow_mock=other)
        assert (error.code, error.pointer, "'mockllm/model'" in error.detail) == (Code.FILE_RULE, "/model", True)


def test_a_secret_in_the_details_of_a_run_is_refused_and_not_repeated() -> None:
    secret = "hf_" + "a1B2" * 8
    error = refusal(lambda: run(details={"run": {"env": {"x": f"--t {secret}"}}}).claims(SUPPLIED))
    assert error.code is Code.CLAIMS_SECRET
    assert error.detail.startswith("in the details, at /run/env/x: this text seems to contain")
    assert secret not in str(error)


def test_a_standard_error_is_claimed_only_where_it_is_chosen() -> None:
    scores = (
        Score(scorer="none", metric="acc", value=1, pointer="/a"),
        Score(scorer="none", metric="acc_stderr", value=0, pointer="/b", aside=True),
    )
    assert run(*scores).claims(SUPPLIED).claims.metrics == (Metric("acc", 1),)
    chosen = replace(SUPPLIED, metrics={"e": "none/acc_stderr"})
    assert run(*scores).claims(chosen).claims.metrics == (Metric("e", 0),)
    error = refusal(lambda: run(*scores[1:]).claims(SUPPLIED))
    assert "'none/acc_stderr'" in error.detail


def test_a_whole_name_is_no_abbreviation_of_a_longer_one() -> None:
    short = Score(scorer="test", metric="em", value=1, pointer="/a")
    both = run(short, replace(short, reducer="robustness", value=2, pointer="/b"))
    for selector, value in (("test/em", 1), ("test@robustness/em", 2)):
        assert both.claims(replace(SUPPLIED, metrics={"em": selector})).claims.metrics == (Metric("em", value),)
    assert "2 scores fit" in refusal(both.claims, replace(SUPPLIED, metrics={"em": "em"})).detail


ALIKE = tuple(Score(scorer="s", metric="em", spelling="e", value=n, pointer=f"/{n}") for n in (1, 2))


def test_scores_of_one_name_are_told_apart_by_their_place() -> None:
    other = Score(scorer="s", reducer="r", metric="em", value=3, pointer="/3")
    three = run(ALIKE[0], other, ALIKE[1])
    for selector, value in (("s/em#1", 1), ("s@r/em", 3), ("s/em#2", 2)):
        built = three.claims(replace(SUPPLIED, metrics={"em": selector}))
        assert built.claims.metrics == (Metric("em", value),)
        assert built.details["run"] == {"task": "t", "selection": {"em": selector}, "completeness": "full"}
    for selector in ("s/em", "em", "e", "s/em#0", "s/em#3"):
        detail = refusal(three.claims, replace(SUPPLIED, metrics={"em": selector})).detail
        assert "'s/em#1'" in detail
        assert "'s/em#2'" in detail
    assert "'s/em#2'" in refusal(lambda: run(*ALIKE).claims(SUPPLIED)).detail


def test_the_selection_has_the_whole_name_however_it_was_chosen() -> None:
    score = Score(scorer="a", reducer="mean", metric="em", spelling="em,a", value=1, pointer="/a")
    for selector in ("em", "a/em", "a@mean/em", "em,a"):
        details: dict[str, Any] = run(score).claims(replace(SUPPLIED, metrics={"x": selector})).details
        assert details["run"]["selection"] == {"x": "a@mean/em"}


def test_different_counts_are_with_their_metrics_alone() -> None:
    one = Score(scorer="a", metric="x", value=1, pointer="/a", samples=4, epochs=2, split="test")
    other = replace(one, metric="y", samples=3)
    built = run(one, other).claims(SUPPLIED)
    assert built.claims.metrics == (Metric("x", 1, sample_size=4), Metric("y", 1, sample_size=3))
    details: dict[str, Any] = built.details
    assert {name: details["run"].get(name) for name in ("num_samples", "epochs", "split")} == {
        "num_samples": None, "epochs": 2, "split": "test",
    }  # fmt: skip
    details = {**run(one, replace(other, samples=4, split="valid")).claims(SUPPLIED).details}
    assert (details["run"]["num_samples"], "split" in details["run"]) == (4, False)


def test_a_framework_is_supplied_only_if_the_run_names_none() -> None:
    built = run().claims(SUPPLIED)
    assert (built.claims.framework.name, built.origins["framework.name"]) == ("lm-eval", "supplied")
    assert "--framework-name" in refusal(lambda: run().claims(Supplied())).detail
    named = run(framework_name=RunText("helm", "/library"))
    assert refusal(named.claims, SUPPLIED).pointer == "/library"


def test_all_faults_of_a_run_and_a_partial_score_are_reported_at_once() -> None:
    part = Score(scorer="none", metric="acc", value=0.28, pointer="/acc", partial=FAULT)
    error = refusal(lambda: run(part, benchmark_repo=RunText("c/d", "/dataset")).claims(SUPPLIED))
    assert [finding.pointer for finding in error.findings] == ["/dataset", "/limit"]
    parts = (FAULT, Fault(Code.FILE_RULE, "/samples", "2 of 4 samples were used"))
    bad = run(
        mock=RunText("mockllm/model", "/model"), partial=parts, model_repo=RunText("a/b", "/repo"), task_id=RunText("t", "/t"),
        benchmark_repo=RunText("c/d", "/dataset"),
    )  # fmt: skip
    error = refusal(bad.claims, replace(SUPPLIED, command=None, metrics={"m": "gone"}))
    places = ["/model", "/limit", "/samples", "/repo", "/dataset", "", ""]
    assert [finding.pointer for finding in error.findings] == places
    assert "they were not supplied: command (--command)" in error.also[4].detail
    assert "gone" in error.also[5].detail
    assert error.finding == error.findings[0]
