"""Connections at the edge, by raw sockets: deadlines, bounds, and the sources of requests."""

import asyncio
import contextlib
import functools
import os
import re
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
from issuer.service.http.bounds import BODY_DEADLINE_S, BODY_FREE_S, BODY_S, HEAD_S, MAX_BEGUN, MAX_CONNECTIONS
from issuer.service.http.protocol import StartQueue, is_large, protocol_for
from issuer.service.http.tokens import MAX_BODIES_IN_FLIGHT, MAX_IN_FLIGHT, MAX_INTEGRATION_IN_FLIGHT
from issuer.service.settings.bounds import KEEP_ALIVE_S
from tests.support.http_load import drive, request
from tests.support.no_tls import NO_TLS
from tests.support.running import BODY, FIVE_TIMES, WIDE_LIMITS, Running, register, running, write_folder
from tests.support.waiting import eventually, within

LIVE = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
# The first repository of another integration.
OTHERS = 810_000_000


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("edge")
    write_folder(folder, provider)
    register(folder, 4)
    register(folder, 2, "lm-eval.yaml", OTHERS)
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


# -- deadlines ------------------------------------------------------------------------------------------------------------


def post_head(live: Running, length: int, path: str = "/tokens", **claims: str) -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {length}",
             f"Authorization: Bearer {live.token(**claims)}", "", "")  # fmt: skip
    return "\r\n".join(lines).encode()


def expecting(head: bytes) -> bytes:
    """Return the head of a client that waits before it sends the body."""
    return head.replace(b"Host: x", b"Host: x\r\nExpect: 100-continue")


