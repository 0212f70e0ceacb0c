"""Whatever a connection sends: each message has one answer, in order, and nothing in a message is taken for another.

Families of messages on raw sockets, each with what becomes of it, sent to one service whole and in pieces. A message is
framed alike by every reader, or it is refused with 400 `request.framing`, as the last one of its connection.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec
import pytest

from issuer.dev.provider import LocalProvider
from issuer.service.http.bounds import MAX_FRAMING_BYTES, PIECE_BYTES
from tests.support.http_load import request
from tests.support.processes import rss_mib
from tests.support.running import BODY, Running, running

# Answered in a later turn of the loop: what does not wait for its turn overtakes it.
FIRST = b"GET /errors HTTP/1.1\r\nHost: x\r\n\r\n"
# Answered with 404 where the connection was left open. Found within a body it would be a request of its own.
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /left/open HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Case(NamedTuple):
    """A message and its answer: the status, whether the connection takes another message after it, and the status that
    it has where the fault comes only after the answer."""

    sent: bytes
    status: int
    goes_on: bool = True
    early_status: int = 0


def refused(sent: bytes) -> Case:
    return Case(sent, 400, goes_on=False)


def late(sent: bytes) -> Case:
    """A message whose fault is behind its head: the answer may leave before it is seen."""
    return Case(sent, 400, goes_on=False, early_status=200)


def message(
    *lines: bytes, first: bytes = b"GET /health/live HTTP/1.1", host: bytes = b"Host: x", body: bytes = b""
) -> bytes:
    return b"\r\n".join((first, *([host] if host else []), *lines, b"", b"")) + body


def chunked(*chunks: bytes, trailers: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n" + trailers + b"\r\n"


CHUNKED = b"Transfer-Encoding: chunked"


def length(body: bytes) -> bytes:
    return b"Content-Length: %d" % len(body)


def upgrades() -> Iterator[Case]:
    """RFC 9110 7.8: ignored, and the connection ends; with a body, two readers disagree about where it ends."""
    connections = (b"Upgrade", b"upgrade", b"keep-alive, Upgrade", b"Upgrade, HTTP2-Settings", b"x,upgrade , y")
    protocols = (b"websocket", b"h2c", b"HTTP/2.0", b"h2c, websocket", b"anything")
    for offered in itertools.product(connections, protocols):
        lines = (b"Connection: " + offered[0], b"Upgrade: " + offered[1])
        yield Case(message(*lines), 200, goes_on=False)
        yield Case(message(*lines, b"Content-Length: 0"), 200, goes_on=False)
        for body in (b"x", HIDDEN, b"\r\n" * 99 + HIDDEN):
            yield refused(message(*lines, length(body), body=body))
            yield refused(message(*lines, CHUNKED, body=chunked(body)))
            yield refused(message(*lines, length(body), first=b"POST /tokens HTTP/1.1", body=body))
    yield Case(message(b"Upgrade: websocket", length(HIDDEN), body=HIDDEN), 200)
    yield Case(message(b"Connection: Upgrade", length(HIDDEN), body=HIDDEN), 200)
    yield Case(message(b"Connection: Upgrade", b"Upgrade: h2c", first=b"GET /health/live HTTP/1.0"), 200, goes_on=False)
    yield Case(message(b"Connection: keep-alive", b"Connection: Upgrade", b"Upgrade: h2c"), 200, goes_on=False)


def lengths() -> Iterator[Case]:
    """RFC 9112 6: one length, or chunked alone."""
    yield Case(message(length(HIDDEN), body=HIDDEN), 200)
    yield Case(message(b"Content-Length: 0%d" % len(HIDDEN), body=HIDDEN), 200)
    yield Case(message(CHUNKED, body=chunked(HIDDEN)), 200)
    yield Case(message(b"transfer-ENCODING:CHUNKED", body=chunked(HIDDEN[:9], HIDDEN[9:])), 200)
    yield Case(message(CHUNKED, body=chunked()), 200)
    for bad in (
        b"+5",
        b"-5",
        b"5 5",
        b"5,5",
        b"5, 6",
        b"0x5",
        b"5.0",
        b"",
        b"five",
        b"9" * 25,
        b"18446744073709551621",
    ):
        yield refused(message(b"Content-Length: " + bad, body=b"abcde"))
    for one, other in itertools.product((b"5", b"6", b"0"), repeat=2):
        yield refused(message(b"Content-Length: " + one, b"Content-Length: " + other, body=b"abcde"))
    for coding in (b"chunked", b"identity", b"gzip, chunked", b"xchunked"):
        lines = (b"Transfer-Encoding: " + coding, b"Content-Length: 5")
        yield refused(message(*lines, body=chunked()))
        yield refused(message(*reversed(lines), body=chunked()))
    for coding in (b"identity", b"gzip", b"chunked, gzip", b"chunked, chunked", b"gzip, chunked", b"xchunked", b"chunked;q=1",
                   b'"chunked"', b"chunke", b"chunkedd", b"\x0bchunked", b""):  # fmt: skip
        yield refused(message(b"Transfer-Encoding: " + coding, body=chunked(HIDDEN)))
    yield refused(message(CHUNKED, CHUNKED, body=chunked(HIDDEN)))
    yield refused(message(b"Transfer-Encoding : chunked", body=chunked(HIDDEN)))
    yield refused(message(b"Transfer-Encoding:\r\n chunked", body=chunked(HIDDEN)))
    yield refused(message(CHUNKED, first=b"GET /health/live HTTP/1.0", body=chunked(HIDDEN)))


def chunks() -> Iterator[Case]:
    """RFC 9112 7.1."""
    for good in (b"5", b"05", b"0000005", b"5;a", b"5;a=b", b'5;a="b;c"', b"5;a=b;c=d"):
        yield Case(message(CHUNKED, body=good + b"\r\nabcde\r\n" + chunked()), 200)
    yield Case(message(CHUNKED, body=b"A\r\n0123456789\r\na\r\n0123456789\r\n" + chunked()), 200)
    for bad in (
        b"0x5",
        b"+5",
        b"-5",
        b" 5",
        b"5 ",
        b"5\t",
        b"",
        b"g",
        b"fffffffffffffffff",
        b"5\r",
        b"5;a=\x00",
        b"5;a\n",
    ):
        yield late(message(CHUNKED, body=bad + b"\r\nabcde\r\n" + chunked()))
    for ending in (b"", b"\n", b"\r", b"x\r\n", b"\r\r\n", b"\n\r"):
        yield late(message(CHUNKED, body=b"5\r\nabcde" + ending + chunked()))
    yield late(message(CHUNKED, body=b"5\nabcde\r\n" + chunked()))
    yield late(message(CHUNKED, body=b"0\r\nX: y\n\r\n"))


def trailers() -> Iterator[Case]:
    """RFC 9110 6.5.1: read over. None becomes a header, neither of its message nor of the next."""
    for trailer in (
        b"X: y",
        b"Host: y",
        b"Authorization: Bearer a.b.c",
        b"X-Forwarded-For: 192.0.2.1",
        b"Expect: 100-continue",
    ):
        yield Case(message(CHUNKED, body=chunked(b"abcde", trailers=trailer + b"\r\n")), 200)
        yield Case(message(CHUNKED, body=chunked(trailers=(trailer + b"\r\n") * 3)), 200)
    for bad in (b"Connection: close", b"connection: x", b"Connection: Upgrade\r\nUpgrade: h2c", b"Upgrade: h2c", b"Content-Length: 5",
                b"Transfer-Encoding: chunked", b"Proxy-Connection: close"):  # fmt: skip
        yield late(message(CHUNKED, body=chunked(b"abcde", trailers=bad + b"\r\n")))
    for bad in (b": x", b"X", b"X : y", b" X: y", b"X: y\r\n z", b"X: \x00", b"X: y\n"):
        yield late(message(CHUNKED, body=chunked(b"abcde", trailers=bad + b"\r\n")))


def heads() -> Iterator[Case]:
    """RFC 9112 5 and 3.2; what is repeated without harm is taken."""
    for good in (
        b"X:",
        b"X:y",
        b"X: y \t",
        b"X: \xff\xfe",
        b"x-1!#$%&'*+-.^_`|~: y",
        b"Accept: a\r\nAccept: b",
        b"Cookie: " + b"x" * 40_000,
    ):
        yield Case(message(good), 200)
    for bad in (b": y", b"X", b"X : y", b"X\t: y", b"X: a\x00b", b"X: a\rb", b"X: a\nY: b", b"X: a\r\n b", b"X: a\r\n\tb", b"X\xff: y",
                b"X(: y", b"X: a\x7f\x01b"):  # fmt: skip
        yield refused(message(bad))
    for host in (
        b"",
        b"Host: x\r\nHost: x",
        b"Host: x\r\nHost: y",
        b"Host: a b",
        b"Host: a@b",
        b"Host: a/b",
        b"Host: x:y",
        b"Host: [::1",
        b" Host: x",
    ):
        yield refused(message(host=host))
    for host in (b"Host:", b"HOST: x:8000", b"Host: [::1]:1", b"Host: *", b"Host: a.example."):
        yield Case(message(host=host), 200)
    yield refused(message(b"Cookie: " + b"x" * MAX_FRAMING_BYTES))
    yield refused(message(b"Cookie: " + b"x" * 4 * MAX_FRAMING_BYTES))
    yield refused(message(*[b"X: y"] * 20_000))
    for expected in (b"100-continue", b"100-Continue", b"something", b""):
        yield Case(message(b"Expect: " + expected), 200)
        yield Case(message(b"Expect: " + expected, length(HIDDEN), body=HIDDEN), 200)
        yield Case(message(b"Expect: " + expected, length(HIDDEN), first=b"POST /tokens HTTP/1.1", body=HIDDEN), 415)
    yield Case(message(b"Connection: close"), 200, goes_on=False)
    yield Case(message(b"Connection: close, keep-alive"), 200, goes_on=False)
    yield Case(message(b"Connection: host"), 200)


def first_lines() -> Iterator[Case]:
    """RFC 9112 3."""
    for method, status in {
        b"GET": 200,
        b"PUT": 405,
        b"DELETE": 405,
        b"PATCH": 405,
        b"TRACE": 405,
        b"PROPFIND": 405,
        b"POST": 405,
    }.items():
        yield Case(message(first=method + b" /health/live HTTP/1.1"), status)
    for bad in (b"get", b"FOO", b"G\x00T", b"", b" GET", b"GET\t", b"PRI", b"\x16\x03\x01"):
        yield refused(message(first=bad + b" /health/live HTTP/1.1"))
    targets = {b"/health/live?a=b": 200, b"http://evil.example/health/live": 200, b"https://x:1/health/live": 200, b"/%68ealth/live": 200,
               b"/health/../health/live": 404, b"/hidden%0d%0aX:y": 404, b"/%00": 404, b"/%ff": 404, b"/?": 200,
               b"/" + b"a" * 60_000: 404, b"/a;b": 404, b"/%": 404, b"/%zz": 404}  # fmt: skip
    for target, status in targets.items():
        yield Case(message(first=b"GET " + target + b" HTTP/1.1"), status)
    for target in (
        b"x:443",
        b"health/live",
        b"",
        b"/ /x",
        b"http://",
        b"://x/",
        b"/\x00",
        b"/\x01",
        b"/" + b"a" * MAX_FRAMING_BYTES,
    ):
        yield refused(message(first=b"GET " + target + b" HTTP/1.1"))
    yield refused(message(first=b"CONNECT x:443 HTTP/1.1"))
    yield Case(message(first=b"CONNECT /health/live HTTP/1.1"), 405, goes_on=False)
    yield Case(message(first=b"OPTIONS * HTTP/1.1"), 404)
    for version in (
        b"HTTP/0.9",
        b"HTTP/1.2",
        b"HTTP/2.0",
        b"HTTP/9.9",
        b"HTTP/1.10",
        b"http/1.1",
        b"HTTP/1",
        b"HTTP/1.1 ",
        b"HTTP/11",
        b"",
    ):
        yield refused(message(first=b"GET /health/live " + version))
    yield refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
    yield Case(message(first=b"GET /health/live HTTP/1.0", host=b"Host: x"), 200, goes_on=False)
    yield Case(b"\r\n" * 100 + message(), 200)


FAMILIES = (upgrades, lengths, chunks, trailers, heads, first_lines)


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("messages"), provider) as live:
        yield live
        assert "unforeseen" not in live.log_text()
        assert "Exception" not in live.log_text()


def exchange(live: Running, *parts: bytes, pause_s: float = 0.01) -> list[tuple[int, bytes]]:
    """Send parts, with pauses in which the service reads them, and return each answer: its status and its body."""
    with socket.create_connection(("127.0.0.1", live.settings.listen.port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received = b""
        with contextlib.suppress(ConnectionError):
            for part in parts:
                connection.sendall(part)
                time.sleep(pause_s if part is not parts[-1] else 0)
        with contextlib.suppress(ConnectionError):
            while data := connection.recv(65536):
                received += data
        return list(answers(received))


def answers(received: bytes) -> Iterator[tuple[int, bytes]]:
    """Take a connection's bytes apart: nothing may be left. Interim answers are left out (RFC 9110 15.2)."""
    while received:
        head, end, rest = received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 "), received[:200]
        assert end, received[:200]
        status = int(head[9:12])
        if status == 100:
            received = rest
            continue
        lines = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:])
        size = int(lines[b"content-length"])
        assert len(rest) >= size, received[:200]
        body, received = rest[:size], rest[size:]
        assert not received or lines.get(b"connection") != b"close", "something came after the last answer"
        yield status, body


