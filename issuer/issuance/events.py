"""One request on its way down the line: what came in, what has been found out of it so far, and how the audit tells it.

Pure. The events are described in deploy/README.md: enough to judge a decision again, and never a token or a command.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

from msgspec import UNSET, Struct

from issuer.errors import Refused
from issuer.formats.strict_json import JSON
from issuer.identity.caller import Caller, ClaimNames
from issuer.issuance.body import Body
from issuer.policy.registration import Registration
from issuer.results.claims import Metric
from issuer.results.entry import Submission
from issuer.results.secret import secret_in
from issuer.wire import Denied, Endpoint

# What a request names itself is any text, and may be a credential that was put there by mistake.
MAX_NAME_CHARS = 512
WITHHELD = "(withheld)"


class Request(Struct, frozen=True):
    """A request as the edge read it. `bearer` is the credential, not yet parsed; `source` the address it came from.

    `read` reads a party's body whole, and raises Refused where it is late, too large or one too many at once. `charged`
    says that the source has been refused too often.
    """

    id: str
    endpoint: Endpoint
    bearer: str
    source: str
    read: Callable[[Registration], Awaitable[bytes]]
    charged: Callable[[], bool]


class Case:
    """A request, the time at which it is judged (Unix seconds), and what the line has found out of it so far."""

    def __init__(self, request: Request, judged_at: int) -> None:
        self.request = request
        self.judged_at = judged_at
        self.caller: Caller | None = None
        self.registration: Registration | None = None
        self.body: Body | None = None


# -- audit events -----------------------------------------------------------------------------------------------------


def refused_event(case: Case, caller: Caller, refusal: Refused) -> dict[str, Any]:
    """Tell a refusal: what was read, the code, and where a policy refused the codes of all checks that failed."""
    event = {**decision_event(case, caller), "verdict": "refused", "code": str(refusal.code)}
    if isinstance(refusal, Denied):
        event["failed"] = list(dict.fromkeys(check.code for check in refusal.checks if not check.passed))
    return event


def decision_event(case: Case, caller: Caller) -> dict[str, Any]:
    """Tell what was read on the way to a decision: enough to judge it again, and never a token or a command."""
    event: dict[str, Any] = {
        "event": "decision",
        "time": case.judged_at,
        "request_id": case.request.id,
        "endpoint": case.request.endpoint,
        "caller": _caller_read(caller, case.registration),
    }
    if case.registration is not None:
        event |= names_of(case.registration)
    if case.registration is not None and case.body is not None:
        named = {"integration": case.body.integration, "audience": case.body.audience}
        event["named"] = {name: _told(value) for name, value in named.items() if value}
        event["results"] = [_result_read(case.registration, submission) for submission in case.body.submissions]
    return event


def _told(name: str) -> str:
    """Tell a name as the request gives it; of what can be none, a token in the wrong place, only that it was there."""
    return name if len(name) <= MAX_NAME_CHARS and not secret_in(name) else WITHHELD


class Names(TypedDict):
    """Who was judged, and by what: the digest of a policy."""

    integration: str
    identity: str
    policy: str


def names_of(registration: Registration) -> Names:
    """Name who is judged, for every event and answer of a caller that is known."""
    return {
        "integration": registration.policy.integration,
        "identity": registration.identity.id,
        "policy": registration.digest,
    }


def _caller_read(caller: Caller, registration: Registration | None) -> dict[str, JSON]:
    """Return the claims that were read, and the names of those that were not there.

    One that is structured or long stands in neither: whoever judges again cannot tell.
    """
    names = registration.claim_names if registration is not None else ClaimNames.of(caller.provider.rules)
    return {
        "provider": caller.provider.id,
        "issuer": caller.provider.issuer,
        "claims": caller.shown(names.audited),
        "absent": [name for name in names.read if name not in caller.claims],
    }


def _result_read(registration: Registration, submission: Submission) -> dict[str, JSON]:
    """Return what the decision read of a result: a metric's value only where a rule reads it, never the command."""
    claims = submission.claims
    read: dict[str, JSON] = {
        "model_repo": claims.model_repo,
        "model_revision": claims.model_revision,
        "benchmark_repo": claims.benchmark_repo,
        "benchmark_revision": claims.benchmark_revision,
        "task_id": claims.task_id,
        "metrics": [_metric_read(registration, metric) for metric in claims.metrics],
        "framework": {"name": claims.framework.name, "version": claims.framework.version},
    }
    if registration.policy.grants.command == "required":
        read["has_command"] = claims.framework.command is not UNSET
    return read


def _metric_read(registration: Registration, metric: Metric) -> dict[str, JSON]:
    read: dict[str, JSON] = {"metric_id": metric.metric_id}
    if metric.slice is not UNSET:
        read["slice"] = metric.slice
    if registration.grants.metrics.reads_value(metric.metric_id):
        read["value"] = metric.value
    return read
