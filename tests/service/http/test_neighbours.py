"""Bad callers and bad providers do not disturb good callers of providers whose keys are known."""

import asyncio
import contextlib
import itertools
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from issuer.dev.provider import DISCOVERY_PATH, KEY_SET_PATH, LocalProvider
from issuer.io.bounds import COUNT_S
from issuer.limits.bounds import SOURCE_RATE
from issuer.service.audit.bounds import REFUSED_BYTES
from issuer.service.authn.bounds import FETCH_PAUSE_S, FETCHES_A_MINUTE, MAX_WAITING
from issuer.service.http.bounds import HELD_S, MAX_HELD
from issuer.service.http.request_limits import Tarpit
from issuer.service.http.tokens import MAX_BODIES_IN_FLIGHT, MAX_IN_FLIGHT
from tests.support.exchanging import form, post
from tests.support.http_load import drive, request
from tests.support.oauth_server import PREFIX
from tests.support.responders import dripping
from tests.support.reusable import MANY as WIDE
from tests.support.reusable import Issuers, issuers
from tests.support.running import (
    BODY,
    FIVE_TIMES,
    Running,
    bring_to_its_limit,
    from_address,
    numbered,
    register,
    running,
    write_folder,
)
from tests.support.waiting import ask_until, eventually

LIMITS = f"limits: {{identity: {WIDE}, integration: {WIDE}, refusals: {{count: 60, per_s: 3600, burst: 60}}}}\n"
BODY_BYTES = msgspec.json.encode(BODY)
PER_S = SOURCE_RATE.count / SOURCE_RATE.per_s
# More than one process answers at once: late answers come together.
WIDELY = 250
_addresses = (f"198.51.100.{number}" for number in itertools.count(1))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service behind a proxy, so that each test has its own address. It knows the keys of its provider, and a second
    identity."""
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
    return f"X-Forwarded-For: {address}"


def refilled(began: float) -> float:
    """Return how many refusals a source may have had since it was at rest, at this time of the monotonic clock."""
    return SOURCE_RATE.burst + (time.monotonic() - began) * PER_S + 1


def unknown_kids(live: Running, count: int, *lines: str) -> list[bytes]:
    return [
        request("/tokens", live.provider.sign({"alg": "RS256", "kid": f"unknown-{number}"}, claims), BODY_BYTES, *lines)
        for claims in (live.provider.claims(aud=live.url),)
        for number in range(count)
    ]


def connect(live: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", live.settings.listen.port), timeout=60)


@FIVE_TIMES
def test_a_slow_provider_and_a_flood_of_unknown_kids_delay_no_good_caller(tmp_path: Path, round_number: int) -> None:
    """There are more of them than places: requests that wait for a fetch may not take all places."""
    with LocalProvider() as local, running(tmp_path, local) as live, contextlib.ExitStack() as stack:
        assert live.post(live.token()).status_code == 201
        local.answers |= {DISCOVERY_PATH: dripping, KEY_SET_PATH: dripping}
        known = time.monotonic()
        eventually(lambda: time.monotonic() > known + FETCH_PAUSE_S)  # before that there is no other fetch
        fetches, began = local.requests.total(), time.monotonic()
        flood = []
        kids = unknown_kids(live, 50)
        for number in range(MAX_IN_FLIGHT["single"] + 40):
            connection = stack.enter_context(connect(live))
            connection.sendall(kids[number % len(kids)])
            flood.append(connection)
        for number in range(20):
            assert live.post(live.token(), numbered(number)).status_code == 201
        # The others wait for a fetch.
        eventually(lambda: sum(map(readable, flood)) >= len(flood) - MAX_WAITING)
        codes = Counter(connection.recv(12)[9:] for connection in flood if readable(connection))
        assert set(codes) <= {b"503", b"401", b"429"}, codes
        assert codes[b"503"] > len(flood) - MAX_WAITING - 1
        most = 2 + (time.monotonic() - began) // FETCH_PAUSE_S
        assert local.requests.total() - fetches <= 2 * most, "a flood causes few fetches"
        live.kill()  # else it would wait for the fetch


@pytest.mark.long
@FIVE_TIMES
def test_a_rotation_during_a_flood_of_unknown_kids_refuses_no_retry(tmp_path: Path, round_number: int) -> None:
    """From one address, which is above its limit, although unknown kids use up the fetches."""
    with LocalProvider() as local, running(tmp_path, local) as live, ThreadPoolExecutor(1) as pool:
        began, old, over = time.monotonic(), live.token(), threading.Event()
        assert live.post(live.token()).status_code == 201
        flood = itertools.cycle(unknown_kids(live, 100))
        flooding = pool.submit(
            drive, live.settings.listen.port, itertools.takewhile(lambda _: not over.is_set(), flood), 16
        )
        try:
            eventually(lambda: local.requests[KEY_SET_PATH] > 1 + round_number % 2)
            local.rotate()
            assert live.post(old).status_code in {201, 401}
            identity = live.token()
            eventually(lambda: is_issued(live, identity))
            for number in range(20):
                assert live.post(live.token(), numbered(number)).status_code == 201
        finally:
            over.set()
        assert flooding.result().statuses.keys() <= {401, 429, 503}
        assert local.requests[KEY_SET_PATH] <= FETCHES_A_MINUTE * (1 + (time.monotonic() - began) // 60)


def is_issued(live: Running, identity: str) -> bool:
    """Ask once, and say whether a token was issued. No answer may say that the key is unknown before a fetch."""
    answer = live.post(identity)
    assert answer.status_code in {201, 429, 503}
    return answer.status_code == 201


def logged(live: Running, name: str) -> list[dict[str, Any]]:
    """Return the events of this name in the log stream."""
    whole, _, _ = live.log_text().rpartition("\n")
    events = [msgspec.json.decode(line) for line in whole.splitlines() if f'"{name}"' in line]
    return [event for event in events if event["event"] == name]


def turned_away(live: Running) -> int:
    """Return how many requests were turned away, by the log stream."""
    return sum(event["requests"] for event in logged(live, "turned away"))


@pytest.mark.long
def test_a_source_above_its_limit_is_answered_late_and_its_good_tokens_pass(live: Running, address: str) -> None:
    """On more connections than are answered late, so that some remain free."""
    began, before, lines = time.monotonic(), turned_away(live), len(logged(live, "turned away"))
    bring_to_its_limit(live, by(address))
    count = MAX_HELD + 150
    with ThreadPoolExecutor(1) as pool:
        flooding = pool.submit(drive, live.settings.listen.port, [junk(address)] * count, count)
        for number in range(10):
            answer = live.post(live.token(), numbered(number), **from_address(address))
            assert answer.status_code == 201
        flood = flooding.result()
    assert flood.statuses.keys() <= {401, 429}
    room = refilled(began) - SOURCE_RATE.burst  # restored meanwhile
    assert flood.statuses[401] <= room
    away = flood.statuses[429] - room
    assert away > MAX_HELD // 2
    assert sum(taken_s > HELD_S for taken_s in flood.taken_s) >= min(away, MAX_HELD)
    eventually(lambda: turned_away(live) - before >= away)
    assert len(logged(live, "turned away")) - lines <= 2 + (time.monotonic() - began) / COUNT_S, "one a second"


def junk(address: str, body: bytes = b"{}") -> bytes:
    return request("/tokens", "a.b.c", body, by(address))


@pytest.mark.long
def test_a_source_above_its_limit_is_answered_before_its_body_is_read(live: Running, address: str) -> None:
    bring_to_its_limit(live, by(address))
    head = junk(address, b" " * 1000)[:-1000]
    with connect(live) as connection:
        connection.sendall(head)
        while not (answer := connection.recv(65536)).startswith(b"HTTP/1.1 429 "):
            assert answer.startswith(b"HTTP/1.1 401 "), "it was not above the limit"
            connection.sendall(b" " * 1000 + head)
        assert b"\r\nretry-after: 1\r\n" in answer.lower()
        assert b'"rate.source"' in answer
    away = ask_until(lambda: post(live, form("x"), **from_address(address)), lambda answer: answer.status_code == 429)
    assert away.json()["error"] == "temporarily_unavailable"


async def test_only_a_limited_number_of_answers_is_held_back() -> None:
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
    assert not again.done(), "a closed connection frees its place"
    again.cancel()


def test_a_flood_of_unknown_kids_brings_its_source_to_its_limit(live: Running, address: str) -> None:
    began, fetches = time.monotonic(), live.provider.requests[KEY_SET_PATH]
    flood = unknown_kids(live, 50, by(address)) * 15
    statuses = drive(live.settings.listen.port, flood, WIDELY).statuses
    assert statuses.keys() <= {401, 429, 503}
    assert statuses[401] + statuses[503] <= refilled(began)
    assert live.provider.requests[KEY_SET_PATH] - fetches <= 2 + (time.monotonic() - began) // FETCH_PAUSE_S
    assert live.post(live.token(), **from_address(address)).status_code == 201


@pytest.mark.long
def test_an_unregistered_caller_fills_neither_audit_nor_log(live: Running, address: str) -> None:
    """Ten more requests a second are refused one by one, and those that come at the same moment."""
    stranger, together = live.token(repository_id="999999999"), 64
    first = live.post(stranger, **from_address(address))
    assert (first.status_code, first.json()["code"]) == (403, "integration.unknown")
    began, before = time.monotonic(), live.log_text().count("integration.unknown")
    size = live.settings.audit_file.stat().st_size
    first_ones = [request("/tokens", stranger, b"{}", by(address))] * (SOURCE_RATE.burst - 1)
    assert drive(live.settings.listen.port, first_ones, together).statuses.keys() == {403}
    more = [request(path, stranger, b"{}", by(address)) for path in ("/tokens", "/tokens/explain") for _ in range(150)]
    statuses = drive(live.settings.listen.port, more, len(more)).statuses
    most = refilled(began) + together
    assert statuses.keys() <= {403, 429}
    seconds = time.monotonic() - began
    assert live.settings.audit_file.stat().st_size - size <= REFUSED_BYTES.burst + (seconds + 1) * REFUSED_BYTES.count
    assert live.log_text().count("integration.unknown") - before <= most
    assert live.post(live.token(), **from_address(address)).status_code == 201


def test_slow_bodies_of_one_caller_take_its_share_of_the_places(live: Running, address: str) -> None:
    """With one token that is never spent. More of them are not abuse: the jobs of a matrix may begin together."""
    dripper = live.token(repository_id="800000000")
    head = request("/tokens", dripper, b"{" * 1000, by(address))[:-999]
    with contextlib.ExitStack() as stack:

        def drip(count: int) -> list[socket.socket]:
            opened = [stack.enter_context(connect(live)) for _ in range(count)]
            for connection in opened:
                connection.sendall(head)
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
    """A service behind a proxy, with OAuth servers that it asks about tokens."""
    folder = tmp_path_factory.mktemp("asking")
    with LocalProvider() as local, issuers(local) as known:
        known.write(folder)
        with running(folder, local, listen_trusted_proxies="127.0.0.1") as service:
            yield service, known


@pytest.mark.long
@pytest.mark.parametrize("how", ["500", "slow"])
def test_made_up_tokens_of_a_failing_provider_bring_their_source_to_its_limit(
    asking: tuple[Running, Issuers], address: str, how: str
) -> None:
    live, known = asking
    known.opaques.forget()
    known.opaques.behave(how, 4)
    began, before = time.monotonic(), len(logged(live, "provider not asked"))

    def events() -> list[dict[str, Any]]:
        return logged(live, "provider not asked")[before:]

    count = SOURCE_RATE.burst + 150
    flood = [request("/tokens", f"{PREFIX}{how}{number}", b"{}", by(address)) for number in range(count)]
    statuses = drive(live.settings.listen.port, flood, WIDELY).statuses
    assert statuses.keys() <= {503, 429}
    assert statuses[503] <= refilled(began) + WIDELY
    asked = known.opaques.introspected
    assert 0 < asked <= statuses[503]
    eventually(lambda: any("more" in event for event in events()))
    assert sum(event.get("more", 1) for event in events()) <= statuses[503]
    assert len(events()) <= 3 + (time.monotonic() - began) / COUNT_S, "one a second"
    assert live.post(live.token(), **from_address(address)).status_code == 201
