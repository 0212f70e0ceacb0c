"""OAuthClient credentials against a real OAuth server, and against servers with bad answers."""

import base64
import json
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
    for path in ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"):
        server.serve_metadata(path)
        assert token_endpoint(server.issuer) == server.token_endpoint
    with pytest.raises(SetupError, match=r"refuses: invalid_client\. Check --client-id") as caught:
        client_credentials(server.token_endpoint, OAuthClient(server.client_id, SECRET), ISSUER)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


# -- the request ----------------------------------------------------------------------------------------------------------


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


# -- the answer -----------------------------------------------------------------------------------------------------------


def test_a_200_answer_without_a_bearer_token_is_undecided() -> None:
    kinds = [{"token_type": kind} for kind in (None, "mac", "DPoP", ["Bearer"], "Bearer ", "")]
    tokens = (None, "", "a b", "a\r\nX: y", "\u00fc", ["a"], {"a": 1}, 1, "a" * 16_385, "=")
    changes: list[dict[str, Any]] = [*kinds, *({"access_token": token} for token in tokens)]
    changes.append({"access_token": None, "error": "invalid_client", "error_description": SECRET})
    for changed in changes:
        sent = {name: value for name, value in {**TOKEN, **changed}.items() if value is not None}
        error = error_of(reply(200, sent))
        assert isinstance(error, Undecided), changed
        assert "malformed" in error.detail
        assert "opaque-token" not in str(error)
    twice = json.dumps(TOKEN)[:-1].encode() + b', "access_token": "other"}'
    no_object = [b"", b"null", b"[]", b"{", twice, b"\xff", b"\xef\xbb\xbf{}", b"access_token=a", b'{"a":' * 5000]
    for body in (*no_object, b'{"a": NaN}'):
        assert isinstance(error_of(reply(200, body)), Undecided), body
    too_large = error_of(reply(200, json.dumps(TOKEN).encode().ljust(MAX_ANSWER_BYTES + 1)))
    assert f"larger than {MAX_ANSWER_BYTES} bytes" in too_large.detail


def test_a_refusal_shows_a_known_code_and_never_its_description() -> None:
    for number, code in enumerate(sorted(ERRORS)):
        body = {"error": code, "error_description": f"the secret {SECRET} is wrong", "error_uri": f"https://x/{SECRET}"}
        error = error_of(reply((400, 401, 403)[number % 3], body))
        assert isinstance(error, SetupError)
        assert f"refuses: {code}. " in error.detail
        assert "wrong" not in error.detail
    unknown: list[object] = [
        {"error": SECRET}, {"error": f"invalid_client {SECRET}"}, {"error": "Invalid_Client"}, [SECRET],
        {"error": ["invalid_client"]}, {"detail": SECRET}, SECRET.encode(),
        b'{"error":"invalid_client","error":"' + SECRET.encode() + b'"}', CLIENT.authorization.encode(),
    ]  # fmt: skip
    for refusal in unknown:
        error = error_of(reply(400, refusal))
        assert isinstance(error, SetupError)
        assert error.detail == "the authorization server refuses: HTTP status 400, without a known error code"


def test_a_busy_server_is_asked_again_and_another_status_is_undecided() -> None:
    for status in (201, 204, 302, 307, 500, 501):
        with Scripted([reply(200, TOKEN)]) as elsewhere:
            with Scripted([reply(status, TOKEN, Location=elsewhere.url)]) as site, pytest.raises(Undecided) as caught:
                client_credentials(site.url, CLIENT, ISSUER)
            assert f"HTTP status {status}" in caught.value.detail
        assert (len(site.seen), elsewhere.seen) == (1, [])
    busy = reply(503, {"error": SECRET}, Retry_After="0")
    for kind in ("Bearer", "bearer", "bEaReR"):
        credential, site = ask(busy, busy, reply(200, {**TOKEN, "token_type": kind, "unknown": {"a": [1]}}))
        assert (credential, len(site.seen)) == (Credential("opaque-token", reusable=True), 3)


