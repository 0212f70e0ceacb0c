"""Every endpoint of the service but `/verify`, and what becomes of everything else that a client can send."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import msgspec
import structlog
from litestar import get, route
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException
from litestar.openapi.spec import Operation

from issuer.codes import Code
from issuer.errors import IssuerError, Refused
from issuer.io.shared_answers import SharedAnswers
from issuer.service.http import openapi
from issuer.service.http.bounds import READY_KEPT_S
from issuer.service.http.messages import (
    Answer,
    Document,
    Http,
    answer,
    document,
    header_values,
    problem_response,
    readable,
)
from issuer.service.http.pages import pages
from issuer.service.http.public_documents import Published, Service
from issuer.service.http.tokens import token_routes
from issuer.service.metrics.counts import Counts
from issuer.service.policies.active import Live
from issuer.service.policies.watcher import schema_documents
from issuer.token.wire import ARCHIVE_PATH, JWKS_PATH, METADATA_PATH, REVOCATION_KEYS_PATH, REVOCATIONS_PATH, STOPS_PATH

_SCHEMA_TYPE, _SCHEMA_CACHE = "application/schema+json", "public, max-age=3600"
_log = structlog.get_logger("issuer")


def routes(service: Service, more: Sequence[Any], *, ui: bool, has_log: bool) -> list[Any]:
    """Return the handlers of one service, with `more` that are described beside them: its pages (`ui`), its log's."""
    schemas = _schemas()
    alive = answer(b'{"status":"live"}', "application/json", headers={"Cache-Control": "no-store"})

    def requirements(integration: str) -> Document:
        return _find(service.live.active.requirements, integration)

    @get("/health/live", operation_class=openapi.JsonOperation)
    async def live() -> Answer:
        return alive

    checks: SharedAnswers[str, None] = SharedAnswers(Code.SERVICE_BUSY, kept_s=READY_KEPT_S)

    @get("/health/ready", operation_class=openapi.JsonOperation)
    async def ready() -> Answer:
        await checks.find("ready", service.check)
        body = {
            "status": "ready",
            "policies": _policies_of(service.live),
            "keys": {"stale": service.signer.stale, "waiting": service.signer.waiting},
            "stops": service.stops.status,
            "revocations": service.revocations.status,
            "store": service.store_status(),
        }
        return _state(body if service.log is None else {**body, "log": service.log.status})

    @get(STOPS_PATH, operation_class=openapi.JsonOperation)
    async def stops() -> Answer:
        return _state(service.stops.status)  # asks neither store nor disk: it answers when nothing else does

    publish = partial(_publish, service)
    described = [
        *token_routes(service),
        *more,
        *publish(JWKS_PATH, lambda _: service.keys.document, openapi.KeySetOperation),
        *publish(ARCHIVE_PATH, lambda _: service.keys.archive, openapi.ArchiveOperation),
        *publish(REVOCATIONS_PATH, lambda _: service.revocations.signed_list, openapi.RevocationsOperation),
        *publish(REVOCATION_KEYS_PATH, lambda _: service.revocations.keys, openapi.RevocationKeysOperation),
        *publish(METADATA_PATH, lambda _: service.live.active.metadata, openapi.MetadataOperation),
        *publish("/integrations/{integration:str}/requirements", requirements, openapi.RequirementsOperation),
        *publish("/schemas/{name:str}", lambda name: _find(schemas, name), openapi.SchemaOperation),
        live,
        ready,
        stops,
    ]
    description, errors = document(openapi.openapi(described)), pages(ui=ui, has_log=has_log)
    return [
        *described,
        *publish("/openapi.json", lambda _: description),
        *publish("/errors", lambda _: errors[""]),
        *publish("/errors/{code:str}", lambda code: _find(errors, code)),
        *_landing(service.live),
    ]


def write_documents(*, ui: bool, has_log: bool) -> None:
    """Write, before there are several processes, the documents that are the same in each of them."""
    _schemas()
    pages(ui=ui, has_log=has_log)


