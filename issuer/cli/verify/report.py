"""Reports of `issuer verify` for people: each check with its evidence, differing values beside each other, and the
meaning of the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from issuer.cli.render import say_text
from issuer.cli.terminal import paint, printable, say, shorten
from issuer.formats.strict_yaml import number_text
from issuer.formats.times import show_time, show_when
from issuer.results.entry import EntryFramework, EntryMetric
from issuer.token.verify_token import Attempt
from issuer.verify.provenance import describe_caller
from issuer.verify.report import ALWAYS_DUE, Check, Report, Said, Status, Verdict

_COLOURS = {Status.PASS: "green", Status.FAIL: "red", Status.UNKNOWN: "yellow", Status.SKIP: "bright_black"}
# What the answer proves, and what it does not.
_MEANING: dict[Verdict, tuple[str, str]] = {
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
    "good_when_issued": (
        "This proves: the file says what the token says, and the token was good when it was issued.",
        "It does not: that the file was there before the token ended. Who received it then may have kept a receipt.",
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
# Where nothing but the time of receipt is missing, and could be found out.
_WAS_GOOD = (
    _MEANING["good_when_issued"][0],
    "It does not: that the file was there before the token ended. A receipt from back then (--receipts) or a proof of "
    "the issuer's log can still say.",
)
WORDS: dict[Verdict, str] = {
    "verified": "verified", "failed": "not verified", "undecided": "undecided",
    "good_when_issued": "good when issued", "unverified": "unverified",
}  # fmt: skip
_HEADLINE: dict[Verdict, str] = {
    "verified": "green", "failed": "red", "undecided": "yellow", "good_when_issued": "yellow", "unverified": "yellow",
}  # fmt: skip
_AT_FROM = {
    "clock": "as received at {}",
    "stated": "as received at {}, as stated",
    "receipt": "as received at {}, by the receipt",
    "log": "as it existed at {}, by the log's witnesses: when it was received is not known",
    "unknown": "at {}, for a reader: when it was received is not known",
}
_MOST_METRICS = 4
_COMMIT_CHARS = 12
# What the number of an attempt counts, and what not.
_COUNTED = (
    "The attempt counts what one registered identity had signed. Equal results do not count, nor do those of others; "
    "another commit, even an empty one, starts anew."
)
_MOST_COLUMNS = 400  # of one of the first lines, whatever is in it


def show(reports: Sequence[Report], name: str, now: int) -> None:
    """Print the reports of a file; `name` is what to call it, `now` the reader's clock (Unix seconds)."""
    for report in reports:
        _show(report, f"{printable(name)}, {entry_of(report)}", now)
    if not reports:
        say(f"{printable(name)}: no entries")


def _show(report: Report, place: str, now: int) -> None:
    style: dict[str, Any] = {"fg": _HEADLINE[report.verdict], "bold": True}
    say_text(f": {describe_said(report.repo, report.said)}", paint(WORDS[report.verdict], **style), rest=4)
    for line in _origin(report, now):
        _say_indented(line)
    if report.verdict == "unverified":
        _say_indented(place)
    else:
        _say_indented(f"{place}, judged {_AT_FROM[report.at_from].format(show_time(report.at))}:")
        for check in report.checks:
            _show_check(check)
    _say_indented(f"tier: {report.tier}, {report.tier_reason}")
    say_text(_headline(report), "  ", rest=2, **style)
    for line in _meaning(report):
        _say_indented(line)
    if report.attempt is not None:
        _say_indented(_COUNTED)


def _say_indented(line: str) -> None:
    say_text(line, "  ", rest=4)


