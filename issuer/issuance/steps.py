"""What the steps of the line pass on: frozen values, each complete when it is made. Pure.

Arrival ─► Registered ─► (the body) Request ─► Judged ─► Issued
               └───────────────┴────────────────┴──────► Refusal
"""

from __future__ import annotations

from msgspec import Struct

from issuer.errors import Refused
from issuer.identity.caller import Caller
from issuer.issuance.body import Request
from issuer.policy.decide import Grant
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


class Registered(Struct, frozen=True):
    """An authenticated caller and its registration."""

    arrival: Arrival
    caller: Caller
    registration: Registration


class Judged(Struct, frozen=True):
    """A granted request, with everything that issuing needs; `draft` is the candidate template."""

    registered: Registered
    request: Request
    grant: Grant
    draft: Template


class Refusal(Struct, frozen=True):
    """A refused request, and how far it got: `request` is None where its body was not read.

    `settled`: it costs nothing more, because the admission refused it, which has charged it, or its standing.
    """

    of: Registered | Stranger
    error: Refused
    request: Request | None = None
    settled: bool = False


class Issued(Struct, frozen=True):
    """Signed tokens in the order of the submissions; `repeat` where the same request was answered before."""

    tokens: tuple[IssuedToken, ...]
    repeat: bool
