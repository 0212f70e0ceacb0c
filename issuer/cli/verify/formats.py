"""Output formats of `issuer verify`: lines, JSON, and the formats of --format.

Each report becomes whole lines, so that the command can write them one by one. Head and foot make one document of them.
`github` has workflow commands. `junit` has a suite for each file and a case for each entry. `sarif` is SARIF 2.1.0.
`csv` (RFC 4180, lines end in LF) has a row for each metric. Only `junit` and `csv` contain verified entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from issuer.cli.render import XML, Case, Defect, document_of, junit_suite, sarif, sarif_result, workflow_command
from issuer.cli.terminal import printable, say_document, to_json
from issuer.cli.verify.report import WORDS, describe_said, entry_of, metric_name, show
from issuer.errors import InputError, Place
from issuer.formats.display import csv_table
from issuer.formats.strict_yaml import number_text
from issuer.formats.times import show_span, show_time
from issuer.relying.verifier import Writer
from issuer.verify.report import NAMES, REPORT_VERSION, TIERS, Check, Report, Reports, Status, Verdict
from issuer.verify.summary import Summary
from issuer.verify.trust import Trust

# -- lines ------------------------------------------------------------------------------------------------------------

_VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
_DECISIVE: dict[Verdict, Status] = {
    "failed": Status.FAIL, "undecided": Status.UNKNOWN, "good_when_issued": Status.UNKNOWN,
}  # fmt: skip


def render_reports(file: str, reports: tuple[Report, ...]) -> str:
    """Return a line for each entry with a token that is not verified. The summary counts the other entries."""
    return "".join(
        f"{printable(file)}, {entry_of(each)}: {describe_report(each)}\n"
        for each in reports
        if each.verdict in _DECISIVE
    )


def describe_report(report: Report) -> str:
    """Return one line with the verdict and the checks that decided it."""
    reasons = [_reason(check) for check in decisive_checks(report)] or [report.reason]
    return printable(": ".join(filter(None, (WORDS[report.verdict], "; ".join(reasons)))))


def decisive_checks(report: Report) -> list[Check]:
    """Return the checks for which a report is not verified. An entry without a token has no such checks."""
    decisive = _DECISIVE.get(report.verdict)
    return [check for check in report.checks if check.status is decisive]


def _reason(check: Check) -> str:
    values = f" (token: {check.token or '-'}, here: {check.file or '-'})" if check.token or check.file else ""
    return f"{check.number} {check.name}: {check.evidence}{values}"


def render_finding(error: InputError) -> str:
    """Return one line with the error and its place."""
    return f"{printable(str(error))}\n"


def render_summary(summary: Summary, trust: Trust, now: int) -> str:
    """Return the counts: verdicts, by issuer, by framework, and the reasons of entries that are not verified."""
    counts = ", ".join(f"{summary.verdicts[verdict]:,} {_word(verdict)}" for verdict in _VERDICTS)
    lines = [f"{summary.entries:,} entries in {summary.files:,} files: {counts}"]
    if summary.findings:
        lines.append(f"{summary.findings:,} findings in files that could not be read completely")
    if summary.entries:
        counted = (f"{summary.by_tier[tier]:,} {tier}" for tier in TIERS if summary.by_tier[tier])
        lines.append(f"by tier: {', '.join(counted)}")
    lines += _render_names("by issuer", summary.by_issuer) + _render_names("by framework", summary.by_framework)
    if summary.by_reason:
        lines += ["not verified, because"]
        lines += [f"  {count:>9,}  {reason}" for reason, count in summary.by_reason.most_common() if count]
    lines += [f"key set of {issuer}, fetched {show_span(now - at)} ago" for issuer, at in _fetch_times(trust)]
    if summary.interrupted:
        lines.append("interrupted: these counts cover the files until then")
    return "\n".join(map(printable, lines)) + "\n"


def _word(verdict: Verdict) -> str:
    return verdict.replace("_", " ")  # the word in JSON, not the one of WORDS


def _render_names(title: str, counts: Mapping[str, Counter[str]]) -> list[str]:
    ranked = sorted(counts.items(), key=lambda item: (-item[1].total(), item[0]))
    lines = [
        f"  {name}: " + ", ".join(f"{kinds[verdict]:,} {_word(verdict)}" for verdict in _VERDICTS if kinds[verdict])
        for name, kinds in ranked
        if kinds.total()
    ]
    return [title, *lines] if lines else []


FOR_PEOPLE = Writer(render_reports, render_finding)


def render_json_reports(_file: str, reports: tuple[Report, ...]) -> str:
    """Return one line of JSON for each report."""
    return "".join(to_json(report) + "\n" for report in reports)


def render_json_finding(error: InputError) -> str:
    """Return a line of JSON with the members `version` and `finding`."""
    return to_json({"version": REPORT_VERSION, "finding": document_of(error.finding)}) + "\n"


def render_json_summary(summary: Summary, trust: Trust, _now: int) -> str:
    """Return the last line of JSON, with the members `version` and `summary`."""
    key_sets = [{"issuer": issuer, "fetched_at": at} for issuer, at in _fetch_times(trust)]
    document = {**msgspec.to_builtins(summary), "key_sets": key_sets}
    return to_json({"version": document.pop("version"), "summary": document}) + "\n"


JSON_LINES = Writer(render_json_reports, render_json_finding)


def _fetch_times(trust: Trust) -> list[tuple[str, int]]:
    return [
        (name, issuer.keys_fetched_at) for name, issuer in trust.issuers.items() if issuer.keys_fetched_at is not None
    ]


# -- formats ----------------------------------------------------------------------------------------------------------

FormName = Literal["github", "junit", "sarif", "csv"]
FORMS: tuple[FormName, ...] = get_args(FormName)
_TOOL = "issuer verify"


class Form(Struct, frozen=True):
    """An output form: `head`, the writer's text for each file, and `foot`, made from the counts.

    In a form that is one list, each item begins with `separator`, and `joined` removes the first. `alone` prints the
    reports of a single file in a different way; its arguments are the reports, the file's name and the reader's time.
    """

    writer: Writer
    head: str = ""
    foot: Callable[[Summary, Trust, int], str] = lambda _summary, _trust, _now: ""
    separator: str = ""
    alone: Callable[[Sequence[Report], str, int], None] | None = None


def form_of(name: FormName | None, *, as_json: bool, unsigned_fails: bool) -> Form:
    """Return the form of this name, or JSON or lines for people. `unsigned_fails`: an entry without a token is a no."""
    levels = _LEVELS | ({"unverified": "error"} if unsigned_fails else {})
    if name == "github":
        return Form(Writer(lambda file, reports: _github(_problems(file, reports, levels)), _github_finding))
    if name == "junit":
        writer = Writer(lambda file, reports: _junit(file, reports, levels), _junit_finding)
        return Form(writer, f'{XML}<testsuites name="{_TOOL}">\n', lambda *_: "</testsuites>\n")
    if name == "sarif":
        writer = Writer(lambda file, reports: _sarif(_problems(file, reports, levels)), _sarif_finding)
        head = to_json(sarif(_TOOL, _RULES, [])).removesuffix(_SARIF_FOOT)
        return Form(writer, head, lambda *_: f"\n{_SARIF_FOOT}\n", ",")
    if name == "csv":
        return Form(Writer(_csv, _csv_finding), _rows([_COLUMNS]))
    if as_json:
        return Form(JSON_LINES, foot=render_json_summary, alone=_show_json)
    return Form(FOR_PEOPLE, foot=render_summary, alone=show)


def _show_json(reports: Sequence[Report], _file: str, _now: int) -> None:
    say_document(Reports(REPORT_VERSION, tuple(reports)))


def quiet_form() -> Form:
    """Return the form that writes no text. The exit code is the answer."""
    return Form(Writer(lambda _file, _reports: "", lambda _error: ""))


def without_good(form: Form) -> Form:
    """Return the form without verified entries."""
    writer, alone = form.writer, form.alone

    def others(file: str, reports: tuple[Report, ...]) -> str:
        return writer.reports(file, _not_verified(reports))

    def others_alone(reports: Sequence[Report], file: str, now: int) -> None:
        left = _not_verified(reports)
        # For no reports, `show` would print that the file has no entries.
        if alone is not None and (left or not reports or alone is not show):
            alone(left, file, now)

    return replace(form, writer=Writer(others, writer.finding), alone=alone and others_alone)


def _not_verified(reports: Sequence[Report]) -> tuple[Report, ...]:
    return tuple(report for report in reports if report.verdict != "verified")


def joined(form: Form, out: Callable[[str], object]) -> Callable[[str], None]:
    """Return a function that writes texts of the form's writer, without the separator before the first item."""
    begun: list[bool] = []

    def write(text: str) -> None:
        if text and not begun:
            text = text.removeprefix(form.separator)
            begun.append(True)
        out(text)

    return write


