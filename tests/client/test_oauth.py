"""OAuthClient credentials against a real OAuth server, and against servers that answer as none should."""

from __future__ import annotations

import base64
import json
import time
import traceback
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest

from issuer.client.credential import (
    ERRORS,
    MAX_ANSWER_BYTES,
    Credential,
    OAuthClient,
    client_credentials,
    token_endpoint,
)
from issuer.codes import Code
from issuer.dev.sandbox import free_port
from issuer.errors import IssuerError, SetupError, Undecided
from tests.support.oauth_server import OAuthServer, oauth_server
from tests.support.scripted import Action, Scripted, hang_up, reply, stall

ISSUER = "https://issuer.example"
SECRET = "hush0123456789abcdef"
CLIENT = OAuthClient("ci", SECRET)
TOKEN = {"access_token": "opaque-token", "token_type": "Bearer", "expires_in": 600}


@pytest.fixture(scope="module")
def running() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        yield server


@pytest.fixture
def server(running: OAuthServer) -> OAuthServer:
    running.forget()
    return running


def ask(*actions: Action, client: OAuthClient = CLIENT, patience_s: float = 60) -> tuple[Credential, Scripted]:
    with Scripted(list(actions)) as site:
        return client_credentials(f"{site.url}/token?tenant=1", client, ISSUER, patience_s=patience_s), site


def error_of(*actions: Action, patience_s: float = 60) -> IssuerError:
    with pytest.raises(IssuerError) as caught:
        ask(*actions, patience_s=patience_s)
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    assert CLIENT.authorization.partition(" ")[2] not in shown
    return caught.value


# -- a real server --------------------------------------------------------------------------------------------------------


def test_a_real_server_gives_a_token_for_the_issuer_alone(server: OAuthServer) -> None:
    client = OAuthClient(server.client_id, server.client_secret)
    credential = client_credentials(token_endpoint(server.issuer), client, ISSUER)
    assert credential.reusable
    assert credential.bearer.startswith("ory_at_")


@pytest.mark.parametrize("path", ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"])
def test_the_token_endpoint_is_found_in_both_kinds_of_metadata(server: OAuthServer, path: str) -> None:
    server.serve_metadata(path)
    assert token_endpoint(server.issuer) == server.token_endpoint


def test_a_wrong_secret_is_told_by_the_code_of_a_real_server(server: OAuthServer) -> None:
    with pytest.raises(SetupError, match=r"refuses: invalid_client\. Check --client-id") as caught:
        client_credentials(server.token_endpoint, OAuthClient(server.client_id, SECRET), ISSUER)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


# -- what is asked --------------------------------------------------------------------------------------------------------


def test_the_request_is_that_of_rfc_6749_and_rfc_8707() -> None:
    client = OAuthClient("a:b %1", "p+ss w\u20acrd&=?:")
    _, site = ask(reply(200, TOKEN), client=client)
    (seen,) = site.seen
    assert seen.line == "POST /token?tenant=1 HTTP/1.1"
    assert seen.headers["content-type"] == "application/x-www-form-urlencoded"
    assert parse_qs(seen.body.decode()) == {
        "grant_type": ["client_credentials"],
        "scope": ["tokens:issue"],
        "resource": [ISSUER],
        "audience": [ISSUER],  # the same for servers that do not read RFC 8707
    }
    scheme, _, encoded = seen.headers["authorization"].partition(" ")
    name, _, secret = base64.b64decode(encoded, validate=True).decode("ascii").partition(":")
    assert (scheme, unquote(name), unquote(secret)) == ("Basic", client.id, client.secret)
    assert "+" not in name + secret, "a plus is a space to some servers and a plus to others"


def test_a_client_shows_no_secret() -> None:
    assert repr(CLIENT) == "OAuthClient(id='ci')"
    for text in ("", "hush\nhush", "hush\x00", "h" * 5000, "hush\udcff"):
        with pytest.raises(SetupError, match="client secret") as caught:
            OAuthClient("ci", text)
        assert "hush" not in str(caught.value)
    with pytest.raises(SetupError, match="client id"):
        OAuthClient("", SECRET)


# -- what is answered -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_a_token_type_is_bearer_in_any_case(kind: str) -> None:
    credential, _ = ask(reply(200, {**TOKEN, "token_type": kind, "unknown": {"a": [1]}}))
    assert credential == Credential("opaque-token", reusable=True)


@pytest.mark.parametrize(
    "changed",
    [
        {"token_type": None}, {"token_type": "mac"}, {"token_type": "DPoP"}, {"token_type": ["Bearer"]},
        {"token_type": "Bearer "}, {"token_type": ""}, {"access_token": None}, {"access_token": ""},
        {"access_token": "a b"}, {"access_token": "a\r\nX: y"}, {"access_token": "\u00fc"}, {"access_token": ["a"]},
        {"access_token": {"a": 1}}, {"access_token": 1}, {"access_token": True}, {"access_token": "a" * 16_385},
        {"access_token": "="},
    ],
)  # fmt: skip
def test_a_token_answer_that_is_none_is_undecided(changed: dict[str, Any]) -> None:
    sent = {name: value for name, value in {**TOKEN, **changed}.items() if value is not None}
    error = error_of(reply(200, sent))
    assert isinstance(error, Undecided)
    assert "malformed" in error.detail
    assert "opaque-token" not in str(error)


TWICE = json.dumps(TOKEN)[:-1].encode() + b', "access_token": "other"}'


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b'"x"', b"{", TWICE, b"\xff", b"\xef\xbb\xbf{}", b"access_token=a&token_type=bearer",
             b'{"a":' * 5000, b" " * MAX_ANSWER_BYTES + json.dumps(TOKEN).encode(), b'{"a": NaN}']
)  # fmt: skip
def test_an_answer_that_is_no_json_object_or_too_large_is_undecided(body: bytes) -> None:
    error = error_of(reply(200, body))
    assert isinstance(error, Undecided)
    assert "opaque-token" not in str(error)


