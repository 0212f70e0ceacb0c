"""HTTP requests and answers: how the edge reads headers and bodies, and writes answers, documents and errors."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import ipaddress
import math
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from string import ascii_letters, digits
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from litestar import Request as HttpRequest
from litestar import get, route
from litestar.datastructures import State
from litestar.openapi.spec import Operation
from litestar.types import Receive, Scope, Send
from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import IssuerError, Refused, Undecided
from issuer.formats.strict_json import pointer_to
from issuer.service.http.bounds import (
    BODY_BYTES_PER_S,
    BODY_DEADLINE_S,
    BODY_FREE_S,
    MAX_NAME_BYTES,
    MAX_PARAMETERS,
)
from issuer.token.wire import PROBLEM_TYPE, Denied, ExchangeProblem, Problem, ProblemFault

# Marks the scope of a request whose refusal is delayed.
REFUSED = "issuer.refused"

# The characters of a bearer credential, before its padding (RFC 6750 2.1).
_B64TOKEN = f"{ascii_letters}{digits}-._~+/".encode()


Http = HttpRequest[Any, Any, State]


@functools.lru_cache(1024)
def source_of(address: str) -> str:
    """Return the sender that an address belongs to: the IPv4 address, or the /64 network of an IPv6 address.

    An IPv6 customer has at least a /64, and could use each of its 2^64 addresses once. A trusted proxy may pass on text
    that is not an address: all such texts are one sender, "unknown".
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.IPv6Network((int(ip), 64), strict=False))


def bearer_of(request: Http) -> str:
    """Return the bearer credential of the Authorization header (RFC 6750 2.1). Credentials elsewhere are ignored.

    Raises Refused (`identity.missing`) unless there is exactly one.
    """
    values = header_values(request, b"authorization")
    scheme, _, rest = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    credential = rest.strip(" ")
    if scheme.lower() != "bearer" or not is_bearer(credential):
        raise Refused(Code.IDENTITY_MISSING)
    return credential


def is_bearer(credential: str) -> bool:
    """Return whether a text has the form of a bearer credential (RFC 6750 2.1)."""
    token = credential.encode("utf-8").rstrip(b"=")
    return bool(token) and not token.translate(None, _B64TOKEN)


def check_framing(request: Http, max_bytes: int, wanted: str = "application/json") -> None:
    """Raise Refused if the head announces a body that is too large, or does not have the wanted media type."""
    media_type, _, parameters = ",".join(header_values(request, b"content-type")).partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if media_type.strip().lower() != wanted or charset not in {"", "charset=utf-8"}:
        raise Refused(Code.REQUEST_MEDIA_TYPE)
    if not {"identity"}.issuperset(header_values(request, b"content-encoding")):
        raise Refused(Code.REQUEST_MEDIA_TYPE)
    for length in header_values(request, b"content-length"):
        if length.isdigit() and len(length) < 19 and int(length) > max_bytes:
            raise Refused(Code.REQUEST_TOO_LARGE)


def header_values(request: Http, name: bytes) -> list[str]:
    """Return the values of a header in order, decoded as latin-1. `name` is in lowercase, as the server stores it.

    This is faster than `request.headers`, which decodes and sorts all headers first.
    """
    return [value.decode("latin-1") for header, value in request.scope["headers"] if header == name]


async def read_whole(request: Http, max_bytes: int) -> bytes:
    """Read the whole body. Raises Refused if it is larger than `max_bytes`, ends later than BODY_DEADLINE_S, or after
    BODY_FREE_S has come more slowly than BODY_BYTES_PER_S."""
    body = bytearray()
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(began + BODY_FREE_S) as due:
            while (part := await request.receive())["type"] == "http.request":
                body += part["body"]
                if len(body) > max_bytes:
                    raise Refused(Code.REQUEST_TOO_LARGE)
                if not part["more_body"]:
                    return bytes(body)
                due.reschedule(began + min(BODY_DEADLINE_S, BODY_FREE_S + len(body) / BODY_BYTES_PER_S))
    except TimeoutError:
        raise Refused(Code.REQUEST_TIMEOUT, retry_after_s=1) from None
    raise Refused(Code.REQUEST_TIMEOUT, retry_after_s=1)  # no 500, because the client hung up


