"""The exit codes of the command line (contract section 6), and the one for each outcome."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING

from issuer.codes import Code
from issuer.errors import Finding, InputError, IssuerError, Refused, SetupError, VerificationError

if TYPE_CHECKING:
    from issuer.verify.summary import Summary  # loads what most commands do not need


class Exit(enum.IntEnum):
    """What a command ends with; 2 is a usage error, which click ends with."""

    GOOD = 0
    NO = 1  # the answer is no
    INPUT = 3  # input is missing or malformed
    UNDECIDED = 4
    REFUSED = 5  # by the issuer, or it would be
    LOCAL = 6  # local state: a setting, a key, a folder


def exit_for_error(error: IssuerError) -> Exit:
    """Return the exit code for an error."""
    if isinstance(error, InputError):
        return Exit.INPUT
    if isinstance(error, SetupError):
        return Exit.LOCAL
    if isinstance(error, VerificationError):
        return Exit.NO
    return Exit.REFUSED if isinstance(error, Refused) else Exit.UNDECIDED


def exit_for_findings(findings: Iterable[Finding]) -> Exit:
    """Return INPUT where a file is malformed, NO where only tests of policies fail; warnings alone are good."""
    codes = {finding.code for finding in findings if finding.severity == "error"}
    if codes - {Code.POLICY_TEST_FAILED}:
        return Exit.INPUT
    return Exit.NO if codes else Exit.GOOD


def exit_for_summary(summary: Summary, *, require_token: bool) -> Exit:
    """Return the exit code for a run over result files, the worst first: could not be read, no, undecided."""
    verdicts = summary.verdicts
    lost = summary.by_reason[Code.INTERNAL]
    if summary.findings > lost:
        return Exit.INPUT
    if verdicts["failed"] or (require_token and verdicts["unverified"]):
        return Exit.NO
    if verdicts["undecided"] or verdicts["good_when_issued"] or lost or summary.interrupted:
        return Exit.UNDECIDED
    return Exit.GOOD if verdicts["verified"] else Exit.NO
