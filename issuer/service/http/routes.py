"""The routes of the service and its error handlers. `tokens.py`, `verify.py`, `log.py` and `pages.py` add their own."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import msgspec
import structlog
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException
from litestar.openapi.spec import Operation

from issuer.codes import Code
from issuer.errors import IssuerError, Refused
from issuer.io.shared_answers import SharedAnswers
from issuer.service.http import openapi
from issuer.service.http.bounds import READY_KEPT_S
from issuer.service.http.exchange import exchange_route
from issuer.service.http.messages import (
    Answer,
    Http,
    HttpDocument,
    answer,
    document,
    get_and_head,
    header_values,
    problem_response,
    readable,
)
from issuer.service.http.pages import pages
from issuer.service.http.public_documents import Service
from issuer.service.http.tokens import InFlight, token_routes
from issuer.service.metrics.counts import Counters
from issuer.service.policies.watcher import schema_documents
from issuer.token.wire import ARCHIVE_PATH, JWKS_PATH, METADATA_PATH, REVOCATION_KEYS_PATH, REVOCATIONS_PATH, STOPS_PATH

_SCHEMA_TYPE, _SCHEMA_CACHE = "application/schema+json", "public, max-age=3600"
_log = structlog.get_logger("issuer")


def routes(service: Service, more: Sequence[Any], *, ui: bool, has_log: bool) -> list[Any]:
    """Return the handlers of one service, with `more` handlers. `ui` and `has_log` say which links the pages have."""
    schemas = _schemas()

    async def landing(request: Http) -> Answer:
        chosen = service.live.active.landing.choose(",".join(header_values(request, b"accept")))
        return chosen.answer(",".join(header_values(request, b"if-none-match")))

    def oauth(path: str) -> Callable[[str], HttpDocument]:
        return lambda _: service.live.active.oauth[path]

    publish, singles = partial(_publish, service), InFlight("single")
    described = [
        *token_routes(service, singles),
        exchange_route(service, singles),
        *more,
        *publish(JWKS_PATH, lambda _: service.keys.document, openapi.KeySetOperation),
        *publish(ARCHIVE_PATH, lambda _: service.keys.archive, openapi.ArchiveOperation),
        *publish(REVOCATIONS_PATH, lambda _: service.revocations.signed_list, openapi.RevocationsOperation),
        *publish(REVOCATION_KEYS_PATH, lambda _: service.revocations.keys, openapi.RevocationKeysOperation),
        *publish(METADATA_PATH, lambda _: service.live.active.metadata, openapi.MetadataOperation),
        *(
            handler
            for path in service.live.active.oauth
            for handler in publish(path, oauth(path), openapi.JsonOperation)
        ),
        *publish(
            "/integrations/{integration:str}/requirements",
            lambda name: _find(service.live.active.requirements, name),
            openapi.RequirementsOperation,
        ),
        *publish("/schemas/{name:str}", lambda name: _find(schemas, name), openapi.SchemaOperation),
        *_health(service),
    ]
    description, errors = document(openapi.openapi(described)), pages(ui=ui, has_log=has_log)
    return [
        *described,
        *publish("/openapi.json", lambda _: description),
        *publish("/errors", lambda _: errors[""]),
        *publish("/errors/{code:str}", lambda code: _find(errors, code)),
        *get_and_head("/", landing),
    ]


def _health(service: Service) -> list[Any]:
    """Return the handlers that report the state of the service."""
    alive_answer = _state({"status": "live"})

    async def alive() -> Answer:
        return alive_answer

    checks: SharedAnswers[str, None] = SharedAnswers(Code.SERVICE_BUSY, kept_s=READY_KEPT_S)

    async def ready() -> Answer:
        await checks.find("ready", service.check)
        live = service.live
        body = {
            "status": "ready",
            # Stale policies count as ready, too: otherwise one typo would stop every integration.
            "policies": {
                "digest": live.active.digest,
                "loaded_at": live.active.loaded_at,
                "stale": live.stale,
                "narrowed": len(live.narrowed),
            },
            "keys": {"stale": service.signer.stale, "waiting": service.signer.waiting},
            "stops": service.stops.status,
            "revocations": service.revocations.status,
            "store": service.store_status(),
        }
        return _state(body if service.log is None else {**body, "log": service.log.status})

    async def stops() -> Answer:
        return _state(service.stops.status)  # needs neither store nor disk, so it answers even when both fail

    read = {"/health/live": alive, "/health/ready": ready, STOPS_PATH: stops}
    return [handler for path in read for handler in get_and_head(path, read[path], openapi.JsonOperation)]


def write_documents(*, ui: bool, has_log: bool) -> None:
    """Write the documents that are the same in every process. The supervisor calls this before it forks."""
    _schemas()
    pages(ui=ui, has_log=has_log)


@cache
def _schemas() -> Mapping[str, HttpDocument]:
    documents = schema_documents()
    return {f"{name}.json": document(body, _SCHEMA_TYPE, cache=_SCHEMA_CACHE) for name, body in documents.items()}


def _state(body: object) -> Answer:
    """Return a JSON answer about the service's current state, which no cache may store."""
    return answer(msgspec.json.encode(body), "application/json", headers={"Cache-Control": "no-store"})


