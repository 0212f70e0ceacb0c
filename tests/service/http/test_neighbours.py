"""What bad callers and bad providers do to good ones whose keys are known: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from issuer.dev.provider import DISCOVERY_PATH, KEY_SET_PATH, Exchange, LocalProvider
from issuer.io.bounds import COUNT_S
from issuer.limits.bounds import SOURCE_RATE
from issuer.service.audit.bounds import REFUSED_BYTES
from issuer.service.authn.bounds import FETCH_PAUSE_S, FETCHES_A_MINUTE, MAX_WAITING
from issuer.service.http.bounds import HELD_S, MAX_HELD
from issuer.service.http.request_limits import Tarpit
from issuer.service.http.tokens import MAX_BODIES_IN_FLIGHT, MAX_IN_FLIGHT
from tests.support.flood import FEW, MANY, bad, beside, good
from tests.support.http_load import drive, request
from tests.support.oauth_server import PREFIX
from tests.support.processes import rss_mib
from tests.support.reusable import MANY as WIDE
from tests.support.reusable import Issuers, issuers
from tests.support.running import (
    BODY,
    FIVE_TIMES,
    Running,
    allow_es256,
    bring_to_its_limit,
    from_address,
    numbered,
    register,
    running,
    write_folder,
)
from tests.support.waiting import eventually

LIMITS = f"limits: {{identity: {WIDE}, integration: {WIDE}, refusals: {{count: 60, per_s: 3600, burst: 60}}}}\n"
BODY_BYTES = msgspec.json.encode(BODY)
PER_S = SOURCE_RATE.count / SOURCE_RATE.per_s
# More than one process answers at once: late answers come together.
WIDELY = 250
_addresses = (f"198.51.100.{number}" for number in itertools.count(1))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service behind a proxy, so that each test has an address of its own; it has a provider of its own, and knows
    its keys and a second identity."""
    folder = tmp_path_factory.mktemp("neighbours")
    with LocalProvider() as local:
        write_folder(folder, local, limits=LIMITS)
        register(folder, 1)
        with running(folder, local, listen_trusted_proxies="127.0.0.1") as service:
            assert service.post(service.token()).status_code == 201
            yield service


@pytest.fixture
def address() -> str:
    """An address without refusals."""
    return next(_addresses)


def by(address: str) -> str:
    """Return the header's line for it."""
    return "".join(f"{name}: {value}" for name, value in from_address(address).items())


def refilled(began: float) -> float:
    """Return how many more have room below a limit that was untouched at a time of the monotonic clock."""
    return SOURCE_RATE.burst + (time.monotonic() - began) * PER_S + 1


def unknown_kids(live: Running, count: int, *lines: str) -> list[bytes]:
    """Return requests with as many unknown kids."""
    return [
        request("/tokens", live.provider.sign({"alg": "RS256", "kid": f"unknown-{number}"}, claims), BODY_BYTES, *lines)
        for claims in (live.provider.claims(aud=live.url),)
        for number in range(count)
    ]


def drips(exchange: Exchange) -> None:
    """Send a byte now and then, for longer than anybody should wait."""
    exchange.send_response(200)
    exchange.send_header("Content-Length", "100000")
    exchange.end_headers()
    while not exchange.server.provider.closing.wait(0.2):
        exchange.wfile.write(b" ")
    exchange.close_connection = True


def fails(exchange: Exchange) -> None:
    exchange.reply(500, {})


def is_huge(exchange: Exchange) -> None:
    exchange.reply(200, b" " * 10_000_000)


def is_empty(exchange: Exchange) -> None:
    exchange.reply(200, {"keys": []})


def is_poisoned(exchange: Exchange) -> None:
    """Send keys that anybody could sign with: an identity point, a weak and a symmetric one, two under one kid."""
    point, one = "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "x" * 43
    keys = [
        {"kty": "OKP", "crv": "Ed25519", "x": point, "kid": "unknown-1"},
        {"kty": "RSA", "n": "AQAB", "e": "Aw", "kid": "unknown-2"},
        {"kty": "oct", "k": one, "kid": "unknown-3"},
        *({"kty": "EC", "crv": "P-256", "x": one, "y": one, "kid": "unknown-4"} for _ in range(2)),
    ]
    exchange.reply(200, {"keys": keys, "issuer": exchange.server.provider.issuer})


def leads_elsewhere(exchange: Exchange) -> None:
    exchange.reply(302, {}, Location="http://169.254.169.254/")


