"""Reports of `issuer verify` for people: each check with its evidence, values that differ, and the meaning of the
verdict."""

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
# The proof that each verdict gives, and its limits.
_MEANING: dict[Verdict, tuple[str, str]] = {
    "verified": (
        "This proves: the issuer's registered integration had exactly this run signed, for this repository.",
        "It does not prove that the benchmark is sound, or that the run was honest.",
    ),
    "failed": (
        "This proves: the file and the token do not match, or the token is not valid here.",
        "It does not prove that the result is false. It proves only that no valid token supports it.",
    ),
    "undecided": (
        "This proves nothing yet. A check lacks something that it needs, and no check has failed.",
        "It does not prove that the result is good. Try again when the missing part is available.",
    ),
    "good_when_issued": (
        "This proves: the file and the token say the same, and the token was good when it was issued.",
        "It does not prove that the file existed before the token expired. An earlier recipient may have a receipt.",
    ),
    "unverified": (
        "This proves nothing, because no issuer vouches for this result.",
        "It does not prove that the result is false.",
    ),
}
# For reports in which only this check failed.
_ONLY_FAILED = {
    5: (
        "This proves: the file and the token say the same, but the token is not valid at this time: see check 5.",
        "It does not prove that the result is false. Tokens are short-lived. An earlier receipt may help (--receipts).",
    ),
    10: (
        "This proves: the file and the token say the same, but not by a definition that your trust file accepts: see "
        "check 10.",
        "It does not prove that the result is false. A result by a definition that you accept would count.",
    ),
}
# For reports that lack only the time of receipt, which a receipt or a log can supply.
_WAS_GOOD = (
    _MEANING["good_when_issued"][0],
    "It does not prove that the file existed before the token expired. An earlier receipt (--receipts) or a proof of "
    "the issuer's log can prove that.",
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
    "log": "as it existed at {}, by the log's witnesses; the time of receipt is unknown",
    "unknown": "at {}, for a reader; the time of receipt is unknown",
}
_MOST_METRICS = 4
_COMMIT_CHARS = 12
_COUNTED = (
    "The attempt counts the different results that one registered identity had signed. Results of other identities do "
    "not count. Another commit, even an empty one, starts a new count."
)
_MOST_COLUMNS = 400  # of the long lines, which contain texts from files


def show(reports: Sequence[Report], name: str, now: int) -> None:
    """Print the reports of the file `name`. `now` is the reader's clock (Unix seconds)."""
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
    """Yield the framework and the caller, the issuer and the time, and the attempt if the token has one."""
    if report.claims is None or report.issued_at is None:
        yield f"run with {_framework(report.said.framework)}, according to the file"
        yield "no trusted issuer vouches for it"
        return
    signed = report.claims.framework
    by = report.run_url or describe_caller(report.caller)
    prefix = "" if report.verdict in {"verified", "good_when_issued"} else "its token: "
    yield shorten(f"{prefix}run with {signed.name} {signed.version} by {by}", _MOST_COLUMNS)
    issuer = f"by {report.issuer} for its integration {report.integration}"
    vouched = shorten(f"{prefix}{'signed' if prefix else 'vouched for'} {issuer}", _MOST_COLUMNS)
    yield f"{vouched}, {show_when(report.issued_at, now)}"
    if report.attempt is not None:
        yield f"{prefix}{_describe_attempt(report.attempt, now)}"


def _describe_attempt(attempt: Attempt, now: int) -> str:
    more = f"with this one, {attempt.shown} different results were"
    many = "this is the first result" if attempt.number == 1 else more
    run = "this model commit, benchmark commit, task and framework"
    return f"attempt {attempt.shown}: {many} signed for {run} since {show_when(attempt.since, now)}"


def describe_said(repo: str, said: Said) -> str:
    """Return one line with an entry's content: model and commit, benchmark and task, and metrics."""
    commit = f"@{said.model_revision[:_COMMIT_CHARS]}" if said.model_revision else ""
    task = f" ({said.dataset.task_id})" if said.dataset.task_id else ""
    metrics = [_metric(metric, said) for metric in said.metrics[:_MOST_METRICS]]
    if (more := len(said.metrics) - _MOST_METRICS) > 0:
        metrics.append(f"and {more} more")
    if not metrics:
        metrics.append("no metric" if said.value is UNSET else f"{number_text(said.value)}, of an unnamed metric")
    part = ", of a partial run" if said.completeness == "partial" else ""
    return shorten(f"{repo}{commit} on {said.dataset.id}{task}: {', '.join(metrics)}{part}", _MOST_COLUMNS)


def metric_name(metric: EntryMetric) -> str:
    """Return a metric's name, as in `run.selection`: its id, and its slice in brackets."""
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
    rest = {check.status for check in report.checks if check.number in ALWAYS_DUE.difference(report.failed)}
    only = report.failed[0] if len(report.failed) == 1 and rest == {Status.PASS} else 0
    return _ONLY_FAILED.get(only, _MEANING[report.verdict])


def _show_check(check: Check) -> None:
    word = "FAIL" if check.status is Status.FAIL else str(check.status)
    painted = paint(f"{word:<8}", fg=_COLOURS[check.status])
    say_text(f"{check.name:<26}{check.evidence}", f"  {check.number:>2}  ", painted, rest=14)
    if check.token or check.file:
        say_text(f"token: {check.token or '-'}", " " * 14, rest=7)  # a digest fits, and stays whole
        say_text(f"here:  {check.file or '-'}", " " * 14, rest=7)


def _headline(report: Report) -> str:
    if report.verdict == "failed":
        *first, last = map(str, report.failed)
        checks = f"checks {', '.join(first)} and {last}" if first else f"check {last}"
        return f"not verified: {checks} failed"
    word = WORDS[report.verdict]
    if report.verdict == "good_when_issued":
        return printable(report.reason)
    return f"{word}: {printable(report.reason)}" if report.reason else word


def entry_of(report: Report) -> str:
    """Return the name of a report's entry: `entry 0`."""
    return f"entry {report.pointer.removeprefix('/')}"
