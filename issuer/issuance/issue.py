"""Step four of the line, where the side effects are: admit, compose, log, sign, audit; in this order.

The log comes before the signature: a crash leaves an entry without a token, never a token without an entry. The audit
comes before the answer. Only admission spends anything; a retry makes good what fails after it, because it composes the
same bytes again (contract section 5), unless they have been revoked since.

    registered = await identify(authority, arrival, credential)      who is calling, and are they registered
    refusal = check_standing(authority, registered)                  does anything stand against them
    judged = read_and_judge(authority, registered, kind, body, jti)  what they ask for, and may they: Judged | Refusal
    issued = await issue(authority, judged)                          `explain` in its place answers why not
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from issuer import verify_token
from issuer.codes import Code
from issuer.errors import Fault, Refused, Undecided
from issuer.formats import jose
from issuer.identity.token import LEEWAY_S
from issuer.issuance.counting import countable
from issuer.issuance.events import issued_event, signal_events
from issuer.issuance.identify import check_standing
from issuer.issuance.in_steps import one_by_one
from issuer.issuance.ports import NONCE_KEPT_S, AdmissionRequest, Admitted, Authority, Use
from issuer.issuance.recall import recall, recall_signals
from issuer.issuance.refuse import refuse
from issuer.issuance.signals import Signals
from issuer.issuance.steps import Forged, Issued, Judged, Quarantined, Refusal, Revoked
from issuer.verify_token import Template, Unsigned
from issuer.wire import IssuedToken, LogEntry

# How much longer a use record lives than the identity token that it spends.
RECORD_MARGIN_S = 60


async def issue(authority: Authority, judged: Judged | Refusal) -> Issued:
    """Issue the verify tokens of one request.

    Raises Refused (decided no; counted and audited) and Undecided (nobody decided; try again).
    """
    if isinstance(judged, Refusal):
        raise await refuse(authority, judged)
    # Once more: a body may take ten seconds, and a stop waits for nobody.
    if (refusal := check_standing(authority, judged.registered)) is not None:
        raise await refuse(authority, refusal)
    template, signals, admitted = await _admit(authority, judged)
    batch = judged.request.kind == "batch"
    unsigned = verify_token.compose(template, judged.request.submissions, signals.attempts(), batch=batch)
    if (revoked := _revoked(authority, judged, template, unsigned)) is not None:
        raise await refuse(authority, Refusal(judged.registered, revoked, judged.request, settled=True))
    signing_inputs = tuple(token.signing_input for token in unsigned)
    entries = await authority.log.append(template, signing_inputs)
    signatures = await authority.signer.sign(template.kid, signing_inputs)
    signed = tuple(jose.compact(*parts) for parts in zip(signing_inputs, signatures, strict=True))
    answers = one_by_one(answer(judged, template, signals, unsigned, signed, entries))
    tokens = await authority.turns.take(judged.registered.payer, answers)
    issued = Issued(tokens, admitted.repeat, signals, admitted.rates)
    for signal in signal_events(judged.registered, signals, repeat=admitted.repeat):
        await authority.audit.record(signal)
    await authority.audit.record(issued_event(judged, issued))
    return issued


async def _admit(authority: Authority, judged: Judged) -> tuple[Template, Signals, Admitted]:
    """Claim a use. Returns the template to compose from, which is that of the request's first time, and its signals."""
    try:
        return await _claim(authority, judged)
    except Refused as error:
        if isinstance(error, Quarantined) and error.tally.items:  # what it asked for has begun it
            signals = Signals.of(judged.registered.registration.policy, error.tally)
            for signal in signal_events(judged.registered, signals, repeat=False):
                await authority.audit.record(signal)
        raise await refuse(authority, _not_admitted(judged, error)) from None


def _not_admitted(judged: Judged, error: Refused) -> Refusal:
    """Return the refusal: of what is too large for a new token, this and not that it has no use."""
    if judged.too_large is not None and error.code is use_of(judged, ()).spent and not isinstance(error, Forged):
        return Refusal(judged.registered, judged.too_large, judged.request)
    return Refusal(judged.registered, error, judged.request, settled=True)


