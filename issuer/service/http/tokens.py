"""`POST /tokens`, `/tokens/batch` and `/tokens/explain`: read raw bytes, walk the line (`issuer.issuance`), render.

Between `identify` and `judge` the edge reads the body: only that of a registered caller whom its standing does not
refuse, and a bounded number at once.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import urandom
from types import TracebackType
from typing import Any

import structlog
from litestar import post
from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import Charged, Refused, Undecided
from issuer.formats.jose import base64url_encode
from issuer.issuance.events import names_of
from issuer.issuance.explain import explain, read_to_explain
from issuer.issuance.identify import check_standing, identify
from issuer.issuance.issue import issue
from issuer.issuance.judge import read_and_judge
from issuer.issuance.ports import Authority
from issuer.issuance.steps import Arrival, Forged, Issued, Judged, Limited, Payer, Refusal, Registered, Steps
from issuer.limits.rate import Rate, RateState
from issuer.service.http import openapi
from issuer.service.http.bounds import (
    MAX_BATCH_BODIES,
    MAX_BATCHES,
    MAX_BODIES,
    MAX_REQUESTS,
    SMALL_BODY_BYTES,
)
from issuer.service.http.messages import (
    Answer,
    Http,
    bearer_of,
    check_framing,
    json_answer,
    ms_since,
    problem_response,
    read_whole,
    source_of,
)
from issuer.service.http.public_documents import Service
from issuer.service.metrics.counts import NOBODY, OK, Counts, outcome_of
from issuer.token.wire import MAX_BYTES, Endpoint, IssuedTokens, Kind

# -- requests under way ------------------------------------------------------------------------------------------------

MAX_IN_FLIGHT: dict[Kind, int] = {"single": MAX_REQUESTS, "batch": MAX_BATCHES}
MAX_BODIES_IN_FLIGHT: dict[Kind, int] = {"single": MAX_BODIES, "batch": MAX_BATCH_BODIES}


class InFlight:
    """`with in_flight:` around one request. Raises Undecided (`service.busy`) beyond the limit: there is no queue."""

    def __init__(self, limit: int, max_bodies: int) -> None:
        self._limit = limit
        self._count = 0
        self._max_bodies = max_bodies
        self._bodies: Counter[Payer] = Counter()

    def __enter__(self) -> None:
        if self._count >= self._limit:
            raise Undecided(Code.SERVICE_BUSY)
        self._count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._count -= 1

    def refusal(self, payer: Payer) -> Refused | None:
        """Return the refusal (`rate.identity`) of one more body of a payer whose share is in use; else None."""
        return Refused(Code.RATE_IDENTITY, retry_after_s=1) if self._bodies[payer] >= self._max_bodies else None

    @contextmanager
    def body_of(self, payer: Payer) -> Iterator[None]:
        """Count one more body of a payer while it is read."""
        self._bodies[payer] += 1
        try:
            yield
        finally:
            self._bodies[payer] -= 1


# -- rate limit --------------------------------------------------------------------------------------------------------

# The rates of a caller as header fields (draft-ietf-httpapi-ratelimit-headers-11): what each allows, and what is left.
#
# A rate lets through `burst` requests at once, and gives them back at its steady pace. So its quota is the burst, and
# its window the time in which all of that comes back; what is left comes from the store's answer to this very request,
# and is absent where the store was not asked for it: a repeat spends no rate.

POLICY, LEFT = NAMES = "RateLimit-Policy", "RateLimit"


def rate_limit(rates: Iterable[RateState]) -> dict[str, str]:
    """Return both header fields, or none where no rate is known."""
    states = tuple(rates)
    if not states:
        return {}
    policies = [f'"{state.name}";q={state.rate.burst};w={_window_s(state.rate)}' for state in states]
    left = [f'"{state.name}";r={remaining(state)};t={_seconds(state.ahead_us)}' for state in states]
    return {POLICY: ", ".join(policies), LEFT: ", ".join(left)}


def remaining(state: RateState) -> int:
    """Return how many requests fit at once, as `limits.spend` judges them."""
    return max(0, (state.rate.tolerance_us - max(0, state.ahead_us)) // state.rate.interval_us)


def _window_s(rate: Rate) -> int:
    return max(1, _seconds(rate.tolerance_us))


def _seconds(microseconds: int) -> int:
    return max(0, -(-microseconds // 1_000_000))


# -- tokens ------------------------------------------------------------------------------------------------------------

_log = structlog.get_logger("issuer")

# What the log stream says about an answer, beside who was judged.
Outcome = dict[str, Any]


class TokenEndpoint(Struct, frozen=True):
    """One way onto the line. `in_flight` is shared by endpoints whose requests cost the same."""

    path: Endpoint
    kind: Kind
    in_flight: InFlight
    explains: bool = False


def token_routes(service: Service) -> list[Any]:
    """Return the handlers that walk the line."""
    singles, batches = (InFlight(MAX_IN_FLIGHT[kind], MAX_BODIES_IN_FLIGHT[kind]) for kind in ("single", "batch"))
    single = TokenEndpoint("/tokens", "single", singles)
    batch = TokenEndpoint("/tokens/batch", "batch", batches)
    explained = TokenEndpoint("/tokens/explain", "single", singles, explains=True)

    @post(single.path, operation_class=openapi.TokenOperation, status_code=201, name="tokens")
    async def tokens(request: Http) -> Answer:
        return await _answer(service, single, request)

    @post(batch.path, operation_class=openapi.BatchOperation, status_code=201, name="tokens_batch")
    async def tokens_batch(request: Http) -> Answer:
        return await _answer(service, batch, request)

    @post(explained.path, operation_class=openapi.ExplainOperation, status_code=200, name="tokens_explain")
    async def tokens_explain(request: Http) -> Answer:
        return await _answer(service, explained, request)

    return [tokens, tokens_batch, tokens_explain]


async def _answer(service: Service, endpoint: TokenEndpoint, http: Http) -> Answer:
    """Answer one request, and write its one event to the log stream."""
    began, client = time.perf_counter(), http.scope["client"]
    arrival = Arrival(str(uuid.uuid4()), endpoint.path, source_of(client[0] if client else ""), int(time.time()))
    authority = service.live.active.authority
    try:
        check_framing(http, MAX_BYTES[endpoint.kind])
        credential = bearer_of(http)
        with endpoint.in_flight:
            registered = await identify(authority, arrival, credential)
            answered, outcome = await _answer_registered(service, authority, registered, endpoint, http)
    except (Refused, Undecided) as error:
        # A source pays for its strangers. Whole seconds would let ten more through in each.
        if isinstance(error, (Refused, Charged)) and not service.sources.refuse(arrival.source, time.time_ns() // 1000):
            service.counts.answered(endpoint.path, "no", Code.RATE_SOURCE)
            return service.tarpit.answer(arrival.id)
        answered, outcome = _problem(service, arrival, error)
    _count(service.counts, endpoint.path, outcome, began)
    _log.info("decision", request_id=arrival.id, endpoint=arrival.endpoint, **outcome, ms=ms_since(began))
    return answered


def _count(counts: Counts, path: Endpoint, outcome: Outcome, began: float) -> None:
    counts.answered(path, outcome["outcome"], outcome.get("code", OK), outcome.get("integration", NOBODY))
    counts.durations[path].observe(int((time.perf_counter() - began) * 1e9))


async def _answer_registered(
    service: Service, authority: Authority, registered: Registered, endpoint: TokenEndpoint, http: Http
) -> tuple[Answer, Outcome]:
    """Answer a registered caller: its refusals are charged to it by the line, and not to its source."""
    try:
        if endpoint.explains:
            judged = await _judge(authority, registered, endpoint, http)
            answered, outcome = await _explain(authority, registered, judged)
        else:
            judged = await _judge(authority, registered, endpoint, http)
            issued = await issue(authority, judged)
            answered, outcome = _render(issued, registered.arrival.id, endpoint.kind), _summary(issued)
    except (Refused, Undecided) as error:
        rates = error.rates if isinstance(error, Limited) else ()
        answered, outcome = _problem(service, registered.arrival, error, rates)
        if isinstance(error, Forged):
            _log.error("the store holds a forged template", request_id=registered.arrival.id, what=error.what)
    return answered, {**names_of(registered.registration), **outcome}


async def _judge(authority: Authority, registered: Registered, endpoint: TokenEndpoint, http: Http) -> Judged | Refusal:
    """Read the body and judge it, unless the caller is refused without it; an unreadable body is a refusal, too."""
    if (refusal := check_standing(authority, registered)) is not None:
        return refusal
    if (busy := endpoint.in_flight.refusal(registered.payer)) is not None:
        return Refusal(registered, busy, settled=True)
    try:
        with endpoint.in_flight.body_of(registered.payer):
            raw = await read_whole(http, MAX_BYTES[endpoint.kind])
            judging = _judging(authority, registered, endpoint, raw)
            if len(raw) > SMALL_BODY_BYTES:
                return await authority.turns.take(registered.payer, judging)
    except Refused as error:
        return Refusal(registered, error)
    return await authority.turns.take(registered.payer, judging)


def _judging(
    authority: Authority, registered: Registered, endpoint: TokenEndpoint, raw: bytes
) -> Steps[Judged | Refusal]:
    if endpoint.explains:
        return read_to_explain(authority, registered, raw)
    return read_and_judge(authority, registered, endpoint.kind, raw, base64url_encode(urandom(16)))


async def _explain(authority: Authority, registered: Registered, judged: Judged | Refusal) -> tuple[Answer, Outcome]:
    explained = await explain(authority, registered, judged)
    outcome: Outcome = {"outcome": "explained", "verdict": explained.verdict}
    if explained.code is not UNSET:
        outcome["code"] = explained.code
    return json_answer(explained, registered.arrival.id, 200), outcome


def _render(issued: Issued, request_id: str, kind: Kind) -> Answer:
    value = IssuedTokens(issued.tokens) if kind == "batch" else issued.tokens[0]
    if issued.repeat:
        return json_answer(value, request_id, 200, **{"Idempotent-Replay": "true"})
    return json_answer(value, request_id, 201, **rate_limit(issued.rates))


def _summary(issued: Issued) -> Outcome:
    return {
        "outcome": "repeat" if issued.repeat else "issued",
        "kid": issued.tokens[0].kid,
        "policy": issued.tokens[0].policy,
        "jti": [token.jti for token in issued.tokens],
        "content": [token.content_digest for token in issued.tokens],
        **({"signals": sorted({signal.name for signal in issued.signals.raised})} if issued.signals.raised else {}),
    }


def _problem(
    service: Service, arrival: Arrival, error: Refused | Undecided, rates: tuple[RateState, ...] = ()
) -> tuple[Answer, Outcome]:
    outcome = {"outcome": outcome_of(error), "code": str(error.code)}
    return problem_response(error, service.issuer_url, arrival.id, **rate_limit(rates)), outcome
