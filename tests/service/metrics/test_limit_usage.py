"""What a real store holds, for the view: all that `issuer abuse list` has, asked seldom, and bounded."""

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from redis import Redis

from issuer.issuance.ports import AdmissionRequest, Use
from issuer.issuance.steps import Payer
from issuer.limits.rate import Limits, Rate
from issuer.page.operator import MOST_ROWS, StandingsView, Used
from issuer.policy.model import Policy
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.admission.quarantine_admin import standings_at
from issuer.service.admission.redis import RedisAdmission
from issuer.service.admission.script import names_of
from issuer.service.metrics.bounds import METRIC_HELD_IDENTITIES, METRIC_HELD_S
from issuer.service.metrics.limit_usage import StoreLook

pytestmark = pytest.mark.long
HOUR = Rate(count=100, per_s=3600, burst=40)
LIMITS = Limits(identity=HOUR, integration=Rate(count=1000, per_s=3600, burst=400), refusals=HOUR)
_numbers = count()


@pytest.fixture
def url() -> Iterator[str]:
    with EmbeddedValkey() as address:
        yield address


def policy(name: str, *identities: str) -> Policy:
    """Return a policy of these identities, with few limits."""
    one = {"provider": "github-actions", "pins": {"repository_id": "1"}}
    grants = {"frameworks": [{"name": "x"}], "benchmarks": ["a/b"], "models": ["a/b"], "tasks": ["t"], "metrics": ["m"]}
    value = {
        "version": 1, "integration": name, "mode": "active", "contacts": ["a@example.org"], "grants": grants,
        "identities": [{"id": each, **one} for each in identities], "token": {"audiences": ["https://a.example"]},
    }  # fmt: skip
    return replace(msgspec.convert(value, Policy), limits=LIMITS)


def charge(url: str, payer: Payer, tokens: int, *, refusals: int = 0) -> None:
    """Have an identity granted so many tokens, and refused so often."""

    async def ask() -> None:
        admission = RedisAdmission(url, leeway_s=0, durable_store=True)
        await admission.start()
        for _ in range(tokens):
            use = Use(f"{next(_numbers):064x}", 1, "d", 2**32, "kid", ("kid",), None, 2**32)
            await admission.admit(AdmissionRequest(payer, LIMITS, 1, use, b"template"))
        for _ in range(refusals):
            await admission.count(AdmissionRequest(payer, LIMITS, 1, refused=True))
        await admission.aclose()

    asyncio.run(ask())


def order(url: str, payer: Payer, what: Any, for_s: int) -> int:
    async def say() -> int:
        async with standings_at(url) as standings:
            return await standings.order(payer, what, for_s)

    return asyncio.run(say())


def test_who_is_held_back_is_named_with_the_end(url: str) -> None:
    policies = {"a": policy("a", "ci", "nightly", "quiet"), "b": policy("b", "ci")}
    released = order(url, Payer("a", "ci"), "release", 7200)
    held = order(url, Payer("b", "ci"), "quarantine", 3600)
    with Redis.from_url(url) as client:
        client.hset(names_of(Payer("a", "nightly")).payer, "standing", "foreign")
    found = StoreLook(url, lambda: policies).found()
    assert [(one.name, one.says.partition(":")[0], one.until) for one in found.stands] == [
        ("a/nightly", "broken", 0), ("b/ci", "quarantined by operator", held), ("a/ci", "released", released),
    ]  # fmt: skip
    assert not found.unknown


def test_what_is_used_is_what_the_store_has_charged(url: str) -> None:
    policies = {"a": policy("a", "ci", "nightly"), "b": policy("b", "ci")}
    charge(url, Payer("a", "ci"), 12, refusals=10)
    charge(url, Payer("a", "nightly"), 4)
    found = StoreLook(url, lambda: policies).found()
    assert found.used == [
        Used("a/ci: rate", 12, 40), Used("a/ci: refusals", 10, 40), Used("a/nightly: rate", 4, 40),
        Used("a: rate of the integration", 16, 400),
    ]  # fmt: skip


def test_the_store_is_asked_seldom_and_a_missing_one_is_said() -> None:
    now, policies = [0.0], {"a": policy("a", "ci")}
    with EmbeddedValkey() as url, Redis.from_url(url) as client:
        look = StoreLook(url, lambda: policies, lambda: now[0])

        def asked() -> int:
            return int(client.info("commandstats").get("cmdstat_hmget", {"calls": 0})["calls"])

        for _ in range(50):
            assert look.found() == StandingsView("", [], [])
        assert asked() == 1
        now[0] += METRIC_HELD_S
        look.found()
        assert asked() == 2
    assert look.found() == StandingsView("", [], []), "an answer counts for as long"
    now[0] += METRIC_HELD_S
    assert "does not work" in look.found().unknown


def test_so_many_identities_are_asked_for_and_no_more(url: str) -> None:
    some = [f"i{number}" for number in range(METRIC_HELD_IDENTITIES + 5)]
    order(url, Payer("a", some[-6]), "quarantine", 60)
    order(url, Payer("a", some[-1]), "quarantine", 60)
    charge(url, Payer("a", some[0]), 3)
    policies = {"a": policy("a", *some)} | {f"p{number}": policy(f"p{number}", "ci") for number in range(9)}
    found = StoreLook(url, lambda: policies).found()
    assert [one.name for one in found.stands] == [f"a/{some[-6]}"]
    assert found.left_out == 5 + 9
    assert len(found.used) == 2 <= MOST_ROWS
