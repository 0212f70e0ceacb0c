"""The exit codes of the command line (contract section 6), chosen by outcome, and the error for missing packages."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from issuer.codes import Code
from issuer.errors import Finding, InputError, IssuerError, Refused, SetupError, VerificationError

if TYPE_CHECKING:
    from issuer.formats.findings import Line
    from issuer.verify.summary import Summary  # most commands do not need its imports


class Exit(enum.IntEnum):
    """The exit codes of commands. Click itself uses 2, for usage errors."""

    GOOD = 0
    NO = 1  # the answer is no
    INPUT = 3  # input is missing or malformed
    UNDECIDED = 4
    REFUSED = 5  # the issuer refused, or would refuse
    LOCAL = 6  # local state, such as a setting, a key or a folder


def exit_for_error(error: IssuerError) -> Exit:
    """Return the exit code for an error."""
    if isinstance(error, InputError):
        return Exit.INPUT
    if isinstance(error, SetupError):
        return Exit.LOCAL
    if isinstance(error, VerificationError):
        return Exit.NO
    return Exit.REFUSED if isinstance(error, Refused) else Exit.UNDECIDED


# From worst to best.
_ORDER = (Exit.LOCAL, Exit.INPUT, Exit.NO, Exit.REFUSED, Exit.UNDECIDED)


def exit_for_lines(lines: Iterable[Line]) -> Exit:
    """Return the exit code for the worst line of a diagnosis."""
    codes = [exit_for_error(line.error) for line in lines if line.error is not None]
    return min(codes, key=_ORDER.index, default=Exit.GOOD)


def exit_for_findings(findings: Iterable[Finding]) -> Exit:
    """Return INPUT if a file is malformed, NO if only tests of policies fail, and GOOD for warnings alone."""
    codes = {finding.code for finding in findings if finding.severity == "error"}
    if codes - {Code.POLICY_TEST_FAILED}:
        return Exit.INPUT
    return Exit.NO if codes else Exit.GOOD


def exit_for_summary(summary: Summary, *, require_token: bool) -> Exit:
    """Return the exit code for judged result files. The order is: a file was unreadable, a no, undecided, good."""
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
    """Raise SetupError if a package that `what` needs is missing. The error says which extra installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "issuer":
            raise
        detail = f"{what} needs {error.name}. In the checkout, run `pip install '.[{name}]'`"
        raise SetupError(Code.PACKAGE_MISSING, detail) from None
