"""Limits, quarantine, epoch and uses against a real Valkey, and the answers when it is unreachable."""

import asyncio
import itertools
import math
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis
from redis.exceptions import TimeoutError as RedisTimeoutError

from issuer.codes import Code
from issuer.errors import IssuerError, Refused, SetupError, Undecided
from issuer.io.bounds import CALL_S
from issuer.io.redis_client import Connections, connect
from issuer.issuance.ports import AdmissionRequest, Admitted, Counted, Use
from issuer.issuance.steps import BUCKETS, Payer
from issuer.limits.rate import Limits, Rate
from issuer.service.admission.bounds import AGAIN_RATE, PIPELINE_CALLS, PIPELINE_S, PIPELINES, RESEMBLING_RATE
from issuer.service.admission.redis import RedisAdmission
from issuer.service.admission.script import (
    EPOCH_KEY,
    STATE,
    Bill,
    bill_of,
    keys_of,
    names_of,
    read_answer,
    record_of,
    refusals_counted,
)
from tests.support.clock import Clock, StoreClock
from tests.support.skewed_clock import clock_ahead
from tests.support.stores import Proxy, Store

pytestmark = pytest.mark.usefixtures("loop_clock")
WIDE = Rate(count=1_000_000, per_s=1, burst=1_000_000)
UNLIMITED = Limits(identity=WIDE, integration=WIDE, refusals=WIDE)


async def epoch_of(redis: Redis) -> tuple[int, str]:
    stored = await redis.get(EPOCH_KEY)
    assert isinstance(stored, str)
    epoch, run_id = stored.split()
    return int(epoch), run_id


def use(name: str = "one", request: str = "a", **changes: object) -> Use:
    now = int(time.time())
    plain = Use(
        record=name.encode().hex(),
        allowed=1,
        request_digest=request,
        template_exp=now + 300,
        kid="kid-1",
        usable_kids=("kid-1", "kid-2"),
        issued_at=now,
        keep_until=now + 400,
    )
    return msgspec.structs.replace(plain, **changes)


def call(
    claim: Use | None, limits: Limits = UNLIMITED, cost: int = 1, identity: str = "ci", candidate: bytes = b""
) -> AdmissionRequest:
    if claim and not candidate:
        candidate = f"template of {bytes.fromhex(claim.record).decode()} {claim.request_digest}".encode()
    return AdmissionRequest(Payer("inspect-ai", identity), limits, cost, claim, candidate)


def refusal(limits: Limits = UNLIMITED, bucket: int | None = None, identity: str = "ci") -> AdmissionRequest:
    return AdmissionRequest(Payer("inspect-ai", identity, bucket), limits, 1, refused=True)


def bill(asked: AdmissionRequest) -> Bill:
    return bill_of(asked.payer, asked.limits, asked.cost, asked.refused)


NAMES = names_of(Payer("inspect-ai", "ci"))
Outcome = Admitted | IssuerError | Counted


async def outcome(state: RedisAdmission, asked: AdmissionRequest) -> Outcome:
    try:
        return await (state.admit(asked) if asked.use else state.count(asked))
    except (Refused, Undecided) as error:
        return error


def code(result: Outcome) -> str:
    if isinstance(result, IssuerError):
        return str(result.code)
    return "counted" if isinstance(result, Counted) else "repeat" if result.repeat else "new"


def kept(result: object) -> tuple[bytes, bool] | None:
    """What the store keeps for a request that was admitted, and whether it came before."""
    return (result.template, result.repeat) if isinstance(result, Admitted) else None


async def codes(state: RedisAdmission, *asked: AdmissionRequest) -> list[str]:
    """One after the other."""
    return [code(await outcome(state, each)) for each in asked]


async def at_once(state: RedisAdmission, asked: list[AdmissionRequest]) -> Counter[str]:
    return Counter([code(result) for result in await asyncio.gather(*(outcome(state, each) for each in asked))])