def test_no_more_of_an_answer_is_read_than_an_honest_one_has() -> None:
    assert f"larger than {MAX_ANSWER_BYTES} bytes" in error_of(reply(200, b" " * (MAX_ANSWER_BYTES + 1))).detail


@pytest.mark.parametrize("code", sorted(ERRORS))
@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refusal_is_told_by_its_code_and_never_by_its_description(code: str, status: int) -> None:
    body = {"error": code, "error_description": f"the secret {SECRET} is wrong", "error_uri": f"https://x/{SECRET}"}
    error = error_of(reply(status, body))
    assert isinstance(error, SetupError)
    assert f"refuses: {code}. " in error.detail
    assert "wrong" not in error.detail


@pytest.mark.parametrize(
    "body",
    [
        {"error": SECRET},
        {"error": f"invalid_client {SECRET}"},
        {"error": "Invalid_Client"},
        {"error": ["invalid_client"]},
        {"error": {"code": SECRET}},
        {"detail": SECRET},
        [SECRET],
        SECRET.encode(),
        b'{"error":"invalid_client","error":"' + SECRET.encode() + b'"}',
        CLIENT.authorization.encode(),
    ],
)
def test_a_code_that_is_not_in_the_list_is_not_shown(body: object) -> None:
    error = error_of(reply(400, body))
    assert isinstance(error, SetupError)
    assert error.detail == "the authorization server refuses: HTTP status 400, without a known error code"


def test_an_error_under_status_200_is_no_token() -> None:
    assert isinstance(error_of(reply(200, {"error": "invalid_client", "error_description": SECRET})), Undecided)


@pytest.mark.parametrize("status", [201, 204, 302, 307, 500, 501])
def test_another_status_is_undecided_and_not_repeated(status: int) -> None:
    with Scripted([reply(200, TOKEN)]) as elsewhere:
        with Scripted([reply(status, TOKEN, Location=elsewhere.url)]) as site, pytest.raises(Undecided) as caught:
            client_credentials(site.url, CLIENT, ISSUER)
        assert f"HTTP status {status}" in caught.value.detail
    assert (len(site.seen), elsewhere.seen) == (1, [])


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_server_that_is_busy_is_asked_again(status: int) -> None:
    busy = reply(status, {"error": SECRET}, Retry_After="0")
    credential, site = ask(busy, busy, reply(200, TOKEN))
    assert credential.bearer == "opaque-token"
    assert len(site.seen) == 3
    assert isinstance(error_of(busy), Undecided)


def test_a_server_that_is_slow_or_not_there_is_undecided_in_time() -> None:
    began = time.monotonic()
    assert isinstance(error_of(stall, patience_s=0.5), Undecided)
    with pytest.raises(Undecided) as caught:
        client_credentials(f"http://127.0.0.1:{free_port()}/{SECRET}", CLIENT, ISSUER, patience_s=0.5)
    assert SECRET not in str(caught.value), "of a URL only the host is told"
    assert time.monotonic() - began < 15, "that is how long one read may take by itself"


