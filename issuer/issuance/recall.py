"""A template that the store gives back, and how far it is believed. Pure.

Who writes to the store must not have anything signed that this request does not ask for (contract section 5, uses and
retries). So what comes back counts only under our own HMAC, and then only where it is what this very request could have
had drafted: the seal's key may have leaked.
"""

from __future__ import annotations

from issuer.abuse import NOTHING_COUNTED, Tally, read_tally
from issuer.codes import Code
from issuer.errors import Undecided
from issuer.issuance.ports import NONCE_KEPT_S, Admitted, Authority, Use
from issuer.issuance.signals import Signals
from issuer.issuance.steps import Forged, Judged
from issuer.verify_token import COUNT_LEEWAY_S, MAX_TTL_S, Template, Terms, is_jti, read_template

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
