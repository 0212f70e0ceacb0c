"""A stranger with a genuine token of the same provider learns nothing about any policy, from any endpoint.

Two services get the same requests, on one port and with one key. Only the first has the integration registered. All their
answers must be equal byte for byte, except what differs from request to request (request id, date), and readiness's
digest: operators must be able to compare it, and it says only that two folders differ.
"""

import contextlib
import http.client
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from issuer.policy.authoring.schema import schemas
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.admission.secret_file import make_secret
from tests.support.exchanging import FORM, detail, form
from tests.support.running import BODY, Running, body, numbered, rewrite, running, write_folder

OTHER, EXPLAIN = "other-framework", "/tokens/explain"
REPOSITORY = {"repository_id": "800000002", "repository_owner_id": "800000001"}
VOLATILE = [
    (re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), b"<request id>"),
    (re.compile(rb'"digest":"sha256:[0-9a-f]{64}","loaded_at":[0-9]{10}'), b"<digest>"),
    (re.compile(rb'"expires_in":[0-9]+'), b"<seconds>"),
]
Answer = tuple[int, tuple[tuple[str, str], ...], bytes]


def seen(answer: http.client.HTTPResponse) -> Answer:
    content = answer.read()
    for pattern, mask in VOLATILE:
        content = pattern.sub(mask, content)
    heads = [(name, value) for name, value in answer.getheaders() if name not in {"date", "x-request-id"}]
    return answer.status, tuple(sorted(heads)), content


def requests(caller: str) -> list[tuple[str, str, Any]]:
    """Return all requests of a caller: token endpoints, with every body that names or fits the integration; for the
    CURIOUS, also all other endpoints, which ignore the identity."""
    bodies: list[Any] = [
        BODY, b"{", b"", body(benchmark_repo="x/y"), body(model_revision="short"),
        {**BODY, "integration": "inspect-ai"}, {**BODY, "integration": "no-such-thing"},
        {**BODY, "audience": "https://huggingface.co"}, {**BODY, "audience": "https://other.example"},
        body(framework={"name": "inspect-ai", "version": "0.3.285"}), body(framework={"name": "helm", "version": "1"}),
    ]  # fmt: skip
    asked: list[tuple[str, str, Any]] = [("POST", path, sent) for path in ("/tokens", EXPLAIN) for sent in bodies]
    asked += [("POST", "/tokens/batch", {"results": [numbered(1), sent]}) for sent in bodies if isinstance(sent, dict)]
    asked.append(("POST", "/oauth/token", detail()))  # one: an hour has 60 replays of an identity
    if caller not in CURIOUS:
        return asked
    asked += [
        (method, path, None)
        for method in ("GET", "HEAD", "POST", "DELETE", "OPTIONS")
        for path in (
            "/integrations/inspect-ai/requirements", "/integrations/no-such-thing/requirements",
            "/integrations/inspect-ai", "/integrations", "/integrations/inspect-ai/",
            "/errors/inspect-ai", "/schemas/inspect-ai.json", "/policies/inspect-ai.yaml", "/tokens/inspect-ai", "/inspect-ai",
        )
    ]  # fmt: skip
    asked += [
        ("GET", path, None)
        for path in (
            "/.well-known/jwks.json", "/.well-known/jwks-archive.json", "/.well-known/revocations.json",
            "/.well-known/revocation-keys.json", "/.well-known/eval-token-issuer",
            "/.well-known/oauth-authorization-server",
            *(f"/.well-known/oauth-protected-resource{path}" for path in ("/tokens", "/tokens/batch", EXPLAIN)), "/", "/health/live", "/health/ready", "/health/stops", "/openapi.json",
            "/errors", "/errors/integration.unknown", "/schemas", *(f"/schemas/{name}.json" for name in schemas()),
        )
    ]  # fmt: skip
    return asked


def ask(live: Running, caller: str, identity: str | None) -> list[Answer]:
    """Send all of `requests` over one connection."""
    given = {"Content-Type": "application/json"}
    if identity is not None:
        given["Authorization"] = f"Bearer {identity}"
        live.secrets.append(identity)
    port, answers = live.settings.listen.port, []
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        for method, path, sent in requests(caller):
            content = sent if isinstance(sent, bytes) else b"" if sent is None else msgspec.json.encode(sent)
            if isinstance(sent, str):
                exchanged = urlencode(form(identity or "", authorization_details=sent))
                connection.request(method, path, exchanged, FORM)
            else:
                connection.request(method, path, content, given)
            answers.append(seen(connection.getresponse()))
        return answers


