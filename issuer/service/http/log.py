"""The public side of the transparency log: `/log/checkpoint`, `/log/tile/...`, `/log/proof`, `/log/log.json`.

A path counts in its one spelling, as it was sent: before anything in it is decoded or normalized.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

from litestar import get, route
from litestar.openapi.spec import Operation

from issuer.codes import Code
from issuer.errors import IssuerError, Refused
from issuer.service.authn.sources import Sources
from issuer.service.bounds import ALL_LOG_READS_MS, LOG_LOOK_S, LOG_READ_MS, LOG_READERS, MAX_LOG_QUESTIONS
from issuer.service.http import openapi
from issuer.service.http.answer import Answer
from issuer.service.http.cors import readable
from issuer.service.http.documents import Document, document
from issuer.service.http.gate import Gate, SharedLook
from issuer.service.http.log_info import LogInfo, prefixes
from issuer.service.http.log_query import read_query
from issuer.service.http.problems import WrittenProblem, problem_response
from issuer.service.http.reading import Http, header_values, source_of
from issuer.service.http.tarpit import Tarpit
from issuer.service.log.public import PublicLog
from issuer.service.log.readers import Readers
from issuer.service.metrics.counts import Counts
from issuer.tlog.tiles import parse_tile_path
from issuer.wire import LOG_PATH

# What a path names never changes once it is there. A proof could yet become one under an earlier checkpoint, where
# several hosts keep theirs in another order.
_FOREVER = "public, max-age=31536000, immutable"
_PROOF_CACHE = "public, max-age=3600"
_INFO_CACHE = "public, max-age=300"
_NOTE_TYPE, _TILE_TYPE = "text/plain; charset=utf-8", "application/octet-stream"
# Returns the document at a path under the log's prefix, for one source.
Find: TypeAlias = Callable[[Http, str, str], Awaitable[Document | None]]


def log_routes(
    readers: Readers, info: LogInfo, sure: Callable[[], Awaitable[object]], tarpit: Tarpit, counts: Counts
) -> list[Any]:
    """Return the handlers of one log.

    `sure` raises Undecided where the sequencer could not append now: then the database may be an older one that was put
    back, and nobody is told that a leaf is not there.
    """
    pages = _Pages(readers, info, sure, tarpit, counts)
    return [handler for prefix in prefixes(info.issuer_url, info.origin) for handler in pages.handlers(prefix)]


class _Pages:
    """The answers of one log in one process. Belongs to one event loop."""

    def __init__(
        self, readers: Readers, info: LogInfo, sure: Callable[[], Awaitable[object]], tarpit: Tarpit, counts: Counts
    ) -> None:
        self._log = PublicLog(readers)
        self._readers = readers
        self._info = document(info.to_json(), cache=_INFO_CACHE)
        self._sure = SharedLook(sure, LOG_LOOK_S)
        self._newest = SharedLook(self._look, LOG_LOOK_S)
        of_all = Sources(ALL_LOG_READS_MS, capacity=1)
        self._gate = Gate(MAX_LOG_QUESTIONS, Sources(LOG_READ_MS), of_all, readers.run, LOG_READERS)
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
        return await self._newest.answer() if path == "checkpoint" else None

    async def _look(self) -> Document:
        return document(await self._readers.run(self._log.checkpoint), _NOTE_TYPE, cache="no-cache")

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
                await self._sure.answer()
            raise
        return document(raw, _NOTE_TYPE, cache=_PROOF_CACHE)

    async def _describe(self, _: Http, path: str, __: str) -> Document | None:
        return self._info if path == "log.json" else None
