"""What anybody may ask for: written beforehand, the same for all, and no way to keep callers from their tokens."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgspec
import pytest

from issuer.codes import Code
from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from issuer.errors import Undecided
from issuer.io.shared_answers import SharedAnswers
from issuer.page.site import site
from tests.support.http_load import drive, request
from tests.support.judging import write_trust
from tests.support.log_store import sqlite_place
from tests.support.public_log import asked_for, writing
from tests.support.running import Running, numbered, rewrite, running, write_folder

DOCUMENTS = (
    "/.well-known/jwks.json", "/.well-known/jwks-archive.json", "/.well-known/eval-token-issuer", "/openapi.json",
    "/errors", "/errors/internal",
    "/schemas/policy.json", "/integrations/inspect-ai/requirements", "/",
    "/ui", "/ui/", "/ui/refused",
)  # fmt: skip


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    folder, port = tmp_path_factory.mktemp("public"), free_port()
    write_folder(folder, provider)
    rewrite(folder, r"^limits:", "public: true\nlimits:")
    with running(folder, provider, port=port, trust=str(write_trust(folder, f"http://127.0.0.1:{port}"))) as live:
        yield live


@pytest.mark.parametrize("path", DOCUMENTS)
def test_a_public_document_has_a_strong_etag_and_is_not_sent_to_who_has_it(public: Running, path: str) -> None:
    whole = public.http.get(path)
    etag = whole.headers["etag"]
    assert whole.status_code == 200
    assert etag.startswith('"')
    assert "max-age" in whole.headers["cache-control"]
    again = public.http.get(path, headers={"If-None-Match": etag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    head = public.http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("etag", "content-type", "cache-control", "content-length"):
        assert head.headers[name] == whole.headers[name]


def test_pages_for_people_are_served_under_the_headers_that_they_come_with(public: Running) -> None:
    for path, file in site(public.url, has_log=False).items():
        answer = public.http.get(path)
        assert (answer.status_code, answer.content) == (200, file.body)
        assert answer.headers["content-type"] == file.media_type
        assert {name: answer.headers[name] for name in file.headers} == file.headers
        assert "set-cookie" not in answer.headers
    for other in ("/ui/other", "/ui/refused/", "/ui/%72efused", "/ui/static/0000000000000000/ui/dom.js"):
        assert public.http.get(other).status_code == 404


def test_nothing_is_at_a_path_that_the_framework_made(public: Running) -> None:
    """Litestar serves pages of its own around an OpenAPI document, HTML where something is missing."""
    paths = (
        "/openapi.json/x", "/openapi.json/openapi.json", "/openapi.json/", "/openapi.yaml", "/openapi.yml", "/openapi",
        "/schema", "/schema/x", "/schema/openapi.json", "/schema/swagger", "/docs", "/redoc", "/static/x", "/errors/x",
        "/schemas/x", "/schemas/policy", "/schemas/.json", "/errors/INTERNAL", "/errors/%3Cscript%3E", "/errors/internal%0A",
    )  # fmt: skip
    for path in paths:
        answer = public.http.get(path)
        if answer.status_code == 200:
            assert path == "/openapi.json/", "the same document"
            continue
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), path
        assert answer.json()["code"] == Code.REQUEST_NOT_FOUND


def test_every_path_that_is_served_is_described_or_a_page(public: Running) -> None:
    described = public.http.get("/openapi.json").json()["paths"]
    assert set(described) == {
        "/tokens", "/tokens/batch", "/tokens/explain", "/verify", "/health/live", "/health/ready", "/health/stops", "/schemas/{name}",
        "/.well-known/jwks.json", "/.well-known/jwks-archive.json",
        "/.well-known/revocations.json", "/.well-known/revocation-keys.json",
        "/.well-known/eval-token-issuer", "/integrations/{integration}/requirements",
    }  # fmt: skip
    assert [each["name"] for each in described["/schemas/{name}"]["get"]["parameters"]] == ["name"]


# -- pages of other origins -------------------------------------------------------------------------------------------------


PAGE = {"Origin": "https://leaderboard.example"}
ASKS_FIRST = {**PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}


def allowed(answer: httpx.Response) -> str | None:
    assert "access-control-allow-credentials" not in answer.headers
    found = answer.headers.get("access-control-allow-origin")
    return found if found is None else str(found)


@pytest.mark.parametrize("path", [*DOCUMENTS, "/errors/none", "/schemas/none", "/.well-known/revocations.json"])
def test_a_page_of_another_origin_may_read_what_is_public(public: Running, path: str) -> None:
    answer = public.http.get(path, headers=PAGE)
    assert allowed(answer) == "*", "whether it is there or not"
    if answer.status_code == 200:
        assert allowed(public.http.get(path, headers={**PAGE, "If-None-Match": answer.headers["etag"]})) == "*"


def test_a_page_of_another_origin_may_ask_for_a_verdict(public: Running) -> None:
    first = public.http.request("OPTIONS", "/verify", headers=ASKS_FIRST)
    assert (first.status_code, first.content, allowed(first)) == (204, b"", "*")
    assert first.headers["access-control-allow-methods"] == "POST"
    assert first.headers["access-control-allow-headers"] == "Content-Type"
    entry = public.post(public.token()).json()["entry"]
    question = {"yaml": entry, "repo": "acme/open-model", "path": ".eval_results/gsm8k.yaml"}
    answer = public.http.post("/verify", json=question, headers=PAGE)
    assert (answer.status_code, allowed(answer)) == (200, "*")
    refused = public.http.post("/verify", content=b"{", headers={**PAGE, "Content-Type": "application/json"})
    assert (refused.status_code, allowed(refused)) == (400, "*")


@pytest.mark.parametrize("path", ["/tokens", "/tokens/batch", "/tokens/explain"])
def test_no_page_may_ask_for_a_token(public: Running, path: str) -> None:
    first = public.http.request("OPTIONS", path, headers=ASKS_FIRST)
    for answer in (
        first, public.http.get(path, headers=PAGE), public.post(None, path=path, **PAGE), public.post("x", path=path, **PAGE),
        public.post(public.token(), path=path, **PAGE),
    ):  # fmt: skip
        assert not [name for name in answer.headers if name.startswith("access-control")], answer.status_code


# -- the first page ---------------------------------------------------------------------------------------------------------


def test_a_person_gets_a_page_and_a_machine_the_metadata(public: Running) -> None:
    page = public.http.get("/", headers={"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"})
    assert (page.status_code, page.headers["content-type"], page.headers["vary"]) == (
        200,
        "text/html; charset=utf-8",
        "Accept",
    )
    assert "<script" not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none';")
    assert f"--issuer {public.url}" in page.text
    assert "POST /verify" in page.text
    metadata = public.http.get("/.well-known/eval-token-issuer")
    assert public.http.get("/", headers={"Accept": "application/json"}).content == metadata.content
    answer = public.http.get("/", headers={"Accept": "*/*"})
    assert (answer.content, answer.headers["content-type"]) == (metadata.content, "application/json")
    assert answer.headers["vary"] == "Accept"
    unchanged = public.http.get("/", headers={"If-None-Match": answer.headers["etag"]})
    assert (unchanged.status_code, unchanged.headers["vary"]) == (304, "Accept")
    refused = public.http.post("/")
    assert (refused.status_code, refused.headers["content-type"]) == (405, "application/problem+json")


def test_every_link_of_the_first_page_leads_somewhere(public: Running) -> None:
    links = re.findall('href="([^"]*)"', public.http.get("/", headers={"Accept": "text/html"}).text)
    assert len(links) == 12
    statuses = {link: public.http.get(link).status_code for link in links}
    assert statuses.pop("/.well-known/revocations.json") == 404, "nothing was revoked"
    assert set(statuses.values()) == {200}


# -- readiness ------------------------------------------------------------------------------------------------------------


async def test_all_who_ask_share_one_look_and_it_is_kept() -> None:
    looks = itertools.count(1)
    found: asyncio.Event = asyncio.Event()

    async def look() -> int:
        number = next(looks)
        await found.wait()
        if number > 1:
            raise Undecided(Code.DEPENDENCY_STATE)
        return number

    shared: SharedAnswers[str, int] = SharedAnswers(Code.SERVICE_BUSY, kept_s=0.1)
    first, *others = [asyncio.create_task(shared.find("ready", look)) for _ in range(50)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    found.set()
    assert await asyncio.gather(*others) == [1] * 49
    assert await shared.find("ready", look) == 1
    await asyncio.sleep(0.15)
    for _ in range(2):
        with pytest.raises(Undecided):
            await shared.find("ready", look)
    assert next(looks) == 3


def crowd(
    live: Running, sent: Iterator[bytes], connections: int, there: threading.Event, over: threading.Event
) -> Counter[int]:
    """Ask over this many connections, each again after its answer; say when all are there."""

    def ask() -> Iterator[bytes]:
        for number, each in enumerate(itertools.takewhile(lambda _: not over.is_set(), sent)):
            if number == connections + 1:
                there.set()
            yield each

    return drive(live.settings.listen.port, ask(), connections).statuses


def refused_beside(live: Running, sent: Iterator[bytes], connections: int, count: int) -> Counter[int]:
    """Send good requests, four at a time, beside a crowd; return their statuses."""
    there, over = threading.Event(), threading.Event()
    good = [request("/tokens", live.token(), msgspec.json.encode(numbered(number))) for number in range(count)]
    with ThreadPoolExecutor(1) as pool:
        crowding = pool.submit(crowd, live, sent, connections, there, over)
        try:
            assert there.wait(60)
            return drive(live.settings.listen.port, good, 4).statuses
        finally:
            over.set()
            crowding.result()


def asked(path: str) -> bytes:
    if path == "/verify":
        return request(path, "", msgspec.json.encode({"repo": "a/b", "path": ".eval_results/b.yaml", "yaml": "[]"}))
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def test_readiness_that_many_ask_for_keeps_no_caller_from_its_token(public: Running) -> None:
    assert public.post(public.token()).status_code == 201
    assert refused_beside(public, itertools.repeat(asked("/health/ready")), 150, 30) == {201: 30}


@pytest.mark.parametrize("path", ["/tokens", "/tokens/nothing"])
def test_300_connections_that_ask_beside_the_endpoints_for_tokens_keep_no_caller_from_its_token(
    public: Running, path: str
) -> None:
    assert public.post(public.token()).status_code == 201
    assert refused_beside(public, itertools.repeat(asked(path)), 300, 60) == {201: 60}


@pytest.mark.long
@pytest.mark.parametrize("path", [*DOCUMENTS, "/health/live", "/health/ready", "/verify", "/nothing"])
def test_300_connections_on_a_public_endpoint_keep_no_caller_from_its_token(public: Running, path: str) -> None:
    assert public.post(public.token()).status_code == 201
    assert refused_beside(public, itertools.repeat(asked(path)), 300, 100) == {201: 100}


@pytest.fixture(scope="module")
def beside_a_log(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    """A service with the public side of a log of a thousand leaves; a proxy tells it who reads."""
    folder = tmp_path_factory.mktemp("beside-a-log")
    with sqlite_place(folder) as place, writing(place) as writer:
        writer.grow(1000)
        writer.cosign()
        command = ("-m", "tests.support.public_log", place.setting)
        with running(folder, provider, command=command, listen_trusted_proxies="127.0.0.1") as live:
            yield live


def readers_of(path: str, addresses: int) -> Iterator[bytes]:
    """Return requests from so many addresses in turn."""
    for number in itertools.count():
        yield f"GET {path} HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 10.0.0.{number % addresses}\r\n\r\n".encode()


def test_300_connections_that_read_the_log_keep_no_caller_from_its_token(beside_a_log: Running) -> None:
    assert beside_a_log.post(beside_a_log.token()).status_code == 201
    assert refused_beside(beside_a_log, readers_of("/log/tile/0/000", 1), 300, 60) == {201: 60}


@pytest.mark.long
@pytest.mark.parametrize("addresses", [1, 200])
@pytest.mark.parametrize(
    "path",
    [
        "/log/tile/0/000",
        "/log/tile/entries/000",
        "/log/tile/0/999",
        "/log/tile/x",
        "/log/checkpoint",
        "/log/log.json",
        f"/log/proof?{asked_for(7)}",
        f"/log/proof?{asked_for(1000)}",
        "/log/proof",
    ],
    ids=lambda path: str(path).partition("?")[0],
)
def test_300_connections_on_each_page_of_the_log_keep_no_caller_from_its_token(
    beside_a_log: Running, path: str, addresses: int
) -> None:
    """From one address, most of which is held back; and from many, which together use up all that readers may."""
    assert beside_a_log.post(beside_a_log.token()).status_code == 201
    assert refused_beside(beside_a_log, readers_of(path, addresses), 300, 100) == {201: 100}


@pytest.mark.long
def test_60_worst_questions_at_once_from_one_address_keep_no_caller_from_its_token(public: Running) -> None:
    text = "- {dataset: {id: a/b}, x: [" + '"abc\\u0061",' * 1900 + "1]}\n"
    worst = request("/verify", "", msgspec.json.encode({"repo": "a/b", "path": ".eval_results/b.yaml", "yaml": text}))
    assert public.post(public.token()).status_code == 201
    assert refused_beside(public, itertools.repeat(worst), 60, 300) == {201: 300}