def test_a_server_without_an_answer_in_time_is_undecided_under_its_own_code() -> None:
    busy, huge = reply(503, {}, Retry_After="0"), reply(200, b" " * (MAX_ANSWER_BYTES + 1))
    for actions in ([stall], [busy], [hang_up], [reply(200, {})], [huge]):
        assert error_of(*actions, patience_s=0.5).code is Code.DEPENDENCY_AUTHORIZATION_SERVER
    for ask_absent in (
        lambda: client_credentials(f"http://127.0.0.1:1/{SECRET}", CLIENT, ISSUER, patience_s=0.5),
        lambda: token_endpoint("http://127.0.0.1:1", patience_s=0.5),
    ):
        with pytest.raises(Undecided) as caught:
            ask_absent()
        assert caught.value.code is Code.DEPENDENCY_AUTHORIZATION_SERVER
        assert SECRET not in str(caught.value), "of a URL only the host is shown"


def test_the_secret_is_sent_to_https_and_loopback_alone() -> None:
    for endpoint in ("http://as.example/token", "ftp://127.0.0.1/token", "http://[::2]/", "", "token"):
        with pytest.raises(SetupError):
            client_credentials(endpoint, CLIENT, ISSUER)
    for server in ("https://as.example?x=hush", "https://as.example#hush", "https://id:hush@as.example"):
        with pytest.raises(SetupError) as caught:
            token_endpoint(server)
        assert "hush" not in str(caught.value), "it is not quoted"


# -- metadata -------------------------------------------------------------------------------------------------------------


def metadata_error(body: object, status: int = 200) -> IssuerError:
    with Scripted([reply(status, body)]) as site:
        if isinstance(body, dict) and body.get("issuer") == "HERE":
            site.actions[0] = reply(status, {**body, "issuer": site.url})
        with pytest.raises(IssuerError) as caught:
            token_endpoint(site.url, patience_s=5)
    return caught.value


def test_metadata_cannot_send_the_secret_elsewhere_and_their_lack_has_a_remedy() -> None:
    here: dict[str, Any] = {"issuer": "HERE"}
    cases: list[tuple[object, int, str]] = [
        ({"issuer": "https://other.example", "token_endpoint": "https://127.0.0.1/token"}, 200, "for another issuer"),
        ({"token_endpoint": "https://127.0.0.1/token"}, 200, "for another issuer"),
        (here, 200, "publishes no token_endpoint"),
        ({**here, "token_endpoint": ["https://127.0.0.1/token"]}, 200, "publishes no token_endpoint"),
        ({**here, "token_endpoint": "https://evil.example/token"}, 200, "on another host"),
        ({**here, "token_endpoint": "https://127.0.0.1.evil.example/token"}, 200, "on another host"),
        ({**here, "token_endpoint": "https://127.0.0.1@evil.example/token"}, 200, "is not https"),
        ({**here, "token_endpoint": "http://evil.example/token"}, 200, "is not https"),
        ({**here, "token_endpoint": "https://127.0.0.1\\@evil.example/"}, 200, "is not https"),
        ({**here, "token_endpoint": "https://127.0.0.1:x/"}, 200, "is not https"),
        (b"", 404, "give --token-endpoint"),
    ]
    for body, status, reason in cases:
        error = metadata_error(body, status)
        assert isinstance(error, SetupError), body
        assert (reason in error.detail, "evil" in error.detail) == (True, False), body
    for body, status in (
        (b"<html>", 200), (b"[]", 200), (b'{"issuer":"a","issuer":"b"}', 200), (b" " * (MAX_ANSWER_BYTES + 1), 200),
        (b"", 500), (b"", 302),
    ):  # fmt: skip
        assert isinstance(metadata_error(body, status), Undecided)


def test_metadata_are_requested_at_the_paths_of_both_specifications() -> None:
    with Scripted([reply(404)]) as site:
        for path in ("", "/tenant", "/tenant/"):
            with pytest.raises(SetupError):
                token_endpoint(site.url + path)
    assert [seen.line.split()[1] for seen in site.seen] == [
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
        *2 * ("/.well-known/oauth-authorization-server/tenant", "/tenant/.well-known/openid-configuration"),
    ]
    with Scripted([b""]) as site:
        site.actions[0] = reply(200, {"issuer": f"{site.url}/", "token_endpoint": f"{site.url}/token"})
        assert token_endpoint(f"{site.url}/") == f"{site.url}/token"
        with pytest.raises(SetupError, match="last slash"):
            token_endpoint(site.url)
