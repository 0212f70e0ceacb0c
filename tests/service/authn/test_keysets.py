"""The key-set cache against a real provider over HTTP: every bound of SECURITY.md, on a clock that the test moves."""

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
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
from tests.support.waiting import until

UNDECIDED = str(Code.DEPENDENCY_ISSUER_KEYS)
UNKNOWN = str(Code.IDENTITY_KEY_UNKNOWN)


class Opened:
    """Key sets with their own clock, the failures that they reported, and the records of stale use.

    `late` moves their timers within the jitter: 1 is as late as they may be.
    """

    def __init__(self, provider: Provider, late: float = 0.5, **options: Any) -> None:
        self.provider = provider
        self.clock = Clock()
        self.reasons: list[str] = []
        self.stale: list[tuple[int, bool]] = []
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
        self.stale.append((stale.age_s, stale.over))

    async def outcome(self, kid: str, provider: Provider | None = None, retry_after_s: int = 0) -> str:
        try:
            return (await self.key_sets.find(provider or self.provider, kid, Allowance("192.0.2.1", retry_after_s))).kid
        except IssuerError as error:
            return str(error.code)

    async def undecided(self, kid: str) -> Undecided:
        """Return the refusal of a kid that cannot be decided now."""
        with pytest.raises(Undecided) as refused:
            await self.key_sets.find(self.provider, kid, Allowance("192.0.2.1"))
        return refused.value

    def renew(self) -> set[asyncio.Task[Any]]:
        """Let the timer look once, and return the fetch that it began."""
        before = asyncio.all_tasks()
        self.key_sets.renew()
        return asyncio.all_tasks() - before

    async def aclose(self) -> None:
        await self.key_sets.aclose()


def opened(local: LocalProvider, **options: Any) -> aclosing[Opened]:
    return aclosing(Opened(registered(local.issuer), **options))


@pytest.fixture
async def cache(local: LocalProvider) -> AsyncIterator[Opened]:
    async with opened(local) as cache:
        yield cache


def registered(issuer: str, keys: Any = "discovery") -> Provider:
    signed = ("RS256", "ES256")
    return Provider("local", "github-actions", issuer, "https://evals.example", signed, 3600, 900, 1, keys, ("push",))


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


def fixed(body: Any, status: int = 200, **headers: str) -> Responder:
    return lambda exchange: exchange.reply(status, body, **headers)


# -- where a set comes from -------------------------------------------------------------------------------------------


async def test_a_key_is_found_by_discovery_and_then_kept(cache: Opened, local: LocalProvider) -> None:
    assert await cache.outcome(local.rs256.kid) == local.rs256.kid
    key: Key = await cache.key_sets.find(cache.provider, local.es256.kid, Allowance("192.0.2.1"))
    assert key.algorithms == {"ES256"}
    assert key.verifies("ES256", b"text", local.es256.signature(b"text"))
    assert local.requests == {DISCOVERY_PATH: 1, KEY_SET_PATH: 1}


async def test_static_keys_are_never_fetched_and_replace_fetched_ones(cache: Opened, local: LocalProvider) -> None:
    static = registered(local.issuer, KeySource(static=[dict(local.rs256.jwk)]))
    before = local.connections
    assert await cache.outcome(local.rs256.kid, static) == local.rs256.kid
    assert await cache.outcome(local.es256.kid, static) == UNKNOWN
    assert local.connections == before
    assert await cache.outcome(local.es256.kid) == local.es256.kid
    assert await cache.outcome(local.es256.kid, static) == UNKNOWN


async def test_keys_are_found_at_a_registered_address_or_below_the_issuer_s_path(
    cache: Opened, local: LocalProvider
) -> None:
    known = registered("https://elsewhere.example", KeySource(jwks_uri=local.issuer + KEY_SET_PATH))
    assert await cache.outcome(local.rs256.kid, known) == local.rs256.kid
    assert local.requests == {KEY_SET_PATH: 1}, "without discovery"
    issuer = local.issuer + "/realm/"  # its slash is not doubled
    local.answers["/realm" + DISCOVERY_PATH] = fixed({**local.discovery(), "issuer": issuer})
    assert await cache.outcome(local.rs256.kid, registered(issuer)) == local.rs256.kid


