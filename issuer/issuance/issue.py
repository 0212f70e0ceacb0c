"""The fourth step of issuance, which has the side effects: admit, compose, log, sign and audit, in this order.

A token is in the log before it is signed, so a crash can leave a leaf without a token, but never a token without a
leaf. The audit records it before the answer is sent. Only the admission spends uses and rates. If a later part fails, a
retry composes the same bytes again (contract section 5), unless they were revoked meanwhile.

    registered = await identify(authority, arrival, credential)      authenticate the caller, find its registration
    refusal = check_standing(authority, registered)                  are all its requests refused?
    judged = read_and_judge(authority, registered, kind, body, jti)  parse the body and decide: Judged | Refusal
    issued = await issue(authority, judged)                          or `explain`, which signs nothing
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
from issuer.issuance.events import issued_event, signal_events, unsigned_event
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

    Raises Refused (a final refusal, counted and audited) and Undecided (no decision; the caller may retry).
    """
    if isinstance(judged, Refusal):
        raise await refuse(authority, judged)
    # Check again: a body may take ten seconds to arrive, and the operator's stop must take effect at once.
    if (refusal := check_standing(authority, judged.registered)) is not None:
        raise await refuse(authority, refusal)
    await authority.signer.demand_live(judged.draft.kid)
    template, signals, admitted = await _admit(authority, judged)
    batch = judged.request.kind == "batch"
    unsigned = verify_token.compose(template, judged.request.submissions, signals.attempts(), batch=batch)
    if (revoked := _revoked(authority, judged, template, unsigned)) is not None:
        raise await refuse(authority, Refusal(judged.registered, revoked, judged.request, settled=True))
    entries, signed = await _log_and_sign(authority, judged, template, unsigned)
    answers = one_by_one(answer(judged, template, signals, unsigned, signed, entries))
    tokens = await authority.turns.take(judged.registered.payer, answers)
    issued = Issued(tokens, admitted.repeat, signals, admitted.rates)
    for signal in signal_events(judged.registered, signals, repeat=admitted.repeat):
        await authority.audit.record(signal)
    await authority.audit.record(issued_event(judged, issued))
    return issued


async def _log_and_sign(
    authority: Authority, judged: Judged, template: Template, unsigned: tuple[Unsigned, ...]
) -> tuple[tuple[LogEntry, ...], tuple[str, ...]]:
    """Append the leaves, sign, and return the places and the tokens. If the key fails only now, the audit says why the
    leaves have no tokens."""
    await authority.signer.demand_live(template.kid)  # of a repeat: the draft may have another key
    signing_inputs = tuple(token.signing_input for token in unsigned)
    entries = await authority.log.append(template, signing_inputs)
    try:
        signatures = await authority.signer.sign(template.kid, signing_inputs)
    except Undecided:
        if entries:
            await authority.audit.record(unsigned_event(judged, template, unsigned, entries))
        raise
    return entries, tuple(jose.compact(*parts) for parts in zip(signing_inputs, signatures, strict=True))


async def _admit(authority: Authority, judged: Judged) -> tuple[Template, Signals, Admitted]:
    """Claim a use. Return this request's first template, to compose from, and its signals."""
    try:
        return await _claim(authority, judged)
    except Refused as error:
        if isinstance(error, Quarantined) and error.tally.items:  # this request began the quarantine
            signals = Signals.of(judged.registered.registration.policy, error.tally)
            for signal in signal_events(judged.registered, signals, repeat=False):
                await authority.audit.record(signal)
        refusal = Refusal(judged.registered, error, judged.request, settled=True)
        if judged.too_large is not None and error.code is use_of(judged, ()).spent and not isinstance(error, Forged):
            # Say that the request is too large for a new token, and not that it has no use left.
            refusal = Refusal(judged.registered, judged.too_large, judged.request)
        raise await refuse(authority, refusal) from None


