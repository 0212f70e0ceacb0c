"""Checks 8 and 10 with the benchmark's definition beside the file."""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from issuer.results.benchmark import AcceptedDefinitions, Benchmark
from issuer.results.entry import write_entry
from issuer.verify import due
from issuer.verify.report import Report, Status
from issuer.verify.trust import Trust
from tests.support import make, reports

ITEM = make.submission()
FILE = make.file_for(ITEM)
REVISION = ITEM.claims.benchmark_revision
Definitions = Mapping[tuple[str, str], Benchmark]
AT_HAND: Definitions = MappingProxyType({(make.BENCHMARK, REVISION): make.benchmark()})
REQUIRED = make.trust(require=frozenset({"benchmark"}))
LIVE_FORM = make.benchmark('name: "GSM8K"\ntasks:\n  - {id: "gsm8k"}\n')


def judge(text: str = FILE, benchmarks: Definitions = AT_HAND, *, trust: Trust = REQUIRED) -> Report:
    return reports.judge(text, trust, benchmarks=benchmarks)


def only(text: str) -> Definitions:
    return {(make.BENCHMARK, REVISION): make.benchmark(text)}


def status(report: Report, number: int) -> Status:
    return report.checks[number - 1].status


PRIMARY_ONLY = 'name: "x"\nmetrics:\n  - {id: "accuracy"}\ntasks:\n  - {id: "gsm8k"}\n'
DEFINED = "task and metrics are defined; the submitter chose the definition's commit"
UNKNOWN: tuple[Definitions, ...] = (
    {}, {(make.BENCHMARK, "0" * 40): make.benchmark()}, {("other/gsm8k", REVISION): make.benchmark()}, {(make.BENCHMARK, REVISION): LIVE_FORM},
)  # fmt: skip


def with_value(value: str, metrics: list[dict[str, object]] | None = None, benchmarks: Definitions = AT_HAND) -> Report:
    item = make.submission(metrics=metrics) if metrics else ITEM
    return judge(make.file_for(item) + f"  value: {value}\n", benchmarks, trust=make.trust())


def test_8_a_value_is_that_of_the_primary_metric() -> None:
    report = with_value("20.90")
    assert (report.verdict, report.checks[7].evidence) == ("verified", "1 equal, and `value` is accuracy")
    other = with_value("21")
    assert (other.failed, other.checks[7].token, other.checks[7].file) == ((8,), "20.9", "21")
    metrics: list[dict[str, object]] = [{"metric_id": "accuracy", "value": 1}, {"metric_id": "pass_at_5", "value": 2}]
    assert with_value("1", metrics).verdict == "verified"
    assert with_value("2", metrics).failed == (8,), "the marked metric, not any of the entry"
    assert with_value("20.9", None, only(PRIMARY_ONLY)).verdict == "verified", "unmarked, but the only one"
    assert with_value("21", None, only(PRIMARY_ONLY)).failed == (8,)

    # An easy slice, or pass_at_100, must not pose as the score.
    for metric in metrics[1], {"metric_id": "accuracy", "value": 2, "slice": "easy"}:
        report = with_value("2", [metric])
        assert (report.failed, "which is missing here" in report.checks[7].evidence) == ((8,), True)


def test_8_and_10_are_unknown_without_the_definition_of_the_commit() -> None:
    """Check 8 needs no definition for the only metric, and names it."""
    easy: dict[str, object] = {"metric_id": "accuracy", "value": 20.9, "slice": "easy"}
    for benchmarks in UNKNOWN:
        for metrics in [easy], [{"metric_id": "accuracy", "value": 20.9}, {"metric_id": "f1", "value": 20.9}]:
            beside = with_value("20.9", metrics, benchmarks)
            assert (beside.verdict, status(beside, 8)) == ("undecided", Status.UNKNOWN)
        only_metric = with_value("20.9", None, benchmarks)
        evidence = "1 equal, and `value` is accuracy, the only metric"
        assert (only_metric.verdict, only_metric.checks[7].evidence) == ("verified", evidence)
        assert with_value("21", None, benchmarks).failed == (8,)
        required = judge(benchmarks=benchmarks)
        assert (required.verdict, status(required, 10)) == ("undecided", Status.UNKNOWN)
    changed = FILE.replace("value: 20.9\n", "value: 99\n", 1) + "  value: 20.9\n"
    assert judge(changed, {}, trust=make.trust()).failed == (8, 9), "the metrics fail whatever the value is"


def test_10_is_skipped_if_it_is_not_required() -> None:
    for benchmarks in ({}, AT_HAND, only('name: "x"\ntasks:\n  - {id: "other"}\n')):
        report = judge(benchmarks=benchmarks, trust=make.trust())
        assert report.verdict == "verified"
        assert reports.outcome(report, 10) == (Status.SKIP, "not required; the submitter chose the definition's commit")


