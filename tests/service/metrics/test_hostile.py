"""Metrics under strangers, deaths and slow readers: no stranger makes a series or stops a request."""

import contextlib
import os
import signal
import socket
import threading
from collections import Counter
from pathlib import Path

import httpx
import msgspec
import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from issuer.service.process.bounds import MAX_SCRAPES
from tests.support.http_load import drive, request
from tests.support.running import BODY, METRIC_VALUE, Running, numbered, running, write_folder
from tests.support.scraping import Series, scraped, total, until_scraped
from tests.support.waiting import eventually

pytestmark = pytest.mark.long
REQUESTS = "issuer_requests_total"


def others(live: Running, own: str) -> list[int]:
    """Return the processes beside the parent whose last word in the log stream is that they started as this."""
    lines = [msgspec.json.decode(line) for line in live.log_text().splitlines()]
    started = {
        line["pid"]: line["event"].partition(" started")[0] for line in lines if line["event"].endswith(" started")
    }
    ended = {line["pid"] for line in lines if line["event"].endswith(" ended")}
    return [pid for pid, name in started.items() if name == own and pid not in ended]


def names(found: dict[Series, float]) -> set[Series]:
    return {(name, labels) for name, labels in found if not name.endswith("_bucket")}


def test_ten_thousand_strange_names_make_no_series_of_their_own(live: Running) -> None:
    def strange(number: int) -> bytes:
        body = msgspec.json.encode({**BODY, "integration": f"stranger-{number}"})
        kinds = (
            request(f"/stranger/{number}", "x", b""),
            request("/tokens", live.token(sub=f"stranger-{number}", repository_id=str(number)), body),
            request("/tokens", f"stranger-{number}", body),
            b"STRANGER%d / HTTP/1.1\r\nHost: x\r\n\r\n" % number,
            request(f"/errors/stranger.{number}", "x", b"").replace(b"POST", b"GET", 1),
            request(f"/integrations/stranger-{number}/requirements", "x", b"").replace(b"POST", b"GET", 1),
        )
        return kinds[number % len(kinds)]

    before = scraped(live)
    # Of tokens that are signed a hundred: they are slow to make.
    sent = [strange(number) for number in range(10_000) if number % 6 != 1 or number < 600]
    wellformed = [each for each in sent if not each.startswith(b"STRANGER")]
    drive(live.settings.listen.port, wellformed, 32)
    for odd in [each for each in sent if each.startswith(b"STRANGER")][:200]:
        with socket.create_connection(("127.0.0.1", live.settings.listen.port)) as there:
            there.sendall(odd)
            there.recv(65536)
    after = scraped(live)
    assert not [series for series in after if "stranger" in str(series).lower()]
    assert total(after, REQUESTS) - total(before, REQUESTS) >= len(wellformed) - 10
    assert len(names(after)) - len(names(before)) < 12, names(after) - names(before)
    assert {dict(labels)["integration"] for name, labels in after if name == REQUESTS} <= {"-", "inspect-ai"}


def test_nothing_secret_is_told(live: Running) -> None:
    for body in (BODY, b"{", numbered(1)):
        live.post(live.token(), body)
    text = httpx.get(f"http://127.0.0.1:{live.settings.metrics.port}/metrics").text
    for secret in (*live.secrets, str(METRIC_VALUE), "acme/open-model", "inspect eval", str(live.folder), "refs/heads"):
        assert secret not in text


def test_while_workers_are_killed_every_scrape_answers_and_counts_all(live: Running) -> None:
    before = total(scraped(live), REQUESTS, outcome="issued")
    answered: Counter[int] = Counter()
    ends = threading.Event()

    def load() -> None:
        with httpx.Client(base_url=live.url, timeout=30) as http:
            number = 0
            while not ends.is_set():
                number += 1
                headers = {"Authorization": f"Bearer {live.token()}", "Content-Type": "application/json"}
                with contextlib.suppress(httpx.TransportError):
                    answered[http.post("/tokens", json=numbered(number), headers=headers).status_code] += 1

    loading = [threading.Thread(target=load) for _ in range(2)]
    for thread in loading:
        thread.start()
    last, killed = before, 0
    while killed < 4:
        if alive := others(live, "worker"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(alive[killed % len(alive)], signal.SIGKILL)
                killed += 1
        answers = answered[201]
        for _ in range(10):
            now = total(scraped(live), REQUESTS, outcome="issued")
            assert now >= last
            last = now
        eventually(lambda: answered[201] > answers + 5)  # noqa: B023
    ends.set()
    for thread in loading:
        thread.join()
    counted = total(scraped(live), REQUESTS, outcome="issued") - before
    # A worker may be killed between its count and its answer.
    assert answered[201] <= counted <= answered[201] + killed
    assert answered[201] > 20
    until_scraped(live, "issuer_workers", 2)
    assert total(scraped(live), "issuer_worker_starts_total") >= 6


def test_a_metrics_process_that_dies_is_back_and_has_everything(live: Running) -> None:
    before = total(scraped(live), REQUESTS)
    (own,) = others(live, "helper")
    os.kill(own, signal.SIGKILL)
    assert total(scraped(live), REQUESTS) == before, "the scrape waited for the next one"
    assert others(live, "helper") != [own]


def test_slow_scrapers_delay_no_request_and_other_scrapers_not_for_ever(live: Running) -> None:
    address = ("127.0.0.1", live.settings.metrics.port)
    slow = [socket.create_connection(address) for _ in range(2 * MAX_SCRAPES)]
    for each in slow:
        each.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
    for _ in range(20):
        assert live.post(live.token()).status_code == 201

    def dribble() -> bool:
        for each in slow:
            with contextlib.suppress(OSError):
                each.sendall(b"x")
        try:
            return bool(scraped(live))
        except httpx.TransportError:
            return False

    eventually(dribble)
    for each in slow:
        each.close()


def test_an_address_that_is_taken_refuses_the_start(tmp_path: Path, provider: LocalProvider, live: Running) -> None:
    write_folder(tmp_path, provider)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(AssertionError, match=f"cannot listen on 127.0.0.1 port {port} for metrics: Address already"),
            running(tmp_path, provider, metrics_port=port),
        ):
            pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_it_when_the_service_ends(tmp_path: Path, provider: LocalProvider, number: int) -> None:
    with running(tmp_path, provider, metrics_port=free_port()) as service:
        until_scraped(service, "issuer_workers", 1)
        assert total(scraped(service), "issuer_workers_expected") == 1
        (own,) = others(service, "helper")
        service.process.send_signal(number)
        service.process.wait(60)
        eventually(lambda: not Path(f"/proc/{own}").exists())
        with pytest.raises(httpx.TransportError):
            scraped(service)
