"""The disclosure ladder of contract section 5: the parts of the checks that a caller may see. Pure.

A registered caller sees every check with its own value and the rule's place in the policy. It sees the expected value
only of the rules that the policy's `disclose` lists. An unregistered caller sees its own public claims, whether the
integration exists or not.
"""

from __future__ import annotations

from collections.abc import Iterable

from issuer.codes import Code
from issuer.errors import Fault, Refused
from issuer.identity.token import Caller
from issuer.policy.check import Check
from issuer.policy.model import Policy
from issuer.token.wire import Denied, ShownCheck


def disclose(checks: Iterable[Check], policy: Policy) -> tuple[ShownCheck, ...]:
    """Return the checks as a caller of the policy's integration may see them."""
    return tuple(_show(check, check.of.topic is None or check.of.topic in policy.disclose) for check in checks)


def disclose_all(checks: Iterable[Check]) -> tuple[ShownCheck, ...]:
    """Return the checks with nothing hidden, for the operator alone."""
    return tuple(_show(check, True) for check in checks)


def _show(check: Check, with_expected: bool) -> ShownCheck:
    return ShownCheck(
        code=str(check.code),
        pointer=check.pointer,
        rule=check.rule,
        passed=check.passed,
        actual=check.actual,
        expected=check.expected if with_expected else "",
        hint=check.hint,
    )


def refusal_for(checks: tuple[Check, ...], policy: Policy) -> Denied:
    """Return the refusal for checks, at least one of which failed. The first failed check names the code."""
    shown = disclose(checks, policy)
    faults = tuple(_fault_of(check.code, one) for check, one in zip(checks, shown, strict=True) if not check.passed)
    return Denied(faults[0].code, faults[0].detail, faults, checks=shown)


def _fault_of(code: Code, check: ShownCheck) -> Fault:
    wanted = f"; expected {check.expected}" if check.expected else ""
    return Fault(code, check.pointer, f"{check.actual}{wanted}; rule: {check.rule}")


def refusal_for_stranger(caller: Caller) -> Refused:
    """Return the refusal for an unregistered caller: it shows only the caller's public claims."""
    rules = caller.provider.rules
    own = caller.short_claims((*rules.pins, *rules.names))
    claims = ", ".join(f"{name}={value}" for name, value in own.items()) or "none of the ids that policies pin"
    detail = f"{Code.INTEGRATION_UNKNOWN.meaning.title} The token says: {claims}."
    return Refused(Code.INTEGRATION_UNKNOWN, detail, (Fault(Code.INTEGRATION_UNKNOWN, "", detail),))
