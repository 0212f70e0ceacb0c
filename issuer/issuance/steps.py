"""The values that the steps of issuance pass on: frozen, and each complete when it is made. Pure.

Arrival ─► Registered ─► (the body) Request ─► Judged ─► Issued
               └───────────────┴────────────────┴──────► Refusal
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Generator, Iterable, Iterator
from typing import TypeAlias, TypeVar

from msgspec import Raw, Struct

from issuer.codes import Code
from issuer.errors import Fault, Refused
from issuer.formats import jcs
from issuer.formats.times import show_time
from issuer.identity.token import Caller
from issuer.limits.abuse import NOTHING_COUNTED, Signal, Tally, judge
from issuer.limits.rate import RateState
from issuer.policy.check import Check
from issuer.policy.decide import Denial, Grant, check_caller
from issuer.policy.model import Policy
from issuer.policy.registration import Registration
from issuer.results.claims import RunClaims
from issuer.results.entry import Submission
from issuer.token.verify_token import Attempt, Template
from issuer.token.wire import IssuedToken, Kind

T = TypeVar("T")
# Work in short steps. It yields between two steps, so other requests get their turn, and returns its result.
Steps: TypeAlias = Generator[None, None, T]


def one_by_one(items: Iterable[T]) -> Steps[tuple[T, ...]]:
    """Compute each item of a lazy iterable in its own step."""
    computed = []
    for item in items:
        computed.append(item)
        yield
    return tuple(computed)


def finish(steps: Steps[T]) -> T:
    """Run all steps at once, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


# -- the caller --------------------------------------------------------------------------------------------------------

# Callers that have an identity's pins and fail its other requirements share these buckets (contract section 5,
# "who pays"). There are enough that two jobs seldom share one, and few enough that they cannot fill the store.
BUCKETS = 64
_MAC_BYTES = hashlib.sha256().digest_size


class StoreSecret:
    """The secret keys that seal templates and assign callers to buckets: 32 random bytes each, equal on all hosts.

    The store does not contain them. The first key seals and every key opens, so the operator can change a key while
    templates are valid.
    """

    __slots__ = ("_keys",)

    def __init__(self, *keys: bytes) -> None:
        self._keys = keys

    def seal(self, record: str, request_digest: str, template: bytes) -> bytes:
        """Return the template after an HMAC-SHA-256, which binds it to its place: a use record and a request."""
        return _mac(self._keys[0], record, request_digest, template) + template

    def unseal(self, record: str, request_digest: str, sealed: bytes) -> bytes | None:
        """Return the template if it was sealed for this place, else None."""
        mac, template = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
        for key in self._keys:
            if hmac.compare_digest(mac, _mac(key, record, request_digest, template)):
                return template
        return None

    def bucket(self, failing: str) -> int:
        """Return the bucket of callers that fail with these values. Without the key, callers cannot choose a bucket."""
        digest = hmac.digest(self._keys[0], b"bucket\0" + failing.encode("utf-8", "surrogatepass"), "sha256")
        return int.from_bytes(digest[:8], "big") % BUCKETS


def _mac(key: bytes, record: str, request_digest: str, template: bytes) -> bytes:
    # Both names are SHA-256 in hexadecimal, so two different places and templates never give the same bytes.
    return hmac.digest(key, b"template\0%b\0%b\0%b" % (record.encode(), request_digest.encode(), template), "sha256")


class Arrival(Struct, frozen=True):
    """A new request: its `endpoint` as the audit names it, its `source` address, and its time in Unix seconds."""

    id: str
    endpoint: str
    source: str
    at: int


class Stranger(Struct, frozen=True):
    """An authenticated caller that no policy registers."""

    arrival: Arrival
    caller: Caller


class Payer(Struct, frozen=True):
    """The payer of a request (contract section 5): a registered identity or, if `bucket` is set, one of its 64 buckets
    for callers that have its pins and fail its other requirements."""

    integration: str
    identity: str
    bucket: int | None = None


class Registered(Struct, frozen=True):
    """An authenticated caller, its registration, and the policy's `checks` of the caller alone. `denial` is set if one
    of these failed. Then the caller pays from `bucket`, or nothing if its integration is suspended."""

    arrival: Arrival
    caller: Caller
    registration: Registration
    checks: tuple[Check, ...]
    denial: Denial | None = None
    bucket: int | None = None

    @classmethod
    def of(cls, arrival: Arrival, caller: Caller, registration: Registration, secret: StoreSecret) -> Registered:
        """Check the caller without its body."""
        checks = check_caller(registration, caller, arrival.at)
        if (denial := Denial.of(checks)) is None:
            return cls(arrival, caller, registration, checks)
        # Jobs that fail with the same rules and values share a bucket.
        failing = repr([(check.rule, check.values) for check in denial.checks if not check.passed])
        return cls(arrival, caller, registration, checks, denial, secret.bucket(failing))

    @property
    def payer(self) -> Payer:
        """The payer that the admission charges."""
        return Payer(self.registration.policy.integration, self.registration.identity.id, self.bucket)


# -- the request -------------------------------------------------------------------------------------------------------