async def test_no_proxy_is_taken_from_the_environment(
    cache: Opened, local: LocalProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert await cache.outcome(local.rs256.kid) == local.rs256.kid


async def test_the_request_asks_for_an_uncompressed_answer(cache: Opened, local: LocalProvider) -> None:
    seen: dict[str, str] = {}

    def record(exchange: Exchange) -> None:
        seen.update(exchange.headers.items())
        exchange.reply(200, local.key_set())

    local.answers[KEY_SET_PATH] = record
    await cache.outcome(local.rs256.kid)
    assert seen["Accept-Encoding"] == "identity"
    assert seen["Host"] == local.issuer.removeprefix("http://")
    assert not {"Authorization", "Cookie"} & seen.keys()


# -- when a set is fetched --------------------------------------------------------------------------------------------


async def test_fifty_requests_at_once_cause_one_fetch_and_are_decided_by_it(
    cache: Opened, local: LocalProvider
) -> None:
    kids = [local.rs256.kid, *(f"made-up-{n}" for n in range(49))]
    found = await asyncio.gather(*(cache.outcome(kid) for kid in kids))
    assert found == [local.rs256.kid, *[UNKNOWN] * 49]
    assert local.requests == {DISCOVERY_PATH: 1, KEY_SET_PATH: 1}


async def test_a_kid_causes_a_fetch_only_over_five_seconds_after_the_last(cache: Opened, local: LocalProvider) -> None:
    await cache.outcome(local.rs256.kid)
    cache.clock.s += 2
    assert (await cache.undecided("made-up")).retry_after_s == 4
    cache.clock.s += FETCH_PAUSE_S - 2
    assert (await cache.undecided("made-up")).retry_after_s == 1
    assert local.requests[KEY_SET_PATH] == 1
    cache.clock.s += 0.001
    assert await cache.outcome("made-up") == UNKNOWN
    assert local.requests[KEY_SET_PATH] == 2


async def test_a_flood_of_unknown_kids_causes_six_fetches_a_minute(cache: Opened, local: LocalProvider) -> None:
    for minute in (1, 2):
        for second in range(60):
            await cache.outcome(f"made-up-{minute}-{second}")
            cache.clock.s += 1
        assert local.requests[KEY_SET_PATH] <= FETCHES_A_MINUTE * minute
    assert local.requests[KEY_SET_PATH] > FETCHES_A_MINUTE  # and the second minute has its own
    issuer = local.issuer + "/another"  # as has another issuer
    local.answers["/another" + DISCOVERY_PATH] = fixed({**local.discovery(), "issuer": issuer})
    assert await cache.outcome(local.rs256.kid, registered(issuer)) == local.rs256.kid
    assert await cache.outcome(local.rs256.kid) == local.rs256.kid


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


async def test_a_set_requested_before_a_token_arrived_proves_no_kid_unknown(
    cache: Opened, local: LocalProvider
) -> None:
    gate = Gate(local, KEY_SET_PATH)
    first = asyncio.create_task(cache.outcome("made-up"))
    await until(gate.seen)
    late = asyncio.create_task(cache.outcome("made-up"))
    late_and_known = asyncio.create_task(cache.outcome(local.rs256.kid))
    await asyncio.sleep(0)
    gate.release()
    assert (await first, await late, await late_and_known) == (UNKNOWN, UNDECIDED, local.rs256.kid)
    assert local.requests[KEY_SET_PATH] == 1


async def test_a_request_during_discovery_is_decided_by_the_set_that_follows(
    cache: Opened, local: LocalProvider
) -> None:
    gate = Gate(local, DISCOVERY_PATH)
    first = asyncio.create_task(cache.outcome("made-up"))
    await until(gate.seen)
    late = asyncio.create_task(cache.outcome("made-up"))
    await asyncio.sleep(0)
    gate.release()
    assert (await first, await late) == (UNKNOWN, UNKNOWN)


async def test_a_request_beyond_the_waiting_ones_is_refused_and_a_cancelled_one_ends_alone(
    cache: Opened, local: LocalProvider
) -> None:
    gate = Gate(local, KEY_SET_PATH)
    impatient, *waiting = [asyncio.create_task(cache.outcome(local.rs256.kid)) for _ in range(MAX_WAITING)]
    await until(gate.seen)
    refused = await cache.undecided(local.rs256.kid)
    assert (refused.code, refused.retry_after_s) == (Code.DEPENDENCY_ISSUER_KEYS, 1)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    gate.release()
    assert set(await asyncio.gather(*waiting)) == {local.rs256.kid}


async def test_an_undecided_kid_is_charged_to_its_source_only_if_keys_are_kept(
    cache: Opened, local: LocalProvider
) -> None:
    local.answers[KEY_SET_PATH] = fixed({}, 500)
    assert [type(await cache.undecided("made-up")) for _ in range(2)] == [Undecided] * 2
    assert local.requests[KEY_SET_PATH] == 1, "a fetch that failed has its pause, too"
    del local.answers[KEY_SET_PATH]
    cache.clock.s += FETCH_PAUSE_S + 1
    assert await cache.outcome(local.rs256.kid) == local.rs256.kid
    assert type(await cache.undecided("made-up")) is Charged
    cache.clock.s += HARD_AGE_S + 1
    local.answers[KEY_SET_PATH] = fixed({}, 500)
    assert type(await cache.undecided("made-up")) is Undecided


async def test_closing_ends_every_wait(cache: Opened, local: LocalProvider) -> None:
    gate = Gate(local, KEY_SET_PATH)
    waiting = asyncio.create_task(cache.outcome(local.rs256.kid))
    await until(gate.seen)
    await cache.aclose()
    assert await waiting == UNDECIDED
    gate.release()


# -- how long a set serves --------------------------------------------------------------------------------------------


async def test_the_timer_renews_a_set_without_requests_for_a_day(cache: Opened, local: LocalProvider) -> None:
    old = local.rs256.kid
    await cache.outcome(old)
    cache.clock.s += RENEW_S - 1
    assert not cache.renew()
    local.rotate()
    cache.clock.s += 1
    await until(lambda: local.requests[KEY_SET_PATH] == 2)  # the timer looks every second
    assert await cache.outcome(local.rs256.kid) == local.rs256.kid
    assert local.requests[KEY_SET_PATH] == 2
    cache.clock.s += UNUSED_S + 1
    assert not cache.renew(), "no token came for a day"
    assert await cache.outcome(local.rs256.kid) == local.rs256.kid
    assert local.requests[KEY_SET_PATH] == 3


async def test_the_timers_of_workers_are_spread_by_the_jitter(local: LocalProvider) -> None:
    async with opened(local, late=0) as early, opened(local, late=1) as late:
        for cache in (early, late):
            await cache.outcome(local.rs256.kid)
            cache.clock.s += RENEW_S * (1 - JITTER)
        assert [len(cache.renew()) for cache in (early, late)] == [1, 0]
        late.clock.s += RENEW_S * 2 * JITTER
        assert late.renew()


async def test_a_revoked_key_is_refused_once_its_set_is_twenty_minutes_old(local: LocalProvider) -> None:
    async with opened(local) as cache, opened(local) as idle:
        old = local.rs256.kid
        await cache.outcome(old)
        await idle.outcome(old)
        local.requests.clear()
        local.rotate()
        cache.clock.s += UNTRIED_AGE_S
        assert await cache.outcome(old) == old
        cache.clock.s += 1
        assert await asyncio.gather(*(cache.outcome(old) for _ in range(50))) == [UNKNOWN] * 50
        assert local.requests[KEY_SET_PATH] == 1, "one try, for which all waited"
        idle.clock.s += 23 * 3600
        assert await idle.outcome(old) == UNKNOWN


async def test_a_source_over_its_limit_is_served_by_kept_keys_and_causes_no_fetch(
    cache: Opened, local: LocalProvider
) -> None:
    before = local.connections
    with pytest.raises(Refused) as refused:
        await cache.key_sets.find(cache.provider, local.rs256.kid, Allowance("192.0.2.1", 7))
    assert (refused.value.code, refused.value.retry_after_s) == (Code.RATE_SOURCE, 7)
    assert local.connections == before
    await cache.outcome(local.rs256.kid)
    assert await cache.outcome(local.rs256.kid, retry_after_s=7) == local.rs256.kid
    cache.clock.s += UNTRIED_AGE_S + 1
    assert await cache.outcome("made-up", retry_after_s=7) == str(Code.RATE_SOURCE)
    assert local.requests[KEY_SET_PATH] == 1
    # The age of the set causes this fetch, and no source can cause a second one.
    assert await cache.outcome(local.rs256.kid, retry_after_s=7) == local.rs256.kid


async def test_while_tries_fail_the_old_set_serves_once_that_is_recorded(cache: Opened, local: LocalProvider) -> None:
    kid = local.rs256.kid
    await cache.outcome(kid)
    local.answers[DISCOVERY_PATH] = fixed({}, 500)
    local.requests.clear()
    cache.clock.s += UNTRIED_AGE_S + 1
    cache.audit_is_full = True
    assert await cache.outcome(kid) == UNDECIDED
    cache.audit_is_full = False
    cache.clock.s += FETCH_PAUSE_S + 1
    assert await cache.outcome(kid) == kid
    assert (cache.stale, len(cache.reasons)) == ([(UNTRIED_AGE_S + FETCH_PAUSE_S + 2, False)], 2)
    cache.clock.s += TRY_SERVES_S
    assert await cache.outcome(kid) == kid
    assert local.requests[DISCOVERY_PATH] == 2, "the try that failed still counts"
    cache.clock.s += 1
    assert await cache.outcome(kid) == kid
    assert local.requests[DISCOVERY_PATH] == 3, "and now another one was made first"
    assert len(cache.stale) == 1
    local.answers.clear()
    cache.clock.s += TRY_SERVES_S + 1
    assert await cache.outcome(kid) == kid
    assert [over for _, over in cache.stale] == [False, True]


async def test_a_failed_renewal_is_tried_again_each_minute_while_nobody_waits(
    cache: Opened, local: LocalProvider
) -> None:
    kid = local.rs256.kid
    await cache.outcome(kid)
    local.answers[DISCOVERY_PATH] = fixed({}, 500)
    cache.clock.s += RENEW_S
    for failures in range(1, 15):
        (fetch,) = cache.renew()
        assert not cache.renew()
        await asyncio.wait([fetch])
        assert len(cache.reasons) == failures
        cache.clock.s += RETRY_S
        before = local.connections
        assert await cache.outcome(kid) == kid
        assert local.connections == before
    assert [over for _, over in cache.stale] == [False]


async def test_while_the_provider_is_down_kept_keys_serve_for_a_day(cache: Opened, local: LocalProvider) -> None:
    kid = local.rs256.kid
    await cache.outcome(kid)
    local.answers[DISCOVERY_PATH] = fixed({}, 503)
    cache.clock.s += FETCH_PAUSE_S + 1
    assert await cache.outcome("made-up") == UNDECIDED
    cache.clock.s += HARD_AGE_S - FETCH_PAUSE_S - 1
    assert await cache.outcome(kid) == kid
    cache.clock.s += 60
    assert await cache.outcome(kid) == UNDECIDED
    local.answers.clear()
    cache.clock.s += 60
    assert await cache.outcome(kid) == kid


async def test_a_set_without_a_usable_key_revokes_all_and_no_set_revokes_none(local: LocalProvider) -> None:
    kid = local.rs256.kid
    jwk, no_key = local.rs256.jwk, "the key set has no usable key"
    wrong = {}
    for answer, outcome, reasons in (
        ({"keys": []}, UNDECIDED, [no_key]),
        ({"keys": [{**jwk, "use": "enc"}]}, UNDECIDED, [no_key]),
        ({"keys": [{**jwk, "kty": "oct", "k": "AAAA"}]}, UNDECIDED, [no_key]),
        ({"keys": [{**jwk, "e": "Aw"}]}, UNDECIDED, [no_key]),
        ({"error": "later"}, kid, None),
    ):
        local.answers.clear()
        async with opened(local) as cache:
            await cache.outcome(kid)
            local.answers[KEY_SET_PATH] = fixed(answer)
            cache.clock.s += FETCH_PAUSE_S + 1
            found = (await cache.outcome("made-up"), await cache.outcome(kid))
            if found != (UNDECIDED, outcome) or (reasons and cache.reasons != reasons):
                wrong[str(answer)] = (found, cache.reasons)
    assert wrong == {}


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


@pytest.mark.parametrize("path", [DISCOVERY_PATH, KEY_SET_PATH])
async def test_a_bad_answer_decides_nothing_and_is_reported_without_its_bytes(local: LocalProvider, path: str) -> None:
    wrong = {}
    for name, (answer, why) in HOSTILE.items():
        local.answers[path] = answer(local.discovery() if path == DISCOVERY_PATH else local.key_set())
        async with opened(local) as cache:
            outcome = await cache.outcome(local.rs256.kid)
        (said,) = cache.reasons
        if outcome != UNDECIDED or not said.startswith(why) or "secret" in said:
            wrong[name] = (outcome, said)
    assert wrong == {}
    assert "/elsewhere" not in local.requests


# If possible, the answer has a single fault.
HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], Responder], str]] = {
    "larger than it may be": (
        lambda good: fixed(json.dumps(good).encode().ljust(MAX_DOCUMENT_BYTES + 1)), "the answer is larger",
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


async def test_the_largest_set_is_taken_and_one_key_more_is_refused(cache: Opened, local: LocalProvider) -> None:
    spare = [{"kty": "oct"}] * (MAX_KEYS - 1)
    local.answers[KEY_SET_PATH] = fixed({"keys": [*local.key_set()["keys"], *spare]})
    assert await cache.outcome(local.rs256.kid) == UNDECIDED
    cache.clock.s += FETCH_PAUSE_S + 1
    largest = json.dumps({"keys": [*local.key_set()["keys"], *spare[1:]]}).encode().ljust(MAX_DOCUMENT_BYTES)
    local.answers[KEY_SET_PATH] = fixed(largest)
    assert await cache.outcome(local.rs256.kid) == local.rs256.kid


def dripping_headers(exchange: Exchange) -> None:
    exchange.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while not exchange.server.provider.closing.wait(0.02):
        exchange.wfile.write(b"X-More: 1\r\n")


def slow(body: dict[str, Any]) -> Responder:
    def answer(exchange: Exchange) -> None:
        exchange.server.provider.closing.wait(0.25)  # a slow peer
        exchange.reply(200, body)

    return answer


async def test_a_dripping_answer_ends_at_the_deadline(local: LocalProvider) -> None:
    for path, answer in ((DISCOVERY_PATH, dripping_headers), (KEY_SET_PATH, dripping)):
        local.answers = {path: answer}
        async with opened(local, deadline_s=0.3) as cache:
            assert await cache.outcome(local.rs256.kid) == UNDECIDED
        assert cache.reasons == ["TimeoutError"]


async def test_discovery_and_key_set_share_one_deadline(local: LocalProvider) -> None:
    local.answers[DISCOVERY_PATH] = slow(local.discovery())
    local.answers[KEY_SET_PATH] = slow(local.key_set())
    async with opened(local, deadline_s=0.4) as cache:
        assert await cache.outcome(local.rs256.kid) == UNDECIDED
    async with opened(local, deadline_s=60) as cache:
        assert await cache.outcome(local.rs256.kid) == local.rs256.kid


ANOTHER = "the discovery document is of another issuer"
ELSEWHERE = "the jwks_uri is on another host"
NOT_PLAIN = "a URL has more than a host, path and query"


HAS_NONE = "the discovery document has no jwks_uri"
JWKS_URIS: dict[str | None, str] = {
    None: HAS_NONE, "": ELSEWHERE, "/.well-known/jwks": "ValueError", "https://evil.example/jwks": ELSEWHERE,
    "http://127.0.0.2/jwks": ELSEWHERE, "http://169.254.169.254/latest/meta-data": "ValueError",
    "https://127.0.0.1:1@evil.example/jwks": ELSEWHERE, "http://user@127.0.0.1:1/jwks": NOT_PLAIN,
    "file:///etc/passwd": "ValueError", "http://127.0.0.1:0/jwks": NOT_PLAIN, "http://127.0.0.1:99999/jwks": NOT_PLAIN,
    "{issuer}/.well-known/jwks#fragment": NOT_PLAIN, "{issuer}/.well-known/\njwks": "a URL has characters",
    "http://127.0.0.1\\@evil.example/jwks": "ValueError", "{issuer}/\\evil.example/jwks": "a URL has characters",
    "http://[127.0.0.1/jwks": "ValueError",
}  # fmt: skip
CHANGES: list[tuple[dict[str, Any], str]] = [
    *(
        ({"issuer": other}, ANOTHER)
        for other in ("https://issuer.example", "{issuer}/", "{ISSUER}", ["{issuer}"], None)
    ),
    *(({"jwks_uri": uri}, why) for uri, why in JWKS_URIS.items()),
    ({"jwks_uri": ["{issuer}/.well-known/jwks"]}, HAS_NONE),
]


async def test_discovery_that_points_elsewhere_is_not_followed(local: LocalProvider) -> None:
    wrong = []
    for change, why in CHANGES:
        local.requests.clear()
        text = json.dumps({**local.discovery(), **change})
        text = text.replace("{issuer}", local.issuer).replace("{ISSUER}", local.issuer.upper())
        local.answers[DISCOVERY_PATH] = fixed(text.encode())
        async with opened(local) as cache:
            outcome = await cache.outcome(local.rs256.kid)
        (said,) = cache.reasons
        if (outcome, said[: len(why)], local.requests) != (UNDECIDED, why, {DISCOVERY_PATH: 1}):
            wrong.append((change, outcome, said))
    assert wrong == []


# -- where a provider may live ----------------------------------------------------------------------------------------


PRIVATE = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.1.2.3", "169.254.169.254", "172.16.0.1", "192.168.0.1",
    "198.18.0.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "::", "::1",
    "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a00:1",
    "64:ff9b:1::a00:1", "2001:db8::1", "2002:a00:1::", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1",
    "ff02::1", "ff0e::1",
]  # fmt: skip
PUBLIC = ["140.82.112.3", "8.8.8.8", "2606:50c0::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::"]


def test_only_public_addresses_are_connected_to_and_loopback_in_development() -> None:
    assert [address for address in PRIVATE if may_connect(address)] == []
    assert [address for address in PUBLIC if not may_connect(address)] == []
    private = ("127.0.0.1", "::1", "192.168.0.1", "169.254.169.254")
    assert [may_connect(address, development=True) for address in private] == [True, True, False, False]


async def test_this_machine_is_not_connected_to_in_production_nor_by_name(local: LocalProvider) -> None:
    """Plain HTTP is for loopback addresses in development, and not for their names."""
    before, port = local.connections, local.issuer.rpartition(":")[2]
    hosts = ("127.0.0.1", "localhost", "127.1", "0x7f000001", "[::ffff:127.0.0.1]")
    cases = [(f"{scheme}://{host}:{port}", False) for scheme in ("http", "https") for host in hosts]
    for issuer, development in [*cases, (f"http://localhost:{port}", True)]:
        async with opened(local, development=development) as cache:
            assert await cache.outcome(local.rs256.kid, registered(issuer)) == UNDECIDED, issuer
        (said,) = cache.reasons
        why = "a URL is not https" if issuer.startswith("http:") else "the provider's host has an address"
        assert development or said.startswith(why), said
    assert local.connections == before


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalProvider, ssl.SSLContext]]:
    """A provider at https://issuer.test, and a client's TLS that trusts its certificate."""
    folder = tmp_path_factory.mktemp("tls")
    with LocalProvider(host="issuer.test", tls=certificate("issuer.test", folder)) as provider:
        yield provider, ssl.create_default_context(cafile=str(folder / "cert.pem"))