async def _claim(authority: Authority, judged: Judged) -> tuple[Template, Signals, Admitted]:
    """Claim a use, and try once more if the template in the store must be replaced.

    If many requests try this at once, one replaces the template and the others get the replacement. If a second
    replacement is needed, another host has a different draft (`caller` or `log`). Neither host can decide, so the
    request fails with Undecided.
    """
    use = use_of(judged, authority.signer.usable_kids)
    candidate = authority.secret.seal(use.record, use.request_digest, judged.draft.to_bytes())
    cost = len(judged.request.submissions)
    items = countable(judged.registered, judged.request)
    call = AdmissionRequest.of(judged.registered, cost=cost, use=use, candidate=candidate, countable=items)
    for _ in range(2):
        admitted = await authority.admission.admit(call)
        if not admitted.repeat:
            return judged.draft, recall_signals(judged, use, admitted, judged.draft), admitted
        if (template := recall(authority, judged, use, admitted.template)) is not None:
            # The template's own key signs it, and may accept a smaller message than the draft's key.
            largest = authority.signer.max_message_bytes(template.kid)
            verify_token.check_size(template, judged.request.submissions, largest)
            return template, recall_signals(judged, use, admitted, template), admitted
        call = replace(call, replaces=admitted.template)
    raise Undecided(Code.DEPENDENCY_STATE)


def _revoked(
    authority: Authority, judged: Judged, template: Template, unsigned: tuple[Unsigned, ...]
) -> Revoked | None:
    """Return the refusal of a repeat if any of its tokens was revoked meanwhile; else None."""
    sub, iat = template.terms.sub, template.terms.iat
    reasons = [authority.revocations.reason(token.jti, sub, iat) for token in unsigned]
    revoked = [each for each in zip(judged.request.submissions, unsigned, reasons, strict=True) if each[2]]
    if not revoked:
        return None
    faults = (Fault(Code.TOKEN_REVOKED, submission.pointer, reason) for submission, _, reason in revoked)
    return Revoked(tuple(faults), tuple(token.jti for _, token, _ in revoked))


def use_of(judged: Judged, usable_kids: tuple[str, ...]) -> Use:
    """Return the use of the identity token or nonce that this request claims.

    If a new token would be too large, `allowed` is 0, so only a repeat is answered.
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
    """Yield each token with its result entry and its place in the log, in the order of the submissions."""
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


# -- a template from the store -----------------------------------------------------------------------------------------

# An attacker who can write to the store must not get anything signed except the tokens that this request asks for
# (contract section 5, uses and retries). So a template must have our HMAC. Because the HMAC's key may have leaked, the
# template must also be one that this very request could have drafted.

# How many seconds the clocks of two hosts, or of a host and an identity provider, may differ.
CLOCKS_S = 60


def recall(authority: Authority, judged: Judged, use: Use, kept: bytes) -> Template | None:
    """Return the template that the store has for this request; None if it must be replaced.

    It must be replaced if it is past its `exp`, if its key may no longer sign, or if its `caller` or `log` differs from
    the current draft. Raises Forged for any other template that this request could not have drafted.
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
    """Read the counts of the admission. Raises Undecided (`dependency.state`) if they are malformed."""
    try:
        return read_tally(raw) if raw else NOTHING_COUNTED
    except ValueError:
        raise Undecided(Code.DEPENDENCY_STATE) from None


def recall_signals(judged: Judged, use: Use, admitted: Admitted, template: Template) -> Signals:
    """Return the signals from the counts of this request, made when it was first admitted.

    The store writes the counts, so they are not sealed: only their form and bounds are checked. If that fails, this
    raises Forged for the stored counts of a repeat, and Undecided (`dependency.state`) for new ones.
    """
    try:
        tally = counted_in(admitted.tally)
    except Undecided:
        raise _broken(use, admitted) from None
    latest = template.terms.iat + COUNT_LEEWAY_S  # with a later time, no relying party would accept the token
    if len(tally.items) != len(judged.request.submissions) or any(item.since > latest for item in tally.items):
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
    """Return the name of the first member that must equal the current draft's and does not."""
    members: list[tuple[str, object, object]] = [(name, template.header, draft.header) for name in ("alg", "typ")]
    members += [(name, template.terms, draft.terms) for name in ("ver", "iss", "sub", "aud")]
    return next((name for name, ours, theirs in members if getattr(ours, name) != getattr(theirs, name)), None)


def _out_of_bounds(authority: Authority, terms: Terms, use: Use, now: int, draft: Terms) -> str | None:
    """Return the name of the first member with a value that no draft of this request can have had."""
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