@FIVE_TIMES
@pytest.mark.parametrize(
    "answer",
    [
        drips,
        *(
            pytest.param(other, marks=pytest.mark.long)
            for other in (fails, is_huge, is_empty, is_poisoned, leads_elsewhere)
        ),
    ],
    ids=lambda answer: answer.__name__,
)
def test_good_callers_never_notice_a_bad_provider_and_a_flood_of_unknown_keys(
    tmp_path: Path, round_number: int, answer: object
) -> None:
    """More of them than there are places in flight: those who wait for a fetch may not take them all."""
    with LocalProvider() as local, running(tmp_path, local) as live, contextlib.ExitStack() as stack:
        assert live.post(live.token()).status_code == 201
        local.answers |= {DISCOVERY_PATH: answer, KEY_SET_PATH: answer}  # type: ignore[dict-item]
        time.sleep(FETCH_PAUSE_S + 0.1)  # before that there is no fetch, and no request waits
        fetches, began = local.requests.total(), time.monotonic()
        flood = []
        kids = unknown_kids(live, 50)
        for number in range(MAX_IN_FLIGHT["single"] + 40):
            connection = stack.enter_context(
                socket.create_connection(("127.0.0.1", live.settings.listen.port), timeout=60)
            )
            connection.sendall(kids[number % len(kids)])
            flood.append(connection)
        for number in range(20):
            assert live.post(live.token(), numbered(number)).status_code == 201
        # The others wait for a fetch, unless it fails soon.
        eventually(lambda: sum(map(readable, flood)) >= len(flood) - MAX_WAITING)
        local.closing.set()  # instead of waiting for the deadline
        codes = Counter(connection.recv(12)[9:] for connection in flood)
        assert set(codes) <= {b"503", b"401", b"429"}, codes
        assert codes[b"503"] > len(flood) - MAX_WAITING - 1 or answer is is_empty
        most = 2 + (time.monotonic() - began) // FETCH_PAUSE_S
        assert local.requests.total() - fetches <= 2 * most, "however many ask, few fetches"


