"""A running service is scraped: its counts are exact over its workers, and no page whose name was led here reads them."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import msgspec
import pytest

from issuer.dev.provider import LocalProvider
from issuer.service.process.bounds import MAX_SCRAPES
from issuer.service.process.metrics_listener import _Server, is_own
from tests.support.http_load import drive, request
from tests.support.running import BODY, Running, numbered, running, singles, write_folder
from tests.support.scraping import scraped, total, until_scraped
from tests.support.waiting import eventually


def test_threads_that_the_system_refuses_cost_the_listener_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = _Server(listening, BaseHTTPRequestHandler, lambda: None)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        for _ in range(MAX_SCRAPES + 1):
            with socket.socket() as client, pytest.raises(RuntimeError):
                server.process_request(client, ("127.0.0.1", 0))
        assert server._free.acquire(blocking=False)


@pytest.mark.long
def test_under_load_two_workers_count_exactly_what_was_sent(live: Running) -> None:
    before = scraped(live)
    good, asked = singles(live, "RS256", 300), singles(live, "RS256", 100, "/tokens/explain")
    bad = [request("/tokens", "nonsense", b"{}")] * 200
    lost = [request(f"/nowhere/{number}", "x", b"") for number in range(50)]
    mixed = [each for group in zip(*[iter(good + asked + bad + lost)] * 5, strict=True) for each in group]
    statuses = drive(live.settings.listen.port, mixed, 16).statuses
    assert statuses == {201: 300, 200: 100, 401: 200, 404: 50}
    after = scraped(live)

    def risen(name: str, **labels: str) -> float:
        return total(after, name, **labels) - total(before, name, **labels)

    requests = "issuer_requests_total"
    assert risen(requests, endpoint="/tokens", outcome="issued", code="ok", integration="inspect-ai") == 300
    assert risen(requests, endpoint="/tokens/explain", outcome="explained", integration="inspect-ai") == 100
    assert risen(requests, endpoint="/tokens", code="identity.malformed", integration="-") == 200
    assert risen(requests, endpoint="other", code="request.not_found", integration="-") == 50
    assert risen(requests) == risen("issuer_http_requests_total") == 650
    assert risen("issuer_request_duration_seconds_count", endpoint="/tokens") == 500
    assert risen("issuer_admission_duration_seconds_count") == 400
    assert risen("issuer_signing_duration_seconds_count") == 300
    assert risen("issuer_log_append_duration_seconds_count") == 0, "the service has no log"
    assert 0 < risen("issuer_request_duration_seconds_sum") < 60


@pytest.mark.long
def test_how_the_service_is(live: Running) -> None:
    live.post(live.token())
    found = scraped(live)
    ready = live.http.get("/health/ready").json()
    assert total(found, "issuer_policies_info", digest=ready["policies"]["digest"]) == 1
    assert total(found, "issuer_policies_loaded_timestamp_seconds") == pytest.approx(
        ready["policies"]["loaded_at"], abs=2
    )
    assert total(found, "issuer_integrations") == 2
    assert total(found, "issuer_workers_expected") == 2
    assert total(found, "issuer_worker_starts_total") >= 2
    assert total(found, "issuer_store_up") == total(found, "issuer_store_role_info", role="master") == 1
    (kid,) = (key["kid"] for key in live.http.get("/.well-known/jwks.json").json()["keys"])
    assert total(found, "issuer_signing_key_since_timestamp_seconds", kid=kid, state="active") > 1_700_000_000
    assert total(found, "issuer_store_epoch_timestamp_seconds") > 1_700_000_000
    assert total(found, "issuer_provider_fetches_total", provider="github-actions", outcome="answered") >= 1
    assert total(found, "issuer_event_loop_lag_seconds_count") > 1
    assert total(found, "issuer_data_free_bytes") > 1_000_000
    eventually(lambda: time.time() - total(scraped(live), "issuer_backup_timestamp_seconds") < 600)
    assert not total(found, "issuer_audit_fails")
    assert not total(found, "issuer_policies_stale")


@pytest.mark.long
def test_the_public_port_has_no_metrics_and_the_other_nothing_else(live: Running) -> None:
    assert live.http.get("/metrics").status_code == 404
    own = f"http://127.0.0.1:{live.settings.metrics.port}"
    for path in ("/ui", "/health/ready", "/tokens", "/metricsx", "/metrics/x"):
        assert httpx.get(own + path).status_code == 404, path
    assert httpx.post(f"{own}/metrics").status_code == 501


OWN = frozenset({"issuer", "issuer.inside.example"})


GOOD_HOSTS = (
    "127.0.0.1", "127.0.0.1:9464", "[::1]:9464", "[fd00::7]", "10.244.1.17:9464", "localhost:9464", "LOCALHOST",
    "issuer:9464", "issuer.inside.example:9464", "Issuer.Inside.Example",
)  # fmt: skip
OTHER_HOSTS = (
    "evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example:9464", "issuer.inside.example.",
    "x.issuer.inside.example", "127.0.0.1@evil.example", "evil.example/127.0.0.1", "127.1", "0x7f.0.0.1", "evil.", ".", "",
    "issuer-0", "wpad:9464", "ai", "issuer.", "[::1", "[::1]evil.example", "[evil.example]", "127.0.0.1:x", "evil\u3002example", "evil.example#.localhost", "a b",
)  # fmt: skip


def test_it_answers_by_addresses_by_localhost_and_by_its_own_names() -> None:
    assert [host for host in GOOD_HOSTS if not is_own(host, OWN)] == []
    assert [host for host in OTHER_HOSTS if is_own(host, OWN)] == []


@pytest.mark.long
@pytest.mark.parametrize("path", ["/", "/metrics", "/style.css", "/nowhere"])
def test_a_page_whose_name_was_led_here_reads_nothing(live: Running, path: str) -> None:
    url = f"http://127.0.0.1:{live.settings.metrics.port}{path}"
    for name in ("evil.example", "evil"):
        refused = httpx.get(url, headers={"Host": f"{name}:{live.settings.metrics.port}"})
        assert refused.status_code == 421
        assert refused.headers["content-type"] == "text/plain; charset=utf-8"
        assert refused.text.endswith("or add the name to the setting metrics.names.\n")
    found = httpx.get(url, headers={"Host": "localhost:9464"})
    assert found.status_code == (404 if path == "/nowhere" else 200)
    alone = httpx.head(url, headers={"Host": "localhost:9464"})
    assert (alone.status_code, alone.content, alone.headers.keys()) == (found.status_code, b"", found.headers.keys())


@pytest.mark.long
def test_each_host_of_several_counts_and_who_names_none_is_no_browser(live: Running) -> None:
    assert asked(live, b"Host: localhost\r\nHost: evil.example\r\n") == b"421"
    assert asked(live, b"") == b"200"


def asked(live: Running, headers: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", live.settings.metrics.port), 20) as there:
        there.sendall(b"GET /metrics HTTP/1.0\r\n%b\r\n" % headers)
        return there.recv(65536).split()[1]


REQUESTS = "issuer_requests_total"


def others(live: Running, own: str) -> list[int]:
    """Return the processes beside the parent whose last word in the log stream is that they started as this."""
    whole, _, _ = live.log_text().rpartition("\n")
    lines = [msgspec.json.decode(line) for line in whole.splitlines()]
    started = {
        line["pid"]: line["event"].partition(" started")[0] for line in lines if line["event"].endswith(" started")
    }
    ended = {line["pid"] for line in lines if line["event"].endswith(" ended")}
    return [pid for pid, name in started.items() if name == own and pid not in ended]


@pytest.mark.long
def test_three_thousand_strange_names_make_no_series_of_their_own(live: Running) -> None:
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
    sent = [strange(number) for number in range(3_000) if number % 6 != 1 or number < 600]
    wellformed = [each for each in sent if not each.startswith(b"STRANGER")]
    drive(live.settings.listen.port, wellformed, 32)
    for odd in [each for each in sent if each.startswith(b"STRANGER")][:200]:
        with socket.create_connection(("127.0.0.1", live.settings.listen.port)) as there:
            there.sendall(odd)
            there.recv(65536)
    after = scraped(live)
    assert not [series for series in after if "stranger" in str(series).lower()]
    assert total(after, REQUESTS) - total(before, REQUESTS) >= len(wellformed) - 10
    made = [series for series in after.keys() - before.keys() if not series[0].endswith("_bucket")]
    assert len(made) < 12, made
    assert {dict(labels)["integration"] for name, labels in after if name == REQUESTS} <= {"-", "inspect-ai"}


@pytest.mark.long
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


@pytest.mark.long
def test_a_metrics_process_that_dies_is_back_and_has_everything(live: Running) -> None:
    before = total(scraped(live), REQUESTS)
    (own,) = others(live, "helper")
    os.kill(own, signal.SIGKILL)
    assert total(scraped(live), REQUESTS) == before, "the scrape waited for the next one"
    assert others(live, "helper") != [own]


@pytest.mark.long
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


def test_silent_connections_keep_no_scrape_out(live: Running) -> None:
    address = ("127.0.0.1", live.settings.metrics.port)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(address, 60)) for _ in range(2 * MAX_SCRAPES)]
        assert scraped(live)
        assert silent[0].recv(1) == b"", "the first one ended"


@pytest.mark.long
def test_an_address_that_is_taken_refuses_the_start(tmp_path: Path, provider: LocalProvider, live: Running) -> None:
    write_folder(tmp_path, provider)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(AssertionError, match=f"cannot listen on 127.0.0.1 port {port} for metrics: Address already"),
            running(tmp_path, provider, metrics_port=port),
        ):
            pass
