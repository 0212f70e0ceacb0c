"""What the line needs of the world: a protocol for each room of `service/`, and the values that they exchange. Pure."""

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
    """Who is calling."""

    async def authenticate(self, bearer: str, source: str, now: int) -> Caller:
        """Verify a credential: form, registered provider, key, signature, times, audience, type; in that order.

        Raises Refused (401, 403 `identity.network_forbidden`, 429 `rate.source`) and Undecided
        (`dependency.issuer_keys`, `dependency.introspection`).
        """
        ...

    def is_over_limit(self, source: str) -> bool:
        """Say whether an address was refused too often recently."""
        ...


class Turns(Protocol):
    """Whose work is next: the steps of all callers' work, in turn."""

    async def take(self, payer: Payer, steps: Steps[T]) -> T:
        """Take the steps of one caller's work, with others' in between. Returns and raises what they do."""
        ...


class Standing(Protocol):
    """What this process knows against a registered caller, whatever it asks for: no call to the store, no body."""

    def refusal(self, registered: Registered) -> Refused | None:
        """Return the refusal that is known now (`abuse.quarantined`), or None: then the admission is asked."""
        ...

    def learn(self, registered: Registered, error: Refused) -> None:
        """Take note of how a request of this caller was refused; what says nothing of the next one is passed over."""
        ...


# How long a nonce names its request (contract section 5): as long as the longest verify token lives.
NONCE_KEPT_S = 86_400


class Use(Struct, frozen=True):
    """The claim of one use of an identity by one request (contract section 5, uses and retries).

    `record` is the lowercase hex SHA-256 that names the use record; `allowed` its N, or 0 for a request that may only
    repeat. The candidate template is good until `template_exp` and signed by `kid`. `usable_kids` are the keys that may
    still sign an earlier template. `issued_at` is the presented identity token's iat, judged against the store's epoch;
    None for a nonce: its caller could always have made another, so a store that forgot one gives nothing away.
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
        """The code for a request that finds no use left."""
        return Code.NONCE_REUSED if self.issued_at is None else Code.IDENTITY_REPLAYED


class Presented(Struct, frozen=True):
    """The use record of an identity token, and its N, where no use is claimed of it: once all are spent, who presents
    it again pays from its record, whatever is asked."""

    record: str
    allowed: int

    @classmethod
    def of(cls, registered: Registered) -> Presented | None:
        """Return that of a caller; None for a reusable identity, and for who only resembles one."""
        caller = registered.caller
        if caller.provider.rules.reusable or registered.bucket is not None:
            return None
        return cls(caller.use_record(""), caller.provider.uses)


class Item(Struct, frozen=True):
    """One result as it is counted, in hashes: its run key and, empty where its values are too few or trivial, its
    twins' key, both of this identity alone; its set of metric values, model repository, model owner, and evidence
    files. Each is the base64url that the store keeps."""

    run: bytes
    twins: bytes
    values: bytes
    repo: bytes
    owner: bytes
    files: tuple[bytes, ...] = ()


class Countable(Struct, frozen=True):
    """What the store counts of a request. `run` is the hash of its CI run, or empty."""

    items: tuple[Item, ...]
    run: bytes = b""


class AdmissionRequest(Struct, frozen=True):
    """One call of the admission script: who pays, how much, the use to claim, and what is counted by which rules.

    `use` is None for a request that claims none: a `refused` one, which the refusals rate counts, or one that only asks
    for an explanation; `presented` is the token that it came with. `candidate` is the template to keep with a use, as
    it is to be stored, and empty without one. It takes the place of `replaces`, where this is what the store keeps for
    the same request: bytes that a call before this one returned.
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
        """Make the call of a registered caller."""
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
    """What the store keeps for the request: the candidate, or (`repeat`) what was kept for it the first time.

    `tally` was counted the first time (`abuse.read_tally`; empty where nothing was), `rates` are as this request leaves
    them, empty for a repeat.
    """

    template: bytes
    repeat: bool
    tally: bytes = b""
    rates: tuple[RateState, ...] = ()


