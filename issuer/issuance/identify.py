"""Step one of the line: who is calling, which registered identity is it, and what stands against it.

A stranger ends here, and so does a caller who is refused whatever it asks for: both with their bodies unread.
"""

from __future__ import annotations

from issuer.errors import Refused
from issuer.issuance.ports import Authority
from issuer.issuance.refuse import refuse
from issuer.issuance.steps import Arrival, Refusal, Registered, Stranger
from issuer.policy.decide import Denial, decide
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
        raise await refuse(authority, Refusal(Stranger(arrival, caller), error)) from None
    return Registered(arrival, caller, registration)


def check_standing(authority: Authority, registered: Registered) -> Refusal | None:
    """Return the refusal of a caller whom its standing refuses whatever it asks for, without any call to the store.

    It costs its limits nothing. Who is suspended sees the checks of its identity, as if it had asked for nothing.
    """
    if (error := _suspension(registered) or authority.standing.refusal(registered)) is not None:
        return Refusal(registered, error, settled=True)
    return None


def _suspension(registered: Registered) -> Refused | None:
    registration = registered.registration
    if registration.policy.mode != "suspended":
        return None
    verdict = decide(registration, registered.caller, (), registered.arrival.at)
    return refusal_for(verdict.checks, registration.policy) if isinstance(verdict, Denial) else None
