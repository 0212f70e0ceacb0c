"""A store that workers of two versions share: the script of 73e2149 and today's leave the same bytes, and read them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
from redis.asyncio import Redis

from issuer.errors import Refused
from issuer.issuance.ports import AdmissionRequest, Countable, Item, Presented, Use
from issuer.issuance.steps import Payer
from issuer.limits.abuse import Abuse, Artifact, Attempts, Spread, Throttle
from issuer.limits.rate import Limits, Rate
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.admission.redis import RedisAdmission
from issuer.service.admission.script import EPOCH_KEY
from tests.support.clock import StoreClock
from tests.support.make import NOW
from tests.support.old_admission import OldAdmission

CALLS = 150
SLOW = Rate(count=1, per_s=60, burst=4)
LIMITS = Limits(identity=SLOW, integration=Rate(count=1, per_s=20, burst=6), refusals=SLOW, quarantine_s=90)
ABUSES = (
    Abuse(),
    Abuse(attempts=Attempts(distinct=1, then="throttle"), throttle=Throttle(count=1, per_s=60, burst=2, for_s=600)),
    Abuse(artifact=Artifact(distinct=1, then="quarantine"), quarantine_s=120),
    Abuse(spread=Spread(owners_a_day=1, tokens_a_run=2, then="warn")),
)
Dump = dict[bytes, tuple[object, bool]]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with EmbeddedValkey() as address:
        yield address


def some_item(dice: random.Random) -> Item:
    def padded(size: int, *names: str) -> bytes:
        return dice.choice(names).encode().ljust(size, b"_")

    files = tuple(padded(8, f"f{number}", "shared") for number in range(dice.choice([0, 1, 2])))
    twins = dice.choice([b"", b"t1", b"t2"])
    return Item(padded(16, "r1", "r2"), twins, padded(16, *"abcd"), padded(8, "m1", "m2"), padded(8, "o1", "o2"), files)


def some_call(dice: random.Random, now: int, number: int) -> AdmissionRequest:
    identity, kind, abuse = dice.choice(["a", "b"]), dice.random(), dice.choice(ABUSES)
    record = dice.choice(["r1", "r2", "r3"]) + identity
    presented = dice.choice([None, Presented(record, dice.choice([1, 2]))])
    if kind < 0.15:
        payer = Payer("x", identity, None if presented else dice.choice([None, 0, 1]))
        return AdmissionRequest(payer, LIMITS, 1, refused=True, presented=presented)
    counted = Countable(
        tuple(some_item(dice) for _ in range(dice.choice([1, 1, 2]))), dice.choice([b"", b"run_one_", b"run_two_"])
    )
    if kind < 0.25:
        return AdmissionRequest(
            Payer("x", identity), LIMITS, 1, presented=presented, countable=dice.choice([None, counted]), abuse=abuse
        )
    use = Use(
        record=record,
        allowed=dice.choice([1, 5]),
        request_digest=dice.choice(["d1", "d2"]),
        template_exp=now + dice.choice([30, 3000]),
        kid=dice.choice(["k1", "k2"]),
        usable_kids=dice.choice([("k1", "k2"), ("k2",)]),
        issued_at=dice.choice([now + 10, None]),
        keep_until=now + 10**6,
    )
    replaces = dice.choice([b"", b"", b"t%d" % (number // 2)])
    candidate = b"t%d" % number
    return AdmissionRequest(
        Payer("x", identity), LIMITS, len(counted.items), use, candidate, replaces, countable=counted, abuse=abuse
    )


async def outcome(state: RedisAdmission | OldAdmission, call: AdmissionRequest) -> object:
    try:
        return await (state.count(call) if call.use is None else state.admit(call))
    except Refused as error:
        return error.code, error.detail, error.retry_after_s, getattr(error, "rates", ()), getattr(error, "tally", b"")


async def dump(client: Any) -> Dump:
    """Return every key with its value, and whether it ends."""
    found: Dump = {}
    for key in sorted(await client.keys("{evi1}:*")):
        is_hash = await client.type(key) == b"hash"
        value = await (client.hgetall(key) if is_hash else client.get(key))
        found[key] = value, await client.pttl(key) > 0
    return found


async def played(url: str, seed: int, versions: str) -> tuple[list[object], Dump]:
    """Play the calls of a seed on an empty store, each by the next version, and return the answers and what is kept."""
    dice, clock = random.Random(seed), StoreClock()
    clock.us = NOW * 10**6
    async with Redis.from_url(url) as client:
        await client.flushall()
        await client.set(EPOCH_KEY, b"%d -" % (clock.us // 10**6 - 1000))
        states: dict[str, RedisAdmission | OldAdmission] = {
            "new": RedisAdmission(url, leeway_s=30, durable_store=True, now_us=clock),
            "old": OldAdmission(url, clock),
        }
        answers, by = [], cycle(versions.split())
        for number in range(CALLS):
            clock.us += dice.choice([20_000, 300_000, 5_000_000, 60_000_000, 3_600_000_000])
            answers.append(await outcome(states[next(by)], some_call(dice, clock.us // 10**6, number)))
        for state in states.values():
            await state.aclose()
        return answers, await dump(client)


@pytest.mark.parametrize("seed", range(3))
async def test_old_and_new_workers_on_one_store_answer_and_keep_what_either_does_alone(url: str, seed: int) -> None:
    answers, kept = await played(url, seed, "old")
    assert len({type(each) for each in answers}) == 3, "admitted, counted and refused"
    assert len({answer[0] for answer in answers if isinstance(answer, tuple)}) >= 3
    for versions in ("new", "old new", "new old", "old new new"):
        assert await played(url, seed, versions) == (answers, kept), versions
