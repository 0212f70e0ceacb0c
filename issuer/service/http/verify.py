"""The endpoint `POST /verify`: `issuer.verify` over HTTP, with the service's own trust file.

It fetches nothing and records nothing. In this file a question is a request to `/verify`.
"""

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
from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import FormatError, InputError, IssuerError, Refused, SetupError, Undecided, reading
from issuer.formats import strict_yaml
from issuer.formats.strict_json import convert, count_values, loads
from issuer.io import files
from issuer.io.bounds import MAX_TRUST_BYTES
from issuer.io.followed import Failure, Followed, Reading
from issuer.limits.sources import Sources
from issuer.results.benchmark import Benchmark, read_benchmark
from issuer.results.entry import Entry, read_entries, read_entry
from issuer.service.http import openapi
from issuer.service.http.bounds import (
    ALL_QUESTIONS_MS,
    MAX_QUESTION_BYTES,
    MAX_QUESTION_DEPTH,
    MAX_QUESTION_VALUES,
    MAX_QUESTIONS,
    QUESTION_MS,
    REREAD_S,
)
from issuer.service.http.messages import (
    PREFLIGHT,
    Answer,
    Http,
    check_framing,
    json_answer,
    ms_since,
    problem_response,
    readable,
    source_of,
)
from issuer.service.http.request_limits import Gate, Tarpit
from issuer.service.metrics.counts import Counters
from issuer.token.wire import VerifyRequest
from issuer.verify import Context, verify_entries
from issuer.verify.report import REPORT_VERSION, Reports
from issuer.verify.trust import Trust, TrustFile, read_trust_file, resolve, sources, with_newest_lists

_PATH = "/verify"
_log = structlog.get_logger("issuer")


class OwnTrust:
    """The service's trust file and the files that it names, read at the start and again after REREAD_S.

    Key sets and lists are inline or come from files. The only URLs that the trust file may name are in `own`: documents
    that this service publishes itself.
    """

    def __init__(self, path: Path, own: Mapping[str, Callable[[], bytes]], now: int) -> None:
        self._path, self._own = path, own
        self._read_at = now
        # The documents of the service itself change without a file.
        self._files = Followed(lambda: self._read_at, self._read, self._say)
        for issuer in self._files.value.unlimited:
            _log.warning("trust file doubted", issuer=issuer, detail="it names no `frameworks`, beside other issuers")

    def __call__(self, now: int) -> Trust:
        """Return the trust to judge by. If a file has become unreadable, the last good trust stays in force."""
        if abs(now - self._read_at) >= REREAD_S:  # abs: the clock may have been set back
            self._read_at = now
            self._files.turn()
        return self._files.value

    def _read(self, last: Trust | None) -> Reading[Trust]:
        trust = self.read_whole()
        return Reading(trust if last is None else with_newest_lists(trust, last, self._read_at))

    def _say(self, error: Failure | None) -> None:
        if isinstance(error, IssuerError):
            _log.error("trust file not read again", code=str(error.code), detail=error.detail)
        else:
            _log.info("trust file read again")

    def read_whole(self) -> Trust:
        """Read the trust file and the files that it names. Raises InputError with the place in the trust file."""
        file = read_trust_file(files.read(self._path, MAX_TRUST_BYTES), str(self._path))
        own = (pointer for pointer, source in sources(file).items() if source.url in self._own)
        with reading(str(self._path)):
            return resolve(file, self._read_sources(file), dict.fromkeys(own, self._read_at))

    def _read_sources(self, file: TrustFile) -> dict[str, bytes | None]:
        contents: dict[str, bytes | None] = {}
        for pointer, source in sources(file).items():
            if isinstance(source.file, str):
                contents[pointer] = files.read(self._path.parent / source.file, MAX_TRUST_BYTES)
            elif isinstance(source.url, str) and source.url in self._own:
                contents[pointer] = self._own[source.url]()
            elif isinstance(source.url, str):
                detail = f"trust: {pointer} is a URL, and the service fetches none: keep a copy and name it as `file`"
                raise SetupError(Code.SETTINGS_INVALID, detail)
        return contents