# The levels of verdicts that are problems.
_LEVELS: dict[Verdict, str] = {
    "failed": "error", "undecided": "warning", "good_when_issued": "warning", "unverified": "",
}  # fmt: skip
_RULES = {
    **{f"check-{number}": {"shortDescription": f"check {number}: {name}"} for number, name in NAMES.items()},
    "unsigned": {"shortDescription": "an entry without a token that could be checked"},
}
_SARIF_FOOT = "]}]}"


def _problems(file: str, reports: Sequence[Report], levels: dict[Verdict, str]) -> Iterator[Defect]:
    for report in reports:
        if level := levels.get(report.verdict):
            decisive = decisive_checks(report)
            rule = f"check-{decisive[0].number}" if decisive else "unsigned"
            message = f"{describe_report(report)}. The file says: {describe_said(report.repo, report.said)}"
            yield Defect(level, rule, WORDS[report.verdict], message, Place(file, report.line))


def _github(problems: Iterator[Defect]) -> str:
    return "".join(f"{workflow_command(problem)}\n" for problem in problems)


def _github_finding(error: InputError) -> str:
    return workflow_command(Defect.of(error.finding, error.detail)) + "\n"


def _junit(file: str, reports: Sequence[Report], levels: dict[Verdict, str]) -> str:
    cases = []
    for report in reports:
        name = f"{entry_of(report)}: {describe_said(report.repo, report.said)}"
        failure = describe_report(report) if levels.get(report.verdict) else ""
        skipped = describe_report(report) if not failure and report.verdict == "unverified" else ""
        cases.append(Case(file, name, failure, report.verdict, skipped))
    return junit_suite(file, cases) if cases else ""