def ways(case: Case, number: int) -> Iterator[tuple[bytes, ...]]:
    """Yield the parts in which a case is sent: whole, its head apart from its body, and cut anywhere."""
    head, _, rest = case.sent.partition(b"\r\n\r\n")
    yield (FIRST + case.sent + LAST,)
    yield FIRST + head + b"\r\n\r\n", rest, LAST
    at = number * 7919 % len(case.sent)
    yield FIRST, case.sent[:at], case.sent[at:] + LAST


def check(live: Running, case: Case, parts: Iterable[bytes]) -> None:
    got = exchange(live, *parts)
    statuses = [status for status, _ in got]
    if case.goes_on:
        assert statuses == [200, case.status, 404], (case.sent[:300], parts, got)
    else:
        assert statuses in ([200, case.status], [200, case.early_status]), (case.sent[:300], parts, got)
    if 400 in statuses:
        assert json.loads(got[1][1])["code"] == "request.framing", got


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_each_message_has_one_answer_in_its_turn_and_none_hides_another(edge: Running, family: object) -> None:
    cases = list(family())  # type: ignore[operator]
    with ThreadPoolExecutor(16) as pool:
        tried = [
            pool.submit(check, edge, case, parts) for number, case in enumerate(cases) for parts in ways(case, number)
        ]
        for each in tried:
            each.result()


