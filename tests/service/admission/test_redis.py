"""Limits, quarantine, epoch and uses against a real Valkey, and what happens when it is away."""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

from issuer.codes import Code
from issuer.errors import IssuerError, Refused, SetupError, Undecided
from issuer.io.bounds import CALL_S
from issuer.io.redis_client import Connections, connect
from issuer.issuance.ports import Admission, AdmissionRequest, Admitted, Counted, Use
from issuer.issuance.steps import BUCKETS, Payer
from issuer.limits.rate import Exceeded, Limits, Rate, spend
from issuer.service.admission.bounds import AGAIN_RATE, PIPELINE_CALLS, PIPELINE_S, PIPELINES, RESEMBLING_RATE
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.admission.redis import RedisAdmission
from issuer.service.admission.script import (
    EPOCH_KEY,
    SCRIPT,
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

WIDE = Rate(count=1_000_000, per_s=1, burst=1_000_000)
UNLIMITED = Limits(identity=WIDE, integration=WIDE, refusals=WIDE)

# The service promises a second; the rest is for a machine that does something else. Who has no deadline waits for ever.
WITHIN_S = 10.0
assert CALL_S < 1


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


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with EmbeddedValkey() as address:
        yield address


@pytest.fixture
def own_url() -> Iterator[str]:
    """A server that the test may hurt."""
    with EmbeddedValkey() as address:
        yield address


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


async def test_the_same_request_gets_the_same_template_and_another_one_is_a_replay(state: RedisAdmission) -> None:
    first = await state.admit(call(use(), candidate=b"the first candidate"))
    again = await state.admit(call(use(), candidate=b"a later candidate"))
    assert kept(first) == (b"the first candidate", False)
    assert kept(again) == (b"the first candidate", True)
    with pytest.raises(Refused) as refused:
        await state.admit(call(use(request="b")))
    assert refused.value.code is Code.IDENTITY_REPLAYED


async def test_calls_share_connections_that_stay_open(state: RedisAdmission, redis: Redis) -> None:
    async def opened() -> int:
        return int((await redis.info("stats"))["total_connections_received"])

    await state.admit(call(use()))
    before = await opened()
    for number in range(20):
        await state.admit(call(use(f"shared {number}")))
    assert await opened() == before


async def test_a_template_comes_back_byte_for_byte(state: RedisAdmission) -> None:
    awkward = b'{"sub":"\xc3\xa9 \x00 spaces\n"}' + bytes(range(256))
    await state.admit(call(use(), candidate=awkward))
    assert kept(await state.admit(call(use()))) == (awkward, True)


async def test_a_bounded_identity_serves_n_requests_and_repeats_cost_none(state: RedisAdmission) -> None:
    asked = [call(use(request=request, allowed=3)) for request in "aababccd"]
    assert await codes(state, *asked) == [
        "new", "repeat", "new", "repeat", "repeat", "new", "repeat", "identity.replayed",
    ]  # fmt: skip


async def test_32_different_requests_at_once_yield_exactly_one_success(state: RedisAdmission) -> None:
    asked = [call(use(request=str(number))) for number in range(32)]
    assert await at_once(state, asked) == {"new": 1, "identity.replayed": 31}


async def test_two_workers_share_one_memory(state: RedisAdmission, url: str) -> None:
    async with started(url) as other:
        asked = [call(use(request=str(number))) for number in range(32)]
        assert await at_once(state, asked[::2]) + await at_once(other, asked[1::2]) == {
            "new": 1,
            "identity.replayed": 31,
        }


async def test_one_request_32_times_at_once_yields_one_template_32_times(state: RedisAdmission) -> None:
    asked = [call(use(), candidate=str(number).encode()) for number in range(32)]
    results = await asyncio.gather(*(state.admit(each) for each in asked))
    assert len({result.template for result in results}) == 1
    assert Counter(map(code, results)) == {"new": 1, "repeat": 31}


@pytest.mark.parametrize(
    "later",
    [{"usable_kids": ("kid-2",)}, {"usable_kids": ()}, {"usable_kids": ("xkid-1", "kid-12")}],
    ids=["revoked", "no key left", "names that contain it"],
)
async def test_a_template_whose_key_is_gone_is_replaced_at_the_cost_of_one_use(
    state: RedisAdmission, later: dict[str, tuple[str, ...]]
) -> None:
    await state.admit(call(use(allowed=2), candidate=b"old"))
    replaced = await state.admit(
        call(msgspec.structs.replace(use(allowed=2, kid="kid-2"), **later), candidate=b"fresh")
    )
    assert kept(replaced) == (b"fresh", False)
    assert await codes(state, call(use(allowed=2, request="b"))) == ["identity.replayed"]


async def test_a_template_past_its_exp_is_replaced_at_the_cost_of_one_use(url: str, redis: Redis) -> None:
    clock = StoreClock()
    async with started(url, now_us=clock) as state:
        soon = clock.us // 1_000_000 + 10
        await state.admit(call(use(allowed=2, template_exp=soon), candidate=b"old"))
        clock.us = soon * 1_000_000 - 1
        assert kept(await state.admit(call(use(allowed=2)))) == (b"old", True)
        clock.us += 1
        assert kept(await state.admit(call(use(allowed=2), candidate=b"fresh"))) == (b"fresh", False)
        assert await codes(state, call(use(allowed=2, request="b"))) == ["identity.replayed"]


async def test_at_n_a_template_that_is_past_is_not_replaced(state: RedisAdmission) -> None:
    await state.admit(call(use(usable_kids=("kid-1",))))
    assert await codes(state, call(use(usable_kids=("kid-2",)))) == ["identity.replayed"]


async def test_every_claim_raises_the_life_of_its_record_and_none_lowers_it(
    state: RedisAdmission, redis: Redis
) -> None:
    now = int(time.time())
    record = record_of(use()).decode()
    seen = []
    for keep_until, request in [(now + 100, "a"), (now + 50, "a"), (now + 200, "a"), (now + 300, "b"), (now + 60, "b")]:
        await outcome(state, call(use(request=request, keep_until=keep_until)))
        seen.append(await redis.expiretime(record) - now)
    assert seen == [100, 100, 200, 300, 300]


async def test_a_record_that_would_be_gone_as_it_is_written_is_not_a_use(state: RedisAdmission) -> None:
    gone = call(use(keep_until=int(time.time()) - 1))
    assert await codes(state, gone, gone) == ["dependency.state", "dependency.state"]


async def test_counting_never_claims_a_use_and_admitting_none_is_undecided(state: RedisAdmission) -> None:
    await state.count(call(use(request="a")))
    assert await codes(state, call(use(request="b"))) == ["new"]
    with pytest.raises(Undecided):
        await state.admit(call(None))


# -- epoch -------------------------------------------------------------------------------------------------------------


async def test_the_first_worker_sets_the_epoch_and_a_later_one_leaves_it(
    state: RedisAdmission, url: str, redis: Redis
) -> None:
    before = await epoch_of(redis)
    assert abs(before[0] - time.time()) <= 2
    assert before[1] == (await redis.info("server"))["run_id"]
    async with started(url, now_us=lambda: 1):
        assert await epoch_of(redis) == before


async def test_a_replay_after_flushall_is_refused_and_a_token_issued_later_is_served(
    state: RedisAdmission, redis: Redis
) -> None:
    await state.admit(call(use()))
    await redis.flushall()
    assert await codes(state, call(use(request="b"))) == ["dependency.state_reset"]
    assert await codes(state, call(use("next", issued_at=int(time.time()) + 2))) == ["new"]


async def test_a_worker_that_starts_after_the_loss_refuses_what_was_issued_before_it(
    state: RedisAdmission, url: str, redis: Redis
) -> None:
    await state.admit(call(use()))
    await redis.flushall()
    async with started(url, leeway_s=30) as fresh:
        assert await codes(fresh, call(use(request="b"))) == ["dependency.state_reset"]
        assert await codes(fresh, call(use("next", issued_at=int(time.time()) + 31))) == ["new"]


@pytest.mark.parametrize("damage", ["", "nonsense", "12", "12 ", "x run"])
async def test_an_epoch_that_cannot_be_read_begins_anew(state: RedisAdmission, redis: Redis, damage: str) -> None:
    await redis.set(EPOCH_KEY, damage)
    assert await codes(state, call(use())) == ["dependency.state_reset"]
    assert (await epoch_of(redis))[0] > time.time() - 1


async def test_an_epoch_bound_to_another_run_of_the_store_begins_anew(state: RedisAdmission, redis: Redis) -> None:
    await redis.set(EPOCH_KEY, f"{int(time.time()) - 1000} {'0' * 40}")
    assert await codes(state, call(use())) == ["dependency.state_reset"]
    assert (await epoch_of(redis))[1] == (await redis.info("server"))["run_id"]


async def test_a_refused_request_notices_the_loss_too(state: RedisAdmission, redis: Redis) -> None:
    await redis.delete(EPOCH_KEY)
    assert await codes(state, refusal()) == ["counted"]
    assert (await epoch_of(redis))[0] > time.time() - 1


async def test_a_store_that_loses_nothing_keeps_its_epoch_over_a_restart_but_not_over_a_loss(
    url: str, redis: Redis
) -> None:
    async with started(url, durable_store=True) as state:
        await redis.set(EPOCH_KEY, f"{int(time.time()) - 1000} {'0' * 40}")
        assert await codes(state, call(use())) == ["new"]
        await redis.flushall()
        assert await codes(state, call(use())) == ["dependency.state_reset"]


async def test_the_leeway_counts_from_the_epoch(url: str, redis: Redis) -> None:
    async with started(url, leeway_s=30) as state:
        epoch = (await epoch_of(redis))[0]
        early, late = call(use(issued_at=epoch + 29)), call(use(issued_at=epoch + 30))
        assert await codes(state, early, late) == ["dependency.state_reset", "new"]


async def test_after_a_loss_it_says_when_a_fresh_identity_token_will_be_new_enough(url: str, redis: Redis) -> None:
    clock = StoreClock()
    async with started(url, leeway_s=30, now_us=clock) as state:
        epoch = (await epoch_of(redis))[0]
        for lost_s_ago, wait_s in ((0, 30), (29, 1), (500, 1)):
            clock.us = (epoch + lost_s_ago) * 10**6
            with pytest.raises(Undecided) as undecided:
                await state.admit(call(use(issued_at=epoch - 1)))
            assert undecided.value.retry_after_s == wait_s


# -- nonces ------------------------------------------------------------------------------------------------------------


def nonce(name: str = "one", request: str = "a", **changes: object) -> Use:
    return use(name, request, issued_at=None, **changes)


async def test_a_nonce_names_one_request(state: RedisAdmission) -> None:
    assert await codes(state, call(nonce()), call(nonce()), call(nonce(request="b"))) == [
        "new", "repeat", "nonce.reused",
    ]  # fmt: skip
    assert await codes(state, call(nonce("two", "b"))) == ["new"]


async def test_of_32_requests_at_once_under_one_nonce_one_is_new(state: RedisAdmission) -> None:
    asked = [call(nonce(request=f"{number}")) for number in range(32)]
    assert await at_once(state, asked) == {"new": 1, "nonce.reused": 31}
    assert await at_once(state, [call(nonce("same")) for _ in range(32)]) == {"new": 1, "repeat": 31}


async def test_a_nonce_is_not_judged_by_the_store_s_memory(url: str, redis: Redis) -> None:
    """Who can send a nonce again could as well send another one; so a store that lost it has lost nothing."""
    async with started(url, leeway_s=30) as state:
        assert await codes(state, call(nonce()), call(use())) == ["new", "dependency.state_reset"]
        await redis.flushall()
        assert await codes(state, call(nonce(request="b")), call(nonce())) == ["new", "nonce.reused"]


async def test_a_nonce_is_kept_for_its_day_and_each_use_begins_a_new_one(state: RedisAdmission, redis: Redis) -> None:
    now = int(time.time())
    await state.admit(call(nonce(keep_until=now + 100)))
    (key,) = await redis.keys("*use:*")
    assert 98_000 < await redis.pttl(key) <= 100_000
    await state.admit(call(nonce(keep_until=now + 200)))
    assert 198_000 < await redis.pttl(key) <= 200_000
    await state.admit(call(nonce(keep_until=now + 50)))
    assert await redis.pttl(key) > 190_000, "never lowered"


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
async def test_the_store_does_exactly_the_arithmetic_of_spend(url: str, redis: Redis, seed: int) -> None:
    dice, clock = random.Random(seed), StoreClock()
    narrow = Rate(count=dice.randint(1, 90), per_s=dice.randint(7, 61), burst=dice.randint(1, 12))
    limits = msgspec.structs.replace(UNLIMITED, identity=narrow)
    arrival = 0
    async with started(url, now_us=clock) as state:
        for _ in range(60):
            # At least 50 ms, so that no key expires on the store's clock before it does on this one.
            clock.us += 50_000 + dice.randint(0, dice.choice([1, 3]) * narrow.interval_us)
            cost = dice.choice([1, 1, 1, 2, 3])
            expected = spend(narrow, arrival, clock.us, cost)
            got = await outcome(state, call(None, limits, cost))
            if isinstance(expected, Exceeded):
                assert isinstance(got, Refused)
                assert got.code is Code.RATE_IDENTITY
                fits = cost <= narrow.burst
                assert got.retry_after_s == (math.ceil(expected.retry_us / 1e6) if fits else None)
            else:
                assert isinstance(got, Counted)
                arrival = expected.arrival_us
                assert (await arrivals(redis))[0] == arrival


async def test_a_rate_forgets_its_key_when_the_arrival_time_has_passed(state: RedisAdmission, redis: Redis) -> None:
    await state.count(call(None, msgspec.structs.replace(UNLIMITED, integration=Rate(count=1, per_s=100, burst=2))))
    assert 99_000 < await redis.pttl(NAMES.integration) <= 100_000


@pytest.mark.parametrize(
    ("narrow", "wide", "expected"), [("identity", 0, "rate.identity"), ("integration", 1, "rate.integration")]
)
async def test_identity_and_integration_pay_together_or_not_at_all(
    url: str, redis: Redis, narrow: str, wide: int, expected: str
) -> None:
    clock = StoreClock()
    rates = {"identity": Rate(count=1, per_s=10, burst=9), "integration": Rate(count=1, per_s=10, burst=9)}
    limits = msgspec.structs.replace(UNLIMITED, **rates | {narrow: Rate(count=1, per_s=10, burst=1)})
    async with started(url, now_us=clock) as state:
        assert await codes(state, call(None, limits)) == ["counted"]
        before = await arrivals(redis)
        assert await codes(state, call(None, limits), call(use(), limits)) == [expected, expected]
        assert await arrivals(redis) == before
        clock.us += 10_000_000
        assert await codes(state, call(use(), limits)) == ["new"]


@pytest.mark.parametrize("longer", ["identity", "integration"])
async def test_of_two_rates_that_are_over_the_one_that_waits_longer_refuses(state: RedisAdmission, longer: str) -> None:
    short, long = Rate(count=1, per_s=60, burst=1), Rate(count=1, per_s=600, burst=1)
    limits = msgspec.structs.replace(UNLIMITED, **{"identity": short, "integration": short, longer: long})
    await state.count(call(None, limits))
    refused = await outcome(state, call(None, limits))
    assert isinstance(refused, Refused)
    assert (str(refused.code), refused.retry_after_s) == (f"rate.{longer}", 600)


async def test_a_batch_costs_n_and_one_larger_than_the_burst_is_told_so(state: RedisAdmission) -> None:
    limits = msgspec.structs.replace(UNLIMITED, identity=Rate(count=1, per_s=60, burst=10))
    assert await codes(state, call(use(), limits, cost=8), call(use("two"), limits, cost=3)) == ["new", "rate.identity"]
    refused = await outcome(state, call(use("other"), limits, cost=11))
    assert isinstance(refused, Refused)
    assert "larger than the burst of this rate, 10" in refused.detail
    assert refused.retry_after_s is None


async def test_a_rate_refusal_names_whole_seconds_and_claims_no_use(state: RedisAdmission) -> None:
    limits = msgspec.structs.replace(UNLIMITED, integration=Rate(count=1, per_s=60, burst=1))
    await state.count(call(None, limits))
    refused = await outcome(state, call(use(), limits))
    assert isinstance(refused, Refused)
    assert refused.retry_after_s == 60
    roomier = msgspec.structs.replace(UNLIMITED, integration=Rate(count=1, per_s=60, burst=2))
    assert await codes(state, call(use(request="b"), roomier)) == ["new"]


async def test_too_many_refusals_quarantine_the_identity_alone_and_the_quarantine_ends(url: str, redis: Redis) -> None:
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


async def test_repeats_and_replays_are_charged_to_their_record_alone_each_for_itself(url: str, redis: Redis) -> None:
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


async def test_another_record_of_the_identity_is_not_concerned(state: RedisAdmission) -> None:
    replay = call(use(request="b"))
    assert await codes(state, call(use())) == ["new"]
    await codes(state, *[replay] * AGAIN_RATE.burst)
    assert await codes(state, replay, call(use("other")), call(use("other"))) == ["rate.identity", "new", "repeat"]


async def test_a_refusal_costs_no_rate_but_that_of_refusals(state: RedisAdmission, redis: Redis) -> None:
    slow = Rate(count=1, per_s=60, burst=1)
    limits = Limits(identity=slow, integration=slow, refusals=Rate(count=1, per_s=60, burst=5))
    assert await codes(state, *[refusal(limits)] * 4, call(use(), limits)) == ["counted"] * 4 + ["new"]
    assert await codes(state, refusal(limits)) == ["counted"], "and no rate stands in its way"


async def test_refusals_warn_from_half_of_their_rate_on_and_the_last_one_of_the_quarantine(
    state: RedisAdmission,
) -> None:
    limits = msgspec.structs.replace(UNLIMITED, refusals=Rate(count=1, per_s=3600, burst=5), quarantine_s=90)
    warned = [(await state.count(refusal(limits))).warnings for _ in range(6)]
    assert warned[:2] == [(), ()]
    assert [text.partition(" ")[0] for (text,) in warned[2:5]] == ["3", "4", "5"]
    assert warned[4] == ("5 of 5 refusals are used up: after them this identity is quarantined for 90 s",)
    assert warned[5] == ("this refusal was over the limit: this identity is quarantined for 90 s",)
    assert (await state.count(refusal(limits, identity="other"))).warnings == ()


def test_a_warning_begins_at_half_of_a_rate_and_a_quarantine_above_all_of_it() -> None:
    asked = refusal(msgspec.structs.replace(UNLIMITED, refusals=Rate(count=1, per_s=1, burst=10)))
    said = [refusals_counted(asked, us).warnings for us in (4_000_000, 4_000_001, 10_000_000, 10_000_001)]
    assert [" ".join(text.split()[:3]) for texts in said[1:] for text in texts] == [
        "5 of 10",
        "10 of 10",
        "this refusal was",
    ]
    assert said[0] == ()
    half = [refusals_counted(asked, us).probing for us in (4_000_000, 4_000_001, 5_000_000, 5_000_001, 10_000_001)]
    assert half == [None, "warn", "warn", None, "quarantine"], "the first half is told once"


async def test_a_bucket_is_quarantined_alone_and_costs_its_identity_nothing(
    state: RedisAdmission, redis: Redis
) -> None:
    slow = Rate(count=1, per_s=60, burst=1)
    limits = Limits(identity=slow, integration=slow, refusals=Rate(count=1, per_s=3600, burst=2), quarantine_s=90)
    branch = refusal(limits, bucket=7)
    assert await codes(state, *[branch] * 4) == ["counted"] * 3 + ["abuse.quarantined"]
    held = await outcome(state, branch)
    assert "fail the requirements in the same way are quarantined" in str(held)
    assert set(await arrivals(redis)) == {None}
    assert await codes(state, refusal(limits, bucket=8), refusal(limits), call(use(), limits)) == [
        "counted",
        "counted",
        "new",
    ]
    assert await codes(state, branch, refusal(limits, bucket=7, identity="other")) == ["abuse.quarantined", "counted"]


async def test_all_buckets_of_an_identity_together_have_one_rate(state: RedisAdmission) -> None:
    limits, most = msgspec.structs.replace(UNLIMITED, identity=Rate(count=1, per_s=60, burst=1)), RESEMBLING_RATE.burst
    asked = [refusal(limits, bucket=number % BUCKETS) for number in range(most)]
    assert await at_once(state, asked) == {"counted": most}
    over = await outcome(state, refusal(limits, bucket=3))
    assert isinstance(over, Refused)
    assert (over.code, over.retry_after_s) == (Code.RATE_IDENTITY, RESEMBLING_RATE.interval_us // 10**6)
    assert await codes(state, refusal(limits, bucket=3, identity="other"), refusal(limits), call(use(), limits)) == [
        "counted", "counted", "new",
    ]  # fmt: skip


async def test_a_quarantine_comes_before_the_use_record_and_a_lost_memory_before_both(
    state: RedisAdmission, redis: Redis
) -> None:
    limits = msgspec.structs.replace(UNLIMITED, refusals=Rate(count=1, per_s=3600, burst=1))
    assert await codes(state, call(use(), limits), *[refusal(limits)] * 2) == ["new", "counted", "counted"]
    assert await codes(state, call(use(), limits), call(use(request="b"), limits)) == ["abuse.quarantined"] * 2
    old = call(use("old", issued_at=1), limits)
    assert await codes(state, old) == ["dependency.state_reset"]


# -- a template that its service does not want back ----------------------------------------------------------------------


async def test_a_template_is_replaced_at_the_cost_of_one_use_by_who_names_it(state: RedisAdmission) -> None:
    claim = use(allowed=2)
    await state.admit(call(claim, candidate=b"old"))
    fresh = msgspec.structs.replace(call(claim, candidate=b"fresh"), replaces=b"old")
    assert kept(await state.admit(fresh)) == (b"fresh", False)
    assert kept(await state.admit(fresh)) == (b"fresh", True), "the old one is not there any more"
    assert await codes(state, call(use(allowed=2, request="b"))) == ["identity.replayed"]


async def test_where_no_use_is_left_nothing_is_replaced(state: RedisAdmission) -> None:
    await state.admit(call(use(), candidate=b"old"))
    assert await codes(state, msgspec.structs.replace(call(use()), replaces=b"old")) == ["identity.replayed"]
    assert kept(await state.admit(call(use()))) == (b"old", True)


async def test_of_32_who_replace_a_template_at_once_one_does_and_all_get_the_same(state: RedisAdmission) -> None:
    claim = use(allowed=32)
    await state.admit(call(claim, candidate=b"old"))
    asked = [msgspec.structs.replace(call(claim, candidate=b"%d" % n), replaces=b"old") for n in range(32)]
    results = await asyncio.gather(*(state.admit(each) for each in asked))
    assert len({result.template for result in results}) == 1
    assert Counter(map(code, results)) == {"new": 1, "repeat": 31}


async def test_a_shorter_quarantine_frees_those_who_wait(url: str, redis: Redis) -> None:
    limits = Limits(identity=WIDE, integration=WIDE, refusals=Rate(count=1, per_s=3600, burst=1), quarantine_s=900)
    async with started(url) as state:
        await codes(state, *[refusal(limits)] * 2)
        held = await outcome(state, refusal(msgspec.structs.replace(limits, quarantine_s=5)))
        assert isinstance(held, Refused)
        assert held.retry_after_s == 5


async def test_key_names_hold_no_claim_and_share_one_slot(state: RedisAdmission, redis: Redis) -> None:
    slow = Rate(count=1, per_s=60, burst=9)  # one whose keys are still there when they are looked at
    await state.admit(call(use(), Limits(identity=slow, integration=slow)))
    names = [str(name) for name in await redis.keys("*")]
    assert len(names) == 4
    assert all(name.startswith("{evi1}:") for name in names)
    assert not [name for name in names if "inspect-ai" in name or ":ci" in name]


# -- many calls, one pipeline ------------------------------------------------------------------------------------------


async def test_calls_of_one_turn_travel_together_and_each_gets_its_own_answer(
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


async def test_more_calls_than_one_pipeline_takes_are_all_answered(state: RedisAdmission) -> None:
    asked = [call(use(str(number))) for number in range(PIPELINE_CALLS * PIPELINES + 50)]
    assert await at_once(state, asked) == {"new": len(asked)}


async def test_a_flushed_script_cache_is_filled_again(state: RedisAdmission, redis: Redis) -> None:
    await redis.script_flush()
    asked = [call(use(str(number))) for number in range(40)]
    assert await at_once(state, asked) == {"new": 40}


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


async def timed(state: RedisAdmission, asked: AdmissionRequest) -> tuple[str, float]:
    begin = time.monotonic()
    return code(await outcome(state, asked)), time.monotonic() - begin


async def process_id(url: str) -> int:
    async with Redis.from_url(url) as client:
        return int((await client.info("server"))["process_id"])


async def test_when_the_store_is_killed_every_waiter_is_undecided_within_a_second(own_url: str) -> None:
    async with started(own_url) as state:
        pid = await process_id(own_url)
        tasks = [asyncio.create_task(timed(state, call(use(str(number))))) for number in range(300)]
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.1)
        late = [await timed(state, call(use(f"late {number}"))) for number in range(20)]
        for answer, took_s in [*await asyncio.gather(*tasks), *late]:
            assert answer in {"new", "dependency.state"}
            assert took_s < WITHIN_S
        assert {answer for answer, _ in late} == {"dependency.state"}
        # They ended when the connection failed, and did not wait for their own deadline.
        assert min(took_s for _, took_s in late) < CALL_S / 2
        with pytest.raises(Undecided):
            await state.ready()


async def test_when_the_store_stalls_nobody_waits_over_a_second_and_it_serves_when_it_is_back(own_url: str) -> None:
    async with started(own_url) as state:
        pid = await process_id(own_url)
        await state.admit(call(use("before")))
        os.kill(pid, signal.SIGSTOP)
        try:
            count = (
                PIPELINE_CALLS * PIPELINES + 40
            )  # more than are under way at once: those that were never sent are bounded too
            results = await asyncio.gather(*(timed(state, call(use(str(number)))) for number in range(count)))
            assert {answer for answer, _ in results} == {"dependency.state"}
            assert max(took_s for _, took_s in results) < WITHIN_S
            with pytest.raises(Undecided):
                await state.ready()
        finally:
            os.kill(pid, signal.SIGCONT)
        # What the store did in the end is its own request's: the same one is served, and no other.
        assert kept(await state.admit(call(use("0")))) in [(b"template of 0 a", again) for again in (True, False)]
        assert await codes(state, call(use("0", request="b")), call(use("after"))) == ["identity.replayed", "new"]


@pytest.fixture
async def loop_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of the event loop, which passes only when a test says so."""
    loop, clock = asyncio.get_running_loop(), Clock()
    clock.s = loop.time()
    monkeypatch.setattr(loop, "time", clock)
    return clock


async def turn_often() -> None:
    """Let everything happen that waits for no time."""
    for _ in range(100):
        await asyncio.sleep(0)


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


async def test_a_call_that_was_answered_leaves_no_timer_that_fails(state: RedisAdmission, loop_clock: Clock) -> None:
    failed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    assert await codes(state, call(use())) == ["new"]
    loop_clock.s += 2 * CALL_S
    await turn_often()
    assert failed == []


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


async def test_a_process_that_stood_still_still_hears_what_the_store_answered(state: RedisAdmission) -> None:
    await state.admit(call(use("before")))  # connected
    for turns in (1, 4):
        asked = asyncio.create_task(outcome(state, call(use(f"after {turns}"))))
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not asked.done()
        time.sleep(CALL_S + 0.1)  # noqa: ASYNC251 (the loop is to stand still)
        assert code(await asked) == "new"


async def test_a_connection_that_was_cut_is_made_again(state: RedisAdmission, redis: Redis) -> None:
    await state.admit(call(use()))
    await redis.client_kill_filter(_type="normal", skipme=True)
    assert await codes(state, call(use())) == ["repeat"]


async def test_an_exchange_is_over_the_connection_of_the_one_before(url: str) -> None:
    connections = Connections(connect(url, 1))
    asked = [await connections.exchange([(b"CLIENT", b"ID")]) for _ in range(2)]
    assert asked[0] == asked[1]
    await connections.disconnect()
    assert await connections.exchange([(b"CLIENT", b"ID")]) != asked[0]
    await connections.disconnect()


async def test_what_the_store_says_unasked_is_no_answer(url: str, redis: Redis) -> None:
    connections = Connections(connect(url, 1))
    await connections.exchange([(b"SUBSCRIBE", b"news")])
    await redis.publish("news", "this")
    await asyncio.sleep(0.1)
    assert await connections.exchange([(b"PING",)]) == [b"PONG"]
    await connections.disconnect()


async def test_a_full_store_admits_nobody_and_remembers_nothing_of_it(state: RedisAdmission, redis: Redis) -> None:
    await redis.config_set("maxmemory", "1")
    try:
        assert await codes(state, call(use()), refusal()) == ["dependency.state", "dependency.state"]
    finally:
        await redis.config_set("maxmemory", "0")
    assert await redis.keys("*") == [EPOCH_KEY.decode()]
    assert await codes(state, call(use())) == ["new"]


async def test_a_read_only_replica_admits_nobody(own_url: str) -> None:
    async with started(own_url) as state, Redis.from_url(own_url) as client:
        await client.execute_command("REPLICAOF", "127.0.0.1", "1")  # type: ignore[no-untyped-call]
        assert await codes(state, call(use()), refusal()) == ["dependency.state", "dependency.state"]


@pytest.mark.parametrize("key", range(4), ids=["epoch", "integration", "payer", "record"])
async def test_a_key_of_a_foreign_kind_admits_nobody(state: RedisAdmission, redis: Redis, key: int) -> None:
    claim = call(use())
    name = keys_of(claim, bill(claim))[key]
    await redis.delete(name)
    await redis.rpush(name, "foreign")
    assert await codes(state, claim) == ["dependency.state"]


@pytest.mark.parametrize(("field", "foreign"), [("n", "many"), ("d:a", "no template"), ("d:a", "")])
async def test_a_damaged_record_admits_nobody(state: RedisAdmission, redis: Redis, field: str, foreign: str) -> None:
    await redis.hset(record_of(use()), field, foreign)
    assert await codes(state, call(use())) == ["dependency.state"]


@pytest.mark.parametrize(
    "answer",
    [
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
    ],
)  # fmt: skip
def test_an_answer_of_any_other_shape_admits_nobody(answer: object) -> None:
    with pytest.raises(Undecided):
        read_answer(call(use()), bill(call(use())).dues, 7, answer)


def test_the_good_shapes_that_the_others_are_next_to_are_taken() -> None:
    asked = call(use())
    dues = bill(asked).dues
    assert kept(read_answer(asked, dues, 7, [7, b"NEW", b"", [1, 2]])) == (asked.candidate, False)
    assert kept(read_answer(asked, dues, 7, [7, b"SAME", b"template", b""])) == (b"template", True)
    for answer in ([7, b"RATE", 1, 5, [1, 2]], [7, b"EXHAUSTED"], [7, b"QUARANTINED", 9, 5, b"refusals"]):
        with pytest.raises(Refused):
            read_answer(asked, dues, 7, answer)


def test_identities_of_one_name_in_two_integrations_share_nothing() -> None:
    ours = refusal()
    theirs = msgspec.structs.replace(ours, payer=Payer("other", "ci"))
    one, other = ({*bill(each).keys, bill(each).payer, bill(each).filter} for each in (ours, theirs))
    assert one & other == {EPOCH_KEY}


@pytest.mark.parametrize(
    "answer",
    [[7, b"NEW", b"", []], [7, b"SAME", b"template", b""], [7, b"EXHAUSTED"], [7, b"RATE_USE", 5]],
)
def test_a_refused_request_is_never_answered_with_a_use(answer: object) -> None:
    with pytest.raises(Undecided):
        read_answer(refusal(), (), 7, answer)


async def test_after_it_is_closed_it_connects_to_nothing(url: str, redis: Redis) -> None:
    async with started(url) as state:
        assert await codes(state, call(use())) == ["new"]
    before = (await redis.info("stats"))["total_connections_received"]
    assert await codes(state, call(use("late"))) == ["dependency.state"]
    await asyncio.sleep(0.2)
    assert (await redis.info("stats"))["total_connections_received"] == before


async def test_after_it_is_closed_nobody_is_admitted_and_nobody_waits(own_url: str) -> None:
    state = RedisAdmission(own_url)
    await state.start()
    under_way = [asyncio.create_task(timed(state, call(use(str(number))))) for number in range(5)]
    await asyncio.sleep(0)
    await state.aclose()
    late = [await timed(state, call(use("late"))) for _ in range(5)]
    assert {answer for answer, _ in [*await asyncio.gather(*under_way), *late]} == {"dependency.state"}
    assert min(took_s for _, took_s in late) < CALL_S / 2, "nobody has a deadline to wait for"


# -- start -------------------------------------------------------------------------------------------------------------


async def refuses_to_start(url: str, **settings: bool) -> SetupError:
    state = RedisAdmission(url, **settings)  # type: ignore[arg-type]
    try:
        with pytest.raises(SetupError) as refused:
            await state.start()
        return refused.value
    finally:
        await state.aclose()


async def test_a_store_that_may_evict_is_refused_whatever_the_operator_states(url: str, redis: Redis) -> None:
    await redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        for stated in (False, True):
            refused = await refuses_to_start(url, noeviction_stated=stated)
            assert refused.code is Code.STATE_UNSAFE
            assert "noeviction" in refused.detail
    finally:
        await redis.config_set("maxmemory-policy", "noeviction")


async def test_where_config_is_denied_the_operator_states_it(url: str, redis: Redis) -> None:
    await redis.execute_command("ACL", "SETUSER", "narrow", "on", ">s3cret", "~*", "+@all", "-config")  # type: ignore[no-untyped-call]
    narrow = url.replace("unix://", "unix://narrow:s3cret@")
    refused = await refuses_to_start(narrow)
    assert refused.code is Code.STATE_UNSAFE
    assert "s3cret" not in str(refused)
    async with started(narrow, noeviction_stated=True) as state:
        assert await codes(state, call(use())) == ["new"]


async def test_a_store_that_hides_its_run_id_must_be_stated_durable(url: str, redis: Redis) -> None:
    await redis.execute_command("ACL", "SETUSER", "blind", "on", ">s3cret", "~*", "+@all", "-info")  # type: ignore[no-untyped-call]
    blind = url.replace("unix://", "unix://blind:s3cret@")
    assert (await refuses_to_start(blind)).code is Code.STATE_UNSAFE
    async with started(blind, durable_store=True) as state:
        assert await codes(state, call(use())) == ["new"]


@pytest.mark.parametrize("nowhere", ["unix:///nonexistent/valkey.sock", "redis://user:s3cret@127.0.0.1:1/0"])
async def test_a_store_that_is_not_there_is_refused_without_telling_its_password(nowhere: str) -> None:
    refused = await refuses_to_start(nowhere)
    assert refused.code is Code.STATE_UNREACHABLE
    assert "s3cret" not in str(refused)


@pytest.mark.parametrize("address", ["http://localhost", "valkey.sock", "redis://localhost:port", ""])
def test_a_url_that_is_not_one_is_a_setting_to_correct(address: str) -> None:
    with pytest.raises(SetupError) as refused:
        RedisAdmission(address)
    assert refused.value.code is Code.SETTINGS_INVALID


def test_it_is_the_admission_that_the_line_asks_for(url: str) -> None:
    _: Admission = RedisAdmission(url)  # mypy is the test


@pytest.mark.needs_tool("cc")
@pytest.mark.parametrize("seconds", [-40, 40])
async def test_a_store_with_another_time_is_refused_and_gets_no_epoch(tmp_path: Path, seconds: int) -> None:
    """An epoch of another time would refuse good identity tokens once its clock is set."""
    with Store(tmp_path / "store", env=clock_ahead(tmp_path, seconds)) as store:
        refused = await refuses_to_start(store.url)
        state = RedisAdmission(store.url)
        with pytest.raises(Undecided) as red:
            await state.ready()
        await state.aclose()
        assert not store.client.exists(EPOCH_KEY)
    assert refused.code is Code.STATE_UNSAFE
    way = "ahead of" if seconds > 0 else "behind"
    assert all(
        f"s {way} this machine's: synchronize both clocks with NTP" in error.detail for error in (refused, red.value)
    )


async def test_a_store_that_is_a_replica_is_refused_with_what_to_do(own_url: str) -> None:
    async with Redis.from_url(own_url) as client:
        await client.execute_command("REPLICAOF", "127.0.0.1", "1")  # type: ignore[no-untyped-call]
    refused = await refuses_to_start(own_url)
    assert (refused.code, "to its master" in refused.detail) == (Code.STATE_UNSAFE, True)
    state = RedisAdmission(own_url)
    with pytest.raises(Undecided) as red:
        await state.ready()
    await state.aclose()
    assert "to its master" in red.value.detail


@pytest.mark.parametrize(
    ("name", "value", "usual", "says"),
    [("maxmemory", "1", "0", "give it more `maxmemory`"), ("min-replicas-to-write", "1", "0", "bring them back")],
)
async def test_a_store_that_takes_no_write_says_what_to_do(
    state: RedisAdmission, redis: Redis, name: str, value: str, usual: str, says: str
) -> None:
    await redis.config_set(name, value)
    try:
        with pytest.raises(Undecided) as red:
            await state.ready()
    finally:
        await redis.config_set(name, usual)
    assert says in red.value.detail


async def test_ready_returns_while_the_store_answers(state: RedisAdmission) -> None:
    await state.ready()


def test_the_script_is_ascii() -> None:
    """So that every tool that shows it shows what runs."""
    assert SCRIPT.isascii()
