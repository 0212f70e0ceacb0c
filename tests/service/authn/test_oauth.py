"""OAuth access tokens over HTTP: from real OAuth servers to the real service; JWTs (RFC 9068) and opaque ones (RFC 7662)."""

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from issuer.dev.provider import LocalProvider
from issuer.formats import jose
from tests.support.leaks import assert_nothing_secret
from tests.support.oauth_server import OAuthServer
from tests.support.reusable import Issuers, issuers, new_nonce, with_nonce
from tests.support.running import Running, running
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def known(provider: LocalProvider) -> Iterator[Issuers]:
    with issuers(provider) as found:
        yield found


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, known: Issuers) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("oauth")
    known.write(folder)
    with running(folder, known.local) as live:
        yield live
        live.process.terminate()
        assert live.process.wait(60) == 0
        live.secrets += known.jwts.secrets + known.opaques.secrets
        assert_nothing_secret(live)


@pytest.fixture
def opaques(known: Issuers) -> OAuthServer:
    """The server of opaque tokens, well-behaved again and with its counters at zero."""
    known.opaques.forget()
    return known.opaques


def outcome(live: Running, token: str) -> tuple[int, str]:
    answer = live.post(token, with_nonce(new_nonce()))
    body = answer.json()
    return answer.status_code, body.get("code") or body["identity"]


def test_an_oauth_client_gets_a_token_that_names_the_client_and_no_person(live: Running, known: Issuers) -> None:
    found = live.http.get("/.well-known/eval-token-issuer").json()["identity_providers"]
    kinds = {provider["id"]: (provider["kind"], provider["nonce"]) for provider in found}
    assert (kinds["jwt"], kinds["opaque"]) == (("access-token", "required"), ("introspection", "required"))
    for form, server in (("jwt", known.jwts), ("opaque", known.opaques)):
        person = {"username": "alice", "email": "alice@example.org"}
        token = known.credential(live, form, **person, scope="openid tokens:issue profile", aud=[live.url])
        sent = with_nonce(new_nonce())
        # On a busy machine the server may not answer in time.
        eventually(lambda token=token, sent=sent: live.post(token, sent).status_code == 201)  # type: ignore[misc]
        answer = live.post(token, sent)
        payload = json.loads(jose.parse_compact(answer.json()["verify_token"]).unverified_payload)
        assert payload["caller"] == {"provider": form, "issuer": server.issuer, "client_id": server.client_id}


# What a client's server may have said; tests/service/authn/test_access_tokens.py and test_introspection.py have all of it.
WRONG: list[tuple[dict[str, Any], tuple[int, str]]] = [
    ({"aud": "https://other.example"}, (401, "identity.audience_mismatch")),
    ({"nbf": 4_000_000_000}, (401, "identity.not_yet_valid")),
    ({"cnf": {"jkt": "x"}}, (401, "identity.type_refused")),
    ({"client_id": "ci:nightly/2"}, (403, "integration.unknown")),
    ({"scope": None}, (403, "identity.claim_missing")),
    ({"scope": "tokens:issuer openid"}, (403, "identity.claim_mismatch")),
]


def test_a_token_that_is_not_for_us_is_refused(live: Running, known: Issuers, opaques: OAuthServer) -> None:
    for form, (claims, refused) in itertools.product(("jwt", "opaque"), WRONG):
        assert outcome(live, known.credential(live, form, **claims)) == refused, (form, claims)


def test_a_jwt_is_not_introspected_unless_its_provider_wants_it(
    live: Running, known: Issuers, opaques: OAuthServer
) -> None:
    known.jwts.forget()
    assert outcome(live, known.jwts.token(live.url, form="jwt")) == (201, "jwt")
    assert known.jwts.introspected == opaques.introspected == 0
    assert outcome(live, opaques.token(live.url, form="jwt")) == (201, "opaque")
    assert opaques.introspected == 1


@pytest.mark.long
def test_a_token_that_is_revoked_after_its_use_is_refused_within_a_minute(live: Running, opaques: OAuthServer) -> None:
    token = opaques.token(live.url)
    assert outcome(live, token) == (201, "opaque")
    opaques.revoke(token)
    eventually(lambda: outcome(live, token) == (401, "identity.inactive"), 60)


def test_a_broken_provider_decides_nothing(live: Running, opaques: OAuthServer) -> None:
    token, request = opaques.token(live.url), with_nonce(new_nonce())
    opaques.behave("500")
    answer = live.post(token, request)
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["retryable"]) == (503, "dependency.introspection", True)
    assert int(answer.headers["Retry-After"]) >= 1
    assert "server_error" not in answer.text
    opaques.behave()
    assert live.post(token, request).status_code == 201, "the request has used nothing"


@pytest.mark.parametrize(("how", "seconds"), [("drip", 0.1), pytest.param("slow", 20, marks=pytest.mark.long)])
def test_a_slow_provider_decides_nothing_and_delays_no_other_request(
    live: Running, known: Issuers, opaques: OAuthServer, how: str, seconds: float
) -> None:
    """Its whole answer would be a good one, and takes 20 seconds or more."""
    token, others = opaques.token(live.url), [known.credential(live, "jwt") for _ in range(3)]
    opaques.behave(how, seconds)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(outcome, live, token)
        eventually(lambda: opaques.introspected == 1)
        for other in others:
            assert outcome(live, other) == (201, "jwt")

        assert waiting.result() == (503, "dependency.introspection")


def test_a_provider_that_is_down_stops_its_own_tokens_alone(
    live: Running, known: Issuers, opaques: OAuthServer
) -> None:
    kept, unknown = known.credential(live, "opaque"), known.credential(live, "opaque")
    assert outcome(live, kept) == (201, "opaque")
    opaques.stop()
    try:
        assert outcome(live, unknown) == (503, "dependency.introspection")
        assert outcome(live, kept) == (201, "opaque"), "within its minute"
        assert outcome(live, known.credential(live, "jwt")) == (201, "jwt")
    finally:
        opaques.start()
    assert outcome(live, unknown) == (401, "identity.inactive"), "it has forgotten them"
    assert outcome(live, known.credential(live, "opaque")) == (201, "opaque")
