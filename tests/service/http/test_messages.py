"""HTTP/1.1 messages on raw sockets: each has one answer, in order, and no part of a message is read as another message.

Every reader frames a message alike, or it is refused with 400 `request.framing`, as the last one of its connection.
Each case is sent to one service: whole, or its head before its body, or cut at any byte (`make attack`: in all three ways).
"""

import contextlib
import itertools
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec
import pytest

from issuer.dev.provider import LocalProvider
from issuer.service.http.bounds import (
    MAX_FRAMING_BYTES,
    MAX_HEADER_LINES,
    MAX_LIST_BYTES,
    MAX_TARGET_BYTES,
    PIECE_BYTES,
)
from tests.support.http_load import request
from tests.support.processes import rss_mib
from tests.support.running import BODY, Running, running

# Answered in a later turn of the loop: an answer that does not wait for its turn would overtake it.
FIRST = b"GET /errors HTTP/1.1\r\nHost: x\r\n\r\n"
# Answered with 404 where the connection was left open. In a body, it must not be read as a request.
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
    protocols = (b"h2c", b"HTTP/2.0", b"h2c, websocket", b"anything")
    offers = [(connection, b"websocket") for connection in connections] + [(b"Upgrade", each) for each in protocols]
    for connection, protocol in offers:
        lines = (b"Connection: " + connection, b"Upgrade: " + protocol)
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
    for bad in (b"+5", b"-5", b"5 5", b"5,5", b"5, 6", b"0x5", b"5.0", b"", b"five", b"9" * 25,
                b"18446744073709551621"):  # fmt: skip
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
    for coding in (CHUNKED, b"Transfer-Encoding: identity"):
        yield refused(message(CHUNKED, coding, body=chunked(HIDDEN)))
    for line in (b"Transfer-Encoding : chunked", b"Transfer-Encoding:\r\n chunked"):
        yield refused(message(line, body=chunked(HIDDEN)))
    yield refused(message(CHUNKED, first=b"GET /health/live HTTP/1.0", body=chunked(HIDDEN)))


def chunks() -> Iterator[Case]:
    """RFC 9112 7.1."""
    for good in (b"5", b"05", b"0000005", b"5;a", b"5;a=b", b'5;a="b;c"', b"5;a=b;c=d"):
        yield Case(message(CHUNKED, body=good + b"\r\nabcde\r\n" + chunked()), 200)
    yield Case(message(CHUNKED, body=b"A\r\n0123456789\r\na\r\n0123456789\r\n" + chunked()), 200)
    for bad in (b"0x5", b"+5", b"-5", b" 5", b"5 ", b"5\t", b"", b"g", b"fffffffffffffffff", b"10000000000000005", b"5\r",
                b"5;a=\x00", b"5;a\n"):  # fmt: skip
        yield late(message(CHUNKED, body=bad + b"\r\nabcde\r\n" + chunked()))
    for ending in (b"", b"\n", b"\r", b"x\r\n", b"\r\r\n", b"\n\r"):
        yield late(message(CHUNKED, body=b"5\r\nabcde" + ending + chunked()))
    last = chunked()
    for unended in (b"5\nabcde\r\n" + last, b"5;\nabcde\r\n" + last, b"5\nabcde\n0\n\n", b"0\r\nX: y\n\r\n"):
        yield late(message(CHUNKED, body=unended))


def trailers() -> Iterator[Case]:
    """RFC 9110 6.5.1: ignored. No trailer becomes a header of its message or of the next."""
    for trailer in (
        b"X: y", b"Host: y", b"Authorization: Bearer a.b.c", b"X-Forwarded-For: 192.0.2.1", b"Expect: 100-continue",
    ):  # fmt: skip
        yield Case(message(CHUNKED, body=chunked(b"abcde", trailers=trailer + b"\r\n")), 200)
        yield Case(message(CHUNKED, body=chunked(trailers=(trailer + b"\r\n") * 3)), 200)
    for bad in (b"Connection: close", b"connection: x", b"Connection: Upgrade\r\nUpgrade: h2c", b"Upgrade: h2c", b"Content-Length: 5",
                b"Transfer-Encoding: chunked", b"Proxy-Connection: close"):  # fmt: skip
        yield late(message(CHUNKED, body=chunked(b"abcde", trailers=bad + b"\r\n")))
    for bad in (b": x", b"X", b"X : y", b" X: y", b"X: y\r\n z", b"X: \x00", b"X: y\n", b"X:\r\n" * MAX_HEADER_LINES):
        yield late(message(CHUNKED, body=chunked(b"abcde", trailers=bad + b"\r\n")))


