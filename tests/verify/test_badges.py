"""Badges: what the report earns, what the Hub says, and `unknown` where it says nothing."""

from typing import Any

import pytest

from issuer.results.entry import Entry, read_entries, write_entry
from issuer.verify import Context, Report, verify_entries
from issuer.verify.report import Badge, Badges
from issuer.verify.tiers import HubFacts, badges_of
from tests.support import make

URL = "https://huggingface.co/spaces/acme/runs"
SAID = make.submission({"source": {"url": URL}})
FILE = make.file_for(SAID)
ALL = HubFacts(open_pull_request=True, registered=True, benchmark=make.benchmark())


def judged(text: str = FILE, **trust: Any) -> tuple[Report, Entry]:
    (entry,) = read_entries(text.encode(), make.PATH)
    (report,) = verify_entries([entry], make.REPO, make.PATH, make.trust(**trust), make.NOW, Context(make.NOW))
    return report, entry


def earned(text: str = FILE, hub: HubFacts = ALL, **trust: Any) -> Badges:
    return badges_of(*judged(text, **trust), hub)


def test_everything_said_and_verified_earns_all_four() -> None:
    assert earned() == Badges("yes", "yes", "yes", "yes")


def test_what_the_hub_does_not_say_is_unknown_and_never_no() -> None:
    assert earned(hub=HubFacts()) == Badges("yes", "unknown", "unknown", "yes")


# -- verified -------------------------------------------------------------------------------------------------------------


def test_verified_comes_from_the_verdict_alone() -> None:
    said = "  verified: true\n  badges: [verified]\n"
    assert earned(write_entry(SAID.form) + said).verified == "no"
    assert earned(FILE + said).verified == "no", "what was added was not signed"
    assert earned(keys=None).verified == "unknown"
    assert earned(FILE.replace("20.9", "21")).verified == "no"


# -- community ------------------------------------------------------------------------------------------------------------


def test_community_is_an_open_pull_request_as_the_hub_says() -> None:
    assert [earned(hub=HubFacts(open_pull_request=said)).community for said in (True, False, None)] == [
        "yes",
        "no",
        "unknown",
    ]


# -- leaderboard ----------------------------------------------------------------------------------------------------------

OTHER_TASK = make.BENCHMARK_TEXT.replace('{id: "gsm8k"', '{id: "other"')
OTHER_METRIC = make.BENCHMARK_TEXT.replace('id: "accuracy"', 'id: "acc"')
LIVE_FORM = 'name: "x"\ntasks:\n  - {id: "gsm8k"}\n'


BOARDS: list[tuple[bool | None, str | None, Badge]] = [
    (True, make.BENCHMARK_TEXT, "yes"),
    (False, make.BENCHMARK_TEXT, "no"),
    (None, make.BENCHMARK_TEXT, "unknown"),
    (True, None, "unknown"),
    (False, None, "no"),
    (None, None, "unknown"),
    (True, OTHER_TASK, "no"),
    (True, OTHER_METRIC, "no"),
    (None, OTHER_TASK, "no"),
    (True, LIVE_FORM, "unknown"),
]


@pytest.mark.parametrize(("registered", "text", "badge"), BOARDS)
def test_leaderboard_needs_a_registered_benchmark_a_defined_task_and_one_defined_metric(
    registered: bool | None, text: str | None, badge: Badge
) -> None:
    hub = HubFacts(registered=registered, benchmark=None if text is None else make.benchmark(text))
    assert earned(hub=hub).leaderboard == badge


def test_one_defined_metric_is_enough_and_none_is_not() -> None:
    two = make.submission(metrics=[{"metric_id": "accuracy", "value": 1}, {"metric_id": "x", "value": 1}])
    assert earned(make.file_for(two)).leaderboard == "yes"
    no_metrics = {name: value for name, value in SAID.form.items() if name != "metrics"}
    assert earned(write_entry({**no_metrics, "value": 1})).leaderboard == "no"


# -- source ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "badge"),
    [
        (URL, "yes"), ("http://a.example", "yes"), ("https://user:secret@a.example", "no"), ("https://@a.example", "no"), ("ftp://a.example", "no"),
        ("javascript:alert(1)", "no"), ("/runs", "no"), ("//a.example", "no"), ("https://", "no"), ("", "no"), ("https://a.example/a b", "no"),
    ],
)  # fmt: skip
def test_source_is_an_absolute_web_address_without_credentials(url: str, badge: Badge) -> None:
    assert earned(write_entry({**SAID.form, "source": {"url": url}})).source == badge


@pytest.mark.parametrize("source", [{}, {"name": "x"}, {"name": "https://a.example"}], ids=str)
def test_a_source_without_an_address_earns_nothing(source: dict[str, Any]) -> None:
    assert earned(write_entry({**SAID.form, "source": source})).source == "no"
