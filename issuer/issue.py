"""THE LINE: identity token in, signed verify tokens out; and the protocols that it needs. Pure but for them.

The order is the contract's (section 5): cheap first, side effects last, the log before the signature, the audit before
the answer.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from issuer.limits import Limits


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

    async def admit(self, call: Admit) -> Admitted | None:
        """Return the admitted template, or None where `call.use` is None.

        Raises Refused (`rate.identity`, `rate.integration`, `abuse.quarantined`, `identity.replayed`) and Undecided
        (`dependency.state`, `dependency.state_reset`). When in doubt it raises; it never admits.
        """
        ...
