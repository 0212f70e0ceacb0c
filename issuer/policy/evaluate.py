"""What policies say of a caller and its request: `resolve` and `decide` in one step. Pure.

For those who have the whole request in their hands: policy tests and `issuer policy explain`. The service goes the same
way in two steps (`issuer.issuance`), because it reads no stranger's body.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from issuer.identity.caller import Caller
from issuer.policy.decide import Denial, Grant, Run, decide
from issuer.policy.match import PolicySet, resolve
from issuer.policy.registration import Registration


class Evaluation(Struct, frozen=True):
    """Who the caller is registered as, and what its policy decides."""

    registration: Registration
    decision: Grant | Denial


def evaluate(
    policies: PolicySet, caller: Caller, runs: Iterable[Run], now: int, *, integration: str = "", audience: str = ""
) -> Evaluation:
    """Evaluate a request at `now` (Unix seconds), as `resolve` and `decide` say. Raises Refused for a stranger."""
    registration = resolve(policies, caller)
    return Evaluation(registration, decide(registration, caller, runs, now, integration=integration, audience=audience))
