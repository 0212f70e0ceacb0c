"""Personal access tokens over HTTP: sent to the real service with two workers, and revoked under its feet."""

import base64
import itertools
import json
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from issuer.dev.provider import LocalProvider
from issuer.identity import pat
from issuer.service.authn.pat_records import DAY_S, Order, create, last_used
from issuer.service.authn.pat_records import revoke as revoke_record
from tests.support.leaks import assert_nothing_secret
from tests.support.running import (
    BODY,
    Running,
    body,
    bring_to_its_limit,
    from_address,
    numbered,
    running,
    write_folder,
)
from tests.support.stores import Store

IDENTITY = """identities:
  - id: nightly
    provider: pat
    pins: {account: "nightly"}
"""
ELSEWHERE = "198.51.100.7"
_numbers = itertools.count()


def made(live: Running, *networks: str, account: str = "nightly", scope: str = "tokens:issue") -> str:
    """Make a token as `issuer pat create` does (tests/cli/operate/test_pat.py), in the folder that the service reads."""
    order = Order(account, (scope,), networks, DAY_S)
    random = os.urandom(pat.RANDOM_BYTES)
    token, _ = create(live.settings.pats_folder, order, now=int(time.time()), random=random)
    return token


def id_of(token: str) -> str:
    return str(pat.token_id(token))


def revoke(live: Running, token: str) -> None:
    revoke_record(live.settings.pats_folder, id_of(token), int(time.time()))


def nonce() -> str:
    """Return a nonce that no test has used."""
    return f"{next(_numbers):022}"


def post(
    live: Running, token: str, sent: dict[str, Any] | None = None, headers: Mapping[str, str] | None = None
) -> httpx.Response:
    """Send a body with a fresh nonce, unless it has one."""
    for part in token.split("_"):
        live.secrets.append(part)
    return live.post(token, {"nonce": nonce(), **(sent or BODY)}, **(headers or {}))


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
    with running(folder, provider, command=("-m", "issuer", "serve", "--workers", "2")) as service:
        yield service
        assert_nothing_secret(service)
        kept = b"".join(path.read_bytes() for path in service.settings.pats_folder.glob("*.json"))
        assert kept
        assert not [part for part in service.secrets if len(part) >= 20 and part.encode() in kept]


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    """One process, behind a proxy."""
    folder = with_pats(tmp_path_factory.mktemp("proxied"), provider)
    with running(folder, provider, listen_trusted_proxies="127.0.0.1") as service:
        yield service


# -- a good token ------------------------------------------------------------------------------------------------------


def test_a_token_has_a_run_signed_and_the_same_request_gets_the_same_token(live: Running) -> None:
    token, sent = made(live), {"nonce": nonce(), **BODY}
    first, second = post(live, token, sent), post(live, token, sent)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.headers["Idempotent-Replay"] == "true"
    assert first.json()["verify_token"] == second.json()["verify_token"]
    payload = json.loads(base64.urlsafe_b64decode(first.json()["verify_token"].split(".")[1] + "=="))
    assert payload["caller"] == {
        "provider": "pat", "issuer": live.url, "account": "nightly", "token_id": id_of(token),
    }  # fmt: skip
    assert code_of(post(live, token, {**numbered(1), "nonce": sent["nonce"]})) == (409, "nonce.reused")


def test_a_token_needs_a_nonce_also_for_a_batch_or_an_explanation(live: Running) -> None:
    token = made(live)
    assert last_used(live.settings.pats_folder, id_of(token)) is None
    assert code_of(live.post(token, BODY)) == (400, "nonce.required")
    batch = {"nonce": nonce(), "results": [numbered(1), numbered(2)]}
    assert len(live.post(token, batch, "/tokens/batch").json()["tokens"]) == 2
    assert live.post(token, {"nonce": nonce(), **BODY}, "/tokens/explain").json()["verdict"] == "granted"
    assert last_used(live.settings.pats_folder, id_of(token)) is not None


def test_two_tokens_of_one_account_may_use_one_nonce(live: Running) -> None:
    same = nonce()
    for token in (made(live), made(live)):
        assert post(live, token, {**BODY, "nonce": same}).status_code == 201


