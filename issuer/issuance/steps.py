"""What the steps of the line pass on: frozen values, each complete when it is made. Pure.

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
# Work that yields between two short steps, so that other requests have their turn, and returns its result.
Steps: TypeAlias = Generator[None, None, T]


def one_by_one(items: Iterable[T]) -> Steps[tuple[T, ...]]:
    """Make each item of a lazy iterable in its own step."""
    made = []
    for item in items:
        made.append(item)
        yield
    return tuple(made)


def finish(steps: Steps[T]) -> T:
    """Take all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            done: T = end.value
            return done


# -- who is calling ----------------------------------------------------------------------------------------------------

# The buckets that all callers share who only resemble one identity (contract section 5, who pays): enough that the
# refusals of one job seldom meet another's, few enough that all of them together fill no store.
BUCKETS = 64
_MAC_BYTES = hashlib.sha256().digest_size


class StoreSecret:
    """The keys of a service, 32 random bytes each and equal on all its hosts; a writer to the store does not have them.

    They seal templates and scatter callers over buckets. The first key seals and every key opens, so that the operator
    can change a key while templates live.
    """

    __slots__ = ("_keys",)

    def __init__(self, *keys: bytes) -> None:
        self._keys = keys

    def seal(self, record: str, request_digest: str, template: bytes) -> bytes:
        """Put an HMAC-SHA-256 before a template, which binds it to its place: the record and the request in it."""
        return _mac(self._keys[0], record, request_digest, template) + template

    def unseal(self, record: str, request_digest: str, sealed: bytes) -> bytes | None:
        """Return the template that was sealed for this place; None for anything else."""
        mac, template = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
        for key in self._keys:
            if hmac.compare_digest(mac, _mac(key, record, request_digest, template)):
                return template
        return None

    def bucket(self, failing: str) -> int:
        """Return the bucket of callers who fail by these values. The key keeps callers from choosing their bucket."""
        digest = hmac.digest(self._keys[0], b"bucket\0" + failing.encode("utf-8", "surrogatepass"), "sha256")
        return int.from_bytes(digest[:8], "big") % BUCKETS


def _mac(key: bytes, record: str, request_digest: str, template: bytes) -> bytes:
    # Both names are SHA-256 in hexadecimal, so that no two places and templates are the same bytes.
    return hmac.digest(key, b"template\0%b\0%b\0%b" % (record.encode(), request_digest.encode(), template), "sha256")


class Arrival(Struct, frozen=True):
    """A request before any judgement.

    `endpoint` is its endpoint's name in the audit, `source` its address, and `at` its time in Unix seconds.
    """

    id: str
    endpoint: str
    source: str
    at: int


class Stranger(Struct, frozen=True):
    """An authenticated caller that no policy registers."""

    arrival: Arrival
    caller: Caller


class Payer(Struct, frozen=True):
    """Who pays for a request (contract section 5): a registered identity or, where `bucket` is set, one of the 64
    buckets of the callers that have its pins and fail its other requirements."""

    integration: str
    identity: str
    bucket: int | None = None


class Registered(Struct, frozen=True):
    """An authenticated caller, its registration, and the `checks` that its policy makes whatever it asks for.

    `denial` is set where one of these failed. Then the caller pays from `bucket`, unless its integration is suspended,
    which costs nothing.
    """

    arrival: Arrival
    caller: Caller
    registration: Registration
    checks: tuple[Check, ...]
    denial: Denial | None = None
    bucket: int | None = None

    @classmethod
    def of(cls, arrival: Arrival, caller: Caller, registration: Registration, secret: StoreSecret) -> Registered:
        """Judge what can be judged of a caller without its body."""
        checks = check_caller(registration, caller, arrival.at)
        denial = Denial.of(checks)
        bucket = None if denial is None else secret.bucket(_failing(denial))
        return cls(arrival, caller, registration, checks, denial, bucket)

    @property
    def payer(self) -> Payer:
        """Whom the admission charges."""
        return Payer(self.registration.policy.integration, self.registration.identity.id, self.bucket)


def _failing(denial: Denial) -> str:
    """Write down the values that fail, with their rules: jobs that fail in one way are counted together."""
    return repr([(check.rule, check.values) for check in denial.checks if not check.passed])


# -- what it asks for --------------------------------------------------------------------------------------------------


class Request(Struct, frozen=True):
    """What a request asks for. `integration`, `audience` and `nonce` are "" where it names none. Only `OF_CALLER` has
    no submissions."""

    kind: Kind
    submissions: tuple[Submission, ...]
    integration: str
    audience: str
    nonce: str = ""

    def runs(self) -> Iterator[tuple[str, RunClaims]]:
        """Yield what a policy judges of each result: where its claims are in the body, and the claims."""
        return ((f"{item.pointer}/claims", item.claims) for item in self.submissions)

    def digest(self, integration: str, audience: str) -> str:
        """Return what makes two requests the same one: kind, content, and both names as resolved; never a path."""
        results = [
            {"claims": Raw(item.canonical_claims), "details": Raw(item.canonical_details)} for item in self.submissions
        ]
        value = {"kind": self.kind, "results": results, "integration": integration, "audience": audience}
        return hashlib.sha256(jcs.encode(value)).hexdigest()


