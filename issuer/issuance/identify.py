"""Step one of the line: who is calling, and which registered identity is it. A stranger ends here, its body unread."""

from __future__ import annotations

from issuer.errors import Refused
from issuer.issuance.ports import Authority
from issuer.issuance.refuse import refuse
from issuer.issuance.steps import Arrival, Refusal, Registered, Stranger
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
