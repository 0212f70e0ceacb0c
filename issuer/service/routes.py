"""The endpoints: read raw bytes, call the line, render. What a request means is decided elsewhere."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import re
import time
import uuid
from collections.abc import Callable
from os import urandom
from typing import Any

import msgspec
import structlog
from litestar import Request as HttpRequest
from litestar import Response, get, head, post
from litestar.datastructures import State as AppState
from litestar.exceptions import HTTPException, InternalServerException, MethodNotAllowedException, NotFoundException
from msgspec import Struct

from issuer.body import MAX_BYTES, Endpoint
from issuer.errors import Code, IssuerError, Refused, Undecided
from issuer.issue import Issued, Line, Request, issue
from issuer.limits import Sources
from issuer.service import openapi, pages
from issuer.service.audit import AuditFile
from issuer.service.in_flight import MAX_IN_FLIGHT, InFlight
from issuer.service.keyring import Keyring
from issuer.service.problems import problem_response
from issuer.service.state import State

BODY_DEADLINE_S = 10.0
# Refusals that no registered identity can be charged with, so that their source is: all up to its resolution.
UNCHARGED = frozenset(code for code in Code if code.meaning.status in {401, 408, 413, 415}) | {
    Code.INTEGRATION_UNKNOWN,
    Code.INTEGRATION_AMBIGUOUS,
}

_BEARER = re.compile(r"(?i:bearer) +([A-Za-z0-9._~+/-]+=*) *", re.ASCII)
_log = structlog.get_logger("issuer")

Http = HttpRequest[Any, Any, AppState]


class Service(Struct, frozen=True):
    """What the endpoints reach: the line and the parts of it that health and metadata show."""

    line: Line
    sources: Sources
    state: State
    keyring: Keyring
    audit: AuditFile
    metadata: bytes


def routes(service: Service) -> list[Any]:
    """Return the handlers of one service."""
    under_way = {endpoint: InFlight(limit) for endpoint, limit in MAX_IN_FLIGHT.items()}

    @post("/tokens", operation_class=openapi.TokenOperation, status_code=201, name="tokens")
    async def tokens(request: Http) -> Response[bytes]:
        return await _answer(service, request, "/tokens", under_way["/tokens"])

    @post("/tokens/batch", operation_class=openapi.BatchOperation, status_code=201, name="tokens_batch")
    async def tokens_batch(request: Http) -> Response[bytes]:
        return await _answer(service, request, "/tokens/batch", under_way["/tokens/batch"])

    @get("/.well-known/jwks.json", operation_class=openapi.KeySetOperation)
    async def key_set(request: Http) -> Response[bytes]:
        return _key_set(service, request)

    @head("/.well-known/jwks.json", include_in_schema=False)
    async def key_set_head(request: Http) -> Response[None]:
        return _without_body(_key_set(service, request))

    @get("/.well-known/eval-token-issuer", operation_class=openapi.JsonOperation)
    async def metadata() -> Response[bytes]:
        return Response(
            service.metadata, media_type="application/json", headers={"Cache-Control": "public, max-age=300"}
        )

    @get("/health/live", operation_class=openapi.JsonOperation)
    async def live() -> Response[bytes]:
        return Response(b'{"status":"live"}', media_type="application/json", headers={"Cache-Control": "no-store"})

    @get("/health/ready", operation_class=openapi.JsonOperation)
    async def ready() -> Response[bytes]:
        service.keyring.check(int(time.time()))
        service.audit.check()
        await service.state.ready()
        return Response(b'{"status":"ready"}', media_type="application/json", headers={"Cache-Control": "no-store"})

    @get("/errors", include_in_schema=False)
    async def error_index() -> Response[str]:
        return pages.index()

    @get("/errors/{code:str}", include_in_schema=False)
    async def error_page(code: str) -> Response[str]:
        return pages.of(code)

    return [tokens, tokens_batch, key_set, key_set_head, metadata, live, ready, error_index, error_page]


# -- POST /tokens, POST /tokens/batch ---------------------------------------------------------------------------------


async def _answer(service: Service, request: Http, endpoint: Endpoint, under_way: InFlight) -> Response[bytes]:
    """Run one request down the line, and write its one event to the log stream."""
    began, now, request_id = time.perf_counter(), int(time.time()), str(uuid.uuid4())
    source = source_of(request.client.host if request.client else "")
    try:
        _check_framing(request, MAX_BYTES[endpoint])
        bearer = _bearer(request)
        with under_way:
            asked = Request(request_id, endpoint, bearer, await _read(request, MAX_BYTES[endpoint]), source)
            issued = await issue(service.line, asked, now, base64.urlsafe_b64encode(urandom(16)).rstrip(b"=").decode())
    except (Refused, Undecided) as error:
        if error.code in UNCHARGED:
            service.sources.refuse(source, time.time_ns() // 1000)  # whole seconds would let ten more through in each
        _log.info("decision", request_id=request_id, outcome="no" if isinstance(error, Refused) else "undecided",
                  code=str(error.code), ms=_ms_since(began))  # fmt: skip
        return problem_response(error, service.line.issuer_url, request_id)
    first = issued.tokens[0]
    _log.info("decision", request_id=request_id, outcome="repeat" if issued.repeat else "issued",
              integration=first.integration, identity=first.identity, kid=first.kid, policy=first.policy,
              jti=[token.jti for token in issued.tokens], content=[token.content_digest for token in issued.tokens],
              ms=_ms_since(began))  # fmt: skip
    return _rendered(issued, endpoint, request_id)


def source_of(address: str) -> str:
    """Name the sender of an address: an IPv6 customer has at least a /64, and so 2^64 addresses to be refused under.

    What is no address, as a trusted proxy may pass on, is one sender for all.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.IPv6Network((int(ip), 64), strict=False))


