"""The stops of a running process: taken at the first look, lifted at the second, and lost to nothing that is broken."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.errors import InputError
from issuer.formats import jcs
from issuer.io.shared_memory import SharedPage
from issuer.issuance.steps import Arrival, Registered, StoreSecret
from issuer.policy.match import PolicySet
from issuer.policy.stops import Stops
from issuer.service.admission.redis import KnownStanding
from issuer.service.audit.sink import FileAudit
from issuer.service.policies.emergency_stops import LiveStops
from tests.support.policies import NOW, POLICY, caller, load, registration


class House:
    """A folder of policies, and the stops that follow it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "policies"
        self.folder.mkdir()
        self.policies: PolicySet = load(self.folder, inspect_ai=POLICY)
        self.file = self.folder / "stops.yaml"
        self.events = folder / "data" / "audit.jsonl"
        self.audit = FileAudit(self.events)
        self.page = SharedPage()
        self.now = NOW
        self.stops = self.start()

    def start(self) -> LiveStops:
        return LiveStops(self.folder, self.page, self.audit, KnownStanding(), lambda: self.now)

    def write(self, *stops: str) -> None:
        """Write stops of these things."""
        items = [{"what": what, "reason": "a reason", "since": "2026-11-21T08:00:00Z"} for what in stops]
        self.file.write_text(json.dumps({"version": 1, "stops": items}))

    def stopped(self) -> bool:
        """Say whether the one registered caller is refused."""
        arrival = Arrival("r", "/tokens", "192.0.2.1", NOW)
        who = Registered.of(arrival, caller(self.policies), registration(self.policies), StoreSecret(bytes(32)))
        refused = self.stops.refusal(who)
        assert refused is None or (str(refused.code), refused.detail) == (
            "integration.stopped",
            refused.code.meaning.title,
        )
        return refused is not None

    def recorded(self) -> list[list[str]]:
        events = map(json.loads, self.events.read_text().splitlines())
        return [event["stops"] for event in events if event["event"] == "stops_loaded"]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    built = House(tmp_path)
    yield built
    built.audit.close()


async def test_a_stop_is_in_force_after_one_look_and_lifted_after_two(house: House) -> None:
    house.write("integration:inspect-ai")
    assert not house.stopped()
    await house.stops.turn(False)
    assert house.stopped()
    house.write()
    await house.stops.turn(False)
    assert house.stopped()
    await house.stops.turn(False)
    assert not house.stopped()
    assert house.recorded() == [["integration:inspect-ai"], []]


async def test_a_checkout_in_the_middle_of_a_change_lifts_nothing(house: House) -> None:
    house.write("everything")
    for _ in range(2):
        await house.stops.turn(False)
    house.file.rename(house.file.with_suffix(".away"))
    await house.stops.turn(False)
    assert house.stopped()
    house.file.with_suffix(".away").rename(house.file)
    for _ in range(3):
        await house.stops.turn(False)
        assert house.stopped()
    house.file.unlink()
    for _ in range(2):
        await house.stops.turn(True)
    assert not house.stopped(), "twice seen to be gone: that is meant"


async def test_a_stop_that_was_there_for_one_look_is_lifted_like_any_other(house: House) -> None:
    house.write("everything")
    await house.stops.turn(False)
    house.file.unlink()  # it looks as it did before
    await house.stops.turn(False)
    assert house.stopped()
    await house.stops.turn(False)
    assert not house.stopped()


async def test_a_folder_that_vanishes_lifts_nothing(house: House) -> None:
    house.write("everything")
    await house.stops.turn(False)
    house.folder.rename(house.folder.with_name("away"))
    house.folder.mkdir()  # where a volume was mounted
    for _ in range(3):
        await house.stops.turn(False)
    assert house.stopped()
    assert house.stops.status.stale


@pytest.mark.parametrize(
    "text", ["", "nothing good", "version: 1\nstops: [", "version: 2\nstops: []", b"\xff".decode("latin-1")]
)
async def test_a_file_that_is_broken_lifts_nothing_and_says_so(house: House, text: str) -> None:
    house.write("everything")
    for _ in range(2):
        await house.stops.turn(False)
    house.file.write_text(text, "latin-1")
    for _ in range(3):
        await house.stops.turn(False)
    assert house.stopped()
    assert house.stops.status.stale
    house.write()
    for _ in range(2):
        await house.stops.turn(False)
    assert not house.stopped()
    assert not house.stops.status.stale


