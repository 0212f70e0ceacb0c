"""The one place where a refusal is counted and audited, whatever step of the line it came from."""

from __future__ import annotations

from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import Refused
from issuer.issuance.events import probing_event, refused_event
from issuer.issuance.ports import AdmissionRequest, Authority
from issuer.issuance.steps import Forged, Refusal, Registered


async def refuse(authority: Authority, refusal: Refusal) -> Refused:
    """Count a refusal against who pays for it, audit it, and return the error to answer with.

    That is the refusal itself, or the rate or quarantine that its count runs into. Strangers of a source that was
    refused too often are audited as that; a store that was written to is told however often it is met. Raises
    Undecided where the store or the audit fails.
    """
    audited = refusal
    if isinstance(refusal.of, Registered):
        registered = refusal.of
        audited = refusal = await _count(authority, refusal, registered)
        authority.standing.learn(registered, refusal.error)
    elif authority.authenticator.is_over_limit(refusal.of.arrival.source):
        audited = replace(refusal, error=Refused(Code.RATE_SOURCE))
    if isinstance(refusal.error, Forged):
        await authority.audit.record(refused_event(refusal))
    else:
        await authority.audit.refuse(refused_event(audited))
    return refusal.error


async def _count(authority: Authority, refusal: Refusal, registered: Registered) -> Refusal:
    """Charge a refusal to who pays for it; the limits may refuse for their own reason, which then is the answer."""
    if refusal.settled:
        return refusal
    try:
        counted = await authority.admission.count(AdmissionRequest.of(registered, refused=True))
    except Refused as limit:
        return replace(refusal, error=limit)
    if counted.probing and registered.bucket is None:
        await authority.audit.record(probing_event(registered, counted.probing))
    return replace(refusal, error=refusal.error.warned(*counted.warnings))
