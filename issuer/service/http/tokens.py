"""The endpoints `POST /tokens`, `/tokens/batch` and `/tokens/explain`, which run the steps of `issuer.issuance`.

Between `identify` and `judge` the endpoint reads the body, but only of a registered caller whose standing does not
refuse it. It reads a bounded number of bodies at once. `exchange.py` has a fourth endpoint, which runs the same steps.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from os import urandom
from typing import Any, NamedTuple

import structlog
from litestar import post
from litestar.openapi.spec import Operation
from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import Charged, IssuerError, Refused, Undecided
from issuer.formats.jose import base64url_encode
from issuer.issuance.events import names_of
from issuer.issuance.explain import explain, read_to_explain
from issuer.issuance.identify import check_standing, identify
from issuer.issuance.issue import issue
from issuer.issuance.judge import read_and_judge
from issuer.issuance.ports import Authority
from issuer.issuance.steps import Arrival, Forged, Issued, Judged, Limited, Payer, Refusal, Registered
from issuer.limits.rate import RateState
from issuer.service.http import openapi
from issuer.service.http.bounds import (
    MAX_BATCH_BODIES,
    MAX_BATCHES,
    MAX_BODIES,
    MAX_INTEGRATION_BATCH_BODIES,
    MAX_INTEGRATION_BODIES,
    MAX_REQUESTS,
    SMALL_BODY_BYTES,
)
from issuer.service.http.messages import (
    Answer,
    Http,
    bearer_of,
    challenge,
    check_framing,
    json_answer,
    ms_since,
    problem_response,
    read_whole,
    source_of,
)
from issuer.service.http.public_documents import RESOURCE, Service, well_known
from issuer.service.http.request_limits import Tarpit
from issuer.service.metrics.counts import NOBODY, OK, outcome_of
from issuer.token.wire import MAX_BYTES, Endpoint, IssuedTokens, Kind

# -- requests in flight ------------------------------------------------------------------------------------------------

MAX_IN_FLIGHT: dict[Kind, int] = {"single": MAX_REQUESTS, "batch": MAX_BATCHES}
MAX_BODIES_IN_FLIGHT: dict[Kind, int] = {"single": MAX_BODIES, "batch": MAX_BATCH_BODIES}
MAX_INTEGRATION_IN_FLIGHT: dict[Kind, int] = {"single": MAX_INTEGRATION_BODIES, "batch": MAX_INTEGRATION_BATCH_BODIES}


class InFlight:
    """A context manager that counts requests in flight. Beyond the limit it raises Undecided (`service.busy`)."""

    def __init__(self, kind: Kind) -> None:
        self._limit = MAX_IN_FLIGHT[kind]
        self._count = 0
        self._max_bodies = MAX_BODIES_IN_FLIGHT[kind]
        self._max_of_integration = MAX_INTEGRATION_IN_FLIGHT[kind]
        self._bodies: Counter[Payer | str] = Counter()

    def __enter__(self) -> None:
        if self._count >= self._limit:
            raise Undecided(Code.SERVICE_BUSY)
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1

    def refusal(self, payer: Payer) -> Refused | None:
        """Return the refusal of one more body if the payer's share is used up (`rate.identity`), or its integration's
        share (`rate.integration`); else None."""
        if self._bodies[payer] >= self._max_bodies:
            return Refused(Code.RATE_IDENTITY, retry_after_s=1)
        is_used_up = self._bodies[payer.integration] >= self._max_of_integration
        return Refused(Code.RATE_INTEGRATION, retry_after_s=1) if is_used_up else None

    @contextmanager
    def body_of(self, payer: Payer) -> Iterator[None]:
        """Count one more body of a payer and of its integration while it is read."""
        self._bodies[payer] += 1
        self._bodies[payer.integration] += 1
        try:
            yield
        finally:
            self._bodies[payer] -= 1
            self._bodies[payer.integration] -= 1


# -- rate limit --------------------------------------------------------------------------------------------------------

# The caller's rates as header fields (draft-ietf-httpapi-ratelimit-headers-11): the quota of each, and its remainder.
#
# A rate admits `burst` requests at once and recovers at its steady pace. So the quota is the burst, and the window is
# the time in which all of it recovers. The remainder comes from the store's answer to this request. Both fields are
# absent if the store was not asked for the rates: a repeat spends none.


def rate_limit(rates: Iterable[RateState]) -> dict[str, str]:
    """Return both header fields; an empty dict without rates."""
    states = tuple(rates)
    if not states:
        return {}
    policies = [
        f'"{state.name}";q={state.rate.burst};w={max(1, _seconds(state.rate.tolerance_us))}' for state in states
    ]
    left = [f'"{state.name}";r={remaining(state)};t={_seconds(state.ahead_us)}' for state in states]
    return {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(left)}


def remaining(state: RateState) -> int:
    """Return how many requests `limits.spend` would admit at once."""
    return max(0, (state.rate.tolerance_us - max(0, state.ahead_us)) // state.rate.interval_us)


def _seconds(microseconds: int) -> int:
    return max(0, -(-microseconds // 1_000_000))


# -- tokens ------------------------------------------------------------------------------------------------------------

_log = structlog.get_logger("issuer")

# The members of the log stream's event about an answer, without the names of the caller.
Outcome = dict[str, Any]


# Returns the body of a request. Raises Refused.
Read = Callable[[], Awaitable[bytes]]


class Received(NamedTuple):
    """A request whose head was checked: its credential, and the function that reads its body."""

    credential: str
    read: Read


class TokenEndpoint(Struct, frozen=True):
    """One endpoint for tokens. Endpoints whose requests cost the same share `in_flight`."""

    path: Endpoint
    kind: Kind
    in_flight: InFlight
    explains: bool = False

    async def receive(self, http: Http, source: str) -> Received:  # noqa: ARG002 (another endpoint needs the source)
        """Check the head of a request from a source, and return its credential. Raises Refused."""
        check_framing(http, MAX_BYTES[self.kind])
        return Received(bearer_of(http), partial(read_whole, http, MAX_BYTES[self.kind]))

    def answer(self, issued: Issued, arrival: Arrival) -> Answer:
        """Return the answer with new or repeated tokens."""
        value = IssuedTokens(issued.tokens) if self.kind == "batch" else issued.tokens[0]
        return json_answer(value, arrival.id, 200 if issued.repeat else 201, **headers_for(issued))

    def problem(self, error: IssuerError, url: str, request_id: str, **headers: str) -> Answer:
        """Return the answer for an error."""
        if error.code.meaning.status == 401:
            about = well_known(url, RESOURCE, self.path)
            headers["WWW-Authenticate"] = challenge(error.code, resource_metadata=about)
        return problem_response(error, url, request_id, **headers)

    def turned_away(self, tarpit: Tarpit, request_id: str) -> Answer:
        """Return the delayed answer to a source over its rate of refused requests."""
        return tarpit.answer(request_id)


def token_routes(service: Service, singles: InFlight) -> list[Any]:
    """Return the handlers of the three endpoints. `singles` counts requests for one result."""
    return [
        token_route(service, TokenEndpoint("/tokens", "single", singles), openapi.TokenOperation, 201),
        token_route(service, TokenEndpoint("/tokens/batch", "batch", InFlight("batch")), openapi.BatchOperation, 201),
        token_route(service, TokenEndpoint("/tokens/explain", "single", singles, True), openapi.ExplainOperation, 200),
    ]


def token_route(service: Service, endpoint: TokenEndpoint, operation: type[Operation], status: int) -> Any:
    """Return the handler of one endpoint."""

    @post(endpoint.path, operation_class=operation, status_code=status)
    async def tokens(request: Http) -> Answer:
        return await _answer(service, endpoint, request)

    return tokens


async def _answer(service: Service, endpoint: TokenEndpoint, http: Http) -> Answer:
    """Answer one request, count it, and write one event about it to the log stream."""
    began, client = time.perf_counter(), http.scope["client"]
    arrival = Arrival(str(uuid.uuid4()), endpoint.path, source_of(client[0] if client else ""), int(time.time()))
    authority = service.live.active.authority
    try:
        received = await endpoint.receive(http, arrival.source)
        with endpoint.in_flight:
            registered = await identify(authority, arrival, received.credential)
            answered, outcome = await _answer_registered(service, authority, registered, endpoint, received.read)
    except (Refused, Undecided) as error:
        # Refusals of unregistered callers are charged to the source, by a clock in microseconds: with a clock in whole
        # seconds, each new second would admit ten more.
        if isinstance(error, (Refused, Charged)) and not service.sources.refuse(arrival.source, time.time_ns() // 1000):
            service.counts.answered(endpoint.path, "no", Code.RATE_SOURCE)
            return endpoint.turned_away(service.tarpit, arrival.id)
        answered, outcome = _problem(service, endpoint, arrival, error)
    integration = outcome.get("integration", NOBODY)
    service.counts.answered(endpoint.path, outcome["outcome"], outcome.get("code", OK), integration)
    service.counts.durations[endpoint.path].observe(int((time.perf_counter() - began) * 1e9))
    _log.info("decision", request_id=arrival.id, endpoint=arrival.endpoint, **outcome, ms=ms_since(began))
    return answered


async def _answer_registered(
    service: Service, authority: Authority, registered: Registered, endpoint: TokenEndpoint, read: Read
) -> tuple[Answer, Outcome]:
    """Answer a registered caller. `issuer.issuance` charges refusals to the caller, and its source pays nothing."""
    try:
        judged = await _judge(authority, registered, endpoint, read)
        if endpoint.explains:
            answered, outcome = await _explain(authority, registered, judged)
        else:
            issued = await issue(authority, judged)
            answered, outcome = endpoint.answer(issued, registered.arrival), _summary(issued)
    except (Refused, Undecided) as error:
        rates = error.rates if isinstance(error, Limited) else ()
        answered, outcome = _problem(service, endpoint, registered.arrival, error, rates)
        if isinstance(error, Forged):
            _log.error("the store holds a forged template", request_id=registered.arrival.id, what=error.what)
    return answered, {**names_of(registered.registration), **outcome}


async def _judge(authority: Authority, registered: Registered, endpoint: TokenEndpoint, read: Read) -> Judged | Refusal:
    """Read the body and judge it, unless the caller's standing refuses first. An unreadable body is a Refusal, too."""
    if (refusal := check_standing(authority, registered)) is not None:
        return refusal
    if (busy := endpoint.in_flight.refusal(registered.payer)) is not None:
        return Refusal(registered, busy, settled=True)
    try:
        with endpoint.in_flight.body_of(registered.payer):
            raw = await read()
            if endpoint.explains:
                steps = read_to_explain(authority, registered, raw)
            else:
                steps = read_and_judge(authority, registered, endpoint.kind, raw, base64url_encode(urandom(16)))
            if len(raw) > SMALL_BODY_BYTES:
                return await authority.turns.take(registered.payer, steps)
    except Refused as error:
        return Refusal(registered, error)
    return await authority.turns.take(registered.payer, steps)


async def _explain(authority: Authority, registered: Registered, judged: Judged | Refusal) -> tuple[Answer, Outcome]:
    explained = await explain(authority, registered, judged)
    outcome: Outcome = {"outcome": "explained", "verdict": explained.verdict}
    if explained.code is not UNSET:
        outcome["code"] = explained.code
    return json_answer(explained, registered.arrival.id, 200), outcome


def headers_for(issued: Issued) -> dict[str, str]:
    """Return the headers that say whether the tokens are a repeat, or what is left of the caller's rates."""
    return {"Idempotent-Replay": "true"} if issued.repeat else rate_limit(issued.rates)


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
    service: Service,
    endpoint: TokenEndpoint,
    arrival: Arrival,
    error: Refused | Undecided,
    rates: tuple[RateState, ...] = (),
) -> tuple[Answer, Outcome]:
    outcome = {"outcome": outcome_of(error), "code": str(error.code)}
    return endpoint.problem(error, service.issuer_url, arrival.id, **rate_limit(rates)), outcome