@pytest.mark.long
def test_a_slow_body_is_refused_after_five_seconds_and_a_late_one_after_ten(edge: Running) -> None:
    """Ten of each at once: silent, dripping, chunked, steady but too large for its time, and unsolicited."""
    assert (HEAD_S, BODY_FREE_S, BODY_DEADLINE_S, BODY_S) == (10, 5, 10, 11)
    kinds = {
        "silent": post_head(edge, 100),
        "dripping": post_head(edge, 60_000),
        "steady": post_head(edge, 60_000),
        "chunked": post_head(edge, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"5\r\n",
        "not asked for": LIVE.replace(b"\r\n\r\n", b"\r\nContent-Length: 9\r\n\r\n"),
    }

    def spend(kind: str) -> tuple[str, bytes, float]:
        """Return the kind, the answer, and the seconds until its first part: the service waits for the client's end."""
        began, took_s = time.monotonic(), 0.0
        with connect(edge, 1.0) as connection:
            connection.sendall(kinds[kind])
            answer = b""
            while time.monotonic() - began < 60:
                try:
                    if not (data := connection.recv(65536)):
                        break
                    answer, took_s = answer + data, took_s or time.monotonic() - began
                except TimeoutError:
                    if kind in {"dripping", "steady"}:
                        connection.send(b" " * (4096 if kind == "steady" else 1))
                except OSError:
                    break
            return kind, answer, took_s

    silent_s = []
    with ThreadPoolExecutor(50) as pool:
        for kind, answer, took_s in pool.map(spend, list(kinds) * 10):
            silent_s += [took_s] if kind == "silent" else []
            assert (b"200 OK" if kind == "not asked for" else b"request.timeout") in answer, (kind, answer)
            assert took_s < 3 * BODY_S, (kind, took_s)  # the machine's share is twice ours
            due_s = BODY_DEADLINE_S if kind == "steady" else BODY_FREE_S
            assert kind == "not asked for" or took_s > due_s - 0.5, (kind, took_s)
            assert kind == "not asked for" or b"retry-after" in answer.lower()
    assert min(silent_s) < BODY_DEADLINE_S, "a silent client has half of the time"
    assert edge.http.get("/health/live").status_code == 200


def test_an_answer_leaves_in_one_piece(edge: Running) -> None:
    with connect(edge) as connection:
        for _ in range(100):
            connection.sendall(LIVE)
            assert connection.recv(65536).endswith(b'\r\n\r\n{"status":"live"}')
        connection.sendall(expecting(post_head(edge, 1)))
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"  # by itself: its body is waited for
        connection.sendall(b"{" + LIVE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert read(connection).endswith(b'\r\n\r\n{"status":"live"}')


def test_the_body_of_a_stranger_is_not_awaited_and_takes_no_place(edge: Running) -> None:
    """There are more of them than places: otherwise a client without a good token could shut out all others."""
    stranger = edge.token(repository_id="999999999", sub="repo:stranger/repo:ref:refs/heads/main")
    bad, unregistered = (request("/tokens/batch", each, b"{" * 1000)[:-999] for each in ("a.b.c", stranger))
    without = re.sub(rb"Authorization: [^\r]*\r\n", b"", bad)
    for head, status in ((bad, b"401"), (without, b"401"), (expecting(without[:-1]), b"401"), (unregistered, b"403")):
        with many(edge, MAX_IN_FLIGHT["batch"] + 20, head) as waiting:
            assert edge.post(edge.token(), {"results": [BODY]}, "/tokens/batch").status_code == 201
            assert {connection.recv(12)[9:] for connection in waiting} == {status}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    """A service that allows three refusals of a caller."""
    folder = tmp_path_factory.mktemp("strict")
    limits = WIDE_LIMITS.partition("  refusals:")[0] + "  refusals: {count: 1, per_s: 3600, burst: 3}\n"
    write_folder(folder, provider, limits=limits)
    register(folder, 3)
    with running(folder, provider) as live:
        yield live


def test_a_body_that_is_not_read_to_its_end_is_charged_to_its_caller(strict: Running) -> None:
    hung_up, too_large, other = (f"80000000{number}" for number in range(3))
    for _ in range(4):
        with many(strict, 1, post_head(strict, 1000, repository_id=hung_up) + b"{"):
            pass
        identity = strict.token(repository_id=too_large)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {identity}"}
        answer = strict.http.post("/tokens", content=iter([b" " * 1024] * 70), headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (413, "request.too_large")
    for caller in (hung_up, too_large):
        own = strict.token(repository_id=caller)
        eventually(lambda own=own: strict.post(own).json().get("code") == "abuse.quarantined")  # type: ignore[misc]
    assert strict.post(strict.token(repository_id=other)).status_code == 201


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


BEGUN = b" " * 6000  # of a body: the rest of it has the whole ten seconds


@contextlib.contextmanager
def waiting(live: Running, count: int, path: str, left: int, **claims: str) -> Iterator[list[socket.socket]]:
    """Have this many requests of one registration in flight. Each lacks the last bytes of its body."""
    with many(live, count, expecting(post_head(live, len(BEGUN) + left, path, **claims))) as connections:
        for connection in connections:
            assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
            connection.sendall(BEGUN)
        yield connections


@FIVE_TIMES
def test_a_batch_beyond_the_places_is_refused_for_now_and_singles_go_on(edge: Running, round_number: int) -> None:
    def batch(identity: str) -> httpx.Response:
        return edge.post(identity, {"results": [BODY]}, "/tokens/batch")

    with contextlib.ExitStack() as stack:
        many = MAX_BODIES_IN_FLIGHT["batch"]
        slow = [
            stack.enter_context(waiting(edge, many, "/tokens/batch", 1000, repository_id=str(first + number)))
            for first in (800_000_000, OTHERS)
            for number in range(MAX_INTEGRATION_IN_FLIGHT["batch"] // many)
        ]
        for _ in range(5):
            answer = batch(edge.token())
            assert (answer.status_code, answer.json()["code"]) == (503, "service.busy")
            assert (answer.headers["retry-after"], answer.json()["retryable"]) == ("1", True)
        assert edge.post(edge.token()).status_code == 201
        assert edge.http.get("/health/ready").status_code == 200
        slow[0][0].close()
        identity = edge.token()
        eventually(lambda: batch(identity).status_code == 201)  # a place is free again
    identity = edge.token()
    eventually(lambda: batch(identity).status_code == 201)


def test_slow_bodies_of_all_identities_of_an_integration_leave_places_to_others(edge: Running) -> None:
    share, many = MAX_INTEGRATION_IN_FLIGHT["batch"], MAX_BODIES_IN_FLIGHT["batch"]
    with contextlib.ExitStack() as stack:
        for number in range(share // many):
            own = str(800_000_000 + number)
            stack.enter_context(waiting(edge, many, "/tokens/batch", 1000, repository_id=own))
        refused = edge.post(edge.token(repository_id="800000003"), {"results": [BODY]}, "/tokens/batch")
        assert (refused.status_code, refused.json()["code"]) == (429, "rate.integration")
        assert refused.headers["retry-after"] == "1"
        with waiting(edge, many, "/tokens/batch", 1000, repository_id=str(OTHERS)):
            pass


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"", marks=pytest.mark.long, id="silent"),
        pytest.param(b"GET / HTTP/1.1\r\nX: ", marks=pytest.mark.long, id="half a head"),
        pytest.param(LIVE, id="idle"),
    ],
)
def test_the_connection_that_has_waited_longest_makes_room(edge: Running, first: bytes) -> None:
    others = open_connections(edge)
    with many(edge, MAX_CONNECTIONS + 50, first) as connections:
        assert httpx.get(f"{edge.url}/health/live", timeout=30, verify=NO_TLS).status_code == 200
        assert len(read(connections[0])) < 1000, "the first one was closed"
        assert within(KEEP_ALIVE_S / 2, lambda: open_connections(edge) <= MAX_CONNECTIONS + others), "not by a timer"
    assert edge.http.get("/health/live").status_code == 200


def test_a_flood_of_requests_costs_requests_under_way_nothing(edge: Running) -> None:
    body = msgspec.json.encode(BODY)
    assert edge.post(edge.token()).status_code == 201, "the provider's keys are known"
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
    held = 0
    for descriptor in Path(f"/proc/{live.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            held += descriptor.readlink().name.startswith("socket:")
    return held


# -- sources --------------------------------------------------------------------------------------------------------------


def refused(live: Running, count: int, forwarded: Callable[[int], str]) -> Counter[int]:
    """Get this many requests refused, each with a proxy's header about its sender; return the statuses."""
    junk = (request("/tokens", "a.b.c", b"{}", f"X-Forwarded-For: {forwarded(number)}") for number in range(count))
    return drive(live.settings.listen.port, junk, 200).statuses


def comes_to_its_limit(live: Running, forwarded: Callable[[int], str]) -> bool:
    """Send more than the 600 that a source has; again if the machine was so slow that some were restored."""
    return any(refused(live, 620, forwarded)[429] for _ in range(3))


def test_x_forwarded_for_of_an_unlisted_sender_is_ignored(strict: Running) -> None:
    """Loopback too, which uvicorn would trust by itself."""
    assert comes_to_its_limit(strict, lambda number: f"198.51.100.{number % 250}")


@pytest.mark.long
def test_a_listed_proxy_names_the_source_and_no_other_sender(tmp_path: Path, provider: LocalProvider) -> None:
    with running(tmp_path / "other", provider, listen_trusted_proxies="10.0.0.0/8, 192.0.2.1") as live:
        assert comes_to_its_limit(live, lambda number: f"198.51.100.{number % 250}")
    with running(tmp_path, provider, listen_trusted_proxies="127.0.0.0/8, 10.1.0.0/16") as live:
        assert comes_to_its_limit(live, lambda _: "198.51.100.1, 203.0.113.9, 10.1.2.3")
        # A third of another source's share, and more than is restored meanwhile. Its own address is not believed.
        assert refused(live, 200, lambda _: "192.0.2.77, 203.0.113.9, 10.1.2.3")[429]
        other = {"X-Forwarded-For": "203.0.113.9, 203.0.113.10"}
        assert live.post("a.b.c", **other).json()["code"] == "identity.malformed"
        assert live.post("a.b.c").json()["code"] == "identity.malformed", "the proxy is not charged"


def test_a_good_token_is_bound_to_no_address(edge: Running) -> None:
    body = msgspec.json.encode(BODY)
    with connect(edge) as connection:
        connection.sendall(post_head(edge, len(body)).replace(b"Host: x", b"Host: x\r\nX-Forwarded-For: \xff,") + body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 201 ")


def test_a_small_request_passes_those_that_announce_a_large_body(edge: Running) -> None:
    """All of them have arrived when the service reads; a hundred requests of strangers, refused unread, came first.

    On a busy machine the store's answer may come late, once.
    """
    assert edge.post(edge.token()).status_code == 201  # the key set is known
    assert any(place_among_large_ones(edge, 100) < 90 for _ in range(4))


def place_among_large_ones(live: Running, count: int) -> int:
    """Send so many heads of large requests and then a small request; return how many were answered before it."""
    large = request("/tokens", live.token(repository_id="1"), b"{" * 60_000)[:-59_999]
    small = request("/tokens", live.token(), msgspec.json.encode(BODY))
    before = len(decisions(live))
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(live)) for _ in range(count + 1)]
        for connection in connections:  # each is accepted
            connection.sendall(LIVE)
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
    whole, _, _ = live.log_text().rpartition("\n")
    return [msgspec.json.decode(line) for line in whole.splitlines() if '"decision"' in line]


def test_the_head_says_whether_a_body_is_large() -> None:
    heads: dict[tuple[bytes, bytes], bool] = {
        (b"content-length", b"8192"): False, (b"content-length", b"8193"): True,
        (b"transfer-encoding", b"chunked"): True, (b"x", b"y"): True,
    }  # fmt: skip
    assert {line: is_large([(b"host", b"x"), line]) for line in heads} == heads


def fail() -> None:
    raise ZeroDivisionError


async def test_a_request_that_fails_at_its_begin_holds_up_no_other() -> None:
    begun: list[int] = []
    failed: list[BaseException | None] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context.get("exception")))
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
