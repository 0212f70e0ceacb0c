"""Reports on result files, for the tests of `issuer.verify`: of the good file in its place, if nothing else is given."""

from typing import Any

from issuer.results.entry import read_entries
from issuer.verify import Context, verify_entries
from issuer.verify.report import Report, Status
from issuer.verify.trust import Trust
from tests.support import make

SOON = make.NOW + 5  # when a good file is received


def judge_all(
    text: str,
    trust: Trust | None = None,
    *,
    at: int | None = SOON,
    repo: str = make.REPO,
    path: str = make.PATH,
    **known: Any,
) -> tuple[Report, ...]:
    """Judge all entries of a file, received at `at`. `known` has the members of Context; `now` is `at` by default."""
    context = Context(**{"now": SOON if at is None else at, **known})
    return verify_entries(read_entries(text.encode(), path), repo, path, trust or make.trust(), at, context)


def judge(text: str, trust: Trust | None = None, **known: Any) -> Report:
    (report,) = judge_all(text, trust, **known)
    return report


def numbers(report: Report, status: Status) -> list[int]:
    """Return the numbers of the checks that have this status."""
    return [check.number for check in report.checks if check.status is status]


def outcome(report: Report, number: int) -> tuple[Status, str]:
    return report.checks[number - 1].status, report.checks[number - 1].evidence
