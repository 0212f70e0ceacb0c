"""Personal access tokens over HTTP: sent to the real service with two workers, and revoked under its feet."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from issuer.dev.provider import LocalProvider
from issuer.formats import jose
from issuer.identity import pat
from issuer.service.authn.pat_records import DAY_S, Order, create, last_used
from issuer.service.authn.pat_records import revoke as revoke_record
from tests.support.leaks import assert_nothing_secret
from tests.support.reusable import new_nonce
from tests.support.running import BODY, Running, body, from_address, numbered, running, serve, write_folder
from tests.support.stores import Store

IDENTITY = """identities:
  - id: nightly
    provider: pat
    pins: {account: "nightly"}
"""
ELSEWHERE = "198.51.100.7"


def made(live: Running, *networks: str, account: str = "nightly", scope: str = "tokens:issue") -> str:
    """Make a token as `issuer pat create` does (tests/cli/operate/test_pat.py), in the folder that the service reads."""
    order = Order(account, (scope,), networks, DAY_S)
    random = os.urandom(pat.RANDOM_BYTES)
    token, _ = create(live.settings.pats_folder, order, now=int(time.time()), random=random)
    return token


def revoke(live: Running, token: str) -> None:
    revoke_record(live.settings.pats_folder, str(pat.token_id(token)), int(time.time()))


def post(live: Running, token: str, sent: Mapping[str, Any] = BODY, headers: Mapping[str, str] = {}) -> httpx.Response:
    """Send a body with a fresh nonce, unless it has one."""
    live.secrets += token.split("_")
    return live.post(token, {"nonce": new_nonce(), **sent}, **headers)


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def with_pats(folder: Path, provider: LocalProvider) -> Path:
    """Write a service's folder whose policies know personal access tokens."""
    write_folder(folder, provider)
    providers, policy = folder / "policies" / "providers.yaml", folder / "policies" / "inspect-ai.yaml"
    providers.write_text(providers.read_text("utf-8") + "  pat: {profile: pat}\n", "utf-8")
    policy.write_text(policy.read_text("utf-8").replace("identities:\n", IDENTITY, 1), "utf-8")
    return folder


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    folder = with_pats(tmp_path_factory.mktemp("pats"), provider)
    with running(folder, provider, command=serve(2), listen_trusted_proxies="127.0.0.1") as service:
        yield service
        assert_nothing_secret(service)
        kept = b"".join(path.read_bytes() for path in service.settings.pats_folder.glob("*.json"))
        assert kept
        assert not [part for part in service.secrets if len(part) >= 20 and part.encode() in kept]


def test_a_token_has_a_run_signed_and_the_same_request_gets_the_same_token(live: Running) -> None:
    token, sent = made(live), {"nonce": new_nonce(), **BODY}
    first, second = post(live, token, sent), post(live, token, sent)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.headers["Idempotent-Replay"] == "true"
    assert first.json()["verify_token"] == second.json()["verify_token"]
    caller = json.loads(jose.parse_compact(first.json()["verify_token"]).unverified_payload)["caller"]
    assert caller == {"provider": "pat", "issuer": live.url, "account": "nightly", "token_id": pat.token_id(token)}
    assert code_of(post(live, token, {**numbered(1), "nonce": sent["nonce"]})) == (409, "nonce.reused")


def test_a_token_needs_a_nonce_also_for_a_batch_or_an_explanation(live: Running) -> None:
    token = made(live)
    assert last_used(live.settings.pats_folder, str(pat.token_id(token))) is None
    assert code_of(live.post(token, BODY)) == (400, "nonce.required")
    batch = {"nonce": new_nonce(), "results": [numbered(1), numbered(2)]}
    assert len(live.post(token, batch, "/tokens/batch").json()["tokens"]) == 2
    assert live.post(token, {"nonce": new_nonce(), **BODY}, "/tokens/explain").json()["verdict"] == "granted"
    assert last_used(live.settings.pats_folder, str(pat.token_id(token))) is not None


