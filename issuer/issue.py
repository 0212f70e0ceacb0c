"""THE LINE: identity token in, signed verify tokens out; and the protocols that it needs. Pure but for them.

The order is the contract's (section 5): cheap first, side effects last, the log before the signature, the audit before
the answer. The caller's registration is looked up before its body is read: it is cheaper, a stranger's body is never
parsed, and a registered caller's bad body can be counted against it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from msgspec import Struct

from issuer import jose, token
from issuer.body import Body, Endpoint, read_body
from issuer.errors import Refused
from issuer.limits import Limits
from issuer.policy.decide import Denial, Grant, decide
from issuer.policy.match import PolicySet, resolve
from issuer.policy.model import Caller, Party
from issuer.results.entry import Submission, write_entry
from issuer.strict_json import JSON

# How far a provider's clock may be off: one constant for the decoder and for the life of the use record.
LEEWAY_S = 30
# How much longer a use record lives than the identity token that it spends.
RECORD_MARGIN_S = 60


async def issue(line: Line, request: Request, now: int, jti: str) -> Issued:
    """Answer one request for verify tokens. `now` is Unix seconds, `jti` 16 fresh random bytes in base64url.

    Raises Refused (decided no; audited, if the caller is authenticated) and Undecided (nobody decided; try again).
    """
    caller = await line.authenticator.authenticate(request.bearer, request.source, now)
    party: Party | None = None
    body: Body | None = None
    try:
        party = resolve(line.policies, caller)
        async with refusals_counted(line.admission, party):
            body = read_body(request.endpoint, request.body)
            verdict = decide(party, caller, body.submissions, now, integration=body.integration, audience=body.audience)
            grant = granted(verdict)
            template = draft_template(line, party, caller, grant, now, jti)
            unsigned = token.compose(template, body.submissions, batch=body.is_batch)
            token.check_size(unsigned, body.submissions)
        admitted = await line.admission.admit(claim_of_use(line, party, caller, body, template))
    except Refused as refusal:
        await line.audit.record(refused_event(request, caller, party, body, refusal, now))
        raise
    if admitted.repeat:  # not this request's draft, but that of the first time
        template = token.template_from(admitted.template)
        unsigned = token.compose(template, body.submissions, batch=body.is_batch)
    await line.log.append(tuple(item.signing_input for item in unsigned))
    signatures = await line.signer.sign(template.kid, tuple(item.signing_input for item in unsigned))
    issued = Issued(answers(party, grant, body, template, unsigned, signatures), admitted.repeat)
    await line.audit.record(issued_event(request, caller, party, body, issued, now))
    return issued


# -- what goes in, what comes out -------------------------------------------------------------------------------------


class Request(Struct, frozen=True):
    """A request as the edge read it. `bearer` is the credential, not yet parsed; `source` the address it came from."""

    id: str
    endpoint: Endpoint
    bearer: str
    body: bytes
    source: str


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


@asynccontextmanager
async def refusals_counted(admission: Admission, party: Party) -> AsyncIterator[None]:
    """Have the limits and the abuse counters see a refusal; they may refuse first, for a reason of their own."""
    try:
        yield
    except Refused:
        await admission.count(_call(party, cost=1, use=None))
        raise


def granted(verdict: Grant | Denial) -> Grant:
    """Return the grant, or raise the refusal that the caller may see."""
    if isinstance(verdict, Denial):
        raise verdict.refusal()
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


def claim_of_use(line: Line, party: Party, caller: Caller, body: Body, draft: token.Template) -> Admit:
    """Make the admission call that claims one use of the identity for this request."""
    use = Use(
        record=caller.use_record,
        allowed=caller.provider.uses,
        request_digest=body.request_digest(party.policy.integration, str(draft.payload["aud"])),
        template=draft.to_bytes(),
        template_exp=draft.exp,
        kid=draft.kid,
        usable_kids=line.signer.usable_kids,
        issued_at=caller.issued_at,
        keep_until=caller.expires_at + LEEWAY_S + RECORD_MARGIN_S,
    )
    return _call(party, cost=len(body.submissions), use=use)


def _call(party: Party, cost: int, use: Use | None) -> Admit:
    return Admit(party.policy.integration, party.identity.id, cost, party.policy.limits, use)


def answers(
    party: Party,
    grant: Grant,
    body: Body,
    template: token.Template,
    unsigned: tuple[token.Unsigned, ...],
    signatures: tuple[bytes, ...],
) -> tuple[IssuedToken, ...]:
    """Put tokens and entries together, in the order of the submissions."""
    return tuple(
        _answer(party, grant, submission, template, item.jti, jose.compact(item.signing_input, signature))
        for submission, item, signature in zip(body.submissions, unsigned, signatures, strict=True)
    )


def _answer(
    party: Party, grant: Grant, submission: Submission, template: token.Template, jti: str, signed: str
) -> IssuedToken:
    return IssuedToken(
        verify_token=signed,
        token_type=jose.TOKEN_TYPE,
        jti=jti,
        kid=template.kid,
        issued_at=int(template.payload["iat"]),
        expires_at=template.exp,
        claims_digest=submission.claims_digest,
        content_digest=submission.content_digest,
        integration=party.policy.integration,
        identity=party.identity.id,
        policy=str(template.payload["policy"]),
        entry=write_entry(submission.form, signed),
        warnings=grant.warnings,
    )


# -- audit events -----------------------------------------------------------------------------------------------------


def refused_event(
    request: Request, caller: Caller, party: Party | None, body: Body | None, refusal: Refused, now: int
) -> dict[str, Any]:
    """Tell a refusal: what was read, and the code."""
    return {**_event(request, caller, party, body, now), "verdict": "refused", "code": str(refusal.code)}


def issued_event(
    request: Request, caller: Caller, party: Party, body: Body, issued: Issued, now: int
) -> dict[str, Any]:
    """Tell an issuance; `template_policy` is there where a repeat was drafted under another policy than today's."""
    event = _event(request, caller, party, body, now)
    event |= {
        "verdict": "repeated" if issued.repeat else "issued",
        "kid": issued.tokens[0].kid,
        "jti": [item.jti for item in issued.tokens],
        "content_digest": [item.content_digest for item in issued.tokens],
    }
    if issued.tokens[0].policy != party.digest:
        event["template_policy"] = issued.tokens[0].policy
    return event