def _origin(report: Report, now: int) -> Iterator[str]:
    """Yield who ran it and how, which issuer signed it and when, and the attempt if the token has one."""
    if report.claims is None or report.issued_at is None:
        yield f"run with {_framework(report.said.framework)}, as the file alone says"
        yield "nobody here vouches for it"
        return
    signed = report.claims.framework
    by = report.run_url or describe_caller(report.caller)
    whose = "" if report.verdict in {"verified", "good_when_issued"} else "its token: "
    yield shorten(f"{whose}run with {signed.name} {signed.version} by {by}", _MOST_COLUMNS)
    vouched = "signed" if whose else "vouched for"
    by_whom = f"{whose}{vouched} by {report.issuer} for its integration {report.integration}"
    yield f"{shorten(by_whom, _MOST_COLUMNS)}, {show_when(report.issued_at, now)}"
    if report.attempt is not None:
        yield f"{whose}{_describe_attempt(report.attempt, now)}"


def _describe_attempt(attempt: Attempt, now: int) -> str:
    """Say which attempt a result was: `attempt 3: with this one, 3 different results were signed for ...`."""
    more = f"with this one, {attempt.shown} different results were"
    many = "this is the first result" if attempt.number == 1 else more
    run = "this model commit, benchmark commit, task and framework"
    return f"attempt {attempt.shown}: {many} signed for {run} since {show_when(attempt.since, now)}"


def describe_said(repo: str, said: Said) -> str:
    """Say on one line what a file says: model and commit, benchmark and task, and its metrics."""
    commit = f"@{said.model_revision[:_COMMIT_CHARS]}" if said.model_revision else ""
    task = f" ({said.dataset.task_id})" if said.dataset.task_id else ""
    metrics = [_metric(metric, said) for metric in said.metrics[:_MOST_METRICS]]
    if (more := len(said.metrics) - _MOST_METRICS) > 0:
        metrics.append(f"and {more} more")
    if not metrics:
        metrics.append("no metric" if said.value is UNSET else f"{number_text(said.value)}, of a metric without a name")
    part = ", of a partial run" if said.completeness == "partial" else ""
    return shorten(f"{repo}{commit} on {said.dataset.id}{task}: {', '.join(metrics)}{part}", _MOST_COLUMNS)


def metric_name(metric: EntryMetric) -> str:
    """Return how people name a metric, and `run.selection` does: its id, and its slice in brackets."""
    return f"{metric.metric_id} ({metric.slice})" if metric.slice else metric.metric_id


def _metric(metric: EntryMetric, said: Said) -> str:
    selected = said.selection.get(metric_name(metric))
    return f"{metric_name(metric)} {number_text(metric.value)}{f' [{selected}]' if selected else ''}"


def _framework(framework: EntryFramework) -> str:
    parts = [part for part in (framework.name, framework.version) if part is not UNSET]
    return shorten(" ".join(parts) or "an unnamed framework")


def _meaning(report: Report) -> tuple[str, str]:
    if report.verdict == "undecided" and report.reason:
        return _WAS_GOOD
    rest = {check.status for check in report.checks if check.number in ALWAYS_DUE - {5}}
    return _NOT_FRESH if report.failed == (5,) and rest == {Status.PASS} else _MEANING[report.verdict]


def _show_check(check: Check) -> None:
    word = "FAIL" if check.status is Status.FAIL else str(check.status)
    painted = paint(f"{word:<8}", fg=_COLOURS[check.status])
    say_text(f"{check.name:<26}{check.evidence}", f"  {check.number:>2}  ", painted, rest=14)
    if check.token or check.file:
        say_text(f"token: {check.token or '-'}", " " * 14, rest=7)  # a digest fits, and stays whole
        say_text(f"here:  {check.file or '-'}", " " * 14, rest=7)


def _headline(report: Report) -> str:
    if report.verdict == "failed":
        return f"not verified: check {', '.join(map(str, report.failed))} failed"
    word = WORDS[report.verdict]
    if report.verdict == "good_when_issued":
        return printable(report.reason)
    return f"{word}: {printable(report.reason)}" if report.reason else word


def entry_of(report: Report) -> str:
    """Name the entry of a report by its number."""
    return f"entry {report.pointer.removeprefix('/')}"
