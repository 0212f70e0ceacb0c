"""The HTTP side of a witness: two routes, bounded bodies, and a price for every source.

Litestar on uvicorn with the service's own protocol, which bounds heads, bodies and connections. Weighed: the standard
library's server, which needs no package and bounds nothing: a connection that sends half a head holds a thread.
The state is asked in a thread, one request at a time: SQLite has one writer anyway, and the event loop goes on reading.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any

import structlog
from litestar import Litestar, get, post
from litestar.exceptions import HTTPException, MethodNotAllowedException

from issuer.errors import IssuerError, Refused, Undecided
from issuer.limits import Rate
from issuer.service.authn.sources import Sources
from issuer.service.http.answer import Answer, answer
from issuer.service.http.gate import Gate
from issuer.service.http.reading import Http, read_whole, source_of
from issuer.tlog.add_checkpoint import ADD_CHECKPOINT_PATH, MAX_SUBMISSION_BYTES
from issuer.witness.state import NotKept
from issuer.witness.witness import TEXT_TYPE, Reply, Witness

# Milliseconds of CPU, 1 at least for each request: fifty requests a second of one source, where a log makes one to ten;
# and half a core for all of them together.
SOURCE_MS = Rate(count=3000, per_s=60, burst=500)
ALL_MS = Rate(count=30_000, per_s=60, burst=1000)
# Under way or waiting. Each waits for the disk: some 10 ms.
MAX_PLACES = 32

_log = structlog.get_logger("issuer")


def app(witness: Witness) -> Litestar:
    """Return the application of one witness."""
    gate = Gate(MAX_PLACES, Sources(SOURCE_MS), Sources(ALL_MS, capacity=1))

    async def ask(request: Http, work: Callable[[], Reply]) -> Answer:
        reply = await gate.work(_source(request), work)
        if reply.status is not HTTPStatus.OK:
            level = _log.critical if reply.is_fork else _log.info
            level("not cosigned", status=int(reply.status), why=reply.body.decode().strip(), source=_source(request))
        return answer(reply.body, reply.media_type, reply.status, headers={"Cache-Control": "no-store"})

    @post(ADD_CHECKPOINT_PATH)
    async def add_checkpoint(request: Http) -> Answer:
        gate.demand(_source(request))
        raw = await read_whole(request, MAX_SUBMISSION_BYTES)
        return await ask(request, partial(witness.add_checkpoint, raw))

    @get("/{origin_hash:str}/checkpoint")
    async def checkpoint(request: Http, origin_hash: str) -> Answer:
        gate.demand(_source(request))
        return await ask(request, partial(witness.checkpoint, origin_hash))

    return Litestar(
        [add_checkpoint, checkpoint],
        exception_handlers=_handlers(),
        openapi_config=None,
        request_max_body_size=None,  # `read_whole` bounds it
        logging_config=None,
        debug=False,
        pdb_on_exception=False,
    )


def _source(request: Http) -> str:
    return source_of(request.client.host if request.client else "")


def _handlers() -> dict[Any, Callable[[Http, Any], Any]]:
    return {
        HTTPException: _not_routed,
        IssuerError: _not_served,
        NotKept: _not_kept,
        Exception: _not_foreseen,
    }


def _not_routed(request: Http, error: HTTPException) -> Answer:
    """Answer 404 and 405."""
    allow = {"Allow": "POST" if request.scope["path"] == ADD_CHECKPOINT_PATH else "GET"}
    headers = allow if isinstance(error, MethodNotAllowedException) else {}
    return _plain(error.status_code, HTTPStatus(error.status_code).phrase, **headers)


def _not_served(_: Http, error: IssuerError) -> Answer:
    """Answer what is too large, too slow or too much."""
    retry_after_s = error.retry_after_s if isinstance(error, Refused | Undecided) else None
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return _plain(error.code.meaning.status, error.detail, **headers)


def _not_kept(_: Http, error: NotKept) -> Answer:
    """Answer that nothing is certain: nothing was signed, and the same request may be sent again."""
    _log.error("state not kept", reason=str(error))
    return _plain(HTTPStatus.SERVICE_UNAVAILABLE, "the witness cannot write its state", **{"Retry-After": "5"})


def _not_foreseen(_: Http, error: Exception) -> Answer:
    """Answer for a mistake of our own."""
    _log.error("request failed", exc_info=error)
    return _plain(HTTPStatus.INTERNAL_SERVER_ERROR, "the witness failed")


def _plain(status: int, text: str, **headers: str) -> Answer:
    return answer(f"{text}\n".encode(), TEXT_TYPE, status, headers={"Cache-Control": "no-store", **headers})
