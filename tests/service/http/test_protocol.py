"""HTTP/1.1 at the edge, by raw sockets: framing that two readers could read differently, deadlines, bounds."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import resource
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from issuer.codes import Code
from issuer.dev.provider import LocalProvider
from issuer.errors import SetupError
from issuer.service.admission.bounds import AGAIN_RATE
from issuer.service.http.bounds import BODY_DEADLINE_S, BODY_S, HEAD_S, MAX_BEGUN, MAX_CONNECTIONS
from issuer.service.http.protocol import StartQueue, is_large, protocol_for
from issuer.service.http.tokens import MAX_BODIES_IN_FLIGHT, MAX_IN_FLIGHT
from tests.support.http_load import drive, request
from tests.support.no_tls import NO_TLS
from tests.support.running import BODY, FIVE_TIMES, WIDE_LIMITS, Running, register, running, write_folder
from tests.support.waiting import eventually

# A second request behind the first: two answers to one message mean that a request was smuggled.
BEHIND = b"GET /health/live HTTP/1.1\r\nHost: smuggled\r\n\r\n"
POST = b"POST /tokens HTTP/1.1\r\nHost: x\r\n"
# The answer 404 shows that the connection was left open.
LAST = b"GET /left/open HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("edge")
    write_folder(folder, provider)
    register(folder, 4)
    with running(folder, provider) as live:
        yield live
        assert "unforeseen" not in live.log_text()
        assert "Exception" not in live.log_text()


def connect(live: Running, timeout_s: float = 30.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", live.settings.listen.port), timeout=timeout_s)


def read(connection: socket.socket) -> bytes:
    """Return what comes until the other side closes."""
    answer = b""
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(65536):
            answer += data
    return answer


def statuses(live: Running, sent: bytes, answers: int = 1) -> list[int]:
    """Send bytes, and after this many answers one last request, where that is still possible; return every status."""
    with connect(live) as connection:
        connection.sendall(sent)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while answer.count(b"HTTP/1.1 ") < answers and (data := connection.recv(65536)):
                answer += data
            connection.sendall(LAST)
        answer += read(connection)
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


# -- framing --------------------------------------------------------------------------------------------------------------

AMBIGUOUS = {
    "length and coding": POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "identity and length": POST + b"Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "an unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked is not last": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a coding before chunked": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "two codings": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a vertical tab in a coding": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "a space before a colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a coding in HTTP/1.0": POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a length twice": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
    "a list of lengths": POST + b"Content-Length: 5, 5\r\n\r\n0\r\n\r\n",
    "a length with a sign": POST + b"Content-Length: +5\r\n\r\n0\r\n\r\n",
    "a negative length": POST + b"Content-Length: -5\r\n\r\n0\r\n\r\n",
    "a length in hex": POST + b"Content-Length: 0x5\r\n\r\n0\r\n\r\n",
    "an empty length": POST + b"Content-Length: \r\n\r\n",
    "a length of 20 digits": POST + b"Content-Length: 99999999999999999999\r\n\r\n",
    "a negative chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    "a chunk with 0x": POST + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nabcde\r\n0\r\n\r\n",
    "a chunk of 2^64 + 5": POST + b"Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nabcde\r\n0\r\n\r\n",
    "a chunk extension that ends in LF": POST + b"Transfer-Encoding: chunked\r\n\r\n5;\nabcde\r\n0\r\n\r\n",
    "chunks with bare LF": POST + b"Transfer-Encoding: chunked\r\n\r\n5\nabcde\n0\n\n",
    "a chunk without its CRLF": POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde0\r\n\r\n",
    "a chunk size and a space": POST + b"Transfer-Encoding: chunked\r\n\r\n5 \r\nabcde\r\n0\r\n\r\n",
    "two hosts": b"GET /health/live HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "one host twice": b"GET /health/live HTTP/1.1\r\nHost: x\r\nhost: x\r\n\r\n",
    "no host": b"GET /health/live HTTP/1.1\r\n\r\n",
    "a host that is none": b"PUT /tokens HTTP/1.1\r\nHost: a b/c@d\r\n\r\n",
    "half an address": b"PUT /tokens HTTP/1.1\r\nHost: [\r\n\r\n",
    "a folded header": b"GET /health/live HTTP/1.1\r\nHost: x\r\nX-A: 1\r\n folded\r\n\r\n",
    "a folded coding": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a fold before the first header": b"GET /health/live HTTP/1.1\r\n Host: x\r\n\r\n",
    "bare LF": b"GET /health/live HTTP/1.1\nHost: x\n\n",
    "bare LF after a header": b"GET /health/live HTTP/1.1\r\nHost: x\nX-A: b\r\n\r\n",
    "bare LF at the end": b"GET /health/live HTTP/1.1\r\nHost: x\r\n\n",
    "bare CR": b"GET /health/live HTTP/1.1\r\nHost: x\rX: y\r\n\r\n",
    "NUL": b"GET /health/live HTTP/1.1\r\nHost: x\r\nX-A: a\x00b\r\n\r\n",
    "a header without a name": b"GET /health/live HTTP/1.1\r\nHost: x\r\n: 5\r\n\r\n",
    "HTTP/0.9": b"GET /health/live\r\n\r\n",
    "HTTP/2.0": b"GET /health/live HTTP/2.0\r\nHost: x\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "CONNECT": b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
}


@pytest.mark.parametrize("sent", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_what_two_readers_could_frame_differently_is_refused_and_the_connection_closed(
    edge: Running, sent: bytes
) -> None:
    assert statuses(edge, sent + BEHIND) == [400]


HARMLESS = {
    "a chunk extension": (POST + b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nabcde\r\n0\r\n\r\n" + BEHIND, [415, 200, 404]),
    "a body of GET": (BEHIND.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\nabcde") + BEHIND, [200, 200, 404]),
    "a body of GET that is another request": (
        BEHIND.replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % len(BEHIND)) + BEHIND, [200, 404]),
    "something behind Connection: close": (BEHIND.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + BEHIND, [200]),
    "something behind HTTP/1.0": (BEHIND.replace(b"1.1", b"1.0") + BEHIND, [200]),
    "something behind an upgrade": (
        BEHIND.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n") + BEHIND, [200]),
    "another site in the target": (b"GET http://evil.example/health/live HTTP/1.1\r\nHost: x\r\n\r\n", [200, 404]),
    "a port that is none": (b"PUT /health/live HTTP/1.1\r\nHost: x:99999\r\n\r\n", [405, 404]),
    "no host in HTTP/1.0": (b"GET /health/live HTTP/1.0\r\n\r\n", [200]),
    "three at once": (BEHIND * 3, [200, 200, 200, 404]),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "expected"), HARMLESS.values(), ids=HARMLESS.keys())
def test_what_looks_odd_and_is_not_is_one_answer_a_message(edge: Running, sent: bytes, expected: list[int]) -> None:
    assert statuses(edge, sent, len(expected) - expected.count(404)) == expected


def test_a_host_in_every_form_is_taken(edge: Running) -> None:
    for host in (b"issuer.example", b"issuer.example:8000", b"127.0.0.1:1", b"[::1]:8000", b"xn--a.example.", b""):
        assert statuses(edge, BEHIND.replace(b"smuggled", host)) == [200, 404], host


# -- deadlines ------------------------------------------------------------------------------------------------------------


def post_head(live: Running, length: int, path: str = "/tokens", **claims: str) -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {length}",
             f"Authorization: Bearer {live.token(**claims)}", "", "")  # fmt: skip
    return "\r\n".join(lines).encode()


@pytest.mark.long
def test_a_body_that_does_not_come_is_answered_after_ten_seconds_and_the_connection_closed(edge: Running) -> None:
    """Ten of each at once: silent, dripping, chunked, and unsolicited."""
    assert (HEAD_S, BODY_DEADLINE_S, BODY_S) == (10, 10, 11)
    kinds = {
        "silent": post_head(edge, 100),
        "dripping": post_head(edge, 60_000),
        "chunked": post_head(edge, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"5\r\n",
        "not asked for": BEHIND.replace(b"\r\n\r\n", b"\r\nContent-Length: 9\r\n\r\n"),
    }

    def spend(kind: str) -> tuple[str, bytes, float]:
        began = time.monotonic()
        with connect(edge, 1.0) as connection:
            connection.sendall(kinds[kind])
            answer = b""
            while time.monotonic() - began < 60:
                try:
                    if not (data := connection.recv(65536)):
                        break
                    answer += data
                except TimeoutError:
                    if kind == "dripping":
                        connection.send(b" ")
                except OSError:
                    break
            return kind, answer, time.monotonic() - began

    with ThreadPoolExecutor(40) as pool:
        for kind, answer, took_s in pool.map(spend, list(kinds) * 10):
            assert (b"200 OK" if kind == "not asked for" else b"request.timeout") in answer, (kind, answer)
            assert took_s < 3 * BODY_S, (kind, took_s)  # the machine's share is twice ours
            assert kind == "not asked for" or took_s > BODY_DEADLINE_S - 0.5, (kind, took_s)
            assert kind == "not asked for" or b"retry-after" in answer.lower()
    assert edge.http.get("/health/live").status_code == 200


def test_an_answer_leaves_in_one_piece_and_nothing_of_it_is_held_back(edge: Running) -> None:
    expect = b"Content-Type: application/json\r\nContent-Length: 1\r\nExpect: 100-continue\r\n"
    with connect(edge) as connection:
        for _ in range(100):
            connection.sendall(BEHIND)
            assert connection.recv(65536).endswith(b'\r\n\r\n{"status":"live"}')
        connection.sendall(POST + expect + b"Authorization: Bearer %b\r\n\r\n" % edge.token().encode())
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"  # by itself: its body is waited for
        connection.sendall(b"{" + BEHIND.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert read(connection).endswith(b'\r\n\r\n{"status":"live"}')


def test_authorization_is_looked_at_before_a_body_is_read(edge: Running) -> None:
    """A stranger's megabyte is not waited for: the answer is not that its time is over."""
    head = post_head(edge, 1024 * 1024, "/tokens/batch")
    without = b"\r\n".join(line for line in head.split(b"\r\n") if not line.startswith(b"Authorization"))
    with connect(edge) as connection:
        connection.sendall(without + b'{"results":')
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")
    with connect(edge) as connection:  # nor is it asked for
        connection.sendall(without.replace(b"Host: x", b"Host: x\r\nExpect: 100-continue"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_the_body_of_a_stranger_is_not_waited_for_and_holds_no_place_in_flight(edge: Running) -> None:
    """More of them than there are places: otherwise a client without a good token could shut everybody out."""
    stranger = edge.token(repository_id="999999999", sub="repo:stranger/repo:ref:refs/heads/main")
    for identity, status in (("a.b.c", b"401"), (stranger, b"403")):
        head = request("/tokens/batch", identity, b"{" * 1000)[:-999]
        with many(edge, MAX_IN_FLIGHT["batch"] + 20, head) as waiting:
            assert edge.post(edge.token(), {"results": [BODY]}, "/tokens/batch").status_code == 201
            assert {connection.recv(12)[9:] for connection in waiting} == {status}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    """A service that forgives three refusals."""
    folder = tmp_path_factory.mktemp("strict")
    limits = WIDE_LIMITS.partition("  refusals:")[0] + "  refusals: {count: 1, per_s: 3600, burst: 3}\n"
    write_folder(folder, provider, limits=limits)
    register(folder, 3)
    with running(folder, provider) as live:
        yield live


@pytest.mark.parametrize(("kind", "caller"), [("hung up", "800000000"), ("too large", "800000001")])
def test_a_body_that_is_not_read_to_its_end_is_charged_to_its_caller(strict: Running, kind: str, caller: str) -> None:
    for _ in range(4):
        if kind == "hung up":
            with many(strict, 1, post_head(strict, 1000, repository_id=caller) + b"{"):
                pass
        else:
            identity = strict.token(repository_id=caller)
            answer = strict.http.post(
                "/tokens",
                content=iter([b" " * 1024] * 70),
                headers={"Content-Type": "application/json", "Authorization": f"Bearer {identity}"},
            )
            assert (answer.status_code, answer.json()["code"]) == (413, "request.too_large")
    own = strict.token(repository_id=caller)
    eventually(lambda: strict.post(own).json().get("code") == "abuse.quarantined")
    assert strict.post(strict.token(repository_id="800000002")).status_code == 201


# -- how many -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def many(live: Running, count: int, first: bytes) -> Iterator[list[socket.socket]]:
    """Open this many connections, and send the same bytes on each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4096:  # some tests hold several floods at once
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(connect(live))
            connection.sendall(first)
            connections.append(connection)
        yield connections


@contextlib.contextmanager
def waiting(live: Running, count: int, path: str, length: int, **claims: str) -> Iterator[list[socket.socket]]:
    """Have this many requests of one registration in flight: the body of each is awaited, and does not come."""
    head = post_head(live, length, path, **claims).replace(b"Host: x", b"Host: x\r\nExpect: 100-continue")
    with many(live, count, head) as connections:
        for connection in connections:
            assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        yield connections


@FIVE_TIMES
def test_beyond_the_most_batches_in_flight_the_next_is_told_to_come_back_and_singles_go_on(
    edge: Running, round_number: int
) -> None:
    def batch(identity: str) -> httpx.Response:
        return edge.post(identity, {"results": [BODY]}, "/tokens/batch")

    with contextlib.ExitStack() as stack:
        many = MAX_BODIES_IN_FLIGHT["batch"]
        slow = [
            stack.enter_context(waiting(edge, many, "/tokens/batch", 1000, repository_id=str(800_000_000 + number)))
            for number in range(MAX_IN_FLIGHT["batch"] // many)
        ]
        for _ in range(5):
            answer = batch(edge.token())
            assert (answer.status_code, answer.json()["code"]) == (503, "service.busy")
            assert answer.headers["retry-after"] == "1"
            assert answer.json()["retryable"] is True
        assert edge.post(edge.token()).status_code == 201
        assert edge.http.get("/health/ready").status_code == 200
        slow[0][0].close()
        identity = edge.token()
        eventually(lambda: batch(identity).status_code == 201)  # a place is free again
    identity = edge.token()
    eventually(lambda: batch(identity).status_code == 201)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"", marks=pytest.mark.long, id="silent"),
        pytest.param(b"GET / HTTP/1.1\r\nX: ", marks=pytest.mark.long, id="half a head"),
        pytest.param(BEHIND, id="idle"),
    ],
)
def test_open_connections_that_ask_for_nothing_make_room(edge: Running, first: bytes) -> None:
    with many(edge, MAX_CONNECTIONS + 50, first) as connections:
        assert httpx.get(f"{edge.url}/health/live", timeout=30, verify=NO_TLS).status_code == 200
        assert len(read(connections[0])) < 1000, "the first one was closed"
        eventually(lambda: open_connections(edge) <= MAX_CONNECTIONS + 5)
    assert edge.http.get("/health/live").status_code == 200


def test_a_flood_of_requests_costs_those_that_are_under_way_nothing(edge: Running) -> None:
    body = msgspec.json.encode(BODY)
    assert edge.post(edge.token()).status_code == 201, "the provider's keys are known: nobody waits for them"
    assert sum(MAX_IN_FLIGHT.values()) < MAX_CONNECTIONS
    count = min(MAX_BODIES_IN_FLIGHT["single"], AGAIN_RATE.burst)  # of one identity token
    with waiting(edge, count, "/tokens", len(body)) as under_way:
        with many(edge, MAX_CONNECTIONS, post_head(edge, len(body), repository_id="800000001")):
            assert httpx.get(f"{edge.url}/health/live", timeout=30, verify=NO_TLS).status_code == 200
        for connection in under_way:
            connection.sendall(body)
        answers = Counter(connection.recv(15).split()[1] for connection in under_way)
        assert answers == {b"201": 1, b"200": count - 1}


def open_connections(live: Running) -> int:
    """Count the sockets that the server process holds."""
    held = 0
    for descriptor in Path(f"/proc/{live.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            held += descriptor.readlink().name.startswith("socket:")
    return held


# -- who sends ------------------------------------------------------------------------------------------------------------


def refused(live: Running, count: int, forwarded: Callable[[int], str]) -> Counter[int]:
    """Get this many requests refused, each with a proxy's header about its sender; return the statuses."""
    junk = (request("/tokens", "a.b.c", b"{}", f"X-Forwarded-For: {forwarded(number)}") for number in range(count))
    return drive(live.settings.listen.port, junk, 200).statuses


def comes_to_its_limit(live: Running, forwarded: Callable[[int], str]) -> bool:
    """Send more than the 600 that a source has, again where the machine was so slow that some were forgiven."""
    return any(refused(live, 640, forwarded)[429] for _ in range(3))


@pytest.mark.parametrize("trusted", ["", pytest.param("10.0.0.0/8, 192.0.2.1", marks=pytest.mark.long)])
def test_x_forwarded_for_of_a_sender_that_is_not_listed_is_not_believed(
    tmp_path: Path, provider: LocalProvider, trusted: str
) -> None:
    """Loopback too, which uvicorn would trust by itself."""
    with running(tmp_path, provider, listen_trusted_proxies=trusted) as live:
        assert comes_to_its_limit(live, lambda number: f"198.51.100.{number % 250}")


@pytest.mark.long
def test_behind_a_listed_proxy_the_address_that_it_saw_counts(tmp_path: Path, provider: LocalProvider) -> None:
    with running(tmp_path, provider, listen_trusted_proxies="127.0.0.0/8, 10.1.0.0/16") as live:
        assert comes_to_its_limit(live, lambda _: "198.51.100.1, 203.0.113.9, 10.1.2.3")
        # A third of another source's share, and more than is forgiven meanwhile.
        assert refused(live, 200, lambda _: "192.0.2.77, 203.0.113.9, 10.1.2.3")[429], "what it says of itself"
        other = {"X-Forwarded-For": "203.0.113.9, 203.0.113.10"}
        assert live.post("a.b.c", **other).json()["code"] == "identity.malformed"
        assert live.post("a.b.c").json()["code"] == "identity.malformed", "nor does the proxy pay for it"


def test_a_good_token_is_bound_to_no_address(edge: Running) -> None:
    body = msgspec.json.encode(BODY)
    with connect(edge) as connection:
        connection.sendall(post_head(edge, len(body)).replace(b"Host: x", b"Host: x\r\nX-Forwarded-For: \xff,") + body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 201 ")


def test_a_small_request_passes_those_that_announce_a_large_body(edge: Running) -> None:
    """All of them are there when the service comes to look; a hundred strangers, who are refused unread, came first.

    On a busy machine the store's answer may come late, once.
    """
    assert edge.post(edge.token()).status_code == 201  # the key set is there
    assert any(place_among_large_ones(edge, 100) < 90 for _ in range(4))


def place_among_large_ones(live: Running, count: int) -> int:
    """Send so many heads of large requests and then a small request; return how many were answered before it."""
    large = request("/tokens", live.token(repository_id="1"), b"{" * 60_000)[:-59_999]
    small = request("/tokens", live.token(), msgspec.json.encode(BODY))
    before = len(decisions(live))
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(live)) for _ in range(count + 1)]
        for connection in connections:  # it is accepted
            connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        os.kill(live.process.pid, signal.SIGSTOP)
        try:
            for connection, sent in zip(connections, [large] * count + [small], strict=True):
                connection.sendall(sent)
        finally:
            os.kill(live.process.pid, signal.SIGCONT)
        for connection in connections:
            assert connection.recv(65536)
    eventually(lambda: len(decisions(live)) > before + count)
    return [event["outcome"] for event in decisions(live)[before:]].index("issued")


def decisions(live: Running) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in live.log_text().splitlines() if '"decision"' in line]