@pytest.fixture
async def redis(url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(url, decode_responses=True) as client:
        await client.flushall()
        yield client


@pytest.fixture
async def state(url: str, redis: Redis) -> AsyncIterator[RedisAdmission]:
    async with started(url) as ready:
        yield ready


class started:  # noqa: N801 (reads as a verb: async with started(url) as state)
    def __init__(self, url: str, leeway_s: int = 0, **settings: object) -> None:
        self.state = RedisAdmission(url, leeway_s=leeway_s, **settings)  # type: ignore[arg-type]

    async def __aenter__(self) -> RedisAdmission:
        await self.state.start()
        return self.state

    async def __aexit__(self, *_: object) -> None:
        await self.state.aclose()


# -- uses --------------------------------------------------------------------------------------------------------------


async def test_a_request_gets_its_template_again_and_one_too_many_is_a_replay(state: RedisAdmission) -> None:
    awkward = b'{"sub":"\xc3\xa9 \x00 spaces\n"}' + bytes(range(256))
    await state.count(call(use(request="b")))  # counting claims no use
    assert kept(await state.admit(call(use(), candidate=awkward))) == (awkward, False)
    assert kept(await state.admit(call(use(), candidate=b"a later candidate"))) == (awkward, True)
    assert await codes(state, call(use(request="b"))) == ["identity.replayed"]
    asked = [call(use("bounded", request, allowed=3)) for request in "aababccd"]
    claimed = ["new", "repeat", "new", "repeat", "repeat", "new", "repeat", "identity.replayed"]
    assert await codes(state, *asked) == claimed, "repeats cost no use"
    gone = call(use("gone as it is written", keep_until=int(time.time()) - 1))
    assert await codes(state, gone, gone) == ["dependency.state", "dependency.state"]
    with pytest.raises(Undecided):
        await state.admit(call(None))


async def test_of_32_requests_at_once_at_two_workers_one_is_new(state: RedisAdmission, url: str) -> None:
    async with started(url) as other:

        async def at_both(asked: list[AdmissionRequest]) -> list[Outcome]:
            workers = itertools.cycle((state, other))
            return await asyncio.gather(*(outcome(worker, each) for worker, each in zip(workers, asked, strict=False)))

        for claim, spent in ((use, "identity.replayed"), (nonce, "nonce.reused")):
            different = await at_both([call(claim(spent, str(number))) for number in range(32)])
            assert Counter(map(code, different)) == {"new": 1, spent: 31}
            equal = await at_both([call(claim(f"equal {spent}"), candidate=b"%d" % n) for n in range(32)])
            assert Counter(map(code, equal)) == {"new": 1, "repeat": 31}
            assert len({each.template for each in equal if isinstance(each, Admitted)}) == 1


async def test_a_template_past_its_exp_or_without_its_key_is_replaced_and_costs_one_use(url: str, redis: Redis) -> None:
    clock = StoreClock()
    async with started(url, now_us=clock) as state:
        for name, usable_kids in (("revoked", ("kid-2",)), ("none left", ()), ("similar", ("xkid-1", "kid-12"))):
            await state.admit(call(use(name, allowed=2), candidate=b"old"))
            changed = use(name, allowed=2, kid="kid-2", usable_kids=usable_kids)
            assert kept(await state.admit(call(changed, candidate=b"fresh"))) == (b"fresh", False), name
            assert await codes(state, call(use(name, allowed=2, request="b"))) == ["identity.replayed"], name
        soon = clock.us // 1_000_000 + 10
        await state.admit(call(use(allowed=2, template_exp=soon), candidate=b"old"))
        clock.us = soon * 1_000_000 - 1
        assert kept(await state.admit(call(use(allowed=2)))) == (b"old", True)
        clock.us += 1
        assert kept(await state.admit(call(use(allowed=2), candidate=b"fresh"))) == (b"fresh", False)
        assert await codes(state, call(use(allowed=2, request="b"))) == ["identity.replayed"]


async def test_a_claim_raises_the_life_of_its_record_and_never_lowers_it(state: RedisAdmission, redis: Redis) -> None:
    now = int(time.time())
    record = record_of(use()).decode()
    seen = []
    for keep_until, request in [(now + 100, "a"), (now + 50, "a"), (now + 200, "a"), (now + 300, "b"), (now + 60, "b")]:
        await outcome(state, call(use(request=request, keep_until=keep_until)))
        seen.append(await redis.expiretime(record) - now)
    assert seen == [100, 100, 200, 300, 300]


# -- epoch -------------------------------------------------------------------------------------------------------------


async def test_the_first_worker_sets_the_epoch_alone_and_a_durable_store_keeps_it(
    state: RedisAdmission, url: str, redis: Redis
) -> None:
    before = await epoch_of(redis)
    assert abs(before[0] - time.time()) <= 2
    assert before[1] == (await redis.info("server"))["run_id"]
    async with started(url, now_us=lambda: 1):
        assert await epoch_of(redis) == before
    async with started(url, durable_store=True) as durable:
        await redis.set(EPOCH_KEY, f"{int(time.time()) - 1000} {'0' * 40}")  # of another run
        assert await codes(durable, call(use())) == ["new"]
        await redis.flushall()
        assert await codes(durable, call(use())) == ["dependency.state_reset"]


async def test_after_a_flush_only_later_tokens_are_served(state: RedisAdmission, redis: Redis) -> None:
    await state.admit(call(use()))
    await redis.flushall()
    assert await codes(state, call(use(request="b"))) == ["dependency.state_reset"]
    assert await codes(state, call(use("next", issued_at=int(time.time()) + 2))) == ["new"]
    await redis.delete(EPOCH_KEY)
    assert await codes(state, refusal()) == ["counted"]
    assert (await epoch_of(redis))[0] > time.time() - 1, "a refused request notices the loss too"


async def test_an_epoch_that_is_damaged_or_of_another_run_begins_anew(state: RedisAdmission, redis: Redis) -> None:
    run_id = (await redis.info("server"))["run_id"]
    for damage in ("", "nonsense", "12", "12 ", "x run", f"{int(time.time()) - 1000} {'0' * 40}"):
        await redis.set(EPOCH_KEY, damage)
        assert await codes(state, call(use())) == ["dependency.state_reset"], damage
        epoch, bound_to = await epoch_of(redis)
        assert (epoch > time.time() - 1, bound_to) == (True, run_id), damage


async def test_after_a_loss_it_says_when_a_fresh_identity_token_is_new_enough(url: str, redis: Redis) -> None:
    clock = StoreClock()
    async with started(url, leeway_s=30, now_us=clock) as state:
        epoch = (await epoch_of(redis))[0]
        early, late = call(use(issued_at=epoch + 29)), call(use(issued_at=epoch + 30))
        assert await codes(state, early, late) == ["dependency.state_reset", "new"]
        for lost_s_ago, wait_s in ((0, 30), (29, 1), (500, 1)):
            clock.us = (epoch + lost_s_ago) * 10**6
            with pytest.raises(Undecided) as undecided:
                await state.admit(call(use(issued_at=epoch - 1)))
            assert undecided.value.retry_after_s == wait_s


# -- nonces ------------------------------------------------------------------------------------------------------------


def nonce(name: str = "one", request: str = "a", **changes: object) -> Use:
    return use(name, request, issued_at=None, **changes)


async def test_a_nonce_names_one_request_and_is_not_judged_by_the_store_s_memory(url: str, redis: Redis) -> None:
    """A caller that can send a nonce again can also send another one, so a lost nonce does no harm."""
    async with started(url, leeway_s=30) as state:
        asked = call(nonce()), call(nonce()), call(nonce(request="b")), call(nonce("two", "b")), call(use())
        assert await codes(state, *asked) == ["new", "repeat", "nonce.reused", "new", "dependency.state_reset"]
        await redis.flushall()
        assert await codes(state, call(nonce(request="b")), call(nonce())) == ["new", "nonce.reused"]


# -- limits ------------------------------------------------------------------------------------------------------------


async def test_a_batch_costs_n_and_one_larger_than_the_burst_is_told_so(state: RedisAdmission) -> None:
    limits = msgspec.structs.replace(UNLIMITED, identity=Rate(count=1, per_s=60, burst=10))
    assert await codes(state, call(use(), limits, cost=8), call(use("two"), limits, cost=3)) == ["new", "rate.identity"]
    refused = await outcome(state, call(use("other"), limits, cost=11))
    assert isinstance(refused, Refused)
    assert "larger than the burst of this rate, 10" in refused.detail
    assert refused.retry_after_s is None
    fits = await outcome(state, call(use("other"), limits, cost=10))
    assert isinstance(fits, Refused)
    assert (fits.retry_after_s or 0) > 0, "as large as the burst: it has to wait"


async def test_the_memory_and_role_of_an_absent_store_are_undecided() -> None:
    state = RedisAdmission("redis://127.0.0.1:1")
    for ask in (state.memory, state.bearing):
        with pytest.raises(Undecided):
            await ask()
    await state.aclose()


async def test_too_many_refusals_quarantine_the_identity_for_a_time(url: str, redis: Redis) -> None:
    clock = StoreClock()
    limits = Limits(identity=WIDE, integration=WIDE, refusals=Rate(count=1, per_s=3600, burst=3), quarantine_s=90)
    async with started(url, now_us=clock) as state:
        assert await codes(state, *[refusal(limits)] * 5) == ["counted"] * 4 + ["abuse.quarantined"]
        assert await codes(state, call(use("other"), limits, identity="other")) == ["new"]
        clock.us += 1
        held = await outcome(state, call(use(), limits))
        assert isinstance(held, Refused)
        assert held.code is Code.ABUSE_QUARANTINED
        assert held.retry_after_s == 90
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(math.ceil(clock.us / 1e6 + 90 - 1e-6)))
        assert end in held.detail
        clock.us += 90_000_000 - 1
        assert await codes(state, call(use(), limits)) == ["new"]


