"""The stops of a running process: in force at the first look, lifted at the second, and kept despite any fault."""

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


class Stage:
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
        items = [{"what": what, "reason": "a reason", "since": "2026-11-21T08:00:00Z"} for what in stops]
        self.file.write_text(json.dumps({"version": 1, "stops": items}))

    def stopped(self) -> bool:
        """Say whether the one registered caller is refused."""
        arrival = Arrival("r", "/tokens", "192.0.2.1", NOW)
        registered = Registered.of(arrival, caller(self.policies), registration(self.policies), StoreSecret(bytes(32)))
        refused = self.stops.refusal(registered)
        if refused is None:
            return False
        assert (str(refused.code), refused.detail) == ("integration.stopped", refused.code.meaning.title)
        return True

    async def turn(self, times: int = 1) -> None:
        for _ in range(times):
            await self.stops.turn(False)

    def recorded(self) -> list[list[str]]:
        events = map(json.loads, self.events.read_text().splitlines())
        return [event["stops"] for event in events if event["event"] == "stops_loaded"]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    built = Stage(tmp_path)
    yield built
    built.audit.close()


async def test_a_stop_is_in_force_after_one_look_and_lifted_after_two(stage: Stage) -> None:
    stage.write("integration:inspect-ai")
    assert not stage.stopped()
    await stage.turn()
    assert stage.stopped()
    stage.write()
    await stage.turn()
    assert stage.stopped()
    await stage.turn()
    assert not stage.stopped()
    assert stage.recorded() == [["integration:inspect-ai"], []]
    stage.write("everything")
    await stage.turn()
    stage.file.unlink()  # the folder looks as before
    await stage.turn()
    assert stage.stopped()
    await stage.turn()
    assert not stage.stopped(), "two looks have not seen it"


async def test_a_checkout_that_is_under_way_or_a_folder_that_vanishes_lifts_nothing(stage: Stage) -> None:
    stage.write("everything")
    await stage.turn(2)
    stage.file.rename(stage.file.with_suffix(".away"))
    await stage.turn()
    assert stage.stopped()
    stage.file.with_suffix(".away").rename(stage.file)
    for _ in range(3):
        await stage.turn()
        assert stage.stopped()
    stage.file.unlink()
    for _ in range(2):
        await stage.stops.turn(True)
    assert not stage.stopped(), "two looks saw that it is gone"
    stage.write("everything")
    await stage.turn()
    stage.folder.rename(stage.folder.with_name("away"))
    stage.folder.mkdir()  # where a volume was mounted
    await stage.turn(3)
    assert (stage.stopped(), stage.stops.status.stale) == (True, True)


async def test_a_broken_file_lifts_nothing_and_is_reported(stage: Stage) -> None:
    for text in ("", "nothing good", "version: 1\nstops: [", "version: 2\nstops: []", "\xff"):
        stage.write("everything")
        await stage.turn(2)
        stage.file.write_text(text, "latin-1")
        await stage.turn(3)
        assert (stage.stopped(), stage.stops.status.stale) == (True, True), text
        stage.write()
        await stage.turn(2)
        assert (stage.stopped(), stage.stops.status.stale) == (False, False), text


async def test_a_file_open_to_others_or_with_a_broken_stop_stops_and_lifts_nothing(stage: Stage) -> None:
    stage.write("a typo", "integration:inspect-ai")
    await stage.turn()
    assert (stage.stopped(), stage.stops.status.stale) == (True, True)
    stage.write()
    await stage.turn(2)
    assert not stage.stopped()
    stage.write("everything")
    stage.file.chmod(0o666)
    await stage.turn()
    assert stage.stopped()
    stage.write()
    await stage.turn(3)
    assert (stage.stopped(), stage.stops.status.stale) == (True, True)


async def test_a_stop_begins_and_ends_by_the_clock_without_another_look(stage: Stage) -> None:
    stage.file.write_text(
        'version: 1\nstops:\n  - what: "everything"\n    reason: "x"\n    since: "2026-11-21T10:00:00Z"\n'
        '    until: "2026-11-21T11:00:00Z"\n'
    )
    await stage.turn()
    held = []
    for hour in range(4):
        stage.now = NOW + hour * 3600
        held.append(stage.stopped())
    assert held == [False, True, False, False]


async def test_a_stop_is_in_force_before_it_can_be_audited(stage: Stage) -> None:
    stage.events.unlink()
    stage.events.mkdir()
    stage.write("everything")
    for _ in range(2):
        await stage.turn()
        assert stage.stopped()
    stage.events.rmdir()
    await stage.turn(2)
    assert stage.recorded() == [["everything"]]


def test_a_process_that_cannot_read_its_stops_does_not_start(stage: Stage) -> None:
    stage.file.write_text("version: 1\nstops: [")
    with pytest.raises(InputError) as refused:
        stage.start()
    assert refused.value.place.file == str(stage.file)
    stage.write("everything")
    stage.stops = stage.start()
    assert stage.stopped()


def elsewhere(page: SharedPage, tell: bytes, told: object, end: object) -> None:
    page.publish("stops", tell)
    told.set()  # type: ignore[attr-defined]
    end.wait(60)  # type: ignore[attr-defined]
    assert page.everything_stopped


def test_each_process_sees_the_digests_of_all_living_processes() -> None:
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
    assert page.published("stops") == [b"c" * 32], "a dead process does not count"


async def test_a_starting_process_counts_as_disagreeing_until_it_has_the_stops(stage: Stage) -> None:
    assert stage.page.published("stops") == [bytes(32)]
    assert (stage.stops.status.workers, stage.stops.status.agreeing) == (1, 0)
    stage.page.publish("keys", b"k" * 32)
    assert stage.page.published("stops") == [bytes(32)], "it has not published these"
    await stage.stops.announce()
    assert (stage.stops.status.workers, stage.stops.status.agreeing) == (1, 1)
    assert stage.stops.status.digest == Stops().digest == jcs.digest([])
    assert stage.page.published("keys") == [b"k" * 32]
    assert stage.page.host != SharedPage().host