class Names:
    """A name service that gives its answer once."""

    def __init__(self, answer: list[str]) -> None:
        self.asked: list[str] = []
        self._answer = answer

    async def __call__(self, host: str, _port: int) -> Sequence[str]:
        self.asked.append(host)
        return self._answer if len(self.asked) == 1 else ["10.0.0.1"]


async def test_the_checked_address_is_connected_to_or_the_next_one(named: tuple[LocalProvider, ssl.SSLContext]) -> None:
    provider, trusting = named
    for addresses in (["127.0.0.1"], ["127.0.0.2", "127.0.0.1"]):  # at the first of two nobody answers
        names = Names(addresses)  # a second look-up leads inside
        async with opened(provider, resolve=names, ssl_context=trusting) as cache:
            assert await cache.outcome(provider.rs256.kid) == provider.rs256.kid
        assert names.asked == ["issuer.test"]


async def test_the_certificate_must_be_for_the_name_not_for_the_address(
    named: tuple[LocalProvider, ssl.SSLContext],
) -> None:
    provider, trusting = named
    provider.requests.clear()
    other = registered(provider.issuer.replace("issuer.test", "other.test"))
    async with opened(provider, resolve=Names(["127.0.0.1"]), ssl_context=trusting) as cache:
        assert await cache.outcome(provider.rs256.kid, other) == UNDECIDED
    async with opened(provider, resolve=Names(["127.0.0.1"])) as stranger:
        assert await stranger.outcome(provider.rs256.kid) == UNDECIDED
    assert "certificate" in cache.reasons[0]
    assert not provider.requests


async def test_a_name_with_an_address_that_is_not_public_is_not_connected_to(
    named: tuple[LocalProvider, ssl.SSLContext],
) -> None:
    provider, trusting = named
    before = provider.connections
    for addresses in (["10.0.0.1"], ["127.0.0.1", "10.0.0.1"], ["::ffff:169.254.169.254"], ["fe80::1%lo"], []):
        async with opened(provider, resolve=Names(addresses), ssl_context=trusting) as cache:
            assert await cache.outcome(provider.rs256.kid) == UNDECIDED, addresses
    assert provider.connections == before


async def test_an_unknown_host_name_is_reported_in_words() -> None:
    with pytest.raises(OSError) as failure:
        await addresses_of("nowhere.invalid", 443)
    assert reason(failure.value) == "its name is not found (DNS)"
