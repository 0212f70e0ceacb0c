"""The public endpoints of the transparency log: `/log/checkpoint`, `/log/tile/...`, `/log/proof`, `/log/log.json`.

Each path has exactly one spelling. It is compared as the client sent it, without decoding or normalizing.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

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
    Http,
    HttpDocument,
    WrittenProblem,
    document,
    get_and_head,
    header_values,
    problem_response,
    readable,
    source_of,
)
from issuer.service.http.public_documents import LogInfo, prefixes
from issuer.service.http.request_limits import Gate, Tarpit
from issuer.service.log.bounds import LOG_READERS
from issuer.service.log.database.public import PublicLog
from issuer.service.metrics.counts import Counters
from issuer.tlog.checkpoint import MAX_SIZE
from issuer.tlog.tiles import TilePath, parse_tile_path
from issuer.token.wire import LOG_PATH

# -- log query ---------------------------------------------------------------------------------------------------------

# The query of `GET /log/proof`: `iat`, `token` and optionally `size`, each at most once and with exactly one spelling.
# `iat` has so few digits that it fits a database's integer.
_SPELLING = {"iat": r"0|[1-9][0-9]{0,15}", "token": r"[0-9a-f]{64}", "size": r"[1-9][0-9]{0,18}"}


class ProofQuery(Struct, frozen=True):
    """A token's `iat` in Unix seconds and the 32 bytes of its digest, and the tree size of the checkpoint to prove the
    leaf under. None is the first checkpoint that covers the leaf."""

    iat: int
    token: bytes
    size: int | None = None


def read_query(query: bytes) -> ProofQuery:
    """Read the raw query string. Raises Refused(`request.query`)."""
    pairs = [part.partition("=")[::2] for part in query.decode("latin-1").split("&")]
    values = dict(pairs)
    has_one_spelling = all(re.fullmatch(_SPELLING.get(name, r"[^\s\S]"), value) for name, value in pairs)
    size = int(values["size"]) if "size" in values and has_one_spelling else None
    is_complete = {"iat", "token"} <= values.keys() and len(values) == len(pairs)
    if not has_one_spelling or not is_complete or (size or 0) > MAX_SIZE:
        detail = "Send `iat=` with Unix seconds, `token=` with 64 lowercase hex characters, and optionally `size=`"
        raise Refused(Code.REQUEST_QUERY, detail)
    return ProofQuery(int(values["iat"]), bytes.fromhex(values["token"]), size)


# -- log ---------------------------------------------------------------------------------------------------------------

# Tiles never change. A proof may later be served under an earlier checkpoint, because several hosts store their
# checkpoints in a different order.
_FOREVER = "public, max-age=31536000, immutable"
_PROOF_CACHE = "public, max-age=3600"
_INFO_CACHE = "public, max-age=300"
_NOTE_TYPE, _TILE_TYPE = "text/plain; charset=utf-8", "application/octet-stream"
# Returns the document at a path under the log's prefix, for one source.
Find: TypeAlias = Callable[[Http, str, str], Awaitable[HttpDocument | None]]


def log_routes(
    log: PublicLog, info: LogInfo, sure: Callable[[], Awaitable[object]], tarpit: Tarpit, counts: Counters
) -> list[Any]:
    """Return the handlers of one log. `sure` raises Undecided if the sequencer cannot append now. The database may then
    be an old copy from a backup, so the service must not claim that a leaf does not exist."""
    pages = _Pages(log, info, sure, tarpit, counts)
    return [handler for prefix in prefixes(info.issuer_url, info.origin) for handler in pages.handlers(prefix)]


class _Pages:
    """The handlers of one log in one process. They belong to one event loop."""

    def __init__(
        self, log: PublicLog, info: LogInfo, sure: Callable[[], Awaitable[object]], tarpit: Tarpit, counts: Counters
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
        self._not_found = Refused(Code.REQUEST_NOT_FOUND)
        self._not_found_problem = WrittenProblem(self._not_found, info.issuer_url)

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

        return get_and_head(prefix + path, read, described_by if prefix == LOG_PATH else None)

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
            self._counts.problem(self._not_found)
            return readable(self._not_found_problem.answer(request_id))
        return found.answer(",".join(header_values(request, b"if-none-match")))

    async def _checkpoint(self, _: Http, path: str, __: str) -> HttpDocument | None:
        return await self._looks.find(path, self._look) if path == "checkpoint" else None

    async def _look(self) -> HttpDocument:
        return document(await self._log.run(self._log.checkpoint), _NOTE_TYPE, cache="no-cache")

    async def _tile(self, _: Http, path: str, source: str) -> HttpDocument | None:
        tile = parse_tile_path(path)
        return None if tile is None else await self._gate.work(source, partial(self._read_tile, tile))

    def _read_tile(self, tile: TilePath) -> HttpDocument | None:
        raw = self._log.tile(tile)
        return None if raw is None else document(raw, _TILE_TYPE, cache=_FOREVER)

    async def _proof(self, request: Http, path: str, source: str) -> HttpDocument | None:
        if path != "proof":
            return None
        query = read_query(request.scope["query_string"])
        try:
            raw = await self._gate.work(source, partial(self._log.proof, query.iat, query.token, query.size))
        except Refused as error:
            if error.code is Code.LOG_NO_LEAF:
                await self._looks.find("sure", self._sure)
            raise
        return document(raw, _NOTE_TYPE, cache=_PROOF_CACHE)

    async def _describe(self, _: Http, path: str, __: str) -> HttpDocument | None:
        return self._info if path == "log.json" else None