@pytest.mark.long
@FIVE_TIMES
def test_a_rotation_amid_a_flood_of_made_up_kids_is_noticed_by_nobody_who_comes_again(
    tmp_path: Path, round_number: int
) -> None:
    """From one address, which is above its limit; however many made-up kids use up the fetches."""
    with LocalProvider() as local, running(tmp_path, local) as live, ThreadPoolExecutor(1) as pool:
        began, old, over = time.monotonic(), live.token(), threading.Event()
        assert live.post(live.token()).status_code == 201
        flood = itertools.cycle(unknown_kids(live, 100))
        flooding = pool.submit(
            drive, live.settings.listen.port, itertools.takewhile(lambda _: not over.is_set(), flood), 16
        )
        try:
            time.sleep(1 + round_number)
            local.rotate()
            assert live.post(old).status_code in {201, 401}, "as good as the set that is kept"
            identity = live.token()
            eventually(lambda: came_again(live, identity))
            for number in range(20):
                assert live.post(live.token(), numbered(number)).status_code == 201
        finally:
            over.set()
        assert flooding.result().statuses.keys() <= {401, 429, 503}
        assert local.requests[KEY_SET_PATH] <= FETCHES_A_MINUTE * (1 + (time.monotonic() - began) // 60)


def came_again(live: Running, identity: str) -> bool:
    """Try to be issued for."""
    answer = live.post(identity)
    assert answer.status_code in {201, 429, 503}, "nobody is told that the key is unknown before a look"
    return answer.status_code == 201


def told_of(live: Running, name: str) -> list[dict[str, Any]]:
    """Return the events of this name in the log stream."""
    events = [msgspec.json.decode(line) for line in live.log_text().splitlines() if f'"{name}"' in line]
    return [event for event in events if event["event"] == name]


def turned_away(live: Running) -> int:
    """Return how many requests the log stream says were turned away."""
    return sum(event["requests"] for event in told_of(live, "turned away"))


@pytest.mark.long
def test_above_its_limit_a_source_is_turned_away_late_and_without_a_log_line_and_its_good_tokens_pass(
    live: Running, address: str
) -> None:
    """On more connections than are answered late: some stay free."""
    began, before, lines = time.monotonic(), turned_away(live), len(told_of(live, "turned away"))
    bring_to_its_limit(live, by(address))
    count = MAX_HELD + 150
    with ThreadPoolExecutor(1) as pool:
        flooding = pool.submit(drive, live.settings.listen.port, [junk(address)] * count, count)
        for number in range(10):
            answer = live.post(live.token(), numbered(number), **from_address(address))
            assert answer.status_code == 201
        flood = flooding.result()
    assert flood.statuses.keys() <= {401, 429}
    room = refilled(began) - SOURCE_RATE.burst  # a refusal that finds room again is one like any other
    assert flood.statuses[401] <= room
    away = flood.statuses[429] - room
    assert away > MAX_HELD // 2
    assert sum(taken_s > HELD_S for taken_s in flood.taken_s) >= min(away, MAX_HELD)
    eventually(lambda: turned_away(live) - before >= away)
    assert len(told_of(live, "turned away")) - lines <= 2 + (time.monotonic() - began) / COUNT_S, "one a second"


def junk(address: str, body: bytes = b"{}") -> bytes:
    return request("/tokens", "a.b.c", body, by(address))


@pytest.mark.long
def test_a_source_above_its_limit_is_told_so_whole_and_its_body_is_not_waited_for(live: Running, address: str) -> None:
    bring_to_its_limit(live, by(address))
    problems: list[Any] = []
    with ThreadPoolExecutor(12) as pool:
        for _ in range(20):  # ten times a second there is room for one
            posted = pool.map(lambda _: live.post("a.b.c", **from_address(address)), range(12))
            problems += [answer for answer in posted if answer.status_code == 429]
            if len(problems) > 2:
                break
    assert len(problems) > 2
    assert len({problem.json()["request_id"] for problem in problems}) == len(problems)
    for problem in problems:
        assert problem.headers["content-type"] == "application/problem+json"
        assert (problem.headers["retry-after"], problem.headers["cache-control"]) == ("1", "no-store")
        assert problem.json()["instance"] == f"urn:uuid:{problem.json()['request_id']}"
        assert (problem.json()["code"], problem.json()["retryable"]) == ("rate.source", True)
    head = junk(address, b" " * 1000)[:-1000]
    answer = b""
    with socket.create_connection(("127.0.0.1", live.settings.listen.port), timeout=60) as connection:
        for _ in range(100):  # there was room, and this was what took it
            connection.sendall(b" " * 1000 + head if answer else head)
            answer = connection.recv(65536)
            if answer.startswith(b"HTTP/1.1 429 "):
                return
    raise AssertionError("its body was waited for, or it was never turned away")


async def test_beyond_so_many_an_answer_to_who_is_turned_away_is_not_held_back() -> None:
    """One turn of the loop is enough for it, and none of the others has had its time by then."""
    tarpit = Tarpit("https://issuer.example")
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    def answer() -> asyncio.Task[None]:
        return asyncio.create_task(tarpit.answer("00")({}, send, send))  # type: ignore[arg-type]

    held = [answer() for _ in range(MAX_HELD)]
    more = [answer() for _ in range(2)]
    await asyncio.sleep(0)
    assert [message.get("status") for message in sent] == [429, None, 429, None]
    assert [task.done() for task in more] == [True, True]
    assert not any(task.done() for task in held)
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    again = answer()
    await asyncio.sleep(0)
    assert not again.done(), "who hung up is held no longer"
    again.cancel()


def test_a_flood_of_made_up_kids_brings_its_source_to_its_limit(live: Running, address: str) -> None:
    began, fetches = time.monotonic(), live.provider.requests[KEY_SET_PATH]
    flood = unknown_kids(live, 50, by(address)) * 15
    statuses = drive(live.settings.listen.port, flood, WIDELY).statuses
    assert statuses.keys() <= {401, 429, 503}
    assert statuses[401] + statuses[503] <= refilled(began)
    assert live.provider.requests[KEY_SET_PATH] - fetches <= 2 + (time.monotonic() - began) // FETCH_PAUSE_S
    assert live.post(live.token(), **from_address(address)).status_code == 201


@pytest.mark.long
def test_who_is_registered_nowhere_fills_neither_audit_nor_log(live: Running, address: str) -> None:
    """Ten times a second there is room for one more, and for those who ask in the same moment."""
    stranger, together = live.token(repository_id="999999999"), 64
    first = live.post(stranger, **from_address(address))
    assert (first.status_code, first.json()["code"]) == (403, "integration.unknown"), "below its limit it is told"
    began, logged = time.monotonic(), live.log_text().count("integration.unknown")
    size = live.settings.audit_file.stat().st_size
    first_ones = [request("/tokens", stranger, b"{}", by(address))] * (SOURCE_RATE.burst - 1)
    assert drive(live.settings.listen.port, first_ones, together).statuses.keys() == {403}
    more = [request(path, stranger, b"{}", by(address)) for path in ("/tokens", "/tokens/explain") for _ in range(150)]
    statuses = drive(live.settings.listen.port, more, len(more)).statuses
    most = refilled(began) + together
    assert statuses.keys() <= {403, 429}
    seconds = time.monotonic() - began
    assert live.settings.audit_file.stat().st_size - size <= REFUSED_BYTES.burst + (seconds + 1) * REFUSED_BYTES.count
    assert live.log_text().count("integration.unknown") - logged <= most
    assert live.post(live.token(), **from_address(address)).status_code == 201


def test_slow_bodies_of_one_party_hold_its_share_of_the_places_and_more_of_them_are_no_abuse(
    live: Running, address: str
) -> None:
    """All with one token that is never spent. The jobs of a matrix may begin together, too: whoever is told to wait a
    second, ninety times, is not quarantined for that."""
    dripper = live.token(repository_id="800000000")
    head = request("/tokens", dripper, b"{" * 1000, by(address))[:-999]
    with contextlib.ExitStack() as stack:

        def drip(count: int) -> list[socket.socket]:
            opened = [
                socket.create_connection(("127.0.0.1", live.settings.listen.port), timeout=60) for _ in range(count)
            ]
            for connection in opened:
                stack.enter_context(connection).sendall(head)
            return opened

        share = drip(MAX_BODIES_IN_FLIGHT["single"] + 80)
        eventually(lambda: sum(map(readable, share)) >= 80)
        answers = [each.recv(65536) for each in share if readable(each)]
        assert len(answers) == 80
        assert all(b"HTTP/1.1 429 " in each and b"retry-after: 1\r\n" in each.lower() for each in answers)
        assert all(b'"rate.identity"' in each for each in answers)
        assert all(b'"rate.identity"' in each.recv(65536) for each in drip(10))
        assert live.post(live.token(), **from_address(address)).status_code == 201


def readable(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Issuers]]:
    """A service behind a proxy that asks OAuth servers about tokens."""
    folder = tmp_path_factory.mktemp("asking")
    with LocalProvider() as local, issuers(local) as known:
        known.write(folder)
        with running(folder, local, listen_trusted_proxies="127.0.0.1") as service:
            yield service, known


