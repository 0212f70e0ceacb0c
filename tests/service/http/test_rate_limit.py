"""`RateLimit` and `RateLimit-Policy`: they agree with the answers to the next requests."""

import random
import re
from collections.abc import Iterator

import pytest

from issuer.dev.provider import LocalProvider
from issuer.limits.rate import Exceeded, Rate, RateState, Spent, spend
from issuer.service.http.tokens import rate_limit, remaining
from tests.support.running import Running, numbered, running, write_folder

LIMITS = """limits:
  identity: {count: 60, per_s: 3600, burst: 3}
  integration: {count: 600, per_s: 3600, burst: 10}
"""
NOW_US = 1_795_251_600_000_000


def test_as_many_as_remain_fit_at_once_and_one_more_does_not() -> None:
    dice = random.Random(17)
    for _ in range(500):
        rate = Rate(dice.randint(1, 1000), dice.randint(1, 86_400), dice.randint(1, 300))
        ahead = dice.randint(0, rate.tolerance_us)
        left = remaining(RateState("identity", rate, ahead))
        arrival = NOW_US + ahead
        assert left == 0 or isinstance(spend(rate, arrival, NOW_US, left), Spent)
        assert isinstance(spend(rate, arrival, NOW_US, left + 1), Exceeded)


def test_the_whole_quota_is_back_after_its_window() -> None:
    rate = Rate(600, 3600, 200)
    assert rate_limit([RateState("identity", rate, 0)]) == {
        "RateLimit-Policy": '"identity";q=200;w=1200',
        "RateLimit": '"identity";r=200;t=0',
    }
    spent = rate_limit([RateState("identity", rate, 6_000_000 * 150 - 1)])["RateLimit"]
    assert spent == '"identity";r=50;t=900'
    assert remaining(RateState("identity", rate, 6_000_000 * 150 - 900 * 1_000_000)) == 200
    assert rate_limit(()) == {}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("rates")
    with LocalProvider() as provider:
        write_folder(folder, provider, limits=LIMITS)
        with running(folder, provider) as service:
            yield service


def left(answer: object) -> dict[str, int]:
    return {name: int(count) for name, count in re.findall(r'"(\w+)";r=(\d+);t=\d+', answer.headers["RateLimit"])}  # type: ignore[attr-defined]


def test_an_answer_says_what_remains_and_a_repeat_does_not(live: Running) -> None:
    token = live.token()
    first = live.post(token)
    assert first.status_code == 201, first.text
    assert first.headers["RateLimit-Policy"] == '"identity";q=3;w=180, "integration";q=10;w=60'
    assert left(first) == {"identity": 2, "integration": 9}
    again = live.post(token)
    assert (again.status_code, "RateLimit" in again.headers) == (200, False)
    for spent_or_fresh in (token, live.token()):
        explained = live.post(spent_or_fresh, path="/tokens/explain")
        assert (explained.status_code, "RateLimit" in explained.headers) == (200, False), (
            "it would tell whether the token is spent"
        )
    batch = {"results": [numbered(1), numbered(2)]}
    refused = live.post(live.token(), batch, path="/tokens/batch")
    assert refused.status_code == 429
    assert left(refused) == {"identity": 1, "integration": 8}, "a refused batch is not charged"
    assert live.post(live.token()).status_code == 201
    none = live.post(live.token())
    assert (none.status_code, none.json()["code"], none.json()["retryable"]) == (429, "rate.identity", True)
    assert left(none)["identity"] == 0
    assert 1 <= int(none.headers["Retry-After"]) <= 60
    assert "RateLimit" not in live.post("not a token").headers


def test_the_description_declares_both_fields(live: Running) -> None:
    paths = live.http.get("/openapi.json").json()["paths"]
    rated = (("/tokens", ["200", "201", "429"]), ("/tokens/batch", ["200", "201", "429"]), ("/tokens/explain", ["429"]))
    for path, declared in rated:
        responses = paths[path]["post"]["responses"]
        have = [status for status in sorted(responses) if "RateLimit" in responses[status].get("headers", {})]
        assert have == declared, path
