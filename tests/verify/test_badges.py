"""Badges: what the report earns, what the Hub says, and `unknown` where it says nothing."""

from typing import Any

from issuer.results.entry import read_entries, write_entry
from issuer.verify.report import Badge, Badges
from issuer.verify.tiers import HubFacts, badges_of
from tests.support import make, reports

URL = "https://huggingface.co/spaces/acme/runs"
ITEM = make.submission({"source": {"url": URL}})
FILE = make.file_for(ITEM)
ALL = HubFacts(open_pull_request=True, registered=True, benchmark=make.benchmark())


def earned(text: str = FILE, hub: HubFacts = ALL, **trust: Any) -> Badges:
    (entry,) = read_entries(text.encode(), make.PATH)
    return badges_of(reports.judge(text, make.trust(**trust)), entry, hub)


def test_badges_follow_from_the_verdict_and_the_hub_s_facts() -> None:
    assert earned() == Badges("yes", "yes", "yes", "yes")
    assert earned(hub=HubFacts()) == Badges("yes", "unknown", "unknown", "yes")
    claimed = "  verified: true\n  badges: [verified]\n"
    assert earned(write_entry(ITEM.form) + claimed).verified == "no"
    assert earned(FILE + claimed).verified == "no", "the addition was not signed"
    assert earned(keys=None).verified == "unknown"
    assert earned(FILE.replace("20.9", "21")).verified == "no"
    assert earned(hub=HubFacts(open_pull_request=False)).community == "no"


OTHER_TASK = make.BENCHMARK_TEXT.replace('{id: "gsm8k"', '{id: "other"')
OTHER_METRIC = make.BENCHMARK_TEXT.replace('id: "accuracy"', 'id: "acc"')
LIVE_FORM = 'name: "x"\ntasks:\n  - {id: "gsm8k"}\n'
# By what the Hub says of the registration: yes, no, nothing.
BOARDS: dict[str | None, tuple[Badge, Badge, Badge]] = {
    make.BENCHMARK_TEXT: ("yes", "no", "unknown"), None: ("unknown", "no", "unknown"), OTHER_TASK: ("no", "no", "no"),
    OTHER_METRIC: ("no", "no", "no"), LIVE_FORM: ("unknown", "no", "unknown"),
}  # fmt: skip


def test_leaderboard_needs_a_registered_benchmark_and_a_defined_task_and_metric() -> None:
    for text, badges in BOARDS.items():
        definition = None if text is None else make.benchmark(text)
        hubs = [HubFacts(registered=registered, benchmark=definition) for registered in (True, False, None)]
        assert tuple(earned(hub=hub).leaderboard for hub in hubs) == badges, text
    two = make.submission(metrics=[{"metric_id": "accuracy", "value": 1}, {"metric_id": "x", "value": 1}])
    assert earned(make.file_for(two)).leaderboard == "yes"
    no_metrics = {name: value for name, value in ITEM.form.items() if name != "metrics"}
    assert earned(write_entry({**no_metrics, "value": 1})).leaderboard == "no"


def test_source_is_an_absolute_web_address_without_credentials() -> None:
    good = (URL, "http://a.example")
    bad = (
        "https://user:secret@a.example", "https://@a.example", "ftp://a.example", "javascript:alert(1)", "/runs", "//a.example", "https://",
        "", "https://a.example/a b",
    )  # fmt: skip
    sources: list[dict[str, Any]] = [*({"url": url} for url in (*good, *bad)), {}]
    found = [earned(write_entry({**ITEM.form, "source": source})).source for source in sources]
    assert found == ["yes"] * 2 + ["no"] * 10
