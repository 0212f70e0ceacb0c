"""The exit codes of the command line (contract section 6), the one for each outcome, and missing packages."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from issuer.codes import Code
from issuer.errors import Finding, InputError, IssuerError, Refused, SetupError, VerificationError

if TYPE_CHECKING:
    from issuer.formats.findings import Line
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


# The worst wins.
_ORDER = (Exit.LOCAL, Exit.INPUT, Exit.NO, Exit.REFUSED, Exit.UNDECIDED)


def exit_for_lines(lines: Iterable[Line]) -> Exit:
    """Return the exit code of the worst line of a diagnosis."""
    codes = [exit_for_error(line.error) for line in lines if line.error is not None]
    return min(codes, key=_ORDER.index, default=Exit.GOOD)


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


@contextlib.contextmanager
def extra_of(name: str, what: str) -> Iterator[None]:
    """Raise SetupError for a package that `what` needs and that is missing: it says which extra has it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "issuer":
            raise
        detail = f"{what} needs {error.name}. In the checkout, run `pip install '.[{name}]'`"
        raise SetupError(Code.PACKAGE_MISSING, detail) from None