class Request(Struct, frozen=True):
    """A parsed body. `integration`, `audience` and `nonce` are "" if absent. Only `OF_CALLER` has no submissions."""

    kind: Kind
    submissions: tuple[Submission, ...]
    integration: str
    audience: str
    nonce: str = ""

    def runs(self) -> Iterator[tuple[str, RunClaims]]:
        """Yield each result's claims for the policy, with the JSON Pointer to them."""
        return ((f"{item.pointer}/claims", item.claims) for item in self.submissions)

    def digest(self, integration: str, audience: str) -> str:
        """Return the digest that equal requests share. It covers the kind, the results and both resolved names."""
        results = [
            {"claims": Raw(item.canonical_claims), "details": Raw(item.canonical_details)} for item in self.submissions
        ]
        value = {"kind": self.kind, "results": results, "integration": integration, "audience": audience}
        return hashlib.sha256(jcs.encode(value)).hexdigest()


# A request to explain without a run: the policy judges the caller alone.
OF_CALLER = Request("single", (), "", "")

_ATTEMPTS = (
    "{count} different sets of metric values were signed for this model commit, benchmark commit, task and framework "
    "since {since}, more than {limit}: sign the result of one run, and describe the others in its notes"
)
_ARTIFACT = (
    "{count} different sets of metric values name the same evidence file, more than {limit}: sign the values in that "
    "file, or name the file of this run"
)
_SPREAD = {
    "owners_a_day": "results for {count} model owners were signed today, more than {limit}",
    "owners_a_run": "results for {count} model owners were signed in this CI run, more than {limit}",
    "tokens_a_day": "{count} tokens were signed today, more than {limit}",
    "tokens_a_run": "{count} tokens were signed in this CI run, more than {limit}",
}
_ASK = ": if this is intended, ask the operator of this service for wider limits"


class Signals(Struct, frozen=True):
    """The counts of an admission, and the signals that they `raised`. The tally has no items if nothing was counted."""

    tally: Tally
    raised: tuple[Signal, ...] = ()

    @classmethod
    def of(cls, policy: Policy, tally: Tally) -> Signals:
        """Judge the counts by the current policy."""
        return cls(tally, judge(policy.abuse, tally)) if tally.items else cls(tally)

    def attempts(self) -> tuple[Attempt | None, ...]:
        """Return the attempt of each result, None if its number is not exact; empty if nothing was counted."""
        return tuple([Attempt(item.number, item.since) if item.exact else None for item in self.tally.items])

    def warnings(self, item: int) -> tuple[str, ...]:
        """Return the warnings about one result: for each signal its code, the count and the next step."""
        return tuple([
            self._describe(signal)
            for signal in self.raised
            if signal.then != "observe" and signal.item in {item, None}
        ])  # fmt: skip

    def _describe(self, signal: Signal) -> str:
        text = {"attempts": _ATTEMPTS, "artifact": _ARTIFACT}.get(signal.name) or (
            _SPREAD[signal.rule.rpartition(".")[2]] + _ASK
        )
        since = self.tally.items[signal.item or 0].since
        message = text.format(count=signal.count, limit=signal.limit, since=show_time(since)[:10])
        slower = f"; throttled until {show_time(self.tally.throttled_until)}" if signal.then == "throttle" else ""
        return f"abuse.{signal.name}: {message}{slower}"


NO_SIGNALS = Signals(NOTHING_COUNTED)


# -- outcomes ----------------------------------------------------------------------------------------------------------


class Judged(Struct, frozen=True):
    """A granted request, with everything that issuing needs. `draft` is the candidate template.

    `too_large` is set if new tokens are too large for the draft's key but not for another usable key. It refuses new
    tokens; a repeat of a template of the other key is still signed.
    """

    registered: Registered
    request: Request
    grant: Grant
    draft: Template
    too_large: Refused | None = None


class Refusal(Struct, frozen=True):
    """A refused request. `request` is None if the body was not read. `settled` says that the refusal costs nothing
    more: the admission has charged it, or the caller's standing refused it."""

    of: Registered | Stranger
    error: Refused
    request: Request | None = None
    settled: bool = False


class Forged(Refused):
    """The refusal if the store has a template or counts that this service did not write. The use counts as spent.
    `what` names the fault in one word, for the audit and the log stream. The caller does not learn it."""

    def __init__(self, spent: Code, what: str) -> None:
        super().__init__(spent)
        self.what = what


class Limited(Refused):
    """The refusal of a request over a rate. `rates` are the caller's current rates; the request was not charged."""

    def __init__(
        self, code: Code, detail: str = "", *, retry_after_s: int | None = None, rates: tuple[RateState, ...] = ()
    ) -> None:
        super().__init__(code, detail, retry_after_s=retry_after_s)
        self.rates = rates


class Quarantined(Refused):
    """The refusal of a quarantined payer. `tally` has the counts if this very request began the quarantine."""

    def __init__(self, detail: str, *, retry_after_s: int, tally: Tally = NOTHING_COUNTED) -> None:
        super().__init__(Code.ABUSE_QUARANTINED, detail, retry_after_s=retry_after_s)
        self.tally = tally


class Revoked(Refused):
    """The refusal because of a revocation: of the tokens `jtis`, or without any if the body was not read."""

    def __init__(self, faults: tuple[Fault, ...], jtis: tuple[str, ...] = ()) -> None:
        super().__init__(Code.TOKEN_REVOKED, faults[0].detail, faults)
        self.jtis = jtis


class Issued(Struct, frozen=True):
    """Signed tokens, in the order of the submissions. `repeat` says that the same request was answered before.
    `signals` are from the first answer, `rates` are current."""

    tokens: tuple[IssuedToken, ...]
    repeat: bool
    signals: Signals = NO_SIGNALS
    rates: tuple[RateState, ...] = ()