PASSES = "task and metrics are defined; "
UNACCEPTED = f"the trust file does not accept the definition at {REVISION}: it "


def test_10_says_who_chose_the_definition_and_fails_by_one_that_is_not_accepted() -> None:
    """A no of this reader alone: no forgery, whatever else the trust file requires."""
    zeros, ones = "0" * 40, "1" * 40
    for stated, words, verdict in (
        ({}, "the submitter chose the definition's commit", "verified"),
        ({make.BENCHMARK: "any", "openai/other": zeros}, "the submitter chose the definition's commit", "verified"),
        ({make.BENCHMARK: REVISION}, "the trust file pins the definition's commit", "verified"),
        ({make.BENCHMARK: (REVISION,)}, "the trust file pins the definition's commit", "verified"),
        ({make.BENCHMARK: (zeros, REVISION)}, "the trust file lists the definition's commit", "verified"),
        ({make.BENCHMARK: zeros}, f"{UNACCEPTED}pins {zeros}", "failed"),
        ({make.BENCHMARK.upper(): (zeros, ones)}, f"{UNACCEPTED}lists 2 others", "failed"),
    ):
        accepted = AcceptedDefinitions.of(stated)
        for required, good in ((True, PASSES), (False, "not required; ")):
            required_by = REQUIRED if required else make.trust()
            report = judge(trust=replace(required_by, definitions=accepted))
            said = good * (verdict == "verified") + words
            assert (report.verdict, report.checks[9].evidence.startswith(said)) == (verdict, True)
            assert (report.tier, report.failed) == ((verdict, ()) if verdict == "verified" else ("undecided", (10,)))
    pinned = replace(REQUIRED, definitions=AcceptedDefinitions.of({make.BENCHMARK: zeros}))
    without_task = judge(benchmarks=only('name: "x"\ntasks:\n  - {id: "other"}\n'), trust=pinned)
    assert without_task.checks[9].evidence.startswith(UNACCEPTED)


def test_10_a_task_or_a_metric_that_is_not_defined_fails() -> None:
    assert (judge().verdict, status(judge(), 10)) == ("verified", Status.PASS)
    for old, new, file in (('{id: "gsm8k"', '{id: "gsm8k_main"', "task gsm8k"), ('id: "accuracy"', 'id: "acc"', "metric accuracy")):  # fmt: skip
        report = judge(benchmarks=only(make.BENCHMARK_TEXT.replace(old, new)))
        assert (report.failed, report.checks[9].file) == ((10,), file)
    item = make.submission(metrics=[{"metric_id": "accuracy", "value": 1}, {"metric_id": "pass_at_100", "value": 2}])
    assert judge(make.file_for(item)).failed == (10,)


def test_10_the_file_s_side_is_judged_also_without_a_good_signature() -> None:
    forged = write_entry(ITEM.form, make.signed(make.HEADER, b"{}"))
    assert (judge(forged).failed, status(judge(forged), 10)) == ((1,), Status.SKIP)
    assert judge(forged, benchmarks=only('name: "x"\ntasks:\n  - {id: "other"}\n')).failed == (1, 10)


def test_10_the_token_s_side_is_judged_by_its_own_commit() -> None:
    """The definition of the file's commit has the task, the definition of the token's commit does not."""
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
    for dataset, evidence in (
        ('{id: "openai/gsm8k"}', f"{DEFINED}; the task's dataset is openai/gsm8k at absent"),
        ('{id: "openai/other"}', "; the task's dataset is openai/other at "),
        (f'{{id: "openai/gsm8k", revision: "{"0" * 40}"}}', "; the task's dataset is openai/gsm8k at 0"),
    ):
        report = judge(benchmarks=only(make.BENCHMARK_TEXT.replace('{id: "openai/gsm8k"}', dataset)))
        assert (report.verdict, evidence in report.checks[9].evidence) == ("verified", True), dataset
    pinned = f'{{id: "openai/gsm8k", revision: "{REVISION}"}}'
    same = judge(benchmarks=only(make.BENCHMARK_TEXT.replace('{id: "openai/gsm8k"}', pinned)))
    assert same.checks[9].evidence == DEFINED


def test_1_to_9_are_always_due_and_10_and_11_if_the_trust_requires_them() -> None:
    assert due(make.trust()) == set(range(1, 10))
    assert due(make.trust(require=frozenset({"benchmark"}))) == set(range(1, 11))
    assert due(make.trust(require=frozenset({"benchmark", "log"}))) == set(range(1, 12))
