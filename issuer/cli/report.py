"""Reports for people: who had which number signed and who vouches for it, every check with its evidence, differing
values beside each other, and what the answer means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import UNSET, Struct

from issuer.cli.terminal import paint, printable, say, shorten, wrap
from issuer.formats.strict_yaml import number_text
from issuer.formats.times import show_time, show_when
from issuer.results.entry import EntryFramework, EntryMetric
from issuer.verify.provenance import describe_caller
from issuer.verify.report import ALWAYS_DUE, Check, Report, Said, Status, Verdict
from issuer.verify_token import Attempt

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


def show(reports: Iterable[Report], name: str, now: int, *, broken: bool = False) -> None:
    """Print the reports of a file; `name` is what to call it, `now` the clock of who reads it (Unix seconds).

    `broken`: lines are broken between words, for a terminal.
    """
    shown = False
    for report in reports:
        shown = True
        for line in _lines(report, name, now):
            _say_line(line, broken=broken)
    if not shown:
        say(f"{printable(name)}: no entries")


class _Line(Struct, frozen=True):
    """One line; the next ones, where it is broken, begin `indent` columns in. `painted` of it is in colours."""

    text: str
    indent: int = 4
    painted: str = ""
    style: Mapping[str, Any] = {}


def _say_line(line: _Line, *, broken: bool) -> None:
    laid = wrap(line.text.lstrip(), " " * (len(line.text) - len(line.text.lstrip())), " " * line.indent)
    first, *rest = laid if broken else [printable(line.text)]
    before, painted, after = first.partition(line.painted) if line.painted else (first, "", "")
    say(before, paint(painted, **line.style) if painted else "", after, *(f"\n{each}" for each in rest))


def _lines(report: Report, name: str, now: int) -> Iterator[_Line]:
    yield from _head(report, now)
    place = f"{printable(name)}, entry {report.pointer.removeprefix('/')}"
    if report.verdict == "unverified":
        yield _Line(f"  {place}")
    else:
        yield _Line(f"  {place}, judged {_AT_FROM[report.at_from].format(show_time(report.at))}:")
        for check in report.checks:
            yield from _check_lines(check)
    yield _Line(f"  tier: {report.tier}, {report.tier_reason}")
    headline = _headline(report)
    yield _Line(f"  {headline}", 2, headline, {"fg": _HEADLINE[report.verdict], "bold": True})
    yield from (_Line(f"  {line}") for line in _meaning(report))
    if report.attempt is not None:
        yield _Line(f"  {_COUNTED}")


# -- who says what ----------------------------------------------------------------------------------------------------


def _head(report: Report, now: int) -> Iterator[_Line]:
    """Yield the first lines: the verdict and the score, who ran it and how, which issuer signed it and when, and the
    attempt if the token has one."""
    word = WORDS[report.verdict]
    said = f"{word}: {describe_said(report.repo, report.said)}"
    yield _Line(said, 4, word, {"fg": _HEADLINE[report.verdict], "bold": True})
    framework = report.said.framework
    if report.claims is None or report.issued_at is None:
        yield _Line(f"  run with {_framework(framework)}, as the file alone says")
        yield _Line("  nobody here vouches for it")
        return
    signed = report.claims.framework
    by = report.run_url or describe_caller(report.caller)
    whose = "" if report.verdict in {"verified", "good_when_issued"} else "its token: "
    yield _Line(shorten(f"  {whose}run with {signed.name} {signed.version} by {by}", _MOST_COLUMNS))
    vouched = "signed" if whose else "vouched for"
    when = show_when(report.issued_at, now)
    by_whom = shorten(f"  {whose}{vouched} by {report.issuer} for its integration {report.integration}", _MOST_COLUMNS)
    yield _Line(f"{by_whom}, {when}")
    if report.attempt is not None:
        yield _Line(f"  {whose}{_describe_attempt(report.attempt, now)}")


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


# -- what was found ---------------------------------------------------------------------------------------------------


def _meaning(report: Report) -> tuple[str, str]:
    if report.verdict == "undecided" and report.reason:
        return _WAS_GOOD
    rest = {check.status for check in report.checks if check.number in ALWAYS_DUE - {5}}
    return _NOT_FRESH if report.failed == (5,) and rest == {Status.PASS} else _MEANING[report.verdict]


def _check_lines(check: Check) -> Iterator[_Line]:
    word = "FAIL" if check.status is Status.FAIL else str(check.status)
    text = f"  {check.number:>2}  {word:<8}{check.name:<26}{check.evidence}"
    yield _Line(text, 14, f"{word:<8}", {"fg": _COLOURS[check.status]})
    if check.token or check.file:
        yield _Line(f"{'':>14}token: {check.token or '-'}", 7)  # a digest fits, and stays whole
        yield _Line(f"{'':>14}here:  {check.file or '-'}", 7)


def _headline(report: Report) -> str:
    if report.verdict == "failed":
        return f"not verified: check {', '.join(map(str, report.failed))} failed"
    word = WORDS[report.verdict]
    if report.verdict == "good_when_issued":
        return printable(report.reason)
    return f"{word}: {printable(report.reason)}" if report.reason else word
