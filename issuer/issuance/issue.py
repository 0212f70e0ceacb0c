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

from issuer.codes import Code
from issuer.errors import Fault, Refused, Undecided
from issuer.formats import jose
from issuer.formats.times import LEEWAY_S
from issuer.issuance.counting import countable
from issuer.issuance.events import issued_event, signal_events
from issuer.issuance.identify import check_standing, refuse
from issuer.issuance.ports import NONCE_KEPT_S, AdmissionRequest, Admitted, Authority, Use
from issuer.issuance.steps import Forged, Issued, Judged, Quarantined, Refusal, Revoked, Signals, one_by_one
from issuer.limits.abuse import NOTHING_COUNTED, Tally, read_tally
from issuer.token import verify_token
from issuer.token.verify_token import COUNT_LEEWAY_S, MAX_TTL_S, Template, Terms, Unsigned, is_jti, read_template
from issuer.token.wire import IssuedToken, LogEntry

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


# -- a template that the store gives back ------------------------------------------------------------------------------

# A writer to the store must not have anything signed that this request does not ask for (contract section 5, uses and
# retries). So a template counts only under our HMAC, and then only where this very request could have had it drafted:
# the key of the seal may have leaked.

# How far the clocks of two hosts, or of a host and an identity provider, may be apart.
CLOCKS_S = 60


def recall(authority: Authority, judged: Judged, use: Use, kept: bytes) -> Template | None:
    """Return the template that the store has kept for this request; None where it is to be replaced.

    That is one past its `exp`, one whose key may not sign any more, and one with another `caller` or `log` than today's
    draft. Raises Forged for anything else that this request would not have had drafted.
    """
    template = _open(authority, use, kept)
    terms, draft = template.terms, judged.draft
    if (other := _first_difference(template, draft)) is not None:
        raise Forged(use.spent, other)
    now = judged.registered.arrival.at
    if terms.exp <= now or template.kid not in use.usable_kids:
        return None
    if (beyond := _out_of_bounds(authority, terms, use, now, draft.terms)) is not None:
        raise Forged(use.spent, beyond)
    return template if (terms.caller, terms.log) == (draft.terms.caller, draft.terms.log) else None


def counted_in(raw: bytes) -> Tally:
    """Read what the admission has counted. Raises Undecided (`dependency.state`) for anything else."""
    try:
        return read_tally(raw) if raw else NOTHING_COUNTED
    except ValueError:
        raise Undecided(Code.DEPENDENCY_STATE) from None


def recall_signals(judged: Judged, use: Use, admitted: Admitted, template: Template) -> Signals:
    """Return what was counted for this request, the first time that it was admitted.

    The store itself writes it, so it lies outside of the seal: only its form and its bounds are held. Raises Forged for
    what came back and has others, Undecided (`dependency.state`) for what was counted now.
    """
    try:
        tally = counted_in(admitted.tally)
    except Undecided:
        raise _broken(use, admitted) from None
    latest = template.terms.iat + COUNT_LEEWAY_S  # later, and no relying party would take the token
    if len(tally.items) != len(judged.request.submissions):
        raise _broken(use, admitted)
    if any(item.since > latest for item in tally.items):
        raise _broken(use, admitted)
    return Signals.of(judged.registered.registration.policy, tally)


def _broken(use: Use, admitted: Admitted) -> Forged | Undecided:
    return Forged(use.spent, "counts") if admitted.repeat else Undecided(Code.DEPENDENCY_STATE)


def _open(authority: Authority, use: Use, kept: bytes) -> Template:
    raw = authority.secret.unseal(use.record, use.request_digest, kept)
    if raw is None:
        raise Forged(use.spent, "hmac")
    try:
        template = read_template(raw)
    except Undecided:
        raise Forged(use.spent, "form") from None
    if template.to_bytes() != raw:
        raise Forged(use.spent, "form")
    return template


def _first_difference(template: Template, draft: Template) -> str | None:
    """Name the first member that must be equal to today's draft, and is not."""
    for name in ("alg", "typ"):
        if getattr(template.header, name) != getattr(draft.header, name):
            return name
    for name in ("ver", "iss", "sub", "aud"):
        if getattr(template.terms, name) != getattr(draft.terms, name):
            return name
    return None


def _out_of_bounds(authority: Authority, terms: Terms, use: Use, now: int, draft: Terms) -> str | None:
    """Name the first member that has a value which no draft of this request had, as far as is known today."""
    earliest = now - NONCE_KEPT_S if use.issued_at is None else use.issued_at - CLOCKS_S
    if not earliest <= terms.iat <= now + CLOCKS_S:
        return "iat"
    if terms.nbf != terms.iat:
        return "nbf"
    if not terms.iat < terms.exp <= terms.iat + MAX_TTL_S:
        return "exp"
    if not is_jti(terms.jti):
        return "jti"
    if terms.policy != draft.policy and authority.kept.integration_of(terms.policy) != draft.sub:
        return "policy"
    return None
