"""The log over HTTP: what caches may keep, which paths there are, and who is refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import pytest

from issuer.codes import Code
from issuer.service.http.bounds import HELD_S, LOG_READ_MS
from issuer.service.http.log import log_routes
from issuer.service.http.openapi import openapi
from issuer.service.http.request_limits import Tarpit
from issuer.service.log.database.engines import reading_at
from issuer.service.log.database.public import PublicLog
from issuer.service.metrics.counts import Board, Counters
from issuer.tlog.tiles import read_entries
from tests.support.http_load import drive
from tests.support.log_store import ORIGIN, Place, sqlite_place
from tests.support.public_log import (
    INFO,
    NAMED,
    URL,
    Sequencer,
    Served,
    Writer,
    asked_for,
    serving,
    size_proved,
    writing,
)
from tests.support.waiting import eventually

SIZE = 300
INTERVAL_MS = 1000 * LOG_READ_MS.per_s / LOG_READ_MS.count
IMMUTABLE = "public, max-age=31536000, immutable"
TILES = (
    "tile/0/000",
    "tile/0/001.p/44",
    "tile/1/000.p/1",
    "tile/entries/000",
    "tile/entries/001.p/3",
    "tile/0/000.p/7",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with sqlite_place(tmp_path_factory.mktemp("public")) as fresh:
        yield fresh


@pytest.fixture(scope="module")
def writer(place: Place) -> Iterator[Writer]:
    with writing(place) as begun:
        begun.grow(SIZE)
        begun.cosign()
        yield begun


@pytest.fixture(scope="module")
def served(place: Place, writer: Writer) -> Iterator[Served]:
    assert writer.entries
    with serving(place.setting) as live:
        yield live


@pytest.mark.parametrize("prefix", [NAMED, "/log"])
def test_all_that_a_reader_needs_is_under_both_prefixes(served: Served, writer: Writer, prefix: str) -> None:
    _, note = writer.store.last_cosigned() or (0, b"")
    assert served.get(f"{prefix}/checkpoint").body == note
    hashes = served.get(f"{prefix}/tile/0/001.p/44").body
    assert hashes == b"".join(entry.hash for entry in writer.entries[256:])
    leaves = served.get(f"{prefix}/tile/entries/001.p/44").body
    assert read_entries(leaves) == tuple(entry.leaf for entry in writer.entries[256:])
    assert size_proved(served.get(f"{prefix}/proof?{asked_for(7)}").body, 7) == SIZE
    assert served.get(f"{prefix}/log.json").body == INFO.to_json()


@pytest.mark.parametrize("path", TILES)
def test_a_tile_is_kept_by_caches_for_ever_and_is_not_sent_to_who_has_it(served: Served, path: str) -> None:
    whole = served.get(f"/log/{path}")
    assert (whole.status, whole.headers["content-type"]) == (200, "application/octet-stream")
    assert whole.headers["cache-control"] == IMMUTABLE
    again = served.get(f"/log/{path}", If_None_Match=f'"x", W/{whole.headers["etag"]}')
    assert (again.status, again.body, again.headers["cache-control"]) == (304, b"", IMMUTABLE)
    assert served.get(f"/log/{path}", If_None_Match='"x"').body == whole.body
    head = served.get(f"/log/{path}", "HEAD")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(whole.body)))


def test_no_cache_keeps_a_checkpoint_unasked(served: Served) -> None:
    whole = served.get("/log/checkpoint")
    assert (whole.status, whole.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert whole.headers["cache-control"] == "no-cache"
    assert served.get("/log/checkpoint", If_None_Match=whole.headers["etag"]).status == 304
    assert served.get("/log/checkpoint", "HEAD").status == 200


NOWHERE = (
    "tile/0/002", "tile/0/001", "tile/0/001.p/45", "tile/1/000.p/2", "tile/2/000.p/1", "tile/entries/001.p/45",
    "tile", "tile/", "tile/0", "tile/0/", "tile/0/000/", "tile/0/000.p", "tile/0/000.p/", "tile/0/000.p/0", "tile/0/000.p/256", "tile/0/000.p/007",
    "tile/0/000.p/-1", "tile/0/000.p/+7", "tile/0/x000/000", "tile/0/0", "tile/0/00", "tile/0/0000", "tile/0/1000", "tile/00/000", "tile/01/000",
    "tile/64/000", "tile/-1/000", "tile/0/000.P/7", "tile/Entries/000", "tile/data/000", "tile//0/000", "tile/0//000", "/tile/0/000", "/checkpoint",
    "tile/0/../0/000", "tile/../tile/0/000", "../log/tile/0/000", "tile/./0/000", "./checkpoint", "tile/0/%30%30%30", "tile%2f0%2f000", "%74ile/0/000",
    "tile/0/000%2ep/7", "tile/0/..%2f000", "tile/0/000%00", "tile/0/000%0a", "check%70oint", "checkpoint/", "checkpoint/x", "proof/", "log.json/",
    "log%2ejson", "log.js", "tile/0/x999/x999/x999/x999/x999/x999/999", "tile/0/" + "x999/" * 2000 + "999", "tile/0/" + "9" * 8000,
    "tile/\xd9\xa0/000", "tile/0/\xd9\xa0\xd9\xa0\xd9\xa0",
)  # fmt: skip


@pytest.mark.parametrize("prefix", [NAMED, "/log"])
def test_a_path_in_any_other_spelling_is_nowhere_and_no_cache_remembers_that(served: Served, prefix: str) -> None:
    for path in NOWHERE:
        sent = f"{prefix}/{path}".encode("latin-1")
        request = b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % sent
        answer = served.send(request)
        if not sent.isascii():
            assert answer.startswith(b"HTTP/1.1 400 "), path
            continue
        assert answer.startswith(b"HTTP/1.1 404 "), (path, answer[:200])
        assert b"\r\ncache-control: no-store\r\n" in answer.lower(), path
        assert b'"code":"request.not_found"' in answer, path


def test_what_is_committed_is_there_at_once(served: Served, tmp_path: Path) -> None:
    with sqlite_place(tmp_path) as place, writing(place) as writer, serving(place.setting) as live:
        not_yet = live.get("/log/checkpoint")
        assert (not_yet.status, not_yet.headers["access-control-allow-origin"]) == (503, "*"), "pages may read it, too"
        for size in range(1, 4):
            path = f"/log/tile/0/000.p/{size}"
            absent = live.get(path)
            assert (absent.status, absent.headers["access-control-allow-origin"]) == (404, "*")
            writer.grow(1)
            found = live.get(path)
            assert (found.status, found.headers["access-control-allow-origin"]) == (200, "*")
        note = writer.cosign()
        eventually(lambda: live.get("/log/checkpoint").body == note)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["checkpoint", "tile/0/000", "proof", "log.json"])
def test_nothing_is_taken_here(served: Served, method: str, path: str) -> None:
    answer = served.get(f"/log/{path}", method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")


async def test_the_pages_are_described_once_and_what_is_asked_for_has_its_parameters(place: Place) -> None:
    log = PublicLog(ORIGIN, partial(reading_at, place.setting))
    handlers = log_routes(log, INFO, Sequencer().check, Tarpit(URL), Counters(Board().rows[0]))
    paths = msgspec.json.decode(openapi(handlers))["paths"]
    await log.aclose()
    assert set(paths) == {"/log/checkpoint", "/log/tile/{path}", "/log/proof", "/log/log.json"}
    assert {path: [each["name"] for each in paths[path]["get"].get("parameters", [])] for path in paths} == {
        "/log/checkpoint": [],
        "/log/tile/{path}": ["path"],
        "/log/proof": ["iat", "token", "size"],
        "/log/log.json": [],
    }
    assert all(
        {"200", "429", "503"} <= set(paths[path]["get"]["responses"]) for path in paths if path != "/log/log.json"
    )


# -- proofs --------------------------------------------------------------------------------------------------------------


def test_a_proof_may_be_kept(served: Served) -> None:
    whole = served.get(f"/log/proof?{asked_for(299)}")
    assert (whole.status, whole.headers["cache-control"]) == (200, "public, max-age=3600")
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert served.get(f"/log/proof?{asked_for(299)}&size={SIZE}").body == whole.body


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        (asked_for(SIZE), 404, Code.LOG_NO_LEAF),
        (f"{asked_for(0)}&size=299", 400, Code.REQUEST_QUERY),
        (f"{asked_for(0)}&size=0", 400, Code.REQUEST_QUERY),
        (asked_for(0).upper(), 400, Code.REQUEST_QUERY),
        ("", 400, Code.REQUEST_QUERY),
    ],
)
def test_what_has_no_proof_is_told_why_and_no_cache_remembers_it(
    served: Served, query: str, status: int, code: Code
) -> None:
    answer = served.get(f"/log/proof?{query}")
    assert (answer.status, msgspec.json.decode(answer.body)["code"]) == (status, code)
    assert answer.headers["cache-control"] == "no-store"


def test_a_leaf_that_is_not_cosigned_yet_is_to_be_asked_for_again(tmp_path: Path) -> None:
    with sqlite_place(tmp_path) as place, writing(place) as writer, serving(place.setting) as live:
        writer.grow(1)
        answer = live.get(f"/log/proof?{asked_for(0)}")
        problem = msgspec.json.decode(answer.body)
        assert (answer.status, answer.headers["retry-after"], problem["code"]) == (503, "1", Code.LOG_PENDING)
        assert problem["retryable"]
        writer.cosign()
        assert live.get(f"/log/proof?{asked_for(0)}").status == 200


def test_that_a_leaf_is_not_there_is_said_only_while_the_log_could_be_written(served: Served) -> None:
    """What this process reads may be an old copy of the database, which it has never seen newer; the sequencer knows."""
    absent = f"/log/proof?{asked_for(SIZE)}"
    assert served.get(absent).status == 404
    served.sequencer.could_append = False
    try:
        eventually(lambda: served.get(absent).status != 404)
        answer = served.get(absent)
        assert (answer.status, msgspec.json.decode(answer.body)["code"]) == (503, Code.DEPENDENCY_LOG)
        assert served.get(f"/log/proof?{asked_for(0)}").status == 200, "what is there is there"
        assert served.get("/log/tile/0/000").status == 200
    finally:
        served.sequencer.could_append = True
    eventually(lambda: served.get(absent).status == 404)


def test_a_database_that_is_away_is_no_verdict_and_no_tile_is_said_to_be_missing(tmp_path: Path) -> None:
    with serving(str(tmp_path / "none.sqlite")) as live:
        for path in ("checkpoint", "tile/0/000", f"proof?{asked_for(0)}"):
            answer = live.get(f"/log/{path}")
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert msgspec.json.decode(answer.body)["code"] == Code.DEPENDENCY_LOG_READ
            assert str(tmp_path).encode() not in answer.body
        assert live.get("/log/log.json").status == 200


# -- who pays ------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("path", ["tile/0/000", "checkpoint"])
def test_who_reads_more_than_an_address_may_is_held_back(place: Place, writer: Writer, path: str) -> None:
    assert writer.entries
    get = f"GET /log/{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with serving(place.setting) as live:
        run = drive(live.port, [get] * (LOG_READ_MS.burst * 2), 64)
    assert run.statuses.keys() <= {200, 404, 429, 503}
    assert run.statuses[429] > 0
    assert run.statuses.total() - run.statuses[429] <= LOG_READ_MS.burst + (run.wall_s + 1) * 1000 / INTERVAL_MS
    assert max(run.taken_s) > HELD_S


def test_many_who_ask_at_once_are_all_answered(place: Place, writer: Writer) -> None:
    assert writer.entries
    with serving(place.setting) as live, ThreadPoolExecutor(16) as pool:
        paths = [f"/log/{path}" for path in (*TILES, "checkpoint", f"proof?{asked_for(3)}")] * 8
        assert {answer.status for answer in pool.map(live.get, paths)} == {200}
