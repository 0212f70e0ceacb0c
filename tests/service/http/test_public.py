"""Public documents: the same for all, and no flood of requests for them delays a token."""

import itertools
import re
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest

from issuer.codes import Code
from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from issuer.page.site import site
from issuer.policy.authoring.schema import schemas
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


PAGE = {"Origin": "https://leaderboard.example"}
ASKS_FIRST = {**PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}


def allowed(answer: httpx.Response) -> str | None:
    assert "access-control-allow-credentials" not in answer.headers
    found = answer.headers.get("access-control-allow-origin")
    return found if found is None else str(found)


def test_a_public_document_has_a_strong_etag_and_is_open_to_every_page(public: Running) -> None:
    for path in DOCUMENTS:
        whole = public.http.get(path, headers=PAGE)
        etag = whole.headers["etag"]
        assert (whole.status_code, allowed(whole), etag[:1]) == (200, "*", '"')
        assert "max-age" in whole.headers["cache-control"]
        again = public.http.get(path, headers={**PAGE, "If-None-Match": etag})
        assert (again.status_code, again.content, again.headers["etag"], allowed(again)) == (304, b"", etag, "*")
        head = public.http.head(path)
        assert (head.status_code, head.content) == (200, b"")
        for name in ("etag", "content-type", "cache-control", "content-length"):
            assert head.headers[name] == whole.headers[name]
    for absent in ("/errors/none", "/schemas/none", "/.well-known/revocations.json"):
        answer = public.http.get(absent, headers=PAGE)
        assert (answer.status_code, allowed(answer)) == (404, "*")


def test_pages_for_people_are_served_with_their_headers(public: Running) -> None:
    for path, file in site(public.url, has_log=False).items():
        answer = public.http.get(path)
        assert (answer.status_code, answer.content) == (200, file.body)
        assert answer.headers["content-type"] == file.media_type
        assert {name: answer.headers[name] for name in file.headers} == file.headers
        assert "set-cookie" not in answer.headers
    for other in ("/ui/other", "/ui/refused/", "/ui/%72efused", "/ui/static/0000000000000000/ui/dom.js"):
        assert public.http.get(other).status_code == 404


def test_the_framework_adds_no_path(public: Running) -> None:
    """Litestar serves own pages around an OpenAPI document, and HTML for a missing page."""
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
        "/oauth/token", "/.well-known/oauth-authorization-server",
        *(f"/.well-known/oauth-protected-resource{path}" for path in ("/tokens", "/tokens/batch", "/tokens/explain")),
        "/.well-known/eval-token-issuer", "/integrations/{integration}/requirements",
    }  # fmt: skip
    assert [each["name"] for each in described["/schemas/{name}"]["get"]["parameters"]] == ["name"]


# -- requirements and schemas --------------------------------------------------------------------------------------------

REQUIREMENTS = "/integrations/inspect-ai/requirements"