@pytest.mark.long
@pytest.mark.parametrize("how", ["500", "slow"])
def test_made_up_tokens_at_a_provider_that_fails_bring_their_source_to_its_limit(
    asking: tuple[Running, Issuers], address: str, how: str
) -> None:
    live, known = asking
    known.opaques.forget()
    known.opaques.behave(how, 4)
    began, before = time.monotonic(), len(told_of(live, "provider not asked"))

    def told() -> Sequence[dict[str, Any]]:
        return told_of(live, "provider not asked")[before:]

    count = SOURCE_RATE.burst + 150
    flood = [request("/tokens", f"{PREFIX}{how}{number}", b"{}", by(address)) for number in range(count)]
    statuses = drive(live.settings.listen.port, flood, WIDELY).statuses
    assert statuses.keys() <= {503, 429}
    assert statuses[503] <= refilled(began) + WIDELY
    asked = known.opaques.introspected
    assert 0 < asked <= statuses[503]
    eventually(lambda: any("more" in event for event in told()))
    assert sum(event.get("more", 1) for event in told()) <= statuses[503]
    assert len(told()) <= 3 + (time.monotonic() - began) / COUNT_S, "one a second"
    assert live.post(live.token(), **from_address(address)).status_code == 201


@pytest.mark.long
def test_2_000_bad_tokens_a_second_leave_good_callers_p99_under_twice_its_quiet_value(
    tmp_path: Path, provider: LocalProvider
) -> None:
    """The best of five pairs: what else this machine does in those seconds is not the flood's work."""
    write_folder(tmp_path, provider)
    allow_es256(tmp_path)
    with running(tmp_path, provider) as live:
        good(live, 300)
        for (kind, payloads), connections in itertools.product(bad(live).items(), (FEW, MANY)):
            ratios: list[float] = []
            while True:
                quiet = good(live, 500)
                loud, flooded = beside(live, payloads, 500, connections)
                assert loud.statuses == {201: 500}
                ratios.append(loud.quantile_ms(0.99) / quiet.quantile_ms(0.99))
                if len(ratios) == 5 or min(ratios) < 2:
                    break
            assert min(ratios) < 2, (kind, connections, ratios, flooded)
            assert flooded.per_s < 500, "late answers slow it down"


@pytest.mark.long
def test_50_000_bad_sources_do_not_grow_memory_beyond_the_table_s_bound(
    tmp_path: Path, provider: LocalProvider
) -> None:
    with running(tmp_path, provider, listen_trusted_proxies="127.0.0.1") as live:

        def flood(first: int, count: int) -> None:
            sent = (
                request("/tokens", "a.b.c", b"{}", f"X-Forwarded-For: 10.{n >> 16}.{n >> 8 & 255}.{n & 255}")
                for n in range(first, first + count)
            )
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(drive, live.settings.listen.port, sent, 16).result().statuses == {401: count}

        flood(0, 11_000)  # the table holds 10,000
        full = rss_mib(live.process.pid)
        flood(100_000, 50_000)
        assert rss_mib(live.process.pid) - full < 5
        assert live.post(live.token()).status_code == 201
