"""An operator's reads and orders in a real store, beside the script that admits."""

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import count

import pytest
from redis.asyncio import Redis

from issuer.codes import Code
from issuer.errors import Refused, SetupError, Undecided
from issuer.issuance.ports import AdmissionRequest, Countable, Item, Use
from issuer.issuance.steps import Payer
from issuer.limits.abuse import Abuse, Attempts
from issuer.limits.rate import Limits, Rate
from issuer.service.admission.quarantine_admin import Standings, standings_at
from issuer.service.admission.redis import RedisAdmission
from issuer.service.admission.script import DAY_S, STATE, names_of

pytestmark = pytest.mark.usefixtures("loop_clock")
PAYER, OTHER = Payer("inspect-ai", "ci"), Payer("inspect-ai", "nightly")
STRICT = Abuse(attempts=Attempts(distinct=1, then="quarantine"))
SLOW = Abuse(attempts=Attempts(distinct=1, then="throttle"))
ONE = Rate(count=1, per_s=3600, burst=1)
FEW = Limits(refusals=ONE)
_MANY = Rate(count=1_000_000, per_s=1, burst=50_000)
WIDE = Limits(identity=_MANY, integration=_MANY, refusals=_MANY)
_numbers = count()


@pytest.fixture
async def redis(url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(url) as client:
        await client.flushall()
        yield client


@pytest.fixture
async def state(url: str, redis: Redis) -> AsyncIterator[RedisAdmission]:
    admission = RedisAdmission(url, leeway_s=0, durable_store=True)
    await admission.start()
    yield admission
    await admission.aclose()


@pytest.fixture
async def standings(url: str, redis: Redis) -> AsyncIterator[Standings]:
    async with standings_at(url) as found:
        yield found


def sign(values: str, abuse: Abuse = STRICT, payer: Payer = PAYER) -> AdmissionRequest:
    now = int(time.time())
    item = Item(b"r" * 16, b"", values.encode().ljust(16, b"_"), b"o/m".ljust(8, b"_"), b"o".ljust(8, b"_"))
    use = Use(f"{next(_numbers):064x}", 1, "d", now + 3600, "kid", ("kid",), now + 10, now + 4000)
    return AdmissionRequest(payer, WIDE, 1, use, b"template", countable=Countable((item,)), abuse=abuse)


async def code_of(state: RedisAdmission, asked: AdmissionRequest) -> str:
    try:
        await state.admit(asked)
    except Refused as error:
        return str(error.code)
    return "admitted"


async def test_an_operator_s_quarantine_holds_until_a_release_and_keeps_the_counts(
    redis: Redis, state: RedisAdmission, standings: Standings
) -> None:
    end = await standings.order(PAYER, "quarantine", 3600)
    assert 3590 <= end - int(time.time()) <= 3601
    with pytest.raises(Refused) as refused:
        await state.admit(sign("a"))
    assert refused.value.code is Code.ABUSE_QUARANTINED
    assert "operator" in refused.value.detail
    assert await code_of(state, sign("a", payer=OTHER)) == "admitted", "it is of one identity"
    shown = await standings.show(PAYER)
    assert (shown.quarantined_until, shown.quarantined_by) == (end, "operator")
    await standings.order(PAYER, "release", 3600)
    assert await code_of(state, sign("a")) == "admitted"
    assert (await standings.show(PAYER)).quarantined_until == 0
    for order, for_s, least_s in (("quarantine", 60, 172_000), ("release", 300_000, 299_000)):
        await standings.order(PAYER, order, for_s)  # type: ignore[arg-type]
        assert await redis.ttl(names_of(PAYER).payer) > least_s, "nor is the end of its key lowered"
    assert (await standings.show(PAYER)).tokens == 1


async def test_a_release_ends_a_throttle_and_a_quarantine_which_does_not_begin_again(
    state: RedisAdmission, standings: Standings
) -> None:
    assert [await code_of(state, sign(values)) for values in ("a", "b")] == ["admitted", "abuse.quarantined"]
    shown = await standings.show(PAYER)
    assert (shown.quarantined_by, shown.signals, shown.tokens) == ("attempts", {"attempts": 1}, 1)
    end = await standings.order(PAYER, "release", 60)
    assert [await code_of(state, sign(values)) for values in ("b", "c")] == ["admitted", "admitted"]
    shown = await standings.show(PAYER)
    assert (shown.quarantined_until, shown.released_until) == (0, end)
    assert (shown.tokens, shown.owners, shown.signals) == (3, 1, {"attempts": 3})
    assert [await code_of(state, sign(values, SLOW, OTHER)) for values in ("x", "y")] == ["admitted"] * 2
    assert (await standings.show(OTHER)).throttled_until > 0
    await standings.order(OTHER, "release", 60)
    assert (await standings.show(OTHER)).throttled_until == 0


async def test_a_release_forgets_refusals_and_frees_buckets(state: RedisAdmission, standings: Standings) -> None:
    resembling = Payer(PAYER.integration, PAYER.identity, 7)
    for payer in (PAYER, resembling):
        for _ in range(2):
            await state.count(AdmissionRequest(payer, FEW, 1, refused=True))
    shown = await standings.show(PAYER)
    assert (shown.quarantined_by, shown.buckets) == ("refusals", (7,))
    await standings.order(PAYER, "release", 60)
    shown = await standings.show(PAYER)
    assert (shown.quarantined_until, shown.buckets) == (0, ())
    for payer in (PAYER, resembling):  # the first refusal anew, and not the one too many
        assert not (await state.count(AdmissionRequest(payer, FEW, 1, refused=True))).warnings[0].startswith("this was")


async def test_a_release_beside_requests_is_never_lost(state: RedisAdmission, standings: Standings) -> None:
    """Whichever comes first: a release before the signal has no effect, and one after it ends the quarantine."""
    for turn in range(20):
        payer = Payer("inspect-ai", f"ci-{turn}")
        asked = [state.admit(sign(f"{number}", payer=payer)) for number in range(4)]
        await asyncio.gather(*asked[:2], standings.order(payer, "release", 60), *asked[2:], return_exceptions=True)
        shown = await standings.show(payer)
        assert (shown.quarantined_until, shown.released_until > 0) == (0, True)


async def test_many_identities_are_read_in_their_order_and_a_store_that_is_gone_is_named(
    state: RedisAdmission, standings: Standings
) -> None:
    payers = [Payer("inspect-ai", f"ci-{number}") for number in range(1203)]
    await standings.order(payers[700], "quarantine", 60)
    found = [one async for one in standings.read(payers)]
    assert [one.identity for one in found] == [one.identity for one in payers]
    assert [one.identity for one in found if one.is_notable] == ["ci-700"]
    with pytest.raises(SetupError) as failed:
        async with standings_at("redis://127.0.0.1:1") as gone:
            await gone.order(PAYER, "release", 60)
    assert failed.value.code is Code.STATE_UNREACHABLE


async def test_a_broken_standing_or_state_hides_no_other_and_an_order_writes_it_anew(
    redis: Redis, state: RedisAdmission, standings: Standings
) -> None:
    payer = names_of(PAYER).payer
    await standings.order(OTHER, "quarantine", 60)
    for held in (b"", b"x", b"\xff", b"9" * 5000 + b" operator 0 0 0", b"9999999999999999 \x1b[2J 0 0 0", None):
        await redis.delete(payer)
        await (redis.rpush(payer, "foreign") if held is None else redis.hset(payer, "standing", held))
        found = [(each.is_broken, each.quarantined_by) async for each in standings.read((PAYER, OTHER))]
        assert found == [(True, ""), (False, "operator")], held
        with pytest.raises(Undecided):
            await state.admit(sign("a"))
        await standings.order(PAYER, "release", 60)
        assert not (await standings.show(PAYER)).is_broken
        assert await code_of(state, sign("a")) == "admitted"
    await redis.hset(payer, "state", b"x" * (STATE.size - 1))
    shown = await standings.show(PAYER)
    assert (shown.is_broken, shown.tokens, shown.owners, shown.keys) == (True, 0, 0, 0)
    with pytest.raises(Undecided):
        await state.admit(sign("a"))
    await standings.order(PAYER, "release", 60)
    assert not (await standings.show(PAYER)).is_broken
    assert await code_of(state, sign("a")) == "admitted"


async def test_damaged_numbers_of_signals_and_counts_of_yesterday_are_none(redis: Redis, standings: Standings) -> None:
    today = int(time.time()) // DAY_S
    held = {
        b"state": STATE.pack(0, today, 7, 8), b"signal attempts": b"9" * 5000, b"signal spread": b"2",
        b"signal \xff": b"1",
    }  # fmt: skip
    await redis.hset(names_of(PAYER).payer, mapping=held)  # type: ignore[arg-type]
    shown = await standings.show(PAYER)
    assert (shown.tokens, shown.keys, shown.signals) == (7, 8, {"attempts": 0, "spread": 2})
    await redis.hset(names_of(PAYER).payer, "state", STATE.pack(0, today - 1, 7, 8) + b"an owner")
    shown = await standings.show(PAYER)
    assert (shown.tokens, shown.owners, shown.keys, shown.signals) == (0, 0, 0, {})