def heads() -> Iterator[Case]:
    """RFC 9112 5 and 3.2. Some headers may be repeated."""
    for good in (b"X:", b"X:y", b"X: y \t", b"X: \xff\xfe", b"x-1!#$%&'*+-.^_`|~: y", b"Accept: a\r\nAccept: b",
                 b"Cookie: " + b"x" * 40_000, b"\r\n".join([b"X: y"] * (MAX_HEADER_LINES - 1)),
                 b"Accept: " + b"," * (MAX_LIST_BYTES - 1)):  # fmt: skip
        yield Case(message(good), 200)
    for bad in (b": y", b"X", b"X : y", b"X\t: y", b"X: a\x00b", b"X: a\rb", b"X: a\nY: b", b"X: a\r\n b", b"X: a\r\n\tb", b"X\xff: y",
                b"X(: y", b"X: a\x7f\x01b"):  # fmt: skip
        yield refused(message(bad))
    for host in (b"", b"Host: x\r\nHost: x", b"Host: x\r\nHost: y", b"Host: a b", b"Host: a@b", b"Host: a/b", b"Host: x:y", b"Host: [",
                 b"Host: [::1", b" Host: x"):  # fmt: skip
        yield refused(message(host=host))
    for host in (b"Host:", b"HOST: x:8000", b"Host: x:99999", b"Host: 127.0.0.1:1", b"Host: [::1]:1", b"Host: *",
                 b"Host: xn--a.example."):  # fmt: skip
        yield Case(message(host=host), 200)
    for bare in (b"\nHost: x\n\n", b"\r\nHost: x\r\n\n"):
        yield refused(b"GET /health/live HTTP/1.1" + bare)
    for many in (
        [b"Cookie: " + b"x" * MAX_FRAMING_BYTES], [b"Cookie: " + b"x" * 4 * MAX_FRAMING_BYTES], [b"X: y"] * 20_000,
        [b"X: y"] * MAX_HEADER_LINES, [b"Accept: " + b"," * MAX_LIST_BYTES],
        [b"If-None-Match: " + b"x" * 600, b"Accept: " + b"x" * 600],
    ):  # fmt: skip
        yield refused(message(*many))
    for expected in (b"100-continue", b"100-Continue", b"something", b""):
        yield Case(message(b"Expect: " + expected), 200)
        yield Case(message(b"Expect: " + expected, length(HIDDEN), body=HIDDEN), 200)
        yield Case(message(b"Expect: " + expected, length(HIDDEN), first=b"POST /tokens HTTP/1.1", body=HIDDEN), 415)
    for ending in (b"close", b"close, keep-alive"):
        yield Case(message(b"Connection: " + ending), 200, goes_on=False)
    yield Case(message(b"Connection: host"), 200)


def first_lines() -> Iterator[Case]:
    """RFC 9112 3."""
    for method in (b"PUT", b"DELETE", b"PATCH", b"TRACE", b"PROPFIND", b"POST"):
        yield Case(message(first=method + b" /health/live HTTP/1.1"), 405)
    for bad in (b"get", b"FOO", b"G\x00T", b"", b" GET", b"GET\t", b"PRI", b"\x16\x03\x01"):
        yield refused(message(first=bad + b" /health/live HTTP/1.1"))
    targets = {b"/health/live?a=b": 200, b"http://evil.example/health/live": 200, b"https://x:1/health/live": 200, b"/%68ealth/live": 200,
               b"/health/../health/live": 404, b"/hidden%0d%0aX:y": 404, b"/%00": 404, b"/%ff": 404, b"/?": 200,
               b"/" + b"a" * (MAX_TARGET_BYTES - 1): 404, b"/a;b": 404, b"/%": 404, b"/%zz": 404}  # fmt: skip
    for target, status in targets.items():
        yield Case(message(first=b"GET " + target + b" HTTP/1.1"), status)
    for target in (b"x:443", b"health/live", b"", b"/ /x", b"http://", b"://x/", b"/\x00", b"/\x01",
                   b"/" + b"a" * MAX_TARGET_BYTES, b"/" + b"a" * MAX_FRAMING_BYTES):  # fmt: skip
        yield refused(message(first=b"GET " + target + b" HTTP/1.1"))
    yield refused(message(first=b"CONNECT x:443 HTTP/1.1"))
    yield Case(message(first=b"CONNECT /health/live HTTP/1.1"), 405, goes_on=False)
    yield Case(message(first=b"OPTIONS * HTTP/1.1"), 404)
    for version in (b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/9.9", b"HTTP/1.10", b"http/1.1", b"HTTP/1", b"HTTP/1.1 ",
                    b"HTTP/11", b""):  # fmt: skip
        yield refused(message(first=b"GET /health/live " + version))
    yield refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
    yield refused(b"GET /health/live\r\n\r\n")
    for host in (b"Host: x", b""):
        yield Case(message(first=b"GET /health/live HTTP/1.0", host=host), 200, goes_on=False)
    yield Case(b"\r\n" * 100 + message(), 200)


