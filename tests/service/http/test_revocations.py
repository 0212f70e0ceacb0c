"""Revocation over real HTTP: the operator revokes a token, and callers and relying parties see it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import AUDIENCE
from issuer.formats import jose
from issuer.io.common_documents import FolderHome
from issuer.results.entry import result_file_name
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.policies.bounds import IN_FORCE_S
from issuer.service.revocation.bounds import LIST_AGE_S, LIST_GOOD_S
from issuer.service.revocation.ledger import Ledger, make_key
from issuer.token.wire import REVOCATION_KEYS_PATH, REVOCATIONS_PATH
from issuer.verify.revocations import Revocations, parse_revocations
from tests.support.command import issuer
from tests.support.no_tls import NO_TLS
from tests.support.running import (
    BODY,
    SERVE,
    Running,
    begin_history,
    body,
    listening,
    numbered,
    running,
    serve,
    write_folder,
)
from tests.support.waiting import eventually, within

WORKERS = 2


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    """Two workers with the key of the list, and their own folder."""
    folder = tmp_path_factory.mktemp("revoking")
    write_folder(folder, provider)
    begin_history(folder)
    make_key(folder / "keys", None)
    with EmbeddedValkey() as store, running(folder, provider, command=serve(WORKERS), store_url=store) as service:
        eventually(lambda: listening(service) == WORKERS)
        yield service


def revoke(live: Running, *what: object) -> None:
    done = issuer("revoke", *what, "--reason", "a secret reason", *places(live))
    assert done.returncode == 0, done.stderr


def places(live: Running) -> tuple[object, ...]:
    return "--dir", live.settings.keys.folder, "--data", live.settings.data, "--url", live.url


def read(live: Running) -> Revocations:
    """Read the served list as a relying party does, on new connections, so that any worker may answer."""
    listed, keys = (
        httpx.get(live.url + path, timeout=60, verify=NO_TLS) for path in (REVOCATIONS_PATH, REVOCATION_KEYS_PATH)
    )
    return parse_revocations(listed.content, live.url, jose.parse_key_set(keys.content))


def codes(live: Running, identity: str, sent: Any, count: int = 16) -> set[str]:
    """Return the codes or statuses of the answers on this many connections, which the kernel spreads over the workers."""
    headers, found = {"Authorization": f"Bearer {identity}"}, set()
    for _ in range(count):
        answer = httpx.post(f"{live.url}/tokens", json=sent, headers=headers, timeout=60, verify=NO_TLS)
        found.add(answer.json().get("code", str(answer.status_code)))
    return found


def in_force(live: Running) -> int:
    """Count the workers that have audited that all recorded revocations are in force."""
    count = len(Ledger(FolderHome(Path(live.settings.data)), live.url).read().items.jtis)
    events = (event for event in live.audit() if event["event"] == "revocations_loaded")
    return len({event["worker"] for event in events if event["jti"] == count})


def test_the_list_and_its_key_are_public_documents(live: Running) -> None:
    listed, keys = live.http.get(REVOCATIONS_PATH), live.http.get(REVOCATION_KEYS_PATH)
    assert listed.headers["content-type"] == "application/eval-revocations+jwt"
    assert keys.headers["content-type"] == "application/jwk-set+json"
    for path, answer in ((REVOCATIONS_PATH, listed), (REVOCATION_KEYS_PATH, keys)):
        assert answer.headers["cache-control"] == f"public, max-age={LIST_AGE_S}"
        assert live.http.get(path, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
        assert live.http.head(path).headers["etag"] == answer.headers["etag"]
    assert listed.content == (Path(live.settings.data) / "revocations.jwt").read_bytes()
    (key,) = keys.json()["keys"]
    assert key["kid"] not in live.http.get("/.well-known/jwks.json").text
    metadata = live.http.get("/.well-known/eval-token-issuer").json()
    assert metadata["revocations_uri"] == live.url + REVOCATIONS_PATH
    assert metadata["revocation_keys_uri"] == live.url + REVOCATION_KEYS_PATH


def test_a_service_without_a_revocation_key_issues_and_has_no_list(service: Running) -> None:
    assert service.post(service.token()).status_code == 201
    for path in (REVOCATIONS_PATH, REVOCATION_KEYS_PATH):
        answer = service.http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "request.not_found")
    shown = service.http.get("/health/ready").json()["revocations"]
    assert shown == {"items": 0, "unlisted": 0, "stale": False, "list": None}


def test_every_worker_refuses_retries_of_a_revoked_token_within_two_seconds(live: Running) -> None:
    identity = live.token()
    first = live.post(identity).json()
    assert codes(live, identity, BODY) == {"200"}
    revoke(live, "--jti", first["jti"])
    assert within(IN_FORCE_S, lambda: in_force(live) == WORKERS)
    assert codes(live, identity, BODY) == {"token.revoked"}
    answer = live.post(identity)
    assert (answer.status_code, answer.json()["retryable"]) == (409, False)
    assert "secret" not in answer.text
    eventually(lambda: bool(read(live).revoked(first["jti"], "", 0)))
    assert [first["jti"]] in [event["jti"] for event in live.audit() if event.get("code") == "token.revoked"]
    assert live.post(live.token()).status_code == 201, "a new request for the same run"


def test_the_refusal_of_a_batch_names_the_revoked_item(live: Running) -> None:
    identity, sent = live.token(), {"results": [numbered(each) for each in range(3)]}
    tokens = live.post(identity, sent, "/tokens/batch").json()["tokens"]
    revoke(live, "--jti", tokens[1]["jti"])
    eventually(lambda: live.post(identity, sent, "/tokens/batch").status_code == 409)
    eventually(lambda: in_force(live) == WORKERS and bool(read(live).revoked(tokens[1]["jti"], "", 0)))
    eventually(lambda: len({httpx.get(live.url + REVOCATIONS_PATH, verify=NO_TLS).content for _ in range(12)}) == 1)
    (fault,) = live.post(identity, sent, "/tokens/batch").json()["errors"]
    assert (fault["code"], fault["pointer"]) == ("token.revoked", "/results/1")


def test_readiness_says_how_long_the_list_is_valid(live: Running) -> None:
    def shown() -> dict[str, Any]:
        answer = live.http.get("/health/ready")
        assert answer.status_code == 200
        found: dict[str, Any] = answer.json()["revocations"]
        return found

    eventually(lambda: (shown()["unlisted"], shown()["list"]["number"]) == (0, read(live).number))
    assert (shown()["stale"], shown()["items"]) == (False, read(live).count)
    assert LIST_GOOD_S - 600 < shown()["list"]["good_for_s"] <= LIST_GOOD_S
    assert shown()["list"]["next_update"] == read(live).next_update


def verify(live: Running, folder: Path) -> tuple[int, str]:
    """Verify the file as a relying party that trusts this issuer by its URL, has just received the file and keeps lists."""
    file = folder / ".eval_results" / result_file_name(BODY["claims"]["benchmark_repo"])
    by = ("--issuer", live.url, "--audience", AUDIENCE, "--state", folder / "state", "--cache", folder / "cache")
    # Cached documents are not fetched again for minutes.
    for copy in (folder / "cache").glob("*"):
        copy.unlink()
    done = issuer("verify", file, "--repo", BODY["claims"]["model_repo"], *by, "--received-now")
    return done.returncode, done.stdout + done.stderr


def write_result(folder: Path, entry: str) -> None:
    file = folder / ".eval_results" / result_file_name(BODY["claims"]["benchmark_repo"])
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text(entry)


@pytest.mark.long
def test_a_relying_party_sees_revocations_and_refuses_an_older_list(tmp_path: Path, provider: LocalProvider) -> None:
    """In turn: an empty list, a token, an interval, the list of a host without the key, a rollback."""
    write_folder(tmp_path, provider)
    begin_history(tmp_path)
    key = make_key(tmp_path / "keys", None)
    with EmbeddedValkey() as store:
        with running(tmp_path, provider, store_url=store) as live:
            one = live.post(live.token()).json()
            other = live.post(live.token(), body(metrics=[{"metric_id": "accuracy", "value": 0.5}])).json()
            write_result(tmp_path, one["entry"])
            code, output = verify(live, tmp_path)
            assert (code, "revocations by list 1" in output) == (0, True), output
            empty = (tmp_path / "data" / "revocations.jwt").read_bytes()

            revoke(live, "--jti", one["jti"])
            eventually(lambda: read(live).count == 1)
            code, output = verify(live, tmp_path)
            assert (code, "the issuer has revoked this jti" in output) == (1, True), output
            write_result(tmp_path, other["entry"])
            assert verify(live, tmp_path)[0] == 0

            revoke(live, "--sub", "inspect-ai", "--from", other["issued_at"], "--until", int(time.time()) + 1)
            eventually(lambda: read(live).count == 2)
            code, output = verify(live, tmp_path)
            assert (code, "the issuer has revoked what inspect-ai had signed" in output) == (1, True), output
            port = live.settings.listen.port

        away = key.rename(tmp_path / key.name)
        seen = (tmp_path / "data" / "revocations.jwt").read_bytes()
        with running(tmp_path, provider, store_url=store, port=port) as live:
            before = read(live)
            offline = tmp_path / "offline" / "revocation"
            offline.mkdir(parents=True, mode=0o700)
            away.rename(offline / away.name)
            offline.parent.chmod(0o700)
            done = issuer("revocations", "renew", "--dir", offline.parent, "--data", live.settings.data)
            assert done.returncode == 0, done.stderr
            eventually(lambda: read(live).number == before.number + 1)
            assert (
                httpx.get(live.url + REVOCATIONS_PATH, verify=NO_TLS).content
                == (tmp_path / "data" / "revocations.jwt").read_bytes()
            )
            assert verify(live, tmp_path)[0] == 1

        # An old backup of everything: a relying party that has seen the newer list refuses the older one.
        (tmp_path / "data" / "revocations.jwt").write_bytes(empty)
        (tmp_path / "data" / "revocations.jsonl").unlink()
        anew = (*SERVE, "--begin-anew", "revocations")
        with running(tmp_path, provider, store_url=store, port=port, command=anew) as live:
            assert read(live).count == 0
            code, output = verify(live, tmp_path)
            assert (code, "refused, and the list that was seen before counts" in output) == (1, True), output
            # Any copy of the newer list restores it.
            (tmp_path / "data" / "revocations.jwt").write_bytes(seen)
            done = issuer("revocations", "renew", "--dir", offline.parent, "--data", live.settings.data, "--above", "9")
            assert done.returncode == 0, done.stderr
            eventually(lambda: read(live).number == 10)
            code, output = verify(live, tmp_path)
            assert (code, "revocations by list 10" in output or "refused" not in output) == (1, True), output


@pytest.mark.long
def test_a_revoked_integration_gets_no_token_despite_other_faults(tmp_path: Path, provider: LocalProvider) -> None:
    with running(tmp_path, provider) as live:
        assert live.post(live.token()).status_code == 201
        for path in (tmp_path / "policies").glob("*.yaml"):
            path.write_text("broken: [")
        data = Path(live.settings.data)
        (data / "revocations.jwt").write_text("no list")
        issuer("revoke", "--sub", "inspect-ai", "--from", 0, "--reason", "x", *places(live))
        assert within(IN_FORCE_S, lambda: live.post(live.token()).status_code == 409)
        assert live.post(live.token()).json()["code"] == "token.revoked"
        (data / "revocations.jsonl").write_text("{")
        eventually(lambda: "revocations refused" in live.log_text())
        assert live.post(live.token()).json()["code"] == "token.revoked"
        explained = live.post(live.token(), BODY, "/tokens/explain")
        assert explained.json()["code"] == "token.revoked"
