"""The log over HTTP: its paths, what caches may keep, and the limits of readers."""

import itertools
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
from tests.support import public_log
from tests.support.http_load import drive
from tests.support.log_store import ORIGIN, Place, sqlite_place
from tests.support.public_log import INFO, NAMED, URL, Served, Writer, asked_for, serving, writing
from tests.support.waiting import eventually

SIZE = 300
INTERVAL_MS = 1000 * LOG_READ_MS.per_s / LOG_READ_MS.count
IMMUTABLE = "public, max-age=31536000, immutable"
TILES = (
    "tile/0/000", "tile/0/001.p/44", "tile/1/000.p/1", "tile/entries/000", "tile/entries/001.p/3", "tile/0/000.p/7",
)  # fmt: skip


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


def test_a_reader_finds_everything_under_both_prefixes(served: Served, writer: Writer) -> None:
    _, note = writer.store.last_cosigned() or (0, b"")
    for prefix in (NAMED, "/log"):
        assert served.get(f"{prefix}/checkpoint").body == note
        hashes = served.get(f"{prefix}/tile/0/001.p/44").body
        assert hashes == b"".join(entry.hash for entry in writer.entries[256:])
        leaves = served.get(f"{prefix}/tile/entries/001.p/44").body
        assert read_entries(leaves) == tuple(entry.leaf for entry in writer.entries[256:])
        assert public_log.size_proved(served.get(f"{prefix}/proof?{asked_for(7)}").body, 7) == SIZE
        assert served.get(f"{prefix}/log.json").body == INFO.to_json()


def test_caches_keep_a_tile_for_ever(served: Served) -> None:
    for path in TILES:
        whole = served.get(f"/log/{path}")
        assert (whole.status, whole.headers["content-type"]) == (200, "application/octet-stream")
        assert whole.headers["cache-control"] == IMMUTABLE
        again = served.get(f"/log/{path}", If_None_Match=f'"x", W/{whole.headers["etag"]}')
        assert (again.status, again.body, again.headers["cache-control"]) == (304, b"", IMMUTABLE)
        assert served.get(f"/log/{path}", If_None_Match='"x"').body == whole.body
        head = served.get(f"/log/{path}", "HEAD")
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(whole.body)))


def test_caches_revalidate_a_checkpoint(served: Served) -> None:
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
    "log%2ejson", "log.js", "tile/0/x999/x999/x999/x999/x999/x999/999", "tile/0/" + "x999/" * 300 + "999", "tile/0/" + "9" * 1900,
    "tile/\xd9\xa0/000", "tile/0/\xd9\xa0\xd9\xa0\xd9\xa0",
)  # fmt: skip


def test_any_other_spelling_of_a_path_is_absent_and_not_cached(served: Served) -> None:
    for prefix, path in itertools.product((NAMED, "/log"), NOWHERE):
        sent = f"{prefix}/{path}".encode("latin-1")
        answer = served.send(b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % sent)
        if not sent.isascii():
            assert answer.startswith(b"HTTP/1.1 400 "), path
            continue
        assert answer.startswith(b"HTTP/1.1 404 "), (path, answer[:200])
        assert b"\r\ncache-control: no-store\r\n" in answer.lower(), path
        assert b'"code":"request.not_found"' in answer, path


def test_committed_leaves_are_served_at_once_and_their_proofs_once_they_are_cosigned(tmp_path: Path) -> None:
    with sqlite_place(tmp_path) as place, writing(place) as writer, serving(place.setting) as live:
        not_yet = live.get("/log/checkpoint")
        assert (not_yet.status, not_yet.headers["access-control-allow-origin"]) == (503, "*"), (
            "pages may read that it is missing"
        )
        for size in range(1, 4):
            path = f"/log/tile/0/000.p/{size}"
            absent = live.get(path)
            assert (absent.status, absent.headers["access-control-allow-origin"]) == (404, "*")
            writer.grow(1)
            found = live.get(path)
            assert (found.status, found.headers["access-control-allow-origin"]) == (200, "*")
        pending = live.get(f"/log/proof?{asked_for(0)}")
        problem = msgspec.json.decode(pending.body)
        assert (pending.status, pending.headers["retry-after"], problem["code"]) == (503, "1", Code.LOG_PENDING)
        assert problem["retryable"]
        note = writer.cosign()
        assert live.get(f"/log/proof?{asked_for(0)}").status == 200
        eventually(lambda: live.get("/log/checkpoint").body == note)


