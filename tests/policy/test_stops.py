"""An emergency stop names what it stops; it is in force from its beginning to its end, by the clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from issuer.formats.times import LEEWAY_S
from issuer.policy.match import PolicySet
from issuer.policy.stops import Stop, Stops, is_time, is_what, names_of_provider, names_of_registration, unix_s
from tests.support.policies import NOW, POLICY, load, registration

SINCE = "2026-11-21T08:00:00Z"


def stop(what: str, **changes: str) -> Stop:
    return Stop(what, "a reason", **{"since": SINCE, **changes})


@pytest.fixture
def policies(tmp_path: Path) -> PolicySet:
    return load(tmp_path, inspect_ai=POLICY)


@pytest.mark.parametrize(
    "what",
    ["everything", "provider:github-actions", "account:github-actions/7", "integration:inspect-ai", "identity:inspect-ai/main"],
)  # fmt: skip
def test_each_kind_of_stop_finds_its_callers(policies: PolicySet, what: str) -> None:
    assert is_what(what)
    names = names_of_registration(registration(policies))
    assert Stops([stop(what)]).find(names, NOW) == stop(what)


@pytest.mark.parametrize(
    "what",
    ["provider:gitlab-ci", "account:github-actions/6", "account:gitlab-ci/7", "integration:inspect", "identity:inspect-ai/other"],
)  # fmt: skip
def test_a_stop_of_somebody_else_stops_nobody(policies: PolicySet, what: str) -> None:
    assert is_what(what)
    assert Stops([stop(what)]).find(names_of_registration(registration(policies)), NOW) is None


def test_a_provider_is_found_before_anything_is_known_of_its_caller(policies: PolicySet) -> None:
    provider = registration(policies).provider
    assert Stops([stop("provider:github-actions")]).find(names_of_provider(provider), NOW)
    assert not Stops([stop("everything")]).find(names_of_provider(provider), NOW), "that is audited, so it waits"


def test_a_stop_begins_and_ends_by_the_clock(policies: PolicySet) -> None:
    names = tuple(names_of_registration(registration(policies)))
    stops = Stops([stop("everything", since="2026-11-21T09:00:00Z", until="2026-11-21T10:00:00Z")])
    begins, ends = unix_s("2026-11-21T09:00:00Z"), unix_s("2026-11-21T10:00:00Z")
    assert begins == NOW
    held = [now for now in (begins - LEEWAY_S - 1, begins - LEEWAY_S, ends - 1, ends) if stops.find(names, now)]
    assert held == [begins - LEEWAY_S, ends - 1]


def test_of_several_stops_of_one_thing_any_counts(policies: PolicySet) -> None:
    past, present = stop("everything", until="2026-11-21T08:30:00Z"), stop("everything")
    assert Stops([past, present]).find(names_of_registration(registration(policies)), NOW) == present


def test_the_digest_is_of_what_is_said_and_not_of_its_order() -> None:
    one, other = stop("everything"), stop("provider:hub")
    assert Stops([one, other]).digest == Stops([other, one, one]).digest != Stops([one]).digest
    assert Stops([one]).with_those_of(Stops([other])).digest == Stops([one, other]).digest


@pytest.mark.parametrize(
    "text",
    ["", "all", "everything ", "integration:", "integration:A", "integration:a/b", "identity:a", "provider:a:b", "account:a", "account:a/", "account:a/b c", "account:a/\n", "Everything"],
)  # fmt: skip
def test_what_names_nothing_that_could_be_stopped_is_refused(text: str) -> None:
    assert not is_what(text)


@pytest.mark.parametrize(
    "text",
    ["", "2026-11-21", "2026-11-21T09:00:00", "2026-11-21T09:00:00+00:00", "2026-02-30T09:00:00Z", "2026-11-21T25:00:00Z", "2026-11-21 09:00:00Z", "1970-01-01T00:00:00Z", "2026-11-21T09:00:00Z\n"],
)  # fmt: skip
def test_what_is_no_moment_of_utc_is_refused(text: str) -> None:
    assert not is_time(text)
