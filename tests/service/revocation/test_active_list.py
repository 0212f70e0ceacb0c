"""Revocations of a running process: in force at the first look, never undone by damage, and listed in time."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.io.common_documents import FolderHome
from issuer.service.audit.sink import FileAudit
from issuer.service.revocation.active_list import ListKeeper, LiveRevocations
from issuer.service.revocation.bounds import LIST_ENDS_S, LIST_GOOD_S, LIST_RETRY_S, LIST_TOLD_S
from issuer.service.revocation.ledger import Ledger
from tests.support.make import ISSUER, NOW, REVOCATION_KEY
from tests.support.revoking import JTIS, act, as_a_relying_party, renew


class House:
    """A folder of data, the revocations that follow it, and the keeper that signs its list if there is a key."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.ledger = Ledger(FolderHome(self.data), ISSUER)
        self.audit = FileAudit(self.data / "audit.jsonl")
        self.now = NOW
        self.key: Any = REVOCATION_KEY
        self.live = self.start()
        self.keeper = ListKeeper(self.ledger, self.live, self.find_key, lambda: self.now)

    def start(self) -> LiveRevocations:
        return LiveRevocations(self.ledger, self.audit, lambda: self.now)

    def find_key(self) -> Any:
        if isinstance(self.key, Exception):
            raise self.key
        return self.key

    async def look(self) -> None:
        await self.live.turn(False)

    async def keep(self) -> list[str]:
        """Take the keeper's turn, and the look after it; return what the log says."""
        with capture_logs() as logged:
            await self.keeper.turn(False)
            await self.look()
        bad = [line["event"] for line in logged if line["log_level"] != "info"]
        return [event for event in bad if event.startswith("revocation list")]

    def revoked(self, jti: str) -> bool:
        return bool(self.live.reason(jti, "lm-eval", NOW))

    @property
    def number(self) -> int | None:
        return None if self.live.in_force.published is None else self.live.in_force.published.listed.number

    @property
    def good_for_s(self) -> int | None:
        shown = self.live.status.signed_list
        return None if shown is None else shown.good_for_s

    def recorded(self) -> list[tuple[int, int]]:
        events = map(json.loads, (self.data / "audit.jsonl").read_text().splitlines())
        return [(event["jti"], event["sub"]) for event in events if event["event"] == "revocations_loaded"]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    built = House(tmp_path)
    yield built
    built.audit.close()


async def test_what_the_record_says_is_in_force_after_one_look(house: House) -> None:
    house.ledger.add(act(JTIS[0], from_=NOW + 5))
    assert not house.revoked(JTIS[0])
    await house.look()
    assert house.revoked(JTIS[0])
    assert [bool(house.live.reason("", "inspect-ai", NOW + at)) for at in (4, 5)] == [False, True]
    assert house.live.status.signed_list is None
    assert house.live.status.unlisted == 2
    await house.look()
    assert house.recorded() == [(1, 1)]


