"""What bad callers and bad providers do to good ones whose keys are known: nothing."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from issuer.dev.provider import DISCOVERY_PATH, KEY_SET_PATH, Exchange, LocalProvider
from issuer.service.app import SOURCE_RATE
from issuer.service.authn.keysets import FETCHES_A_MINUTE, MAX_WAITING, PAUSE_S
from issuer.service.in_flight import MAX_BODIES, MAX_IN_FLIGHT
from issuer.service.shed import HELD_S, MAX_HELD
from tests.bench.client import drive, request
from tests.bench.flood import FEW, MANY, bad, beside, good
from tests.bench.load import allow_es256, rss_mib
from tests.oauth_server import PREFIX
from tests.running import BODY, FIVE_TIMES, Running, numbered, register, running, write_folder
from tests.service.reusable import issuers


def unknown_kid(live: Running, number: int) -> bytes:
    identity = live.provider.sign({"alg": "RS256", "kid": f"unknown-{number}"}, live.provider.claims(aud=live.url))
    return request("/tokens", identity, msgspec.json.encode(BODY))


def drips(exchange: Exchange) -> None:
    """Send a byte now and then, for longer than anybody should wait."""
    exchange.send_response(200)
    exchange.send_header("Content-Length", "100000")
    exchange.end_headers()
    while not exchange.server.provider.closing.wait(0.2):
        exchange.wfile.write(b" ")


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
    with LocalProvider() as local, running(tmp_path, local) as live:
        assert live.post(live.token()).status_code == 201
        local.answers |= {DISCOVERY_PATH: answer, KEY_SET_PATH: answer}  # type: ignore[dict-item]
        time.sleep(PAUSE_S + 0.1)  # sooner than that nobody fetches, and nobody waits
        fetches = local.requests.total()
        flood = []
        for number in range(MAX_IN_FLIGHT["/tokens"] + 40):
            connection = socket.create_connection(("127.0.0.1", live.settings.port), timeout=10)
            connection.sendall(unknown_kid(live, number))
            flood.append(connection)
        for number in range(20):
            began = time.monotonic()
            assert live.post(live.token(), numbered(number)).status_code == 201
            assert time.monotonic() - began < 1.5
        codes = Counter(connection.recv(12)[9:] for connection in flood)
        assert set(codes) <= {b"503", b"401", b"429"}, codes
        assert codes[b"503"] > len(flood) - MAX_WAITING - 1 or answer is is_empty
        assert local.requests.total() - fetches <= 4, "however many ask, few fetches"
        for connection in flood:
            connection.close()


@FIVE_TIMES
def test_a_rotation_amid_a_flood_of_made_up_kids_is_noticed_by_nobody_who_comes_again(
    tmp_path: Path, round_number: int
) -> None:
    """From one address, which is above its limit; however many made-up kids use up the fetches."""
    with LocalProvider() as local, running(tmp_path, local) as live, ThreadPoolExecutor(2) as pool:
        old = live.token()
        assert live.post(live.token()).status_code == 201
        flood = [unknown_kid(live, number) for number in range(100)]
        ended = time.monotonic() + 20
        flooding = pool.submit(drive, live.settings.port, iter(lambda: _until(ended, flood), None), 4, 0.01)
        time.sleep(1 + round_number)
        local.rotate()
        assert live.post(old).status_code in {201, 401}, "as good as the set that is kept"
        identity, deadline = live.token(), time.monotonic() + 15
        while (answer := live.post(identity)).status_code != 201:
            assert answer.status_code in {429, 503}, "nobody is told that the key is unknown before a look"
            assert time.monotonic() < deadline
            time.sleep(0.2)
        for number in range(20):
            assert live.post(live.token(), numbered(number)).status_code == 201
        assert set(flooding.result().statuses) <= {401, 429, 503}
        assert local.requests[KEY_SET_PATH] <= FETCHES_A_MINUTE


def _until(ended: float, requests: list[bytes]) -> bytes | None:
    return requests[int(time.monotonic() * 1000) % len(requests)] if time.monotonic() < ended else None


def turned_away(live: Running) -> int:
    """Return how many requests the log stream says were turned away."""
    return sum(event["requests"] for event in told_of(live, "turned away"))


def told_of(live: Running, name: str) -> list[dict[str, Any]]:
    """Return the events of this name in the log stream."""
    events = [msgspec.json.decode(line) for line in live.log_text().splitlines()]
    return [event for event in events if event["event"] == name]


def test_above_its_limit_a_source_is_turned_away_without_its_body_or_a_log_line_and_its_good_tokens_pass(
    tmp_path: Path, provider: LocalProvider
) -> None:
    with running(tmp_path, provider) as live:
        assert live.post(live.token()).status_code == 201
        count, began = SOURCE_RATE.burst + 400, time.monotonic()
        statuses = drive(live.settings.port, [request("/tokens", "a.b.c", b"{}")] * count, 64).statuses
        lasted_s = time.monotonic() - began
        assert lasted_s > statuses[429] * HELD_S / 64, "each is answered in its time"
        assert statuses[401] + statuses[429] == count
        refilled = lasted_s * SOURCE_RATE.count / SOURCE_RATE.per_s
        assert SOURCE_RATE.burst <= statuses[401] <= SOURCE_RATE.burst + refilled + 64
        head = request("/tokens", "a.b.c", b" " * 1000)[:-1000]
        with socket.create_connection(("127.0.0.1", live.settings.port), timeout=5) as connection:
            for _ in range(50):  # a place in the table is free ten times a second
                connection.sendall(head)
                if (answer := connection.recv(65536)).startswith(b"HTTP/1.1 429 "):
                    break
                connection.sendall(b" " * 1000)
        assert answer.startswith(b"HTTP/1.1 429 "), "its body is not waited for"
        with ThreadPoolExecutor(40) as pool:
            posted = list(pool.map(lambda _: live.post("a.b.c"), range(80)))
        problems = [answer for answer in posted if answer.status_code == 429]
        assert len({problem.json()["request_id"] for problem in problems}) == len(problems) >= 3
        for problem in problems:
            assert problem.headers["content-type"] == "application/problem+json"
            assert (problem.headers["retry-after"], problem.headers["cache-control"]) == ("1", "no-store")
            assert problem.json()["instance"] == f"urn:uuid:{problem.json()['request_id']}"
            assert (problem.json()["code"], problem.json()["retryable"]) == ("rate.source", True)
        for number in range(10):
            assert live.post(live.token(), numbered(number)).status_code == 201
        time.sleep(1.5)
        assert turned_away(live) >= statuses[429] + len(problems)
        assert live.log_text().count('"rate.source"') < 40, "one a second"


def test_more_than_are_held_back_are_answered_at_once_and_connections_stay_free(
    tmp_path: Path, provider: LocalProvider
) -> None:
    with running(tmp_path, provider) as live:
        bad_one = request("/tokens", "a.b.c", b"{}")
        drive(live.settings.port, [bad_one] * (SOURCE_RATE.burst + 100), 64)
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            connections = [
                stack.enter_context(socket.create_connection(("127.0.0.1", live.settings.port), timeout=5))
                for _ in range(MAX_HELD + 150)
            ]
            for connection in connections:
                connection.sendall(bad_one)
            time.sleep(HELD_S / 2)
            assert live.post(live.token()).status_code == 201
            poll = select.poll()
            for connection in connections:
                poll.register(connection, select.POLLIN)
            ready = {number for number, _ in poll.poll(0)}
            at_once = Counter(each.recv(12)[9:] for each in connections if each.fileno() in ready)
            assert 50 < at_once[b"429"] < 200
            late = Counter(each.recv(12)[9:] for each in connections if each.fileno() not in ready)
            assert late[b"429"] > MAX_HELD / 2
        assert time.monotonic() - began < 3 * HELD_S + 3


def test_a_flood_of_made_up_kids_brings_its_source_to_its_limit(tmp_path: Path) -> None:
    with LocalProvider() as local, running(tmp_path, local) as live:
        assert live.post(live.token()).status_code == 201
        flood = [unknown_kid(live, number) for number in range(50)] * 20
        statuses = drive(live.settings.port, flood, 64).statuses
        assert statuses[429] > 100
        assert local.requests[KEY_SET_PATH] <= 3
        assert live.post(live.token()).status_code == 201


def test_who_is_registered_nowhere_fills_neither_audit_nor_log(tmp_path: Path, provider: LocalProvider) -> None:
    with running(tmp_path, provider) as live:
        stranger = live.token(repository_id="999999999")
        first = live.post(stranger)
        assert (first.status_code, first.json()["code"]) == (403, "integration.unknown"), "below its limit it is told"
        count, began = SOURCE_RATE.burst + 400, time.monotonic()
        for path in ("/tokens", "/tokens/explain"):
            statuses = drive(live.settings.port, [request(path, stranger, b"{}")] * count, 64).statuses
            assert set(statuses) <= {403, 429}
            assert statuses[429] > 200
        most = SOURCE_RATE.burst + (time.monotonic() - began) * SOURCE_RATE.count / SOURCE_RATE.per_s + 64
        assert SOURCE_RATE.burst <= len(live.audit()) <= most
        assert live.log_text().count("integration.unknown") <= most
        assert live.post(live.token()).status_code == 201


def test_slow_bodies_of_one_party_hold_its_share_of_the_places_and_it_is_charged_for_more(
    tmp_path: Path, provider: LocalProvider
) -> None:
    """More of them than there are places, all with one token that is never spent."""
    write_folder(tmp_path, provider, limits="limits: {refusals: {count: 60, per_s: 3600, burst: 60}}\n")
    (other,) = register(tmp_path, 1)
    with running(tmp_path, provider) as live, contextlib.ExitStack() as stack:
        dripper = live.token(repository_id=other)
        head, drips = request("/tokens", dripper, b"{" * 1000)[:-999], []
        for number in range(MAX_IN_FLIGHT["/tokens"] + 40):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", live.settings.port), timeout=5))
            connection.sendall(head)
            drips.append(connection)
            if number % 40 == 0:
                assert live.post(live.token(), numbered(number)).status_code == 201
        time.sleep(5)  # the slowest answer is long there, and no body is late
        answers = [each.recv(65536) for each in drips if readable(each)]
        assert len(answers) == len(drips) - MAX_BODIES["/tokens"]
        busy = [answer for answer in answers if b'"rate.identity"' in answer]
        assert all(b"HTTP/1.1 429 " in answer and b"retry-after: 1\r\n" in answer.lower() for answer in busy)
        assert 60 <= len(busy) < 100, "each is a refusal"
        assert all(b'"abuse.quarantined"' in answer for answer in answers if answer not in busy)
        assert live.post(live.token(), numbered(-1)).status_code == 201


def readable(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


@pytest.mark.parametrize("how", ["500", "slow"])
def test_made_up_tokens_at_a_provider_that_fails_bring_their_source_to_its_limit(tmp_path: Path, how: str) -> None:
    with LocalProvider() as local, issuers(local) as all_of_them:
        all_of_them.write(tmp_path)
        with running(tmp_path, local) as live:
            all_of_them.opaques.behave(how, 4)
            flood = [request("/tokens", f"{PREFIX}{number}", b"{}") for number in range(SOURCE_RATE.burst + 400)]
            began = time.monotonic()
            statuses = drive(live.settings.port, flood, 64).statuses
            lasted_s = time.monotonic() - began
            refilled = lasted_s * SOURCE_RATE.count / SOURCE_RATE.per_s
            assert set(statuses) == {503, 429}
            assert statuses[503] <= SOURCE_RATE.burst + refilled + 64
            assert all_of_them.opaques.introspected <= statuses[503]
            time.sleep(1.2)
            told = told_of(live, "provider not asked")
            assert 2 <= len(told) <= 4 + lasted_s, "one a second"
            assert sum(event.get("more", 1) for event in told) <= statuses[503]
            assert live.post(live.token()).status_code == 201


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
            while len(ratios) < 5 and min(ratios, default=9.0) >= 2:
                quiet = good(live, 500)
                loud, flooded = beside(live, payloads, 500, connections)
                assert loud.statuses == {201: 500}
                ratios.append(loud.quantile_ms(0.99) / quiet.quantile_ms(0.99))
            assert min(ratios) < 2, (kind, connections, ratios, flooded)
            assert flooded.per_s < 500, "late answers slow it down"


@pytest.mark.long
def test_50_000_bad_sources_do_not_grow_memory_beyond_the_table_s_bound(
    tmp_path: Path, provider: LocalProvider
) -> None:
    with running(tmp_path, provider, trusted_proxies="127.0.0.1") as live:

        def flood(first: int, count: int) -> None:
            sent = (
                request("/tokens", "a.b.c", b"{}", f"X-Forwarded-For: 10.{n >> 16}.{n >> 8 & 255}.{n & 255}")
                for n in range(first, first + count)
            )
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(drive, live.settings.port, sent, 16).result().statuses == {401: count}

        flood(0, 11_000)  # the table holds 10,000
        full = rss_mib(live.process.pid)
        flood(100_000, 50_000)
        assert rss_mib(live.process.pid) - full < 5
        assert live.post(live.token()).status_code == 201
