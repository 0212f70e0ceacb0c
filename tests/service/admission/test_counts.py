"""What the admission counts of an identity's results, against a real Valkey, and what follows from it."""

import random
from collections.abc import AsyncIterator
from itertools import count

import msgspec
import pytest
from redis.asyncio import Redis

from issuer.codes import Code
from issuer.errors import Refused, Undecided
from issuer.io.redis_client import PREFIX
from issuer.issuance.ports import AdmissionRequest, Countable, Item, Presented, Use
from issuer.issuance.steps import Limited, Payer, Quarantined
from issuer.limits.abuse import Abuse, Artifact, Attempts, ItemTally, Spread, Tally, Throttle, Twins, judge, read_tally
from issuer.limits.rate import Limits, Rate
from issuer.service.admission.bounds import AGAIN_RATE
from issuer.service.admission.redis import RedisAdmission
from issuer.service.admission.script import EPOCH_KEY, STATE, names_of
from tests.support.clock import StoreClock

pytestmark = pytest.mark.usefixtures("loop_clock")
WIDE = Rate(count=1_000_000, per_s=1, burst=50_000)
LIMITS = Limits(identity=WIDE, integration=WIDE, refusals=WIDE)
DAY_US = 86_400 * 10**6
DEFAULTS = Abuse()
PAYER = Payer("inspect-ai", "ci")
NAMES = names_of(PAYER)
EPOCH_S = 1_700_000_000
CLOCK = StoreClock()
_numbers = count()