# -- who pays ----------------------------------------------------------------------------------------------------------


async def arrivals(redis: Redis) -> list[object]:
    """Return what is stored of the rates of the identity, the integration and the refusals."""
    kept = await redis.execute_command("HGET", NAMES.payer, "state", NEVER_DECODE=True)  # type: ignore[no-untyped-call]
    own = None if kept is None else STATE.unpack_from(kept)[0]
    return [own, await redis.get(NAMES.integration), await redis.hget(NAMES.payer, "refusals")]


async def test_repeats_and_replays_are_charged_to_their_record_alone(url: str, redis: Redis) -> None:
    clock = StoreClock()
    limits = Limits(identity=Rate(count=1, per_s=60, burst=1), integration=Rate(count=1, per_s=60, burst=1))
    most = AGAIN_RATE.burst
    async with started(url, now_us=clock) as state:
        repeat, replay = call(use(), limits), call(use(request="b"), limits)
        assert await codes(state, repeat) == ["new"], "which costs all that the identity may ask for"
        before = await arrivals(redis)
        assert await codes(state, *[replay] * (most + 2)) == ["identity.replayed"] * most + ["rate.identity"] * 2
        assert await codes(state, *[repeat] * (most + 1)) == ["repeat"] * most + ["rate.identity"]
        assert await arrivals(redis) == before
        over = await outcome(state, replay)
        assert isinstance(over, Refused)
        assert (over.retry_after_s, "60 times in an hour" in over.detail) == (60, True)
        clock.us += 60_000_000
        assert await codes(state, replay, repeat, call(use("other"), limits)) == ["identity.replayed", "repeat", "new"]
        assert await codes(state, replay, repeat) == ["rate.identity"] * 2


