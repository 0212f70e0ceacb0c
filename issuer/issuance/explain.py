"""Why would this request be refused? The line up to its judgement, and nothing after it (contract section 5).

Signs nothing, claims no use and does not say whether one is spent; it spends rates and counts refusals like the real
request. Only what a policy decided is explained: without authentication, registration or a readable body no policy is
asked, and the answer is the refusal of `/tokens`. A caller that fails what its identity requires is shown the checks of
that identity: its body is not read.
"""

from __future__ import annotations

from issuer.errors import Refused
from issuer.issuance.events import granted_event, names_of
from issuer.issuance.ports import AdmissionRequest, Authority
from issuer.issuance.refuse import refuse
from issuer.issuance.steps import Judged, Refusal, Registered
from issuer.policy.disclose import disclose
from issuer.wire import Denied, Explained

# As long as a real one, so that the draft has its real size. No token ever carries it.
NO_JTI = "A" * 22


async def explain(authority: Authority, registered: Registered, judged: Judged | Refusal) -> Explained:
    """Say what `issue` would decide, and why. Raises as `issue` does, except where a policy refuses."""
    if isinstance(judged, Refusal):
        error = await refuse(authority, judged)
        if isinstance(error, Denied):
            return _explain_denial(registered, error)
        raise error
    try:
        await authority.admission.count(AdmissionRequest.of(registered))
    except Refused as error:
        raise await refuse(authority, Refusal(registered, error, judged.request, settled=True)) from None
    await authority.audit.record(granted_event(judged))
    return _explain_grant(judged)


def _explain_grant(judged: Judged) -> Explained:
    grant, registration = judged.grant, judged.registered.registration
    return Explained(
        "granted",
        **names_of(registration),
        checks=disclose(grant.checks, registration.policy),
        warnings=grant.warnings,
        request_id=judged.registered.arrival.id,
        audience=grant.audience,
        ttl_s=grant.ttl_s,
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
