"""`GET /integrations/{id}/requirements` and `/schemas/`: what is public, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from issuer.dev.provider import LocalProvider
from issuer.policy.authoring.schema import schemas
from issuer.service.http.public_documents import requirements
from tests.support.policies import ISSUER_URL as URL
from tests.support.policies import POLICY, load
from tests.support.running import Running, rewrite, running, write_folder

PATH = "/integrations/inspect-ai/requirements"


def write(folder: Path, provider: LocalProvider, *lines: str) -> None:
    """Write a service's folder; the sample policy gets these lines at its top."""
    write_folder(folder, provider)
    rewrite(folder, r"^mode: active$", "\n".join(["mode: active", *lines]))


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("public")
    write(folder, provider, "public: true")
    with running(folder, provider) as live:
        yield live


@pytest.fixture(scope="module")
def terse(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("terse")
    write(folder, provider, "public: true", "disclose: []")
    with running(folder, provider) as live:
        yield live


def test_a_public_integration_tells_what_its_ci_must_send(public: Running) -> None:
    answer = public.http.get(PATH)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "public, max-age=300"
    told = answer.json()
    (identity,) = told["identities"]
    assert identity["provider"] == "github-actions"
    assert identity["issuer"] == public.provider.issuer
    assert identity["audience"] == public.url
    assert sorted(identity["pins"]) == ["repository_id", "repository_owner_id"]
    assert identity["require"]["ref"] == "refs/heads/main"
    assert identity["require"].keys() >= {"workflow_ref", "runner_environment"}
    assert "push" in identity["events"]
    assert told["frameworks"] == [{"name": "inspect-ai", "versions": ">=0.3.100,<0.4"}]
    assert told["token"] == {"audiences": ["https://huggingface.co"], "ttl_s": 3600}


OPAQUE = "{client_id: x, client_secret_file: /x, token_prefix: acme_}"
REUSABLE = f"""version: 1
providers:
  apps: {{profile: oauth, issuer: "https://apps.example"}}
  opaque: {{profile: oauth-introspection, issuer: "https://o.example", introspection: {OPAQUE}}}
  robots: {{profile: pat}}
  hub: {{profile: huggingface}}
"""
IDENTITIES = """
  - {id: app, provider: apps, pins: {client_id: "a", sub: "a"}}
  - {id: opaque-app, provider: opaque, pins: {client_id: "b", sub: "b"}}
  - {id: robot, provider: robots, pins: {account: "c"}}
  - {id: account, provider: hub, pins: {id: "d", token_role: "write"}}
"""


def test_of_a_reusable_credential_is_told_what_it_is_judged_by_and_no_more(tmp_path: Path) -> None:
    policy = POLICY.replace("mode: active", "mode: active\npublic: true")
    head, _, rest = policy.partition("identities:")
    text = f"{head}identities:{IDENTITIES}{rest[rest.index('grants:') :]}"
    told = requirements(URL, load(tmp_path, REUSABLE, inspect_ai=text))["inspect-ai"].answer("").body
    required = msgspec.json.decode(told)
    common = {"nonce": "required", "require": {}}
    scoped = {**common, "scope": "tokens:issue"}
    assert required["identities"] == [
        {"provider": "apps", "kind": "access-token", "issuer": "https://apps.example", "audience": URL,
         "algorithms": ["RS256", "PS256", "ES256", "EdDSA"], "max_lifetime_s": 3600, "max_age_s": 3600,
         "pins": ["client_id", "sub"], **scoped},
        {"provider": "opaque", "kind": "introspection", "issuer": "https://o.example", "audience": URL,
         "pins": ["client_id", "sub"], **scoped},
        {"provider": "robots", "kind": "pat", "issuer": URL, "pins": ["account"], **scoped},
        {"provider": "hub", "kind": "huggingface", "issuer": "https://huggingface.co", "pins": ["id", "token_role"], **common},
    ]  # fmt: skip
    (example,) = required["requests"]
    assert example["headers"]["Authorization"] == "Bearer <access token>"
    assert example["body"]["nonce"].startswith("<"), "nobody's next request is this one"
    assert b"client_secret_file" not in told
    assert b"acme_" not in told


def test_of_each_kind_of_credential_there_is_an_example(tmp_path: Path) -> None:
    policy = POLICY.replace("mode: active", "mode: active\npublic: true")
    text = policy.replace("identities:", f"identities:{IDENTITIES.rstrip()}", 1)
    providers = REUSABLE + "  github-actions: {profile: github-actions}\n"
    told = requirements(URL, load(tmp_path, providers, inspect_ai=text))["inspect-ai"].answer("").body
    ci, reusable = msgspec.json.decode(told)["requests"]
    assert (ci["headers"]["Authorization"], "nonce" in ci["body"]) == ("Bearer <identity token>", False)
    assert (reusable["headers"]["Authorization"], "nonce" in reusable["body"]) == ("Bearer <access token>", True)


def test_the_example_request_in_it_is_granted(public: Running) -> None:
    request = public.http.get(PATH).json()["requests"][0]
    headers = {**request["headers"], "Authorization": f"Bearer {public.token()}"}
    answer = httpx.request(request["method"], request["url"], headers=headers, json=request["body"])
    assert answer.status_code == 201


def test_no_id_and_nothing_undisclosed_is_in_it(public: Running) -> None:
    text = public.http.get(PATH).text
    for hidden in ("700000001", "600000001", "evals@example.org", "cais/", "TIGER-Lab", "evaluate-main", "quarantine"):
        assert hidden not in text, hidden


def test_what_the_policy_does_not_disclose_is_not_told(terse: Running) -> None:
    told = terse.http.get(PATH).json()
    (identity,) = told["identities"]
    assert sorted(identity["require"]) == ["ref", "runner_environment", "workflow_ref"]
    assert "frameworks" not in told
    assert "events" not in identity
    for hidden in ("refs/heads/main", "github-hosted", "0.3.100", "workflows/"):
        assert hidden not in terse.http.get(PATH).text, hidden


def test_it_revalidates(public: Running) -> None:
    etag = public.http.get(PATH).headers["etag"]
    again = public.http.get(PATH, headers={"If-None-Match": etag})
    assert (again.status_code, again.content) == (304, b"")


def masked(answer: httpx.Response) -> tuple[int, dict[str, str], dict[str, Any]]:
    problem = {name: value for name, value in answer.json().items() if name not in {"request_id", "instance"}}
    return answer.status_code, {**answer.headers, "date": ""}, problem


@pytest.mark.parametrize("name", ["lm-eval", "no-such-thing", "INSPECT-AI", "inspect-ai%0a", "%00"])
def test_what_is_not_public_is_not_there(public: Running, name: str) -> None:
    answer = public.http.get(f"/integrations/{name}/requirements")
    assert answer.status_code == 404
    assert masked(answer) == masked(public.http.get("/integrations/x/requirements"))


def test_it_is_off_unless_the_policy_says_so(service: Running) -> None:
    assert masked(service.http.get(PATH)) == masked(service.http.get("/integrations/no-such-thing/requirements"))
    assert service.http.get(PATH).status_code == 404
    assert service.post(service.token()).json()["integration"] == "inspect-ai", "it is there"


def test_another_method_is_a_problem_that_names_the_right_one(service: Running) -> None:
    for path in (PATH, "/integrations/x/requirements", "/schemas/policy.json"):
        answer = service.http.post(path)
        assert (answer.status_code, answer.json()["code"]) == (405, "request.method")
        assert "GET" in answer.headers["allow"]


# -- schemas --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(schemas()))
def test_each_schema_is_served_as_it_is_and_revalidates(service: Running, name: str) -> None:
    answer = service.http.get(f"/schemas/{name}.json")
    assert answer.status_code == 200
    assert answer.content == schemas()[name]
    assert answer.headers["content-type"] == "application/schema+json"
    assert answer.headers["cache-control"] == "public, max-age=3600"
    again = service.http.get(f"/schemas/{name}.json", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["", "policy", "no.json", ".json", "policy.json.json", "..%2fpolicy.json", "%00.json"])
def test_what_is_no_schema_is_not_there(service: Running, name: str) -> None:
    answer = service.http.get(f"/schemas/{name}")
    assert (answer.status_code, answer.json()["code"]) == (404, "request.not_found")
