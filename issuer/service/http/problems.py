"""Errors as `application/problem+json` (RFC 9457). The only map from the error tree to HTTP."""

from __future__ import annotations

import math
import uuid

import msgspec
from msgspec import UNSET

from issuer.codes import Code
from issuer.errors import IssuerError, Refused, Undecided
from issuer.service.http.answer import Answer, answer
from issuer.wire import PROBLEM_TYPE, Denied, Problem, ProblemFault

_NO_ID = str(uuid.UUID(int=0))


class WrittenProblem:
    """An error whose problem document is written once, for answers that anybody may ask for as fast as he likes."""

    def __init__(self, error: IssuerError, issuer_url: str) -> None:
        template = problem_response(error, issuer_url, _NO_ID)
        self.status, self.headers = template.status, template.headers
        self._parts = template.body.split(_NO_ID.encode())

    def body(self, request_id: str) -> bytes:
        """Return the document of one request; an id is a UUID's text."""
        return request_id.encode().join(self._parts)

    def answer(self, request_id: str) -> Answer:
        """Return the answer to one request."""
        return Answer(self.status, self.headers, self.body(request_id))


def problem_response(error: IssuerError, issuer_url: str, request_id: str, **headers: str) -> Answer:
    """Write an error, with further headers. It contains nothing of a token, a key set or an upstream body."""
    code = error.code if error.code.meaning.status else Code.INTERNAL
    is_public = code is error.code  # content and place of a file are only for the operator
    problem = Problem(
        type=f"{issuer_url}/errors/{code}",
        title=code.meaning.title,
        status=code.meaning.status,
        detail=f"{_sentence(error.detail)} {code.meaning.remedy}" if is_public else code.meaning.remedy,
        instance=f"urn:uuid:{request_id}",
        code=str(code),
        retryable=code.retryable,
        request_id=request_id,
        errors=[ProblemFault(fault.pointer, str(fault.code), fault.detail) for fault in error.faults if is_public],
        checks=error.checks if isinstance(error, Denied) else UNSET,
        warnings=(isinstance(error, Refused) and error.warnings) or UNSET,
    )
    return answer(
        msgspec.json.encode(problem), PROBLEM_TYPE, problem.status, headers={**_headers(error, code), **headers}
    )


def _sentence(detail: str) -> str:
    return detail if detail.endswith((".", "!", "?")) else f"{detail}."


def _headers(error: IssuerError, code: Code) -> dict[str, str]:
    headers = {"Cache-Control": "no-store"}
    if code.meaning.status == 401:
        # RFC 6750 section 3: no error attribute where no credential was presented.
        missing = code is Code.IDENTITY_MISSING
        headers["WWW-Authenticate"] = "Bearer" if missing else 'Bearer error="invalid_token"'
    wait = error.retry_after_s if isinstance(error, Refused | Undecided) else None
    if wait is None and code.retryable:
        wait = 1  # 408, 429 and 5xx always say when to come back (contract section 5)
    if wait is not None:
        headers["Retry-After"] = str(max(1, math.ceil(wait)))
    return headers
