"""Why would this request be refused? The line up to its draft, and nothing after it (contract section 5).

Signs nothing, claims no use and does not say whether one is spent; it spends rates and counts refusals like the real
request. Only what a policy decided is explained: whoever is not authenticated or not registered, and a body that cannot
be read, get the refusal that `/tokens` has for them, because no policy was asked.
"""

from __future__ import annotations

from typing import Any, cast

from issuer.errors import Refused
from issuer.issuance.events import Case, decision_event, names_of
from issuer.issuance.issue import Judged, audit_refusal, judge
from issuer.issuance.ports import AdmissionRequest, Line
from issuer.policy.disclose import disclosed
from issuer.policy.registration import Registration
from issuer.wire import Denied, Explained

# As long as a real one, so that the draft has its real size. No token ever carries it.
_NO_JTI = "A" * 22


async def explain(line: Line, case: Case) -> Explained:
    """Say what `issue` would decide, and why. Raises as `issue` does, but where a policy refuses."""
    try:
        found = await judge(line, case, _NO_JTI)
        await line.admission.count(AdmissionRequest.of(found.registration))
    except Refused as refusal:
        await audit_refusal(line.audit, case, refusal)
        if isinstance(refusal, Denied):
            return _refused(case, refusal)
        raise
    await line.audit.record(granted_event(case, found))
    return _granted(case, found)


def granted_event(case: Case, found: Judged) -> dict[str, Any]:
    """Tell a grant that nothing was issued for."""
    return {**decision_event(case, found.caller), "verdict": "granted"}


def _granted(case: Case, found: Judged) -> Explained:
    grant, policy = found.grant, found.registration.policy
    return Explained(
        "granted",
        **names_of(found.registration),
        checks=disclosed(grant.checks, policy),
        warnings=grant.warnings,
        request_id=case.request.id,
        audience=grant.audience,
        ttl_s=grant.ttl_s,
    )


def _refused(case: Case, refusal: Denied) -> Explained:
    return Explained(
        "refused",
        **names_of(cast("Registration", case.registration)),  # a policy has refused: there is one
        checks=refusal.checks,
        warnings=(),
        request_id=case.request.id,
        code=str(refusal.code),
    )
