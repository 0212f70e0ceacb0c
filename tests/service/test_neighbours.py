"""What bad callers and bad providers do to good ones whose keys are known: nothing."""

from __future__ import annotations

import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from issuer.dev.provider import DISCOVERY_PATH, KEY_SET_PATH, Exchange, LocalProvider
from issuer.service.authn.keysets import MAX_WAITING, PAUSE_S
from issuer.service.in_flight import MAX_IN_FLIGHT
from tests.bench.client import drive_here, request
from tests.bench.load import rss_mib
from tests.running import BODY, FIVE_TIMES, Running, numbered, running


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


def leads_elsewhere(exchange: Exchange) -> None:
    exchange.reply(302, {}, Location="http://169.254.169.254/")


@FIVE_TIMES
@pytest.mark.parametrize(
    "answer",
    [drips, *(pytest.param(other, marks=pytest.mark.long) for other in (fails, is_huge, is_empty, leads_elsewhere))],
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
                assert pool.submit(drive_here, live.settings.port, sent, 16).result().statuses == {401: count}

        flood(0, 11_000)  # the table holds 10,000
        full = rss_mib(live.process.pid)
        flood(100_000, 50_000)
        assert rss_mib(live.process.pid) - full < 5
        assert live.post(live.token()).status_code == 201