@pytest.mark.parametrize(
    ("headers", "large"),
    [
        ([(b"content-length", b"8192")], False),
        ([(b"content-length", b"8193")], True),
        ([(b"transfer-encoding", b"chunked")], True),
        ([], True),
    ],
)
def test_a_body_is_large_by_what_its_head_says(headers: list[tuple[bytes, bytes]], large: bool) -> None:
    assert is_large([(b"host", b"x"), *headers]) is large


def fail() -> None:
    raise ZeroDivisionError


async def test_a_request_that_cannot_begin_keeps_no_other_from_beginning() -> None:
    begun: list[int] = []
    failed: list[BaseException | None] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: failed.append(told.get("exception")))
    starts = StartQueue(MAX_BEGUN)
    starts.begin(fail)
    for number in range(2 * MAX_BEGUN):
        starts.begin(functools.partial(begun.append, number))
    for _ in range(5):
        await asyncio.sleep(0)
    assert begun == list(range(2 * MAX_BEGUN))
    assert [type(error) for error in failed] == [ZeroDivisionError]


def test_without_uvicorn_s_hooks_the_service_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(HttpToolsProtocol, "_start_asgi_task")
    with pytest.raises(SetupError, match=r"lacks _start_asgi_task; run `pip install 'uvicorn>=0\.45,<0\.55'`") as error:
        protocol_for("https://issuer.example")
    assert error.value.code is Code.PACKAGE_MISSING
