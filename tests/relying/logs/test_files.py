"""A log over HTTP: whatever a server sends, reading it is bounded in time and memory."""

import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest

from issuer.codes import Code
from issuer.errors import SetupError, Undecided, VerificationError
from issuer.relying.logs.reader import HttpFiles, open_log, read_bundle, read_unverified_head
from issuer.relying.logs.reader import Tree as Read
from issuer.tlog.tiles import WIDTH
from tests.support.tlog import ANNOUNCED, LogSite, Tree, token_leaf

TREE = Tree([*ANNOUNCED, *map(token_leaf, range(300))])


def test_a_log_is_read_over_http() -> None:
    with LogSite(TREE.files()) as site:
        log = open_log(f"{site.url}/")
        read = Read(log, read_unverified_head(log).checkpoint)
        assert [leaf for _, leaf in read.leaves()] == TREE.leaves
        assert log.read("tile/0/002", 10) is None
    assert len(site.seen) == len(set(site.seen)), "no file is fetched twice"


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Send a body without end."""
    handler.send_response(200)
    handler.end_headers()
    handler.close_connection = True
    try:
        while True:
            handler.wfile.write(b"\0" * 65536)
    except OSError:
        return


def dripping(handler: BaseHTTPRequestHandler) -> None:
    """Send a byte every 50 ms."""
    handler.send_response(200)
    handler.send_header("Content-Length", "8192")
    handler.end_headers()
    handler.close_connection = True
    try:
        for _ in range(600):
            handler.wfile.write(b"\0")
            time.sleep(0.05)  # a slow peer
    except OSError:
        return


def silent(handler: BaseHTTPRequestHandler) -> None:
    """Close without a word."""
    handler.close_connection = True


def answering(status: int, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """Return an answer of one byte."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": "1"}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(b"x")

    return answer


BROKEN = [
    endless, dripping, silent, answering(302, Location="/log/checkpoint"), answering(429, Retry_After="3600"),
    answering(200, Content_Encoding="gzip"),
]  # fmt: skip


def test_a_broken_answer_ends_in_time_as_undecided() -> None:
    for answer in BROKEN:
        with LogSite(answers={"tile/0/000": answer}) as site:
            with pytest.raises(Undecided) as undecided:
                HttpFiles(site.url, patience_s=0.5).read("tile/0/000", 8192)
            assert undecided.value.code is Code.LOG_UNAVAILABLE


def test_a_huge_bundle_is_not_read() -> None:
    def huge(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(2**40))
        endless(handler)

    with LogSite(answers={"tile/entries/000": huge}) as site, pytest.raises(Undecided, match="larger than"):
        read_bundle(HttpFiles(site.url), 0, WIDTH)


def test_a_malformed_bundle_and_a_url_that_is_not_https_are_refused() -> None:
    for raw in (b"", b"\xff\xffx", b"\0\0" * 300):
        with LogSite({"tile/entries/000": raw}) as site, pytest.raises(VerificationError, match="tile/entries/000"):
            read_bundle(HttpFiles(site.url), 0, WIDTH)
    for url in ("http://log.example/log", "https://a:b@log.example", "https://log.example/?x=1", "https://"):
        with pytest.raises(SetupError):
            open_log(url)