def test_a_token_is_valid_in_every_worker_from_its_creation_to_its_revocation(live: Running) -> None:
    anew = {"Connection": "close"}  # a new connection may be another worker's
    for _ in range(2):
        token = made(live)
        for number in range(10):
            assert post(live, token, numbered(number), anew).status_code == 201
        revoke(live, token)
        for _ in range(10):
            assert code_of(post(live, token, BODY, anew)) == (401, "identity.inactive")


def test_a_bad_token_learns_a_code_and_nothing_else(live: Running) -> None:
    token = made(live)
    forged = token[:21] + "0" * 43
    bad = {
        token[:-6]: "identity.malformed",
        pat.make(b"\x07" * pat.RANDOM_BYTES): "identity.credential_unknown",
        forged + pat._checksum(forged): "identity.credential_unknown",
    }
    for sent, code in bad.items():
        answer = post(live, sent)
        assert code_of(answer) == (401, code)
        assert answer.json()["errors"] == []
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_token_is_refused_from_elsewhere_and_a_proxy_names_its_source(live: Running) -> None:
    token = made(live, "198.51.100.0/24", "2001:db8::/48")
    elsewhere = ("", f"{ELSEWHERE}, 203.0.113.1", "2001:db9::1", "unknown")
    others = {"Forwarded": f"for={ELSEWHERE}", "X-Real-IP": ELSEWHERE}
    for headers in (others, *map(from_address, elsewhere)):
        assert code_of(post(live, token, BODY, headers)) == (403, "identity.network_forbidden")
    for good in (ELSEWHERE, f"203.0.113.1, {ELSEWHERE}", "2001:db8:0:5::1"):
        assert post(live, token, BODY, from_address(good)).status_code == 201
    assert post(live, made(live, "127.0.0.0/8")).status_code == 201


def test_a_token_needs_the_scope_and_an_account_that_a_policy_pins(live: Running) -> None:
    answer = post(live, made(live, scope="results:read"))
    assert code_of(answer) == (403, "identity.claim_mismatch")
    assert "tokens:issue" in answer.text
    answer = post(live, made(live, account="somebody"))
    assert code_of(answer) == (403, "integration.unknown")
    assert "somebody" in answer.text, "its own public claims"


def test_a_token_in_the_command_of_a_run_is_refused(live: Running) -> None:
    token = made(live)
    live.secrets.append(token)
    framework = {"name": "inspect-ai", "version": "0.3.285", "command": f"inspect eval gsm8k -T key={token}"}
    answer = live.post(live.token(), body(framework=framework))
    assert code_of(answer) == (422, "claims.secret")
    assert token not in answer.text


def test_a_folder_that_others_may_enter_stops_personal_access_tokens_alone(live: Running) -> None:
    token = made(live)
    live.settings.pats_folder.chmod(0o755)
    try:
        answer = post(live, token)
        assert code_of(answer) == (503, "dependency.credentials")
        assert answer.headers["Retry-After"]
        assert live.post(live.token()).status_code == 201
    finally:
        live.settings.pats_folder.chmod(0o700)
    assert post(live, token).status_code == 201


def test_a_service_does_not_start_with_such_a_folder(tmp_path: Path, provider: LocalProvider) -> None:
    with_pats(tmp_path, provider)
    folder = tmp_path / "data" / "pats"
    folder.mkdir(parents=True, mode=0o755)
    folder.chmod(0o755)
    with pytest.raises(AssertionError, match=f"chmod 700 {folder}"), running(tmp_path, provider):
        pass


def test_tokens_outlive_the_limits_store_and_are_revoked_without_it(tmp_path: Path, provider: LocalProvider) -> None:
    with (
        Store(tmp_path / "store") as store,
        running(with_pats(tmp_path / "service", provider), provider, store_url=store.url) as service,
    ):
        token, revoked = made(service), made(service)
        revoke(service, revoked)
        with store.client as client:
            client.flushall()
        assert post(service, token).status_code == 201
        assert code_of(post(service, revoked)) == (401, "identity.inactive")
        store.kill()
        assert code_of(post(service, token)) == (503, "dependency.state")
        revoke(service, token)
        assert code_of(post(service, token)) == (401, "identity.inactive")
