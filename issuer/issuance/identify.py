"""The first steps of issuance: authenticate the caller, find its registration, and check its standing.

Unregistered callers are refused here, and so are callers whose standing refuses every request. Their bodies are never
read. `refuse` counts and audits the refusals of all steps.
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
    """Verify a raw credential, and return its caller with the registration.

    Raises Refused and Undecided. Only refusals of authenticated callers are audited: others could fill the disk.
    """
    caller = await authority.authenticator.authenticate(credential, arrival.source, arrival.at)
    try:
        registration = resolve(authority.policies, caller)
    except Refused as error:
        stranger = Stranger(arrival, caller)
        answer = await refuse(authority, Refusal(stranger, error))
        await report_recycled(authority, stranger)
        raise answer from None
    await authority.kept.keep(registration.digest)  # before its first decision
    return Registered.of(arrival, caller, registration, authority.secret)


async def report_recycled(authority: Authority, stranger: Stranger) -> None:
    """Audit that an unregistered caller has a registered name under other ids: it may have taken the name over.

    A caller is reported at most once an hour. If several identities of an integration have the name, the report is
    about one of them. The caller does not learn of it. Raises Undecided(`dependency.audit`).
    """
    for owner in {one.policy.integration: one for one in authority.policies.named.find(stranger.caller)}.values():
        payer = Payer(owner.policy.integration, owner.identity.id)
        if count := authority.recycled.count(payer, stranger.caller, stranger.arrival.at):
            await authority.audit.record(recycled_event(stranger, owner, count))


def check_standing(authority: Authority, registered: Registered) -> Refusal | None:
    """Return the refusal if every request of this caller is refused; None if the body decides.

    A refusal for a suspension, a revocation or a quarantine known to this process is free. A caller that fails a
    requirement of its identity pays from its bucket.
    """
    denied, suspended = registered.denial, registered.registration.policy.mode == "suspended"
    if not suspended and (known := _known(authority, registered)) is not None:
        return Refusal(registered, known, settled=True)
    if denied is None:
        return None
    return Refusal(registered, refusal_for(denied.checks, registered.registration.policy), settled=suspended)


def _known(authority: Authority, registered: Registered) -> Refused | None:
    """Return the known refusal of a caller, or the revocation of all tokens of its integration issued at this time."""
    if (refusal := authority.standing.refusal(registered)) is not None:
        return refusal
    reason = authority.revocations.reason("", registered.registration.policy.integration, registered.arrival.at)
    return Revoked((Fault(Code.TOKEN_REVOKED, "", reason),)) if reason else None


# -- refusals ----------------------------------------------------------------------------------------------------------


async def refuse(authority: Authority, refusal: Refusal) -> Refused:
    """Charge a refusal to its payer, audit it, and return the error to answer with.

    The error is the refusal itself or, if a rate or a quarantine refuses the charge, that second refusal. Unregistered
    callers from a source over its limit are audited as `rate.source`. A forged template is always audited, however
    often. Raises Undecided if the store or the audit fails.
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
    """Charge a refusal to its payer. If a limit or a quarantine refuses the charge, that becomes the answer."""
    if refusal.settled:
        return refusal
    try:
        counted = await authority.admission.count(AdmissionRequest.of(registered, refused=True))
    except Refused as limit:
        return replace(refusal, error=limit)
    if counted.probing and registered.bucket is None:
        await authority.audit.record(probing_event(registered, counted.probing))
    return replace(refusal, error=refusal.error.warned(*counted.warnings))
