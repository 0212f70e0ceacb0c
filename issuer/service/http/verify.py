"""`POST /verify`: `issuer.verify` over HTTP, under the service's own trust file. Fetches nothing and keeps nothing."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from litestar import post, route

from issuer import files
from issuer.codes import Code
from issuer.errors import IssuerError, Refused, SetupError, Undecided, reading
from issuer.service.authn.sources import Sources
from issuer.service.bounds import (
    ALL_QUESTIONS_MS,
    MAX_QUESTION_BYTES,
    MAX_QUESTIONS,
    MAX_TRUST_BYTES,
    QUESTION_MS,
    REREAD_S,
)
from issuer.service.http import openapi
from issuer.service.http.answer import Answer, json_answer
from issuer.service.http.cors import preflight, readable
from issuer.service.http.gate import Gate
from issuer.service.http.problems import problem_response
from issuer.service.http.question import read_question
from issuer.service.http.reading import Http, ms_since, read_json_body, source_of
from issuer.service.http.tarpit import Tarpit
from issuer.service.metrics.counts import Counts
from issuer.verify import Context, verify_entries
from issuer.verify.report import REPORT_VERSION, Reports
from issuer.verify.trust import Trust, TrustFile, read_trust_file, resolve, sources, with_newest_lists

_PATH = "/verify"
_log = structlog.get_logger("issuer")


class OwnTrust:
    """The service's trust file and the files that it names, read at start and again when they are a minute old.

    Key sets and lists come from files or are inline; the only URLs that it may name are those in `own`, what this
    service publishes itself.
    """

    def __init__(self, path: Path, own: Mapping[str, Callable[[], bytes]], now: int) -> None:
        self._path, self._own = path, own
        self._read_at = now
        self._trust = self.read_whole()
        for issuer in self._trust.unlimited:
            _log.warning("trust file doubted", issuer=issuer, detail="it names no `frameworks`, beside other issuers")

    def __call__(self, now: int) -> Trust:
        """Return the trust to judge by. A file that has become unreadable leaves the last good trust in force."""
        if now - self._read_at >= REREAD_S:
            self._read_at = now
            try:
                self._trust = with_newest_lists(self.read_whole(), self._trust, now)
            except IssuerError as error:
                _log.error("trust file not read again", code=str(error.code), detail=error.detail)
        return self._trust

    def read_whole(self) -> Trust:
        """Read the trust file, and what it names. Raises InputError with the file's place."""
        file = read_trust_file(files.read(self._path, MAX_TRUST_BYTES), str(self._path))
        own = (pointer for pointer, source in sources(file).items() if source.url in self._own)
        with reading(str(self._path)):
            return resolve(file, self._found(file), dict.fromkeys(own, self._read_at))

    def _found(self, file: TrustFile) -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        for pointer, source in sources(file).items():
            if isinstance(source.file, str):
                found[pointer] = files.read(self._path.parent / source.file, MAX_TRUST_BYTES)
            elif isinstance(source.url, str) and source.url in self._own:
                found[pointer] = self._own[source.url]()
            elif isinstance(source.url, str):
                detail = f"trust: {pointer} is a URL, and nothing is fetched here: keep a copy and name it as `file`"
                raise SetupError(Code.SETTINGS_INVALID, detail)
        return found


def verify_routes(
    trust: str, issuer_url: str, own: Mapping[str, Callable[[], bytes]], tarpit: Tarpit, counts: Counts
) -> list[Any]:
    """Return the handlers of `/verify`, or none without a trust file: trust must not be guessed.

    A web page of any origin may ask, too. `own` has what this service publishes, by path.
    """
    if not trust:
        return []
    by_url = {f"{issuer_url}{path}": read for path, read in own.items()}
    trusted = OwnTrust(Path(trust), by_url, int(time.time()))
    gate = Gate(MAX_QUESTIONS, Sources(QUESTION_MS), Sources(ALL_QUESTIONS_MS, capacity=1))

    @post(_PATH, operation_class=openapi.VerifyOperation, status_code=200, name="verify")
    async def verify(request: Http) -> Answer:
        began, request_id = time.perf_counter(), str(uuid.uuid4())
        source = source_of(request.client.host if request.client else "")
        try:
            gate.demand(source)
        except Refused as error:
            counts.problem(error, _PATH)
            return readable(tarpit.answer(request_id))
        except Undecided as error:  # without a line in the log: they come as fast as anybody likes
            counts.problem(error, _PATH)
            return readable(problem_response(error, issuer_url, request_id))
        try:
            body = await read_json_body(request, MAX_QUESTION_BYTES)
            reports = await gate.work(source, partial(answer_question, body, trusted, int(time.time())))
        except (Refused, Undecided) as error:
            counts.problem(error, _PATH)
            _log.info("question", request_id=request_id, outcome="no", code=str(error.code), ms=ms_since(began))
            return readable(problem_response(error, issuer_url, request_id))
        counts.answered(_PATH, "answered")
        counts.durations[_PATH].observe(int((time.perf_counter() - began) * 1e9))
        verdicts = Counter(report.verdict for report in reports.reports)
        _log.info("question", request_id=request_id, outcome="answered", verdicts=dict(verdicts), ms=ms_since(began))
        return readable(json_answer(reports, request_id))

    asked_first = preflight("POST")

    @route(_PATH, http_method="OPTIONS", include_in_schema=False)
    async def may_ask() -> Answer:
        return asked_first

    return [may_ask, verify]  # in this order: Litestar makes an OPTIONS of its own for a path that has none yet


def answer_question(body: bytes, trust: Callable[[int], Trust], now: int) -> Reports:
    """Answer a question: as a reader's, where it does not state when the file was received. Raises Refused."""
    asked = read_question(body)
    context = Context(now, benchmarks=asked.benchmarks)
    reports = verify_entries(asked.entries, asked.repo, asked.path, trust(now), asked.at, context)
    return Reports(REPORT_VERSION, reports)
