"""The script beside a model of it: random calls at random times get the answers that the contract's words give.

The model is section 5, "Who pays" and "Uses and retries", in Python and in their order; `limits.spend` is its arithmetic.
"""

import random
from dataclasses import dataclass, field

import pytest
from redis.asyncio import Redis

from issuer.codes import Code
from issuer.errors import Refused
from issuer.issuance.ports import AdmissionRequest, Admitted, Presented, Use
from issuer.issuance.steps import Payer
from issuer.limits.rate import Exceeded, Limits, Rate, spend
from issuer.service.admission.bounds import AGAIN_RATE, RESEMBLING_RATE
from issuer.service.admission.redis import RedisAdmission
from issuer.service.admission.script import seconds
from tests.support.clock import StoreClock

pytestmark = pytest.mark.usefixtures("loop_clock")
CALLS = 250
Answer = tuple[str, int | None, bytes]  # code or verdict, Retry-After, template


@dataclass
class Record:
    """A use record: its uses, and for each request when its template ends, its key, and the template."""

    uses: int = 0
    templates: dict[str, tuple[int, str, bytes]] = field(default_factory=dict)


@dataclass
class Model:
    """What the store remembers: theoretical arrival times, ends of quarantines, use records."""

    arrivals: dict[tuple[object, ...], int] = field(default_factory=dict)
    quarantined: dict[Payer, int] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)

    def answer(self, call: AdmissionRequest, now_us: int) -> Answer:
        left_us = min(self.quarantined.get(call.payer, 0) - now_us, call.limits.quarantine_s * 10**6)
        if left_us > 0:
            return str(Code.ABUSE_QUARANTINED), seconds(left_us), b""
        if call.use and (answered := self.again(call, call.use, now_us)):
            return answered
        if call.presented and self.records.get(call.presented.record, Record()).uses >= call.presented.allowed:
            return self.charge_record(call.presented.record, "replays", now_us) or ("counted", None, b"")
        if over := self.over(call, now_us):
            return over
        if call.use is None:
            return self.count(call, now_us)
        record = self.records.setdefault(call.use.record, Record())
        record.uses += 1
        record.templates[call.use.request_digest] = (call.use.template_exp, call.use.kid, call.candidate)
        return "new", None, call.candidate

    def again(self, call: AdmissionRequest, use: Use, now_us: int) -> Answer | None:
        record = self.records.get(use.record, Record())
        ends, kid, template = record.templates.get(use.request_digest, (0, "", b""))
        good = ends > now_us // 10**6 and kid in use.usable_kids and template != call.replaces
        if not good and record.uses < use.allowed:
            return None
        if over := self.charge_record(use.record, "repeats" if good else "replays", now_us):
            return over
        return ("repeat", None, template) if good else (str(use.spent), None, b"")

    def charge_record(self, record: str, counter: str, now_us: int) -> Answer | None:
        spent = spend(AGAIN_RATE, self.arrivals.get((record, counter), 0), now_us)
        if isinstance(spent, Exceeded):
            return str(Code.RATE_IDENTITY), seconds(spent.retry_us), b""
        self.arrivals[record, counter] = spent.arrival_us
        return None

    def over(self, call: AdmissionRequest, now_us: int) -> Answer | None:
        payer = call.payer
        if payer.bucket is not None:
            rates = [(("resembling", payer.identity), Code.RATE_IDENTITY, RESEMBLING_RATE, 1)]
        elif call.refused:
            rates = []
        else:
            rates = [
                (("identity", payer.identity), Code.RATE_IDENTITY, call.limits.identity, call.cost),
                (("integration", ""), Code.RATE_INTEGRATION, call.limits.integration, call.cost),
            ]
        spent = [spend(rate, self.arrivals.get(key, 0), now_us, cost) for key, _, rate, cost in rates]
        waits = [each.retry_us if isinstance(each, Exceeded) else 0 for each in spent]
        if any(waits):
            _, code, rate, cost = rates[waits.index(max(waits))]
            return str(code), None if cost > rate.burst else seconds(max(waits)), b""
        for (key, *_), each in zip(rates, spent, strict=True):
            assert not isinstance(each, Exceeded)
            self.arrivals[key] = each.arrival_us
        return None

    def count(self, call: AdmissionRequest, now_us: int) -> Answer:
        if call.refused:
            spent = spend(call.limits.refusals, self.arrivals.get(("refusals", call.payer), 0), now_us)
            if isinstance(spent, Exceeded):
                self.quarantined[call.payer] = now_us + call.limits.quarantine_s * 10**6
            else:
                self.arrivals["refusals", call.payer] = spent.arrival_us
        return "counted", None, b""


def some_call(dice: random.Random, clock: StoreClock, limits: Limits, number: int) -> AdmissionRequest:
    identity, now = dice.choice(["a", "b"]), clock.us // 10**6
    kind = dice.random()
    presented = dice.choice([None, Presented(dice.choice(["r1", "r2", "r3"]) + identity, dice.choice([1, 2, 5]))])
    if kind < 0.3:
        payer = Payer("x", identity, None if presented else dice.choice([None, 0, 1]))
        return AdmissionRequest(payer, limits, 1, refused=True, presented=presented)
    if kind < 0.4:
        return AdmissionRequest(Payer("x", identity), limits, 1, presented=presented)
    use = Use(
        record=dice.choice(["r1", "r2", "r3"]) + identity,
        allowed=dice.choice([1, 2, 5]),
        request_digest=dice.choice(["d1", "d2"]),
        template_exp=now + dice.choice([1, 30, 3000]),
        kid=dice.choice(["k1", "k2"]),
        usable_kids=dice.choice([("k1",), ("k1", "k2"), ("k2",)]),
        issued_at=dice.choice([now + 10, None]),
        keep_until=now + 10**6,
    )
    # Two calls in a row often name the same template to replace; sometimes it is the one that is there.
    replaces = dice.choice([b"", b"", b"t%d" % (number - 1), b"t%d" % (number // 2)])
    return AdmissionRequest(Payer("x", identity), limits, dice.choice([1, 1, 2, 7]), use, b"t%d" % number, replaces)


async def answered(state: RedisAdmission, call: AdmissionRequest) -> Answer:
    try:
        if call.use is None:
            await state.count(call)
            return "counted", None, b""
        admitted: Admitted = await state.admit(call)
    except Refused as error:
        return str(error.code), error.retry_after_s, b""
    return "repeat" if admitted.repeat else "new", None, admitted.template


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 40))])
async def test_every_answer_is_the_model_s(url: str, seed: int) -> None:
    dice, clock, model = random.Random(seed), StoreClock(), Model()
    slow = [Rate(count=1, per_s=dice.choice([10, 60, 600]), burst=dice.randint(1, 6)) for _ in range(3)]
    limits = Limits(identity=slow[0], integration=slow[1], refusals=slow[2], quarantine_s=dice.choice([5, 90]))
    async with Redis.from_url(url) as client:
        await client.flushall()
    state = RedisAdmission(url, leeway_s=0, now_us=clock)
    await state.start()
    seen = set()
    for number in range(CALLS):
        # No less than it takes, so that no key expires on the store's clock before it does on this one.
        clock.us += dice.choice([20_000, 20_000, 300_000, 5_000_000, 60_000_000])
        call = some_call(dice, clock, limits, number)
        expected = model.answer(call, clock.us)
        assert await answered(state, call) == expected, (number, call)
        seen.add(expected[0])
    await state.aclose()
    assert seen >= {"new", "counted"}
    assert len(seen) > 4, seen
