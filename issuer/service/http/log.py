"""The public side of the transparency log: `/log/checkpoint`, `/log/tile/...`, `/log/proof`, `/log/log.json`.

A path counts in its one spelling, as it was sent: before anything in it is decoded or normalized.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

from litestar import get, route
from litestar.openapi.spec import Operation
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import IssuerError, Refused
from issuer.io.shared_answers import SharedAnswers
from issuer.limits.sources import Sources
from issuer.service.http import openapi
from issuer.service.http.bounds import ALL_LOG_READS_MS, LOG_LOOK_S, LOG_READ_MS, MAX_LOG_QUESTIONS
from issuer.service.http.messages import (
    Answer,
    Document,
    Http,
    WrittenProblem,
    document,
    header_values,
    problem_response,
    readable,
    source_of,
)
from issuer.service.http.public_documents import LogInfo, prefixes
from issuer.service.http.request_limits import Gate, Tarpit
from issuer.service.log.bounds import LOG_READERS
from issuer.service.log.database.public import PublicLog
from issuer.service.metrics.counts import Counts
from issuer.tlog.checkpoint import MAX_SIZE
from issuer.tlog.tiles import parse_tile_path
from issuer.token.wire import LOG_PATH

# -- log query ---------------------------------------------------------------------------------------------------------

# The query of `GET /log/proof`: `iat`, `token` and perhaps `size`, each once and in its one spelling.

# The largest time has fewer digits than the largest integer of a database.
_SPELLING = {"iat": r"0|[1-9][0-9]{0,15}", "token": r"[0-9a-f]{64}", "size": r"[1-9][0-9]{0,18}"}


class ProofQuery(Struct, frozen=True):
    """Which token's leaf: its `iat` in Unix seconds and the 32 bytes of its digest; and under which tree size, if not
    the first that there is."""

    iat: int
    token: bytes
    size: int | None = None


def read_query(query: bytes) -> ProofQuery:
    """Read a query as it was sent. Raises Refused(`request.query`)."""
    values: dict[str, str] = {}
    for part in query.decode("latin-1").split("&"):
        name, _, value = part.partition("=")
        if name in values or not re.fullmatch(_SPELLING.get(name, r"[^\s\S]"), value):
            raise _misspelt()
        values[name] = value
    if not {"iat", "token"} <= values.keys():
        raise _misspelt()
    size = int(values["size"]) if "size" in values else None
    if size is not None and size > MAX_SIZE:
        raise _misspelt()
    return ProofQuery(int(values["iat"]), bytes.fromhex(values["token"]), size)


def _misspelt() -> Refused:
    detail = "It is `iat=` and Unix seconds, `token=` and 64 lowercase hex characters, and perhaps `size=` and a size"
    return Refused(Code.REQUEST_QUERY, detail)


# -- log ---------------------------------------------------------------------------------------------------------------

# What a path names never changes once it is there. A proof could yet become one under an earlier checkpoint, where
# several hosts keep theirs in another order.
_FOREVER = "public, max-age=31536000, immutable"
_PROOF_CACHE = "public, max-age=3600"
_INFO_CACHE = "public, max-age=300"
_NOTE_TYPE, _TILE_TYPE = "text/plain; charset=utf-8", "application/octet-stream"
# Returns the document at a path under the log's prefix, for one source.
Find: TypeAlias = Callable[[Http, str, str], Awaitable[Document | None]]


def log_routes(
    log: PublicLog, info: LogInfo, sure: Callable[[], Awaitable[object]], tarpit: Tarpit, counts: Counts
) -> list[Any]:
    """Return the handlers of one log.

    `sure` raises Undecided where the sequencer could not append now: then the database may be an older one that was put
    back, and nobody is told that a leaf is not there.
    """
    pages = _Pages(log, info, sure, tarpit, counts)
    return [handler for prefix in prefixes(info.issuer_url, info.origin) for handler in pages.handlers(prefix)]


class _Pages:
    """The answers of one log in one process. Belongs to one event loop."""

    def __init__(
        self, log: PublicLog, info: LogInfo, sure: Callable[[], Awaitable[object]], tarpit: Tarpit, counts: Counts
    ) -> None:
        self._log = log
        self._info = document(info.to_json(), cache=_INFO_CACHE)
        self._sure = sure
        self._looks: SharedAnswers[str, Any] = SharedAnswers(Code.SERVICE_BUSY, kept_s=LOG_LOOK_S, capacity=2)
        of_all = Sources(ALL_LOG_READS_MS, capacity=1)
        self._gate = Gate(MAX_LOG_QUESTIONS, Sources(LOG_READ_MS), of_all, log.run, LOG_READERS)
        self._issuer_url = info.issuer_url
        self._tarpit = tarpit
        self._counts = counts
        self._no_such_thing = Refused(Code.REQUEST_NOT_FOUND)
        self._nowhere = WrittenProblem(self._no_such_thing, info.issuer_url)

    def handlers(self, prefix: str) -> list[Any]:
        """Return the handlers under one prefix."""
        return [
            *self._at(prefix, "/checkpoint", self._checkpoint, openapi.CheckpointOperation),
            *self._at(prefix, "/tile/{path:path}", self._tile, openapi.TileOperation),
            *self._at(prefix, "/proof", self._proof, openapi.ProofOperation),
            *self._at(prefix, "/log.json", self._describe, openapi.LogOperation),
        ]

    def _at(self, prefix: str, path: str, find: Find, described_by: type[Operation]) -> list[Any]:
        async def read(request: Http) -> Answer:
            return await self._answer(request, prefix, find)

        path, described = prefix + path, prefix == LOG_PATH
        return [
            get(path, operation_class=described_by, include_in_schema=described)(read),
            route(path, http_method="HEAD", include_in_schema=False)(read),
        ]

    async def _answer(self, request: Http, prefix: str, find: Find) -> Answer:
        request_id = str(uuid.uuid4())
        source = source_of(request.client.host if request.client else "")
        path = request.scope["raw_path"].decode("latin-1").removeprefix(f"{prefix}/")
        try:
            self._gate.demand(source)
            found = await find(request, path, source)
        except IssuerError as error:
            self._counts.problem(error)
            if error.code is Code.RATE_SOURCE:
                return readable(self._tarpit.answer(request_id))
            return readable(problem_response(error, self._issuer_url, request_id))
        if found is None:
            self._counts.problem(self._no_such_thing)
            return readable(self._nowhere.answer(request_id))
        return found.answer(",".join(header_values(request, b"if-none-match")))

    async def _checkpoint(self, _: Http, path: str, __: str) -> Document | None:
        return await self._looks.find(path, self._look) if path == "checkpoint" else None

    async def _look(self) -> Document:
        return document(await self._log.run(self._log.checkpoint), _NOTE_TYPE, cache="no-cache")

    async def _tile(self, _: Http, path: str, source: str) -> Document | None:
        tile = parse_tile_path(path)
        if tile is None:
            return None
        return await self._gate.work(source, partial(self._document, partial(self._log.tile, tile)))

    def _document(self, read: Callable[[], bytes | None]) -> Document | None:
        raw = read()
        return None if raw is None else document(raw, _TILE_TYPE, cache=_FOREVER)

    async def _proof(self, request: Http, path: str, source: str) -> Document | None:
        if path != "proof":
            return None
        asked = read_query(request.scope["query_string"])
        try:
            raw = await self._gate.work(source, partial(self._log.proof, asked.iat, asked.token, asked.size))
        except Refused as error:
            if error.code is Code.LOG_NO_LEAF:
                await self._looks.find("sure", self._sure)
            raise
        return document(raw, _NOTE_TYPE, cache=_PROOF_CACHE)

    async def _describe(self, _: Http, path: str, __: str) -> Document | None:
        return self._info if path == "log.json" else None
