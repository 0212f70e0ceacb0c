"""HTTP messages: what the edge reads of a request, and answers that are ready to be sent, errors included."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import ipaddress
import math
import time
import uuid
from collections.abc import Mapping
from string import ascii_letters, digits
from typing import Any, TypeVar

import msgspec
from litestar import Request as HttpRequest
from litestar.datastructures import State
from litestar.types import Receive, Scope, Send
from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import IssuerError, Refused, Undecided
from issuer.service.http.bounds import BODY_DEADLINE_S
from issuer.token.wire import PROBLEM_TYPE, Denied, Problem, ProblemFault

# The characters of a bearer credential, before its padding (RFC 6750 2.1).
_B64TOKEN = f"{ascii_letters}{digits}-._~+/".encode()


Http = HttpRequest[Any, Any, State]


@functools.lru_cache(1024)
def source_of(address: str) -> str:
    """Name the sender behind an address: an IPv6 customer has at least a /64, so 2^64 addresses to be refused under.

    All texts that are not addresses, as a trusted proxy may pass on, are one sender.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.IPv6Network((int(ip), 64), strict=False))


def bearer_of(request: Http) -> str:
    """Return the one bearer credential of the Authorization header (RFC 6750 2.1); other places are ignored."""
    values = header_values(request, b"authorization")
    scheme, _, rest = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    credential = rest.strip(" ")
    token = credential.encode("latin-1").rstrip(b"=")
    if scheme.lower() != "bearer" or not token or token.translate(None, _B64TOKEN):
        raise Refused(Code.IDENTITY_MISSING)
    return credential


async def read_json_body(request: Http, max_bytes: int) -> bytes:
    """Read the whole body: JSON by its media type, within size and deadline."""
    check_framing(request, max_bytes)
    return await read_whole(request, max_bytes)


def check_framing(request: Http, max_bytes: int) -> None:
    """Refuse by the head a body that is not JSON, or too large."""
    media_type, _, parameters = ",".join(header_values(request, b"content-type")).partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if media_type.strip().lower() != "application/json" or charset not in {"", "charset=utf-8"}:
        raise Refused(Code.REQUEST_MEDIA_TYPE)
    if not {"identity"}.issuperset(header_values(request, b"content-encoding")):
        raise Refused(Code.REQUEST_MEDIA_TYPE)
    for length in header_values(request, b"content-length"):
        if length.isdigit() and len(length) < 19 and int(length) > max_bytes:
            raise Refused(Code.REQUEST_TOO_LARGE)


def header_values(request: Http, name: bytes) -> list[str]:
    """Return the values of a header, in order; the server has its names in lowercase. The bytes are read as latin-1.

    Not by `request.headers`, which decodes and sorts all of them first.
    """
    return [value.decode("latin-1") for header, value in request.scope["headers"] if header == name]


async def read_whole(request: Http, max_bytes: int) -> bytes:
    """Read the whole body, within size and deadline."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_DEADLINE_S):
            while (part := await request.receive())["type"] == "http.request":
                body += part["body"]
                if len(body) > max_bytes:
                    raise Refused(Code.REQUEST_TOO_LARGE)
                if not part["more_body"]:
                    return bytes(body)
    except TimeoutError:
        raise Refused(Code.REQUEST_TIMEOUT, retry_after_s=1) from None
    raise Refused(Code.REQUEST_TIMEOUT, retry_after_s=1)  # the client hung up: not a fault of the service, so not a 500


def ms_since(began: float) -> float:
    """Return how many milliseconds have passed since `began`, a `time.perf_counter()`."""
    return round((time.perf_counter() - began) * 1000, 2)


# -- answers -----------------------------------------------------------------------------------------------------------

# An answer is status, headers and bytes. Litestar's Response may still change after the handler, and is written anew
# for each request: 25 us, against 3. A handler may return any ASGI application instead, and `Answer` is one.

Headers = tuple[tuple[bytes, bytes], ...]


class Answer:
    """An answer that is ready. Names of headers are in lowercase."""

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
        """Return what Litestar sends after an exception: itself."""
        return self


def answer(body: bytes, media_type: str, status: int = 200, *, headers: Mapping[str, str]) -> Answer:
    """Write an answer with a body."""
    own = ((b"content-type", media_type.encode("latin-1")), (b"content-length", b"%d" % len(body)))
    rest = tuple((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items())
    return Answer(status, own + rest, body)


def json_answer(value: object, request_id: str, status: int = 200, **headers: str) -> Answer:
    """Write the JSON of one caller's answer, which no cache may store."""
    own = {"Cache-Control": "no-store", "X-Request-Id": request_id}
    return answer(msgspec.json.encode(value), "application/json", status, headers={**own, **headers})


# -- pages of other origins --------------------------------------------------------------------------------------------

# Who may read an answer from a web page of another origin (the Fetch standard, 3.3): everybody, of what is public.
#
# Nobody, of /tokens: those who ask there are machines that hold a credential, and a page that holds one has stolen it.
# No answer allows credentials, so a browser sends neither cookies nor client certificates with such a question.

AnswerT = TypeVar("AnswerT", bound=Answer)
_ANY_ORIGIN = (b"access-control-allow-origin", b"*")
# A page may read these beside the few that it always may; of the times at which it may ask again it must know.
_EXPOSED = (b"access-control-expose-headers", b"ETag, Retry-After, X-Request-Id")


def readable(answer: AnswerT) -> AnswerT:
    """Let pages of every origin read an answer that was just made."""
    answer.headers = (*answer.headers, _ANY_ORIGIN, _EXPOSED)
    return answer


def preflight(method: str) -> Answer:
    """Write the answer to a browser that asks whether a page may send JSON by this method."""
    asked = {
        "access-control-allow-methods": method,
        "access-control-allow-headers": "Content-Type",
        "access-control-max-age": "86400",  # a day
    }
    return readable(Answer(204, tuple((name.encode(), value.encode()) for name, value in asked.items()), b""))


# -- documents ---------------------------------------------------------------------------------------------------------

# The same bytes for everybody, pages of every origin included, with an ETag and a time for which caches may keep them.


class Document(Struct, frozen=True):
    """A document that does not change while it is served: both of its answers are written beforehand."""

    etag: str
    whole: Answer
    unchanged: Answer

    def answer(self, if_none_match: str) -> Answer:
        """Answer a GET: 304 where the client has it already (RFC 9110 13.1.2: a list, compared weakly, or `*`)."""
        if not if_none_match:
            return self.whole
        known = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
        return self.unchanged if known & {self.etag, "*"} else self.whole


def document(
    body: bytes, media_type: str = "application/json", *, cache: str = "public, max-age=300", **headers: str
) -> Document:
    """Make a document; its ETag is derived from its bytes. `cache` is its Cache-Control (RFC 9111 5.2.2)."""
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    kept = {"Cache-Control": cache, "ETag": etag, **{name: headers[name] for name in headers.keys() & {"Vary"}}}
    whole = answer(body, media_type, headers={"Cache-Control": cache, "ETag": etag, **headers})
    head = tuple((name.lower().encode(), value.encode()) for name, value in kept.items())
    # A 304 has no length of its own (RFC 9110 8.6).
    return Document(etag, readable(whole), readable(Answer(304, head, b"")))


# -- problems ---------------------------------------------------------------------------------------------------------

# Errors as `application/problem+json` (RFC 9457): the only map from the error tree to HTTP.

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