def _rendered(issued: Issued, endpoint: Endpoint, request_id: str) -> Response[bytes]:
    answer: object = {"tokens": issued.tokens} if endpoint == "/tokens/batch" else issued.tokens[0]
    headers = {"Cache-Control": "no-store", "X-Request-Id": request_id}
    if issued.repeat:
        headers["Idempotent-Replay"] = "true"
    return Response(
        msgspec.json.encode(answer),
        status_code=200 if issued.repeat else 201,
        media_type="application/json",
        headers=headers,
    )


def _bearer(request: Http) -> str:
    """Return the one bearer credential of the Authorization header (RFC 6750 2.1); other places are never looked at."""
    values = request.headers.getall("authorization", [])
    match = _BEARER.fullmatch(values[0]) if len(values) == 1 else None
    if match is None:
        raise Refused(Code.IDENTITY_MISSING)
    return match[1]


def _check_framing(request: Http, max_bytes: int) -> None:
    """Refuse by its head a body that is not JSON, or too large."""
    media_type, _, parameters = ",".join(request.headers.getall("content-type", [])).partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if media_type.strip().lower() != "application/json" or charset not in {"", "charset=utf-8"}:
        raise Refused(Code.REQUEST_MEDIA_TYPE)
    if not {"identity"}.issuperset(request.headers.getall("content-encoding", [])):
        raise Refused(Code.REQUEST_MEDIA_TYPE)
    length = request.headers.get("content-length", "")
    if length.isdigit() and len(length) < 19 and int(length) > max_bytes:
        raise Refused(Code.REQUEST_TOO_LARGE)


async def _read(request: Http, max_bytes: int) -> bytes:
    """Read the body whole, within size and deadline."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_DEADLINE_S):
            async for part in request.stream():
                body += part
                if len(body) > max_bytes:
                    raise Refused(Code.REQUEST_TOO_LARGE)
    except TimeoutError:
        raise Refused(Code.REQUEST_TIMEOUT, retry_after_s=1) from None
    except InternalServerException:  # Litestar's word for a client that hung up: nobody's fault here, so no 500
        raise Refused(Code.REQUEST_TIMEOUT, retry_after_s=1) from None
    return bytes(body)


def _ms_since(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 2)


# -- key set ----------------------------------------------------------------------------------------------------------


def _key_set(service: Service, request: Http) -> Response[bytes]:
    etag = f'"{service.keyring.etag}"'
    headers = {"Cache-Control": "public, max-age=300, stale-if-error=3600", "ETag": etag}
    # RFC 9110 13.1.2: a list, compared weakly; "*" matches whatever there is.
    known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if known & {etag, "*"}:
        return Response(b"", status_code=304, headers=headers, media_type="application/jwk-set+json")
    return Response(service.keyring.jwks, media_type="application/jwk-set+json", headers=headers)


def _without_body(response: Response[bytes]) -> Response[None]:
    headers = {**response.headers, "Content-Length": str(len(response.content))}
    return Response(None, status_code=response.status_code, media_type=response.media_type, headers=headers)


# -- everything else that can go wrong --------------------------------------------------------------------------------


def exception_handlers(issuer_url: str) -> dict[Any, Callable[[Http, Any], Response[bytes]]]:
    """Return the handlers that make every error a problem document, the unforeseen included."""

    def known(_: Http, error: IssuerError) -> Response[bytes]:
        return problem_response(error, issuer_url, str(uuid.uuid4()))

    def http(request: Http, error: HTTPException) -> Response[bytes]:
        if isinstance(error, NotFoundException):
            return known(request, Refused(Code.REQUEST_NOT_FOUND))
        if isinstance(error, MethodNotAllowedException):
            response = known(request, Refused(Code.REQUEST_METHOD))
            response.headers["Allow"] = _allowed(request)
            return response
        if error.status_code < 500:
            return known(request, Refused(Code.REQUEST_MALFORMED))
        return unforeseen(request, error)

    def unforeseen(_: Http, error: Exception) -> Response[bytes]:
        request_id = str(uuid.uuid4())
        # The traceback's frames, never its local variables: they hold tokens.
        _log.error("unforeseen", request_id=request_id, exc_info=error)
        return problem_response(IssuerError(Code.INTERNAL), issuer_url, request_id)

    return {IssuerError: known, HTTPException: http, Exception: unforeseen}


def _allowed(request: Http) -> str:
    """Name the methods that the path takes (RFC 9110 10.2.1)."""
    for route in request.app.routes:
        # The scope's path: `request.url` is built with the Host header, which may be no host at all.
        path = str(request.scope["path"])
        if route.path == path or (route.path.startswith("/errors/") and path.startswith("/errors/")):
            return ", ".join(sorted(route.methods))
    return "GET"