def test_a_token_is_valid_in_every_worker_from_its_creation_to_its_revocation(live: Running) -> None:
    anew = {"Connection": "close"}  # a new connection may be another worker's
    for _ in range(2):
        token = made(live)
        for number in range(10):
            assert post(live, token, numbered(number), anew).status_code == 201
        revoke(live, token)
        for _ in range(10):
            assert code_of(post(live, token, None, anew)) == (401, "identity.inactive")


# -- what is refused -----------------------------------------------------------------------------------------------------


def test_a_bad_token_learns_a_code_and_nothing_else(live: Running) -> None:
    token = made(live)
    unknown = [pat.make(b"\x07" * pat.RANDOM_BYTES), forged(token)]
    for bad in (token[:-6], token.swapcase(), *unknown):
        answer = post(live, bad)
        assert code_of(answer) == (401, "identity.credential_unknown" if bad in unknown else "identity.malformed")
        assert answer.json()["errors"] == []
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def forged(token: str) -> str:
    body = token[:21] + "0" * 43
    return body + pat._checksum(body)


def test_a_token_is_refused_from_elsewhere_whatever_its_headers_claim(live: Running) -> None:
    token = made(live, "198.51.100.0/24", "2001:db8::/48")
    for headers in ({}, {"X-Forwarded-For": ELSEWHERE}, {"Forwarded": f"for={ELSEWHERE}"}, {"X-Real-IP": ELSEWHERE}):
        assert code_of(post(live, token, None, headers)) == (403, "identity.network_forbidden")
    assert post(live, made(live, "127.0.0.0/8")).status_code == 201


def test_behind_a_trusted_proxy_its_header_names_the_address(proxied: Running) -> None:
    token = made(proxied, "198.51.100.0/24", "2001:db8::/48")
    for good in (ELSEWHERE, f"203.0.113.1, {ELSEWHERE}", "2001:db8:0:5::1"):
        assert post(proxied, token, None, from_address(good)).status_code == 201
    for bad in (f"{ELSEWHERE}, 203.0.113.1", "2001:db9::1", "unknown"):
        assert code_of(post(proxied, token, None, from_address(bad))) == (403, "identity.network_forbidden")


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


def test_one_bad_record_affects_no_other_token(live: Running) -> None:
    token, broken = made(live), made(live)
    path = live.settings.pats_folder / f"{id_of(broken)}.json"
    digest = json.loads(path.read_bytes())["sha256"]
    path.write_bytes(path.read_bytes()[:-40])
    try:
        assert post(live, token).status_code == 201
        assert code_of(post(live, broken)) == (401, "identity.credential_unknown")
    finally:
        path.unlink()
    log = live.until_log_says(path.name)
    assert any(path.name in line and "file.syntax" in line for line in log.splitlines())
    assert digest not in log


# -- what happens around it ----------------------------------------------------------------------------------------------


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


def test_above_its_limit_a_source_learns_only_that_and_its_good_tokens_pass(proxied: Running) -> None:
    good, elsewhere = made(proxied), made(proxied, "198.51.100.0/24")
    refused = {
        pat.make(bytes(pat.RANDOM_BYTES)): (401, "identity.credential_unknown"),
        elsewhere: (403, "identity.network_forbidden"),
    }
    here = from_address("192.0.2.99")
    for token, told in refused.items():
        assert code_of(post(proxied, token, None, from_address("192.0.2.98"))) == told
    bring_to_its_limit(proxied, "X-Forwarded-For: 192.0.2.99")
    turned_away = {(token, (429, "rate.source")) for token in refused}
    found: set[tuple[str, tuple[int, str]]] = set()
    with ThreadPoolExecutor(40) as pool:
        for _ in range(20):  # ten times a second there is room
            asked = [*refused] * 20
            answers = pool.map(lambda token: code_of(post(proxied, token, None, here)), asked)
            found.update(zip(asked, answers, strict=True))
            if found >= turned_away:
                break
    assert turned_away <= found <= turned_away | set(refused.items())
    assert post(proxied, good, None, here).status_code == 201
