"""An emergency stop names what it stops; it is in force from its beginning to its end, by the clock."""

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


def test_each_kind_of_stop_finds_its_callers_and_no_others(policies: PolicySet) -> None:
    names = names_of_registration(registration(policies))
    for what, stopped in {
        "everything": True, "provider:github-actions": True, "account:github-actions/7": True, "integration:inspect-ai": True,
        "identity:inspect-ai/main": True, "provider:gitlab-ci": False, "account:github-actions/6": False, "account:gitlab-ci/7": False,
        "integration:inspect": False, "identity:inspect-ai/other": False,
    }.items():  # fmt: skip
        assert is_what(what)
        assert Stops([stop(what)]).find(names, NOW) == (stop(what) if stopped else None)
    before = names_of_provider(registration(policies).provider)  # before its caller is known
    assert Stops([stop("provider:github-actions")]).find(before, NOW)
    assert not Stops([stop("everything")]).find(before, NOW), "that is audited, so it waits"


def test_a_stop_begins_and_ends_by_the_clock(policies: PolicySet) -> None:
    names = tuple(names_of_registration(registration(policies)))
    stops = Stops([stop("everything", since="2026-11-21T09:00:00Z", until="2026-11-21T10:00:00Z")])
    begins, ends = unix_s("2026-11-21T09:00:00Z"), unix_s("2026-11-21T10:00:00Z")
    assert begins == NOW
    held = [now for now in (begins - LEEWAY_S - 1, begins - LEEWAY_S, ends - 1, ends) if stops.find(names, now)]
    assert held == [begins - LEEWAY_S, ends - 1]
    past, present = stop("everything", until="2026-11-21T08:30:00Z"), stop("everything")
    assert Stops([past, present]).find(names_of_registration(registration(policies)), NOW) == present


def test_the_digest_is_of_what_is_said_and_not_of_its_order() -> None:
    one, other = stop("everything"), stop("provider:hub")
    assert Stops([one, other]).digest == Stops([other, one, one]).digest != Stops([one]).digest
    assert Stops([one]).with_those_of(Stops([other])).digest == Stops([one, other]).digest


def test_a_stop_names_what_it_stops_and_a_moment_in_utc() -> None:
    names = [
        "", "all", "everything ", "integration:", "integration:A", "integration:a/b", "identity:a", "provider:a:b", "account:a",
        "account:a/", "account:a/b c", "account:a/\n", "Everything",
    ]  # fmt: skip
    assert [text for text in names if is_what(text)] == []
    times = [
        "", "2026-11-21", "2026-11-21T09:00:00", "2026-11-21T09:00:00+00:00", "2026-02-30T09:00:00Z", "2026-11-21T25:00:00Z",
        "2026-11-21 09:00:00Z", "1970-01-01T00:00:00Z", "2026-11-21T09:00:00Z\n",
    ]  # fmt: skip
    assert [text for text in [*times, SINCE] if is_time(text)] == [SINCE]
