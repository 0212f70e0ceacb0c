"""Numbers 8, 10 and 11 with what is beside the file: the benchmark's definition, and the log that is to come."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from issuer.results.benchmark import Benchmark
from issuer.results.entry import read_entries, write_entry
from issuer.verify import Context, due, verify_entries
from issuer.verify.report import Report, Status
from issuer.verify.trust import Trust
from tests.support import make

SAID = make.submission()
FILE = make.file_for(SAID)
REVISION = SAID.claims.benchmark_revision
AT_HAND: Mapping[tuple[str, str], Benchmark] = MappingProxyType({(make.BENCHMARK, REVISION): make.benchmark()})
REQUIRED = make.trust(require=frozenset({"benchmark"}))
LIVE_FORM = make.benchmark('name: "GSM8K"\ntasks:\n  - {id: "gsm8k"}\n')


def judge(
    text: str = FILE,
    benchmarks: Mapping[tuple[str, str], Benchmark] = AT_HAND,
    *,
    trust: Trust = REQUIRED,
    path: str = make.PATH,
) -> Report:
    context = Context(make.NOW + 5, benchmarks=benchmarks)
    (report,) = verify_entries(read_entries(text.encode(), path), make.REPO, path, trust, make.NOW + 5, context)
    return report


def only(text: str) -> dict[tuple[str, str], Benchmark]:
    return {(make.BENCHMARK, REVISION): make.benchmark(text)}


def status(report: Report, number: int) -> Status:
    return report.checks[number - 1].status


# -- (8) a lone value -----------------------------------------------------------------------------------------------------


def both(value: str, metrics: list[dict[str, object]] | None = None) -> str:
    said = make.submission(metrics=metrics) if metrics else SAID
    return make.file_for(said) + f"  value: {value}\n"


def test_8_a_value_is_the_primary_metric_s() -> None:
    report = judge(both("20.9"), trust=make.trust())
    assert report.verdict == "verified"
    assert report.checks[7].evidence == "1 equal, and `value` is accuracy"
    assert judge(both("20.90"), trust=make.trust()).verdict == "verified"


def test_8_another_value_fails_with_both_side_by_side() -> None:
    report = judge(both("21"), trust=make.trust())
    assert report.failed == (8,)
    assert (report.checks[7].token, report.checks[7].file) == ("20.9", "21")


def test_8_the_primary_metric_is_the_marked_one_and_not_the_first_of_the_entry() -> None:
    metrics: list[dict[str, object]] = [{"metric_id": "accuracy", "value": 1}, {"metric_id": "pass_at_5", "value": 2}]
    assert judge(both("1", metrics), trust=make.trust()).verdict == "verified"
    assert judge(both("2", metrics), trust=make.trust()).failed == (8,)


def test_8_the_only_metric_of_the_definition_is_primary_unmarked() -> None:
    one = only('name: "x"\nmetrics:\n  - {id: "accuracy"}\ntasks:\n  - {id: "gsm8k"}\n')
    assert judge(both("20.9"), one, trust=make.trust()).verdict == "verified"
    assert judge(both("21"), one, trust=make.trust()).failed == (8,)


@pytest.mark.parametrize(
    "metrics", [[{"metric_id": "pass_at_5", "value": 2}], [{"metric_id": "accuracy", "value": 2, "slice": "easy"}]]
)
def test_8_an_entry_without_the_primary_pair_fails_with_a_value(metrics: list[dict[str, object]]) -> None:
    """An easy slice, or pass_at_100, must not pose as the score."""
    report = judge(both("2", metrics), trust=make.trust())
    assert report.failed == (8,)
    assert "which is missing here" in report.checks[7].evidence


@pytest.mark.parametrize(
    "benchmarks",
    [
        {}, {(make.BENCHMARK, "0" * 40): make.benchmark()}, {("other/gsm8k", REVISION): make.benchmark()}, {(make.BENCHMARK, REVISION): LIVE_FORM},
    ],
    ids=["none", "another commit", "another repository", "without metrics"],
)  # fmt: skip
def test_8_a_value_is_unknown_without_the_definition_of_that_commit_however_many_metrics(
    benchmarks: dict[tuple[str, str], Benchmark],
) -> None:
    report = judge(both("20.9"), benchmarks, trust=make.trust())
    assert (report.verdict, status(report, 8)) == ("undecided", Status.UNKNOWN)


def test_8_metrics_that_differ_fail_whatever_the_value_says() -> None:
    assert judge(both("20.9").replace("value: 20.9\n", "value: 99\n", 1), {}, trust=make.trust()).failed == (8, 9)


# -- (10) -----------------------------------------------------------------------------------------------------------------


def test_10_task_and_metrics_are_looked_up_in_the_definition_of_the_commit() -> None:
    report = judge()
    assert (report.verdict, status(report, 10)) == ("verified", Status.PASS)
    assert "; the task's dataset is openai/gsm8k at absent" in report.checks[9].evidence


def test_10_is_skipped_where_it_is_not_required_whatever_is_at_hand() -> None:
    for benchmarks in ({}, AT_HAND, only('name: "x"\ntasks:\n  - {id: "other"}\n')):
        report = judge(benchmarks=benchmarks, trust=make.trust())
        assert (report.verdict, status(report, 10), report.checks[9].evidence) == (
            "verified",
            Status.SKIP,
            "not required",
        )


def test_10_is_unknown_and_the_entry_undecided_without_the_definition() -> None:
    for benchmarks in ({}, {(make.BENCHMARK, "0" * 40): make.benchmark()}, {(make.BENCHMARK, REVISION): LIVE_FORM}):
        report = judge(benchmarks=benchmarks)
        assert (report.verdict, status(report, 10)) == ("undecided", Status.UNKNOWN)


@pytest.mark.parametrize(("old", "new"), [('{id: "gsm8k"', '{id: "gsm8k_main"'), ('id: "accuracy"', 'id: "acc"')])
def test_10_a_task_or_a_metric_that_is_not_defined_fails(old: str, new: str) -> None:
    report = judge(benchmarks=only(make.BENCHMARK_TEXT.replace(old, new)))
    assert report.failed == (10,)
    assert report.checks[9].file in {"task gsm8k", "metric accuracy"}


def test_10_one_undefined_metric_among_several_fails() -> None:
    said = make.submission(metrics=[{"metric_id": "accuracy", "value": 1}, {"metric_id": "pass_at_100", "value": 2}])
    assert judge(make.file_for(said)).failed == (10,)


def test_10_the_file_s_side_is_judged_also_without_a_good_signature() -> None:
    forged = write_entry(SAID.form, make.signed(make.HEADER, b"{}"))
    assert (judge(forged).failed, status(judge(forged), 10)) == ((1,), Status.SKIP)
    assert judge(forged, benchmarks=only('name: "x"\ntasks:\n  - {id: "other"}\n')).failed == (1, 10)


def test_10_the_token_s_side_is_judged_by_its_own_commit() -> None:
    """The file claims a commit whose definition has the task, the token another that has not."""
    other = "0" * 40
    text = FILE.replace(REVISION, other)
    benchmarks = {
        (make.BENCHMARK, other): make.benchmark(),
        **only('name: "x"\nmetrics:\n  - {id: "accuracy"}\ntasks:\n  - {id: "x"}\n'),
    }
    report = judge(text, benchmarks)
    assert report.failed == (7, 9, 10)
    assert (report.checks[9].token, report.checks[9].file) == ("task gsm8k", "")


def test_10_a_task_on_another_dataset_is_reported_and_no_failure() -> None:
    for dataset in ('{id: "openai/other"}', f'{{id: "openai/gsm8k", revision: "{"0" * 40}"}}'):
        report = judge(benchmarks=only(make.BENCHMARK_TEXT.replace('{id: "openai/gsm8k"}', dataset)))
        assert report.verdict == "verified"
        assert "the task's dataset is openai/" in report.checks[9].evidence
    same = judge(
        benchmarks=only(
            make.BENCHMARK_TEXT.replace('{id: "openai/gsm8k"}', f'{{id: "openai/gsm8k", revision: "{REVISION}"}}')
        )
    )
    assert same.checks[9].evidence == "task and metrics are defined"


# -- (11), and what is due ------------------------------------------------------------------------------------------------


def test_11_is_skipped_until_there_is_a_log_and_unknown_where_the_trust_file_requires_it() -> None:
    assert status(judge(trust=make.trust()), 11) is Status.SKIP
    report = judge(trust=make.trust(require=frozenset({"log"})))
    assert (report.verdict, status(report, 11)) == ("undecided", Status.UNKNOWN)
    forged = judge(FILE[:-8] + 'AAAAAA"\n', trust=make.trust(require=frozenset({"log"})))
    assert (status(forged, 3), status(forged, 11)) == (Status.FAIL, Status.SKIP)


def test_1_to_9_are_always_due_and_10_and_11_where_the_trust_file_says_so() -> None:
    assert due(make.trust()) == set(range(1, 10))
    assert due(make.trust(require=frozenset({"benchmark"}))) == set(range(1, 11))
    assert due(make.trust(require=frozenset({"benchmark", "log"}))) == set(range(1, 12))