def test_an_answer_that_takes_its_time_is_not_overtaken_by_the_refusal_of_what_follows(edge: Running) -> None:
    body = msgspec.json.encode(BODY)
    good = request("/tokens", edge.token(), body)
    for bad in (b"\x00", message(b"X : y"), message(length(b"x"), b"Connection: Upgrade", b"Upgrade: h2c", body=b"x")):
        got = exchange(edge, good + good + bad + LAST)
        assert [status for status, _ in got][1:] == [200, 400]
        assert b'"verify_token"' in got[1][1]


def test_a_message_that_turns_out_bad_while_its_body_is_awaited_has_one_answer(edge: Running) -> None:
    head = request("/tokens", edge.token(), b"").replace(b"Content-Length: 0", CHUNKED)
    for before in (b"", FIRST, FIRST * 5):
        got = exchange(edge, before + head, b"5\r\nabcdefg" + LAST)
        assert [status for status, _ in got] == [200] * before.count(b"GET") + [400]
        assert json.loads(got[-1][1])["code"] == "request.framing"


def beside_the_body() -> dict[str, tuple[bytes, bytes]]:
    """Return how what is no body begins, and what goes on without end."""
    return {
        "a trailer": (b"0\r\nX: ", b"a" * 1024),
        "trailers": (b"0\r\n", b"X: y\r\n" * 128),
        "a trailer's name": (b"0\r\n", b"a" * 1024),
        "a chunk's extension": (b"5;", b"a" * 1024),
        "chunks of one byte": (b"", b"1\r\n \r\n" * 128),
        "a chunk's size": (b"", b"0" * 1024),
    }