def test_what_the_server_could_not_say_is_not_laid_to_the_issuer_s_store() -> None:
    for actions in ([reply(503, {})], [hang_up], [reply(200, {})], [reply(200, b" " * (MAX_ANSWER_BYTES + 1))]):
        assert error_of(*actions, patience_s=0.5).code is Code.DEPENDENCY_AUTHORIZATION_SERVER
    with pytest.raises(Undecided) as caught:
        token_endpoint(f"http://127.0.0.1:{free_port()}", patience_s=0.5)
    assert caught.value.code is Code.DEPENDENCY_AUTHORIZATION_SERVER


def test_the_secret_is_sent_to_https_and_loopback_alone() -> None:
    for endpoint in ("http://as.example/token", "ftp://127.0.0.1/token", "http://[::2]/", "", "token"):
        with pytest.raises(SetupError):
            client_credentials(endpoint, CLIENT, ISSUER)


# -- metadata -------------------------------------------------------------------------------------------------------------


def metadata_error(body: object, status: int = 200) -> IssuerError:
    with Scripted([reply(status, body)]) as site:
        if isinstance(body, dict) and body.get("issuer") == "HERE":
            site.actions[0] = reply(status, {**body, "issuer": site.url})
        with pytest.raises(IssuerError) as caught:
            token_endpoint(site.url, patience_s=5)
    return caught.value


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"issuer": "https://other.example", "token_endpoint": "https://127.0.0.1/token"}, "for another issuer"),
        ({"token_endpoint": "https://127.0.0.1/token"}, "for another issuer"),
        ({"issuer": "HERE"}, "publishes no token_endpoint"),
        ({"issuer": "HERE", "token_endpoint": ["https://127.0.0.1/token"]}, "publishes no token_endpoint"),
        ({"issuer": "HERE", "token_endpoint": "https://evil.example/token"}, "on another host"),
        ({"issuer": "HERE", "token_endpoint": "https://127.0.0.1.evil.example/token"}, "on another host"),
        ({"issuer": "HERE", "token_endpoint": "https://127.0.0.1@evil.example/token"}, "is not https"),
        ({"issuer": "HERE", "token_endpoint": "http://evil.example/token"}, "is not https"),
        ({"issuer": "HERE", "token_endpoint": "file:///etc/passwd"}, "is not https"),
        ({"issuer": "HERE", "token_endpoint": "https://127.0.0.1\\@evil.example/"}, "is not https"),
        ({"issuer": "HERE", "token_endpoint": "https://127.0.0.1:x/"}, "is not https"),
    ],
)
def test_metadata_cannot_send_the_secret_elsewhere(members: dict[str, Any], said: str) -> None:
    error = metadata_error(members)
    assert isinstance(error, SetupError)
    assert said in error.detail
    assert "evil" not in error.detail


def test_metadata_that_is_none_is_undecided() -> None:
    for body in (b"<html>", b"[]", b'{"issuer":"a","issuer":"b"}', b" " * (MAX_ANSWER_BYTES + 1)):
        assert isinstance(metadata_error(body), Undecided)


def test_a_server_without_metadata_is_told_what_to_do() -> None:
    error = metadata_error(b"", 404)
    assert isinstance(error, SetupError)
    assert "give --token-endpoint" in error.detail
    assert isinstance(metadata_error(b"", 500), Undecided)
    assert isinstance(metadata_error(b"", 302), Undecided)


def test_metadata_stands_where_the_two_specifications_put_it() -> None:
    with Scripted([reply(404)]) as site:
        for path in ("", "/tenant", "/tenant/"):
            with pytest.raises(SetupError):
                token_endpoint(site.url + path)
    assert [seen.line.split()[1] for seen in site.seen] == [
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
        *2 * ("/.well-known/oauth-authorization-server/tenant", "/tenant/.well-known/openid-configuration"),
    ]


def test_an_issuer_with_a_slash_at_its_end_is_compared_with_it() -> None:
    with Scripted([b""]) as site:
        site.actions[0] = reply(200, {"issuer": f"{site.url}/", "token_endpoint": f"{site.url}/token"})
        assert token_endpoint(f"{site.url}/") == f"{site.url}/token"
        with pytest.raises(SetupError, match="last slash"):
            token_endpoint(site.url)


@pytest.mark.parametrize(
    "server", ["https://as.example?x=hush", "https://as.example#hush", "https://id:hush@as.example"]
)
def test_what_is_no_issuer_is_refused_without_being_quoted(server: str) -> None:
    with pytest.raises(SetupError) as caught:
        token_endpoint(server)
    assert "hush" not in str(caught.value)
