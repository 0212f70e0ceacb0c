"""The events of the audit file, declared once: the service writes them, `issuer audit` and `issuer policy plan` read
them. Pure.

deploy/AUDIT.md describes them. A decision holds enough to judge it again, and never a token, a command or a metric's
value that no rule reads. Members may be added; readers pass over those that they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Protocol

from msgspec import UNSET, Meta, Struct, UnsetType

from issuer.codes import Code
from issuer.formats.strict_json import Scalar
from issuer.formats.times import UnixTime
from issuer.limits.abuse import Name, Tally, Then

# A reader's bounds: no judged run has a longer name or version (contract section 2).
_Name = Annotated[str, Meta(max_length=256)]
_Version = Annotated[str, Meta(max_length=64)]


# A decision in the file, its line end included (contract section 5).
MAX_EVENT_BYTES = 16 * 1024
# Refusals that cost their sender next to nothing: the first is told at once, the others are counted by the minute.
COUNTED = frozenset({
    Code.RATE_SOURCE, Code.RATE_IDENTITY, Code.RATE_INTEGRATION, Code.ABUSE_QUARANTINED, Code.INTEGRATION_SUSPENDED,
    Code.INTEGRATION_STOPPED,
    Code.REQUEST_TOO_LARGE, Code.REQUEST_TIMEOUT,
})  # fmt: skip


class Link(Struct, frozen=True, kw_only=True):
    """What every line has: the version of its form, and its place in the chain of the process that wrote it: that
    process's random id, the number of the event, from 1, and the SHA-256 of the line before. Unset until it is written.

    Members may be added under one version; a line of another one is no event to who does not know it.
    """

    version: Literal[1] | UnsetType = UNSET
    worker: str | UnsetType = UNSET
    seq: int | UnsetType = UNSET
    prev: str | UnsetType = UNSET


class CallerRead(Struct, frozen=True):
    """What was read of a caller: the `claims` that are short scalars, and the names of `absent` ones. A structured or
    long claim is in neither: its rule cannot be judged again."""

    provider: str
    issuer: str
    claims: dict[str, Scalar]
    absent: tuple[str, ...]


class MetricRead(Struct, frozen=True):
    """A metric; its `value` only where a rule reads it."""

    metric_id: _Name
    slice: _Name | UnsetType = UNSET
    value: float | UnsetType = UNSET


class FrameworkRead(Struct, frozen=True):
    """The framework of a run."""

    name: _Name
    version: _Version


class ResultRead(Struct, frozen=True):
    """What a decision read of one result; `has_command` where a rule asks for it."""

    model_repo: _Name
    model_revision: _Name
    benchmark_repo: _Name
    benchmark_revision: _Name
    task_id: _Name
    metrics: tuple[MetricRead, ...]
    framework: FrameworkRead
    has_command: bool | UnsetType = UNSET


class Named(Struct, frozen=True, omit_defaults=True):
    """What a request itself names."""

    integration: str = ""
    audience: str = ""


class Counts(Struct, frozen=True):
    """How many results and metrics a request has, and how many different `subjects`: model, benchmark, their commits,
    task."""

    results: int
    metrics: int
    subjects: int


Verdict = Literal["issued", "repeated", "granted", "refused"]


class Decision(Link, frozen=True, tag_field="event", tag="decision"):
    """One decision. `integration`, `identity` and `policy` are set where the caller is registered, `named` and
    `results` where its body was read too; `code` and `failed` for a refusal, the rest for an issuance.

    Where `results` would be too large, `counts` and `results_digest` are in their place: the digest of the JCS array
    of `[claims_digest, content_digest]` of each. `bucket` is set where the caller only resembles the identity.
    `template_policy` is set where a repeat was drafted under another policy than today's, `forged` where the store kept
    for this request what this service never made: it says what was wrong with it. `counted` is what the admission has
    counted for it.
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
    counts: Counts | UnsetType = UNSET
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
    """Refusals from `since` to `time` that have no event of their own, by their codes, of one who pays: an identity,
    one of its buckets, or without an identity everybody who is registered nowhere and comes from this provider. Without
    a provider either: of those for whom there was no room to be counted apart."""

    time: UnixTime
    since: UnixTime
    codes: dict[str, int]
    provider: str | UnsetType = UNSET
    integration: str | UnsetType = UNSET
    identity: str | UnsetType = UNSET
    bucket: int | UnsetType = UNSET


