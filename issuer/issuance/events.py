"""What the audit records of a decision: what was read on the way to it, and how it ended. Pure."""

from __future__ import annotations

from typing import TypedDict

from msgspec import UNSET
from msgspec.structs import replace

from issuer.audit_events import CallerRead, Decision, FrameworkRead, MetricRead, Named, ResultRead, Verdict
from issuer.identity.caller import Caller, ClaimNames
from issuer.issuance.body import Request
from issuer.issuance.steps import Forged, Issued, Judged, Refusal, Registered, Stranger
from issuer.policy.registration import Registration
from issuer.results.claims import Metric
from issuer.results.entry import Submission
from issuer.results.secret import secret_in
from issuer.wire import Denied

# A name in a request is any text, and may be a credential that was put there by mistake.
MAX_NAME_CHARS = 512
WITHHELD = "(withheld)"


class Names(TypedDict):
    """Who was judged, and by which policy (its digest)."""

    integration: str
    identity: str
    policy: str


def names_of(registration: Registration) -> Names:
    """Name who is judged, for every event and answer to a registered caller."""
    return {
        "integration": registration.policy.integration,
        "identity": registration.identity.id,
        "policy": registration.digest,
    }


def refused_event(refusal: Refusal) -> Decision:
    """Record a refusal: what was read, the code, and, where a policy refused, the codes of all failed checks."""
    event, error = _decision(refusal.of, refusal.request, "refused"), refusal.error
    if isinstance(error, Forged):
        return replace(event, code=str(error.code), forged=error.what)
    if isinstance(error, Denied):
        failed = tuple(dict.fromkeys(check.code for check in error.checks if not check.passed))
        return replace(event, code=str(error.code), failed=failed)
    return replace(event, code=str(error.code))


def granted_event(judged: Judged) -> Decision:
    """Record a grant that was only explained."""
    return _decision(judged.registered, judged.request, "granted")


def issued_event(judged: Judged, issued: Issued) -> Decision:
    """Record an issuance."""
    first, today = issued.tokens[0], judged.registered.registration.digest
    return replace(
        _decision(judged.registered, judged.request, "repeated" if issued.repeat else "issued"),
        kid=first.kid,
        jti=tuple(token.jti for token in issued.tokens),
        content_digest=tuple(token.content_digest for token in issued.tokens),
        template_policy=UNSET if first.policy == today else first.policy,
    )


def _decision(of: Registered | Stranger, request: Request | None, verdict: Verdict) -> Decision:
    """Record what was read on the way to a decision."""
    arrival, caller = of.arrival, of.caller
    if isinstance(of, Stranger):
        names = ClaimNames.of(caller.provider.rules)
        return Decision(arrival.at, arrival.id, arrival.endpoint, _caller_read(caller, names), verdict)
    registration = of.registration
    return Decision(
        arrival.at,
        arrival.id,
        arrival.endpoint,
        _caller_read(caller, registration.claim_names),
        verdict,
        **names_of(registration),
        named=UNSET if request is None else Named(_name(request.integration), _name(request.audience)),
        results=UNSET if request is None else tuple(_result_read(registration, item) for item in request.submissions),
    )


def _name(name: str) -> str:
    """Return a name as the request gives it, unless it may be a credential, or is too long to be a name."""
    return name if len(name) <= MAX_NAME_CHARS and not secret_in(name) else WITHHELD


def _caller_read(caller: Caller, names: ClaimNames) -> CallerRead:
    return CallerRead(
        provider=caller.provider.id,
        issuer=caller.provider.issuer,
        claims=caller.short_claims(names.audited),
        absent=tuple(name for name in names.read if name not in caller.claims),
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
