"""Step one of the line: who is calling, which registered identity is it, and what is known against it.

A stranger ends here, and so does a caller who is refused whatever it asks for: both with their bodies unread. `refuse`
counts and audits a refusal, whatever step of the line it came from.
"""

from __future__ import annotations

from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import Fault, Refused
from issuer.issuance.events import probing_event, recycled_event, refused_event
from issuer.issuance.ports import AdmissionRequest, Authority
from issuer.issuance.steps import Arrival, Forged, Payer, Refusal, Registered, Revoked, Stranger
from issuer.policy.disclose import refusal_for
from issuer.policy.match import resolve


async def identify(authority: Authority, arrival: Arrival, credential: str) -> Registered:
    """Verify a credential, not parsed yet, and find the registration of its caller.

    Raises Refused and Undecided. Refusals of authenticated callers are audited; anonymous ones could fill the disk.
    """
    caller = await authority.authenticator.authenticate(credential, arrival.source, arrival.at)
    try:
        registration = resolve(authority.policies, caller)
    except Refused as error:
        stranger = Stranger(arrival, caller)
        answer = await refuse(authority, Refusal(stranger, error))
        await tell_recycled(authority, stranger)
        raise answer from None
    return Registered.of(arrival, caller, registration, authority.secret)


async def tell_recycled(authority: Authority, stranger: Stranger) -> None:
    """Tell the operator, and nobody else, whose name a stranger has: somebody may have taken it over. One caller is
    told once an hour, for one identity of each integration that has the name. Raises Undecided(`dependency.audit`).
    """
    for whose in {one.policy.integration: one for one in authority.policies.named.find(stranger.caller)}.values():
        payer = Payer(whose.policy.integration, whose.identity.id)
        if count := authority.recycled.count(payer, stranger.caller, stranger.arrival.at):
            await authority.audit.record(recycled_event(stranger, whose, count))


def check_standing(authority: Authority, registered: Registered) -> Refusal | None:
    """Return the refusal of a caller who is refused whatever it asks for; None where its body decides.

    A suspension, a revocation, and a quarantine that this process knows of, cost nothing. Who only resembles an
    identity is charged to its bucket.
    """
    denied, suspended = registered.denial, registered.registration.policy.mode == "suspended"
    if not suspended and (known := _known(authority, registered)) is not None:
        return Refusal(registered, known, settled=True)
    if denied is None:
        return None
    return Refusal(registered, refusal_for(denied.checks, registered.registration.policy), settled=suspended)


def _known(authority: Authority, registered: Registered) -> Refused | None:
    """Return what is known against a caller, or against every token of its integration that would be of this moment."""
    if (refusal := authority.standing.refusal(registered)) is not None:
        return refusal
    reason = authority.revocations.reason("", registered.registration.policy.integration, registered.arrival.at)
    return Revoked((Fault(Code.TOKEN_REVOKED, "", reason),)) if reason else None


# -- refusals ----------------------------------------------------------------------------------------------------------


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
