"""A refused caller adds a bounded number of bytes to the audit, and every refusal is counted."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from issuer.audit.events import COUNTED, MAX_EVENT_BYTES, Decision, RefusalsCounted
from issuer.audit.reader import read_event
from issuer.codes import Code
from issuer.errors import Undecided
from issuer.limits.rate import Rate
from issuer.service.audit.bounds import REFUSED_BYTES
from issuer.service.audit.sink import FileAudit, Refusals
from tests.support.decisions import decision, refusal

START_US = 1_795_251_600 * 10**6


class Sink:
    """An audit with a clock that the test moves."""

    def __init__(self, folder: Path, rate: Rate = REFUSED_BYTES) -> None:
        self.now_us, self.path = START_US, folder / "data" / "audit.jsonl"
        self.audit = FileAudit(self.path, rate, lambda: self.now_us)

    async def after(self, seconds: float) -> None:
        """Let time pass, and write the counts that are due."""
        self.now_us += int(seconds * 10**6)
        await self.audit.turn()

    async def refuse(self, *codes: Code, **members: Any) -> None:
        for code in codes:
            await self.audit.refuse(refusal(code, **members))

    def events(self) -> list[Any]:
        return [read_event(line) for line in self.path.read_bytes().splitlines() if line]

    def logged(self) -> list[str]:
        return [event.code or "" for event in self.events() if isinstance(event, Decision)]

    def counted(self) -> list[dict[str, int]]:
        return [event.codes for event in self.events() if isinstance(event, RefusalsCounted)]


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path)


async def test_the_first_is_told_at_once_and_then_a_count_a_minute(tmp_path: Path) -> None:
    for code in sorted(COUNTED):
        sink = Sink(tmp_path / code)
        await sink.refuse(*[code] * 50)
        assert (sink.logged(), sink.counted()) == ([code], [])
        await sink.after(60)
        await sink.refuse(*[code] * 7)
        assert (sink.logged(), sink.counted()) == ([code], [{code: 49}])
        await sink.after(60)
        assert (sink.logged(), sink.counted()) == ([code], [{code: 49}, {code: 7}])
        await sink.after(60)
        await sink.refuse(code)
        assert sink.logged() == [code, code], "after a quiet minute it is news again"
        (count, _) = [event for event in sink.events() if isinstance(event, RefusalsCounted)]
        assert (count.integration, count.identity, count.time - count.since) == ("inspect-ai", "main", 60)
        await sink.refuse(*[code] * 3)
        sink.audit.close()
        assert sink.counted()[2:] == [{code: 3}], "at the end, too"


async def test_each_bucket_is_counted_apart_and_takes_nothing_from_its_identity(tmp_path: Path) -> None:
    sink = Sink(tmp_path, Rate(count=1, per_s=1, burst=2 * MAX_EVENT_BYTES))
    for bucket in (3, 5, 3, 5, 3):
        await sink.refuse(Code.ABUSE_QUARANTINED, bucket=bucket)
    while sink.audit._refusals.account_of(refusal(bucket=9), sink.now_us).pays(100, sink.now_us):
        pass
    await sink.refuse(Code.POLICY_MODEL, bucket=9)
    assert len(sink.logged()) == 2
    await sink.refuse(Code.POLICY_MODEL, Code.ABUSE_QUARANTINED)
    assert sink.logged()[2:] == ["policy.model", "abuse.quarantined"], "its own are recorded"
    sink.audit.close()
    by_bucket = {event.bucket: event.codes for event in sink.events() if isinstance(event, RefusalsCounted)}
    assert by_bucket == {3: {"abuse.quarantined": 2}, 5: {"abuse.quarantined": 1}, 9: {"policy.model": 1}}


async def test_under_any_mix_of_refusals_one_caller_adds_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    """Two minutes of a caller that is refused ten times a second, for everything, with the largest events."""
    codes = [Code.POLICY_MODEL, Code.RATE_IDENTITY, Code.IDENTITY_REPLAYED, Code.CLAIMS_INVALID]
    callers: list[dict[str, Any]] = [{}, {"bucket": 1}, {"integration": msgspec.UNSET, "identity": msgspec.UNSET}]
    for number, caller in enumerate(callers):
        sink = Sink(tmp_path / str(number))
        large = {"failed": ("x" * (MAX_EVENT_BYTES - 700),), **caller}
        sizes = []
        for _ in range(60):
            for code in codes * 5:
                await sink.audit.refuse(refusal(code, **large))
            await sink.after(2)
            sizes.append(sink.path.stat().st_size)
        assert max(after - before for before, after in zip([0, *sizes], sizes[29:], strict=False)) <= 60 * 10_000 / 4
        assert sizes[-1] <= REFUSED_BYTES.burst + 120 * REFUSED_BYTES.count * 1.01
        assert sizes[-1] > 60 * REFUSED_BYTES.count, "and it is not silent"
        sink.audit.close()
        found = Counter(sink.logged())
        for counts in sink.counted():
            found.update(counts)
        assert found == dict.fromkeys(codes, 300), "each is recorded or counted"


async def test_a_grant_and_refusals_of_others_are_recorded_whatever_a_caller_has_added(sink: Sink) -> None:
    await sink.refuse(*[Code.POLICY_MODEL] * 2000)
    logged = len(sink.logged())
    assert logged < 2000
    for number in range(50):
        await sink.audit.record(decision(number, verdict="issued"))
    await sink.refuse(Code.POLICY_TASK, identity="other")
    await sink.refuse(Code.POLICY_TASK, integration="other")
    assert len(sink.logged()) == logged + 52


async def test_what_cannot_be_written_stays_counted_until_it_can(sink: Sink) -> None:
    await sink.refuse(*[Code.RATE_IDENTITY] * 6)
    aside = sink.path.parent.rename(sink.path.parent.with_name("aside"))
    sink.path.parent.write_text("no folder")
    await sink.after(60)
    await sink.refuse(Code.RATE_IDENTITY)
    with pytest.raises(Undecided):
        await sink.refuse(Code.POLICY_MODEL)
    sink.path.parent.unlink()
    aside.rename(sink.path.parent)
    for _ in range(2):
        await sink.after(1)
    assert sink.counted() == [{"rate.identity": 6}]


async def test_the_table_is_bounded_and_callers_beyond_it_are_counted_together(tmp_path: Path) -> None:
    refusals = Refusals(REFUSED_BYTES, capacity=10)
    accounts = [refusals.account_of(refusal(identity=str(number)), START_US) for number in range(1000)]
    assert len(refusals.every()) == 11
    assert len({id(account) for account in accounts[10:]}) == 1
    accounts[-1].count(refusal())
    (event,) = accounts[-1].events(START_US)
    assert {event.integration, event.identity, event.provider} == {msgspec.UNSET}


async def test_a_caller_that_is_quiet_again_is_forgotten(sink: Sink) -> None:
    await sink.refuse(*[Code.RATE_IDENTITY] * 3)
    for _ in range(3):
        await sink.after(60)
    assert sink.audit._refusals.every() == []
