"""The audit's events about decisions: the values that each decision read, and its outcome. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import TypedDict

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from issuer.audit.events import (
    COUNTED,
    MAX_EVENT_BYTES,
    AbuseSignal,
    CallerRead,
    Decision,
    FrameworkRead,
    LoggedNotSigned,
    MetricRead,
    Named,
    RequestCounts,
    ResultRead,
    Verdict,
)
from issuer.formats import jcs
from issuer.identity.token import Caller, ClaimNames
from issuer.issuance.steps import (
    Forged,
    Issued,
    Judged,
    Quarantined,
    Refusal,
    Registered,
    Request,
    Revoked,
    Signals,
    Stranger,
)
from issuer.limits.abuse import Tally, Then
from issuer.policy.impersonation import first_name
from issuer.policy.registration import Registration
from issuer.results.claims import Metric
from issuer.results.entry import Submission
from issuer.results.secret import secret_in
from issuer.token.verify_token import Template, Unsigned
from issuer.token.wire import Denied, LogEntry

# A name in a request can be any text, and so a credential by mistake.
MAX_NAME_CHARS = 512
WITHHELD = "(withheld)"


class CallerNames(TypedDict):
    """The identity of a registered caller, and the digest of its policy."""

    integration: str
    identity: str
    policy: str


def names_of(registration: Registration) -> CallerNames:
    """Return the names for every event and answer about a registered caller."""
    return {
        "integration": registration.policy.integration,
        "identity": registration.identity.id,
        "policy": registration.digest,
    }


def refused_event(refusal: Refusal) -> Decision:
    """Return the event of a refusal: the values read, the code and, if the policy refused, the codes of all failed
    checks."""
    error = refusal.error
    request = None if error.code in COUNTED else refusal.request
    event = replace(_decision(refusal.of, request, "refused"), code=str(error.code))
    if isinstance(error, Forged):
        event = replace(event, forged=error.what)
    if isinstance(error, Revoked) and error.jtis:
        event = replace(event, jti=error.jtis)
    if isinstance(error, Quarantined) and error.tally.items:
        event = replace(event, counted=error.tally)
    if isinstance(error, Denied):
        event = replace(event, failed=tuple(dict.fromkeys(check.code for check in error.checks if not check.passed)))
    return _bounded(event, request)


def granted_event(judged: Judged, signals: Signals) -> Decision:
    """Return the event of a grant that was only explained."""
    event = replace(_decision(judged.registered, judged.request, "granted"), counted=_counted(signals))
    return _bounded(event, judged.request)


def issued_event(judged: Judged, issued: Issued) -> Decision:
    """Return the event of an issuance."""
    first, today = issued.tokens[0], judged.registered.registration.digest
    event = replace(
        _decision(judged.registered, judged.request, "repeated" if issued.repeat else "issued"),
        kid=first.kid,
        jti=tuple(token.jti for token in issued.tokens),
        content_digest=tuple(token.content_digest for token in issued.tokens),
        claims_digest=tuple(token.claims_digest for token in issued.tokens),
        template_policy=UNSET if first.policy == today else first.policy,
        counted=_counted(issued.signals),
    )
    return _bounded(event, judged.request)


def unsigned_event(
    judged: Judged, template: Template, unsigned: tuple[Unsigned, ...], entries: tuple[LogEntry, ...]
) -> LoggedNotSigned:
    """Return the event of leaves that have no tokens yet, because the key did not sign."""
    arrival, registration = judged.registered.arrival, judged.registered.registration
    return LoggedNotSigned(
        time=arrival.at,
        request_id=arrival.id,
        integration=registration.policy.integration,
        identity=registration.identity.id,
        kid=template.kid,
        jti=tuple(token.jti for token in unsigned),
        leaves=tuple(entry.index for entry in entries),
    )


def probing_event(registered: Registered, then: Then) -> AbuseSignal:
    """Return the event of an identity whose refusals have used up half of their rate, or all (a quarantine)."""
    policy, arrival = registered.registration.policy, registered.arrival
    burst = policy.limits.refusals.burst
    return AbuseSignal(
        time=arrival.at,
        request_id=arrival.id,
        signal="probing",
        then=then,
        integration=policy.integration,
        identity=registered.registration.identity.id,
        rule="limits.refusals",
        count=burst + 1 if then == "quarantine" else -(-burst // 2),
        limit=burst,
    )


def recycled_event(stranger: Stranger, owner: Registration, count: int) -> AbuseSignal:
    """Return the event of an unregistered caller with a registered identity's name. The caller came `count` times."""
    arrival, caller = stranger.arrival, stranger.caller
    read = _caller_read(caller, ClaimNames.of(caller.provider.rules))
    event = AbuseSignal(
        time=arrival.at,
        request_id=arrival.id,
        signal="recycled",
        then="observe",
        integration=owner.policy.integration,
        identity=owner.identity.id,
        rule=f"identities.{owner.identity.id}.names.{first_name(owner)}",
        count=count,
        limit=0,
        caller=read,
    )
    if len(_write(event)) + _LINK_BYTES <= MAX_EVENT_BYTES:
        return event
    own = caller.short_claims((*caller.provider.rules.pins, *caller.provider.rules.names))
    return replace(event, caller=replace(read, claims=own, absent=()))