def _junit_finding(error: InputError) -> str:
    file = error.place.file
    return junit_suite(file, [Case(file, "the file", str(error), str(error.code))])


def _sarif(problems: Iterator[Defect]) -> str:
    return "".join(f",\n{to_json(sarif_result(problem))}" for problem in problems)


def _sarif_finding(error: InputError) -> str:
    return _sarif(iter([Defect.of(error.finding, str(error))]))


_COLUMNS = (
    "file", "line", "entry", "verdict", "reason", "model_repo", "model_revision", "benchmark_repo",
    "benchmark_revision", "task_id", "metric", "value", "selection", "framework", "framework_version", "issuer",
    "integration", "run_url", "issued_at", "expires_at", "attempt", "attempts_since", "judged_at", "tier",
)  # fmt: skip


def _csv(file: str, reports: Sequence[Report]) -> str:
    return _rows([row for report in reports for row in _rows_of(file, report)])


def _rows_of(file: str, report: Report) -> list[tuple[str, ...]]:
    said, reason = report.said, "" if report.verdict == "verified" else describe_report(report)
    framework = said.framework
    place = (file, str(report.line or ""), report.pointer.removeprefix("/"), report.verdict, reason)
    model = (report.repo, _text(said.model_revision))
    benchmark = (said.dataset.id, _text(said.dataset.revision), _text(said.dataset.task_id))
    signed = _signed(report)
    if report.verdict == "failed":  # the token's signer did not sign this row's values
        signed = ("",) * len(signed)
    run = (_text(framework.name), _text(framework.version), *signed, show_time(report.at), report.tier)
    metrics = [
        (metric_name(each), number_text(each.value), said.selection.get(metric_name(each), "")) for each in said.metrics
    ]
    return [(*place, *model, *benchmark, *metric, *run) for metric in metrics or [("", "", "")]]


def _signed(report: Report) -> tuple[str, ...]:
    times = (_time(report.issued_at), _time(report.expires_at))
    attempt = report.attempt
    counted = ("", "") if attempt is None else (str(attempt.number), _time(attempt.since))
    return (report.issuer, report.integration, report.run_url, *times, *counted)


def _csv_finding(error: InputError) -> str:
    row = [error.place.file, str(error.place.line or ""), "", "malformed", str(error)]
    return _rows([(*row, *[""] * (len(_COLUMNS) - len(row)))])


def _rows(rows: Sequence[Sequence[str]]) -> str:
    return csv_table([printable(cell) for cell in row] for row in rows)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _time(moment: int | None) -> str:
    return "" if moment is None else show_time(moment)