async def test_a_file_that_anybody_may_write_to_stops_and_lifts_nothing(house: House) -> None:
    house.write("everything")
    house.file.chmod(0o666)
    await house.stops.turn(False)
    assert house.stopped()
    house.write()
    for _ in range(3):
        await house.stops.turn(False)
    assert house.stopped()
    assert house.stops.status.stale


async def test_a_stop_counts_although_another_one_of_the_file_is_broken(house: House) -> None:
    house.file.write_text(
        'version: 1\nstops:\n  - {what: "a typo", reason: "x", since: "2026-11-21T08:00:00Z"}\n'
        '  - {what: "integration:inspect-ai", reason: "x", since: "2026-11-21T08:00:00Z"}\n'
    )
    await house.stops.turn(False)
    assert house.stopped()
    assert house.stops.status.stale


async def test_a_stop_begins_and_ends_by_the_clock_without_another_look(house: House) -> None:
    house.file.write_text(
        'version: 1\nstops:\n  - what: "everything"\n    reason: "x"\n    since: "2026-11-21T10:00:00Z"\n'
        '    until: "2026-11-21T11:00:00Z"\n'
    )
    await house.stops.turn(False)
    held = []
    for hour in range(4):
        house.now = NOW + hour * 3600
        held.append(house.stopped())
    assert held == [False, True, False, False]


async def test_a_stop_waits_for_no_audit_and_is_recorded_once_there_is_one(house: House) -> None:
    house.events.unlink()
    house.events.mkdir()
    house.write("everything")
    for _ in range(2):
        await house.stops.turn(False)
        assert house.stopped()
    house.events.rmdir()
    for _ in range(2):
        await house.stops.turn(False)
    assert house.recorded() == [["everything"]]


def test_a_process_that_cannot_read_its_stops_does_not_start(house: House) -> None:
    house.file.write_text("version: 1\nstops: [")
    with pytest.raises(InputError) as refused:
        house.start()
    assert refused.value.place.file == str(house.file)
    house.write("everything")
    house.stops = house.start()
    assert house.stopped()


def test_a_signal_stops_everything_without_any_file(house: House) -> None:
    house.page.stop_everything(True)
    assert house.stopped()
    assert house.stops.status.everything
    house.page.stop_everything(False)
    assert not house.stopped()


# -- the page that processes share ------------------------------------------------------------------------------------


def elsewhere(page: SharedPage, tell: bytes, told: object, end: object) -> None:
    page.publish("stops", tell)
    told.set()  # type: ignore[attr-defined]
    end.wait(60)  # type: ignore[attr-defined]
    assert page.everything_stopped


def test_each_process_sees_what_all_living_ones_have_told() -> None:
    page, fork = SharedPage(), multiprocessing.get_context("fork")
    told, end = fork.Event(), fork.Event()
    page.publish("stops", b"a" * 32)
    other = fork.Process(target=elsewhere, args=(page, b"b" * 32, told, end))
    other.start()
    assert told.wait(60)
    assert sorted(page.published("stops")) == [b"a" * 32, b"b" * 32]
    page.publish("stops", b"c" * 32)
    assert sorted(page.published("stops")) == [b"b" * 32, b"c" * 32]
    page.stop_everything(True)
    end.set()
    other.join(60)
    assert other.exitcode == 0, "it saw the flag"
    assert page.published("stops") == [b"c" * 32], "the dead are not waited for"


def test_a_process_tells_of_its_keys_and_of_its_stops_apart() -> None:
    page = SharedPage()
    page.publish("keys", b"k" * 32)
    assert page.published("stops") == [bytes(32)], "it has told nothing of these: whoever waits for them must wait for it"
    page.publish("stops", b"s" * 32)
    assert (page.published("stops"), page.published("keys")) == ([b"s" * 32], [b"k" * 32])
    assert page.host != SharedPage().host


async def test_a_process_that_starts_is_waited_for_until_it_has_the_stops(house: House) -> None:
    assert house.page.published("stops") == [bytes(32)]
    assert (house.stops.status.workers, house.stops.status.agreeing) == (1, 0)
    await house.stops.announce()
    assert (house.stops.status.workers, house.stops.status.agreeing) == (1, 1)
    assert house.stops.status.digest == Stops().digest == jcs.digest([])
