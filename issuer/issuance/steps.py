"""What the steps of the line hand to one another: frozen values, each complete when it is made. Pure.

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
    """A request before anything of it was judged.

    `endpoint` is the audit's name of where it came in, `source` the address that it came from, and `at` the time at
    which it is judged, in Unix seconds.
    """

    id: str
    endpoint: str
    source: str
    at: int


class Stranger(Struct, frozen=True):
    """A caller that is authenticated, and that no policy registers."""

    arrival: Arrival
    caller: Caller


class Registered(Struct, frozen=True):
    """A caller that is authenticated, and its registration."""

    arrival: Arrival
    caller: Caller
    registration: Registration


class Judged(Struct, frozen=True):
    """A request that was granted, with everything that it takes to issue; `draft` is the candidate template."""

    registered: Registered
    request: Request
    grant: Grant
    draft: Template


class Refusal(Struct, frozen=True):
    """A request that was refused, and how far it had come: `request` is None where its body was not read.

    `by_admission`: the limits refused it, so that nothing is left to be counted.
    """

    of: Registered | Stranger
    error: Refused
    request: Request | None = None
    by_admission: bool = False


class Issued(Struct, frozen=True):
    """Signed tokens in the order of the submissions; `repeat` where the same request was answered before."""

    tokens: tuple[IssuedToken, ...]
    repeat: bool
