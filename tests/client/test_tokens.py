"""Asking for tokens: what is sent, what an answer means, and that no answer can have the credential shown."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus

import msgspec
import pytest

from issuer.cli.terminal import describe_error
from issuer.client.credential import Credential, OAuthClient, client_credentials, fresh_nonce
from issuer.client.tokens import explain_request, problem_of, read_answer, request_token, request_tokens
from issuer.codes import Code
from issuer.errors import IssuerError, Refused, Undecided
from issuer.formats.jose import base64url_encode
from issuer.identity import pat
from issuer.io.http_client import HttpAnswer
from issuer.token.wire import Denied, Endpoint, Explained, IssuedToken, is_nonce
from tests.support import make
from tests.support.hostile_issuer import HostileIssuer
from tests.support.scripted import Action, Scripted, reply

SECRET = "hush0123456789abcdef.hush"
CREDENTIAL = Credential(SECRET, reusable=True)
CHECK = {"code": "policy.model", "pointer": "", "rule": "r", "passed": False, "actual": "a", "expected": "", "hint": ""}


def problem(status: int, code: str, **members: Any) -> bytes:
    return reply(status, {"status": status, "code": code, "detail": "what happened", **members}, Retry_After="0")


def ask(*actions: Action, endpoint: Endpoint = "/tokens") -> tuple[HttpAnswer, Scripted]:
    with Scripted(list(actions)) as server:
        request = {"claims": {"a": 1}, "nonce": fresh_nonce()}
        return request_tokens(server.url, CREDENTIAL, request, endpoint, patience_s=60), server


def error_of(*actions: Action) -> IssuerError:
    with pytest.raises(IssuerError) as caught:
        ask(*actions)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return caught.value


def test_the_request_is_one_post_with_the_credential_in_its_one_place() -> None:
    _, server = ask(reply(201, {}), endpoint="/tokens/explain")
    (seen,) = server.seen
    assert seen.line == "POST /tokens/explain HTTP/1.1"
    assert seen.headers["authorization"] == f"Bearer {SECRET}"
    assert seen.headers["content-type"] == "application/json"
    assert SECRET.encode() not in seen.body


def test_every_attempt_has_the_same_nonce() -> None:
    busy = problem(503, "dependency.state"), problem(502, "internal"), problem(429, "rate.identity")
    answer, server = ask(*busy, reply(200, {}))
    assert answer.status == 200
    assert len({json.loads(seen.body)["nonce"] for seen in server.seen}) == 1
    assert len({seen.body for seen in server.seen}) == 1
    assert len(server.seen) == 4


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (500, "internal", Undecided),
        (503, "dependency.state_reset", Undecided),
        (408, "request.timeout", Undecided),
        (409, "nonce.reused", Refused),
        (400, "nonce.required", Refused),
        (401, "identity.inactive", Refused),
    ],
)
def test_what_would_be_answered_the_same_again_is_asked_once(status: int, code: str, kind: type[IssuerError]) -> None:
    with Scripted([problem(status, code), reply(201, {})]) as server:
        with pytest.raises(kind) as caught:
            request_tokens(server.url, CREDENTIAL, {})
        assert caught.value.code == code
    assert len(server.seen) == 1


def test_no_log_has_the_credential(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Scripted([problem(503, "dependency.state", detail=SECRET), reply(200, {})]) as server:
        request_tokens(server.url, CREDENTIAL, {}, patience_s=60)
        client_credentials_of(server)
    assert "POST /tokens" in caplog.text
    assert "hush" not in caplog.text


def client_credentials_of(server: Scripted) -> None:
    with pytest.raises(Undecided):
        client_credentials(f"{server.url}/token", OAuthClient("ci", SECRET), "https://issuer.example", patience_s=1)


def test_an_error_says_how_long_to_wait() -> None:
    error = problem_of(HttpAnswer(503, {"retry-after": "7"}, b'{"code":"service.busy"}'))
    assert isinstance(error, Undecided)
    assert (error.code, error.retry_after_s) == (Code.SERVICE_BUSY, 7)


def test_the_remedy_at_the_end_of_an_issuer_s_detail_is_said_once() -> None:
    remedy = Code.INTEGRATION_SUSPENDED.meaning.remedy
    body = msgspec.json.encode({"code": "integration.suspended", "detail": f"Not today. {remedy}"})
    error = problem_of(HttpAnswer(403, {}, body))
    assert error.detail == "Not today."
    assert describe_error(error) == f"integration.suspended: Not today.\n  next: {remedy}"


# -- servers that repeat what they were sent ------------------------------------------------------------------------------

ESCAPED = "".join(f"\\u{ord(sign):04x}" for sign in SECRET)


@pytest.mark.parametrize("secret", [SECRET, ESCAPED, SECRET.replace("h", "\\u0068", 1)])
@pytest.mark.parametrize(
    "members",
    [
        {"detail": "no such credential: HERE"},
        {"errors": [{"pointer": "/x", "code": "identity.inactive", "detail": "Bearer HERE"}]},
        {"errors": [{"pointer": "/HERE", "code": "identity.inactive", "detail": ""}]},
        {"checks": [{**CHECK, "actual": "HERE"}]},
        {"HERE": 1},
        {"title": {"deep": ["", "xHEREx"]}},
    ],
)
def test_an_error_that_repeats_the_credential_is_told_by_its_code_alone(members: dict[str, Any], secret: str) -> None:
    body = json.dumps({"code": "identity.inactive", **members}).replace("HERE", secret).encode()
    error = error_of(reply(401, body))
    assert (error.code, error.detail, error.faults) == (
        Code.IDENTITY_INACTIVE,
        Code.IDENTITY_INACTIVE.meaning.title,
        (),
    )
    assert isinstance(error, Refused)
    assert not isinstance(error, Denied)
    assert isinstance(error_of(reply(500, body)), Undecided)


@pytest.mark.parametrize("secret", [SECRET, ESCAPED])
def test_a_good_answer_that_repeats_the_credential_is_not_used(secret: str) -> None:
    error = error_of(reply(201, b'{"entry": "token: %s"}' % secret.encode()))
    assert isinstance(error, Undecided)
    assert "repeats the credential" in error.detail


SIGNATURE = base64url_encode(bytes(range(64)))
HEADER, PAYLOAD = (base64url_encode(part) for part in (b'{"alg":"EdDSA","typ":"JWT"}', b'{"iss":"https://i.example"}'))
JWT = f"{HEADER}.{PAYLOAD}.{SIGNATURE}"
PAT = pat.make(bytes(range(pat.RANDOM_BYTES)))


@pytest.mark.parametrize("secret", [SECRET, JWT, PAT, PAT[:40] + "+/=" + PAT[43:]])
@pytest.mark.parametrize("cut", [slice(None), slice(-16, None), slice(-40, -5), slice(-17, -1)])
@pytest.mark.parametrize("written", [str, lambda text: "".join(f"%{ord(sign):02x}" for sign in text), quote_plus])
def test_a_part_of_the_credential_is_found_however_it_is_written(
    secret: str, cut: slice, written: Callable[[str], str]
) -> None:
    body = json.dumps({"code": "identity.inactive", "detail": f"x={written(secret[cut])}..."}).encode()
    with Scripted([reply(401, body)]) as server, pytest.raises(Refused) as caught:
        request_tokens(server.url, Credential(secret, reusable=True), {})
    assert caught.value.detail == Code.IDENTITY_INACTIVE.meaning.title


@pytest.mark.parametrize(("credential", "public"), [(JWT, f"{HEADER}.e30.c2ln"), (PAT, PAT[:20])])
def test_what_is_public_of_a_credential_may_stand_in_an_answer(credential: str, public: str) -> None:
    with Scripted([reply(201, json.dumps({"verify_token": public}).encode())]) as server:
        answer = request_tokens(server.url, Credential(credential, reusable=True), {})
    assert answer.status == 201


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"<html>" + SECRET.encode(), b'{"a":1,"a":"%s"}' % SECRET.encode(), b"\xff"]
)
def test_a_good_answer_of_something_that_is_no_issuer_is_undecided(body: bytes) -> None:
    assert isinstance(error_of(reply(200, body)), Undecided)
    assert isinstance(error_of(reply(401, body)), Undecided)


def test_other_details_are_shown() -> None:
    error = error_of(problem(403, "policy.model", checks=[CHECK], errors=[{"pointer": "/x", "detail": "d"}]))
    assert isinstance(error, Denied)
    assert (error.detail, error.faults[0].pointer, error.checks[0].actual) == ("what happened", "/x", "a")


@pytest.mark.parametrize(("sent", "read"), [(["one", "two"], ("one", "two")), (None, ()), ("text", ()), ([1], ("1",))])
def test_what_an_issuer_warns_of_beside_a_refusal_is_kept(sent: object, read: tuple[str, ...]) -> None:
    for extra in ({}, {"checks": [CHECK]}):
        error = error_of(problem(403, "policy.model", warnings=sent, **extra))
        assert isinstance(error, Refused)
        assert error.warnings == read


def test_a_word_that_is_no_secret_may_stand_in_an_answer() -> None:
    with Scripted([reply(201, {"a": "tokens"})]) as server:
        assert request_tokens(server.url, Credential("token", reusable=False), {}).status == 201


# -- typed answers --------------------------------------------------------------------------------------------------------


def test_the_nonce_that_the_credential_needs_is_added() -> None:
    with HostileIssuer() as server:
        request_token(server.url, CREDENTIAL, {"claims": make.claims()})
        request_token(server.url, CREDENTIAL, {"claims": make.claims(), "nonce": "n" * 22})
    first, second = (json.loads(seen.body)["nonce"] for seen in server.posted)
    assert (is_nonce(first), second) == (True, "n" * 22)


@pytest.mark.parametrize("body", [b"{}", b'{"entry": "- {}", "jti": 1}', b'{"verdict": "perhaps"}', b"\xff", b"[1]"])
def test_a_good_status_with_a_body_that_is_not_an_issuer_s_is_undecided(body: bytes) -> None:
    kinds: tuple[type[IssuedToken] | type[Explained], ...] = (IssuedToken, Explained)
    for kind in kinds:
        with pytest.raises(Undecided, match="its 2xx body is not an issuer's"):
            read_answer(HttpAnswer(200, {}, body), kind)  # type: ignore[type-var]


def test_an_explanation_is_asked_for_where_nothing_is_signed() -> None:
    with Scripted([reply(200, {})]) as server, pytest.raises(Undecided):
        explain_request(server.url, CREDENTIAL, {"claims": {}})
    assert server.seen[0].line == "POST /tokens/explain HTTP/1.1"
