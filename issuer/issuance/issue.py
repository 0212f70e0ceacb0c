"""THE LINE: identity token in, signed verify tokens out; and the protocols that it needs. Pure but for them.

The order is the contract's (section 5): cheap first, side effects last, the log before the signature, the audit before
the answer. The caller's registration is looked up before its body is read: it is cheaper, a stranger's body is never
parsed, and a registered caller's bad body can be counted against it.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from issuer.formats import jose
from issuer import verify_token as token
from issuer.issuance.body import Body, read_body
from issuer.issuance.events import Case, decision_event, refused_event
from issuer.errors import Code, Refused
from issuer.identity.token import LEEWAY_S
from issuer.limits import Limits
from issuer.policy.decide import Denial, Grant, decide
from issuer.policy.disclose import denied
from issuer.policy.match import PolicySet, resolve
from issuer.policy.model import Caller, Party
from issuer.results.entry import Submission

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
    """Take a request up to its draft, before anything is spent for it. `issuer.issuance.explain` goes the same way. Raises as
    `issue` does."""
    request, now = case.request, case.judged_at
    caller = case.caller = await line.authenticator.authenticate(request.bearer, request.source, now)
    party = case.party = resolve(line.policies, caller)
    try:
        raw = await request.read(party)  # a stranger's is not waited for, and holds no place for it
        body = case.body = read_body(request.endpoint, raw)
        check_nonce(caller, body.nonce)
        verdict = decide(party, caller, body.submissions, now, integration=body.integration, audience=body.audience)
        grant = granted(party, verdict)
        draft = draft_template(line, party, caller, grant, now, jti)
        unsigned = token.compose(draft, body.submissions, batch=body.is_batch)
        token.check_size(unsigned, body.submissions)
    except Refused:
        await count_refusal(line.admission, party)
        raise
    return Judged(caller, party, body, grant, draft, unsigned)


# -- what goes in, what comes out -------------------------------------------------------------------------------------


class Judged(Struct, frozen=True):
    """A request that was granted, with everything that it takes to issue."""

    caller: Caller
    party: Party
    body: Body
    grant: Grant
    draft: token.Template
    unsigned: tuple[token.Unsigned, ...]


class IssuedToken(Struct, frozen=True):
    """The answer of `/tokens`. Times are Unix seconds; `entry` is the YAML list item to paste, token included."""

    verify_token: str
    token_type: str
    jti: str
    kid: str
    issued_at: int
    expires_at: int
    claims_digest: str
    content_digest: str
    integration: str
    identity: str
    policy: str
    entry: str
    warnings: tuple[str, ...]


class Issued(Struct, frozen=True):
    """Signed tokens in the order of the submissions; `repeat` where the same request was answered before."""

    tokens: tuple[IssuedToken, ...]
    repeat: bool


# -- the steps --------------------------------------------------------------------------------------------------------


async def audit_refusal(audit: Audit, case: Case, refusal: Refused) -> None:
    """Have the audit see a refusal of an authenticated caller; a stranger must not fill its disk, nor whoever has a
    token of a provider that anybody can have one of."""
    if case.caller is not None and (case.party is not None or not case.request.charged()):
        await audit.record(refused_event(case, case.caller, refusal))


async def count_refusal(admission: Admission, party: Party) -> None:
    """Have the limits and the abuse counters see a refusal; they may refuse first, for a reason of their own."""
    await admission.count(Admit.of(party, refused=True))


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


def granted(party: Party, verdict: Grant | Denial) -> Grant:
    """Return the grant, or raise the refusal that the caller may see."""
    if isinstance(verdict, Denial):
        raise denied(verdict.checks, party.policy)
    return verdict


def draft_template(line: Line, party: Party, caller: Caller, grant: Grant, now: int, jti: str) -> token.Template:
    """Draft the candidate template, to be signed by the active key."""
    return token.draft(
        kid=line.signer.active_kid,
        iss=line.issuer_url,
        sub=party.policy.integration,
        aud=grant.audience,
        now=now,
        ttl_s=grant.ttl_s,
        jti=jti,
        caller=caller.provenance(),
        policy=party.digest,
        log=line.log.origin,
    )


def claim_of_use(line: Line, found: Judged, now: int) -> Admit:
    """Make the admission call that claims one use of the identity, or of its nonce, for this request."""
    caller, party, draft = found.caller, found.party, found.draft
    reusable = caller.provider.rules.reusable
    use = Use(
        record=caller.use_record(found.body.nonce),
        allowed=caller.provider.uses,
        request_digest=found.body.request_digest(party.policy.integration, str(draft.payload["aud"])),
        template=draft.to_bytes(),
        template_exp=draft.exp,
        kid=draft.kid,
        usable_kids=line.signer.usable_kids,
        issued_at=None if reusable else caller.issued_at,
        keep_until=now + NONCE_KEPT_S if reusable else caller.expires_at + LEEWAY_S + RECORD_MARGIN_S,
    )
    return Admit.of(party, cost=len(found.body.submissions), use=use)


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
        integration=found.party.policy.integration,
        identity=found.party.identity.id,
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
    if issued.tokens[0].policy != found.party.digest:
        event["template_policy"] = issued.tokens[0].policy
    return event


# -- what the line needs of the world ---------------------------------------------------------------------------------


class Authenticator(Protocol):
    """Who is calling."""

    async def authenticate(self, bearer: str, source: str, now: int) -> Caller:
        """Verify a credential: form, registered provider, key, signature, times, audience, type; in that order.

        Raises Refused (401, 403 `identity.network_forbidden`, 429 `rate.source`) and Undecided
        (`dependency.issuer_keys`, `dependency.introspection`).
        """
        ...


class Use(Struct, frozen=True):
    """The claim of one use of an identity by one request (contract section 5, uses and retries).

    `record` is the lowercase hex SHA-256 that names the use record; `allowed` its N. `template` is the candidate,
    good until `template_exp` and signed by `kid`. `usable_kids` are the keys that may still sign an earlier template.
    `issued_at` is the presented identity token's iat, judged against the store's epoch; None for a nonce, of which a
    caller could always have made another: a store that forgot one has given nothing away. `keep_until` is the token's
    exp + leeway + margin, or the nonce's end. All times are Unix seconds.
    """

    record: str
    allowed: int
    request_digest: str
    template: bytes
    template_exp: int
    kid: str
    usable_kids: tuple[str, ...]
    issued_at: int | None
    keep_until: int

    @property
    def spent(self) -> Code:
        """What a request is told that finds no use left."""
        return Code.NONCE_REUSED if self.issued_at is None else Code.IDENTITY_REPLAYED


class Admit(Struct, frozen=True):
    """One call of the admission script: who, at what cost, and the use to claim.

    `use` is None for a request that claims none: one that was `refused`, which the abuse counters see, too, or one that
    only asks for an explanation.
    """

    integration: str
    identity: str
    cost: int
    limits: Limits
    use: Use | None
    refused: bool = False

    @classmethod
    def of(cls, party: Party, *, cost: int = 1, use: Use | None = None, refused: bool = False) -> Admit:
        """Make the call of a registered identity."""
        return cls(party.policy.integration, party.identity.id, cost, party.policy.limits, use, refused)


class Admitted(Struct, frozen=True):
    """The template to compose from: the candidate (`repeat` false) or the one that the same request got before."""

    template: bytes
    repeat: bool


class Admission(Protocol):
    """Limits, quarantine, epoch and uses, in one atomic step."""

    async def admit(self, call: Admit) -> Admitted:
        """Claim `call.use`. Raises Refused (`rate.identity`, `rate.integration`, `abuse.quarantined`,
        `identity.replayed`, `nonce.reused`) and Undecided (`dependency.state`, `dependency.state_reset`). When in doubt
        it raises.
        """
        ...

    async def count(self, call: Admit) -> None:
        """Count a request that claims no use. Raises as `admit` does: a limit or a quarantine comes first."""
        ...


class Log(Protocol):
    """The transparency log. Its place is before the signature: a crash leaves an entry without a token, never the
    reverse."""

    @property
    def origin(self) -> str | None:
        """The log's origin line, which the token names; None where there is no log."""
        ...

    async def append(self, signing_inputs: tuple[bytes, ...]) -> None:
        """Make the entries durable; idempotent on a signing input. Raises Undecided(`dependency.log`)."""
        ...


class NoLog:
    """No transparency log is configured: nothing is appended, and tokens name none."""

    origin: str | None = None

    async def append(self, signing_inputs: tuple[bytes, ...]) -> None:
        """Append nothing."""


class Signer(Protocol):
    """The signing keys."""

    @property
    def active_kid(self) -> str:
        """The key that signs new templates."""
        ...

    @property
    def usable_kids(self) -> tuple[str, ...]:
        """The keys that may sign: next, active and retiring."""
        ...

    async def sign(self, kid: str, signing_inputs: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Sign each input with one key. Raises Undecided(`dependency.signer`)."""
        ...


class Audit(Protocol):
    """The audit sink, apart from the log stream."""

    async def record(self, event: dict[str, Any]) -> None:
        """Write one event, durable as the sink is, before the answer leaves. Raises Undecided(`dependency.audit`)."""
        ...


class Line(Struct, frozen=True):
    """Everything that one request meets, put together by the composition root."""

    issuer_url: str
    policies: PolicySet
    authenticator: Authenticator
    admission: Admission
    log: Log
    signer: Signer
    audit: Audit