@cache
def _schemas() -> Mapping[str, Document]:
    documents = schema_documents()
    return {f"{name}.json": document(body, _SCHEMA_TYPE, cache=_SCHEMA_CACHE) for name, body in documents.items()}


def _state(body: object) -> Answer:
    """Write how the service is at this moment."""
    return answer(msgspec.json.encode(body), "application/json", headers={"Cache-Control": "no-store"})


def _policies_of(live: Live[Published]) -> dict[str, Any]:
    """Report which policies decide. Stale ones are ready, too: otherwise one typo would stop every integration."""
    return {
        "digest": live.active.digest,
        "loaded_at": live.active.loaded_at,
        "stale": live.stale,
        "narrowed": len(live.narrowed),
    }


# -- public documents -------------------------------------------------------------------------------------------------


def _publish(
    service: Service, path: str, find: Callable[[str], Document], described_by: type[Operation] | None = None
) -> list[Any]:
    """Return the handlers of a path whose answers are written beforehand; `find` gets what stands for its parameter."""

    async def published(request: Http) -> Answer:
        known = ",".join(header_values(request, b"if-none-match"))
        try:
            return find(next(iter(request.path_params.values()), "")).answer(known)
        except IssuerError as error:  # a page of another origin may read that there is none, too
            service.counts.problem(error)
            return readable(problem_response(error, service.issuer_url, str(uuid.uuid4())))

    shown = get(path, operation_class=described_by) if described_by else get(path, include_in_schema=False)
    return [shown(published), route(path, http_method="HEAD", include_in_schema=False)(published)]


def _landing(live: Live[Published]) -> list[Any]:
    """Return the handlers of `/`, which has a page for people and a document for machines."""

    async def landing(request: Http) -> Answer:
        chosen = live.active.landing.choose(",".join(header_values(request, b"accept")))
        return chosen.answer(",".join(header_values(request, b"if-none-match")))

    return [route("/", http_method=["GET", "HEAD"], include_in_schema=False)(landing)]


def _find(documents: Mapping[str, Document], name: str) -> Document:
    """Return a document. Raises the same Refused for one that does not exist and one that is not public."""
    if name not in documents:
        raise Refused(Code.REQUEST_NOT_FOUND)
    return documents[name]


# -- everything else that can go wrong --------------------------------------------------------------------------------


def exception_handlers(issuer_url: str, counts: Counts) -> dict[Any, Callable[[Http, Any], Any]]:
    """Return the handlers that make every error a problem document, the unforeseen included."""

    def known(_: Http, error: IssuerError) -> Answer:
        counts.problem(error)
        return problem_response(error, issuer_url, str(uuid.uuid4()))

    def http(request: Http, error: HTTPException) -> Answer:
        if isinstance(error, NotFoundException):
            return known(request, Refused(Code.REQUEST_NOT_FOUND))
        if isinstance(error, MethodNotAllowedException):
            refused, allow = Refused(Code.REQUEST_METHOD), _allowed(request)
            counts.problem(refused)
            return problem_response(refused, issuer_url, str(uuid.uuid4()), Allow=allow)
        if error.status_code < 500:
            return known(request, Refused(Code.REQUEST_MALFORMED))
        return unforeseen(request, error)

    def unforeseen(_: Http, error: Exception) -> Answer:
        request_id = str(uuid.uuid4())
        counts.problem(IssuerError(Code.INTERNAL))
        # The traceback's frames, never its local variables: they hold tokens.
        _log.error("unforeseen", request_id=request_id, exc_info=error)
        return problem_response(IssuerError(Code.INTERNAL), issuer_url, request_id)

    return {IssuerError: known, HTTPException: http, Exception: unforeseen}


def _allowed(request: Http) -> str:
    """Name the methods that the path takes (RFC 9110 10.2.1)."""
    for each in request.app.routes:
        pattern = re.sub(r"\{[^}]*\}", "[^/]+", re.sub(r"\{[^}]*:path\}", ".+", each.path))
        # The scope's path: `request.url` is built with the Host header, which may not be a host at all.
        if re.fullmatch(pattern, str(request.scope["path"])):
            return ", ".join(sorted(each.methods))
    return "GET"