# -- public documents -------------------------------------------------------------------------------------------------


def _publish(
    service: Service, path: str, find: Callable[[str], HttpDocument], described_by: type[Operation] | None = None
) -> list[Any]:
    """Return the GET and HEAD handlers of a public document. `find` gets the path's parameter, or "" without one."""

    async def published(request: Http) -> Answer:
        known = ",".join(header_values(request, b"if-none-match"))
        try:
            return find(next(iter(request.path_params.values()), "")).answer(known)
        except IssuerError as error:  # a page of another origin may read the 404, too
            service.counts.problem(error)
            return readable(problem_response(error, service.issuer_url, str(uuid.uuid4())))

    return get_and_head(path, published, described_by)


def _find(documents: Mapping[str, HttpDocument], name: str) -> HttpDocument:
    """Return a document. Raises the same Refused whether the document does not exist or is not public."""
    if name not in documents:
        raise Refused(Code.REQUEST_NOT_FOUND)
    return documents[name]


# -- errors -----------------------------------------------------------------------------------------------------------


def exception_handlers(issuer_url: str, counts: Counters) -> dict[Any, Callable[[Http, Any], Any]]:
    """Return the handlers that answer every exception with a problem document, including unforeseen ones."""

    def known(_: Http, error: IssuerError, **headers: str) -> Answer:
        counts.problem(error)
        return problem_response(error, issuer_url, str(uuid.uuid4()), **headers)

    def http(request: Http, error: HTTPException) -> Answer:
        if isinstance(error, NotFoundException):
            return known(request, Refused(Code.REQUEST_NOT_FOUND))
        if isinstance(error, MethodNotAllowedException):
            return known(request, Refused(Code.REQUEST_METHOD), Allow=_allowed(request))
        if error.status_code < 500:
            return known(request, Refused(Code.REQUEST_MALFORMED))
        return unforeseen(request, error)

    def unforeseen(_: Http, error: Exception) -> Answer:
        request_id = str(uuid.uuid4())
        counts.problem(IssuerError(Code.INTERNAL))
        # The log stream gets the traceback's frames, never the local variables: they contain tokens.
        _log.error("unforeseen", request_id=request_id, exc_info=error)
        return problem_response(IssuerError(Code.INTERNAL), issuer_url, request_id)

    return {IssuerError: known, HTTPException: http, Exception: unforeseen}


def _allowed(request: Http) -> str:
    """Return the Allow field of a path: the methods that it takes (RFC 9110 10.2.1)."""
    for known in request.app.routes:
        pattern = re.sub(r"\{[^}]*\}", "[^/]+", re.sub(r"\{[^}]*:path\}", ".+", known.path))
        # The path comes from the scope, because `request.url` contains the Host header, which may be invalid.
        if re.fullmatch(pattern, str(request.scope["path"])):
            return ", ".join(sorted(known.methods))
    return "GET"