def test_the_log_over_http_is_read_only(served: Served) -> None:
    for path in ("checkpoint", "tile/0/000", "proof", "log.json"):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            answer = served.get(f"/log/{path}", method)
            assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")


async def test_openapi_describes_the_log_with_its_parameters(place: Place) -> None:
    log = PublicLog(ORIGIN, partial(reading_at, place.setting))
    handlers = log_routes(log, INFO, public_log.Sequencer().check, Tarpit(URL), Counters(Board().rows[0]))
    paths = msgspec.json.decode(openapi(handlers))["paths"]
    await log.aclose()
    assert {path: [each["name"] for each in paths[path]["get"].get("parameters", [])] for path in paths} == {
        "/log/checkpoint": [], "/log/tile/{path}": ["path"], "/log/proof": ["iat", "token", "size"],
        "/log/log.json": [],
    }  # fmt: skip
    assert all(
        {"200", "429", "503"} <= set(paths[path]["get"]["responses"]) for path in paths if path != "/log/log.json"
    )


def test_caches_keep_a_proof_for_an_hour_and_no_refusal(served: Served) -> None:
    whole = served.get(f"/log/proof?{asked_for(299)}")
    assert (whole.status, whole.headers["cache-control"]) == (200, "public, max-age=3600")
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert served.get(f"/log/proof?{asked_for(299)}&size={SIZE}").body == whole.body
    for query, status, code in (
        (asked_for(SIZE), 404, Code.LOG_NO_LEAF), (f"{asked_for(0)}&size=299", 400, Code.REQUEST_QUERY),
        (f"{asked_for(0)}&size=0", 400, Code.REQUEST_QUERY), (asked_for(0).upper(), 400, Code.REQUEST_QUERY),
        ("", 400, Code.REQUEST_QUERY),
    ):  # fmt: skip
        answer = served.get(f"/log/proof?{query}")
        assert (answer.status, msgspec.json.decode(answer.body)["code"]) == (status, code), query
        assert answer.headers["cache-control"] == "no-store"


def test_a_leaf_is_said_to_be_absent_only_while_the_log_can_be_written(served: Served) -> None:
    """This process may read an old copy of the database without knowing; the sequencer knows."""
    absent = f"/log/proof?{asked_for(SIZE)}"
    assert served.get(absent).status == 404
    served.sequencer.could_append = False
    try:
        eventually(lambda: served.get(absent).status != 404)
        answer = served.get(absent)
        assert (answer.status, msgspec.json.decode(answer.body)["code"]) == (503, Code.DEPENDENCY_LOG)
        assert served.get(f"/log/proof?{asked_for(0)}").status == 200, "a leaf that was found exists"
        assert served.get("/log/tile/0/000").status == 200
    finally:
        served.sequencer.could_append = True
    eventually(lambda: served.get(absent).status == 404)


def test_no_tile_is_said_to_be_absent_while_the_database_is_away(tmp_path: Path) -> None:
    with serving(str(tmp_path / "none.sqlite")) as live:
        for path in ("checkpoint", "tile/0/000", f"proof?{asked_for(0)}"):
            answer = live.get(f"/log/{path}")
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert msgspec.json.decode(answer.body)["code"] == Code.DEPENDENCY_LOG_READ
            assert str(tmp_path).encode() not in answer.body
        assert live.get("/log/log.json").status == 200


@pytest.mark.long
@pytest.mark.parametrize("path", ["tile/0/000", "checkpoint"])
def test_an_address_that_reads_too_much_is_held_back(place: Place, writer: Writer, path: str) -> None:
    assert writer.entries
    get = f"GET /log/{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with serving(place.setting) as live:
        run = drive(live.port, [get] * (LOG_READ_MS.burst * 2), 64)
    assert run.statuses.keys() <= {200, 404, 429, 503}
    assert run.statuses[429] > 0
    assert run.statuses.total() - run.statuses[429] <= LOG_READ_MS.burst + (run.wall_s + 1) * 1000 / INTERVAL_MS
    assert max(run.taken_s) > HELD_S


def test_readers_at_once_are_all_answered(place: Place, writer: Writer) -> None:
    assert writer.entries
    with serving(place.setting) as live, ThreadPoolExecutor(16) as pool:
        paths = [f"/log/{path}" for path in (*TILES, "checkpoint", f"proof?{asked_for(3)}")] * 8
        assert {answer.status for answer in pool.map(live.get, paths)} == {200}