STRANGERS: dict[str, dict[str, Any] | None] = {
    "nobody": None,
    "another repository": {"repository_id": "99", "repository_owner_id": "98", "repository": "evil/x"},
    "another repository of the name": {"repository_id": "99", "repository_owner_id": "98"},
    "another repository of the owner": {"repository_id": "99", "repository": "example-org/evil"},
    "the id, of another owner": {"repository_owner_id": "98"},
    "the id with a line break": {"repository_id": "700000001\n"},
    "the id in full-width digits": {"repository_id": "\uff17\uff10\uff10\uff10\uff10\uff10\uff10\uff10\uff11"},
    "the id as a number": {"repository_id": 700000001},
    "a caller of another integration": REPOSITORY,
    "a caller of another integration, from the wrong branch": {**REPOSITORY, "ref": "refs/heads/x"},
}
CURIOUS = ("nobody", "another repository", "a caller of another integration")


def write_pair(folder: Path, provider: LocalProvider) -> tuple[Path, Path]:
    """Write two folders with one key and one other integration; only the first has `inspect-ai` registered."""
    one, two = folder / "registered", folder / "not"
    write_folder(one, provider)
    policies = one / "policies"
    rewrite(one, r"(?s)^tests:.*?(?=^limits:)", "")  # they have the ids that change
    text = (policies / "inspect-ai.yaml").read_text("utf-8")
    for old, new in (("integration: inspect-ai", f"integration: {OTHER}"), ("700000001", REPOSITORY["repository_id"]),
                     ("600000001", REPOSITORY["repository_owner_id"])):  # fmt: skip
        text = text.replace(old, new)
    (policies / f"{OTHER}.yaml").write_text(text, "utf-8")
    shutil.copytree(one, two, copy_function=shutil.copy2)
    (two / "policies" / "inspect-ai.yaml").unlink()
    return one, two


Pairs = dict[str, tuple[list[Answer], list[Answer]]]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> tuple[Pairs, list[set[str]]]:
    """Return the answers of both services to each stranger, and the abuse signals of each service."""
    port = free_port()
    found: list[dict[str, list[Answer]]] = []
    signals: list[set[str]] = []
    identities: dict[str, str | None] = {}
    folders = write_pair(tmp_path_factory.mktemp("pair"), provider)
    secret = folders[0] / "store-secret"
    make_secret(secret)
    with EmbeddedValkey() as store:  # one for both, so that a grant is repeated
        for folder in folders:
            with running(folder, provider, port=port, store_url=store, store_secret_file=str(secret)) as live:
                for name, claims in STRANGERS.items():
                    identities.setdefault(name, None if claims is None else live.token(**claims))
                found.append({name: ask(live, name, identity) for name, identity in identities.items()})
                events = (event for event in live.audit() if event["event"] == "abuse_signal")
                signals.append({f"{event['signal']} {event['integration']}" for event in events})
    return {name: (found[0][name], found[1][name]) for name in STRANGERS}, signals


def test_a_stranger_gets_the_same_bytes_whether_an_integration_exists_or_not(
    compared: tuple[Pairs, list[set[str]]],
) -> None:
    answers, (registered_signals, other_signals) = compared
    assert "recycled inspect-ai" in registered_signals, "the operator sees who uses a registered name"
    assert not any("inspect-ai" in signal for signal in other_signals)
    for stranger, pair in answers.items():
        for request, registered, not_registered in zip(requests(stranger), *pair, strict=True):
            if (registered[0], not_registered[0]) == (201, 200):  # the second service repeats the token
                assert registered[2] == not_registered[2], (stranger, request)
            else:
                assert registered == not_registered, (stranger, request)
            assert registered[0] < 500, (stranger, request)


def test_the_requests_cover_all_paths_and_kinds_of_answers(
    compared: tuple[Pairs, list[set[str]]], service: Running
) -> None:
    answers, _ = compared
    for stranger in STRANGERS:
        statuses = {status for status, *_ in answers[stranger][0]}
        assert statuses >= (
            {201, 409} if stranger == "a caller of another integration" else {401} if stranger == "nobody" else {403}
        )
        assert 400 in statuses, "through /oauth/token"
        assert stranger not in CURIOUS or statuses >= {200, 404, 405}
    mine, strangers = answers["a caller of another integration"][0], answers["another repository"][0]
    pairs = zip(requests(CURIOUS[1]), mine, strangers, strict=True)
    differing = {path for (_, path, _), *two in pairs if two[0] != two[1]}
    assert differing == {"/tokens", "/tokens/batch", EXPLAIN, "/oauth/token"}
    assert service.post(service.token()).status_code == 201
    paths = {path for _, path, _ in requests(CURIOUS[0])}
    for path in service.http.get("/openapi.json").json()["paths"]:
        pattern = re.sub(r"\\{[^}]*\\}", "[^/]+", re.escape(path))
        assert any(re.fullmatch(pattern, each) for each in paths), path
