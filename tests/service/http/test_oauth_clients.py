"""Clients that already speak OAuth get verify tokens without our client: Authlib, oauth4webapi, and curl as the page says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from authlib.integrations.httpx_client import OAuth2Client  # type: ignore[import-untyped]

from issuer.results.entry import read_entries
from tests.support.exchanging import EXCHANGE, ID_TOKEN, JWT, detail
from tests.support.node import install_node, run_node
from tests.support.running import Running, numbered
from tests.support.shared import ROOT


def test_authlib_exchanges_a_token(service: Running) -> None:
    identity = service.token()
    with OAuth2Client(token_endpoint_auth_method="none") as client:
        token = client.fetch_token(
            f"{service.url}/oauth/token",
            grant_type=EXCHANGE,
            subject_token=identity,
            subject_token_type=ID_TOKEN,
            authorization_details=detail(),
        )
    assert token["issued_token_type"] == JWT
    (entry,) = read_entries(token["entry"].encode(), "gsm8k.yaml")
    assert entry.token == token["access_token"]


@pytest.mark.long
def test_requests_oauthlib_exchanges_a_token(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    oauthlib = pytest.importorskip("oauthlib.oauth2")
    session = pytest.importorskip("requests_oauthlib").OAuth2Session
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")  # the issuer of a test has no TLS
    client = oauthlib.BackendApplicationClient("job")
    client.grant_type = EXCHANGE
    identity = service.token()
    service.secrets.append(identity)
    with session(client=client) as live:
        token = live.fetch_token(
            f"{service.url}/oauth/token",
            include_client_id=True,
            subject_token=identity,
            subject_token_type=ID_TOKEN,
            authorization_details=detail(numbered(4)),
        )
    assert token["access_token"] in token["entry"]


@pytest.mark.long
def test_a_fuzzer_finds_every_answer_of_the_endpoint_described(service: Running) -> None:
    pytest.importorskip("schemathesis")
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "run", f"{service.url}/openapi.json", "--no-color",
        "--include-path", "/oauth/token", "--max-examples", "200", "--seed", "46", "--checks", checks,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "unforeseen" not in service.log_text()


@pytest.mark.long
@pytest.mark.needs_tool("node", "npm")
def test_oauth4webapi_finds_the_endpoint_and_exchanges_a_token(service: Running, tmp_path: Path) -> None:
    identity = service.token()
    service.secrets.append(identity)
    install_node(ROOT / "tests/support/oauth4webapi", tmp_path / "client")
    parameters = {
        "subject_token": identity,
        "subject_token_type": ID_TOKEN,
        "authorization_details": detail(numbered(3)),
    }
    given = json.dumps({"issuer": service.url, "parameters": parameters})
    said = json.loads(run_node(tmp_path / "client", "exchange.js", given=given))
    assert said["token"]["access_token"] in said["token"]["entry"]
    assert said["error"] == {"error": "invalid_request", "status": 400}
    assert said["resource"]["resource"] == f"{service.url}/tokens"
