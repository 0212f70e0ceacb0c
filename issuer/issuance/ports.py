"""The ports of issuance: a protocol for each room of `service/`, and the values that they exchange. Pure."""

from __future__ import annotations

from typing import Protocol, TypeVar

from msgspec import Struct

from issuer.audit.events import Audit
from issuer.codes import Code
from issuer.errors import Refused
from issuer.identity.token import Caller
from issuer.issuance.steps import Payer, Registered, Steps, StoreSecret
from issuer.limits.abuse import Abuse, Then
from issuer.limits.rate import Limits, RateState
from issuer.policy.match import PolicySet
from issuer.token.verify_token import Template
from issuer.token.wire import LogEntry

T = TypeVar("T")


class Authenticator(Protocol):
    """The authentication of callers."""

    async def authenticate(self, bearer: str, source: str, now: int) -> Caller:
        """Verify a credential: form, registered provider, key, signature, times, audience and type, in that order.

        Raises Refused (401, 403 `identity.network_forbidden`, 429 `rate.source`) and Undecided
        (`dependency.issuer_keys`, `dependency.introspection`).
        """

    def is_over_limit(self, source: str) -> bool:
        """Return whether a source address is over its rate of refused requests."""


class Turns(Protocol):
    """The queue that alternates between the callers' steps of work."""

    async def take(self, payer: Payer, steps: Steps[T]) -> T:
        """Run the steps of one caller's work, alternating with others. Pass on their result or exception."""


class KnownRefusals(Protocol):
    """The known refusals of registered callers, in the memory of this process. They need no store and no body."""

    def refusal(self, registered: Registered) -> Refused | None:
        """Return the known refusal of this caller (`abuse.quarantined`). None leaves the decision to the admission."""

    def learn(self, registered: Registered, error: Refused) -> None:
        """Record a refusal of this caller if it also refuses the caller's next requests."""


# How long a nonce belongs to its request (contract section 5): the longest lifetime of a verify token.
NONCE_KEPT_S = 86_400


class Use(Struct, frozen=True):
    """The claim of one use of an identity by one request (contract section 5, uses and retries).

    `record` is the name of the use record, a lowercase hex SHA-256. `allowed` is its N, or 0 if the request may only be
    a repeat. The candidate template is valid until `template_exp` and signed by `kid`. `usable_kids` are the keys that
    may still sign an earlier template. `issued_at` is the identity token's iat, to compare with the store's epoch. It
    is None for a nonce: losing nonces gives the caller nothing, because it can always make a new one.
    `keep_until` is the token's exp + leeway + margin, or the nonce's end. All times are Unix seconds.
    """

    record: str
    allowed: int
    request_digest: str
    template_exp: int
    kid: str
    usable_kids: tuple[str, ...]
    issued_at: int | None
    keep_until: int

    @property
    def spent(self) -> Code:
        """The code of the refusal if no use is left."""
        return Code.NONCE_REUSED if self.issued_at is None else Code.IDENTITY_REPLAYED


class Presented(Struct, frozen=True):
    """The use record of an identity token whose request claims no use, and the record's N. Once all uses are spent,
    each further presentation is charged to the record, whatever its request."""

    record: str
    allowed: int

    @classmethod
    def of(cls, registered: Registered) -> Presented | None:
        """Return the record of a caller; None for a reusable credential, or if the caller pays from a bucket."""
        caller = registered.caller
        if caller.provider.rules.reusable or registered.bucket is not None:
            return None
        return cls(caller.use_record(""), caller.provider.uses)


class Item(Struct, frozen=True):
    """The hashes of one result for counting, each in the base64url that the store keeps.

    The hashed values are its run key, its twins key (empty if its values are too few or trivial), its set of metric
    values, model repository, model owner and evidence files.
    """

    run: bytes
    twins: bytes
    values: bytes
    repo: bytes
    owner: bytes
    files: tuple[bytes, ...] = ()


class Countable(Struct, frozen=True):
    """The hashes of a request for counting. `run` is the hash of its CI run, or empty."""

    items: tuple[Item, ...]
    run: bytes = b""


class AdmissionRequest(Struct, frozen=True):
    """One call of the admission script: the payer, the cost, the use to claim, and the hashes and rules for counting.

    `use` is None for a request that claims none: a `refused` one, which counts in the rate of refusals, or an
    explanation. `presented` is then the record of its identity token. `candidate` is the sealed template to store with
    a use; without a use it is empty. It replaces the stored template only if that equals `replaces`, the bytes that an
    earlier call returned.
    """

    payer: Payer
    limits: Limits
    cost: int
    use: Use | None = None
    candidate: bytes = b""
    replaces: bytes = b""
    refused: bool = False
    presented: Presented | None = None
    countable: Countable | None = None
    abuse: Abuse = Abuse()

    @classmethod
    def of(
        cls,
        registered: Registered,
        *,
        cost: int = 1,
        use: Use | None = None,
        candidate: bytes = b"",
        refused: bool = False,
        countable: Countable | None = None,
    ) -> AdmissionRequest:
        """Return the call for a registered caller."""
        policy = registered.registration.policy
        return cls(
            registered.payer,
            policy.limits,
            cost,
            use,
            candidate,
            refused=refused,
            presented=Presented.of(registered) if use is None else None,
            countable=countable,
            abuse=policy.abuse,
        )


