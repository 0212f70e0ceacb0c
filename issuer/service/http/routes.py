"""The endpoints: read raw bytes, call the line, render. What a request means is decided elsewhere."""

from __future__ import annotations

import base64
import functools
import re
import time
import uuid
from collections.abc import Callable, Mapping
from os import urandom
from typing import Any

import msgspec
import structlog
from litestar import get, post, route
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException
from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import Charged, IssuerError, Refused, Undecided
from issuer.issuance.body import MAX_BYTES
from issuer.issuance.events import Case, Request, names_of
from issuer.issuance.explain import explain
from issuer.issuance.issue import Issued, issue
from issuer.issuance.ports import Line
from issuer.policy.authoring.schema import schemas
from issuer.service.admission.redis import RedisAdmission
from issuer.service.audit import FileAudit
from issuer.service.authn.sources import Sources
from issuer.service.http import openapi, pages
from issuer.service.http.answer import Answer, answer, written
from issuer.service.http.documents import Document, document
from issuer.service.http.in_flight import MAX_BODIES, MAX_IN_FLIGHT, InFlight
from issuer.service.http.problems import problem_response
from issuer.service.http.published import Published
from issuer.service.http.reading import Http, bearer_of, check_framing, header_values, ms_since, read_body_of, source_of
from issuer.service.http.tarpit import Tarpit
from issuer.service.reload import Live
from issuer.wire import Endpoint

_SCHEMA_TYPE, _SCHEMA_CACHE = "application/schema+json", "public, max-age=3600"
_log = structlog.get_logger("issuer")


class Service(Struct, frozen=True):
    """What the endpoints reach: the line of the active policies, and the parts of it that health shows."""

    issuer_url: str
    live: Live[Published]
    sources: Sources
    state: RedisAdmission
    audit: FileAudit
    tarpit: Tarpit


def routes(service: Service) -> list[Any]:
    """Return the handlers of one service."""
    published = {name: document(body, _SCHEMA_TYPE, cache=_SCHEMA_CACHE) for name, body in schemas().items()}
    alive = answer(b'{"status":"live"}', "application/json", headers={"Cache-Control": "no-store"})
    under_way = {endpoint: InFlight(limit, MAX_BODIES[endpoint]) for endpoint, limit in MAX_IN_FLIGHT.items()}

    @post("/tokens", operation_class=openapi.TokenOperation, status_code=201, name="tokens")
    async def tokens(request: Http) -> Answer:
        return await _answer(service, request, "/tokens", under_way["/tokens"])

    @post("/tokens/batch", operation_class=openapi.BatchOperation, status_code=201, name="tokens_batch")
    async def tokens_batch(request: Http) -> Answer:
        return await _answer(service, request, "/tokens/batch", under_way["/tokens/batch"])

    @post("/tokens/explain", operation_class=openapi.ExplainOperation, status_code=200, name="tokens_explain")
    async def tokens_explain(request: Http) -> Answer:
        return await _answer(service, request, "/tokens/explain", under_way["/tokens"])

    @get("/.well-known/jwks.json", operation_class=openapi.KeySetOperation)
    async def key_set(request: Http) -> Answer:
        return service.live.active.jwks.answer(_known(request))

    @route("/.well-known/jwks.json", http_method="HEAD", include_in_schema=False)
    async def key_set_head(request: Http) -> Answer:
        return service.live.active.jwks.answer(_known(request))

    @get("/.well-known/eval-token-issuer", operation_class=openapi.JsonOperation)
    async def metadata(request: Http) -> Answer:
        return service.live.active.metadata.answer(_known(request))

    @get("/integrations/{integration:str}/requirements", operation_class=openapi.RequirementsOperation)
    async def requirements(request: Http, integration: str) -> Answer:
        return _found(service.live.active.requirements, integration).answer(_known(request))

    @get("/schemas/{name:str}", operation_class=openapi.JsonOperation)
    async def schema(request: Http, name: str) -> Answer:
        return _found(published, name.removesuffix(".json") if name.endswith(".json") else "").answer(_known(request))

    @get("/health/live", operation_class=openapi.JsonOperation)
    async def live() -> Answer:
        return alive

    @get("/health/ready", operation_class=openapi.JsonOperation)
    async def ready() -> Answer:
        service.live.active.keyring.check(int(time.time()))
        service.audit.check()
        await service.state.ready()
        told = {"status": "ready", "policies": _readiness(service.live)}
        return answer(msgspec.json.encode(told), "application/json", headers={"Cache-Control": "no-store"})

    @get("/errors", include_in_schema=False)
    async def error_index() -> Answer:
        return pages.index()

    @get("/errors/{code:str}", include_in_schema=False)
    async def error_page(code: str) -> Answer:
        return pages.of(code)

    return [
        tokens, tokens_batch, tokens_explain, key_set, key_set_head, metadata, requirements, schema, live, ready,
        error_index, error_page,
    ]  # fmt: skip


def _readiness(live: Live[Published]) -> dict[str, Any]:
    """Tell which policies decide. Ready with stale ones, too: otherwise one typo would stop every integration."""
    return {"digest": live.active.digest, "loaded_at": live.active.loaded_at, "stale": live.stale}


