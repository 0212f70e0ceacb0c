"""Requests for tokens: their content, the meaning of an answer, and that no answer can make the client show the credential."""

import itertools
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
from issuer.client.tokens import explain_request, problem_of, read_answer, request_tokens
from issuer.codes import Code
from issuer.errors import IssuerError, Refused, Undecided
from issuer.formats.jose import base64url_encode
from issuer.identity import pat
from issuer.io.http_client import HttpAnswer
from issuer.token.wire import Denied, Explained, IssuedToken
from tests.support.scripted import Action, Scripted, reply

SECRET = "hush0123456789abcdef.hush"
CREDENTIAL = Credential(SECRET, reusable=True)
CHECK = {"code": "policy.model", "pointer": "", "rule": "r", "passed": False, "actual": "a", "expected": "", "hint": ""}


def problem(status: int, code: str, **members: Any) -> bytes:
    return reply(status, {"status": status, "code": code, "detail": "what happened", **members}, Retry_After="0")


def ask(*actions: Action) -> tuple[HttpAnswer, Scripted]:
    with Scripted(list(actions)) as server:
        request = {"claims": {"a": 1}, "nonce": fresh_nonce()}
        return request_tokens(server.url, CREDENTIAL, request, patience_s=60), server


def error_of(*actions: Action) -> IssuerError:
    with pytest.raises(IssuerError) as caught:
        ask(*actions)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return caught.value


def test_the_request_is_one_post_with_the_credential_in_its_one_place() -> None:
    _, server = ask(reply(201, {}))
    (seen,) = server.seen
    assert seen.line == "POST /tokens HTTP/1.1"
    assert seen.headers["authorization"] == f"Bearer {SECRET}"
    assert seen.headers["content-type"] == "application/json"
    assert SECRET.encode() not in seen.body
    with Scripted([reply(200, {})]) as explaining, pytest.raises(Undecided):
        explain_request(explaining.url, CREDENTIAL, {"claims": {}})
    assert explaining.seen[0].line == "POST /tokens/explain HTTP/1.1"
    busy = problem(503, "dependency.state"), problem(502, "internal"), problem(429, "rate.identity")
    answer, server = ask(*busy, reply(200, {}))
    assert (answer.status, len(server.seen), len({seen.body for seen in server.seen})) == (200, 4, 1)


def test_a_decided_answer_is_not_requested_again() -> None:
    for status, code, kind in (
        (500, "internal", Undecided), (503, "dependency.state_reset", Undecided), (408, "request.timeout", Undecided),
        (409, "nonce.reused", Refused), (400, "nonce.required", Refused), (401, "identity.inactive", Refused),
    ):  # fmt: skip
        with Scripted([problem(status, code), reply(201, {})]) as server:
            with pytest.raises(kind) as caught:
                request_tokens(server.url, CREDENTIAL, {})
            assert caught.value.code == code
        assert len(server.seen) == 1


