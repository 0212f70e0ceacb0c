"""What the steps of the line pass on: frozen values, each complete when it is made. Pure.

Arrival ─► Registered ─► (the body) Request ─► Judged ─► Issued
               └───────────────┴────────────────┴──────► Refusal
"""

from __future__ import annotations

from msgspec import Struct

from issuer.abuse import NOTHING_COUNTED, Tally
from issuer.codes import Code
from issuer.errors import Fault, Refused
from issuer.identity.caller import Caller
from issuer.issuance.body import Request
from issuer.issuance.signals import NO_SIGNALS, Signals
from issuer.issuance.store_secret import StoreSecret
from issuer.limits import RateState
from issuer.policy.check import Check
from issuer.policy.decide import Denial, Grant, check_caller
from issuer.policy.registration import Registration
from issuer.verify_token import Template
from issuer.wire import IssuedToken


class Arrival(Struct, frozen=True):
    """A request before any judgement.

    `endpoint` is its endpoint's name in the audit, `source` the address that it came from, and `at` the time at which
    it is judged, in Unix seconds.
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
    buckets of those who have its pins and fail what else is asked of it."""

    integration: str
    identity: str
    bucket: int | None = None


class Registered(Struct, frozen=True):
    """An authenticated caller and its registration, and what its policy says of it whatever it asks for: `checks`.

    `denial` is set where one of these failed. Then it pays from `bucket`, unless nothing is paid because its
    integration is suspended.
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


class Judged(Struct, frozen=True):
    """A granted request, with everything that issuing needs; `draft` is the candidate template.

    `too_large` is the refusal of its new tokens, where the key of the draft does not take them and another key, which
    may sign, does: what that one has begun is still signed again.
    """

    registered: Registered
    request: Request
    grant: Grant
    draft: Template
    too_large: Refused | None = None


class Refusal(Struct, frozen=True):
    """A refused request, and how far it got: `request` is None where its body was not read.

    `settled`: it costs nothing more, because the admission refused it, which has charged it, or its standing.
    """

    of: Registered | Stranger
    error: Refused
    request: Request | None = None
    settled: bool = False


class Forged(Refused):
    """What the store keeps for a request is none of ours, so the use counts as spent. `what` is wrong with it, in a
    word, is for the audit and the log; the caller is not told."""

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
    """Who pays is quarantined; `tally` is what was counted where this very request has begun it."""

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
