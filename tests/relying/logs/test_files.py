"""A log over HTTP: whatever a server sends, reading it is bounded in time and memory."""

import os
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.errors import SetupError, Undecided, VerificationError
from issuer.relying.logs.reader import HttpFiles, open_log, read_bundle, read_unverified_head, read_witness_policy
from issuer.relying.logs.reader import Tree as Read
from issuer.tlog.tiles import WIDTH
from issuer.tlog.witness_policy import parse_policy
from tests.support.answering import Handler
from tests.support.tlog import ANNOUNCED, Answer, LogSite, Tree, policy_text, token_leaf

TREE = Tree([*ANNOUNCED, *map(token_leaf, range(300))])


def test_a_log_is_read_over_http() -> None:
    with LogSite(TREE.files()) as site:
        log = open_log(f"{site.url}/")
        read = Read(log, read_unverified_head(log).checkpoint)
        assert [leaf for _, leaf in read.leaves()] == TREE.leaves
        assert log.read("tile/0/002", 10) is None
    assert len(site.seen) == len(set(site.seen)), "no file is fetched twice"


def flowing(handler: Handler, part: bytes = b"\0" * 65536, pause_s: float = 0, length: int = 0) -> None:
    """Send a part of a body again and again, until the reader is gone."""
    handler.send_response(200)
    if length:
        handler.send_header("Content-Length", str(length))
    handler.end_headers()
    handler.close_connection = True
    with suppress(OSError):
        while True:
            handler.wfile.write(part)
            time.sleep(pause_s)  # a slow peer


BROKEN: dict[str, Answer] = {
    "endless": flowing, "dripping": partial(flowing, part=b"\0", pause_s=0.05, length=8192),
    "closed without a word": lambda handler: setattr(handler, "close_connection", True),
    "elsewhere": lambda handler: handler.reply(302, b"x", Location="/log/checkpoint"),
    "too often": lambda handler: handler.reply(429, b"x", Retry_After="3600"),
    "packed": lambda handler: handler.reply(200, b"x", Content_Encoding="gzip"),
}  # fmt: skip


def test_a_broken_answer_ends_in_time_as_undecided() -> None:
    codes: dict[str, Code] = {}
    for name, answer in BROKEN.items():
        with LogSite(answers={"tile/0/000": answer}) as site:
            try:
                HttpFiles(site.url, patience_s=0.5).read("tile/0/000", 8192)
            except Undecided as error:
                codes[name] = error.code
    assert codes == dict.fromkeys(BROKEN, Code.LOG_UNAVAILABLE)


def test_a_witness_policy_may_come_from_a_pipe() -> None:
    read, write = os.pipe()
    os.write(write, policy_text().encode())
    os.close(write)
    assert read_witness_policy(Path(f"/dev/fd/{read}")) == parse_policy(policy_text().encode(), f"/dev/fd/{read}")
    os.close(read)


def test_a_file_that_is_gone_for_good_is_a_missing_one() -> None:
    with LogSite(answers={"tile/0/000": lambda handler: handler.reply(410, b"x")}) as site:
        assert HttpFiles(site.url, patience_s=5).read("tile/0/000", 8192) is None


def test_a_huge_or_malformed_bundle_and_a_url_that_is_not_https_are_refused() -> None:
    huge = {"tile/entries/000": partial(flowing, length=2**40)}
    with LogSite(answers={**huge}) as site, pytest.raises(Undecided, match="larger than"):
        read_bundle(HttpFiles(site.url), 0, WIDTH)
    for raw in (b"", b"\xff\xffx", b"\0\0" * 300):
        with LogSite({"tile/entries/000": raw}) as site, pytest.raises(VerificationError, match="tile/entries/000"):
            read_bundle(HttpFiles(site.url), 0, WIDTH)
    for url in ("http://log.example/log", "https://a:b@log.example", "https://log.example/?x=1", "https://"):
        with pytest.raises(SetupError):
            open_log(url)