async def test_refusals_warn_from_half_of_their_rate_on_and_above_it_they_quarantine(state: RedisAdmission) -> None:
    limits = msgspec.structs.replace(UNLIMITED, refusals=Rate(count=1, per_s=3600, burst=5), quarantine_s=90)
    warned = [(await state.count(refusal(limits))).warnings for _ in range(6)]
    assert warned[:2] == [(), ()]
    assert [text.partition(" ")[0] for (text,) in warned[2:5]] == ["3", "4", "5"]
    assert warned[4] == ("5 of 5 refusals are used up: after them this identity is quarantined for 90 s",)
    assert warned[5] == ("this refusal was over the limit: this identity is quarantined for 90 s",)
    assert (await state.count(refusal(limits, identity="other"))).warnings == ()
    asked = refusal(msgspec.structs.replace(UNLIMITED, refusals=Rate(count=1, per_s=1, burst=10)))
    warned = [refusals_counted(asked, us).warnings for us in (4_000_000, 4_000_001, 10_000_000, 10_000_001)]
    begins = [[" ".join(text.split()[:3]) for text in texts] for texts in warned]
    assert begins == [[], ["5 of 10"], ["10 of 10"], ["this refusal was"]]
    half = [refusals_counted(asked, us).probing for us in (4_000_000, 4_000_001, 5_000_000, 5_000_001, 10_000_001)]
    assert half == [None, "warn", "warn", None, "quarantine"], "the first half is logged once"


