"""The disclosure ladder of contract section 5: what of a judgement its caller may see. Pure.

A registered caller sees every check with its own value and the rule's place in the policy; the expected value only of
what the policy's `disclose` names. A caller that nobody registered sees its own public claims, whether the integration
exists or not.
"""

from __future__ import annotations

from collections.abc import Iterable

from issuer.codes import Code
from issuer.errors import Fault, Refused
from issuer.identity.caller import Caller
from issuer.policy.check import Check
from issuer.policy.model import Policy
from issuer.wire import Denied, ShownCheck


def disclosed(checks: Iterable[Check], policy: Policy) -> tuple[ShownCheck, ...]:
    """Return the checks as a caller of this policy's integration may see them."""
    return tuple(_shown(check, check.topic is None or check.topic in policy.disclose) for check in checks)


def unredacted(checks: Iterable[Check]) -> tuple[ShownCheck, ...]:
    """Return the checks with nothing hidden: for the operator, whose policy it is, and for nobody else."""
    return tuple(_shown(check, True) for check in checks)


def _shown(check: Check, told: bool) -> ShownCheck:
    return ShownCheck(
        code=str(check.code),
        pointer=check.pointer,
        rule=check.rule,
        passed=check.passed,
        actual=check.actual,
        expected=check.expected if told else "",
        hint=check.hint,
    )


def denied(checks: tuple[Check, ...], policy: Policy) -> Denied:
    """Make the refusal for checks of which at least one failed; the first that did names the code."""
    seen = disclosed(checks, policy)
    faults = tuple(_fault(check.code, told) for check, told in zip(checks, seen, strict=True) if not check.passed)
    return Denied(faults[0].code, faults[0].detail, faults, checks=seen)


def _fault(code: Code, check: ShownCheck) -> Fault:
    wanted = f"; expected {check.expected}" if check.expected else ""
    return Fault(code, check.pointer, f"{check.actual}{wanted}; rule: {check.rule}")


def unknown(caller: Caller) -> Refused:
    """Make the refusal for a caller that nobody registered: its own public claims, and nothing of any policy."""
    rules = caller.provider.rules
    own = caller.shown((*rules.pins, *rules.names))
    told = ", ".join(f"{name}={value}" for name, value in own.items())
    detail = f"{Code.INTEGRATION_UNKNOWN.meaning.title} The token says: {told or 'none of the ids that are matched'}."
    return Refused(Code.INTEGRATION_UNKNOWN, detail, (Fault(Code.INTEGRATION_UNKNOWN, "", detail),))
