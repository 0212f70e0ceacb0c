"""OAuth access tokens over HTTP: from real OAuth servers to the real service; JWTs (RFC 9068) and opaque ones (RFC 7662)."""

import base64
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from issuer.dev.provider import LocalProvider
from tests.support.leaks import assert_nothing_secret
from tests.support.oauth_server import OAuthServer, oauth_server
from tests.support.reusable import Issuers, new_nonce, with_nonce
from tests.support.running import BODY, Running, bring_to_its_limit, from_address, running
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def known(provider: LocalProvider) -> Iterator[Issuers]:
    with oauth_server() as jwts, oauth_server() as opaques:
        yield Issuers(provider, jwts, opaques)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, known: Issuers) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("oauth")
    known.write(folder)
    with running(folder, known.local, listen_trusted_proxies="127.0.0.1") as live:
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


def post(live: Running, token: str, number: int = 0, headers: Mapping[str, str] = {}) -> httpx.Response:
    return live.post(token, with_nonce(new_nonce(), number), **headers)


def outcome(live: Running, token: str, headers: Mapping[str, str] = {}) -> tuple[int, str]:
    """Return the status, and the code or the identity."""
    answer = post(live, token, headers=headers)
    body = answer.json()
    return answer.status_code, body.get("code") or body["identity"]


def payload(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


# -- both kinds ---------------------------------------------------------------------------------------------------------

FORMS = ("jwt", "opaque")


def test_an_oauth_client_gets_a_token_that_names_the_client_and_no_person(live: Running, known: Issuers) -> None:
    for form, server in zip(FORMS, (known.jwts, known.opaques), strict=True):
        person = {"username": "alice", "email": "alice@example.org"}
        token = known.credential(live, form, **person, scope="openid tokens:issue profile", aud=[live.url])
        answer = post(live, token)
        assert answer.status_code == 201, answer.text
        caller = payload(answer.json()["verify_token"])["caller"]
        assert caller == {"provider": form, "issuer": server.issuer, "client_id": server.client_id}


WRONG: list[tuple[dict[str, Any], tuple[int, str]]] = [
    ({"aud": "https://other.example"}, (401, "identity.audience_mismatch")),
    ({"aud": ["ours", "https://other.example"]}, (401, "identity.audience_mismatch")),
    ({"iss": "https://other.example"}, (401, "identity.issuer_unknown")),
    ({"exp": None}, (401, "identity.malformed")),
    ({"iat": 1_700_000_000, "exp": 1_700_000_600}, (401, "identity.expired")),
    ({"nbf": 4_000_000_000}, (401, "identity.not_yet_valid")),
    ({"cnf": {"jkt": "x"}}, (401, "identity.type_refused")),
    ({"client_id": "ci:nightly/2"}, (403, "integration.unknown")),
    ({"scope": None}, (403, "identity.claim_missing")),
    ({"scope": "tokens:issuer openid"}, (403, "identity.claim_mismatch")),
]


@pytest.mark.parametrize("form", FORMS)
def test_a_token_that_is_not_for_us_is_refused(live: Running, known: Issuers, opaques: OAuthServer, form: str) -> None:
    for claims, refused in WRONG:
        audience = {"aud": [live.url, "https://other.example"]} if "ours" in str(claims) else {}
        assert outcome(live, known.credential(live, form, **{**claims, **audience})) == refused, claims


# -- JWT access tokens ------------------------------------------------------------------------------------------------


def test_a_jwt_passes_by_every_registered_algorithm_if_it_is_an_access_token(live: Running, known: Issuers) -> None:
    for alg, typ in (("RS256", "at+jwt"), ("PS256", "AT+JWT"), ("ES256", "application/at+jwt"), ("EdDSA", "at+jwt")):
        assert outcome(live, known.jwts.token(live.url, form="jwt", alg=alg, jwt_typ=typ)) == (201, "jwt")
    for typ in ("JWT", "id+jwt"):
        assert outcome(live, known.jwts.token(live.url, form="jwt", jwt_typ=typ)) == (401, "identity.type_refused")


def test_a_jwt_is_not_introspected_unless_its_provider_wants_it(
    live: Running, known: Issuers, opaques: OAuthServer
) -> None:
    known.jwts.forget()
    assert outcome(live, known.jwts.token(live.url, form="jwt")) == (201, "jwt")
    assert known.jwts.introspected == opaques.introspected == 0
    assert outcome(live, opaques.token(live.url, form="jwt")) == (201, "opaque")
    assert opaques.introspected == 1


# -- opaque access tokens ---------------------------------------------------------------------------------------------


def test_a_revoked_token_is_refused(live: Running, opaques: OAuthServer) -> None:
    token = opaques.token(live.url)
    opaques.revoke(token)
    assert outcome(live, token) == (401, "identity.inactive")


@pytest.mark.long
def test_a_token_that_is_revoked_after_its_use_is_refused_within_a_minute(live: Running, opaques: OAuthServer) -> None:
    token = opaques.token(live.url)
    assert outcome(live, token) == (201, "opaque")
    opaques.revoke(token)
    eventually(lambda: outcome(live, token) == (401, "identity.inactive"), 60)


def test_a_token_is_asked_about_once_for_many_requests(live: Running, opaques: OAuthServer) -> None:
    token = opaques.token(live.url)
    opaques.behave("slow", seconds=0.3)
    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda number: post(live, token, number).status_code, range(16)))
    assert statuses == [201] * 16
    assert opaques.introspected == 1


def test_a_broken_provider_decides_nothing(live: Running, opaques: OAuthServer) -> None:
    for how in ("401", "500", "garbage"):
        token, request = opaques.token(live.url), with_nonce(new_nonce())
        opaques.behave(how)
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


def test_a_source_over_its_limit_asks_nothing_and_is_served_by_kept_answers(
    live: Running, known: Issuers, opaques: OAuthServer
) -> None:
    """Ten times a second there is room for one more refusal: a request may then cause a question."""
    here, kept = from_address("192.0.2.99"), known.credential(live, "opaque")
    assert outcome(live, kept, here) == (201, "opaque")
    bring_to_its_limit(live, "X-Forwarded-For: 192.0.2.99")
    fresh: list[tuple[int, str]] = []
    with ThreadPoolExecutor(30) as pool:
        while (429, "rate.source") not in fresh and len(fresh) < 300:
            tokens = [opaques.token(live.url) for _ in range(10)]
            junk = [pool.submit(live.post, "nonsense", BODY, **here) for _ in range(20)]
            fresh += pool.map(lambda token: outcome(live, token, here), tokens)
            assert {each.result().status_code for each in junk} <= {401, 429}
        assert outcome(live, kept, here) == (201, "opaque")
    assert set(fresh) - {(201, "opaque")} == {(429, "rate.source")}
    assert opaques.introspected == 1 + fresh.count((201, "opaque"))


def test_metadata_say_which_providers_want_a_nonce(live: Running) -> None:
    found = live.http.get("/.well-known/eval-token-issuer").json()
    kinds = {provider["id"]: (provider["kind"], provider["nonce"]) for provider in found["identity_providers"]}
    assert kinds["jwt"] == ("access-token", "required")
    assert kinds["opaque"] == ("introspection", "required")