def signal_events(registered: Registered, signals: Signals, *, repeat: bool) -> Iterator[AbuseSignal]:
    """Yield one event for each crossed rule, with all results of the request that crossed it."""
    policy, arrival = registered.registration.policy, registered.arrival
    by_rule = sorted(signals.raised, key=attrgetter("rule"))
    for _, group in groupby(by_rule, key=attrgetter("rule")):
        same_rule = list(group)
        worst = max(same_rule, key=attrgetter("count"))
        yield AbuseSignal(
            time=arrival.at,
            request_id=arrival.id,
            signal=worst.name,
            then=worst.then,
            integration=policy.integration,
            identity=registered.registration.identity.id,
            rule=worst.rule,
            count=worst.count,
            limit=worst.limit,
            results=tuple([signal.item for signal in same_rule if signal.item is not None]),
            repeat=repeat,
        )


def _counted(signals: Signals) -> Tally | UnsetType:
    return signals.tally if signals.tally.items else UNSET


def _decision(of: Registered | Stranger, request: Request | None, verdict: Verdict) -> Decision:
    """Return the event of a decision, with the values that it has read."""
    arrival, caller = of.arrival, of.caller
    place = (arrival.at, arrival.id, arrival.endpoint)
    if isinstance(of, Stranger):
        return Decision(*place, _caller_read(caller, ClaimNames.of(caller.provider.rules)), verdict)
    registration = of.registration
    return Decision(
        *place,
        _caller_read(caller, registration.claim_names),
        verdict,
        **names_of(registration),
        named=UNSET if request is None else Named(_name(request.integration), _name(request.audience)),
        bucket=UNSET if of.bucket is None else of.bucket,
        results=UNSET
        if request is None or _is_large(request)
        else tuple(_result_read(registration, item) for item in request.submissions),
    )


# -- the size of an event ---------------------------------------------------------------------------------------------

# The bytes that the audit adds to an event's line: its place in the worker's chain.
_LINK_BYTES = 256
_LEAST_RESULT_BYTES, _LEAST_METRIC_BYTES = 256, 18
# If the event is too large, longer claims of a caller are left out first.
_SHORT_CLAIM_CHARS = 64
_write = msgspec.json.Encoder().encode


def _is_large(request: Request) -> bool:
    """Estimate, without writing them, whether the results of a request are too large for an event."""
    results = request.submissions
    metrics = sum(len(item.claims.metrics) for item in results)
    return len(results) * _LEAST_RESULT_BYTES + metrics * _LEAST_METRIC_BYTES > MAX_EVENT_BYTES


def _bounded(event: Decision, request: Request | None) -> Decision:
    """Return the event without the parts that make it larger than MAX_EVENT_BYTES: a caller must not choose its size.

    The least informative parts are dropped first. These are the results (counts and a digest remain), the digests of
    claims that tokens also contain, long claims of the caller, all its claims, and the counts.
    """
    if request is not None and event.results is UNSET:
        event = _without_results(event, request)
    shorteners: tuple[Callable[[Decision], Decision], ...] = (
        lambda event: event if request is None else _without_results(event, request),
        lambda event: replace(event, claims_digest=UNSET),
        _with_short_claims,
        _without_claims,
        lambda event: replace(event, counted=UNSET),
    )
    for shorten in shorteners:
        if len(_write(event)) + _LINK_BYTES <= MAX_EVENT_BYTES:
            return event
        event = shorten(event)
    return event


def _without_results(event: Decision, request: Request) -> Decision:
    items = request.submissions
    subjects = {
        (claims.model_repo, claims.model_revision, claims.benchmark_repo, claims.benchmark_revision, claims.task_id)
        for claims in (item.claims for item in items)
    }
    return replace(
        event,
        results=UNSET,
        counts=RequestCounts(len(items), sum(len(item.claims.metrics) for item in items), len(subjects)),
        results_digest=jcs.digest([[item.claims_digest, item.content_digest] for item in items]),
    )


def _with_short_claims(event: Decision) -> Decision:
    claims = {name: value for name, value in event.caller.claims.items() if len(str(value)) <= _SHORT_CLAIM_CHARS}
    return replace(event, caller=replace(event.caller, claims=claims))


def _without_claims(event: Decision) -> Decision:
    named = UNSET if event.named is UNSET else Named(WITHHELD, WITHHELD)
    return replace(event, caller=replace(event.caller, claims={}, absent=()), named=named)


# -- the values read --------------------------------------------------------------------------------------------------


def _name(name: str) -> str:
    """Return a name from the request, or WITHHELD if it may be a credential or is too long."""
    return name if len(name) <= MAX_NAME_CHARS and not secret_in(name) else WITHHELD


def _caller_read(caller: Caller, names: ClaimNames) -> CallerRead:
    return CallerRead(
        provider=caller.provider.id,
        issuer=caller.provider.issuer,
        claims=caller.short_claims(names.audited),
        absent=tuple([name for name in names.read if name not in caller.claims]),
    )


def _result_read(registration: Registration, submission: Submission) -> ResultRead:
    claims = submission.claims
    demanded = registration.policy.grants.command == "required"
    return ResultRead(
        model_repo=claims.model_repo,
        model_revision=claims.model_revision,
        benchmark_repo=claims.benchmark_repo,
        benchmark_revision=claims.benchmark_revision,
        task_id=claims.task_id,
        metrics=tuple(_metric_read(registration, metric) for metric in claims.metrics),
        framework=FrameworkRead(claims.framework.name, claims.framework.version),
        has_command=claims.framework.command is not UNSET if demanded else UNSET,
    )


def _metric_read(registration: Registration, metric: Metric) -> MetricRead:
    reads_value = registration.grants.metrics.reads_value(metric.metric_id)
    return MetricRead(metric.metric_id, metric.slice, metric.value if reads_value else UNSET)