def split_form(raw: bytes, several: frozenset[str]) -> dict[str, list[bytes]]:
    """Return the parameters of a form, not decoded yet. An empty one is as good as absent, and only those named in
    `several` may be given more than once (RFC 6749 3.2). Raises Refused (`exchange.parameter`)."""
    fields = raw.split(b"&", MAX_PARAMETERS)
    if len(fields) > MAX_PARAMETERS:
        raise Refused.at(Code.EXCHANGE_PARAMETER, "", f"more than {MAX_PARAMETERS} parameters")
    form: dict[str, list[bytes]] = {}
    for name, _, value in (field.partition(b"=") for field in fields):
        if value:
            shown = (unquote_to_bytes(name) if len(name) < MAX_NAME_BYTES else name).decode("utf-8", "replace")
            form.setdefault(shown, []).append(value)
    for known, values in form.items():
        if len(values) > 1 and known not in several:
            raise Refused.at(Code.EXCHANGE_PARAMETER, pointer_to("", known[:MAX_NAME_BYTES]), "it is given twice")
    return form


_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def decode_parameter(name: str, raw: bytes, most: int) -> str:
    """Return the value of a form's parameter, of at most `most` bytes. Raises Refused (`exchange.parameter`)."""
    fault = f"longer than {most} bytes" if len(raw) > most else "not percent-encoded UTF-8"
    if len(raw) <= most and raw.isascii() and not _BAD_ESCAPE.search(raw):
        with suppress(UnicodeDecodeError):
            return unquote_to_bytes(raw.replace(b"+", b" ")).decode()
    raise Refused.at(Code.EXCHANGE_PARAMETER, f"/{name}", fault)


def ms_since(began: float) -> float:
    """Return how many milliseconds have passed since `began`, a `time.perf_counter()`."""
    return round((time.perf_counter() - began) * 1000, 2)


# -- answers -----------------------------------------------------------------------------------------------------------

# An answer is status, headers and bytes. Litestar's Response may still change after the handler, so Litestar writes it
# for each request: 25 us instead of 3. A handler may return any ASGI application instead, and `Answer` is one.

Headers = tuple[tuple[bytes, bytes], ...]


class Answer:
    """A complete answer. Names of headers are in lowercase."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Headers, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 (ASGI's own names)
        """Send it. The server omits the body in answer to a HEAD (RFC 9110 9.3.2)."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": False})

    def to_asgi_response(self, **_: Any) -> Answer:
        """Return this answer itself: Litestar calls this after an exception."""
        return self