@pytest.mark.parametrize(("begins", "goes_on"), beside_the_body().values(), ids=beside_the_body())
def test_what_a_message_has_beside_its_body_is_bounded(edge: Running, begins: bytes, goes_on: bytes) -> None:
    """In small pieces: a reader that joins them one by one needs ever longer for each."""
    head = request("/tokens", edge.token(), b"").replace(b"Content-Length: 0", CHUNKED)
    pieces = 2 * (MAX_FRAMING_BYTES + PIECE_BYTES) // len(goes_on)
    for before in (b"", FIRST):
        got = exchange(edge, before + head + begins, *[goes_on] * pieces, pause_s=0)
        assert [status for status, _ in got] == [200] * bool(before) + [400]
        assert "trailers and chunk framing" in json.loads(got[-1][1])["detail"]


def test_what_a_message_has_beside_its_body_may_be_long(edge: Running) -> None:
    long = MAX_FRAMING_BYTES - 8_000
    body = msgspec.json.encode(BODY)
    head = request("/tokens", edge.token(), b"").replace(b"Content-Length: 0", CHUNKED)
    trailing = chunked(body, trailers=b"X: " + b"a" * long + b"\r\n")
    extended = b"%x;%b\r\n%b\r\n0\r\n\r\n" % (len(body), b"a" * long, body)
    in_bits = chunked(*(body[at : at + 1] for at in range(len(body))))
    got = exchange(edge, *(head + sent for sent in (trailing, extended, in_bits)), LAST)
    assert [status for status, _ in got] == [201, 200, 200, 404]