def test_a_public_integration_publishes_what_its_ci_must_send(public: Running) -> None:
    answer = public.http.get(REQUIREMENTS)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "public, max-age=300"
    document = answer.json()
    (identity,) = document["identities"]
    assert identity["provider"] == "github-actions"
    assert identity["issuer"] == public.provider.issuer
    assert identity["audience"] == public.url
    assert sorted(identity["pins"]) == ["repository_id", "repository_owner_id"]
    assert identity["require"]["ref"] == "refs/heads/main"
    assert identity["require"].keys() >= {"workflow_ref", "runner_environment"}
    assert "push" in identity["events"]
    assert document["frameworks"] == [{"name": "inspect-ai", "versions": ">=0.3.100,<0.4"}]
    assert document["token"] == {"audiences": ["https://huggingface.co"], "ttl_s": 3600}
    for hidden in ("700000001", "600000001", "evals@example.org", "cais/", "TIGER-Lab", "evaluate-main", "quarantine"):
        assert hidden not in answer.text, hidden
    again = public.http.get(REQUIREMENTS, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    request = document["requests"][0]
    headers = {**request["headers"], "Authorization": f"Bearer {public.token()}"}
    example = httpx.request(request["method"], request["url"], headers=headers, json=request["body"])
    assert example.status_code == 201


def masked(answer: httpx.Response) -> tuple[int, dict[str, str], dict[str, Any]]:
    problem = {name: value for name, value in answer.json().items() if name not in {"request_id", "instance"}}
    return answer.status_code, {**answer.headers, "date": ""}, problem


def test_an_integration_that_is_not_public_looks_absent(public: Running, service: Running) -> None:
    absent = public.http.get("/integrations/x/requirements")
    assert absent.status_code == 404
    for name in ("lm-eval", "no-such-thing", "INSPECT-AI", "inspect-ai%0a", "%00"):
        assert masked(public.http.get(f"/integrations/{name}/requirements")) == masked(absent), name
    assert masked(service.http.get(REQUIREMENTS)) == masked(
        service.http.get("/integrations/no-such-thing/requirements")
    )
    assert service.http.get(REQUIREMENTS).status_code == 404
    assert service.post(service.token()).json()["integration"] == "inspect-ai", "it is registered, and not public"


def test_each_schema_is_served_and_revalidates(service: Running) -> None:
    for name, document in schemas().items():
        answer = service.http.get(f"/schemas/{name}.json")
        assert (answer.status_code, answer.content) == (200, document)
        assert answer.headers["content-type"] == "application/schema+json"
        assert answer.headers["cache-control"] == "public, max-age=3600"
        again = service.http.get(f"/schemas/{name}.json", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    for name in ("", "policy", "no.json", ".json", "policy.json.json", "..%2fpolicy.json", "%00.json"):
        answer = service.http.get(f"/schemas/{name}")
        assert (answer.status_code, answer.json()["code"]) == (404, "request.not_found"), name


# -- pages of other origins -------------------------------------------------------------------------------------------------


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


def test_a_page_of_another_origin_may_not_ask_for_a_token(public: Running) -> None:
    for path in ("/tokens", "/tokens/batch", "/tokens/explain"):
        for answer in (
            public.http.request("OPTIONS", path, headers=ASKS_FIRST), public.http.get(path, headers=PAGE),
            *(public.post(identity, path=path, **PAGE) for identity in (None, "x", public.token())),
        ):  # fmt: skip
            assert not [name for name in answer.headers if name.startswith("access-control")], answer.status_code


# -- the first page ---------------------------------------------------------------------------------------------------------


def test_a_person_gets_a_page_and_a_machine_the_metadata(public: Running) -> None:
    page = public.http.get("/", headers={"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"})
    assert page.status_code == 200
    assert (page.headers["content-type"], page.headers["vary"]) == ("text/html; charset=utf-8", "Accept")
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


# -- crowds ---------------------------------------------------------------------------------------------------------------


def crowd(
    live: Running, sent: Iterator[bytes], connections: int, there: threading.Event, over: threading.Event
) -> Counter[int]:
    """Ask over this many connections, each again after its answer; set `there` when all have begun."""

    def ask() -> Iterator[bytes]:
        for number, each in enumerate(itertools.takewhile(lambda _: not over.is_set(), sent)):
            if number == connections + 1:
                there.set()
            yield each

    return drive(live.settings.listen.port, ask(), connections).statuses


def statuses_beside(live: Running, sent: Iterator[bytes], connections: int, count: int) -> Counter[int]:
    """Send good requests, four at a time, beside a crowd. Return their statuses."""
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


WORST = "- {dataset: {id: a/b}, x: [" + '"abc\\u0061",' * 1900 + "1]}\n"


def question(yaml: str) -> bytes:
    return request("/verify", "", msgspec.json.encode({"repo": "a/b", "path": ".eval_results/b.yaml", "yaml": yaml}))


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("sent", "connections", "count"),
    [
        *(pytest.param(get(path), 300, 30, id=path) for path in ("/health/ready", "/tokens", "/tokens/nothing")),
        *(
            pytest.param(get(path), 300, 100, id=path, marks=pytest.mark.long)
            for path in ("/.well-known/jwks.json", "/", "/health/live", "/nothing")
        ),
        pytest.param(question("[]"), 300, 100, id="/verify", marks=pytest.mark.long),
        pytest.param(question(WORST), 60, 300, id="the worst questions", marks=pytest.mark.long),
    ],
)
def test_a_crowd_on_a_public_endpoint_delays_no_token(
    public: Running, sent: bytes, connections: int, count: int
) -> None:
    assert public.post(public.token()).status_code == 201
    assert statuses_beside(public, itertools.repeat(sent), connections, count) == {201: count}


@pytest.fixture(scope="module")
def beside_a_log(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    """A service with the public side of a log of 300 leaves, behind a proxy."""
    folder = tmp_path_factory.mktemp("beside-a-log")
    with sqlite_place(folder) as place, writing(place) as writer:
        writer.grow(300)
        writer.cosign()
        command = ("-m", "tests.support.public_log", place.setting)
        with running(folder, provider, command=command, listen_trusted_proxies="127.0.0.1") as live:
            yield live


def readers_of(path: str, addresses: int) -> Iterator[bytes]:
    for number in itertools.count():
        yield f"GET {path} HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 10.0.0.{number % addresses}\r\n\r\n".encode()


LOG_PAGES = {
    **{path: path for path in ("tile/0/000", "tile/0/999", "tile/x", "checkpoint", "log.json", "proof")},
    **{f"proof-{number}": f"proof?{asked_for(number)}" for number in (7, 300)},
}


@pytest.mark.parametrize("addresses", [pytest.param(1, marks=pytest.mark.long), 200])
@pytest.mark.parametrize(
    "page", [pytest.param(name, marks=[pytest.mark.long] * (name != "tile/0/000")) for name in LOG_PAGES]
)
def test_a_crowd_on_a_page_of_the_log_delays_no_token(beside_a_log: Running, page: str, addresses: int) -> None:
    """From one address, which is mostly held back; and from many, which together reach the limit of all readers."""
    assert beside_a_log.post(beside_a_log.token()).status_code == 201
    crowd = readers_of(f"/log/{LOG_PAGES[page]}", addresses)
    assert statuses_beside(beside_a_log, crowd, 300, 30) == {201: 30}