class Counted(Struct, frozen=True):
    """A request that claims no use was counted: `warnings` where its refusals have come near to a quarantine, and
    `probing` where this one has used up the first half of their rate (`warn`), or has begun it (`quarantine`). `tally`
    is as if it had been admitted."""

    warnings: tuple[str, ...] = ()
    tally: bytes = b""
    probing: Then | None = None


class Admission(Protocol):
    """Limits, quarantine, epoch and uses, in one atomic step."""

    async def admit(self, call: AdmissionRequest) -> Admitted:
        """Claim `call.use`. Raises Refused (`rate.identity`, `rate.integration`, `abuse.quarantined`,
        `identity.replayed`, `nonce.reused`) and Undecided (`dependency.state`, `dependency.state_reset`, also in any
        doubt).
        """
        ...

    async def count(self, call: AdmissionRequest) -> Counted:
        """Count a request that claims no use. Raises as `admit` does where a limit or a quarantine refuses it."""
        ...


class Log(Protocol):
    """The transparency log. It comes before the signature: a crash leaves an entry without a token, never the
    reverse."""

    @property
    def origin(self) -> str | None:
        """The log's origin line, which the token names; None without a log."""
        ...

    async def append(self, template: Template, signing_inputs: tuple[bytes, ...], /) -> tuple[LogEntry, ...]:
        """Make the entries of tokens to be signed durable, and return the place of each; idempotent on a signing input.

        What the tokens rest on, their key and their policy, is announced before them. Raises Undecided
        (`dependency.log`).
        """
        ...

    async def check(self) -> None:
        """Raise Undecided(`dependency.log`) where nothing could be appended now."""
        ...


class NoLog:
    """The absence of a transparency log: nothing is appended, and tokens name no log."""

    origin: str | None = None

    async def append(self, _template: Template, _signing_inputs: tuple[bytes, ...], /) -> tuple[LogEntry, ...]:
        """Append nothing, and so return no places."""
        return ()

    async def check(self) -> None:
        """Do nothing: what is not there cannot fail."""


class Signer(Protocol):
    """The signing keys."""

    @property
    def active_kid(self) -> str:
        """The key that signs new templates. Raises Undecided(`dependency.signer`) where there is none now."""
        ...

    @property
    def usable_kids(self) -> tuple[str, ...]:
        """The keys that may sign, new tokens and retries: those that every relying party can know by now."""
        ...

    def max_message_bytes(self, kid: str) -> int:
        """Return the largest signing input that a key signs. Raises Undecided(`dependency.signer`)."""
        ...

    async def sign(self, kid: str, signing_inputs: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Sign each input with one key. Raises Undecided(`dependency.signer`)."""
        ...


class Recycled(Protocol):
    """Who has been seen with a registered name that is not its own; of one process."""

    def count(self, payer: Payer, caller: Caller, now: int) -> int:
        """Count a caller that has the names of the identity `payer`. `now` is Unix seconds.

        Returns how often it has come since it was told before where it is to be told now, 0 where it is not.
        """
        ...


class KeptPolicies(Protocol):
    """Every policy that ever decided, under its digest."""

    def integration_of(self, digest: str) -> str | None:
        """Say whose policy this is; None where nothing is kept under this digest."""
        ...


class Revocations(Protocol):
    """What the operator has taken back. Relying parties read the same in the signed list (contract section 6)."""

    def reason(self, jti: str, sub: str, iat: int) -> str:
        """Return why a token is revoked, or "" where it is not; a `jti` of "" is that of a token to come.

        `sub` is the integration, `iat` Unix seconds.
        """
        ...


class Authority(Struct, frozen=True):
    """Everything that a request meets on the line, put together by the composition root (`service/app.py`)."""

    issuer_url: str
    policies: PolicySet
    authenticator: Authenticator
    standing: Standing
    turns: Turns
    admission: Admission
    log: Log
    signer: Signer
    audit: Audit
    secret: StoreSecret
    kept: KeptPolicies
    revocations: Revocations
    recycled: Recycled