# -- POST /tokens, /tokens/batch and /tokens/explain ------------------------------------------------------------------


async def _answer(service: Service, request: Http, endpoint: Endpoint, under_way: InFlight) -> Answer:
    """Run one request down the line, and write its one event to the log stream."""
    began, now, request_id = time.perf_counter(), int(time.time()), str(uuid.uuid4())
    client = request.scope["client"]
    source = source_of(client[0] if client else "")
    case: Case | None = None
    try:
        check_framing(request, MAX_BYTES[endpoint])
        bearer = bearer_of(request)
        with under_way:
            read = functools.partial(read_body_of, request, MAX_BYTES[endpoint], under_way)
            charged = functools.partial(_is_charged, service.sources, source)
            case = Case(Request(request_id, endpoint, bearer, source, read, charged), now)
            answered, told = await _run(service.live.active.line, case)
    except (Refused, Undecided) as error:
        # Who is registered has been charged by the line, and is told more, from any address.
        stranger = (case is None or case.registration is None) and isinstance(error, (Refused, Charged))
        # Whole seconds would let ten more through in each.
        if stranger and not service.sources.refuse(source, time.time_ns() // 1000):
            return service.tarpit.answer(request_id)
        answered = problem_response(error, service.issuer_url, request_id)
        told = {"outcome": "no" if isinstance(error, Refused) else "undecided", "code": str(error.code)}
    who: Mapping[str, object] = names_of(case.registration) if case and case.registration else {}
    _log.info("decision", request_id=request_id, endpoint=endpoint, **{**who, **told}, ms=ms_since(began))
    return answered


def _is_charged(sources: Sources, source: str) -> bool:
    return sources.retry_us(source, time.time_ns() // 1000) > 0


async def _run(line: Line, case: Case) -> tuple[Answer, dict[str, Any]]:
    """Return the answer of the line, and what its log event tells of it beside who was judged."""
    if case.request.endpoint == "/tokens/explain":
        explained = await explain(line, case)
        told: dict[str, Any] = {"outcome": "explained", "verdict": explained.verdict}
        if explained.code is not UNSET:
            told["code"] = explained.code
        return written(explained, case.request.id), told
    issued = await issue(line, case, base64.urlsafe_b64encode(urandom(16)).rstrip(b"=").decode())
    told = {
        "outcome": "repeat" if issued.repeat else "issued",
        "kid": issued.tokens[0].kid,
        "policy": issued.tokens[0].policy,
        "jti": [token.jti for token in issued.tokens],
        "content": [token.content_digest for token in issued.tokens],
    }
    return _rendered(issued, case.request), told


def _rendered(issued: Issued, request: Request) -> Answer:
    told: object = {"tokens": issued.tokens} if request.endpoint == "/tokens/batch" else issued.tokens[0]
    if issued.repeat:
        return written(told, request.id, 200, **{"Idempotent-Replay": "true"})
    return written(told, request.id, 201)


# -- public documents -------------------------------------------------------------------------------------------------


def _known(request: Http) -> str:
    """Return what the client has already, as it says (If-None-Match)."""
    return ",".join(header_values(request, b"if-none-match"))


def _found(documents: Mapping[str, Document], name: str) -> Document:
    """Return a document. What is not public is not there: both are answered alike. Raises Refused."""
    if name not in documents:
        raise Refused(Code.REQUEST_NOT_FOUND)
    return documents[name]


# -- everything else that can go wrong --------------------------------------------------------------------------------


def exception_handlers(issuer_url: str) -> dict[Any, Callable[[Http, Any], Any]]:
    """Return the handlers that make every error a problem document, the unforeseen included."""

    def known(_: Http, error: IssuerError) -> Answer:
        return problem_response(error, issuer_url, str(uuid.uuid4()))

    def http(request: Http, error: HTTPException) -> Answer:
        if isinstance(error, NotFoundException):
            return known(request, Refused(Code.REQUEST_NOT_FOUND))
        if isinstance(error, MethodNotAllowedException):
            refused, allow = Refused(Code.REQUEST_METHOD), _allowed(request)
            return problem_response(refused, issuer_url, str(uuid.uuid4()), Allow=allow)
        if error.status_code < 500:
            return known(request, Refused(Code.REQUEST_MALFORMED))
        return unforeseen(request, error)

    def unforeseen(_: Http, error: Exception) -> Answer:
        request_id = str(uuid.uuid4())
        # The traceback's frames, never its local variables: they hold tokens.
        _log.error("unforeseen", request_id=request_id, exc_info=error)
        return problem_response(IssuerError(Code.INTERNAL), issuer_url, request_id)

    return {IssuerError: known, HTTPException: http, Exception: unforeseen}


def _allowed(request: Http) -> str:
    """Name the methods that the path takes (RFC 9110 10.2.1)."""
    for each in request.app.routes:
        # The scope's path: `request.url` is built with the Host header, which may be no host at all.
        if re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", each.path_format), str(request.scope["path"])):
            return ", ".join(sorted(each.methods))
    return "GET"
