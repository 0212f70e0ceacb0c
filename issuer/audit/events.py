"""The events of the audit file, for the service that writes them and the commands that read them. Pure.

deploy/AUDIT.md describes them. A decision has enough to decide it again under another policy. It never has a token, a
command, or a metric's value that rules do not read. Members may be added; readers ignore unknown members.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Protocol

from msgspec import UNSET, Meta, Struct, UnsetType

from issuer.codes import Code
from issuer.formats.strict_json import Scalar
from issuer.formats.times import UnixTime
from issuer.limits.abuse import Name, Tally, Then

# The limits of the contract (section 2), which a reader also demands.
_Name = Annotated[str, Meta(max_length=256)]
_Version = Annotated[str, Meta(max_length=64)]

MAX_EVENT_BYTES = 16 * 1024  # of a decision, with its line feed (contract section 5)
# Refusals that cost the caller almost nothing: the first gets an event, further ones are counted each minute.
COUNTED = frozenset({
    Code.RATE_SOURCE, Code.RATE_IDENTITY, Code.RATE_INTEGRATION, Code.ABUSE_QUARANTINED, Code.INTEGRATION_SUSPENDED,
    Code.INTEGRATION_STOPPED,
    Code.REQUEST_TOO_LARGE, Code.REQUEST_TIMEOUT,
})  # fmt: skip


class Link(Struct, frozen=True, kw_only=True):
    """The members of every line: the version of its format, and its place in the chain of the process that wrote it.
    `worker` is that process's random id, `seq` the number of the event, from 1, `prev` the SHA-256 of the line before.
    All are unset until the event is written. A version may gain members; readers skip lines of unknown versions."""

    version: Literal[1] | UnsetType = UNSET
    worker: str | UnsetType = UNSET
    seq: int | UnsetType = UNSET
    prev: str | UnsetType = UNSET


class CallerRead(Struct, frozen=True):
    """The claims of a caller that rules read: the `claims` that are short scalars, and the names of `absent` ones. A
    structured or long claim is in neither, so its rule cannot be decided again."""

    provider: str
    issuer: str
    claims: dict[str, Scalar]
    absent: tuple[str, ...]


class MetricRead(Struct, frozen=True):
    """A metric. `value` is set only if a rule reads it."""

    metric_id: _Name
    slice: _Name | UnsetType = UNSET
    value: float | UnsetType = UNSET


class FrameworkRead(Struct, frozen=True):
    """The framework of a run."""

    name: _Name
    version: _Version


class ResultRead(Struct, frozen=True):
    """The members of one result that a decision reads. `has_command` is set if a rule asks for it."""

    model_repo: _Name
    model_revision: _Name
    benchmark_repo: _Name
    benchmark_revision: _Name
    task_id: _Name
    metrics: tuple[MetricRead, ...]
    framework: FrameworkRead
    has_command: bool | UnsetType = UNSET


class Named(Struct, frozen=True, omit_defaults=True):
    """The integration and audience that a request names."""

    integration: str = ""
    audience: str = ""


class RequestCounts(Struct, frozen=True):
    """The numbers of results, metrics and distinct `subjects` (model, benchmark, their commits, task) of a request."""

    results: int
    metrics: int
    subjects: int


Verdict = Literal["issued", "repeated", "granted", "refused"]


class Decision(Link, frozen=True, tag_field="event", tag="decision"):
    """One decision. `integration`, `identity` and `policy` are set if the caller is registered, `named` and `results`
    if the service also read its body. `code` and `failed` belong to a refusal, the members after them to an issuance.

    If `results` would be too large, `counts` and `results_digest` replace it: the digest of the JCS array of
    `[claims_digest, content_digest]` of each result. `bucket` is set if the caller only resembles the identity.
    `template_policy` is set if a repeat's template is from another policy than today's. `forged` is set if the store
    had a record for this request that the service never made, and says what was wrong with it. `counted` has the
    counts of the admission.
    """

    time: UnixTime
    request_id: str
    endpoint: str
    caller: CallerRead
    verdict: Verdict
    integration: str | UnsetType = UNSET
    identity: str | UnsetType = UNSET
    policy: str | UnsetType = UNSET
    named: Named | UnsetType = UNSET
    results: tuple[ResultRead, ...] | UnsetType = UNSET
    counts: RequestCounts | UnsetType = UNSET
    results_digest: str | UnsetType = UNSET
    bucket: int | UnsetType = UNSET
    code: str | UnsetType = UNSET
    failed: tuple[str, ...] | UnsetType = UNSET
    kid: str | UnsetType = UNSET
    jti: tuple[str, ...] | UnsetType = UNSET
    content_digest: tuple[str, ...] | UnsetType = UNSET
    claims_digest: tuple[str, ...] | UnsetType = UNSET
    template_policy: str | UnsetType = UNSET
    forged: str | UnsetType = UNSET
    counted: Tally | UnsetType = UNSET


class RefusalsCounted(Link, frozen=True, tag_field="event", tag="refusals"):
    """Counts, by code, of the refusals from `since` to `time` that did not get events. They are of one identity or one
    of its buckets; or, without an identity, of all unregistered callers of a provider; or, without either, of all
    callers beyond the maximum number of accounts."""

    time: UnixTime
    since: UnixTime
    codes: dict[str, int]
    provider: str | UnsetType = UNSET
    integration: str | UnsetType = UNSET
    identity: str | UnsetType = UNSET
    bucket: int | UnsetType = UNSET


# The counts of an identity; its refusals; and a registered name that another caller has now.
SignalName = Literal[Name, "probing", "recycled"]


class AbuseSignal(Link, frozen=True, tag_field="event", tag="abuse_signal"):
    """An abuse rule that a registered identity has crossed, and the consequence (`then`). `count` is above `limit`;
    `rule` is the rule's place in the policy. `results` are the indexes of the results in the request; empty if the
    signal is about all of it. `repeat` is set if the service had answered the same request before.

    `recycled` is not a rule of the policy: `caller` has the registered name of `integration` and `identity` under other
    immutable ids, and has come `count` times since the last such signal.
    """

    time: UnixTime
    request_id: str
    signal: SignalName
    then: Then
    integration: str
    identity: str
    rule: str
    count: int
    limit: int
    results: tuple[int, ...] = ()
    repeat: bool = False
    caller: CallerRead | UnsetType = UNSET


class AbuseOrdered(Link, frozen=True, tag_field="event", tag="abuse_ordered"):
    """An operator's order to quarantine or release an identity; written before the order takes effect."""

    time: UnixTime
    order: Literal["quarantine", "release"]
    integration: str
    identity: str
    until: UnixTime
    who: str
    why: str


