"""Errors over HTTP: the members of problem documents, without texts of files."""

import json
from typing import Any

from issuer.codes import Code
from issuer.errors import Fault, InputError, IssuerError, Place, Refused, SetupError, Undecided
from issuer.service.http.messages import Answer, WrittenProblem, problem_response
from issuer.service.http.pages import pages

URL = "https://issuer.example"
OVER_HTTP = [code for code in Code if code.meaning.status]
ON_FILES = [code for code in Code if not code.meaning.status]


def headers_of(answer: Answer) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in answer.headers}


def headers_for(error: IssuerError) -> dict[str, str]:
    return headers_of(problem_response(error, URL, "a-request"))


def problem(error: IssuerError) -> dict[str, Any]:
    value = json.loads(problem_response(error, URL, "a-request").body)
    assert isinstance(value, dict)
    return value


def test_a_prepared_problem_is_the_same_document() -> None:
    request_id = "0123abcd-0123-4567-89ab-0123456789ab"
    for code in OVER_HTTP:
        written, single = WrittenProblem(Undecided(code), URL), problem_response(Undecided(code), URL, request_id)
        for _ in range(2):
            answer = written.answer(request_id)
            assert (answer.status, answer.headers, answer.body) == (single.status, single.headers, single.body)


def test_every_code_is_a_complete_problem_document() -> None:
    for code in OVER_HTTP:
        response = problem_response(Refused(code), URL, "a-request")
        headers = headers_of(response)
        assert (response.status, headers["content-type"]) == (code.meaning.status, "application/problem+json")
        assert (headers["cache-control"], headers["content-length"]) == ("no-store", str(len(response.body)))
        assert json.loads(response.body) == {
            "type": f"{URL}/errors/{code}", "title": code.meaning.title, "status": code.meaning.status,
            "detail": f"{code.meaning.title} {code.meaning.remedy}", "instance": "urn:uuid:a-request",
            "code": str(code), "retryable": code.retryable, "request_id": "a-request", "errors": [],
        }  # fmt: skip


def test_a_retryable_problem_has_a_retry_after_of_at_least_one_second() -> None:
    for code in OVER_HTTP:
        headers = headers_for(IssuerError(code))
        assert ("retry-after" in headers) is code.retryable, code
        assert headers.get("retry-after", "1") == "1", code
    for wait, header in ((0, "1"), (1, "1"), (2, "2"), (3600, "3600")):
        assert headers_for(Undecided(Code.DEPENDENCY_STATE, retry_after_s=wait))["retry-after"] == header
        assert headers_for(Refused(Code.RATE_IDENTITY, retry_after_s=wait))["retry-after"] == header


def test_a_401_has_a_challenge_and_an_error_only_for_a_credential() -> None:
    assert headers_for(Refused(Code.IDENTITY_MISSING))["www-authenticate"] == "Bearer"
    assert headers_for(Refused(Code.IDENTITY_EXPIRED))["www-authenticate"] == 'Bearer error="invalid_token"'
    assert "www-authenticate" not in headers_for(Refused(Code.POLICY_TASK))


def test_the_detail_is_sentences() -> None:
    fault = Fault(Code.POLICY_TASK, "/claims/task_id", "the run names x; rule: grants.tasks")
    document = problem(Refused.of([fault]))
    assert document["detail"] == "the run names x; rule: grants.tasks. Ask the operator to grant the task."
    assert document["errors"] == [{"pointer": "/claims/task_id", "code": "policy.task", "detail": fault.detail}]


def test_no_text_of_a_file_leaves_over_http() -> None:
    for code in ON_FILES:
        file_error = InputError(code, "the pattern secret-org/*", Place("/etc/issuer/policies/x.yaml", 3, 7), "/grants")
        for error in (file_error, SetupError(code, "/etc/issuer/keys/secret.pem", (Fault(code, "", "secret"),))):
            document = problem(error)
            assert (document["code"], document["status"], document["errors"]) == ("internal", 500, [])
            assert "secret" not in json.dumps(document)
            assert "/etc" not in json.dumps(document)


def test_every_code_has_a_page_with_its_meaning_and_remedy() -> None:
    written = pages(ui=True, has_log=True)
    for code in Code:
        page = written[str(code)].whole
        headers = headers_of(page)
        assert headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in headers["content-security-policy"]
        text = page.body.decode().replace("&#x27;", "'").replace("&lt;", "<").replace("&gt;", ">")
        assert code.meaning.title in text
        assert code.meaning.remedy in text
        assert (f"HTTP status {code.meaning.status}" in text) is bool(code.meaning.status), code
        is_final = bool(code.meaning.status) and not code.retryable
        assert ("would refuse the same request again." in text) is is_final, code
        assert f'<a href="errors/{code}">' in written[""].whole.body.decode()