async def test_what_another_host_s_list_says_is_in_force_too(house: House, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    Ledger(FolderHome(other), ISSUER).add(act(JTIS[0]))
    renew(other)
    for name in ("revocation-keys.json", "revocations.jwt"):
        (house.data / name).write_bytes((other / name).read_bytes())
    await house.look()
    assert house.revoked(JTIS[0])
    assert house.live.in_force.published is not None
    assert house.live.in_force.published.raw == (other / "revocations.jwt").read_bytes()


async def test_a_folder_that_is_safe_again_is_read_again(house: House) -> None:
    house.ledger.add(act(JTIS[0]))
    await house.look()
    house.data.chmod(0o777)
    record = house.data / "revocations.jsonl"
    newer = record.with_name("newer")
    newer.write_bytes(record.read_bytes())
    newer.chmod(0o600)
    newer.replace(record)
    await house.look()
    assert house.live.status.stale
    house.data.chmod(0o700)
    await house.look()
    assert not house.live.status.stale


DAMAGES: list[tuple[str, bytes | None]] = [
    ("revocations.jsonl", b'{"time":'), ("revocations.jsonl", b"\xff\n"), ("revocations.jwt", b"a.b.c"),
    ("revocations.jwt", None), ("revocation-keys.json", b"{}"), ("revocation-keys.json", None),
]  # fmt: skip


async def test_no_damage_gives_back_what_was_revoked_nor_takes_the_list_away(house: House) -> None:
    house.ledger.add(act(JTIS[0]))
    served = renew(house.data)
    await house.look()
    for name, raw in DAMAGES:
        before = (house.data / name).read_bytes()
        (house.data / name).unlink() if raw is None else (house.data / name).write_bytes(raw)
        with capture_logs() as logged:
            for _ in range(3):
                await house.look()
        assert house.revoked(JTIS[0])
        assert house.live.in_force.published is not None
        assert house.live.in_force.published.raw == served.raw
        assert house.live.status.stale
        assert [line["event"] for line in logged] == ["revocations refused"], "once"
        (house.data / name).write_bytes(before)
        with capture_logs() as logged:
            await house.look()
        assert [line["event"] for line in logged] == ["revocations accepted again"]
        assert not house.live.status.stale


async def test_an_old_list_that_was_put_back_is_not_served(house: House) -> None:
    old = renew(house.data)
    house.ledger.add(act(JTIS[0]))
    renew(house.data)
    await house.look()
    (house.data / "revocations.jsonl").unlink()
    (house.data / "revocations.jwt").write_bytes(old.raw)
    await house.look()
    assert (house.number, house.revoked(JTIS[0])) == (2, True)
    assert house.live.in_force.error is not None
    await house.keep()
    assert (house.number, as_a_relying_party(house.data).jtis) == (3, frozenset({JTIS[0]}))
    assert house.live.in_force.error is None


def test_a_process_that_cannot_read_what_is_revoked_does_not_start(house: House) -> None:
    house.ledger.add(act(JTIS[0]))
    renew(house.data)
    for name, raw in DAMAGES:
        if raw is not None:
            before = (house.data / name).read_bytes()
            (house.data / name).write_bytes(raw)
            with pytest.raises(InputError) as refused:
                house.start()
            assert refused.value.place.file == str(house.data / name)
            (house.data / name).write_bytes(before)


async def test_a_revocation_waits_for_no_audit_and_is_recorded_once_there_is_one(house: House) -> None:
    events = house.data / "audit.jsonl"
    events.unlink()
    events.mkdir()
    house.ledger.add(act(JTIS[0]))
    await house.look()
    assert house.revoked(JTIS[0])
    events.rmdir()
    for _ in range(2):
        await house.look()
    assert house.recorded() == [(1, 0)]


async def test_a_record_that_has_lost_lines_is_told_and_nothing_of_it_is_given_back(house: House) -> None:
    for jti in JTIS[:2]:
        house.ledger.add(act(jti))
    await house.look()
    record = house.data / "revocations.jsonl"
    record.write_bytes(record.read_bytes().splitlines(keepends=True)[0])
    with capture_logs() as logged:
        await house.look()
    assert [line["event"] for line in logged] == ["revocation record has lost lines"]
    assert house.revoked(JTIS[1])
    await house.keep()
    assert as_a_relying_party(house.data).jtis == set(JTIS[:2])


async def test_a_service_with_the_key_renews_the_list_at_half_time_and_at_each_revocation(house: House) -> None:
    assert await house.keep() == []
    assert (house.number, as_a_relying_party(house.data).count) == (1, 0)
    for after, number in ((LIST_GOOD_S // 2 - 1, 1), (LIST_GOOD_S // 2, 2), (LIST_GOOD_S - 1, 2), (LIST_GOOD_S, 3)):
        house.now = NOW + after
        assert await house.keep() == []
        assert house.number == number
    assert house.good_for_s == LIST_GOOD_S
    house.ledger.add(act(JTIS[0]))  # without the key
    await house.look()
    assert await house.keep() == []
    assert as_a_relying_party(house.data).jtis == {JTIS[0]}


async def test_without_the_key_the_end_of_the_list_is_told_from_a_day_before(house: House) -> None:
    renew(house.data)
    await house.look()
    house.key = None
    logged = []
    for left in (LIST_ENDS_S, LIST_ENDS_S - 1, LIST_ENDS_S - 2, LIST_ENDS_S - 1 - LIST_TOLD_S, 0, -1):
        house.now = NOW + LIST_GOOD_S - left
        logged.append(await house.keep())
    soon = ["revocation list ends soon"]
    assert logged == [[], soon, [], soon, soon, ["revocation list has ended"]]
    assert house.number == 1
    assert house.good_for_s == -1


async def test_a_key_that_is_not_fit_is_told_once_and_the_list_goes_on(house: House) -> None:
    await house.keep()
    problems: list[Exception] = [SetupError(Code.KEY_UNSAFE, "a reason"), OSError(5, "a reason", "a file")]
    for number, problem in enumerate(problems, 1):
        house.key = problem
        house.now += LIST_GOOD_S // 2
        assert [await house.keep() for _ in range(3)] == [["revocation list not written"], [], []]
        assert house.number == number
        house.key = REVOCATION_KEY
        await house.keep()
        assert house.number == number, "not tried again at once"
        house.now += LIST_RETRY_S
        await house.keep()
        assert house.number == number + 1


async def test_a_list_that_is_dated_ahead_of_the_clock_is_told(house: House) -> None:
    house.now = NOW + 3600
    await house.keep()
    house.now = NOW
    assert await house.keep() == ["revocation list is dated ahead of this clock"]
    house.ledger.add(act(JTIS[0]))
    await house.look()
    await house.keep()
    listed = as_a_relying_party(house.data)
    assert (listed.number, listed.iat) == (2, NOW + 3600), (
        "a relying party that has seen the first takes no earlier one"
    )
