"""Repeated requests: after which answers, when, how often and for how long, against a real server that misbehaves."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from multiprocessing import get_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.errors import Undecided
from issuer.io.http_client import ATTEMPTS, RETRIED, HttpAnswer, HttpRequest, NoAnswer, send, send_until_decided
from tests.support.answering import Handler, serving
from tests.support.scripted import Action, Scripted, drip, hang_up, reply, reset, stall

GOOD = reply(200, {"good": True})
AT_ONCE = {"Retry_After": "0"}


def ask(server: Scripted, *, patience_s: float = 60, max_bytes: int = 10_000) -> HttpAnswer:
    request = HttpRequest("POST", f"{server.url}/path", {"X-Test": "1"}, b"body", max_bytes)
    return send_until_decided(request, patience_s=patience_s)


def test_only_429_and_502_to_504_are_repeated_with_the_same_bytes() -> None:
    assert sorted(RETRIED) == [429, 502, 503, 504]
    for status in RETRIED:
        with Scripted([reply(status, **AT_ONCE), reply(status, **AT_ONCE), GOOD]) as server:
            assert ask(server).status == 200
        assert len(server.seen) == 3
        assert server.seen[0].raw == server.seen[1].raw == server.seen[2].raw
    with Scripted([GOOD]) as elsewhere:
        for status in (200, 204, 301, 302, 303, 307, 308, 400, 401, 404, 408, 409, 422, 425, 500, 501, 505, 599):
            with Scripted([reply(status, **AT_ONCE, Location=elsewhere.url)]) as server:
                assert ask(server).status == status
            assert len(server.seen) == 1, status
    assert elsewhere.seen == []


CUT_OFF = reply(200, b"0123456789").replace(b"Content-Length: 10", b"Content-Length: 20")
LONG_LINE = b"HTTP/1.1 200 " + b"x" * 70_000 + b"\r\n\r\n"
MANY_HEADERS = b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n"
CUT_CHUNK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc"


FAULTS: dict[str, Action] = {
    "hung up": hang_up, "reset": reset, "cut off": CUT_OFF, "cut chunk": CUT_CHUNK, "long line": LONG_LINE,
    "many headers": MANY_HEADERS, "nothing": b"", "half": b"HTTP/1.1 20", "not HTTP": b"SSH-2.0-x\r\n\r\n",
}  # fmt: skip


def test_a_lost_connection_is_repeated_with_the_same_bytes() -> None:
    """All at once: each waits a second for its second attempt."""

    def asked(fault: Action) -> tuple[int, int, bool]:
        with Scripted([fault, GOOD]) as server:
            status = ask(server).status
        return status, len(server.seen), server.seen[0].raw == server.seen[-1].raw

    with ThreadPoolExecutor(len(FAULTS)) as at_once:
        assert dict(zip(FAULTS, at_once.map(asked, FAULTS.values()), strict=True)) == dict.fromkeys(
            FAULTS, (200, 2, True)
        )


def test_an_answer_that_is_too_large_is_not_requested_again() -> None:
    with Scripted([reply(200, b"x" * 10_001), GOOD]) as server, pytest.raises(Undecided) as caught:
        ask(server)
    assert not isinstance(caught.value, NoAnswer)
    assert len(server.seen) == 1


def test_attempts_are_bounded_in_number() -> None:
    with Scripted([reply(503, **AT_ONCE)]) as server:
        assert ask(server).status in RETRIED
    assert len(server.seen) == ATTEMPTS


@pytest.mark.long
def test_lost_connections_are_bounded_in_number() -> None:
    with Scripted([hang_up]) as server, pytest.raises(NoAnswer):
        ask(server, patience_s=60)
    assert len(server.seen) == ATTEMPTS


def time_that_was_left(actions: list[Action], patience_s: float) -> tuple[float, int]:
    """Return what was left of the time before the last attempt, and the number of attempts."""
    with Scripted(actions) as server, pytest.raises(NoAnswer) as caught:
        ask(server, patience_s=patience_s)
    (within,) = re.findall(r"no complete answer from .* within (\S+) s", str(caught.value))
    return float(within), len(server.seen)


def waits(actions: list[Action]) -> list[float]:
    with Scripted(actions) as server:
        assert ask(server).status == 200
    return server.gaps


def time_without_server() -> float:
    began = time.monotonic()
    with pytest.raises(NoAnswer):
        send_until_decided(HttpRequest("GET", "http://127.0.0.1:1"), patience_s=2.5)
    return time.monotonic() - began


def test_attempts_wait_as_told_or_longer_each_time_and_are_bounded_in_time() -> None:
    """All at once: each takes seconds."""
    with ThreadPoolExecutor(6) as at_once:
        stalled, dripped = (at_once.submit(time_that_was_left, [fault], 1) for fault in (stall, drip))
        last = at_once.submit(time_that_was_left, [reply(503, Retry_After="1"), stall], 4)
        told = at_once.submit(waits, [reply(503, Retry_After="2"), GOOD])
        untold = at_once.submit(waits, [reply(502), hang_up, GOOD])
        absent = at_once.submit(time_without_server)
    ended = {"stalled": stalled.result(), "dripped": dripped.result()}
    assert {name: got for name, got in ended.items() if not (0 < got[0] <= 1 and got[1] <= 1)} == {}
    left, attempts = last.result()
    assert (0 < left <= 3, attempts) == (True, 2), "the last attempt has what is left of the time"
    assert told.result()[0] >= 2
    first, second = untold.result()
    assert (first >= 1, second >= 2) == (True, True)
    assert absent.result() >= 1, "it has waited for its second attempt"


def in_seconds(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


def asked_to_wait(text: str) -> int | None:
    return HttpAnswer(503, {"retry-after": text}, b"").retry_after_s


def test_retry_after_may_be_a_date_and_one_in_the_past_is_now_and_a_bad_one_is_none() -> None:
    assert 500 < (asked_to_wait(in_seconds(1000)) or 0) <= 1000
    past = dict.fromkeys(("0", "00", in_seconds(-60), "Thu, 01 Jan 1970 00:00:00 GMT"), 0.0)
    bad = dict.fromkeys(("", "-1", "soon", "1.5", "\xb2", "1, 2", "Thu, 99 Jan 2027 00:00:00 GMT"))
    assert {text: asked_to_wait(text) for text in (*past, *bad)} == {**past, **bad}


def test_it_gives_up_at_once_if_retry_after_is_later_than_it_may_wait() -> None:
    """A retry before the end of Retry-After would ignore it."""
    for text in ("61", "9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"):
        with Scripted([reply(503, Retry_After=text), GOOD]) as server:
            assert ask(server, patience_s=60).status == 503
        assert len(server.seen) == 1


@given(
    st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d{1,3} [A-Z][a-z]{2} \d{1,5} \d{1,3}:\d{1,3}:\d{1,3} [-+A-Z0-9]{1,6}")
)
def test_no_retry_after_raises_or_is_negative(text: str) -> None:
    assert (asked_to_wait(text) or 0) >= 0


class Keeping(Handler):
    """A server that keeps connections open, and answers with the client's port, which identifies a connection."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        self.reply(200, str(self.client_address[1]).encode())


def test_a_forked_process_has_connections_of_its_own() -> None:
    """Two processes on one connection would read each other's answers."""
    with serving(Keeping) as url:
        request = HttpRequest("GET", f"{url}/", {}, max_bytes=100)
        ours = send(request).body
        assert send(request).body == ours, "it is used again"
        with get_context("fork").Pool(1) as pool:
            theirs = pool.apply(send, (request,)).body
        assert theirs != ours
        assert send(request).body == ours
