"""Checks of a policy for people: what did not pass, a block each, and what passed, in one line or all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from issuer.cli.terminal import columns, printable, render_table, shorten, wrap
from issuer.codes import Code
from issuer.wire import ShownCheck

FAILED = "FAIL"
_MARGIN = " " * 6

verbose_option = click.option("--verbose", is_flag=True, help="Show every check that passed, too.")


def render_checks(checks: Sequence[ShownCheck], *, verbose: bool = False) -> str:
    """Write a block for each check that failed, then those that passed: in one line, or with `verbose` one each.

    No value is cut off or broken: what differs may be at its end.
    """
    failed = [line for check in checks if not check.passed for line in _block(check)]
    passed = [check for check in checks if check.passed]
    if not passed:
        return "\n".join(failed)
    return "\n".join([*failed, *(_rows(passed) if verbose else _summary(passed))])


def _block(check: ShownCheck) -> Iterator[str]:
    # Where nothing in the request is judged, the rule's place says which check it is.
    yield printable(f"{FAILED}  {check.code} {check.pointer or check.rule}".rstrip())
    rule = check.rule if check.pointer else ""
    for label, text in (("yours", check.actual), ("wanted", check.expected), ("rule", rule), ("next", check.hint)):
        if text:
            yield from wrap(text, f"{_MARGIN}{label + ':':<8}")


def _summary(passed: Sequence[ShownCheck]) -> list[str]:
    names = ", ".join(dict.fromkeys(map(subject, passed)))
    count = f"{len(passed)} check{'' if len(passed) == 1 else 's'}"
    return wrap(f"{count}: {names}", "ok    ")


def _rows(passed: Sequence[ShownCheck]) -> list[str]:
    """Write one line a check: its name, and what was there, cut where it is long, for it is as it should be."""
    names = list(map(subject, passed))
    room = max(30, columns() - len(_MARGIN) - max(map(len, names)) - 2)
    rows = [("ok  ", name, shorten(check.actual, room)) for name, check in zip(names, passed, strict=True)]
    return render_table(rows).split("\n")


# What is checked, where the code's second word, which says how it fails, does not name it.
_SUBJECTS = {
    Code.IDENTITY_ISSUER_UNKNOWN: "provider",
    Code.IDENTITY_ALGORITHM_REFUSED: "algorithm",
    Code.IDENTITY_EXPIRED: "times",
    Code.IDENTITY_AUDIENCE_MISMATCH: "audience of the token",
    Code.IDENTITY_MALFORMED: "form of the token",
    Code.IDENTITY_EVENT_FORBIDDEN: "event",
    Code.IDENTITY_REGISTRATION_EXPIRED: "expiry of the registration",
    Code.INTEGRATION_SUSPENDED: "mode",
    Code.INTEGRATION_STAGED: "mode",
}


def subject(check: ShownCheck) -> str:
    """Name what is checked, in a word or two: a check that passed is not called by how it fails."""
    code = Code.named(check.code)
    if code in _SUBJECTS:
        return _SUBJECTS[code]
    if check.code.startswith("policy."):
        return check.code.partition(".")[2]
    return check.rule.rpartition(".")[2] or check.code
