"""Reports for people: every check with its evidence, differing values beside each other, and what the answer means."""

from __future__ import annotations

from collections.abc import Iterable

from issuer.cli.terminal import paint, printable, say
from issuer.formats.times import show_time
from issuer.verify.report import ALWAYS_DUE, Check, Report, Status

_COLOURS = {Status.PASS: "green", Status.FAIL: "red", Status.UNKNOWN: "yellow", Status.SKIP: "bright_black"}
# What the answer proves, and what it does not.
_MEANING = {
    "verified": (
        "This proves: the issuer's registered integration had exactly this run signed, for this repository.",
        "It does not: that the benchmark is sound, or that the run was honest.",
    ),
    "failed": (
        "This proves: the file and the token do not belong together as they are, or the token does not count here.",
        "It does not: that the result is false. Nothing signed says that it is true.",
    ),
    "undecided": (
        "This proves: nothing yet. Something that a check needs was not to be had, and nothing speaks against it.",
        "It does not: that the result is good. Try again when what is missing is there.",
    ),
    "unverified": (
        "This proves: nothing. Nobody vouches for this result.",
        "It does not: that the result is false.",
    ),
}
# Where nothing but 5 failed: what differs is the time, and not what the two say.
_NOT_FRESH = (
    "This proves: the file says what the token says, but the token does not count at this time: see check 5.",
    "It does not: that the result is false. Tokens are short-lived: a receipt from back then may serve (--receipts).",
)
# Where nothing but the time of receipt is missing.
_WAS_GOOD = (
    "This proves: the file says what the token says, and the token was good when it was issued.",
    "It does not: that the file was there before the token ended. A receipt from back then may serve (--receipts).",
)
_HEADLINE = {"verified": "green", "failed": "red", "undecided": "yellow", "unverified": "yellow"}
_AT_FROM = {
    "clock": "as received at {}",
    "stated": "as received at {}, as stated",
    "receipt": "as received at {}, by the receipt",
    "log": "as it existed at {}, by the log's witnesses: when it was received is not known",
    "unknown": "at {}, for a reader: when it was received is not known",
}


def show(reports: Iterable[Report], name: str) -> None:
    """Print the reports of a file; `name` is what to call it."""
    shown = False
    for report in reports:
        shown = True
        _show(report, name)
    if not shown:
        say(f"{printable(name)}: no entries")


def _show(report: Report, name: str) -> None:
    say(f"{printable(name)}, entry {report.pointer.removeprefix('/')}:")
    if report.verdict != "unverified":
        say(f"  judged {_AT_FROM[report.at_from].format(show_time(report.at))}")
        for check in report.checks:
            _show_check(check)
    say(paint(f"  {_headline(report)}", fg=_HEADLINE[report.verdict], bold=True))
    for line in _meaning(report):
        say(f"  {line}")


def _meaning(report: Report) -> tuple[str, str]:
    if report.verdict == "undecided" and report.reason:
        return _WAS_GOOD
    rest = {check.status for check in report.checks if check.number in ALWAYS_DUE - {5}}
    return _NOT_FRESH if report.failed == (5,) and rest == {Status.PASS} else _MEANING[report.verdict]


def _show_check(check: Check) -> None:
    word = "FAIL" if check.status is Status.FAIL else str(check.status)
    marked = paint(f"{word:<8}", fg=_COLOURS[check.status])
    say(f"  {check.number:>2}  ", marked, f"{check.name:<26}{printable(check.evidence)}")
    if check.token or check.file:
        say(f"{'':>14}token: {printable(check.token or '-')}\n{'':>14}here:  {printable(check.file or '-')}")


def _headline(report: Report) -> str:
    if report.verdict == "failed":
        return f"not verified: check {', '.join(map(str, report.failed))} failed"
    return f"{report.verdict}: {printable(report.reason)}" if report.reason else str(report.verdict)
