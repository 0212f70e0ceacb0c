"""THE LINE: identity token in, signed verify tokens out; and the protocols that it needs. Pure but for them.

The order is the contract's (section 5): cheap first, side effects last, the log before the signature, the audit before
the answer. The caller's registration is looked up before its body is read: it is cheaper, a stranger's body is never
parsed, and a registered caller's bad body can be counted against it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from issuer import verify_token as token
from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats import jose
from issuer.identity.caller import Caller
from issuer.identity.token import LEEWAY_S
from issuer.issuance.body import Body, read_body
from issuer.issuance.events import Case, decision_event, refused_event
from issuer.issuance.ports import Admission, AdmissionRequest, Audit, Line, Use
from issuer.policy.decide import Denial, Grant, decide
from issuer.policy.disclose import denied
from issuer.policy.match import resolve
from issuer.policy.registration import Registration
from issuer.results.entry import Submission
from issuer.wire import IssuedToken

# How much longer a use record lives than the identity token that it spends.
RECORD_MARGIN_S = 60
# How long a nonce names its request (contract section 5): as long as the longest verify token lives.
NONCE_KEPT_S = 86_400


async def issue(line: Line, case: Case, jti: str) -> Issued:
    """Answer one request for verify tokens. `jti` is 16 fresh random bytes in base64url.

    Raises Refused (decided no; audited, if the caller is authenticated) and Undecided (nobody decided; try again).
    """
    try:
        found = await judge(line, case, jti)
        admitted = await line.admission.admit(claim_of_use(line, found, case.judged_at))
    except Refused as refusal:
        await audit_refusal(line.audit, case, refusal)
        raise
    template, unsigned = found.draft, found.unsigned
    if admitted.repeat:  # not this request's draft, but that of the first time
        template = token.template_from(admitted.template)
        unsigned = token.compose(template, found.body.submissions, batch=found.body.is_batch)
    await line.log.append(tuple(item.signing_input for item in unsigned))
    signatures = await line.signer.sign(template.kid, tuple(item.signing_input for item in unsigned))
    issued = Issued(answers(found, template, unsigned, signatures), admitted.repeat)
    await line.audit.record(issued_event(case, found, issued))
    return issued


async def judge(line: Line, case: Case, jti: str) -> Judged:
    """Take a request up to its draft, before anything is spent for it; `explain` goes the same way. Raises as
    `issue` does."""
    request, now = case.request, case.judged_at
    caller = case.caller = await line.authenticator.authenticate(request.bearer, request.source, now)
    registration = case.registration = resolve(line.policies, caller)
    try:
        raw = await request.read(registration)  # a stranger's is not waited for, and holds no place for it
        body = case.body = read_body(request.endpoint, raw)
        check_nonce(caller, body.nonce)
        verdict = decide(registration, caller, body.runs(), now, integration=body.integration, audience=body.audience)
        grant = granted(registration, verdict)
        draft = draft_template(line, registration, caller, grant, now, jti)
        unsigned = token.compose(draft, body.submissions, batch=body.is_batch)
        token.check_size(unsigned, body.submissions)
    except Refused:
        await count_refusal(line.admission, registration)
        raise
    return Judged(caller, registration, body, grant, draft, unsigned)


# -- what goes in, what comes out -------------------------------------------------------------------------------------


class Judged(Struct, frozen=True):
    """A request that was granted, with everything that it takes to issue."""

    caller: Caller
    registration: Registration
    body: Body
    grant: Grant
    draft: token.Template
    unsigned: tuple[token.Unsigned, ...]


class Issued(Struct, frozen=True):
    """Signed tokens in the order of the submissions; `repeat` where the same request was answered before."""

    tokens: tuple[IssuedToken, ...]
    repeat: bool


# -- the steps --------------------------------------------------------------------------------------------------------


async def audit_refusal(audit: Audit, case: Case, refusal: Refused) -> None:
    """Have the audit see a refusal of an authenticated caller; a stranger must not fill its disk, nor whoever has a
    token of a provider that anybody can have one of."""
    if case.caller is not None and (case.registration is not None or not case.request.charged()):
        await audit.record(refused_event(case, case.caller, refusal))


async def count_refusal(admission: Admission, registration: Registration) -> None:
    """Have the limits and the abuse counters see a refusal; they may refuse first, for a reason of their own."""
    await admission.count(AdmissionRequest.of(registration, refused=True))


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


def granted(registration: Registration, verdict: Grant | Denial) -> Grant:
    """Return the grant, or raise the refusal that the caller may see."""
    if isinstance(verdict, Denial):
        raise denied(verdict.checks, registration.policy)
    return verdict


def draft_template(
    line: Line, registration: Registration, caller: Caller, grant: Grant, now: int, jti: str
) -> token.Template:
    """Draft the candidate template, to be signed by the active key."""
    return token.draft(
        kid=line.signer.active_kid,
        iss=line.issuer_url,
        sub=registration.policy.integration,
        aud=grant.audience,
        now=now,
        ttl_s=grant.ttl_s,
        jti=jti,
        caller=caller.provenance(),
        policy=registration.digest,
        log=line.log.origin,
    )


def claim_of_use(line: Line, found: Judged, now: int) -> AdmissionRequest:
    """Make the admission call that claims one use of the identity, or of its nonce, for this request."""
    caller, registration, draft = found.caller, found.registration, found.draft
    reusable = caller.provider.rules.reusable
    use = Use(
        record=caller.use_record(found.body.nonce),
        allowed=caller.provider.uses,
        request_digest=found.body.request_digest(registration.policy.integration, str(draft.payload["aud"])),
        template_exp=draft.exp,
        kid=draft.kid,
        usable_kids=line.signer.usable_kids,
        issued_at=None if reusable else caller.issued_at,
        keep_until=now + NONCE_KEPT_S if reusable else caller.expires_at + LEEWAY_S + RECORD_MARGIN_S,
    )
    return AdmissionRequest.of(registration, cost=len(found.body.submissions), use=use, candidate=draft.to_bytes())


def answers(
    found: Judged, template: token.Template, unsigned: tuple[token.Unsigned, ...], signatures: tuple[bytes, ...]
) -> tuple[IssuedToken, ...]:
    """Put tokens and entries together, in the order of the submissions."""
    return tuple(
        _answer(found, submission, template, item.jti, jose.compact(item.signing_input, signature))
        for submission, item, signature in zip(found.body.submissions, unsigned, signatures, strict=True)
    )


def _answer(found: Judged, submission: Submission, template: token.Template, jti: str, signed: str) -> IssuedToken:
    return IssuedToken(
        verify_token=signed,
        token_type=jose.TOKEN_TYPE,
        jti=jti,
        kid=template.kid,
        issued_at=int(template.payload["iat"]),
        expires_at=template.exp,
        claims_digest=submission.claims_digest,
        content_digest=submission.content_digest,
        integration=found.registration.policy.integration,
        identity=found.registration.identity.id,
        policy=str(template.payload["policy"]),
        entry=submission.entry(signed),
        warnings=found.grant.warnings,
    )


def issued_event(case: Case, found: Judged, issued: Issued) -> dict[str, Any]:
    """Tell an issuance; `template_policy` is there where a repeat was drafted under another policy than today's."""
    event = decision_event(case, found.caller)
    event |= {
        "verdict": "repeated" if issued.repeat else "issued",
        "kid": issued.tokens[0].kid,
        "jti": [item.jti for item in issued.tokens],
        "content_digest": [item.content_digest for item in issued.tokens],
    }
    if issued.tokens[0].policy != found.registration.digest:
        event["template_policy"] = issued.tokens[0].policy
    return event


# -- what the line needs of the world ---------------------------------------------------------------------------------