def answer(body: bytes, media_type: str, status: int = 200, *, headers: Mapping[str, str]) -> Answer:
    """Return an answer with a body."""
    own = ((b"content-type", media_type.encode("latin-1")), (b"content-length", b"%d" % len(body)))
    rest = tuple((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items())
    return Answer(status, own + rest, body)


def json_answer(value: object, request_id: str, status: int = 200, **headers: str) -> Answer:
    """Return a JSON answer for one caller, which no cache may store."""
    own = {"Cache-Control": "no-store", "X-Request-Id": request_id}
    return answer(msgspec.json.encode(value), "application/json", status, headers={**own, **headers})


def get_and_head(
    path: str, read: Callable[..., Awaitable[Answer]], described_by: type[Operation] | None = None
) -> list[Any]:
    """Return the handlers of GET and HEAD at a path (RFC 9110 9.3.2). The OpenAPI document has GET, if it is described.

    They are two handlers, because the document would list both methods of one.
    """
    handler = get(path, operation_class=described_by) if described_by else get(path, include_in_schema=False)
    return [handler(read), route(path, http_method="HEAD", include_in_schema=False)(read)]


# -- cross-origin requests ---------------------------------------------------------------------------------------------

# Web pages of every origin may read public answers (CORS: the Fetch standard, 3.3), but no answer of /tokens. Its
# callers are machines with a credential, and a page that has such a credential has stolen it. No answer allows
# credentials, so a browser sends neither cookies nor client certificates with a cross-origin request.

AnswerT = TypeVar("AnswerT", bound=Answer)
_ANY_ORIGIN = (b"access-control-allow-origin", b"*")
# A page may read these headers besides the few that CORS always allows. It needs Retry-After to wait long enough.
_EXPOSED = (b"access-control-expose-headers", b"ETag, Retry-After, X-Request-Id")


def readable(answer: AnswerT) -> AnswerT:
    """Add the headers that let pages of every origin read this answer, and return the answer."""
    answer.headers = (*answer.headers, _ANY_ORIGIN, _EXPOSED)
    return answer


# The answer to a browser's preflight request: for a day, a page may send JSON by POST.
_PREFLIGHT: Headers = (
    (b"access-control-allow-methods", b"POST"),
    (b"access-control-allow-headers", b"Content-Type"),
    (b"access-control-max-age", b"86400"),
)
PREFLIGHT = readable(Answer(204, _PREFLIGHT, b""))


# -- documents ---------------------------------------------------------------------------------------------------------

# A document has the same bytes for every client and origin, an ETag, and a time for which caches may keep it.


class HttpDocument(Struct, frozen=True):
    """A document with both of its answers, written once: `whole` (200) and `unchanged` (304)."""

    etag: str
    whole: Answer
    unchanged: Answer

    def answer(self, if_none_match: str) -> Answer:
        """Return the answer to a GET: 304 if the client has the document (RFC 9110 13.1.2: a list of tags, or `*`)."""
        if not if_none_match:
            return self.whole
        known = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
        return self.unchanged if known & {self.etag, "*"} else self.whole


def document(
    body: bytes, media_type: str = "application/json", *, cache: str = "public, max-age=300", **headers: str
) -> HttpDocument:
    """Return a document. Its ETag is derived from its bytes; `cache` is its Cache-Control (RFC 9111 5.2.2)."""
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    kept = {"Cache-Control": cache, "ETag": etag, **{name: headers[name] for name in headers.keys() & {"Vary"}}}
    whole = answer(body, media_type, headers={"Cache-Control": cache, "ETag": etag, **headers})
    head = tuple((name.lower().encode(), value.encode()) for name, value in kept.items())
    # A 304 has no Content-Length (RFC 9110 8.6).
    return HttpDocument(etag, readable(whole), readable(Answer(304, head, b"")))


# -- problems ---------------------------------------------------------------------------------------------------------

# Errors as `application/problem+json` (RFC 9457). This is the only place that maps the error tree to HTTP.

_NO_ID = str(uuid.UUID(int=0))
# Writes the answer for an error: it takes the error, the issuer's URL and the id of the request.
WriteProblem = Callable[[IssuerError, str, str], "Answer"]


class WrittenProblem:
    """An error whose problem document is written once, for refusals that any client can cause at any rate."""

    def __init__(self, error: IssuerError, issuer_url: str, write: WriteProblem | None = None) -> None:
        template = (write or problem_response)(error, issuer_url, _NO_ID)
        self.status, self.headers = template.status, template.headers
        self._parts = template.body.split(_NO_ID.encode())

    def body(self, request_id: str) -> bytes:
        """Return the problem document of one request. `request_id` is the text of a UUID."""
        return request_id.encode().join(self._parts)

    def answer(self, request_id: str) -> Answer:
        """Return the answer to one request."""
        return Answer(self.status, self.headers, self.body(request_id))


def problem_response(error: IssuerError, issuer_url: str, request_id: str, **headers: str) -> Answer:
    """Return the answer for an error, with further headers."""
    problem = problem_of(error, issuer_url, request_id)
    return answer(
        msgspec.json.encode(problem), PROBLEM_TYPE, problem.status, headers={**headers_of(error, problem), **headers}
    )


def problem_of(error: IssuerError, issuer_url: str, request_id: str) -> Problem:
    """Return the problem document for an error. It has no part of a token, key set or upstream body."""
    code = error.code if error.code.meaning.status else Code.INTERNAL
    is_public = code is error.code  # an error about a file may quote the file: only the operator may see that
    end = "" if error.detail.endswith((".", "!", "?")) else "."
    return Problem(
        type=f"{issuer_url}/errors/{code}",
        title=code.meaning.title,
        status=code.meaning.status,
        detail=f"{error.detail}{end} {code.meaning.remedy}" if is_public else code.meaning.remedy,
        instance=f"urn:uuid:{request_id}",
        code=str(code),
        retryable=code.retryable,
        request_id=request_id,
        errors=[ProblemFault(fault.pointer, str(fault.code), fault.detail) for fault in error.faults if is_public],
        checks=error.checks if isinstance(error, Denied) else UNSET,
        warnings=(isinstance(error, Refused) and error.warnings) or UNSET,
    )


def oauth_problem_response(error: IssuerError, issuer_url: str, request_id: str, **headers: str) -> Answer:
    """Return the answer for an error to an OAuth client (RFC 6749 5.2), with further headers."""
    problem = problem_of(error, issuer_url, request_id)
    name, status = oauth_error(Code.named(problem.code) or Code.INTERNAL)
    headers = {**headers_of(error, problem), "Pragma": "no-cache", **headers}
    if status == 401:
        headers["WWW-Authenticate"] = "Basic"  # RFC 6749 5.2: the scheme that a client has used
    else:
        headers.pop("WWW-Authenticate", None)
    return json_answer(ExchangeProblem.of(problem, name), request_id, status, **headers)


# OAuth's codes (RFC 6749 5.2, RFC 8693 2.2.2, RFC 9396 5): by our code, and otherwise by its first part.
_OAUTH_ERRORS = {
    Code.EXCHANGE_CLIENT: "invalid_client",
    Code.EXCHANGE_DETAILS: "invalid_authorization_details",
    Code.EXCHANGE_GRANT_TYPE: "unsupported_grant_type",
    Code.EXCHANGE_SCOPE: "invalid_scope",
    Code.EXCHANGE_TARGET: "invalid_target",
    Code.POLICY_AUDIENCE: "invalid_target",
    Code.INTERNAL: "server_error",
}
_OF_DETAILS = ("claims", "details", "nonce", "request")


def oauth_error(code: Code) -> tuple[str, int]:
    """Return OAuth's code for one of ours, and the HTTP status (contract section 5)."""
    status = code.meaning.status
    if code.retryable and status != 500:
        return "temporarily_unavailable", status
    name = _OAUTH_ERRORS.get(code, "invalid_request")
    if status in {413, 415, 500} or code is Code.EXCHANGE_CLIENT:
        return name, status
    if name == "invalid_request" and code.partition(".")[0] in _OF_DETAILS and code is not Code.NONCE_REUSED:
        name = "invalid_authorization_details"
    return name, 400


def challenge(code: Code, **parameters: str) -> str:
    """Return the challenge of a 401 (RFC 6750 section 3). A request without a credential gets no error attribute."""
    errors = {} if code is Code.IDENTITY_MISSING else {"error": "invalid_token"}
    return " ".join(
        ["Bearer", ", ".join(f'{name}="{value}"' for name, value in (errors | parameters).items())]
    ).rstrip()


def headers_of(error: IssuerError, problem: Problem) -> dict[str, str]:
    """Return the headers that go with a problem document."""
    headers = {"Cache-Control": "no-store"}
    if problem.status == 401:
        headers["WWW-Authenticate"] = challenge(error.code)
    wait = error.retry_after_s if isinstance(error, Refused | Undecided) else None
    if wait is None and problem.retryable:
        wait = 1  # 408, 429 and 5xx always say when to retry (contract section 5)
    if wait is not None:
        headers["Retry-After"] = str(max(1, math.ceil(wait)))
    return headers