def _event(request: Request, caller: Caller, party: Party | None, body: Body | None, now: int) -> dict[str, Any]:
    event: dict[str, Any] = {"time": now, "request_id": request.id, "endpoint": request.endpoint}
    event["caller"] = {**caller.provenance(), **caller.shown(_claims_read(caller, party))}
    if party is not None:
        event |= {"integration": party.policy.integration, "identity": party.identity.id, "policy": party.digest}
    if body is not None:
        event["results"] = [_result_read(submission) for submission in body.submissions]
    return event


def _claims_read(caller: Caller, party: Party | None) -> list[str]:
    """Return the identity claims that the decision read."""
    rules = caller.provider.rules
    names = [*rules.pins, *rules.names, *([rules.event_claim] if rules.event_claim else [])]
    return names if party is None else [*names, *party.identity.pins, *party.identity.require]


def _result_read(submission: Submission) -> dict[str, JSON]:
    """Return what the decision read of a result: never a metric's value, never the command."""
    claims = submission.claims
    return {
        "model_repo": claims.model_repo,
        "model_revision": claims.model_revision,
        "benchmark_repo": claims.benchmark_repo,
        "benchmark_revision": claims.benchmark_revision,
        "task_id": claims.task_id,
        "metric_ids": [metric.metric_id for metric in claims.metrics],
        "framework": {"name": claims.framework.name, "version": claims.framework.version},
    }


# -- what the line needs of the world ---------------------------------------------------------------------------------


class Authenticator(Protocol):
    """Who is calling."""

    async def authenticate(self, bearer: str, source: str, now: int) -> Caller:
        """Verify a credential: form, registered issuer, key, signature, times, audience, type; in that order.

        Raises Refused (401, or 429 `rate.source`) and Undecided (`dependency.issuer_keys`).
        """
        ...


class Use(Struct, frozen=True):
    """The claim of one use of an identity by one request (contract section 5, uses and retries).

    `record` is the lowercase hex SHA-256 that names the use record; `allowed` its N. `template` is the candidate,
    good until `template_exp` and signed by `kid`. `usable_kids` are the keys that may still sign an earlier template.
    `issued_at` is the presented token's iat, judged against the store's epoch; `keep_until` its exp + leeway + margin.
    All times are Unix seconds.
    """

    record: str
    allowed: int
    request_digest: str
    template: bytes
    template_exp: int
    kid: str
    usable_kids: tuple[str, ...]
    issued_at: int
    keep_until: int


class Admit(Struct, frozen=True):
    """One call of the admission script: who, at what cost, and the use to claim. `use` is None for a refused request,
    which the limits and the abuse counters see all the same."""

    integration: str
    identity: str
    cost: int
    limits: Limits
    use: Use | None


class Admitted(Struct, frozen=True):
    """The template to compose from: the candidate (`repeat` false) or the one that the same request got before."""

    template: bytes
    repeat: bool


class Admission(Protocol):
    """Limits, quarantine, epoch and uses, in one atomic step."""

    async def admit(self, call: Admit) -> Admitted:
        """Claim `call.use`. Raises Refused (`rate.identity`, `rate.integration`, `abuse.quarantined`,
        `identity.replayed`) and Undecided (`dependency.state`, `dependency.state_reset`). When in doubt it raises.
        """
        ...

    async def count(self, call: Admit) -> None:
        """Count a refused request (`call.use` is None). Raises as `admit` does: a limit or a quarantine comes first."""
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