def verify_routes(
    trust: str, issuer_url: str, own: Mapping[str, Callable[[], bytes]], tarpit: Tarpit, counts: Counters
) -> list[Any]:
    """Return the handlers of `/verify`, or none without a trust file: the service must not guess whom to trust.

    Web pages of every origin may use them. `own` reads each document that this service publishes, by path.
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
        except (Refused, Undecided) as error:  # not logged: anyone can cause these at any rate
            counts.problem(error, _PATH)
            if isinstance(error, Refused):
                return readable(tarpit.answer(request_id))
            return readable(problem_response(error, issuer_url, request_id))
        try:
            check_framing(request, MAX_QUESTION_BYTES)
            body = await gate.bodies.read(request, source, MAX_QUESTION_BYTES)
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

    @route(_PATH, http_method="OPTIONS", include_in_schema=False)
    async def options() -> Answer:
        return PREFLIGHT

    return [options, verify]  # in this order: Litestar adds its own OPTIONS handler to a path that has none yet


def answer_question(body: bytes, trust: Callable[[int], Trust], now: int) -> Reports:
    """Judge the entries of a question. Without a time in it, they are judged as received now. Raises Refused."""
    question = read_question(body)
    context = Context(now, benchmarks=question.benchmarks)
    reports = verify_entries(question.entries, question.repo, question.path, trust(now), question.at, context)
    return Reports(REPORT_VERSION, reports)


# -- the body ----------------------------------------------------------------------------------------------------------


class Question(Struct, frozen=True):
    """A parsed question. `at` is None if it states no time of receipt."""

    entries: tuple[Entry, ...]
    repo: str
    path: str
    at: int | None
    benchmarks: dict[tuple[str, str], Benchmark]


def read_question(raw: bytes) -> Question:
    """Read a body of at most 64 KiB. Raises Refused (400) with the place in the body, and in a text within it."""
    try:
        if count_values(raw, MAX_QUESTION_VALUES) > MAX_QUESTION_VALUES:  # texts in the body have their own count
            raise Refused.at(Code.REQUEST_MALFORMED, "", f"more than {MAX_QUESTION_VALUES} values")
        request = convert(loads(raw, max_bytes=MAX_QUESTION_BYTES, max_depth=MAX_QUESTION_DEPTH), VerifyRequest)
    except FormatError as error:
        place = f"line {error.line}, column {error.column}: " if error.line else ""
        code = _CODES.get(error.code, Code.REQUEST_MALFORMED)
        raise Refused.at(code, error.pointer, place + error.detail) from None
    entries = _read_entries(request)
    benchmarks = _read_benchmarks(request, entries)
    return Question(entries, request.repo, request.path, None if request.at is UNSET else request.at, benchmarks)


def _read_entries(request: VerifyRequest) -> tuple[Entry, ...]:
    if (request.entry is UNSET) == (request.yaml is UNSET):
        raise Refused.at(Code.REQUEST_MALFORMED, "", "Give exactly one of `entry` and `yaml`")
    if request.yaml is not UNSET:
        try:
            return read_entries(request.yaml.encode(), "yaml", max_values=MAX_QUESTION_VALUES)
        except InputError as error:
            raise _refusal_of_text(error, "/yaml") from None
    try:
        return (read_entry(request.entry),)  # type: ignore[arg-type]
    except FormatError as error:
        code = _CODES.get(error.code, Code.REQUEST_MALFORMED)
        # `describe` adds the same advice about quotes as for an entry in YAML.
        raise Refused.at(code, f"/entry{error.pointer}", strict_yaml.describe(error)) from None


def _read_benchmarks(request: VerifyRequest, entries: tuple[Entry, ...]) -> dict[tuple[str, str], Benchmark]:
    """Read the benchmark definition. The service believes the client that it is from the entries' commit, because only
    this client gets the answer."""
    if request.benchmark is UNSET:
        return {}
    try:
        benchmark = read_benchmark(request.benchmark.encode(), "benchmark", max_values=MAX_QUESTION_VALUES)
    except InputError as error:
        raise _refusal_of_text(error, "/benchmark") from None
    return {(entry.dataset.id, entry.dataset.revision or ""): benchmark for entry in entries}


_CODES = {
    Code.FILE_DUPLICATE_KEY: Code.REQUEST_DUPLICATE_MEMBER,
    Code.FILE_UNKNOWN_MEMBER: Code.REQUEST_UNKNOWN_MEMBER,
}


def _refusal_of_text(error: InputError, member: str) -> Refused:
    """Return the refusal of a member's text, with line and column in that text."""
    place = f"line {error.place.line}, column {error.place.column}: " if error.place.line else ""
    unknown = error.code is Code.FILE_UNKNOWN_MEMBER
    code = Code.REQUEST_UNKNOWN_MEMBER if unknown else Code.REQUEST_MALFORMED
    return Refused.at(code, member, place + error.detail)