@pytest.fixture
async def redis(url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(url) as client:
        await client.flushall()
        await client.set(EPOCH_KEY, f"{EPOCH_S} -")
        yield client


@pytest.fixture
async def state(url: str, redis: Redis) -> AsyncIterator[RedisAdmission]:
    """A store on the first moment of a day."""
    us = StoreClock().us
    CLOCK.us = us + DAY_US - us % DAY_US
    admission = RedisAdmission(url, leeway_s=0, durable_store=True, now_us=CLOCK)
    await admission.start()
    yield admission
    await admission.aclose()


def padded(name: str, size: int) -> bytes:
    return name.encode().ljust(size, b"_")


def item(values: str = "v", run: str = "r", files: tuple[str, ...] = (), model: str = "o/m", twins: str = "") -> Item:
    owner = model.partition("/")[0]
    marks = tuple(padded(file, 8) for file in files)
    return Item(run.encode(), twins.encode(), padded(values, 16), padded(model, 8), padded(owner, 8), marks)


def call(
    *items: Item, abuse: Abuse = DEFAULTS, ci: str = "", payer: Payer = PAYER, limits: Limits = LIMITS
) -> AdmissionRequest:
    now = CLOCK.us // 10**6
    use = Use(f"{next(_numbers):064x}", 1, "d", now + 3600, "kid", ("kid",), now + 10, now + 4000)
    countable = Countable(items, padded(ci, 8) if ci else b"")
    return AdmissionRequest(payer, limits, len(items), use, b"template", countable=countable, abuse=abuse)


async def counted(state: RedisAdmission, asked: AdmissionRequest) -> Tally:
    return read_tally((await state.admit(asked)).tally)


async def numbers(state: RedisAdmission, *items: Item) -> list[int]:
    """Count results one after the other, and return the number of different sets at each."""
    return [(await counted(state, call(each))).items[0].number for each in items]


# -- attempts ----------------------------------------------------------------------------------------------------------


async def test_different_values_of_one_run_key_are_attempts_and_new_ones_raise_a_signal(state: RedisAdmission) -> None:
    asked = [item("a"), item("b"), item("a"), item("b"), item("c"), item("x", run="other")]
    assert await numbers(state, *asked) == [1, 2, 2, 2, 3, 1]
    abuse = Abuse(attempts=Attempts(distinct=1))
    raised = [judge(abuse, await counted(state, call(item(values, "s"), abuse=abuse))) for values in "abab"]
    assert [len(signals) for signals in raised] == [0, 1, 0, 0]


async def test_the_window_slides_and_says_since_when(state: RedisAdmission) -> None:
    began = CLOCK.us // 10**6
    first = (await counted(state, call(item("a")))).items[0]
    assert (first.number, first.since) == (1, began - 30 * 86_400), "no other set in the window"
    CLOCK.us += 20 * DAY_US
    assert await numbers(state, item("b")) == [2]
    CLOCK.us += 10 * DAY_US - 1
    assert await numbers(state, item("c")) == [3]
    CLOCK.us += 1
    last = (await counted(state, call(item("d")))).items[0]
    assert (last.number, last.since) == (3, began), "the first one is 30 days old, and gone"
    for values, number in (("a", 1), ("a", 1), ("b", 2)):
        assert await numbers(state, item(values, "again")) == [number], "a set is as young as its last time"
        CLOCK.us += 20 * DAY_US


async def test_a_store_that_forgot_says_since_when_it_counts(state: RedisAdmission, redis: Redis) -> None:
    began = CLOCK.us // 10**6
    for values in "ab":
        await state.admit(call(item(values)))
        CLOCK.us += DAY_US
    await redis.set(EPOCH_KEY, f"{CLOCK.us // 10**6} -")  # it came back: since its oldest set
    assert (await counted(state, call(item("c")))).items[0].since == began
    await redis.flushall()
    lost = CLOCK.us // 10**6
    asked = call(item("b"))
    assert asked.use
    before = msgspec.structs.replace(asked.use, issued_at=lost - 5)
    with pytest.raises(Undecided) as undecided:
        await state.admit(msgspec.structs.replace(asked, use=before))
    assert undecided.value.code is Code.DEPENDENCY_STATE_RESET
    CLOCK.us += 60 * 10**6
    again = (await counted(state, call(item("b")))).items[0]
    assert (again.number, again.since) == (1, lost + 1)


async def test_sixty_four_stands_for_more_and_the_oldest_set_goes(state: RedisAdmission) -> None:
    asked, seen = [item(f"v{number}") for number in range(70)], list[int]()
    for each in asked:
        CLOCK.us += 10**6
        seen += await numbers(state, each)
    assert seen[60:] == [61, 62, 63, *[64] * 7]
    found = [(await counted(state, call(asked[number]))).items[0] for number in (69, 6, 5)]
    assert [(each.number, each.is_new) for each in found] == [(64, False), (64, False), (64, True)]


async def test_a_batch_is_counted_item_by_item_and_for_its_identity_alone(state: RedisAdmission) -> None:
    """The names of keys hold the identity; here its day."""
    tally = await counted(state, call(item("a"), item("b"), item("a"), item("c", run="s")))
    assert [each.number for each in tally.items] == [1, 2, 2, 1]
    assert (tally.tokens_a_day, tally.owners_a_day) == (4, 1)
    other = await counted(state, call(item("d", run="of another"), payer=Payer("inspect-ai", "other")))
    assert (other.items[0].number, other.tokens_a_day) == (1, 1)


async def test_a_retry_gets_the_counts_of_its_first_time(state: RedisAdmission) -> None:
    asked = call(item("a"))
    first = await state.admit(asked)
    await state.admit(call(item("b")))
    again = await state.admit(asked)
    assert (again.repeat, again.tally, again.rates) == (True, first.tally, ())
    assert await numbers(state, item("c")) == [3]


async def test_a_record_of_a_foreign_kind_or_form_never_grants_more(state: RedisAdmission, redis: Redis) -> None:
    key = b"{evi1}:run:r"
    await redis.rpush(key, "foreign")
    assert await numbers(state, item("a")) == [1]
    await redis.set(key, b"short")
    with pytest.raises(Undecided):
        await state.admit(call(item("a")))


# -- evidence, twins ---------------------------------------------------------------------------------------------------


async def files_of(state: RedisAdmission, *items: Item) -> list[int]:
    return [(await counted(state, call(each))).items[0].files for each in items]


async def test_one_file_under_other_values_of_the_same_run_key_is_seen(state: RedisAdmission) -> None:
    asked = [
        item("a", files=("f",)), item("a", files=("f",)), item("b", files=("g",)), item("c", files=("x", "f")),
        item("c", files=("f",)), item("b", files=("f",)), item("d"), item("e", run="other", files=("f",)),
    ]  # fmt: skip
    assert await files_of(state, *asked) == [0, 0, 0, 2, 0, 3, 0, 0]
    more = tuple(f"g{number}" for number in range(8))
    known = [item("a", "s", ("f",)), item("a", "s"), item("a", "s", more), item("b", "s", ("f",))]
    assert (await files_of(state, *known))[-1] == 2, "though the values came with another file since"
    # The configuration of a task comes with every night's log, and the same values every night.
    nights = [item("a", "t", ("f", "1")), item("b", "t", ("f", "2")), item("b", "t", ("f", "3"))]
    assert await files_of(state, *nights) == [0, 2, 0], "told once for each set"


async def test_the_same_values_for_another_repository_are_twins(state: RedisAdmission, redis: Redis) -> None:
    asked = [
        item("a", run="1", model="o/m", twins="t"), item("a", run="2", model="o/m", twins="t"),
        item("a", run="3", model="p/n", twins="t"), item("b", run="4", model="p/n", twins="u"),
    ]  # fmt: skip
    seen = [(await counted(state, call(each))).items[0].twin for each in asked]
    assert seen == [False, False, True, False]
    CLOCK.us += 2 * DAY_US
    later = call(item("a", run="5", model="q/m", twins="t"), abuse=Abuse(twins=Twins(per_days=3)))
    assert (await counted(state, later)).items[0].twin, "within three days"
    await counted(state, call(item(twins="short"), abuse=Abuse(twins=Twins(per_days=3))))
    assert 2 * 86_400_000 < await redis.pttl(PREFIX + b"twins:short") <= 3 * 86_400_000


# -- spread ------------------------------------------------------------------------------------------------------------


async def test_owners_and_tokens_are_counted_by_day_and_by_ci_run(state: RedisAdmission) -> None:
    async def spread(ci: str, *owners: str) -> tuple[int, int, int, int]:
        results = [item(run=f"r{next(_numbers)}", model=f"{owner}/m") for owner in owners]
        tally = await counted(state, call(*results, ci=ci))
        return tally.owners_a_day, tally.tokens_a_day, tally.owners_a_run, tally.tokens_a_run

    assert await spread("one", "a", "b", "a") == (2, 3, 2, 3)
    assert await spread("two", "c") == (3, 4, 1, 1)
    assert await spread("one", "c") == (3, 5, 3, 4)
    assert await spread("", "d") == (4, 6, 0, 0), "a provider that names no run"
    CLOCK.us += DAY_US
    assert await spread("one", "a") == (1, 1, 1, 1), "another day"


# -- what follows ------------------------------------------------------------------------------------------------------

SLOW = Throttle(count=1, per_s=3600, burst=1, for_s=7200)


async def test_a_throttle_slows_what_comes_next_and_ends(state: RedisAdmission) -> None:
    abuse = Abuse(attempts=Attempts(distinct=1, then="throttle"), throttle=SLOW)
    assert not (await counted(state, call(item("a"), abuse=abuse))).throttled_until
    crossing = call(item("b"), abuse=abuse)
    crossed = await counted(state, crossing)
    assert crossed.throttled_until == CLOCK.us // 10**6 + 7200
    assert [signal.then for signal in judge(abuse, crossed)] == ["throttle"]
    await state.admit(call(item("x", run="other"), abuse=abuse))
    with pytest.raises(Refused) as refused:
        await state.admit(call(item("y", run="another"), abuse=abuse))
    assert (refused.value.code, refused.value.retry_after_s) == (Code.RATE_IDENTITY, 3600)
    assert "throttled to 1 tokens per 3600 s until" in refused.value.detail
    assert "send batches" not in refused.value.detail, "one result may be sent"
    assert (await state.admit(crossing)).repeat, "a retry is answered"
    with pytest.raises(Refused, match="send batches of at most 1 results"):
        await state.admit(call(item("y", run="1"), item("y", run="2"), abuse=abuse))
    CLOCK.us += 7200 * 10**6
    for run in "pqs":
        assert not (await counted(state, call(item(run=run), abuse=abuse))).throttled_until


async def test_a_quarantine_begins_with_the_result_over_the_limit(state: RedisAdmission) -> None:
    abuse = Abuse(attempts=Attempts(distinct=1, then="quarantine"), quarantine_s=600)
    await state.admit(call(item("a"), abuse=abuse))
    asked = call(item("b"), abuse=abuse)
    with pytest.raises(Quarantined) as first:
        await state.admit(asked)
    with pytest.raises(Quarantined) as second:
        await state.admit(asked)
    assert (first.value.retry_after_s, second.value.retry_after_s) == (600, 600)
    assert "raised the signal `attempts`" in first.value.detail
    assert len(first.value.tally.items) > len(second.value.tally.items), "only the first one has begun it"
    CLOCK.us += 600 * 10**6
    with pytest.raises(Quarantined) as refused:  # it is still the second set of values
        await state.admit(asked)
    assert refused.value.tally.items[0].number == 2
    CLOCK.us += 600 * 10**6
    assert await numbers(state, item("a")) == [1]


async def test_of_several_signals_the_one_with_the_worst_end_decides_and_all_are_counted(
    state: RedisAdmission, redis: Redis
) -> None:
    artifact = Abuse(artifact=Artifact(distinct=1, then="quarantine"))
    await state.admit(call(item("a", "of a file", ("f",)), abuse=artifact))
    with pytest.raises(Quarantined, match="artifact"):
        await state.admit(call(item("b", "of a file", ("f",)), abuse=artifact))
    CLOCK.us += 2 * DAY_US
    abuse = Abuse(attempts=Attempts(distinct=1, then="quarantine"), spread=Spread(owners_a_day=1, then="warn"))
    await state.admit(call(item("a"), abuse=abuse))
    with pytest.raises(Quarantined, match="attempts"):
        await state.admit(call(item("b", model="p/n"), abuse=abuse))
    abuse, other = (
        Abuse(attempts=Attempts(distinct=1, then="observe"), spread=Spread(owners_a_day=1)),
        Payer("inspect-ai", "other"),
    )
    for values, model in [("a", "o/m"), ("b", "o/m"), ("c", "p/m")]:
        await state.admit(call(item(values, "day", model=model), abuse=abuse, payer=other))
    held = await redis.hmget(names_of(other).payer, "signal attempts", "signal spread")
    assert held == [b"2", b"1"], "for the operator"


async def test_what_begins_a_quarantine_costs_its_rate_alone(state: RedisAdmission, redis: Redis) -> None:
    limits = msgspec.structs.replace(LIMITS, identity=Rate(count=1, per_s=60, burst=9))
    abuse = Abuse(attempts=Attempts(distinct=1, then="quarantine"))

    async def state_of() -> tuple[int, ...]:
        held = await redis.hget(NAMES.payer, "state")
        assert isinstance(held, bytes)
        return tuple(STATE.unpack_from(held))

    await state.admit(call(item("a"), abuse=abuse, limits=limits))
    arrival, *counts = await state_of()
    with pytest.raises(Quarantined):
        await state.admit(call(item("b"), abuse=abuse, limits=limits))
    assert await state_of() == (arrival + 60 * 10**6, *counts)


async def test_a_released_identity_is_only_warned(state: RedisAdmission, redis: Redis) -> None:
    abuse = Abuse(attempts=Attempts(distinct=1, then="quarantine"))
    until = CLOCK.us + 3600 * 10**6
    await redis.hset(NAMES.payer, "standing", f"0 - 0 0 {until}")
    await state.admit(call(item("a"), abuse=abuse))
    tally = await counted(state, call(item("b"), abuse=abuse))
    assert tally.released_until == until // 10**6
    assert [signal.then for signal in judge(abuse, tally)] == ["warn"]
    CLOCK.us = until
    with pytest.raises(Quarantined):
        await state.admit(call(item("c"), abuse=abuse))


async def test_an_operator_s_quarantine_is_not_shortened_by_a_policy(state: RedisAdmission, redis: Redis) -> None:
    abuse = Abuse(quarantine_s=60)
    for by, left_s in [("operator", 9000), ("attempts", 60), ("refusals", LIMITS.quarantine_s)]:
        await redis.hset(NAMES.payer, "standing", f"{CLOCK.us + 9000 * 10**6} {by} 0 0 0")
        with pytest.raises(Quarantined) as refused:
            await state.admit(call(item("a"), abuse=abuse))
        assert refused.value.retry_after_s == left_s


async def test_a_shorter_quarantine_or_throttle_of_a_policy_ends_as_announced(
    state: RedisAdmission, redis: Redis
) -> None:
    limits = msgspec.structs.replace(LIMITS, quarantine_s=60)
    abuse = Abuse(quarantine_s=60, throttle=Throttle(count=1, per_s=3600, burst=1, for_s=60))
    for standing in (
        "{end} attempts 0 0 {release}",
        "{end} refusals 0 0 {release}",
        "0 - {end} {rate} 0",  # it does not wait 7200 s for a rate that is over by then
    ):
        times = {"end": CLOCK.us + 9 * 10**9, "release": CLOCK.us + 9 * 10**9, "rate": CLOCK.us + 72 * 10**8}
        await redis.hset(NAMES.payer, "standing", standing.format(**times))
        asked = call(item("a"), abuse=abuse, limits=limits)
        for left_s in (60, 20):
            with pytest.raises(Refused) as refused:
                await state.admit(asked)
            assert (refused.value.retry_after_s, isinstance(refused.value, Quarantined)) == (
                left_s,
                "-" not in standing,
            )
            CLOCK.us += 40 * 10**6
        tally = read_tally((await state.admit(asked)).tally)
        assert (bool(tally.released_until), bool(tally.throttled_until)) == ("-" not in standing, False), standing


async def test_a_batch_that_a_throttle_never_takes_waits_for_its_end(state: RedisAdmission, redis: Redis) -> None:
    abuse = Abuse(throttle=Throttle(count=60, per_s=60, burst=2, for_s=600))
    await redis.hset(NAMES.payer, "standing", f"0 - {CLOCK.us + 500 * 10**6} 0 0")
    asked = call(*[item(run=run) for run in "abc"], abuse=abuse)
    with pytest.raises(Refused) as refused:
        await state.admit(asked)
    assert refused.value.retry_after_s == 500
    assert "send batches of at most 2 results" in refused.value.detail
    CLOCK.us += 500 * 10**6
    await state.admit(asked)


BROKEN_STANDINGS = (
    "", "\n", "x", "9" * 17, "{end} \udcff\udcfe 0 0 0", "{end} \x1b[2J 0 0 0", "{end} refusals", "9" * 400 + " operator 0 0 0",
    "{end} " + "a" * 100_000 + " 0 0 0", "0 - 0 0", "0 - x 0 0",
)  # fmt: skip


async def test_a_standing_of_another_form_is_undecided(state: RedisAdmission, redis: Redis) -> None:
    for standing in BROKEN_STANDINGS:
        written = standing.replace("{end}", str(CLOCK.us + 9 * 10**9))
        await redis.hset(NAMES.payer, "standing", written.encode(errors="surrogateescape"))
        with pytest.raises(Undecided) as undecided:
            await state.admit(call(item("a")))
        assert undecided.value.code is Code.DEPENDENCY_STATE, standing[:40]


# -- explained ---------------------------------------------------------------------------------------------------------


async def all_kept(redis: Redis) -> dict[bytes | str, object]:
    """Return all that the store keeps, but its rates."""
    counts: dict[bytes, bytes] = await redis.hgetall(NAMES.payer)  # type: ignore[assignment]
    keys = await redis.keys("*:run:*") + await redis.keys("*:use:*")
    kept: dict[bytes | str, object] = {key: await redis.dump(key) for key in keys}
    return kept | counts | {b"state": counts[b"state"][8:]}


async def test_an_explanation_counts_as_if_keeps_nothing_and_has_a_rate_if_it_was_spent(
    state: RedisAdmission, redis: Redis
) -> None:
    signed = call(item("a"), ci="one")
    await state.admit(signed)
    before = await all_kept(redis)
    asked = msgspec.structs.replace(call(item("b"), ci="one"), use=None)
    tally = read_tally((await state.count(asked)).tally)
    assert (tally.items[0].number, tally.tokens_a_day, tally.tokens_a_run) == (2, 2, 2)
    assert await all_kept(redis) == before
    assert signed.use
    spent = msgspec.structs.replace(call(item("a")), use=None, presented=Presented(signed.use.record, 1))
    for _ in range(AGAIN_RATE.burst):
        assert read_tally((await state.count(spent)).tally).tokens_a_day == 2
    with pytest.raises(Refused) as refused:
        await state.count(spent)
    assert refused.value.code is Code.RATE_IDENTITY


# -- rates -------------------------------------------------------------------------------------------------------------


async def test_an_answer_says_how_far_the_rates_are_used(state: RedisAdmission) -> None:
    limits = Limits(identity=Rate(count=6, per_s=60, burst=3), integration=WIDE, refusals=WIDE)
    asked = [call(item(run=run), limits=limits) for run in "abcd"]
    seen = [(await state.admit(each)).rates[0] for each in asked[:3]]
    assert [(rate.name, rate.ahead_us) for rate in seen] == [("identity", us * 10**7) for us in (1, 2, 3)]
    with pytest.raises(Limited) as refused:
        await state.admit(asked[3])
    assert [rate.name for rate in refused.value.rates] == ["identity", "integration"]
    assert refused.value.rates[0].ahead_us == 3 * 10**7, "a refused request costs nothing"


# -- the budget --------------------------------------------------------------------------------------------------------


async def use_budget_up(redis: Redis) -> None:
    """Have the store think that the identity has made all of its new keys today."""
    held = await redis.hget(NAMES.payer, "state")
    assert isinstance(held, bytes)
    arrival, day, tokens, _ = STATE.unpack_from(held)
    await redis.hset(NAMES.payer, "state", STATE.pack(arrival, day, tokens, 2000) + held[STATE.size :])


async def test_beyond_the_budget_of_keys_one_key_counts_nearly_right(state: RedisAdmission, redis: Redis) -> None:
    await state.admit(call(item("a", run="before")))
    await use_budget_up(redis)
    many = 50
    for number in range(many):
        (seen,) = (await counted(state, call(item("a", run=f"new {number}")))).items
        assert (seen.number, seen.exact, seen.is_new) == (1, False, True)
    asked = [item(values, run="new 7") for values in "abbac"]
    found = [(await counted(state, call(each))).items[0] for each in asked]
    assert [(each.is_new, each.exact) for each in found] == [(new, False) for new in (False, True, False, False, True)]
    assert (found[1].number, found[4].number) == (2, 3)
    assert len(await redis.keys("*:run:*")) == 1
    assert await numbers(state, item("b", run="before")) == [2], "a run with its key is counted as before"
    batch = await counted(state, call(*(item(values, "batch") for values in "abac")))
    assert [(each.number, each.is_new) for each in batch.items] == [(1, True), (2, True), (1, False), (3, True)]
    CLOCK.us += DAY_US
    assert (await counted(state, call(item("b", run="new 7")))).items[0].exact, "another day, another budget"


async def test_a_quarantine_beyond_the_budget_leaves_no_mark(state: RedisAdmission, redis: Redis) -> None:
    """Else the same values would be no news when the quarantine is over, and signed."""
    abuse = Abuse(attempts=Attempts(distinct=1, then="quarantine"), quarantine_s=60)
    await state.admit(call(item("x", run="before")))
    await use_budget_up(redis)
    await state.admit(call(item("a"), abuse=abuse))
    before = await redis.dump(NAMES.filter)
    for _ in range(2):
        with pytest.raises(Quarantined):
            await state.admit(call(item("b"), abuse=abuse))
        assert await redis.dump(NAMES.filter) == before
        CLOCK.us += 60 * 10**6
    for key in await redis.keys():
        assert key == EPOCH_KEY or await redis.ttl(key) != -1, f"{key!r} stays for ever"


async def test_a_payer_of_another_form_is_admitted_by_nothing(state: RedisAdmission, redis: Redis) -> None:
    """Its rate and its standing are in it: to begin anew would lift both."""
    for form in ("list", "text", "short"):
        await redis.delete(NAMES.payer)
        if form == "list":
            await redis.rpush(NAMES.payer, "x")
        elif form == "text":
            await redis.set(NAMES.payer, "x")
        else:
            await redis.hset(NAMES.payer, "state", b"x" * (STATE.size - 1))
        asked = call(item("a"))
        for ask in (state.admit(asked), state.count(asked)):
            with pytest.raises(Undecided) as undecided:
                await ask
            assert undecided.value.code is Code.DEPENDENCY_STATE


# -- a new day ---------------------------------------------------------------------------------------------------------


async def test_a_new_day_drops_the_counts_alone(state: RedisAdmission, redis: Redis) -> None:
    slow = Rate(count=1, per_s=86_400, burst=9)
    limits = Limits(identity=slow, integration=WIDE, refusals=slow)
    abuse = Abuse(attempts=Attempts(distinct=1, then="observe"))
    released = CLOCK.us + 3 * DAY_US
    await redis.hset(NAMES.payer, "standing", f"0 - 0 0 {released}")
    for _ in range(2):
        await state.count(AdmissionRequest(PAYER, limits, 1, refused=True))
    for values in "abc":
        await state.admit(call(item(values), abuse=abuse, ci="one", limits=limits))
    fields = set(await redis.hkeys(NAMES.payer))
    assert fields == {b"standing", b"state", b"refusals", b"run one_____", b"signal attempts"}
    refusals = await redis.hget(NAMES.payer, "refusals")
    CLOCK.us += DAY_US
    for _ in range(2):
        explained = msgspec.structs.replace(call(item("a"), ci="one"), use=None, limits=limits)
        assert read_tally((await state.count(explained)).tally).tokens_a_run == 1
    assert set(await redis.hkeys(NAMES.payer)) == fields, "an explanation begins no day"
    admitted = await state.admit(call(item("a"), limits=limits))
    assert admitted.rates[0].ahead_us == 5 * DAY_US, "three, a day less, two explanations and this one"
    assert set(await redis.hkeys(NAMES.payer)) == {b"standing", b"state", b"refusals"}
    assert await redis.hget(NAMES.payer, "refusals") == refusals
    assert await redis.ttl(NAMES.payer) > 4 * 86_400, "as long as the rate, which five are ahead of"
    assert read_tally(admitted.tally).released_until == released // 10**6


async def test_a_new_day_keeps_refusals_as_long_as_their_rate_and_all_if_damaged(
    state: RedisAdmission, redis: Redis
) -> None:
    slow = msgspec.structs.replace(LIMITS, refusals=Rate(count=1, per_s=3 * 86_400, burst=9))
    await redis.hset(NAMES.payer, "standing", f"0 - {CLOCK.us + 10**6} 0 {CLOCK.us + 10**6}")
    for _ in range(2):
        await state.count(AdmissionRequest(PAYER, slow, 1, refused=True))
    CLOCK.us += DAY_US
    await state.admit(call(item("a")))
    assert await redis.ttl(NAMES.payer) > 4 * 86_400, "two of three days each, and one is over"
    CLOCK.us += 5 * DAY_US
    await state.admit(call(item("a")))
    assert await redis.hkeys(NAMES.payer) == [b"state"]
    standing = f"0 - {CLOCK.us + 3 * DAY_US} 0 0".encode()
    await redis.hset(NAMES.payer, mapping={"standing": standing, "refusals": "x"})
    CLOCK.us += DAY_US
    with pytest.raises(Undecided):
        await state.admit(call(item("a")))
    assert await redis.hget(NAMES.payer, "standing") == standing


async def test_a_payer_is_kept_as_long_as_anything_of_it_counts(state: RedisAdmission, redis: Redis) -> None:
    day_ms = DAY_US // 1000
    a_minute = msgspec.structs.replace(LIMITS, refusals=Rate(count=1, per_s=60, burst=1), quarantine_s=600)
    for least_s in (59, 599):
        await state.count(AdmissionRequest(PAYER, a_minute, 1, refused=True))
        assert least_s * 1000 < await redis.pttl(NAMES.payer) <= (least_s + 1) * 1000, "a refusal, a quarantine"
    CLOCK.us += 600 * 10**6
    await state.admit(call(item("a")))
    assert 2 * day_ms - 60_000 < await redis.pttl(NAMES.payer) <= 2 * day_ms, "the day, and another one"
    slow = msgspec.structs.replace(LIMITS, identity=Rate(count=1, per_s=300_000, burst=9))
    await state.admit(call(item("a"), limits=slow))
    assert 299_000_000 < await redis.pttl(NAMES.payer) <= 300_000_001, "a rate that is longer than that"
    await state.count(AdmissionRequest(PAYER, a_minute, 1, refused=True))
    assert await redis.pttl(NAMES.payer) > 299_000_000, "and it is never lowered"
    CLOCK.us += DAY_US
    await redis.pexpire(NAMES.payer, 60_000)
    await state.count(msgspec.structs.replace(call(item("a")), use=None, limits=slow))
    assert await redis.pttl(NAMES.payer) > 60_000, "the rate of an explanation on another day"


async def test_a_full_store_takes_no_part_of_a_request_on_a_new_day(state: RedisAdmission, redis: Redis) -> None:
    slow = msgspec.structs.replace(LIMITS, integration=Rate(count=1, per_s=3600, burst=9))
    await state.admit(call(item("a"), ci="one", limits=slow))
    CLOCK.us += DAY_US
    asked = call(item("b"), ci="one", limits=slow)
    before = {key: await redis.dump(key) for key in await redis.keys()}
    await redis.config_set("maxmemory", "1")
    try:
        refused = state.count(AdmissionRequest(PAYER, LIMITS, 1, refused=True))
        for ask in (state.admit(asked), state.count(asked), refused):
            with pytest.raises(Undecided):
                await ask
    finally:
        await redis.config_set("maxmemory", "0")
    assert {key: await redis.dump(key) for key in await redis.keys()} == before
    assert (await counted(state, asked)).items[0].number == 2


# -- beside a model ----------------------------------------------------------------------------------------------------


async def test_the_script_and_judge_raise_the_same_signals(state: RedisAdmission, redis: Redis) -> None:
    """Random batches beside sets in Python; the signals that the script wrote down are those of `judge`."""
    dice = random.Random(0)
    abuse = Abuse(Attempts(distinct=3), Artifact(distinct=2), spread=Spread(4, 3, 300, 100))
    window_s = abuse.attempts.per_days * 86_400
    signed: dict[bytes, dict[bytes, int]] = {}
    owners: dict[str, set[bytes]] = {"day": set()}
    tokens: dict[str, int] = {"day": 0}
    raised: dict[str, int] = {}
    for _ in range(150):
        CLOCK.us += dice.randint(1, 200) * 10**6
        ci = dice.choice(["one", "two"])
        results = [
            item(dice.choice("abcdefgh"), dice.choice(["r", "s", "t"]), model=f"{dice.choice('uvwxy')}/m")
            for _ in range(dice.choice([1, 1, 5]))
        ]
        tally = await counted(state, call(*results, abuse=abuse, ci=ci))
        now = CLOCK.us // 10**6
        for each, found in zip(results, tally.items, strict=True):
            sets = {values: at for values, at in signed.get(each.run, {}).items() if at > now - window_s}
            is_new = each.values not in sets
            sets[each.values] = now
            signed[each.run] = sets
            assert found == ItemTally(len(sets), max(now - window_s, EPOCH_S), True, is_new)
        for scope in ("day", ci):
            owners.setdefault(scope, set()).update(each.owner for each in results)
            tokens[scope] = tokens.get(scope, 0) + len(results)
        spread = len(owners["day"]), tokens["day"], len(owners[ci]), tokens[ci]
        assert (tally.owners_a_day, tally.tokens_a_day, tally.owners_a_run, tally.tokens_a_run) == spread
        for signal in judge(abuse, tally):
            raised[signal.name] = raised.get(signal.name, 0) + 1
    held: dict[bytes, bytes] = await redis.hgetall(NAMES.payer)  # type: ignore[assignment]
    day = {name.decode(): value for name, value in held.items() if name.startswith(b"signal")}
    assert raised.keys() >= {"attempts", "spread"}
    assert day == {f"signal {name}": str(times).encode() for name, times in raised.items()}
