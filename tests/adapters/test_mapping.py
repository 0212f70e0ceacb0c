"""The mapping file: strict YAML with rules for one run and for all; a rule without a run is refused."""

from msgspec.structs import replace

from issuer.adapters import Run, Score, Supplied
from issuer.adapters.mapping import Mapping, read_mapping, together
from issuer.codes import Code
from issuer.errors import Place
from tests.support.runs import refusal

SCORE = Score(scorer="none", metric="acc", value=0.5, pointer="/acc")
RUN = Run(name="logs/results_1.json", task="anatomy", scores=(SCORE,), details={})


def mapping(text: str) -> Mapping:
    return read_mapping(text.encode(), "map.yaml")


def test_a_rule_for_one_run_wins_over_a_rule_for_all() -> None:
    read = mapping(
        """
supply: {model_repo: "acme/open-model", task_id: "all"}
runs:
  - task: "anatomy"
    file: "results_*.json"
    supply: {task_id: "mmlu_anatomy", metrics: {accuracy: "none/acc"}, scale: 100}
  - task: "virology"
    supply: {task_id: "mmlu_virology"}
"""
    )
    special = Supplied(task_id="mmlu_anatomy", metrics={"accuracy": "none/acc"}, scale=100)
    assert read.supplied(RUN) == replace(special, model_repo="acme/open-model")
    assert read.supplied(replace(RUN, name="other.json")).task_id == "all"
    assert read.supplied(replace(RUN, task="virology")).task_id == "mmlu_virology"


def test_two_rules_that_fit_one_run_add_up_unless_they_contradict() -> None:
    text = 'runs: [{task: "anatomy", supply: {task_id: "a"}}, {file: "*.json", supply: {%s}}]'
    assert mapping(text % 'model_repo: "a/b"').supplied(RUN) == Supplied(task_id="a", model_repo="a/b")
    error = refusal(lambda: mapping(text % 'task_id: "b"').supplied(RUN))
    assert (error.code, error.place.line) == (Code.FILE_RULE, 1)
    # A rule that fits no run is refused.
    read = mapping('runs: [{task: "anatomi", supply: {task_id: "a"}}]')
    error = refusal(read.demand_all_fit, [RUN])
    assert "'anatomy'" in error.detail
    mapping('runs: [{task: "anatomy", supply: {}}]').demand_all_fit([RUN])


def test_a_file_that_is_not_strict_is_refused_with_its_line() -> None:
    for text, code in (
        ('suply: {model_repo: "a/b"}', Code.FILE_UNKNOWN_MEMBER),
        ('supply: {model: "a/b"}', Code.FILE_UNKNOWN_MEMBER),
        ("supply: {model_revision: 0000000000000000000000000000000000000000}", Code.FILE_SCALAR),
        ('supply: {task_id: "a", task_id: "b"}', Code.FILE_DUPLICATE_KEY),
        ('supply: &a {task_id: "a"}', Code.FILE_FEATURE),
        ("runs: [{supply: {}}]", Code.FILE_RULE),
        ('runs: [{task: "a"}]', Code.FILE_SCHEMA),
        ("", Code.FILE_SYNTAX),
        ("[]", Code.FILE_SCHEMA),
    ):
        error = refusal(mapping, text)
        assert (error.code, error.place.line >= 1) == (code, True), text


def test_a_value_that_is_supplied_twice_is_not_overruled() -> None:
    place = Place("map.yaml")
    assert together(Supplied(task_id="a"), Supplied(task_id="a", scale=100), place) == Supplied(task_id="a", scale=100)
    assert together(Supplied(scale="100"), Supplied(scale=100), place).scale == 100
    for other in (Supplied(task_id="b"), Supplied(task_id="")):
        assert "task_id" in refusal(together, Supplied(task_id="a"), other, place).detail
