"""Errors over HTTP: what every problem document says, and what none of them may."""

from __future__ import annotations

import json
from typing import Any

import pytest

from issuer.errors import Code, Fault, InputError, IssuerError, Place, Refused, SetupError, Undecided
from issuer.service import pages
from issuer.service.problems import problem_response

URL = "https://issuer.example"
OVER_HTTP = [code for code in Code if code.meaning.status]
ON_FILES = [code for code in Code if not code.meaning.status]


def problem(error: IssuerError) -> dict[str, Any]:
    value = json.loads(problem_response(error, URL, "a-request").content)
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("code", OVER_HTTP)
def test_every_code_is_a_complete_problem_document(code: Code) -> None:
    response = problem_response(Refused(code), URL, "a-request")
    assert (response.status_code, response.media_type) == (code.meaning.status, "application/problem+json")
    assert response.headers["Cache-Control"] == "no-store"
    assert json.loads(response.content) == {
        "type": f"{URL}/errors/{code}",
        "title": code.meaning.title,
        "status": code.meaning.status,
        "detail": f"{code.meaning.title} {code.meaning.remedy}",
        "instance": "urn:uuid:a-request",
        "code": str(code),
        "retryable": code.retryable,
        "request_id": "a-request",
        "errors": [],
    }


@pytest.mark.parametrize("code", OVER_HTTP)
def test_what_was_not_decided_says_when_to_come_back(code: Code) -> None:
    headers = problem_response(IssuerError(code), URL, "a-request").headers
    assert ("Retry-After" in headers) is code.retryable
    assert headers.get("Retry-After", "1") == "1"


@pytest.mark.parametrize(("wait", "header"), [(0, "1"), (1, "1"), (2, "2"), (3600, "3600")])
def test_the_wait_is_whole_seconds_and_never_none(wait: int, header: str) -> None:
    assert (
        problem_response(Undecided(Code.DEPENDENCY_STATE, retry_after_s=wait), URL, "r").headers["Retry-After"]
        == header
    )
    limited = Refused(Code.RATE_IDENTITY, retry_after_s=wait)
    assert problem_response(limited, URL, "r").headers["Retry-After"] == header


def test_a_401_carries_a_challenge_and_names_an_error_only_where_a_credential_was_sent() -> None:
    assert problem_response(Refused(Code.IDENTITY_MISSING), URL, "r").headers["WWW-Authenticate"] == "Bearer"
    expired = problem_response(Refused(Code.IDENTITY_EXPIRED), URL, "r")
    assert expired.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'
    assert "WWW-Authenticate" not in problem_response(Refused(Code.POLICY_TASK), URL, "r").headers


def test_the_detail_is_sentences() -> None:
    fault = Fault(Code.POLICY_TASK, "/claims/task_id", "the run names x; rule: grants.tasks")
    told = problem(Refused.of([fault]))
    assert told["detail"] == "the run names x; rule: grants.tasks. Ask the operator to grant the task."
    assert told["errors"] == [{"pointer": "/claims/task_id", "code": "policy.task", "detail": fault.detail}]


@pytest.mark.parametrize("code", ON_FILES)
def test_what_a_file_says_is_never_told_over_http(code: Code) -> None:
    file_error = InputError(code, "the pattern secret-org/*", Place("/etc/issuer/policies/x.yaml", 3, 7), "/grants")
    for error in (file_error, SetupError(code, "/etc/issuer/keys/secret.pem", (Fault(code, "", "secret"),))):
        told = problem(error)
        assert (told["code"], told["status"], told["errors"]) == ("internal", 500, [])
        assert "secret" not in json.dumps(told)
        assert "/etc" not in json.dumps(told)


@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_a_page_that_says_what_happened_and_what_to_do(code: Code) -> None:
    page = pages.of(str(code))
    assert page.media_type == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    text = page.content.replace("&#x27;", "'").replace("&lt;", "<").replace("&gt;", ">")
    assert code.meaning.title in text
    assert code.meaning.remedy in text
    assert (f"HTTP status {code.meaning.status}" in text) is bool(code.meaning.status)
    assert ("Decided no." in text) is (bool(code.meaning.status) and not code.retryable)
    assert f'<a href="/errors/{code}">' in pages.index().content


@pytest.mark.parametrize("text", ["", "x", "<script>", "../live", "internal\n", "INTERNAL"])
def test_what_is_no_code_has_no_page(text: str) -> None:
    with pytest.raises(Refused) as error:
        pages.of(text)
    assert error.value.code is Code.REQUEST_NOT_FOUND
