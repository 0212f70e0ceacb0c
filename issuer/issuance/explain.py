"""The explanation of a request: the same steps as issuance up to the judgement (contract section 5).

It signs nothing, claims no use and does not say whether a use is left. It spends rates and counts refusals like the
real request. Only a policy's decision is explained: without authentication, registration or a readable body, the caller
gets the same refusal as from `/tokens`. A caller that fails a requirement of its identity gets that identity's checks,
and the service does not read its body.

A body `{}` asks about the caller alone. It always costs one request of the rates and never counts as a refusal, so
preflights cannot cause a quarantine.
"""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import Refused
from issuer.issuance.counting import countable
from issuer.issuance.events import granted_event, names_of
from issuer.issuance.identify import refuse
from issuer.issuance.issue import counted_in
from issuer.issuance.judge import asks_of_caller, judge, read_and_judge
from issuer.issuance.ports import AdmissionRequest, Authority, Counted
from issuer.issuance.steps import OF_CALLER, Judged, Refusal, Registered, Request, Signals, Steps
from issuer.limits.abuse import Tally
from issuer.policy.disclose import disclose
from issuer.token.wire import Attempt, Denied, Explained, Standing

# This jti is as long as a real one, so the draft has its real size. No token ever has this jti.
NO_JTI = "A" * 22


def read_to_explain(authority: Authority, registered: Registered, body: bytes) -> Steps[Judged | Refusal]:
    """Read and judge a body as `read_and_judge` does, or judge `OF_CALLER` for the body `{}`."""
    if asks_of_caller(body):
        return judge(authority, registered, OF_CALLER, NO_JTI)
    return (yield from read_and_judge(authority, registered, "single", body, NO_JTI))


async def explain(authority: Authority, registered: Registered, judged: Judged | Refusal) -> Explained:
    """Return what `issue` would decide, and why. Raises as `issue` does, except for the refusal of a policy.

    The answer does not show the remaining rates. An explanation lowers them only while a use of the identity token is
    left, so they would reveal whether the token is spent.
    """
    if isinstance(judged, Refusal):
        if judged.request is OF_CALLER:
            await _count(authority, registered, OF_CALLER)
            judged = replace(judged, settled=True)
        error = await refuse(authority, judged)
        if isinstance(error, Denied):
            return Explained(
                "refused",
                **names_of(registered.registration),
                checks=error.checks,
                warnings=error.warnings,
                request_id=registered.arrival.id,
                code=str(error.code),
            )
        raise error
    counted = await _count(authority, registered, judged.request)
    signals = Signals.of(registered.registration.policy, counted_in(counted.tally))
    await authority.audit.record(granted_event(judged, signals))
    return _explain_grant(judged, signals)


async def _count(authority: Authority, registered: Registered, request: Request) -> Counted:
    """Charge one request of the rates for an explanation. Raises as `issue` does."""
    items = None if request is OF_CALLER else countable(registered, request)
    try:
        return await authority.admission.count(AdmissionRequest.of(registered, countable=items))
    except Refused as error:
        raise await refuse(authority, Refusal(registered, error, request, settled=True)) from None


def _explain_grant(judged: Judged, signals: Signals) -> Explained:
    """Explain a grant of the policy. The counts may still lead to a refusal."""
    grant, registration = judged.grant, judged.registered.registration
    refused = any(signal.then == "quarantine" for signal in signals.raised)
    return Explained(
        "refused" if refused else "granted",
        **names_of(registration),
        checks=disclose(grant.checks, registration.policy),
        warnings=(*grant.warnings, *signals.warnings(0)),
        request_id=judged.registered.arrival.id,
        code=str(Code.ABUSE_QUARANTINED) if refused else UNSET,
        audience=grant.audience,
        ttl_s=grant.ttl_s,
        standing=_standing(signals.tally) if signals.tally.items else UNSET,
    )


def _standing(tally: Tally) -> Standing:
    item = tally.items[0]
    return Standing(
        attempt=Attempt(item.number, item.since) if item.exact else UNSET,
        owners_a_day=tally.owners_a_day,
        tokens_a_day=tally.tokens_a_day,
        owners_a_run=tally.owners_a_run,
        tokens_a_run=tally.tokens_a_run,
        throttled_until=tally.throttled_until or UNSET,
        released_until=tally.released_until or UNSET,
    )
