"""Why would this request be refused? The line up to its judgement, and nothing after it (contract section 5).

Signs nothing, claims no use and does not say whether one is spent; it spends rates and counts refusals like the real
request. Only what a policy decided is explained: without authentication, registration or a readable body no policy is
asked, and the answer is the refusal of `/tokens`. A caller that fails what its identity requires is shown the checks of
that identity: its body is not read.

A body `{}` asks of the caller alone. It costs a request of the rates, whatever is answered: of what it asks for nothing
can be wrong, so that no number of preflights has an identity quarantined.
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

# As long as a real one, so that the draft has its real size. No token ever carries it.
NO_JTI = "A" * 22


def read_to_explain(authority: Authority, registered: Registered, body: bytes) -> Steps[Judged | Refusal]:
    """Read a body and judge it, as `read_and_judge` does; `{}` as `OF_CALLER`."""
    if asks_of_caller(body):
        return judge(authority, registered, OF_CALLER, NO_JTI)
    return (yield from read_and_judge(authority, registered, "single", body, NO_JTI))


async def explain(authority: Authority, registered: Registered, judged: Judged | Refusal) -> Explained:
    """Say what `issue` would decide, and why. Raises as `issue` does, except where a policy refuses.

    What is left of the rates is not said: it falls with each explanation, but not where the use is spent.
    """
    if isinstance(judged, Refusal):
        if judged.request is OF_CALLER:
            await _count(authority, registered, OF_CALLER)
            judged = replace(judged, settled=True)
        error = await refuse(authority, judged)
        if isinstance(error, Denied):
            return _explain_denial(registered, error)
        raise error
    counted = await _count(authority, registered, judged.request)
    signals = Signals.of(registered.registration.policy, counted_in(counted.tally))
    await authority.audit.record(granted_event(judged, signals))
    return _explain_grant(judged, signals)


async def _count(authority: Authority, registered: Registered, request: Request) -> Counted:
    """Charge an explanation: one request of the rates. Raises as `issue` does."""
    items = None if request is OF_CALLER else countable(registered, request)
    try:
        return await authority.admission.count(AdmissionRequest.of(registered, countable=items))
    except Refused as error:
        raise await refuse(authority, Refusal(registered, error, request, settled=True)) from None


def _explain_grant(judged: Judged, signals: Signals) -> Explained:
    """Explain what the policy grants: by what is counted it may be refused all the same."""
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


def _explain_denial(registered: Registered, error: Denied) -> Explained:
    return Explained(
        "refused",
        **names_of(registered.registration),
        checks=error.checks,
        warnings=error.warnings,
        request_id=registered.arrival.id,
        code=str(error.code),
    )