FAMILIES = (upgrades, lengths, chunks, trailers, heads, first_lines)


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("messages"), provider) as live:
        yield live
        assert "unforeseen" not in live.log_text()
        assert "Exception" not in live.log_text()


def connect(live: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", live.settings.listen.port), timeout=60)


def exchange(live: Running, *parts: bytes, pause_s: float = 0.01) -> list[tuple[int, bytes]]:
    """Send parts, with pauses in which the service reads them. Return the status and the body of each answer."""
    with connect(live) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received = b""
        with contextlib.suppress(ConnectionError):
            for part in parts:
                connection.sendall(part)
                time.sleep(pause_s if part is not parts[-1] else 0)  # a slow peer
        with contextlib.suppress(ConnectionError):
            while data := connection.recv(65536):
                received += data
        return list(answers(received))


def answers(received: bytes) -> Iterator[tuple[int, bytes]]:
    """Split a connection's bytes into answers, without a rest. Interim answers are left out (RFC 9110 15.2)."""
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


def ways(case: Case, number: int) -> list[tuple[bytes, ...]]:
    """Return the parts in which a case is sent: whole, its head before its body, and cut at any byte."""
    head, _, rest = case.sent.partition(b"\r\n\r\n")
    at = number * 7919 % len(case.sent)
    return [
        (FIRST + case.sent + LAST,),
        (FIRST + head + b"\r\n\r\n", rest, LAST),
        (FIRST, case.sent[:at], case.sent[at:] + LAST),
    ]


def is_right(case: Case, got: list[tuple[int, bytes]]) -> bool:
    statuses = [status for status, _ in got]
    if case.goes_on:
        return statuses == [200, case.status, 404]
    if 400 in statuses and json.loads(got[1][1])["code"] != "request.framing":
        return False
    return statuses in ([200, case.status], [200, case.early_status])


@pytest.mark.parametrize("in_every_way", [False, pytest.param(True, marks=pytest.mark.attack)])
def test_each_message_has_one_answer_in_its_turn_and_hides_no_other(edge: Running, in_every_way: bool) -> None:
    def fault(case: Case, parts: tuple[bytes, ...]) -> object:
        got = exchange(edge, *parts)
        return None if is_right(case, got) else (case.sent[:300], [len(part) for part in parts], got)

    cases = [case for family in FAMILIES for case in family()]
    sent = [
        (case, parts)
        for number, case in enumerate(cases)
        for way, parts in enumerate(ways(case, number))
        if in_every_way or way == number % 3
    ]
    with ThreadPoolExecutor(16) as pool:
        faults = pool.map(fault, *zip(*sent, strict=True))
        assert [each for each in faults if each] == []


def test_no_refusal_overtakes_a_slow_answer_before_it(edge: Running) -> None:
    body = msgspec.json.encode(BODY)
    good = request("/tokens", edge.token(), body)
    for bad in (b"\x00", message(b"X : y"), message(length(b"x"), b"Connection: Upgrade", b"Upgrade: h2c", body=b"x")):
        got = exchange(edge, good + good + bad + LAST)
        assert [status for status, _ in got][1:] == [200, 400]
        assert b'"verify_token"' in got[1][1]


def chunked_head(live: Running) -> bytes:
    return request("/tokens", live.token(), b"").replace(b"Content-Length: 0", CHUNKED)


def test_a_message_with_a_fault_in_its_late_body_has_one_answer(edge: Running) -> None:
    for before in (b"", FIRST, FIRST * 5):
        got = exchange(edge, before + chunked_head(edge), b"5\r\nabcdefg" + LAST)
        assert [status for status, _ in got] == [200] * before.count(b"GET") + [400]
        assert json.loads(got[-1][1])["code"] == "request.framing"


# How framing begins, and what continues it without end.
ENDLESS = {
    "a trailer": (b"0\r\nX: ", b"a" * 1024), "trailers": (b"0\r\n", b"X: y\r\n" * 128),
    "a trailer's name": (b"0\r\n", b"a" * 1024), "a chunk's extension": (b"5;", b"a" * 1024),
    "chunks of one byte": (b"", b"1\r\n \r\n" * 128), "a chunk's size": (b"", b"0" * 1024),
}  # fmt: skip


def test_the_framing_of_a_message_is_bounded(edge: Running) -> None:
    """In small pieces: a reader that joins them one by one needs ever longer for each."""
    head = chunked_head(edge)

    def is_refused(before: bytes, begins: bytes, goes_on: bytes) -> bool:
        pieces = 2 * (MAX_FRAMING_BYTES + PIECE_BYTES) // len(goes_on)
        got = exchange(edge, before + head + begins, *[goes_on] * pieces, pause_s=0)
        detail = json.loads(got[-1][1])["detail"]
        assert any(said in detail for said in ("trailers and chunk framing", "too many headers and trailers"))
        return [status for status, _ in got] == [200] * bool(before) + [400]

    wrong = {
        (name, before) for name, sent in ENDLESS.items() for before in (b"", FIRST) if not is_refused(before, *sent)
    }
    assert wrong == set()


def test_the_framing_of_a_message_may_be_long(edge: Running) -> None:
    long = MAX_FRAMING_BYTES - 8_000
    body = msgspec.json.encode(BODY)
    head = chunked_head(edge)
    trailing = chunked(body, trailers=b"X: " + b"a" * long + b"\r\n")
    extended = b"%x;%b\r\n%b\r\n0\r\n\r\n" % (len(body), b"a" * long, body)
    in_bits = chunked(*(body[at : at + 1] for at in range(len(body))))
    got = exchange(edge, *(head + sent for sent in (trailing, extended, in_bits)), LAST)
    assert [status for status, _ in got] == [201, 200, 200, 404]


def test_a_long_body_before_a_head_does_not_count_as_its_head(edge: Running) -> None:
    long = b"a" * 900_000
    big = message(b"Content-Type: text/plain", length(long), first=b"POST /tokens/batch HTTP/1.1", body=long)
    got = exchange(edge, big + big + message()[:30], message()[30:] + LAST)
    assert [status for status, _ in got] == [415, 415, 200, 404]


def test_pipelined_requests_are_read_no_faster_than_answered(edge: Running) -> None:
    before, long = rss_mib(edge.process.pid), message(b"Cookie: " + b"x" * 30_000)
    got = exchange(edge, *[message() * 50] * 20, *[long] * 1000, LAST, pause_s=0)
    assert [status for status, _ in got] == [200] * 2000 + [404]
    assert rss_mib(edge.process.pid) - before < 10


def test_requests_whose_client_reads_no_answer_take_little_memory(edge: Running) -> None:
    before = rss_mib(edge.process.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            connection = stack.enter_context(connect(edge))
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    connection.send(message(first=b"GET /errors HTTP/1.1") * 10_000)
        assert edge.http.get("/health/live").status_code == 200
        assert rss_mib(edge.process.pid) - before < 25


def test_only_http_1_1_gets_an_interim_answer(edge: Running) -> None:
    """RFC 9110 10.1.1: a client of HTTP/1.0 would read it as the answer."""
    body = msgspec.json.encode(BODY)
    for version, status in ((b"1.0", b"201"), (b"1.1", b"100")):
        sent = request("/tokens", edge.token(), body, "Expect: 100-continue", "Connection: close")
        with connect(edge) as connection:
            connection.sendall(sent.replace(b"HTTP/1.1", b"HTTP/" + version))
            assert connection.recv(12)[9:] == status