# An explanation without a run: the policy judges the caller alone.
OF_CALLER = Request("single", (), "", "")

_ATTEMPTS = (
    "{count} different sets of metric values were signed for this model commit, benchmark commit, task and framework "
    "since {since}, more than {limit}: sign the result of one run, and say in its notes what the others were"
)
_ARTIFACT = (
    "{count} different sets of metric values name the same evidence file, more than {limit}: sign what the file says, "
    "or name the file of this run"
)
_SPREAD = {
    "owners_a_day": "results for {count} model owners were signed today, more than {limit}",
    "owners_a_run": "results for {count} model owners were signed in this CI run, more than {limit}",
    "tokens_a_day": "{count} tokens were signed today, more than {limit}",
    "tokens_a_run": "{count} tokens were signed in this CI run, more than {limit}",
}
_ASK = ": if this is meant, ask the operator of this service for wider limits"


class Signals(Struct, frozen=True):
    """The counts of an admission, without items where nothing was counted, and the signals that they `raised`."""

    tally: Tally
    raised: tuple[Signal, ...] = ()

    @classmethod
    def of(cls, policy: Policy, tally: Tally) -> Signals:
        """Judge what was counted by the policy of today."""
        return cls(tally, judge(policy.abuse, tally)) if tally.items else cls(tally)

    def attempts(self) -> tuple[Attempt | None, ...]:
        """Return the attempt of each result, None where its number is not exact; empty where nothing was counted."""
        return tuple([Attempt(item.number, item.since) if item.exact else None for item in self.tally.items])

    def warnings(self, item: int) -> tuple[str, ...]:
        """Return the warnings about one result: the code of each signal, what was counted, what to do."""
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
        said = text.format(count=signal.count, limit=signal.limit, since=show_time(since)[:10])
        slower = f"; throttled until {show_time(self.tally.throttled_until)}" if signal.then == "throttle" else ""
        return f"abuse.{signal.name}: {said}{slower}"


NO_SIGNALS = Signals(NOTHING_COUNTED)


# -- how it ends -------------------------------------------------------------------------------------------------------


class Judged(Struct, frozen=True):
    """A granted request, with everything that issuing needs; `draft` is the candidate template.

    `too_large` refuses its new tokens, where the key of the draft does not take them and another key, which may sign,
    does: a template that the other key has begun is still signed again.
    """

    registered: Registered
    request: Request
    grant: Grant
    draft: Template
    too_large: Refused | None = None


class Refusal(Struct, frozen=True):
    """A refused request, and how far it got: `request` is None where its body was not read.

    `settled`: it costs nothing more, because the admission refused and charged it, or its standing refused it.
    """

    of: Registered | Stranger
    error: Refused
    request: Request | None = None
    settled: bool = False


class Forged(Refused):
    """The store holds a template that this service has not sealed, so the use counts as spent. `what` says in a word
    what is wrong with it, for the audit and the log; the caller does not learn it."""

    def __init__(self, spent: Code, what: str) -> None:
        super().__init__(spent)
        self.what = what


class Limited(Refused):
    """More than a rate lets through: `rates` are those of the caller as they are now, nothing of it charged."""

    def __init__(
        self, code: Code, detail: str = "", *, retry_after_s: int | None = None, rates: tuple[RateState, ...] = ()
    ) -> None:
        super().__init__(code, detail, retry_after_s=retry_after_s)
        self.rates = rates


class Quarantined(Refused):
    """The payer is quarantined; `tally` is what was counted where this very request has begun it."""

    def __init__(self, detail: str, *, retry_after_s: int, tally: Tally = NOTHING_COUNTED) -> None:
        super().__init__(Code.ABUSE_QUARANTINED, detail, retry_after_s=retry_after_s)
        self.tally = tally


class Revoked(Refused):
    """What this request would get is revoked: the tokens `jtis`, or none in particular where its body is not read."""

    def __init__(self, faults: tuple[Fault, ...], jtis: tuple[str, ...] = ()) -> None:
        super().__init__(Code.TOKEN_REVOKED, faults[0].detail, faults)
        self.jtis = jtis


class Issued(Struct, frozen=True):
    """Signed tokens in the order of the submissions; `repeat` where the same request was answered before. `signals` are
    those of the first time, `rates` those of now."""

    tokens: tuple[IssuedToken, ...]
    repeat: bool
    signals: Signals = NO_SIGNALS
    rates: tuple[RateState, ...] = ()
