"""What every reader's runs share: scales, partial runs, mock models by name, and which scores are claimed."""

from __future__ import annotations

import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from issuer.adapters import Run, Said, Score, Supplied
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


# -- scale ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "scale", "result"),
    [
        (0.28, "100", 28.0),  # 0.28 * 100 is 28.000000000000004 in binary
        (0.431, "100", 43.1),
        (0.29, "100", 29.0),
        (0.0, "100", 0.0),
        (1, "100", 100.0),
        (57.3, "0.01", 0.573),
        (0.9166666666666666, "100", 91.66666666666666),
        (-0.07, "100.0", -7.0),
    ],
)
def test_a_scale_multiplies_in_decimal(value: float, scale: str, result: float) -> None:
    assert scaled(value, scale) == result


@given(st.floats(allow_nan=False, allow_infinity=False, width=64), st.integers(1, 10**9 - 1), st.integers(0, 9))
def test_a_scale_rounds_exactly_once(value: float, digits: int, places: int) -> None:
    scale = Decimal(digits).scaleb(-places)
    exact = Fraction(Decimal(repr(value))) * Fraction(scale)
    assume(abs(exact) < Fraction(sys.float_info.max))
    assert scaled(value, format(scale, "f")) == float(exact)


@pytest.mark.parametrize(
    "scale", ["0", "0.0", "-1", "1e2", "NaN", "", "1_0", " 1", "١", "1" * 10, "True", "1/2", "inf"]
)
def test_a_scale_that_is_no_plain_positive_number_is_refused(scale: str) -> None:
    error = refusal(lambda: run().claims(replace(SUPPLIED, scale=scale)))
    assert (error.code, error.detail[:7]) == (Code.FILE_NUMBER, "--scale")


def test_a_scale_is_listed_as_supplied_and_stands_in_the_entry() -> None:
    built = run().claims(replace(SUPPLIED, scale=100))
    assert built.claims.metrics == (Metric("acc", 28.0),)
    assert (built.origins["scale"], built.origins["metrics"]) == ("supplied", "run")
    assert built.details["run"] == {"task": "t", "scale": "100"}


def test_a_scale_that_leaves_the_doubles_is_refused() -> None:
    huge = run(Score(metric="acc", value=1e308, pointer="/acc"))
    assert refusal(lambda: huge.claims(replace(SUPPLIED, scale="100"))).code is Code.CLAIMS_NUMBER


# -- partial runs and mock models -----------------------------------------------------------------------------------------


def test_a_partial_run_is_refused_and_if_allowed_says_so_in_the_entry() -> None:
    partial = run(partial=(FAULT, FAULT))
    error = refusal(lambda: partial.claims(SUPPLIED))
    assert (error.code, error.pointer) == (Code.FILE_RULE, "/limit")
    assert "--allow-partial" in error.detail
    assert (
        partial.claims(SUPPLIED, allow_partial=True).details["notes"]
        == "Partial run: the run was limited to 4 samples."
    )
    assert "notes" not in run().claims(SUPPLIED, allow_partial=True).details


def test_a_score_of_a_part_counts_only_where_it_is_claimed() -> None:
    scores = (
        Score(scorer="a", metric="x", value=1, pointer="/x", partial=FAULT),
        Score(scorer="b", metric="y", value=2, pointer="/y"),
    )
    assert refusal(lambda: run(*scores).claims(replace(SUPPLIED, metrics={"x": "x"}))).pointer == "/limit"
    assert run(*scores).claims(replace(SUPPLIED, metrics={"y": "y"})).claims.metrics == (Metric("y", 2),)
    noted = run(*scores).claims(replace(SUPPLIED, metrics={"x": "x"}), allow_partial=True)
    assert "limited" in str(noted.details["notes"])


@pytest.mark.parametrize("allow", [True, {"mockllm/model"}, ["other", "mockllm/model"]])
def test_a_mock_model_is_allowed_by_its_name(allow: Any) -> None:
    run(mock=Said("mockllm/model", "/model")).claims(SUPPLIED, allow_mock=allow)


@pytest.mark.parametrize("allow", [False, (), {"mockllm"}, {"mockllm/other"}])
def test_a_mock_model_that_is_not_named_is_refused(allow: Any) -> None:
    error = refusal(lambda: run(mock=Said("mockllm/model", "/model")).claims(SUPPLIED, allow_mock=allow))
    assert (error.code, error.pointer) == (Code.FILE_RULE, "/model")
    assert "'mockllm/model'" in error.detail


def test_a_secret_in_the_details_of_a_run_is_refused_and_not_repeated() -> None:
    secret = "hf_" + "a1B2" * 8
    error = refusal(lambda: run(details={"run": {"env": {"x": f"--t {secret}"}}}).claims(SUPPLIED))
    assert error.code is Code.CLAIMS_SECRET
    assert error.detail.startswith("in the details, at /run/env/x: this text seems to hold")
    assert secret not in str(error)


# -- which scores ---------------------------------------------------------------------------------------------------------


def test_what_belongs_to_a_score_is_claimed_only_where_it_is_chosen() -> None:
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
    scores = (
        Score(scorer="test", metric="em", value=1, pointer="/a"),
        Score(scorer="test", reducer="robustness", metric="em", value=2, pointer="/b"),
    )
    assert run(*scores).claims(replace(SUPPLIED, metrics={"em": "test/em"})).claims.metrics == (Metric("em", 1),)
    assert run(*scores).claims(replace(SUPPLIED, metrics={"em": "test@robustness/em"})).claims.metrics == (
        Metric("em", 2),
    )
    assert "2 scores answer" in refusal(lambda: run(*scores).claims(replace(SUPPLIED, metrics={"em": "em"}))).detail


def test_a_framework_s_own_spelling_of_a_score_selects_it() -> None:
    score = Score(scorer="strict", metric="em", spelling="em,strict", value=1, pointer="/a")
    assert run(score).claims(replace(SUPPLIED, metrics={"em": "em,strict"})).claims.metrics == (Metric("em", 1),)


def test_a_framework_that_the_run_does_not_name_is_supplied_and_one_that_it_names_not_contradicted() -> None:
    built = run().claims(SUPPLIED)
    assert (built.claims.framework.name, built.origins["framework.name"]) == ("lm-eval", "supplied")
    assert "--framework-name" in refusal(lambda: run().claims(Supplied())).detail
    named = run(framework_name=Said("helm", "/library"))
    assert refusal(lambda: named.claims(SUPPLIED)).pointer == "/library"
