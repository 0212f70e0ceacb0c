"""HTTP/1.1 at the edge, by raw sockets: framing that two readers could read differently, deadlines, bounds."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
import pytest

from issuer.body import Endpoint
from issuer.dev.provider import LocalProvider
from issuer.service.edge import BODY_S, HEAD_S, MAX_CONNECTIONS
from issuer.service.in_flight import MAX_BODIES, MAX_IN_FLIGHT
from issuer.service.routes import BODY_DEADLINE_S
from tests.bench.client import request
from tests.running import BODY, FIVE_TIMES, WIDE_LIMITS, Running, register, running, write_folder

# A second request behind the first: whoever is answered twice for one message has been smuggled to.
BEHIND = b"GET /health/live HTTP/1.1\r\nHost: smuggled\r\n\r\n"
POST = b"POST /tokens HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("edge")
    write_folder(folder, provider)
    register(folder, 7)
    with running(folder, provider) as live:
        yield live
        assert "unforeseen" not in live.log_text()
        assert "Exception" not in live.log_text()


def connect(live: Running, timeout_s: float = 3.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", live.settings.port), timeout=timeout_s)


def read(connection: socket.socket) -> bytes:
    """Return what comes until the other side closes, or falls silent."""
    answer = b""
    with contextlib.suppress(OSError):
        while data := connection.recv(65536):
            answer += data
    return answer


def statuses(live: Running, sent: bytes) -> list[int]:
    """Send bytes and return the status of every answer; a last 0 stands for a connection that was left open."""
    with connect(live, 0.25) as connection:
        connection.sendall(sent)
        answer, open_ = b"", 0
        try:
            while data := connection.recv(65536):
                answer += data
        except TimeoutError:
            open_ = 1
        except ConnectionResetError:
            pass
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]] + [0] * open_


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
}  # fmt: skip


@pytest.mark.parametrize("sent", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_what_two_readers_could_frame_differently_is_refused_and_the_connection_closed(
    edge: Running, sent: bytes
) -> None:
    assert statuses(edge, sent + BEHIND) == [400]


HARMLESS = {
    "a chunk extension": (POST + b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nabcde\r\n0\r\n\r\n" + BEHIND, [415, 200, 0]),
    "a body of GET": (BEHIND.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\nabcde") + BEHIND, [200, 200, 0]),
    "a body of GET that is another request": (
        BEHIND.replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % len(BEHIND)) + BEHIND, [200, 0]),
    "something behind Connection: close": (BEHIND.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + BEHIND, [200]),
    "something behind HTTP/1.0": (BEHIND.replace(b"1.1", b"1.0") + BEHIND, [200]),
    "something behind an upgrade": (
        BEHIND.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n") + BEHIND, [200, 0]),
    "another site in the target": (b"GET http://evil.example/health/live HTTP/1.1\r\nHost: x\r\n\r\n", [200, 0]),
    "a port that is none": (b"PUT /health/live HTTP/1.1\r\nHost: x:99999\r\n\r\n", [405, 0]),
    "no host in HTTP/1.0": (b"GET /health/live HTTP/1.0\r\n\r\n", [200]),
    "three at once": (BEHIND * 3, [200, 200, 200, 0]),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "expected"), HARMLESS.values(), ids=HARMLESS.keys())
def test_what_looks_odd_and_is_not_is_one_answer_a_message(edge: Running, sent: bytes, expected: list[int]) -> None:
    assert statuses(edge, sent) == expected


def test_a_host_in_every_form_is_taken(edge: Running) -> None:
    for host in (b"issuer.example", b"issuer.example:8000", b"127.0.0.1:1", b"[::1]:8000", b"xn--a.example.", b""):
        assert statuses(edge, BEHIND.replace(b"smuggled", host)) == [200, 0], host


# -- deadlines ------------------------------------------------------------------------------------------------------------


def post_head(live: Running, length: int, path: str = "/tokens", **claims: str) -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {length}",
             f"Authorization: Bearer {live.token(**claims)}", "", "")  # fmt: skip
    return "\r\n".join(lines).encode()


def test_a_body_that_does_not_come_is_answered_after_ten_seconds_and_the_connection_closed(edge: Running) -> None:
    """Ten of each at once: silent, dripping, chunked, and one that nobody asked for."""
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
            while time.monotonic() - began < 20:
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
            assert took_s < BODY_S + 1.5, (kind, took_s)
            assert kind == "not asked for" or took_s > BODY_DEADLINE_S - 0.5, (kind, took_s)
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
    """A stranger's megabyte is not waited for: the answer comes while the body is still outstanding."""
    head = post_head(edge, 1024 * 1024, "/tokens/batch")
    without = b"\r\n".join(line for line in head.split(b"\r\n") if not line.startswith(b"Authorization"))
    began = time.monotonic()
    with connect(edge) as connection:
        connection.sendall(without + b'{"results":')
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")
    assert time.monotonic() - began < 2
    with connect(edge) as connection:  # nor is it asked for
        connection.sendall(without.replace(b"Host: x", b"Host: x\r\nExpect: 100-continue"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_the_body_of_a_stranger_is_not_waited_for_and_holds_no_place_in_flight(
    tmp_path: Path, provider: LocalProvider
) -> None:
    """More of them than there are places: whoever has no token that is good could otherwise shut everybody out."""
    with running(tmp_path, provider) as live:
        stranger = live.token(repository_id="999999999", sub="repo:stranger/repo:ref:refs/heads/main")
        for identity, status in (("a.b.c", b"401"), (stranger, b"403")):
            head = request("/tokens", identity, b"{" * 1000)[:-999]
            with many(live, MAX_IN_FLIGHT["/tokens"] + 20, head) as waiting:
                assert live.post(live.token()).status_code == 201
                assert {connection.recv(12)[9:] for connection in waiting} <= {status, b"429"}


@pytest.mark.parametrize("kind", ["hung up", "too large"])
def test_a_body_that_is_not_read_to_its_end_is_charged_to_its_caller(
    tmp_path: Path, provider: LocalProvider, kind: str
) -> None:
    limits = WIDE_LIMITS.partition("  refusals:")[0] + "  refusals: {count: 1, per_s: 60, burst: 3}\n"
    write_folder(tmp_path, provider, limits=limits)
    (other,) = register(tmp_path, 1)
    with running(tmp_path, provider) as live:
        for _ in range(4):
            if kind == "hung up":
                with many(live, 1, post_head(live, 1000) + b"{"):
                    pass
            else:
                answer = live.http.post(
                    "/tokens",
                    content=iter([b" " * 1024] * 70),
                    headers={"Content-Type": "application/json", "Authorization": f"Bearer {live.token()}"},
                )
                assert (answer.status_code, answer.json()["code"]) == (413, "request.too_large")
        time.sleep(0.3)
        answer = live.post(live.token())
        assert (answer.status_code, answer.json()["code"]) == (403, "abuse.quarantined")
        assert live.post(live.token(repository_id=other)).status_code == 201


# -- how many -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def many(live: Running, count: int, first: bytes) -> Iterator[list[socket.socket]]:
    """Open so many connections, and send the same bytes on each."""
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
def full(live: Running, path: Endpoint, length: int) -> Iterator[list[socket.socket]]:
    """Fill every place with requests whose bodies do not come: as many parties as it takes, each with its share."""
    first = live.provider.claims()["repository_id"]
    others = [str(800_000_000 + number) for number in range(MAX_IN_FLIGHT[path] // MAX_BODIES[path] - 1)]
    with contextlib.ExitStack() as stack:
        connections = []
        for repository_id in (first, *others):
            head = post_head(live, length, path, repository_id=repository_id)
            connections += stack.enter_context(many(live, MAX_BODIES[path], head))
        yield connections


@FIVE_TIMES
def test_beyond_the_most_batches_in_flight_the_next_is_told_to_come_back_and_singles_go_on(
    edge: Running, round_number: int
) -> None:
    with full(edge, "/tokens/batch", 1000) as slow:
        time.sleep(0.2)
        for _ in range(5):
            answer = edge.post(edge.token(), {"results": [BODY]}, "/tokens/batch")
            assert (answer.status_code, answer.json()["code"]) == (503, "service.busy")
            assert answer.headers["retry-after"] == "1"
            assert answer.json()["retryable"] is True
        assert edge.post(edge.token()).status_code == 201
        assert edge.http.get("/health/ready").status_code == 200
        slow[0].close()
        time.sleep(0.2)
        identity = edge.token()
        assert edge.post(identity, {"results": [BODY]}, "/tokens/batch").status_code == 201, "a place is free again"
    time.sleep(0.2)
    assert edge.post(edge.token(), {"results": [BODY]}, "/tokens/batch").status_code == 201


@pytest.mark.parametrize("first", [b"", b"GET / HTTP/1.1\r\nX: ", BEHIND], ids=["silent", "half a head", "idle"])
def test_open_connections_that_ask_for_nothing_make_room(edge: Running, first: bytes) -> None:
    with many(edge, MAX_CONNECTIONS + 50, first) as connections:
        assert httpx.get(f"{edge.url}/health/live", timeout=3).status_code == 200
        connections[0].settimeout(1)
        assert len(read(connections[0])) < 1000, "the first one was closed"
        assert open_connections(edge) <= MAX_CONNECTIONS + 5
    assert edge.http.get("/health/live").status_code == 200


def test_a_flood_of_requests_costs_those_that_are_under_way_nothing(edge: Running) -> None:
    body = msgspec.json.encode(BODY)
    assert edge.post(edge.token()).status_code == 201, "the provider's keys are known: nobody waits for them"
    assert sum(MAX_IN_FLIGHT.values()) < MAX_CONNECTIONS
    with full(edge, "/tokens", len(body)) as under_way:
        time.sleep(0.3)
        with many(edge, MAX_CONNECTIONS, post_head(edge, len(body))):
            assert httpx.get(f"{edge.url}/health/live", timeout=3).status_code == 200
        for connection in under_way:
            connection.sendall(body)
        answers = [connection.recv(15).split()[1] for connection in under_way]
        assert answers.count(b"201") == MAX_IN_FLIGHT["/tokens"] // MAX_BODIES["/tokens"]
        assert set(answers) == {b"200", b"201"}


def open_connections(live: Running) -> int:
    """Count the sockets that the server process holds."""
    held = 0
    for descriptor in Path(f"/proc/{live.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            held += descriptor.readlink().name.startswith("socket:")
    return held


# -- who sends ------------------------------------------------------------------------------------------------------------


def spend_source(live: Running, **headers: str) -> str:
    """Have one source refused until it is over its limit; return the code of the last answer."""
    code, left = "", 3000  # 600, and what is forgiven meanwhile
    while code != "rate.source" and (left := left - 1):
        code = live.post("a.b.c", **headers).json()["code"]
    return code


@pytest.mark.parametrize("trusted", ["", "10.0.0.0/8, 192.0.2.1"])
def test_x_forwarded_for_of_a_sender_that_is_not_listed_is_not_believed(
    tmp_path: Path, provider: LocalProvider, trusted: str
) -> None:
    """Loopback too, which uvicorn would trust by itself."""
    with running(tmp_path, provider, trusted_proxies=trusted) as live:
        codes = {live.post("a.b.c", **{"X-Forwarded-For": f"198.51.100.{n % 250}"}).json()["code"] for n in range(640)}
        assert "rate.source" in codes


def test_behind_a_listed_proxy_the_address_that_it_saw_counts(tmp_path: Path, provider: LocalProvider) -> None:
    with running(tmp_path, provider, trusted_proxies="127.0.0.0/8, 10.1.0.0/16") as live:
        attacker = {"X-Forwarded-For": "198.51.100.1, 203.0.113.9, 10.1.2.3"}
        assert spend_source(live, **attacker) == "rate.source"
        forged = {"X-Forwarded-For": "192.0.2.77, 203.0.113.9, 10.1.2.3"}
        assert "rate.source" in {live.post("a.b.c", **forged).json()["code"] for _ in range(40)}, (
            "what it says of itself"
        )
        other = {"X-Forwarded-For": "203.0.113.9, 203.0.113.10"}
        assert live.post("a.b.c", **other).json()["code"] == "identity.malformed"
        assert live.post("a.b.c").json()["code"] == "identity.malformed", "nor does the proxy pay for it"


def test_a_good_token_is_bound_to_no_address(edge: Running) -> None:
    body = msgspec.json.encode(BODY)
    with connect(edge) as connection:
        connection.sendall(post_head(edge, len(body)).replace(b"Host: x", b"Host: x\r\nX-Forwarded-For: \xff,") + body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 201 ")