def test_no_log_has_the_credential(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Scripted([problem(503, "dependency.state", detail=SECRET), reply(200, {})]) as server:
        request_tokens(server.url, CREDENTIAL, {}, patience_s=60)
        with pytest.raises(Undecided):
            client_credentials(f"{server.url}/token", OAuthClient("ci", SECRET), "https://issuer.example", patience_s=1)
    assert "POST /tokens" in caplog.text
    assert "hush" not in caplog.text


def test_an_error_says_how_long_to_wait_and_the_remedy_once() -> None:
    error = problem_of(HttpAnswer(503, {"retry-after": "7"}, b'{"code":"service.busy"}'))
    assert isinstance(error, Undecided)
    assert (error.code, error.retry_after_s) == (Code.SERVICE_BUSY, 7)
    remedy = Code.INTEGRATION_SUSPENDED.meaning.remedy
    body = msgspec.json.encode({"code": "integration.suspended", "detail": f"Not today. {remedy}"})
    refused = problem_of(HttpAnswer(403, {}, body))
    assert refused.detail == "Not today."
    assert describe_error(refused) == f"integration.suspended: Not today.\n  next: {remedy}"


ESCAPED = "".join(f"\\u{ord(sign):04x}" for sign in SECRET)


REPEATING: list[dict[str, Any]] = [
    {"detail": "no such credential: HERE"},
    {"errors": [{"pointer": "/x", "code": "identity.inactive", "detail": "Bearer HERE"}]},
    {"errors": [{"pointer": "/HERE", "code": "identity.inactive", "detail": ""}]},
    {"checks": [{**CHECK, "actual": "HERE"}]},
    {"HERE": 1},
    {"title": {"deep": ["", "xHEREx"]}},
]


def test_an_answer_that_repeats_the_credential_is_not_shown_or_used() -> None:
    inactive = Code.IDENTITY_INACTIVE
    for secret in (SECRET, ESCAPED, SECRET.replace("h", "\\u0068", 1)):
        for members in REPEATING:
            body = json.dumps({"code": "identity.inactive", **members}).replace("HERE", secret).encode()
            error = error_of(reply(401, body))
            assert (error.code, error.detail, error.faults) == (inactive, inactive.meaning.title, ()), members
            assert isinstance(error, Refused)
            assert not isinstance(error, Denied)
            assert isinstance(error_of(reply(500, body)), Undecided)
        error = error_of(reply(201, b'{"entry": "token: %s"}' % secret.encode()))
        assert isinstance(error, Undecided)
        assert "repeats the credential" in error.detail


SIGNATURE = base64url_encode(bytes(range(64)))
HEADER, PAYLOAD = (base64url_encode(part) for part in (b'{"alg":"EdDSA","typ":"JWT"}', b'{"iss":"https://i.example"}'))
JWT = f"{HEADER}.{PAYLOAD}.{SIGNATURE}"
PAT = pat.make(bytes(range(pat.RANDOM_BYTES)))


def test_a_part_of_the_credential_is_found_in_every_encoding_but_a_public_part() -> None:
    hidden = Code.IDENTITY_INACTIVE.meaning.title
    encodings: list[Callable[[str], str]] = [str, lambda text: "".join(f"%{ord(s):02x}" for s in text), quote_plus]
    secrets = (SECRET, JWT, PAT, PAT[:40] + "+/=" + PAT[43:])
    cuts = (slice(None), slice(-16, None), slice(-40, -5), slice(-17, -1))
    for number, (secret, cut) in enumerate(itertools.product(secrets, cuts)):
        part = encodings[number % 3](secret[cut])
        body = json.dumps({"code": "identity.inactive", "detail": f"x={part}..."}).encode()
        with Scripted([reply(401, body)]) as server, pytest.raises(Refused) as caught:
            request_tokens(server.url, Credential(secret, reusable=True), {})
        assert caught.value.detail == hidden, part
    for credential, public in ((JWT, f"{HEADER}.e30.c2ln"), (PAT, PAT[:20]), ("token", "tokens")):
        with Scripted([reply(201, json.dumps({"verify_token": public}).encode())]) as server:
            answer = request_tokens(server.url, Credential(credential, reusable=True), {})
        assert answer.status == 201


def test_the_details_and_warnings_of_a_refusal_are_kept() -> None:
    error = error_of(problem(403, "policy.model", checks=[CHECK], errors=[{"pointer": "/x", "detail": "d"}]))
    assert isinstance(error, Denied)
    assert (error.detail, error.faults[0].pointer, error.checks[0].actual) == ("what happened", "/x", "a")
    for sent, read in ((["one", "two"], ("one", "two")), (None, ()), ("text", ()), ([1], ("1",))):
        for extra in ({}, {"checks": [CHECK]}):
            error = error_of(problem(403, "policy.model", warnings=sent, **extra))
            assert isinstance(error, Refused)
            assert error.warnings == read


def test_a_body_that_is_not_an_issuer_s_is_undecided() -> None:
    for body in (b"", b"[]", b"<html>" + SECRET.encode(), b'{"a":1,"a":"%s"}' % SECRET.encode(), b"\xff"):
        assert isinstance(error_of(reply(200, body)), Undecided)
        assert isinstance(error_of(reply(401, body)), Undecided)
    kinds: tuple[type[IssuedToken] | type[Explained], ...] = (IssuedToken, Explained)
    for body in (b"{}", b'{"entry": "- {}", "jti": 1}', b'{"verdict": "perhaps"}', b"\xff", b"[1]"):
        for kind in kinds:
            with pytest.raises(Undecided, match="its 2xx body is not an issuer's"):
                read_answer(HttpAnswer(200, {}, body), kind)  # type: ignore[type-var]