class PoliciesLoaded(Link, frozen=True, tag_field="event", tag="policies_loaded"):
    """New policies are in force: `policies` is the digest of all, `changed` and `removed` say which changed."""

    time: UnixTime
    policies: str
    changed: dict[str, list[str]]
    removed: list[str]


class PoliciesRefused(Link, frozen=True, tag_field="event", tag="policies_refused"):
    """The folder of policies was refused, with the code and the place, never the content. The policies of the digest
    `policies` stay in force. The `narrowed` integrations lose at once the rights that the new folder does not grant."""

    time: UnixTime
    policies: str
    code: str
    file: str
    line: int
    column: int
    narrowed: list[str] = []


class ProviderKeysStale(Link, frozen=True, tag_field="event", tag="provider_keys_stale", omit_defaults=True):
    """A provider cannot be reached, and the keys that it published at `fetched_at` stay in use, for at most a day. If
    `over` is set, the provider has been reached again. Each process writes its own event."""

    time: UnixTime
    provider: str
    issuer: str
    fetched_at: UnixTime
    over: bool = False


class KeysLoaded(Link, frozen=True, tag_field="event", tag="keys_loaded"):
    """New keys are in force: the state of each by its kid. `waiting` has keys in active/ that do not sign yet: the time
    from which each may sign, or null if not every host has published it."""

    time: UnixTime
    keys: Mapping[str, str]
    waiting: Mapping[str, UnixTime | None] | UnsetType = UNSET


class KeysRefused(Link, frozen=True, tag_field="event", tag="keys_refused"):
    """The folders of keys were refused. `keys` stay in use: the previous keys without those that are gone."""

    time: UnixTime
    keys: Mapping[str, str]
    code: str


class StopsLoaded(Link, frozen=True, tag_field="event", tag="stops_loaded"):
    """These emergency stops are in force. `stops` names their targets. `everything` is set if a signal stopped all."""

    time: UnixTime
    digest: str
    stops: list[str]
    everything: bool


class RevocationsLoaded(Link, frozen=True, tag_field="event", tag="revocations_loaded"):
    """The numbers of tokens (`jti`) and of intervals of integrations (`sub`) that are now revoked in this process."""

    time: UnixTime
    jti: int
    sub: int


class LogAccepted(Link, frozen=True, tag_field="event", tag="log_accepted"):
    """An operator's statement, in place of a lost record: the checkpoint of `size` leaves with this `root` (hex) is the
    latest of the log `origin` that anyone has seen."""

    time: UnixTime
    origin: str
    size: int
    root: str
    who: str
    why: str


class LoggedNotSigned(Link, frozen=True, tag_field="event", tag="logged_not_signed"):
    """Leaves of the log without tokens: the key `kid` did not sign after they were appended. `leaves` are their
    indexes, one for each `jti`. If the caller sends the request again, it gets the tokens of these leaves."""

    time: UnixTime
    request_id: str
    integration: str
    identity: str
    kid: str
    jti: tuple[str, ...]
    leaves: tuple[int, ...]


Event = (
    Decision
    | RefusalsCounted
    | AbuseSignal
    | AbuseOrdered
    | PoliciesLoaded
    | PoliciesRefused
    | KeysLoaded
    | KeysRefused
    | StopsLoaded
    | RevocationsLoaded
    | ProviderKeysStale
    | LogAccepted
    | LoggedNotSigned
)


class Audit(Protocol):
    """The port of the audit, which is separate from the log stream."""

    async def record(self, event: Event) -> None:
        """Write one event, before the answer leaves. Raises Undecided(`dependency.audit`)."""
        ...

    async def refuse(self, refused: Decision) -> None:
        """Write a refusal, or count it if its caller has had many: counts are written each minute. Raises
        Undecided(`dependency.audit`)."""
        ...
