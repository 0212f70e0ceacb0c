"""The edge of the service: methods, media types, sizes, caching, health, OpenAPI, and errors without a leak."""

import re
from typing import Any

import httpx

from issuer.formats import jose
from issuer.service.http.openapi import EXAMPLE
from issuer.verify.trust import parse_archive
from tests.support.running import BODY, Running

PROBLEM_MEMBERS = {"type", "title", "status", "detail", "instance", "code", "retryable", "request_id", "errors"}


def assert_problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem.keys() == PROBLEM_MEMBERS
    assert (problem["code"], problem["status"]) == (code, status)
    return problem


def test_an_unknown_path_is_a_problem(service: Running) -> None:
    for path in ("/nothing/here", "/errors/no.such", "/tokens/../../etc/passwd"):
        assert_problem(service.http.get(path), 404, "request.not_found")
    for path in ("/tokens%ff", "/%00", "/tokens?x=%ff%fe", "/errors/%F0%28%8C%28"):
        answer = service.http.post(path, json=BODY) if "tokens" in path else service.http.get(path)
        assert answer.status_code < 500
        assert set(answer.json()) == PROBLEM_MEMBERS


def test_another_method_is_a_problem_that_names_the_right_ones(service: Running) -> None:
    for method, path, allowed in (
        ("GET", "/tokens", {"POST"}), ("DELETE", "/tokens/batch", {"POST"}),
        ("POST", "/.well-known/jwks.json", {"GET", "HEAD"}), ("POST", "/integrations/x/requirements", {"GET", "HEAD"}),
        ("POST", "/schemas/policy.json", {"GET", "HEAD"}), ("TRACE", "/health/live", {"GET", "HEAD"}),
    ):  # fmt: skip
        answer = service.http.request(method, path)
        assert_problem(answer, 405, "request.method")
        assert set(answer.headers["allow"].split(", ")) >= allowed


def test_a_body_that_is_not_json_by_its_media_type_or_is_compressed_is_refused(service: Running) -> None:
    types = (
        "", "text/plain", "application/json; charset=utf-16", "application/jsonx", "application/x-www-form-urlencoded",
    )  # fmt: skip
    for headers in (*({"Content-Type": media_type} for media_type in types), {"Content-Encoding": "gzip"}):
        assert_problem(service.post(service.token(), BODY, **headers), 415, "request.media_type")


def test_a_body_over_the_limit_is_refused_with_and_without_a_length(service: Running) -> None:
    for path, size in (("/tokens", 64 * 1024), ("/tokens/batch", 1024 * 1024)):
        big = b" " * (size + 1)
        assert_problem(service.post(service.token(), big, path), 413, "request.too_large")
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {service.token()}"}
        streamed = service.http.post(path, content=iter([big[: size // 2], big[size // 2 :]]), headers=headers)
        assert_problem(streamed, 413, "request.too_large")
        assert_problem(service.post(service.token(), big[:size], path), 400, "request.malformed")
    for sent in (b"{", b"", b'{"claims": 1}', b"\xff"):
        assert_problem(service.post(None, sent), 401, "identity.missing")


def test_the_type_of_a_problem_is_a_page_that_says_what_to_do(service: Running) -> None:
    problem = service.post(None).json()
    page = httpx.get(problem["type"])
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "What to do" in page.text


def test_the_key_set_is_cacheable_and_revalidates(service: Running) -> None:
    answer = service.http.get("/.well-known/jwks.json")
    assert answer.headers["content-type"] == "application/jwk-set+json"
    assert answer.headers["cache-control"] == "public, max-age=300, stale-if-error=600"
    (jwk,) = answer.json()["keys"]
    assert jwk["kid"] == jose.thumbprint(jwk)
    assert not {"d", "p", "q", "k"} & jwk.keys()
    etag = answer.headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = service.http.get("/.well-known/jwks.json", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert service.http.get("/.well-known/jwks.json", headers={"If-None-Match": '"other"'}).status_code == 200


def test_the_archive_has_the_window_of_the_active_key(service: Running) -> None:
    metadata = service.http.get("/.well-known/eval-token-issuer").json()
    archive, keys = (service.http.get(metadata[name]) for name in ("jwks_archive_uri", "jwks_uri"))
    for name in ("content-type", "cache-control"):
        assert archive.headers[name] == keys.headers[name]
    issued = service.post(service.token()).json()
    (key,) = parse_archive(archive.content).values()
    assert (key.key.kid, key.last_token_exp, key.revoked_from) == (issued["kid"], None, None)
    assert key.active_from <= issued["issued_at"]


def test_the_metadata_has_what_a_ci_must_send_and_nothing_of_a_policy(service: Running) -> None:
    document = service.http.get("/.well-known/eval-token-issuer")
    published = document.json()
    assert published["issuer"] == published["identity_audience"] == service.url
    assert published["token_endpoint"] == f"{service.url}/tokens"
    assert {provider["id"] for provider in published["identity_providers"]} == {"github-actions", "gitlab-ci"}
    assert published["identity_providers"][0]["max_lifetime_s"] > 0
    assert {(p["kind"], p["nonce"]) for p in published["identity_providers"]} == {("identity-token", "refused")}
    for secret in ("700000001", "inspect-ai", "huggingface.co"):
        assert secret not in document.text


def test_openapi_declares_the_bodies_and_its_example_is_accepted(service: Running) -> None:
    document = service.http.get("/openapi.json").json()
    operation = document["paths"]["/tokens"]["post"]
    content = operation["requestBody"]["content"]["application/json"]
    schemas = document["components"]["schemas"]
    assert schemas["TokenRequest"]["properties"]["claims"]["$ref"].endswith("/RunClaims")
    assert schemas["RunClaims"]["required"] == [
        "model_repo", "model_revision", "benchmark_repo", "benchmark_revision", "task_id", "metrics", "framework",
    ]  # fmt: skip
    assert {"201", "200", "401", "403", "409", "422", "429", "503"} <= operation["responses"].keys()
    assert content["examples"]["example"]["value"] == EXAMPLE
    explain = document["paths"]["/tokens/explain"]["post"]["requestBody"]["content"]["application/json"]
    names = [one["$ref"].rpartition("/")[2] for one in explain["schema"]["anyOf"]]
    assert (names, explain["examples"]["caller"]["value"]) == (["TokenRequest", "CallerRequest"], {})
    assert schemas["CallerRequest"] | {"description": ""} == {
        "title": "CallerRequest", "type": "object", "properties": {}, "required": [], "additionalProperties": False,
        "description": "",
    }  # fmt: skip
    for name in ("TokenRequest", "BatchRequest"):
        assert re.fullmatch(schemas[name]["properties"]["nonce"]["pattern"], "n" * 22)
    for reference in _references(document):
        assert reference.rpartition("/")[2] in schemas, reference
    assert service.post(service.token(), EXAMPLE).status_code == 201
    assert service.post(service.token(), {"results": [EXAMPLE]}, "/tokens/batch").status_code == 201


def _references(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for item in value.values() for found in _references(item)]
    return [found for item in value for found in _references(item)] if isinstance(value, list) else []


def test_health_says_live_and_ready(service: Running) -> None:
    assert service.http.get("/health/live").json() == {"status": "live"}
    ready = service.http.get("/health/ready").json()
    assert ready["status"] == "ready"
    assert ready["policies"]["stale"] is False
    assert ready["keys"] == {"stale": False, "waiting": {}}


def test_every_answer_about_tokens_forbids_storing(service: Running) -> None:
    answers = (
        service.post(None), service.post(service.token()), service.post(service.token(), b"{"),
        service.http.get("/tokens"),
    )  # fmt: skip
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}
