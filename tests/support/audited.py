"""Lines that the service's audit writes, decided as the service decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from issuer.errors import Refused
from issuer.formats.strict_json import JSON
from issuer.issuance.body import Body
from issuer.issuance.events import Case, Request, decision_event, refused_event
from issuer.issuance.issue import granted
from issuer.policy.decide import decide
from issuer.policy.match import PolicySet, resolve
from issuer.policy.registration import Registration
from issuer.results.entry import Submission
from tests.support.policies import GITHUB, NOW, caller, submission


def recorded(
    policies: PolicySet,
    *runs: Submission,
    now: int = NOW,
    named: tuple[str, str] = ("", ""),
    claims: Mapping[str, JSON] = GITHUB,
    **changes: JSON,
) -> bytes:
    """Decide as the service does, and return the line that its audit holds of it."""
    case = Case(Request("r1", "/tokens", "", "", _unread, lambda: False), now)
    case.caller = who = caller(policies, dict(claims), **changes)
    try:
        case.registration = resolve(policies, who)
        case.body = Body("/tokens", runs or (submission(),), *named)
        verdict = decide(case.registration, who, case.body.runs(), now, integration=named[0], audience=named[1])
        granted(case.registration, verdict)
        event: dict[str, Any] = {**decision_event(case, who), "verdict": "issued"}
    except Refused as refusal:
        event = refused_event(case, who, refusal)
    return msgspec.json.encode(event) + b"\n"


async def _unread(_party: Registration) -> bytes:
    raise AssertionError("what was decided stands in the case")
