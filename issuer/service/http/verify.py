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
    Answer,
    Http,
    json_answer,
    ms_since,
    preflight,
    problem_response,
    read_json_body,
    readable,
    source_of,
)
from issuer.service.http.request_limits import Gate, Tarpit
from issuer.service.metrics.counts import Counts
from issuer.token.wire import VerifyRequest
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
        self._files = Followed(lambda: self._read_at, self._read, self._say)  # what is published changes without a file
        for issuer in self._files.value.unlimited:
            _log.warning("trust file doubted", issuer=issuer, detail="it names no `frameworks`, beside other issuers")

    def __call__(self, now: int) -> Trust:
        """Return the trust to judge by. A file that has become unreadable leaves the last good trust in force."""
        if abs(now - self._read_at) >= REREAD_S:  # also after a clock has been set back
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


# -- the body ----------------------------------------------------------------------------------------------------------


class Question(Struct, frozen=True):
    """What is to be judged. `at` is None where the question gives no time."""

    entries: tuple[Entry, ...]
    repo: str
    path: str
    at: int | None
    benchmarks: dict[tuple[str, str], Benchmark]


def read_question(raw: bytes) -> Question:
    """Read a body of at most 64 KiB. Raises Refused: 400 with the place in the body, and in the text within it."""
    try:
        _demand_few(raw)
        asked = convert(loads(raw, max_bytes=MAX_QUESTION_BYTES, max_depth=MAX_QUESTION_DEPTH), VerifyRequest)
    except FormatError as error:
        raise _refusal_of_body(error) from None
    entries = _read_entries(asked)
    benchmarks = _read_benchmarks(asked, entries)
    return Question(entries, asked.repo, asked.path, None if asked.at is UNSET else asked.at, benchmarks)


def _demand_few(raw: bytes) -> None:
    """Refuse more values than may be asked about, before any is read; `yaml` and `benchmark` are counted apart."""
    if count_values(raw, MAX_QUESTION_VALUES) > MAX_QUESTION_VALUES:
        raise Refused.at(Code.REQUEST_MALFORMED, "", f"more than {MAX_QUESTION_VALUES} values")


def _read_entries(asked: VerifyRequest) -> tuple[Entry, ...]:
    if (asked.entry is UNSET) == (asked.yaml is UNSET):
        raise Refused.at(Code.REQUEST_MALFORMED, "", "Give exactly one of `entry` and `yaml`")
    if asked.yaml is not UNSET:
        try:
            return read_entries(asked.yaml.encode(), "yaml", max_values=MAX_QUESTION_VALUES)
        except InputError as error:
            raise _refusal_of_text(error, "/yaml") from None
    try:
        return (read_entry(asked.entry),)  # type: ignore[arg-type]
    except FormatError as error:
        raise _refusal_of_entry(error) from None


def _read_benchmarks(asked: VerifyRequest, entries: tuple[Entry, ...]) -> dict[tuple[str, str], Benchmark]:
    """Believe that this is the `eval.yaml` of the entries' commit: the answer is only for the party that says so."""
    if asked.benchmark is UNSET:
        return {}
    try:
        benchmark = read_benchmark(asked.benchmark.encode(), "benchmark", max_values=MAX_QUESTION_VALUES)
    except InputError as error:
        raise _refusal_of_text(error, "/benchmark") from None
    return {(entry.dataset.id, entry.dataset.revision or ""): benchmark for entry in entries}


_CODES = {
    Code.FILE_DUPLICATE_KEY: Code.REQUEST_DUPLICATE_MEMBER,
    Code.FILE_UNKNOWN_MEMBER: Code.REQUEST_UNKNOWN_MEMBER,
}


def _refusal_of_body(error: FormatError) -> Refused:
    place = f"line {error.line}, column {error.column}: " if error.line else ""
    return Refused.at(_CODES.get(error.code, Code.REQUEST_MALFORMED), error.pointer, place + error.detail)


def _refusal_of_entry(error: FormatError) -> Refused:
    """Refuse for a fault in an entry that is JSON: with the same advice about quotes as for one in YAML."""
    return Refused.at(
        _CODES.get(error.code, Code.REQUEST_MALFORMED), f"/entry{error.pointer}", strict_yaml.describe(error)
    )


def _refusal_of_text(error: InputError, member: str) -> Refused:
    """Refuse for a fault in the text of a member, by its line and column there."""
    place = f"line {error.place.line}, column {error.place.column}: " if error.place.line else ""
    unknown = error.code is Code.FILE_UNKNOWN_MEMBER
    code = Code.REQUEST_UNKNOWN_MEMBER if unknown else Code.REQUEST_MALFORMED
    return Refused.at(code, member, place + error.detail)