# What is counted of an identity, its refusals, and a name that somebody else has now.
SignalName = Literal[Name, "probing", "recycled"]


class AbuseSignal(Link, frozen=True, tag_field="event", tag="abuse_signal"):
    """One rule that a registered identity has crossed, and what follows from it (`then`): `count` where `limit` is the
    most, `rule` its place in the policy. `results` are the indexes of the results that it is about, in the order of the
    request, empty where it is about all of it; `repeat` where the same request was answered before.

    `recycled` is no rule of the policy: `caller` has the registered name of `integration` and `identity` under other
    immutable ids, and has come `count` times since it was told before.
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
    """`who` has quarantined or released an identity, `until` when and `why`; written before it is in force."""

    time: UnixTime
    order: Literal["quarantine", "release"]
    integration: str
    identity: str
    until: UnixTime
    who: str
    why: str


class PoliciesLoaded(Link, frozen=True, tag_field="event", tag="policies_loaded"):
    """From now on these policies decide: the digest of all, and the changed ones by integration."""

    time: UnixTime
    policies: str
    changed: dict[str, list[str]]
    removed: list[str]


class PoliciesRefused(Link, frozen=True, tag_field="event", tag="policies_refused"):
    """The folder of policies was refused, and those of the digest `policies` go on deciding, without what it has taken
    away from the `narrowed` integrations: the code and the place, never the content."""

    time: UnixTime
    policies: str
    code: str
    file: str
    line: int
    column: int
    narrowed: list[str] = []


class ProviderKeysStale(Link, frozen=True, tag_field="event", tag="provider_keys_stale", omit_defaults=True):
    """The keys that a provider published at `fetched_at` verify on although it cannot be reached, for at most a day; or
    that is `over`: it was reached. Of one process."""

    time: UnixTime
    provider: str
    issuer: str
    fetched_at: UnixTime
    over: bool = False


class KeysLoaded(Link, frozen=True, tag_field="event", tag="keys_loaded"):
    """From now on these keys sign: each one's state by its kid. What is in `waiting` lies in active/ and does not sign
    yet: from when it may, or null where not every host has published it."""

    time: UnixTime
    keys: Mapping[str, str]
    waiting: Mapping[str, UnixTime | None] | UnsetType = UNSET


class KeysRefused(Link, frozen=True, tag_field="event", tag="keys_refused"):
    """The folders of keys are not fit, and `keys` go on: those of before, without any that is gone."""

    time: UnixTime
    keys: Mapping[str, str]
    code: str


class StopsLoaded(Link, frozen=True, tag_field="event", tag="stops_loaded"):
    """From now on these emergency stops are in force, by what they stop; `everything`: a signal stopped it."""

    time: UnixTime
    digest: str
    stops: list[str]
    everything: bool


class RevocationsLoaded(Link, frozen=True, tag_field="event", tag="revocations_loaded"):
    """From now on so many tokens (`jti`) and intervals of integrations (`sub`) are revoked in this process."""

    time: UnixTime
    jti: int
    sub: int


class LogAccepted(Link, frozen=True, tag_field="event", tag="log_accepted"):
    """`who` has said, and `why`, that nobody has seen a later checkpoint of the log `origin` than that of `size` leaves
    with this `root` (hex): no record was left to say it."""

    time: UnixTime
    origin: str
    size: int
    root: str
    who: str
    why: str


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
)


class Audit(Protocol):
    """The port of the audit: where events are written, apart from the log stream."""

    async def record(self, event: Event) -> None:
        """Write one event, before the answer leaves. Raises Undecided(`dependency.audit`)."""
        ...

    async def refuse(self, refused: Decision) -> None:
        """Write a refusal, or count it where its caller has had many: counts are written by the minute.

        Raises Undecided(`dependency.audit`).
        """
        ...
