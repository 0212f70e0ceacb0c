"""`issuer verify DIR`: reports as they come; progress on a terminal; a summary at the end."""

from __future__ import annotations

import contextlib
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType

import msgspec

from issuer.cli.terminal import Painted, is_watched, printable, say, say_whole, to_json
from issuer.errors import InputError
from issuer.relying.bulk import Listener, Writer, judge_folder
from issuer.relying.verifier import Verifier
from issuer.verify.report import REPORT_VERSION, Report, Status
from issuer.verify.summary import Summary
from issuer.verify.trust import Trust

_VERDICTS = ("verified", "failed", "undecided", "unverified")
_DECISIVE = {"failed": Status.FAIL, "undecided": Status.UNKNOWN}
_EVERY_S = 0.2
_BLANK = Painted("\r\x1b[K")  # takes the line away
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60))


def verify_folder(root: Path, verifier: Verifier, *, jobs: int, as_json: bool) -> Summary:
    """Judge every result file below `root`, print the reports, and return the counts."""
    progress = _Progress(shown=is_watched())
    with _interruptible() as stopped:
        listener = Listener(progress.out, progress.tick, stopped)
        summary = judge_folder(root, verifier, JSON_LINES if as_json else FOR_PEOPLE, listener, jobs=jobs)
    render = render_json_summary if as_json else render_summary
    progress.out(render(summary, verifier.trust, verifier.context.now))
    return summary


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Notice the first Ctrl-C; the second one ends this process at once, and its workers with it."""
    seen: list[int] = []

    def notice(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    before = signal.signal(signal.SIGINT, notice)
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, before)


class _Progress:
    """The last line of a terminal: how many, how fast, how long still. On standard error, unless that is a file."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._began = self._drawn_at = time.monotonic()
        self._drawn = False

    def tick(self, fraction: float, summary: Summary) -> None:
        """Show how far it is, a few times a second."""
        now = time.monotonic()
        if not self._shown or now - self._drawn_at < _EVERY_S:
            return
        self._drawn_at, spent = now, now - self._began
        rate, left = summary.entries / spent, _span(spent * (1 - fraction) / fraction)
        line = f"{summary.entries:,} entries, {rate:,.0f}/s, {fraction:.0%}, {left} left"
        say(_BLANK, line, err=True, end="")
        self._drawn = True

    def out(self, text: str) -> None:
        """Write to standard output; the line of progress is taken away before."""
        if self._drawn:
            say(_BLANK, err=True, end="")
            self._drawn = False
        say_whole(text)


def _span(seconds: float) -> str:
    whole = int(seconds) + 1
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02} s"


# -- for people -------------------------------------------------------------------------------------------------------


def render_reports(file: str, reports: tuple[Report, ...]) -> str:
    """Write a line for each entry that has a token and is not verified; the rest is for the summary."""
    return "".join(
        f"{printable(file)}, entry {report.pointer.removeprefix('/')}: {_describe(report)}\n"
        for report in reports
        if report.verdict in _DECISIVE
    )


def _describe(report: Report) -> str:
    checks = [check for check in report.checks if check.status is _DECISIVE[report.verdict]]
    reasons = []
    for check in checks:
        values = f" (token: {check.token or '-'}, here: {check.file or '-'})" if check.token or check.file else ""
        reasons.append(printable(f"{check.number} {check.name}: {check.evidence}{values}"))
    word = "not verified" if report.verdict == "failed" else "undecided"
    return f"{word}: {'; '.join(reasons)}"


def render_finding(error: InputError) -> str:
    """Write a line for what could not be read, and where."""
    return f"{printable(str(error))}\n"


def render_summary(summary: Summary, trust: Trust, now: int) -> str:
    """Write the counts: verdicts, by issuer, by framework, and the reasons of what is not verified."""
    counts = ", ".join(f"{summary.verdicts[verdict]:,} {verdict}" for verdict in _VERDICTS)
    lines = [f"{summary.entries:,} entries in {summary.files:,} files: {counts}"]
    if summary.findings:
        lines.append(f"{summary.findings:,} findings in files that could not be read whole")
    lines += _render_names("by issuer", summary.by_issuer) + _render_names("by framework", summary.by_framework)
    if summary.by_reason:
        lines += ["not verified, because"]
        lines += [f"  {count:>9,}  {reason}" for reason, count in summary.by_reason.most_common() if count]
    lines += [f"key set of {issuer}, fetched {_age(now - at)} ago" for issuer, at in _fetch_times(trust)]
    if summary.interrupted:
        lines.append("interrupted: this is what was judged until then")
    return "\n".join(map(printable, lines)) + "\n"


def _age(seconds: int) -> str:
    size, unit = next(((size, unit) for unit, size in _UNITS if seconds >= size), (1, "s"))
    return f"{seconds // size} {unit}"


def _render_names(title: str, counts: Mapping[str, Counter[str]]) -> list[str]:
    ranked = sorted(counts.items(), key=lambda item: (-item[1].total(), item[0]))
    lines = [
        f"  {name}: " + ", ".join(f"{kinds[verdict]:,} {verdict}" for verdict in _VERDICTS if kinds[verdict])
        for name, kinds in ranked
        if kinds.total()
    ]
    return [title, *lines] if lines else []


FOR_PEOPLE = Writer(render_reports, render_finding)


# -- for machines -----------------------------------------------------------------------------------------------------


def render_json_reports(_file: str, reports: tuple[Report, ...]) -> str:
    """Write one report a line."""
    return "".join(to_json(report) + "\n" for report in reports)


def render_json_finding(error: InputError) -> str:
    """Write a line with the one member `finding` beside `version`."""
    place = error.place
    finding = {
        "code": str(error.code), "file": place.file, "line": place.line, "column": place.column,
        "pointer": error.pointer, "detail": error.detail,
    }  # fmt: skip
    return to_json({"version": REPORT_VERSION, "finding": finding}) + "\n"


def render_json_summary(summary: Summary, trust: Trust, _now: int) -> str:
    """Write the last line, with the one member `summary` beside `version`."""
    key_sets = [{"issuer": issuer, "fetched_at": at} for issuer, at in _fetch_times(trust)]
    document = {**msgspec.to_builtins(summary), "key_sets": key_sets}
    return to_json({"version": document.pop("version"), "summary": document}) + "\n"


JSON_LINES = Writer(render_json_reports, render_json_finding)


def _fetch_times(trust: Trust) -> list[tuple[str, int]]:
    return [
        (name, issuer.keys_fetched_at) for name, issuer in trust.issuers.items() if issuer.keys_fetched_at is not None
    ]