def test_a_long_body_before_a_head_does_not_count_as_its_head(edge: Running) -> None:
    big = message(
        b"Content-Type: text/plain", length(b"a" * 900_000), first=b"POST /tokens/batch HTTP/1.1", body=b"a" * 900_000
    )
    got = exchange(edge, big + big + message()[:30], message()[30:] + LAST)
    assert [status for status, _ in got] == [415, 415, 200, 404]


def test_who_pipelines_gets_every_answer_and_is_read_no_faster_than_answered(edge: Running) -> None:
    before, long = rss_mib(edge.process.pid), message(b"Cookie: " + b"x" * 30_000)
    got = exchange(edge, *[message() * 50] * 20, *[long] * 1000, LAST, pause_s=0)
    assert [status for status, _ in got] == [200] * 2000 + [404]
    assert rss_mib(edge.process.pid) - before < 10


def test_requests_that_wait_for_those_before_them_take_little_memory(edge: Running) -> None:
    """Their client does not read the answers: nothing of it is under way."""
    before = rss_mib(edge.process.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            connection = stack.enter_context(
                socket.create_connection(("127.0.0.1", edge.settings.listen.port), timeout=60)
            )
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    connection.send(message(first=b"GET /errors HTTP/1.1") * 10_000)
        assert edge.http.get("/health/live").status_code == 200
        assert rss_mib(edge.process.pid) - before < 25


def test_an_interim_answer_is_for_http_1_1_alone(edge: Running) -> None:
    """RFC 9110 10.1.1: who speaks HTTP/1.0 would take it for the answer."""
    body = msgspec.json.encode(BODY)
    for version in (b"1.0", b"1.1"):
        sent = request("/tokens", edge.token(), body, "Expect: 100-continue", "Connection: close")
        with socket.create_connection(("127.0.0.1", edge.settings.listen.port), timeout=60) as connection:
            connection.sendall(sent.replace(b"HTTP/1.1", b"HTTP/" + version))
            assert connection.recv(12)[9:] == {b"1.0": b"201", b"1.1": b"100"}[version]
