"""The rate arithmetic, and the bounded table of sources."""

import random

from issuer.limits.rate import Exceeded, Rate, Spent, spend
from issuer.limits.sources import Sources

NOW_US = 1_800_000_000_000_000


def test_a_burst_passes_at_once_and_the_next_request_waits_one_interval() -> None:
    rate, arrival = Rate(count=10, per_s=1, burst=3), 0
    for _ in range(3):
        outcome = spend(rate, arrival, NOW_US)
        assert isinstance(outcome, Spent)
        arrival = outcome.arrival_us
    assert spend(rate, arrival, NOW_US) == Exceeded(100_000)
    assert isinstance(spend(rate, arrival, NOW_US + 100_000), Spent)


def test_a_refused_request_fits_exactly_when_its_wait_is_over() -> None:
    dice = random.Random(1)
    for _ in range(2000):
        rate = Rate(count=dice.randint(1, 500), per_s=dice.randint(1, 3600), burst=dice.randint(1, 50))
        cost = dice.randint(1, rate.burst)
        arrival = NOW_US + dice.randint(0, rate.tolerance_us)
        outcome = spend(rate, arrival, NOW_US, cost)
        if isinstance(outcome, Exceeded):
            assert isinstance(spend(rate, arrival, NOW_US + outcome.retry_us, cost), Spent)
            assert isinstance(spend(rate, arrival, NOW_US + outcome.retry_us - 1, cost), Exceeded)


def test_a_batch_costs_as_much_as_its_requests_one_by_one() -> None:
    rate = Rate(count=60, per_s=60, burst=10)
    one_by_one = 0
    for _ in range(4):
        outcome = spend(rate, one_by_one, NOW_US)
        assert isinstance(outcome, Spent)
        one_by_one = outcome.arrival_us
    assert spend(rate, 0, NOW_US, cost=4) == Spent(one_by_one)


def test_neither_a_batch_nor_a_long_silence_exceeds_the_burst() -> None:
    assert isinstance(spend(Rate(count=60, per_s=60, burst=10), 0, NOW_US, cost=11), Exceeded)
    rate = Rate(count=1, per_s=1, burst=2)
    assert spend(rate, 1, NOW_US) == spend(rate, NOW_US, NOW_US) == Spent(NOW_US + 1_000_000)
    for count, per_s, interval_us in ((600, 3600, 6_000_000), (7, 60, 8_571_428), (10**6, 1, 1)):
        assert Rate(count=count, per_s=per_s, burst=1).interval_us == interval_us


def test_a_source_that_is_refused_too_often_waits_and_another_does_not() -> None:
    sources = Sources(Rate(count=60, per_s=60, burst=2))
    for _ in range(5):
        sources.refuse("192.0.2.1", NOW_US)
    assert sources.retry_us("192.0.2.1", NOW_US) == 1_000_000
    assert sources.retry_us("192.0.2.1", NOW_US + 1_000_000) == 0
    assert sources.retry_us("192.0.2.2", NOW_US) == 0


def test_a_flood_of_sources_never_grows_the_table_and_drops_the_oldest() -> None:
    sources = Sources(Rate(count=1, per_s=60, burst=1), capacity=100)
    for number in range(100):
        sources.refuse(str(number), NOW_US)
    sources.refuse("0", NOW_US)  # refused again, though over its limit: recent, so kept
    sources.refuse("one more", NOW_US)
    assert len(sources) == 100
    assert sources.retry_us("0", NOW_US) > 0
    assert sources.retry_us("1", NOW_US) == 0