async def _claim(authority: Authority, judged: Judged) -> tuple[Template, Signals, Admitted]:
    """Ask once, and once more where what the store has kept is to be replaced.

    Of many who ask at once one replaces it, and the others are given that one's. Who would replace this one too is on
    another host, whose draft has another `caller` or `log`: nobody decides between them.
    """
    use = use_of(judged, authority.signer.usable_kids)
    candidate = authority.secret.seal(use.record, use.request_digest, judged.draft.to_bytes())
    cost = len(judged.request.submissions)
    counted = countable(judged.registered, judged.request)
    call = AdmissionRequest.of(judged.registered, cost=cost, use=use, candidate=candidate, countable=counted)
    for _ in range(2):
        admitted = await authority.admission.admit(call)
        if not admitted.repeat:
            return judged.draft, recall_signals(judged, use, admitted, judged.draft), admitted
        if (template := recall(authority, judged, use, admitted.template)) is not None:
            # Its own key signs it, which may take less than the key of the draft.
            largest = authority.signer.max_message_bytes(template.kid)
            verify_token.check_size(template, judged.request.submissions, largest)
            return template, recall_signals(judged, use, admitted, template), admitted
        call = replace(call, replaces=admitted.template)
    raise Undecided(Code.DEPENDENCY_STATE)


def _revoked(
    authority: Authority, judged: Judged, template: Template, unsigned: tuple[Unsigned, ...]
) -> Revoked | None:
    """Return the refusal of tokens one of which is revoked: those of a request that comes again."""
    sub, iat = template.terms.sub, template.terms.iat
    reasons = [authority.revocations.reason(token.jti, sub, iat) for token in unsigned]
    found = [each for each in zip(judged.request.submissions, unsigned, reasons, strict=True) if each[2]]
    if not found:
        return None
    faults = (Fault(Code.TOKEN_REVOKED, submission.pointer, reason) for submission, _, reason in found)
    return Revoked(tuple(faults), tuple(token.jti for _, token, _ in found))


def use_of(judged: Judged, usable_kids: tuple[str, ...]) -> Use:
    """Name the one use of the identity, or of its nonce, that this request asks for.

    None is allowed where a new token would be too large: only what was begun before is answered.
    """
    caller, draft, request = judged.registered.caller, judged.draft, judged.request
    reusable = caller.provider.rules.reusable
    return Use(
        record=caller.use_record(request.nonce),
        allowed=caller.provider.uses if judged.too_large is None else 0,
        request_digest=request.digest(draft.terms.sub, draft.terms.aud),
        template_exp=draft.terms.exp,
        kid=draft.kid,
        usable_kids=usable_kids,
        issued_at=None if reusable else caller.issued_at,
        keep_until=draft.terms.iat + NONCE_KEPT_S if reusable else caller.expires_at + LEEWAY_S + RECORD_MARGIN_S,
    )


def answer(
    judged: Judged,
    template: Template,
    signals: Signals,
    unsigned: tuple[Unsigned, ...],
    signed: tuple[str, ...],
    entries: tuple[LogEntry, ...],
) -> Iterator[IssuedToken]:
    """Put each token together with its result entry and its log entry, in the order of the submissions."""
    places: tuple[LogEntry | UnsetType, ...] = entries or (UNSET,) * len(signed)
    return (
        IssuedToken(
            verify_token=text,
            token_type=jose.TOKEN_TYPE,
            jti=token.jti,
            kid=template.kid,
            issued_at=template.terms.iat,
            expires_at=template.terms.exp,
            claims_digest=submission.claims_digest,
            content_digest=submission.content_digest,
            integration=judged.registered.registration.policy.integration,
            identity=judged.registered.registration.identity.id,
            policy=template.terms.policy,
            entry=submission.entry(text),
            warnings=(*judged.grant.warnings, *signals.warnings(index)),
            log=place,
        )
        for index, (submission, token, text, place) in enumerate(
            zip(judged.request.submissions, unsigned, signed, places, strict=True)
        )
    )