async def test_a_bucket_is_quarantined_alone_and_all_of_an_identity_together_have_one_rate(
    state: RedisAdmission, redis: Redis
) -> None:
    slow = Rate(count=1, per_s=60, burst=1)
    limits = Limits(identity=slow, integration=slow, refusals=Rate(count=1, per_s=3600, burst=2), quarantine_s=90)
    branch = refusal(limits, bucket=7)
    assert await codes(state, *[branch] * 4) == ["counted"] * 3 + ["abuse.quarantined"]
    held = await outcome(state, branch)
    assert "fail the requirements in the same way are quarantined" in str(held)
    assert set(await arrivals(redis)) == {None}
    others = refusal(limits, bucket=8), refusal(limits), call(use(), limits)
    assert await codes(state, *others) == ["counted", "counted", "new"]
    assert await codes(state, branch, refusal(limits, bucket=7, identity="other")) == ["abuse.quarantined", "counted"]
    await redis.flushall()
    limits, most = msgspec.structs.replace(UNLIMITED, identity=slow), RESEMBLING_RATE.burst
    asked = [refusal(limits, bucket=number % BUCKETS) for number in range(most)]
    assert await at_once(state, asked) == {"counted": most}
    over = await outcome(state, refusal(limits, bucket=3))
    assert isinstance(over, Refused)
    assert (over.code, over.retry_after_s) == (Code.RATE_IDENTITY, RESEMBLING_RATE.interval_us // 10**6)
    others = refusal(limits, bucket=3, identity="other"), refusal(limits), call(use("more", issued_at=None), limits)
    assert await codes(state, *others) == ["counted", "counted", "new"]


async def test_a_quarantine_comes_before_the_use_record(state: RedisAdmission, redis: Redis) -> None:
    limits = msgspec.structs.replace(UNLIMITED, refusals=Rate(count=1, per_s=3600, burst=1))
    assert await codes(state, call(use(), limits), *[refusal(limits)] * 2) == ["new", "counted", "counted"]
    assert await codes(state, call(use(), limits), call(use(request="b"), limits)) == ["abuse.quarantined"] * 2
    old = call(use("old", issued_at=1), limits)
    assert await codes(state, old) == ["dependency.state_reset"]


# -- a template that its service does not want back ----------------------------------------------------------------------


async def test_a_template_is_replaced_at_the_cost_of_one_use_if_one_is_left(state: RedisAdmission) -> None:
    claim = use(allowed=2)
    await state.admit(call(claim, candidate=b"old"))
    fresh = msgspec.structs.replace(call(claim, candidate=b"fresh"), replaces=b"old")
    assert kept(await state.admit(fresh)) == (b"fresh", False)
    assert kept(await state.admit(fresh)) == (b"fresh", True), "the old one is not there any more"
    assert await codes(state, call(use(allowed=2, request="b"))) == ["identity.replayed"]
    assert await codes(state, msgspec.structs.replace(call(claim), replaces=b"fresh")) == ["identity.replayed"]
    assert kept(await state.admit(call(claim))) == (b"fresh", True)
    claim = use("at once", allowed=32)
    await state.admit(call(claim, candidate=b"old"))
    asked = [msgspec.structs.replace(call(claim, candidate=b"%d" % n), replaces=b"old") for n in range(32)]
    results = await asyncio.gather(*(state.admit(each) for each in asked))
    assert len({result.template for result in results}) == 1
    assert Counter(map(code, results)) == {"new": 1, "repeat": 31}, "of 32 at once all get the same"


async def test_key_names_hold_no_claim_and_share_one_slot(state: RedisAdmission, redis: Redis) -> None:
    slow = Rate(count=1, per_s=60, burst=9)  # one whose keys are still there when they are looked at
    await state.admit(call(use(), Limits(identity=slow, integration=slow)))
    names = [str(name) for name in await redis.keys("*")]
    assert len(names) == 4
    assert all(name.startswith("{evi1}:") for name in names)
    assert not [name for name in names if "inspect-ai" in name or ":ci" in name]
    await redis.flushall()
    await state.count(call(None, msgspec.structs.replace(UNLIMITED, integration=Rate(count=1, per_s=100, burst=2))))
    assert 99_000 < await redis.pttl(NAMES.integration) <= 100_000, "until the arrival time has passed"
    ours = refusal()
    theirs = msgspec.structs.replace(ours, payer=Payer("other", "ci"))
    one, other = ({*bill(each).keys, bill(each).payer, bill(each).filter} for each in (ours, theirs))
    assert one & other == {EPOCH_KEY}, "identities of one name in two integrations share nothing"


# -- many calls, one pipeline ------------------------------------------------------------------------------------------


async def test_calls_of_one_turn_travel_in_one_pipeline_and_more_of_them_in_several(
    state: RedisAdmission, redis: Redis
) -> None:
    await redis.config_resetstat()
    count = PIPELINE_CALLS - 28
    asked = [call(None if number % 7 == 0 else use(str(number))) for number in range(count)]
    results = await asyncio.gather(*(outcome(state, each) for each in asked))
    for each, result in zip(asked, results, strict=True):
        assert kept(result) == ((each.candidate, False) if each.use else None)
    reads = (await redis.info("stats"))["total_reads_processed"]
    assert reads < count / 4
    await redis.script_flush()  # the cache is filled again
    asked = [call(use(f"more {number}")) for number in range(PIPELINE_CALLS * PIPELINES + 50)]
    assert await at_once(state, asked) == {"new": len(asked)}
    await redis.client_kill_filter(_type="normal", skipme=True)
    assert await codes(state, asked[0]) == ["repeat"], "a connection that was cut is made again"


async def test_a_caller_who_is_cancelled_does_not_hurt_the_others(state: RedisAdmission) -> None:
    for turn in range(20):
        asked = [call(use(f"{turn} {number}")) for number in range(8)]
        tasks = [asyncio.create_task(state.admit(each)) for each in asked]
        for _ in range(turn % 5):
            await asyncio.sleep(0)
        tasks[3].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for number, (each, result) in enumerate(zip(asked, results, strict=True)):
            assert each.use
            if number != 3:
                assert kept(result) == (each.candidate, False)


# -- the store is away -------------------------------------------------------------------------------------------------


async def process_id(url: str) -> int:
    async with Redis.from_url(url) as client:
        return int((await client.info("server"))["process_id"])


async def test_when_the_store_is_killed_nobody_waits_for_a_deadline(own_url: str, loop_clock: Clock) -> None:
    async with started(own_url) as state:
        pid = await process_id(own_url)
        tasks = [asyncio.create_task(outcome(state, call(use(str(number))))) for number in range(300)]
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        assert {code(result) for result in await asyncio.gather(*tasks)} <= {"new", "dependency.state"}
        assert await codes(state, *[call(use(f"late {n}")) for n in range(20)]) == ["dependency.state"] * 20
        with pytest.raises(Undecided):
            await state.ready()


async def turn_often() -> None:
    """Let everything happen that waits for no time."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_a_start_tries_again_if_a_connection_is_too_slow(own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, ping = [RedisTimeoutError("Timeout connecting to server")], Redis.ping

    async def slow_once(redis: Redis) -> object:
        while slow:
            raise slow.pop()
        return await ping(redis)

    monkeypatch.setattr(Redis, "ping", slow_once)
    async with started(own_url):
        assert not slow


async def test_a_call_waits_0_8_s_and_its_pipeline_0_6_s(own_url: str, loop_clock: Clock) -> None:
    async with started(own_url) as state:
        both = [call(use(f"before {number}")) for number in range(PIPELINE_CALLS + 1)]
        assert await at_once(state, both) == {"new": len(both)}  # two connections
        pid = await process_id(own_url)
        os.kill(pid, signal.SIGSTOP)
        try:
            count = PIPELINE_CALLS * PIPELINES + 1  # the last one waits for a pipeline to end
            asked = [asyncio.create_task(outcome(state, call(use(str(number))))) for number in range(count)]
            began, done = loop_clock.s, []
            for passed_s in (0.0, PIPELINE_S - 0.101, PIPELINE_S - 0.1, PIPELINE_S - 0.001, PIPELINE_S, CALL_S - 0.101,
                             CALL_S - 0.1, CALL_S - 0.001, CALL_S):  # fmt: skip
                loop_clock.s = began + passed_s + 1e-6
                await turn_often()
                done.append(sum(task.done() for task in asked))
            assert done == [0, 0, 0, 0, count - 1, count - 1, count - 1, count - 1, count]
            assert {code(await task) for task in asked} == {"dependency.state"}
        finally:
            os.kill(pid, signal.SIGCONT)
        # What the store did in the end is its own request's: the same one is served, and no other.
        assert (kept(await state.admit(call(use("0")))) or b"")[0] == b"template of 0 a"
        assert await codes(state, call(use("0", request="b")), call(use("after"))) == ["identity.replayed", "new"]


async def test_where_replicas_are_demanded_a_use_counts_when_one_has_it(tmp_path: Path) -> None:
    with Store(tmp_path / "master") as master, Store(tmp_path / "replica") as replica:
        replica.is_replica_of(master)
        async with started(master.url, wait_replicas=1) as state:
            assert await codes(state, call(use("one"))) == ["new"]
            replica.kill()
            assert await codes(state, call(use("two")), refusal()) == ["dependency.state", "dependency.state"]


async def test_after_a_master_was_demoted_its_address_is_connected_to_anew(tmp_path: Path) -> None:
    with Store(tmp_path / "old") as old, Store(tmp_path / "new") as new, Proxy(old.port) as way:
        async with started(new.url):
            pass  # has an epoch
        async with started(f"redis://127.0.0.1:{way.port}/0") as state:
            assert await codes(state, call(use("one"))) == ["new"]
            with old.client as client:
                client.replicaof("127.0.0.1", "1")
            way.target = new.port
            assert await codes(state, call(use("two")), call(use("two"))) == ["dependency.state", "new"]


async def test_a_process_that_stood_still_hears_what_the_store_answered(
    state: RedisAdmission, loop_clock: Clock
) -> None:
    failed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    await state.admit(call(use("before")))  # connected
    loop_clock.s += 2 * CALL_S
    await turn_often()
    assert failed == [], "a call that was answered leaves no timer that fails"
    for turns in (1, 4):
        asked = asyncio.create_task(outcome(state, call(use(f"after {turns}"))))
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not asked.done()
        loop_clock.s += CALL_S + 0.1
        assert code(await asked) == "new"


async def test_an_exchange_uses_the_connection_of_the_one_before(url: str, redis: Redis) -> None:
    connections = Connections(connect(url, 1))
    first, second = [await connections.exchange([(b"CLIENT", b"ID")]) for _ in range(2)]
    await connections.disconnect()
    assert first == second != await connections.exchange([(b"CLIENT", b"ID")])
    await connections.exchange([(b"SUBSCRIBE", b"news")])
    await redis.publish("news", "this")
    (connection,) = connections._idle
    async with asyncio.timeout(60):
        while not await connection.can_read():
            await turn_often()
    assert await connections.exchange([(b"PING",)]) == [b"PONG"], "an unexpected message is no answer"
    await connections.disconnect()


async def test_a_full_store_admits_nobody_and_remembers_nothing_of_it(state: RedisAdmission, redis: Redis) -> None:
    await redis.config_set("maxmemory", "1")
    try:
        assert await codes(state, call(use()), refusal()) == ["dependency.state", "dependency.state"]
    finally:
        await redis.config_set("maxmemory", "0")
    assert await redis.keys("*") == [EPOCH_KEY.decode()]
    assert await codes(state, call(use())) == ["new"]


async def test_a_key_of_a_foreign_kind_or_a_damaged_record_admits_nobody(state: RedisAdmission, redis: Redis) -> None:
    claim = call(use())
    for name in keys_of(claim, bill(claim)):  # epoch, integration, payer, record
        await redis.flushall()
        await redis.rpush(name, "foreign")
        if name != EPOCH_KEY:
            await redis.set(EPOCH_KEY, f"1 {(await redis.info('server'))['run_id']}")
        assert await codes(state, claim) == ["dependency.state"], name
    await redis.flushall()
    await redis.set(EPOCH_KEY, f"1 {(await redis.info('server'))['run_id']}")
    for field, foreign in (("n", "many"), ("d:a", "no template"), ("d:a", "")):
        await redis.delete(record_of(use()))
        await redis.hset(record_of(use()), field, foreign)
        assert await codes(state, claim) == ["dependency.state"], (field, foreign)


GOOD_ANSWERS: list[tuple[list[object], str]] = [
    ([7, b"NEW", b"", [1, 2]], "new"), ([7, b"SAME", b"template", b""], "repeat"), ([7, b"RATE", 1, 5, [1, 2]], "rate.identity"),
    ([7, b"EXHAUSTED"], "identity.replayed"), ([7, b"QUARANTINED", 9, 1, b"refusals"], "abuse.quarantined"),
]  # fmt: skip
OTHER_ANSWERS: list[object] = [
    None, 1, b"NEW", "NEW", [], [7], [b"NEW"], [7, b"NEW"], [7, b"NEW", b"", [1]], [7, b"NEW", b"", [1, 2, 3]],
    [7, b"NEW", b"", [1, b"2"]], [7, b"NEW", b"", [1, None]], [7, b"NEW", None, [1, 2]], [7, b"NEW", b"", 1],
    [8, b"NEW", b"", [1, 2]], [b"7", b"NEW", b"", [1, 2]], [7, "NEW", b"", [1, 2]], [7, b"NEW", b"", [1, 2], b"more"],
    [7, b"OTHER"], [7, b"COUNTED"], [7, b"COUNTED", 0], [7, b"COUNTED", 0, b""], [7, b"SAME"], [7, b"SAME", b"", b""],
    [7, b"SAME", None, b""], [7, b"SAME", b"template"], [7, b"SAME", b"template", None], [7, b"RATE", 1],
    [7, b"RATE", 0, 5, [1, 2]], [7, b"RATE", 3, 5, [1, 2]], [7, b"RATE", 1, 5, [1]], [7, b"RATE", 1, 5], [7, b"RATE_USE"],
    [7, b"THROTTLED", 5, 6], [7, b"QUARANTINED", 1], [7, b"QUARANTINED", 9, 5, b"other"],
    [7, b"QUARANTINED", 9, 0, b"refusals"], [7, b"QUARANTINED", 9, 5, b"refusals", 7],
    [7, b"QUARANTINED", 9, 5, b"attempts", b"no tally"], [7, b"QUARANTINED", 9, 5, b"attempts", b"", b"more"],
    [[7, b"NEW", b"", [1, 2]]], (7, b"NEW", b"", [1, 2]), {7: b"NEW"}, OSError("away"), ValueError(),
]  # fmt: skip
USES: list[object] = [[7, b"NEW", b"", []], [7, b"SAME", b"template", b""], [7, b"EXHAUSTED"], [7, b"RATE_USE", 5]]


def test_an_answer_of_any_other_shape_admits_nobody() -> None:
    def read(asked: AdmissionRequest, answer: object) -> str:
        try:
            return code(read_answer(asked, bill(asked).dues if asked.use else (), 7, answer))
        except (Refused, Undecided) as error:
            return code(error)

    assert [(answer, read(call(use()), answer)) for answer, _ in GOOD_ANSWERS] == GOOD_ANSWERS
    assert [answer for answer in OTHER_ANSWERS if read(call(use()), answer) != "dependency.state"] == []
    assert [answer for answer in USES if read(refusal(), answer) != "dependency.state"] == []


async def test_after_it_is_closed_it_connects_to_nothing(url: str, redis: Redis, loop_clock: Clock) -> None:
    state = RedisAdmission(url)
    await state.start()
    under_way = [asyncio.create_task(outcome(state, call(use(str(number))))) for number in range(5)]
    while not state._pipelines:  # noqa: ASYNC110 (a pause would let the store answer)
        await asyncio.sleep(0)
    await state.aclose()
    before = (await redis.info("stats"))["total_connections_received"]
    assert await codes(state, *[call(use("late"))] * 5) == ["dependency.state"] * 5, "no time has passed"
    assert {code(result) for result in await asyncio.gather(*under_way)} == {"dependency.state"}
    await turn_often()
    assert (await redis.info("stats"))["total_connections_received"] == before


# -- start -------------------------------------------------------------------------------------------------------------


async def refuses_to_start(url: str, **settings: bool) -> SetupError:
    state = RedisAdmission(url, **settings)  # type: ignore[arg-type]
    try:
        with pytest.raises(SetupError) as refused:
            await state.start()
        return refused.value
    finally:
        await state.aclose()


async def why_not_ready(state: RedisAdmission) -> str:
    """Return why a store is not ready, "" if it is."""
    try:
        await state.ready()
    except Undecided as error:
        return error.detail
    finally:
        await state.aclose()
    return ""


async def test_what_a_store_hides_must_be_stated_and_one_that_may_evict_is_always_refused(
    url: str, redis: Redis
) -> None:
    for hidden, setting in (("config", "noeviction_stated"), ("info", "durable_store")):
        await redis.execute_command("ACL", "SETUSER", "shy", "reset", "on", ">s3cret", "~*", "+@all", f"-{hidden}")  # type: ignore[no-untyped-call]
        shy = url.replace("unix://", "unix://shy:s3cret@")
        refused = await refuses_to_start(shy)
        assert (refused.code, "s3cret" in str(refused)) == (Code.STATE_UNSAFE, False), hidden
        async with started(shy, **{setting: True}) as state:
            assert await codes(state, call(use(hidden))) == ["new"]
    await redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        for stated in (False, True):
            refused = await refuses_to_start(url, noeviction_stated=stated)
            assert (refused.code, "noeviction" in refused.detail) == (Code.STATE_UNSAFE, True)
    finally:
        await redis.config_set("maxmemory-policy", "noeviction")


async def test_a_store_that_is_not_there_and_a_url_that_is_none_are_refused() -> None:
    for nowhere in ("unix:///nonexistent/valkey.sock", "redis://user:s3cret@127.0.0.1:1/0"):
        refused = await refuses_to_start(nowhere)
        assert (refused.code, "s3cret" in str(refused)) == (Code.STATE_UNREACHABLE, False)
    for address in ("http://localhost", "valkey.sock", "redis://localhost:port", ""):
        with pytest.raises(SetupError) as error:
            RedisAdmission(address)
        assert error.value.code is Code.SETTINGS_INVALID


@pytest.mark.needs_tool("cc")
async def test_a_store_with_another_time_is_refused_and_gets_no_epoch(tmp_path: Path) -> None:
    """An epoch of another time would refuse good identity tokens once its clock is set."""
    for seconds, way in ((-40, "behind"), (40, "ahead of")):
        with Store(tmp_path / way, env=clock_ahead(tmp_path, seconds)) as store:
            refused = await refuses_to_start(store.url)
            not_ready = await why_not_ready(RedisAdmission(store.url))
            with store.client as client:
                assert not client.exists(EPOCH_KEY)
        assert refused.code is Code.STATE_UNSAFE
        logged = f"s {way} this machine's: synchronize both clocks with NTP"
        assert [logged in detail for detail in (refused.detail, not_ready)] == [True, True]


async def test_a_store_that_becomes_a_replica_admits_nobody_and_says_what_to_do(own_url: str) -> None:
    async with started(own_url) as state, Redis.from_url(own_url) as client:
        await client.execute_command("REPLICAOF", "127.0.0.1", "1")  # type: ignore[no-untyped-call]
        assert await codes(state, call(use()), refusal()) == ["dependency.state", "dependency.state"]
    refused = await refuses_to_start(own_url)
    assert (refused.code, "to its master" in refused.detail) == (Code.STATE_UNSAFE, True)
    assert "to its master" in await why_not_ready(RedisAdmission(own_url))


async def test_a_store_that_takes_no_write_says_what_to_do(url: str, redis: Redis) -> None:
    for name, value, usual, logged in (
        ("maxmemory", "1", "0", "give it more `maxmemory`"),
        ("min-replicas-to-write", "1", "0", "bring them back"),
    ):
        await redis.config_set(name, value)
        try:
            assert logged in await why_not_ready(RedisAdmission(url))
        finally:
            await redis.config_set(name, usual)
    assert await why_not_ready(RedisAdmission(url)) == ""
