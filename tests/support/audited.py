"""Lines of the service's audit, decided as the service decides."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from issuer.audit.events import Decision
from issuer.errors import Refused
from issuer.formats.strict_json import JSON
from issuer.issuance.events import granted_event, refused_event
from issuer.issuance.explain import NO_JTI
from issuer.issuance.judge import judge
from issuer.issuance.ports import Authority, NoLog
from issuer.issuance.steps import NO_SIGNALS, Arrival, Refusal, Registered, Request, StoreSecret, Stranger
from issuer.policy.disclose import refusal_for
from issuer.policy.match import PolicySet, resolve
from issuer.results.entry import Submission
from issuer.service.signing.keyring import FileKey, KeyringSigner, SigningKey
from tests.support import make
from tests.support.policies import GITHUB, ISSUER_URL, NOW, caller, submission

SIGNER = KeyringSigner((SigningKey.of(FileKey(make.KEY), "active"),))


def recorded(
    policies: PolicySet,
    *runs: Submission,
    now: int = NOW,
    named: tuple[str, str] = ("", ""),
    claims: Mapping[str, JSON] = GITHUB,
    **changes: JSON,
) -> bytes:
    """Decide as the service does, and return the line that its audit holds of it."""
    who = caller(policies, dict(claims), **changes)
    arrival = Arrival("r1", "/tokens", "192.0.2.1", now)
    try:
        registered = Registered.of(arrival, who, resolve(policies, who), StoreSecret(bytes(32)))
    except Refused as refused:
        return line_of(refused_event(Refusal(Stranger(arrival, who), refused)))
    if registered.denial is not None:  # its body is not read
        error = refusal_for(registered.denial.checks, registered.registration.policy)
        return line_of(refused_event(Refusal(registered, error)))
    nonce = "n" * 22 if who.provider.rules.reusable else ""
    request = Request("single", runs or (submission(),), *named, nonce)
    authority = Authority(ISSUER_URL, policies, None, None, None, None, NoLog(), SIGNER, None, None, None, None, None)  # type: ignore[arg-type]
    judged = judge(authority, registered, request, NO_JTI)
    if isinstance(judged, Refusal):
        return line_of(refused_event(judged))
    return line_of(replace(granted_event(judged, NO_SIGNALS), verdict="issued"))


def line_of(event: Decision) -> bytes:
    return msgspec.json.encode(event) + b"\n"
