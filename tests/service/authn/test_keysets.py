"""The key-set cache against a real provider over HTTP: every bound of SECURITY.md, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from issuer.codes import Code
from issuer.dev.provider import DISCOVERY_PATH, KEY_SET_PATH, Exchange, LocalProvider, Responder
from issuer.errors import Charged, IssuerError, Refused, Undecided
from issuer.formats.jose import MAX_KEYS, Key
from issuer.identity.table import KeySource, Provider
from issuer.io.fetch import MAX_DOCUMENT_BYTES, addresses_of, may_connect, reason
from issuer.limits.sources import Allowance
from issuer.service.authn.bounds import (
    FETCH_PAUSE_S,
    FETCHES_A_MINUTE,
    HARD_AGE_S,
    JITTER,
    MAX_WAITING,
    RENEW_S,
    RETRY_S,
    TRY_SERVES_S,
    UNTRIED_AGE_S,
    UNUSED_S,
)
from issuer.service.authn.keysets import KeySets, ProviderFetcher, Stale
from tests.support.clock import Clock
from tests.support.responders import dripping
from tests.support.tls import NO_ROOTS, certificate

A_WHILE_S = 0.1  # long enough for a fetch that should not be there

UNDECIDED = str(Code.DEPENDENCY_ISSUER_KEYS)
UNKNOWN = str(Code.IDENTITY_KEY_UNKNOWN)


class Opened:
    """Key sets on a clock of their own, the failures that they reported, and what they told of old keys.

    `late` moves their timers within the jitter: 1 is as late as they may be.
    """

    def __init__(self, late: float = 0.5, **options: Any) -> None:
        self.clock = Clock()
        self.reasons: list[str] = []
        self.told: list[tuple[int, bool]] = []
        self.audit_is_full = False
        settings: dict[str, Any] = {"development": True, "ssl_context": NO_ROOTS, **options}
        self.key_sets = KeySets(
            ProviderFetcher(**settings),
            monotonic=self.clock,
            report=lambda _provider, reason: self.reasons.append(reason),
            record_stale=self._record_stale,
            uniform=lambda low, high: low + late * (high - low),
        )

    async def _record_stale(self, stale: Stale) -> None:
        if self.audit_is_full:
            raise Undecided(Code.DEPENDENCY_AUDIT)
        self.told.append((stale.age_s, stale.over))

    async def outcome(self, provider: Provider, kid: str, retry_after_s: int = 0) -> str:
        """Return the kid that was found, or the code."""
        try:
            return (await self.key_sets.find(provider, kid, Allowance("192.0.2.1", retry_after_s))).kid
        except IssuerError as error:
            return str(error.code)

    async def aclose(self) -> None:
        await self.key_sets.aclose()


def opened(**options: Any) -> aclosing[Opened]:
    return aclosing(Opened(**options))


def registered(issuer: str, keys: Any = "discovery") -> Provider:
    return Provider(
        id="local",
        profile="github-actions",
        issuer=issuer,
        audience="https://evals.example",
        algorithms=("RS256", "ES256"),
        max_lifetime_s=3600,
        max_age_s=900,
        uses=1,
        keys=keys,
        events=("push",),
    )


@pytest.fixture(scope="module")
def running() -> Iterator[LocalProvider]:
    with LocalProvider() as provider:
        yield provider


@pytest.fixture
def local(running: LocalProvider) -> LocalProvider:
    """The provider, well-behaved again and with its counters at zero."""
    running.answers.clear()
    running.requests.clear()
    running.published = [running.rs256, running.es256]
    return running


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  (the condition is another thread's)
            await asyncio.sleep(0.005)


def fixed(body: Any, status: int = 200, **headers: str) -> Responder:
    return lambda exchange: exchange.reply(status, body, **headers)


# -- where a set comes from -------------------------------------------------------------------------------------------


async def test_a_key_is_found_by_discovery_and_then_kept(local: LocalProvider) -> None:
    async with opened() as here:
        provider = registered(local.issuer)
        assert await here.outcome(provider, local.rs256.kid) == local.rs256.kid
        assert await here.outcome(provider, local.es256.kid) == local.es256.kid
    assert local.requests == {DISCOVERY_PATH: 1, KEY_SET_PATH: 1}


async def test_what_is_found_is_the_providers_public_key(local: LocalProvider) -> None:
    async with opened() as here:
        key: Key = await here.key_sets.find(registered(local.issuer), local.es256.kid, Allowance("192.0.2.1"))
    assert key.algorithms == {"ES256"}
    assert key.verifies("ES256", b"text", local.es256.signature(b"text"))


async def test_a_registered_address_of_the_keys_needs_no_discovery(local: LocalProvider) -> None:
    async with opened() as here:
        provider = registered("https://elsewhere.example", KeySource(jwks_uri=local.issuer + KEY_SET_PATH))
        assert await here.outcome(provider, local.rs256.kid) == local.rs256.kid
    assert local.requests == {KEY_SET_PATH: 1}


async def test_static_keys_are_never_fetched(local: LocalProvider) -> None:
    before = local.connections
    async with opened() as here:
        provider = registered(local.issuer, KeySource(static=[dict(local.rs256.jwk)]))
        assert await here.outcome(provider, local.rs256.kid) == local.rs256.kid
        assert await here.outcome(provider, local.es256.kid) == UNKNOWN
    assert local.connections == before


async def test_keys_that_are_registered_anew_take_effect(local: LocalProvider) -> None:
    async with opened() as here:
        assert await here.outcome(registered(local.issuer), local.rs256.kid) == local.rs256.kid
        static = registered(local.issuer, KeySource(static=[dict(local.es256.jwk)]))
        assert await here.outcome(static, local.rs256.kid) == UNKNOWN


async def test_one_closing_slash_of_the_issuer_is_not_doubled(local: LocalProvider) -> None:
    issuer = local.issuer + "/realm/"
    local.answers["/realm" + DISCOVERY_PATH] = fixed({**local.discovery(), "issuer": issuer})
    async with opened() as here:
        assert await here.outcome(registered(issuer), local.rs256.kid) == local.rs256.kid


async def test_no_proxy_is_taken_from_the_environment(local: LocalProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with opened() as here:
        assert await here.outcome(registered(local.issuer), local.rs256.kid) == local.rs256.kid


async def test_the_request_asks_for_a_plain_answer(local: LocalProvider) -> None:
    seen: dict[str, str] = {}

    def remember(exchange: Exchange) -> None:
        seen.update(exchange.headers.items())
        exchange.reply(200, local.key_set())

    local.answers[KEY_SET_PATH] = remember
    async with opened() as here:
        await here.outcome(registered(local.issuer), local.rs256.kid)
    assert seen["Accept-Encoding"] == "identity"
    assert seen["Host"] == local.issuer.removeprefix("http://")
    assert not {"Authorization", "Cookie"} & seen.keys()


# -- when a set is fetched --------------------------------------------------------------------------------------------


async def test_fifty_at_once_cause_one_fetch(local: LocalProvider) -> None:
    async with opened() as here:
        provider = registered(local.issuer)
        found = await asyncio.gather(*(here.outcome(provider, local.rs256.kid) for _ in range(50)))
    assert set(found) == {local.rs256.kid}
    assert local.requests == {DISCOVERY_PATH: 1, KEY_SET_PATH: 1}


async def test_fifty_unknown_kids_at_once_cause_one_fetch_and_are_decided_by_it(local: LocalProvider) -> None:
    async with opened() as here:
        provider = registered(local.issuer)
        found = await asyncio.gather(*(here.outcome(provider, f"made-up-{n}") for n in range(50)))
    assert set(found) == {UNKNOWN}
    assert local.requests[KEY_SET_PATH] == 1


async def test_an_unknown_kid_is_fetched_for_only_when_the_last_fetch_ended_over_five_seconds_ago(
    local: LocalProvider,
) -> None:
    async with opened() as here:
        provider = registered(local.issuer)
        await here.outcome(provider, local.rs256.kid)
        here.clock.s += FETCH_PAUSE_S
        assert await here.outcome(provider, "made-up") == UNDECIDED
        assert local.requests[KEY_SET_PATH] == 1
        here.clock.s += 0.001
        assert await here.outcome(provider, "made-up") == UNKNOWN
        assert local.requests[KEY_SET_PATH] == 2


async def test_a_withheld_fetch_says_when_to_try_again(local: LocalProvider) -> None:
    async with opened() as here:
        provider = registered(local.issuer)
        await here.outcome(provider, local.rs256.kid)
        here.clock.s += 2
        with pytest.raises(Undecided) as refused:
            await here.key_sets.find(provider, "made-up", Allowance("192.0.2.1"))
        assert refused.value.retry_after_s == 4
        here.clock.s += refused.value.retry_after_s
        assert await here.outcome(provider, "made-up") == UNKNOWN


async def test_a_flood_of_unknown_kids_causes_six_fetches_a_minute(local: LocalProvider) -> None:
    async with opened() as here:
        provider = registered(local.issuer)
        for minute in (1, 2):
            for second in range(60):
                await here.outcome(provider, f"made-up-{minute}-{second}")
                here.clock.s += 1
            assert local.requests[KEY_SET_PATH] <= FETCHES_A_MINUTE * minute
        assert local.requests[KEY_SET_PATH] > FETCHES_A_MINUTE  # and the second minute has its own
        assert await here.outcome(provider, local.rs256.kid) == local.rs256.kid


async def test_each_issuer_has_its_own_bounds(local: LocalProvider) -> None:
    async with opened() as here:
        assert await here.outcome(registered("http://127.0.0.1:1"), "made-up") == UNDECIDED
        assert await here.outcome(registered(local.issuer), local.rs256.kid) == local.rs256.kid


async def test_a_rotated_key_is_found_and_the_old_one_is_gone(local: LocalProvider) -> None:
    async with opened() as here:
        provider, old = registered(local.issuer), local.rs256.kid
        await here.outcome(provider, old)
        local.rotate()
        here.clock.s += FETCH_PAUSE_S + 1
        assert await here.outcome(provider, local.rs256.kid) == local.rs256.kid
        here.clock.s += FETCH_PAUSE_S + 1
        assert await here.outcome(provider, old) == UNKNOWN


class Gate:
    """An answer that waits to be let go."""

    def __init__(self, local: LocalProvider, path: str) -> None:
        self._open = threading.Event()
        self._local = local
        self.seen = lambda: local.requests[path] == 1
        local.answers[path] = self

    def __call__(self, exchange: Exchange) -> None:
        assert self._open.wait(60)
        exchange.reply(200, self._local.key_set() if exchange.path == KEY_SET_PATH else self._local.discovery())

    def release(self) -> None:
        self._open.set()


async def test_a_set_that_was_asked_for_before_a_request_arrived_proves_nothing_about_it(local: LocalProvider) -> None:
    gate = Gate(local, KEY_SET_PATH)
    async with opened() as here:
        provider = registered(local.issuer)
        first = asyncio.create_task(here.outcome(provider, "made-up"))
        await until(gate.seen)
        late = asyncio.create_task(here.outcome(provider, "made-up"))
        late_and_known = asyncio.create_task(here.outcome(provider, local.rs256.kid))
        await asyncio.sleep(0)
        gate.release()
        assert await first == UNKNOWN
        assert await late == UNDECIDED
        assert await late_and_known == local.rs256.kid
    assert local.requests[KEY_SET_PATH] == 1


async def test_a_request_that_arrives_during_discovery_is_decided_by_the_set_that_follows(local: LocalProvider) -> None:
    gate = Gate(local, DISCOVERY_PATH)
    async with opened() as here:
        provider = registered(local.issuer)
        first = asyncio.create_task(here.outcome(provider, "made-up"))
        await until(gate.seen)
        late = asyncio.create_task(here.outcome(provider, "made-up"))
        await asyncio.sleep(0)
        gate.release()
        assert (await first, await late) == (UNKNOWN, UNKNOWN)


async def test_who_stops_waiting_does_not_stop_the_others(local: LocalProvider) -> None:
    gate = Gate(local, KEY_SET_PATH)
    async with opened() as here:
        provider = registered(local.issuer)
        impatient = asyncio.create_task(here.outcome(provider, local.rs256.kid))
        patient = asyncio.create_task(here.outcome(provider, local.rs256.kid))
        await until(gate.seen)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        gate.release()
        assert await patient == local.rs256.kid


async def test_who_comes_during_the_very_first_fetch_and_may_not_wait_is_told_when_to_return(
    local: LocalProvider,
) -> None:
    gate = Gate(local, KEY_SET_PATH)
    async with opened() as here:
        provider = registered(local.issuer)
        waiting = [asyncio.create_task(here.outcome(provider, local.rs256.kid)) for _ in range(MAX_WAITING)]
        await until(gate.seen)
        with pytest.raises(Undecided) as refused:
            await here.key_sets.find(provider, local.rs256.kid, Allowance("192.0.2.1"))
        assert (refused.value.code, refused.value.retry_after_s) == (Code.DEPENDENCY_ISSUER_KEYS, 1)
        gate.release()
        assert set(await asyncio.gather(*waiting)) == {local.rs256.kid}


async def test_a_kid_is_withheld_at_its_source_s_cost_only_where_other_keys_are_kept(local: LocalProvider) -> None:
    async def withheld(here: Opened) -> type[BaseException]:
        with pytest.raises(Undecided) as refused:
            await here.key_sets.find(registered(local.issuer), "made-up", Allowance("192.0.2.1"))
        return refused.type

    local.answers[KEY_SET_PATH] = fixed({}, 500)
    async with opened() as here:
        assert [await withheld(here) for _ in range(2)] == [Undecided, Undecided], "nobody could have known better"
        del local.answers[KEY_SET_PATH]
        here.clock.s += FETCH_PAUSE_S + 1
        assert await here.outcome(registered(local.issuer), local.rs256.kid) == local.rs256.kid
        assert await withheld(here) is Charged
        here.clock.s += HARD_AGE_S + 1
        local.answers[KEY_SET_PATH] = fixed({}, 500)
        assert await withheld(here) is Undecided


async def test_closing_leaves_nobody_waiting(local: LocalProvider) -> None:
    gate = Gate(local, KEY_SET_PATH)
    async with opened() as here:
        waiting = asyncio.create_task(here.outcome(registered(local.issuer), local.rs256.kid))
        await until(gate.seen)
        await here.aclose()
        assert await waiting == UNDECIDED
    gate.release()


# -- how long a set serves --------------------------------------------------------------------------------------------


async def test_a_set_is_renewed_by_the_timer_though_nobody_asks(local: LocalProvider) -> None:
    async with opened() as here:
        provider, old = registered(local.issuer), local.rs256.kid
        await here.outcome(provider, old)
        here.clock.s += RENEW_S - 1
        here.key_sets.renew()
        await asyncio.sleep(A_WHILE_S)
        assert local.requests[KEY_SET_PATH] == 1
        local.rotate()
        here.clock.s += 1
        await until(lambda: local.requests[KEY_SET_PATH] == 2)  # of itself: the timer is looked at every second
        assert await here.outcome(provider, local.rs256.kid) == local.rs256.kid
        assert local.requests[KEY_SET_PATH] == 2


async def test_the_timers_of_several_workers_part(local: LocalProvider) -> None:
    async with opened(late=0) as early, opened(late=1) as late:
        provider = registered(local.issuer)
        for here in (early, late):
            await here.outcome(provider, local.rs256.kid)
            here.clock.s += RENEW_S * (1 - JITTER)
            here.key_sets.renew()
        await until(lambda: local.requests[KEY_SET_PATH] == 3)
        late.clock.s += RENEW_S * 2 * JITTER
        late.key_sets.renew()
        await until(lambda: local.requests[KEY_SET_PATH] == 4)


async def test_a_set_that_nobody_has_asked_for_in_a_day_is_not_renewed(local: LocalProvider) -> None:
    async with opened() as here:
        provider = registered(local.issuer)
        await here.outcome(provider, local.rs256.kid)
        here.clock.s += UNUSED_S + 1
        here.key_sets.renew()
        await asyncio.sleep(A_WHILE_S)
        assert local.requests[KEY_SET_PATH] == 1
        assert await here.outcome(provider, local.rs256.kid) == local.rs256.kid
        assert local.requests[KEY_SET_PATH] == 2


async def test_a_withdrawn_key_is_refused_once_its_set_is_twenty_minutes_old(local: LocalProvider) -> None:
    async with opened() as here:
        provider, old = registered(local.issuer), local.rs256.kid
        await here.outcome(provider, old)
        local.rotate()
        here.clock.s += UNTRIED_AGE_S
        assert await here.outcome(provider, old) == old
        here.clock.s += 1
        assert await asyncio.gather(*(here.outcome(provider, old) for _ in range(50))) == [UNKNOWN] * 50
    assert local.requests[KEY_SET_PATH] == 2, "one try, for which all waited"


async def test_a_key_that_was_withdrawn_a_day_ago_is_refused_in_a_process_that_was_idle(local: LocalProvider) -> None:
    async with opened() as here:
        provider, old = registered(local.issuer), local.rs256.kid
        await here.outcome(provider, old)
        local.rotate()
        here.clock.s += 23 * 3600
        assert await here.outcome(provider, old) == UNKNOWN


async def test_a_source_over_its_limit_is_not_refused_for_the_age_of_a_set(local: LocalProvider) -> None:
    async with opened() as here:
        provider = registered(local.issuer)
        await here.outcome(provider, local.rs256.kid)
        here.clock.s += UNTRIED_AGE_S + 1
        assert await here.outcome(provider, "made-up", retry_after_s=7) == str(Code.RATE_SOURCE)
        assert local.requests[KEY_SET_PATH] == 1
        assert await here.outcome(provider, local.rs256.kid, retry_after_s=7) == local.rs256.kid


async def test_while_tries_fail_the_old_set_serves_and_that_is_told_before(local: LocalProvider) -> None:
    async with opened() as here:
        provider, kid = registered(local.issuer), local.rs256.kid
        await here.outcome(provider, kid)
        local.answers[DISCOVERY_PATH] = fixed({}, 500)
        local.requests.clear()
        here.clock.s += UNTRIED_AGE_S + 1
        assert await here.outcome(provider, kid) == kid
        assert (here.told, len(here.reasons)) == ([(UNTRIED_AGE_S + 1, False)], 1)
        here.clock.s += TRY_SERVES_S
        assert await here.outcome(provider, kid) == kid
        assert local.requests[DISCOVERY_PATH] == 1, "the try that failed still counts"
        here.clock.s += 1
        assert await here.outcome(provider, kid) == kid
        assert local.requests[DISCOVERY_PATH] == 2, "and now another one was made first"
        assert len(here.told) == 1
        local.answers.clear()
        here.clock.s += TRY_SERVES_S + 1
        assert await here.outcome(provider, kid) == kid
        assert [over for _, over in here.told] == [False, True]


async def test_old_keys_do_not_serve_where_that_cannot_be_told(local: LocalProvider) -> None:
    async with opened() as here:
        provider, kid = registered(local.issuer), local.rs256.kid
        await here.outcome(provider, kid)
        local.answers[DISCOVERY_PATH] = fixed({}, 500)
        here.audit_is_full = True
        here.clock.s += UNTRIED_AGE_S + 1
        assert await here.outcome(provider, kid) == UNDECIDED
        here.audit_is_full = False
        here.clock.s += FETCH_PAUSE_S + 1
        assert await here.outcome(provider, kid) == kid


async def test_a_renewal_that_fails_is_tried_again_once_a_minute_and_nobody_waits(local: LocalProvider) -> None:
    async with opened() as here:
        provider, kid = registered(local.issuer), local.rs256.kid
        await here.outcome(provider, kid)
        local.answers[DISCOVERY_PATH] = fixed({}, 500)
        local.requests.clear()
        here.clock.s += RENEW_S
        for failures in range(1, 15):
            for _ in range(5):
                here.key_sets.renew()
            await until(lambda wanted=failures: len(here.reasons) == wanted)  # type: ignore[misc]
            assert await here.outcome(provider, kid) == kid
            here.clock.s += RETRY_S
            before = local.connections
            assert await here.outcome(provider, kid) == kid
            assert local.connections == before
        assert local.requests[DISCOVERY_PATH] == 14
        assert [over for _, over in here.told] == [False]


async def test_with_the_provider_down_kept_keys_serve_for_a_day_and_no_longer(local: LocalProvider) -> None:
    async with opened() as here:
        provider, kid = registered(local.issuer), local.rs256.kid
        await here.outcome(provider, kid)
        local.answers[DISCOVERY_PATH] = fixed({}, 503)
        here.clock.s += FETCH_PAUSE_S + 1
        assert await here.outcome(provider, "made-up") == UNDECIDED
        here.clock.s += HARD_AGE_S - FETCH_PAUSE_S - 1
        assert await here.outcome(provider, kid) == kid
        here.clock.s += 60
        assert await here.outcome(provider, kid) == UNDECIDED
        local.answers.clear()
        here.clock.s += 60
        assert await here.outcome(provider, kid) == kid


async def test_where_nobody_listens_nothing_is_decided() -> None:
    async with opened() as here:
        assert await here.outcome(registered("http://127.0.0.1:1"), "any") == UNDECIDED


@pytest.mark.parametrize("change", [{"use": "enc"}, {"kty": "oct", "k": "AAAA"}, {"e": "Aw"}, None])
async def test_a_provider_that_publishes_no_usable_key_has_withdrawn_them_all(
    local: LocalProvider, change: dict[str, str] | None
) -> None:
    async with opened() as here:
        provider, kid = registered(local.issuer), local.rs256.kid
        await here.outcome(provider, kid)
        keys = [] if change is None else [{**local.rs256.jwk, **change}]
        local.answers[KEY_SET_PATH] = fixed({"keys": keys})
        here.clock.s += FETCH_PAUSE_S + 1
        assert await here.outcome(provider, "made-up") == UNDECIDED
        assert await here.outcome(provider, kid) == UNDECIDED
    assert here.reasons == ["the key set has no usable key"]


async def test_what_is_no_key_set_withdraws_nothing(local: LocalProvider) -> None:
    async with opened() as here:
        provider, kid = registered(local.issuer), local.rs256.kid
        await here.outcome(provider, kid)
        local.answers[KEY_SET_PATH] = fixed({"error": "later"})
        here.clock.s += FETCH_PAUSE_S + 1
        assert await here.outcome(provider, "made-up") == UNDECIDED
        assert await here.outcome(provider, kid) == kid


async def test_a_source_over_its_limit_causes_no_fetch_but_kept_keys_serve_it(local: LocalProvider) -> None:
    async with opened() as here:
        provider = registered(local.issuer)
        before = local.connections
        with pytest.raises(Refused) as refused:
            await here.key_sets.find(provider, local.rs256.kid, Allowance("192.0.2.1", 7))
        assert (refused.value.code, refused.value.retry_after_s) == (Code.RATE_SOURCE, 7)
        assert local.connections == before
        await here.outcome(provider, local.rs256.kid)
        assert await here.outcome(provider, local.rs256.kid, retry_after_s=7) == local.rs256.kid


# -- what a provider may send -----------------------------------------------------------------------------------------


def endless(exchange: Exchange) -> None:
    """Send chunks, and never say how many."""
    exchange.send_response(200)
    exchange.send_header("Transfer-Encoding", "chunked")
    exchange.end_headers()
    while not exchange.server.provider.closing.is_set():
        exchange.wfile.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")


def understated(exchange: Exchange) -> None:
    """Promise more than comes, and hang up."""
    exchange.reply(200, b'{"keys": [', Content_Length="1000", Connection="close")
    exchange.close_connection = True


def not_http(exchange: Exchange) -> None:
    exchange.wfile.write(b"SSH-2.0-secret-of-the-provider\r\n")
    exchange.close_connection = True


def hanging_up(exchange: Exchange) -> None:
    exchange.close_connection = True


def complete(raw: bytes, size: int) -> bytes:
    return raw + b" " * (size - len(raw))


# Where it can, the answer would be a good one but for what is wrong with it.
HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], Responder], str]] = {
    "larger than it may be": (
        lambda good: fixed(complete(json.dumps(good).encode(), MAX_DOCUMENT_BYTES + 1)), "the answer is larger",
    ),
    "endless": (lambda _: endless, "the answer is larger"),
    "shorter than promised": (lambda _: understated, "RemoteProtocolError"),
    "no HTTP": (lambda _: not_http, "RemoteProtocolError"),
    "nothing": (lambda _: hanging_up, "RemoteProtocolError"),
    "a redirect": (lambda good: fixed(good, 302, Location="/elsewhere"), "the provider answered 302"),
    "a permanent redirect": (lambda good: fixed(good, 308, Location="/elsewhere"), "the provider answered 308"),
    "not found": (lambda good: fixed(good, 404), "the provider answered 404"),
    "no content": (lambda _: fixed(b"", 204), "the provider answered 204"),
    "partial": (lambda good: fixed(good, 206), "the provider answered 206"),
    "compressed": (lambda good: fixed(good, Content_Encoding="gzip"), "the answer is compressed"),
    "no JSON": (lambda _: fixed(b"<html>secret"), "file.syntax"),
    "no object": (lambda _: fixed(b"[]"), ""),
    "duplicate members": (lambda good: fixed(json.dumps(good).encode()[:-1] + b', "a": 1, "a": 2}'), "file.duplicate"),
    "a byte order mark": (lambda good: fixed(b"\xef\xbb\xbf" + json.dumps(good).encode()), "file.syntax"),
    "deep": (lambda _: fixed(b'{"keys": ' + b"[" * 5000 + b"]" * 5000 + b"}"), "file.too_large"),
}  # fmt: skip


@pytest.mark.parametrize("path", [DISCOVERY_PATH, KEY_SET_PATH])
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_bad_answer_decides_nothing_and_is_reported_without_its_bytes(
    local: LocalProvider, name: str, path: str
) -> None:
    answer, reason = HOSTILE[name]
    local.answers[path] = answer(local.discovery() if path == DISCOVERY_PATH else local.key_set())
    async with opened() as here:
        assert await here.outcome(registered(local.issuer), local.rs256.kid) == UNDECIDED
    (said,) = here.reasons
    assert said.startswith(reason)
    assert "secret" not in said
    assert "/elsewhere" not in local.requests


async def test_a_set_of_more_keys_than_anybody_has_is_refused(local: LocalProvider) -> None:
    spare = [{"kty": "oct"}] * (MAX_KEYS - 1)
    async with opened() as here:
        local.answers[KEY_SET_PATH] = fixed({"keys": [*local.key_set()["keys"], *spare]})
        assert await here.outcome(registered(local.issuer), local.rs256.kid) == UNDECIDED
        here.clock.s += FETCH_PAUSE_S + 1
        local.answers[KEY_SET_PATH] = fixed({"keys": [*local.key_set()["keys"], *spare[1:]]})
        assert await here.outcome(registered(local.issuer), local.rs256.kid) == local.rs256.kid


async def test_exactly_the_largest_set_is_taken(local: LocalProvider) -> None:
    raw = json.dumps(local.key_set()).encode()
    local.answers[KEY_SET_PATH] = fixed(raw + b" " * (MAX_DOCUMENT_BYTES - len(raw)))
    async with opened() as here:
        assert await here.outcome(registered(local.issuer), local.rs256.kid) == local.rs256.kid


def dripping_headers(exchange: Exchange) -> None:
    exchange.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while not exchange.server.provider.closing.wait(0.02):
        exchange.wfile.write(b"X-More: 1\r\n")


def slow(body: dict[str, Any]) -> Responder:
    def answer(exchange: Exchange) -> None:
        exchange.server.provider.closing.wait(0.25)
        exchange.reply(200, body)

    return answer


@pytest.mark.parametrize("path", [DISCOVERY_PATH, KEY_SET_PATH])
@pytest.mark.parametrize("answer", [dripping, dripping_headers])
async def test_a_dripping_answer_ends_at_the_deadline(local: LocalProvider, answer: Responder, path: str) -> None:
    local.answers[path] = answer
    async with opened(deadline_s=0.3) as here:
        assert await here.outcome(registered(local.issuer), local.rs256.kid) == UNDECIDED
    assert here.reasons == ["TimeoutError"]


async def test_discovery_and_key_set_share_one_deadline(local: LocalProvider) -> None:
    local.answers[DISCOVERY_PATH] = slow(local.discovery())
    local.answers[KEY_SET_PATH] = slow(local.key_set())
    async with opened(deadline_s=0.4) as here:
        assert await here.outcome(registered(local.issuer), local.rs256.kid) == UNDECIDED
    async with opened(deadline_s=60) as here:
        assert await here.outcome(registered(local.issuer), local.rs256.kid) == local.rs256.kid


ELSEWHERE = "the jwks_uri is on another host"
NOT_PLAIN = "a URL has more than a host, path and query"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"issuer": "https://issuer.example"}, "the discovery document is of another issuer"),
        ({"issuer": "{issuer}/"}, "the discovery document is of another issuer"),
        ({"issuer": "{ISSUER}"}, "the discovery document is of another issuer"),
        ({"issuer": ["{issuer}"]}, "the discovery document is of another issuer"),
        ({"issuer": None}, "the discovery document is of another issuer"),
        ({"jwks_uri": None}, "the discovery document has no jwks_uri"),
        ({"jwks_uri": ["{issuer}/.well-known/jwks"]}, "the discovery document has no jwks_uri"),
        ({"jwks_uri": ""}, ELSEWHERE),
        ({"jwks_uri": "/.well-known/jwks"}, "ValueError"),
        ({"jwks_uri": "https://evil.example/jwks"}, ELSEWHERE),
        ({"jwks_uri": "http://127.0.0.2/jwks"}, ELSEWHERE),
        ({"jwks_uri": "http://169.254.169.254/latest/meta-data"}, "ValueError"),
        ({"jwks_uri": "https://169.254.169.254/latest/meta-data"}, ELSEWHERE),
        ({"jwks_uri": "http://127.0.0.1:1@evil.example/jwks"}, "ValueError"),
        ({"jwks_uri": "https://127.0.0.1:1@evil.example/jwks"}, ELSEWHERE),
        ({"jwks_uri": "http://user@127.0.0.1:1/jwks"}, NOT_PLAIN),
        ({"jwks_uri": "file:///etc/passwd"}, "ValueError"),
        ({"jwks_uri": "ftp://127.0.0.1/jwks"}, "ValueError"),
        ({"jwks_uri": "http://127.0.0.1:0/jwks"}, NOT_PLAIN),
        ({"jwks_uri": "http://127.0.0.1:99999/jwks"}, NOT_PLAIN),
        ({"jwks_uri": "{issuer}/.well-known/jwks#fragment"}, NOT_PLAIN),
        ({"jwks_uri": "{issuer}/.well-known/\njwks"}, "a URL has characters"),
        ({"jwks_uri": "http://127.0.0.1\\@evil.example/jwks"}, "ValueError"),
        ({"jwks_uri": "{issuer}/\\evil.example/jwks"}, "a URL has characters"),
        ({"jwks_uri": "http://[127.0.0.1/jwks"}, "ValueError"),
    ],
    ids=str,
)
async def test_discovery_that_points_elsewhere_is_not_followed(
    local: LocalProvider, change: dict[str, Any], reason: str
) -> None:
    text = json.dumps({**local.discovery(), **change})
    text = text.replace("{issuer}", local.issuer).replace("{ISSUER}", local.issuer.upper())
    local.answers[DISCOVERY_PATH] = fixed(text.encode())
    async with opened() as here:
        assert await here.outcome(registered(local.issuer), local.rs256.kid) == UNDECIDED
    (said,) = here.reasons
    assert said.startswith(reason)
    assert local.requests == {DISCOVERY_PATH: 1}


# -- where a provider may live ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "127.1.2.3",
        "169.254.169.254",
        "172.16.0.1",
        "192.168.0.1",
        "198.18.0.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::a00:1",
        "64:ff9b:1::a00:1",
        "2001:db8::1",
        "2002:a00:1::",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
    ],
)
def test_no_provider_lives_at_an_address_that_is_not_public(address: str) -> None:
    assert not may_connect(address)


@pytest.mark.parametrize(
    "address", ["140.82.112.3", "8.8.8.8", "2606:50c0::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::"]
)
def test_providers_live_at_public_addresses(address: str) -> None:
    assert may_connect(address)


def test_in_development_a_provider_may_live_on_this_machine_but_not_beside_it() -> None:
    assert may_connect("127.0.0.1", development=True)
    assert may_connect("::1", development=True)
    assert not may_connect("192.168.0.1", development=True)
    assert not may_connect("169.254.169.254", development=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "0x7f000001", "[::ffff:127.0.0.1]"])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_in_production_this_machine_is_not_even_connected_to(
    local: LocalProvider, scheme: str, host: str
) -> None:
    before = local.connections
    port = local.issuer.rsplit(":", 1)[1]
    async with opened(development=False) as here:
        assert await here.outcome(registered(f"{scheme}://{host}:{port}"), local.rs256.kid) == UNDECIDED
    assert local.connections == before
    (said,) = here.reasons
    assert said.startswith("a URL is not https" if scheme == "http" else "the provider's host has an address")


async def test_in_development_plain_http_is_for_loopback_addresses_not_for_names(local: LocalProvider) -> None:
    before = local.connections
    async with opened() as here:
        provider = registered(local.issuer.replace("127.0.0.1", "localhost"))
        assert await here.outcome(provider, local.rs256.kid) == UNDECIDED
    assert local.connections == before


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalProvider, ssl.SSLContext]]:
    """A provider at https://issuer.test, and a client's TLS that trusts its certificate."""
    folder = tmp_path_factory.mktemp("tls")
    with LocalProvider(host="issuer.test", tls=certificate("issuer.test", folder)) as provider:
        yield provider, ssl.create_default_context(cafile=str(folder / "cert.pem"))


