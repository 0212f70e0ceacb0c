"""What a request is repeated for, when, how often, and for how long, against a real server that misbehaves."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.client.http import ATTEMPTS, RETRIED, Answer, NoAnswer, check_url, send_until_decided
from issuer.dev.sandbox import free_port
from issuer.errors import SetupError, Undecided
from tests.client.scripted import Action, Scripted, drip, hang_up, reply, reset, stall

GOOD = reply(200, {"good": True})
AT_ONCE = {"Retry_After": "0"}


def ask(server: Scripted, *, patience_s: float = 20, max_bytes: int = 10_000) -> Answer:
    return send_until_decided(
        "POST", f"{server.url}/path", headers={"X-Test": "1"}, body=b"body", patience_s=patience_s, max_bytes=max_bytes
    )


# -- what is repeated ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", sorted(RETRIED))
def test_429_and_502_to_504_are_repeated_with_the_same_bytes(status: int) -> None:
    with Scripted([reply(status, **AT_ONCE), reply(status, **AT_ONCE), GOOD]) as server:
        assert ask(server).status == 200
    assert len(server.seen) == 3
    assert server.seen[0].raw == server.seen[1].raw == server.seen[2].raw


def test_no_other_status_is_repeated() -> None:
    assert sorted(RETRIED) == [429, 502, 503, 504]
    for status in (
        200,
        201,
        204,
        301,
        302,
        307,
        308,
        400,
        401,
        403,
        404,
        408,
        409,
        413,
        422,
        425,
        500,
        501,
        505,
        507,
        599,
    ):
        with Scripted([reply(status, **AT_ONCE, Location="/other")]) as server:
            assert ask(server).status == status
        assert len(server.seen) == 1, status


CUT_OFF = reply(200, b"0123456789").replace(b"Content-Length: 10", b"Content-Length: 20")
LONG_LINE = b"HTTP/1.1 200 " + b"x" * 70_000 + b"\r\n\r\n"
MANY_HEADERS = b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n"
CUT_CHUNK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc"


@pytest.mark.parametrize(
    "fault",
    [hang_up, reset, CUT_OFF, CUT_CHUNK, LONG_LINE, MANY_HEADERS, b"", b"HTTP/1.1 20", b"SSH-2.0-x\r\n\r\n"],
    ids=["hung up", "reset", "cut off", "cut chunk", "long line", "many headers", "nothing", "half", "not HTTP"],
)
def test_a_lost_connection_is_repeated_with_the_same_bytes(fault: Action) -> None:
    with Scripted([fault, GOOD]) as server:
        assert ask(server).status == 200
    assert len(server.seen) == 2
    assert server.seen[0].raw == server.seen[1].raw


def test_a_server_that_is_not_there_is_asked_again_within_the_time() -> None:
    url, began = f"http://127.0.0.1:{free_port()}", time.monotonic()
    with pytest.raises(NoAnswer):
        send_until_decided("GET", url, headers={}, patience_s=1.5)
    assert 1 <= time.monotonic() - began < 2, "the second attempt was made, the third was not waited for"


def test_an_answer_that_is_too_large_is_not_asked_for_again() -> None:
    with Scripted([reply(200, b"x" * 10_001), GOOD]) as server, pytest.raises(Undecided) as caught:
        ask(server)
    assert not isinstance(caught.value, NoAnswer)
    assert len(server.seen) == 1


def test_a_redirect_is_not_followed() -> None:
    with Scripted([GOOD]) as elsewhere:
        for status in (301, 302, 303, 307, 308):
            with Scripted([reply(status, Location=elsewhere.url)]) as server:
                assert ask(server).status == status
    assert elsewhere.seen == []


# -- how often, and for how long ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [reply(503, **AT_ONCE), reply(429, **AT_ONCE)])
def test_attempts_are_bounded_in_number(fault: Action) -> None:
    with Scripted([fault]) as server:
        assert ask(server).status in RETRIED
    assert len(server.seen) == ATTEMPTS


def test_lost_connections_are_bounded_in_number() -> None:
    with Scripted([hang_up]) as server, pytest.raises(NoAnswer):
        ask(server)
    assert len(server.seen) == ATTEMPTS


@pytest.mark.parametrize("fault", [stall, drip])
def test_all_attempts_together_are_bounded_in_time(fault: Action) -> None:
    began = time.monotonic()
    with Scripted([fault]) as server, pytest.raises(NoAnswer):
        ask(server, patience_s=1)
    assert 0.9 < time.monotonic() - began < 2


def test_the_last_attempts_have_what_is_left_of_the_time() -> None:
    began = time.monotonic()
    with Scripted([reply(503, Retry_After="1"), stall]) as server, pytest.raises(NoAnswer):
        ask(server, patience_s=2)
    assert time.monotonic() - began < 3
    assert len(server.seen) == 2


# -- Retry-After ----------------------------------------------------------------------------------------------------------


def in_seconds(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


def test_retry_after_in_seconds_is_waited_for() -> None:
    with Scripted([reply(503, Retry_After="2"), GOOD]) as server:
        assert ask(server).status == 200
    assert 2 <= server.gaps[0] < 3


def test_retry_after_as_a_date_is_waited_for() -> None:
    with Scripted([reply(429, Retry_After=in_seconds(3)), GOOD]) as server:
        assert ask(server).status == 200
    assert 2 <= server.gaps[0] < 4, "a date has whole seconds"


@pytest.mark.parametrize(
    "past", ["0", "00", in_seconds(-60), "Thu, 01 Jan 1970 00:00:00 GMT"], ids=["0", "00", "a minute ago", "1970"]
)
def test_retry_after_now_is_not_waited_for(past: str) -> None:
    with Scripted([reply(503, Retry_After=past), GOOD]) as server:
        ask(server)
    assert server.gaps[0] < 0.9


@pytest.mark.parametrize("text", ["", "-1", "soon", "1.5", "\xb2", "1, 2", "Thu, 99 Jan 2027 00:00:00 GMT"])
def test_what_is_no_retry_after_counts_as_none(text: str) -> None:
    with Scripted([reply(503, Retry_After=text), GOOD]) as server:
        ask(server)
    assert 1 <= server.gaps[0] < 2


@pytest.mark.parametrize("text", ["3", "3600", "9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_it_gives_up_at_once_where_retry_after_is_later_than_it_may_wait(text: str) -> None:
    """To come back earlier than it was told to would be no honouring."""
    began = time.monotonic()
    with Scripted([reply(503, Retry_After=text), GOOD]) as server:
        assert ask(server, patience_s=2).status == 503
    assert time.monotonic() - began < 1
    assert len(server.seen) == 1


def test_without_retry_after_each_wait_is_longer() -> None:
    with Scripted([reply(502), hang_up, GOOD]) as server:
        ask(server)
    assert 1 <= server.gaps[0] < 1.9
    assert 2 <= server.gaps[1] < 2.9


@given(
    st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d{1,3} [A-Z][a-z]{2} \d{1,5} \d{1,3}:\d{1,3}:\d{1,3} [-+A-Z0-9]{1,6}")
)
def test_no_retry_after_raises_or_is_negative(text: str) -> None:
    assert (Answer(503, {"retry-after": text}, b"").retry_after_s or 0) >= 0


# -- URLs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["https://id:hush@host", "http://id:hush@host", "hush@host", "https://hush@[", "https://hush@host:0"]
)  # fmt: skip
def test_a_password_in_a_url_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(SetupError) as caught:
        check_url(url)
    assert "hush" not in str(caught.value)


def test_a_url_that_is_not_https_is_told_without_its_query() -> None:
    with pytest.raises(SetupError, match="http://host must be https") as caught:
        check_url("http://host/path?token=hush")
    assert "hush" not in str(caught.value)
