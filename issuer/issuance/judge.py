"""Step three of the line, after the edge has read the body: may this be signed? Pure: no clock, no store, no key."""

from __future__ import annotations

from msgspec import UNSET

from issuer import verify_token
from issuer.codes import Code
from issuer.errors import Refused
from issuer.identity.caller import Caller
from issuer.issuance.body import OF_CALLER, Request, read_in_steps
from issuer.issuance.in_steps import Steps
from issuer.issuance.ports import Authority, Signer
from issuer.issuance.steps import Judged, Refusal, Registered
from issuer.policy.decide import Denial, Grant, decide_request
from issuer.policy.disclose import refusal_for
from issuer.verify_token import Template, Terms
from issuer.wire import Kind


def read_and_judge(
    authority: Authority, registered: Registered, kind: Kind, body: bytes, jti: str
) -> Steps[Judged | Refusal]:
    """Read a body, one result a step, and judge it; an unreadable one is a refusal, too. Raises as `judge` does."""
    try:
        request = yield from read_in_steps(kind, body)
    except Refused as error:
        return Refusal(registered, error)
    yield
    return judge(authority, registered, request, jti)


def judge(authority: Authority, registered: Registered, request: Request, jti: str) -> Judged | Refusal:
    """Decide on a request and draft its template. `jti` is 16 fresh random bytes in base64url.

    `OF_CALLER` has no nonce. Raises Undecided(`dependency.signer`) where no key may begin a token now.
    """
    try:
        if request is not OF_CALLER:
            check_nonce(registered.caller, request.nonce)
        grant = _decide(registered, request)
        draft = draft_template(authority, registered, grant, jti)
        too_large = check_size(authority.signer, draft, request)
    except Refused as error:
        return Refusal(registered, error, request)
    return Judged(registered, request, grant, draft, too_large)


def check_size(signer: Signer, draft: Template, request: Request) -> Refused | None:
    """Demand tokens that some key takes, and return the refusal of new ones where that of the draft does not.

    Raises Refused(`claims.too_large`).
    """
    try:
        verify_token.check_size(draft, request.submissions, signer.max_message_bytes(draft.kid))
    except Refused as error:
        largest = max(map(signer.max_message_bytes, signer.usable_kids), default=0)
        verify_token.check_size(draft, request.submissions, largest)
        return error
    return None


def check_nonce(caller: Caller, nonce: str) -> None:
    """Demand a nonce of a reusable identity, and none of one whose token is its own use record. Raises Refused."""
    if caller.provider.rules.reusable and not nonce:
        raise Refused.at(Code.NONCE_REQUIRED, "/nonce", _NO_NONCE)
    if nonce and not caller.provider.rules.reusable:
        raise Refused.at(Code.NONCE_INVALID, "/nonce", _NEEDLESS_NONCE)


_NO_NONCE = (
    "this identity can be used again and again: send 16 or more random bytes as base64url, fresh for every new request "
    "and the same ones when it is sent again"
)
_NEEDLESS_NONCE = "this identity token is its own use record: leave the nonce out"


def _decide(registered: Registered, request: Request) -> Grant:
    verdict = decide_request(
        registered.registration,
        registered.caller,
        registered.checks,
        request.runs(),
        integration=request.integration,
        audience=request.audience,
    )
    if isinstance(verdict, Denial):
        raise refusal_for(verdict.checks, registered.registration.policy)
    return verdict


def draft_template(authority: Authority, registered: Registered, grant: Grant, jti: str) -> Template:
    """Draft the candidate template, to be signed by the active key."""
    now = registered.arrival.at
    terms = Terms(
        iss=authority.issuer_url,
        sub=registered.registration.policy.integration,
        aud=grant.audience,
        iat=now,
        nbf=now,
        exp=now + grant.ttl_s,
        jti=jti,
        caller=registered.caller.provenance(),
        policy=registered.registration.digest,
        log=authority.log.origin or UNSET,
    )
    return Template.of(authority.signer.active_kid, terms)