class Names:
    """A name service that is asked once and gives its answers one after the other."""

    def __init__(self, *answers: list[str]) -> None:
        self.asked: list[str] = []
        self._answers = list(answers)

    def __call__(self, host: str, _port: int) -> Awaitable[Sequence[str]]:
        return self._answer(host)

    async def _answer(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        return self._answers.pop(0) if self._answers else ["10.0.0.1"]


async def test_the_checked_address_is_the_one_that_is_connected_to(
    named: tuple[LocalProvider, ssl.SSLContext],
) -> None:
    provider, trusting = named
    names = Names(["127.0.0.1"])  # a second look-up leads inside
    async with opened(resolve=names, ssl_context=trusting) as here:
        assert await here.outcome(registered(provider.issuer), provider.rs256.kid) == provider.rs256.kid
    assert names.asked == ["issuer.test"]


async def test_the_certificate_must_be_for_the_name_not_for_the_address(
    named: tuple[LocalProvider, ssl.SSLContext],
) -> None:
    provider, trusting = named
    provider.requests.clear()
    other = registered(provider.issuer.replace("issuer.test", "other.test"))
    async with opened(resolve=Names(["127.0.0.1"]), ssl_context=trusting) as here:
        assert await here.outcome(other, provider.rs256.kid) == UNDECIDED
    async with opened(resolve=Names(["127.0.0.1"])) as stranger:
        assert await stranger.outcome(registered(provider.issuer), provider.rs256.kid) == UNDECIDED
    assert "certificate" in here.reasons[0]
    assert not provider.requests


@pytest.mark.parametrize(
    "addresses", [["10.0.0.1"], ["127.0.0.1", "10.0.0.1"], ["::ffff:169.254.169.254"], ["fe80::1%lo"], []], ids=str
)
async def test_one_address_that_is_not_public_is_one_too_many(
    named: tuple[LocalProvider, ssl.SSLContext], addresses: list[str]
) -> None:
    provider, trusting = named
    before = provider.connections
    async with opened(resolve=Names(addresses), ssl_context=trusting) as here:
        assert await here.outcome(registered(provider.issuer), provider.rs256.kid) == UNDECIDED
    assert provider.connections == before


async def test_the_next_address_is_tried_where_one_does_not_answer(
    named: tuple[LocalProvider, ssl.SSLContext],
) -> None:
    provider, trusting = named
    async with opened(resolve=Names(["127.0.0.2", "127.0.0.1"]), ssl_context=trusting) as here:
        assert await here.outcome(registered(provider.issuer), provider.rs256.kid) == provider.rs256.kid


async def test_a_name_that_nobody_knows_is_said_in_words() -> None:
    with pytest.raises(OSError) as failure:
        await addresses_of("nowhere.invalid", 443)
    assert reason(failure.value) == "its name is not found (DNS)"