class Admitted(Struct, frozen=True):
    """The stored template of an admitted request: the candidate, or for a `repeat` the template of the first time.

    `tally` has the counts of that first time (`abuse.read_tally`), or is empty. `rates` are the rates after this
    request, empty for a repeat.
    """

    template: bytes
    repeat: bool
    tally: bytes = b""
    rates: tuple[RateState, ...] = ()


class Counted(Struct, frozen=True):
    """The result of counting a request that claims no use.

    `warnings` say that the identity's refusals come near to a quarantine. `probing` is `warn` if this request has used
    up the first half of the rate of refusals, and `quarantine` if it has begun the quarantine. `tally` has the counts
    as if the request had been admitted.
    """

    warnings: tuple[str, ...] = ()
    tally: bytes = b""
    probing: Then | None = None


class Admission(Protocol):
    """The store of limits, quarantine, epoch and uses, checked in one atomic step."""

    async def admit(self, call: AdmissionRequest) -> Admitted:
        """Claim `call.use`. Raises Refused (`rate.identity`, `rate.integration`, `abuse.quarantined`,
        `identity.replayed`, `nonce.reused`) and Undecided (`dependency.state`, also in any doubt;
        `dependency.state_reset`).
        """

    async def count(self, call: AdmissionRequest) -> Counted:
        """Count a request that claims no use. Raises as `admit` does if a limit or a quarantine refuses it."""


class Log(Protocol):
    """The transparency log. Tokens are appended before they are signed: a crash leaves a leaf without a token, never a
    token without a leaf."""

    @property
    def origin(self) -> str | None:
        """The log's origin line, which the token names; None without a log."""

    async def append(self, template: Template, signing_inputs: tuple[bytes, ...], /) -> tuple[LogEntry, ...]:
        """Append the leaves of tokens to be signed, make them durable, and return their places. Appending a signing
        input again returns the same place.

        The tokens' key and policy are announced in the log first. Raises Undecided (`dependency.log`).
        """

    async def check(self) -> None:
        """Raise Undecided(`dependency.log`) if the log cannot append now."""


class NoLog:
    """The port of a service without a transparency log. Tokens then name no log."""

    origin: str | None = None

    async def append(self, _template: Template, _signing_inputs: tuple[bytes, ...], /) -> tuple[LogEntry, ...]:
        """Return no places."""
        return ()

    async def check(self) -> None:
        """Do nothing."""


class Signer(Protocol):
    """The signing keys."""

    @property
    def active_kid(self) -> str:
        """The key that signs new templates. Raises Undecided(`dependency.signer`) without an active key."""

    @property
    def usable_kids(self) -> tuple[str, ...]:
        """The keys that may sign new tokens and retries: every relying party can know them by now."""

    def max_message_bytes(self, kid: str) -> int:
        """Return the size of the largest signing input that a key signs. Raises Undecided(`dependency.signer`)."""

    async def demand_live(self, kid: str) -> None:
        """Raise Undecided(`dependency.signer`) unless the key has signed within the last minute and not failed since. A
        leaf without a token would look as if somebody had kept the token back."""

    async def sign(self, kid: str, signing_inputs: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Sign each input with one key. Raises Undecided(`dependency.signer`)."""


class Recycled(Protocol):
    """Callers that used a registered name under other ids, in the memory of one process."""

    def count(self, payer: Payer, caller: Caller, now: int) -> int:
        """Count a caller that has the names of the identity `payer`. `now` is Unix seconds.

        Return 0 if it should not be reported now, else how often it came since the last report.
        """


class KeptPolicies(Protocol):
    """All policies that ever decided, by digest."""

    async def keep(self, digest: str) -> None:
        """Keep a policy for ever, because it is about to decide. Raises Undecided(`dependency.audit`)."""

    def integration_of(self, digest: str) -> str | None:
        """Return the integration of a policy; None if the digest is unknown."""


class Revocations(Protocol):
    """The operator's revocations. Relying parties read the same in the signed list (contract section 6)."""

    def reason(self, jti: str, sub: str, iat: int) -> str:
        """Return why a token is revoked, or "" if it is not. `jti` is "" for a token that is not drafted yet.

        `sub` is the integration, `iat` Unix seconds.
        """


class Authority(Struct, frozen=True):
    """Everything that the steps of issuance use, put together by the composition root (`service/app.py`)."""

    issuer_url: str
    policies: PolicySet
    authenticator: Authenticator
    standing: KnownRefusals
    turns: Turns
    admission: Admission
    log: Log
    signer: Signer
    audit: Audit
    secret: StoreSecret
    kept: KeptPolicies
    revocations: Revocations
    recycled: Recycled
