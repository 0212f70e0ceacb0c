"""`issuer verify --format`: what CI systems, code scanners and spreadsheets read. Each report becomes whole lines, so
that a folder's are written as they come; head and foot make one document of them.

`github` are workflow commands; `junit` has a suite a file and a case an entry; `sarif` is SARIF 2.1.0; `csv` (RFC 4180,
lines ending in LF) has a row for each metric. What is good is in `junit` and `csv` only. The exit code is the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from issuer import __version__
from issuer.cli import verify_lines
from issuer.cli.findings import SARIF_SCHEMA, junit_case, junit_suite_of, sarif_result, workflow_command
from issuer.cli.report import WORDS, describe_said, metric_name, show
from issuer.cli.terminal import is_read, printable, say_document, to_json
from issuer.cli.verify_lines import describe_report
from issuer.errors import InputError
from issuer.formats import spreadsheet
from issuer.formats.strict_yaml import number_text
from issuer.formats.times import show_time
from issuer.relying.verifier import Writer
from issuer.results.entry import EntryMetric
from issuer.verify.report import NAMES, REPORT_VERSION, Report, Reports, Verdict
from issuer.verify.summary import Summary
from issuer.verify.trust import Trust

FormName = Literal["github", "junit", "sarif", "csv"]
FORMS: tuple[FormName, ...] = get_args(FormName)
_TOOL = "issuer verify"


class Form(Struct, frozen=True):
    """How the answers are written: `head`, what the writer makes of each file, and `foot`, from the counts.

    Where all of it is one list, each item begins with `separator`, which the first one loses. `alone` prints the
    reports of a single file, by its name and at the reader's time, where that is not the same.
    """

    writer: Writer
    head: str = ""
    foot: Callable[[Summary, Trust, int], str] = lambda _summary, _trust, _now: ""
    separator: str = ""
    alone: Callable[[str, tuple[Report, ...], int], None] | None = None


def form_of(name: FormName | None, *, as_json: bool, unsigned_fails: bool) -> Form:
    """Return the form of this name; without one, JSON or lines for people.

    `unsigned_fails`: an entry without a token counts as a no.
    """
    levels = _LEVELS | ({"unverified": "error"} if unsigned_fails else {})
    if name == "github":
        return Form(Writer(lambda file, reports: _github(file, reports, levels), _github_finding))
    if name == "junit":
        head = f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="{_TOOL}">\n'
        writer = Writer(lambda file, reports: _junit(file, reports, levels), _junit_finding)
        return Form(writer, head, lambda *_: "</testsuites>\n")
    if name == "sarif":
        writer = Writer(lambda file, reports: _sarif(file, reports, levels), _sarif_finding)
        return Form(writer, _sarif_head(), lambda *_: "\n]}]}\n", ",")
    if name == "csv":
        return Form(Writer(_csv, _csv_finding), _rows([_COLUMNS]))
    if as_json:
        return Form(verify_lines.JSON_LINES, foot=verify_lines.render_json_summary, alone=_show_json)
    return Form(verify_lines.FOR_PEOPLE, foot=verify_lines.render_summary, alone=_show)


def _show_json(_file: str, reports: tuple[Report, ...], _now: int) -> None:
    say_document(Reports(REPORT_VERSION, reports))


def _show(file: str, reports: tuple[Report, ...], now: int) -> None:
    show(reports, file, now, broken=is_read())


def quiet_form() -> Form:
    """Return the form that writes nothing: the exit code is the answer."""
    return Form(Writer(lambda _file, _reports: "", lambda _error: ""))


def without_good(form: Form) -> Form:
    """Leave out of a form what is verified."""
    writer, alone = form.writer, form.alone

    def others(file: str, reports: tuple[Report, ...]) -> str:
        return writer.reports(file, _not_verified(reports))

    def others_alone(file: str, reports: tuple[Report, ...], now: int) -> None:
        left = _not_verified(reports)
        if alone is not None and not (
            alone is _show and reports and not left
        ):  # which would say that it has no entries
            alone(file, left, now)

    return replace(form, writer=Writer(others, writer.finding), alone=alone and others_alone)


def _not_verified(reports: tuple[Report, ...]) -> tuple[Report, ...]:
    return tuple(report for report in reports if report.verdict != "verified")


def joined(form: Form, out: Callable[[str], object]) -> Callable[[str], None]:
    """Write what the form's writer makes: the separator before the first item of a list is left out."""
    begun: list[bool] = []

    def write(text: str) -> None:
        if text and not begun:
            text = text.removeprefix(form.separator)
            begun.append(True)
        out(text)

    return write


# What is no good answer, and how loud to say it.
_LEVELS: dict[Verdict, str] = {
    "failed": "error", "undecided": "warning", "good_when_issued": "warning", "unverified": "",
}  # fmt: skip


def _sentence(report: Report) -> str:
    return f"{describe_report(report)}. The file says: {describe_said(report.repo, report.said)}"


def _entry_of(report: Report) -> str:
    return f"entry {report.pointer.removeprefix('/')}"


# -- github -----------------------------------------------------------------------------------------------------------


def _github(file: str, reports: Sequence[Report], levels: dict[Verdict, str]) -> str:
    return "".join(
        f"{workflow_command(level, file, report.line, 0, WORDS[report.verdict], _sentence(report))}\n"
        for report in reports
        if (level := levels.get(report.verdict))
    )


def _github_finding(error: InputError) -> str:
    place = error.place
    return workflow_command("error", place.file, place.line, place.column, str(error.code), error.detail) + "\n"


# -- junit ------------------------------------------------------------------------------------------------------------


def _junit(file: str, reports: Sequence[Report], levels: dict[Verdict, str]) -> str:
    if not reports:
        return ""
    cases = []
    for report in reports:
        name = f"{_entry_of(report)}: {describe_said(report.repo, report.said)}"
        failure = describe_report(report) if levels.get(report.verdict) else ""
        skipped = describe_report(report) if not failure and report.verdict == "unverified" else ""
        cases.append(junit_case(file, name, failure, kind=report.verdict, skipped=skipped))
    return junit_suite_of(file, cases)


def _junit_finding(error: InputError) -> str:
    return junit_suite_of(
        error.place.file, [junit_case(error.place.file, "the file", str(error), kind=str(error.code))]
    )


# -- sarif ------------------------------------------------------------------------------------------------------------


def _sarif_head() -> str:
    rules = [
        {"id": _rule(number), "shortDescription": {"text": f"check {number}: {name}"}} for number, name in NAMES.items()
    ]
    rules.append({"id": "unsigned", "shortDescription": {"text": "an entry without a token that could be checked"}})
    driver = to_json({"name": _TOOL, "version": __version__, "rules": rules})
    run = f'{{"tool":{{"driver":{driver}}},"columnKind":"unicodeCodePoints","results":['
    return f'{{"$schema":"{SARIF_SCHEMA}","version":"2.1.0","runs":[{run}'


def _rule(number: int) -> str:
    return f"check-{number}"


def _sarif(file: str, reports: Sequence[Report], levels: dict[Verdict, str]) -> str:
    results = []
    for report in reports:
        if level := levels.get(report.verdict):
            decisive = verify_lines.decisive_checks(report)
            rule = _rule(decisive[0].number) if decisive else "unsigned"
            results.append(sarif_result(rule, level, _sentence(report), _uri(file), report.line, 0))
    return _items(results)


def _sarif_finding(error: InputError) -> str:
    place = error.place
    return _items([sarif_result(str(error.code), "error", str(error), _uri(place.file), place.line, place.column)])


def _items(results: Sequence[dict[str, Any]]) -> str:
    return "".join(f",\n{to_json(result)}" for result in results)


def _uri(file: str) -> str:
    return quote(os.fsencode(file), safe="/")


# -- csv --------------------------------------------------------------------------------------------------------------

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
    if report.verdict == "failed":  # whoever signed the token did not sign what this row says
        signed = ("",) * len(signed)
    run = (_text(framework.name), _text(framework.version), *signed, show_time(report.at), report.tier)
    metrics = [(metric_name(each), number_text(each.value), _selected(each, report)) for each in said.metrics]
    return [(*place, *model, *benchmark, *metric, *run) for metric in metrics or [("", "", "")]]


def _signed(report: Report) -> tuple[str, ...]:
    times = (_time(report.issued_at), _time(report.expires_at))
    attempt = report.attempt
    counted = ("", "") if attempt is None else (str(attempt.number), _time(attempt.since))
    return (report.issuer, report.integration, report.run_url, *times, *counted)


def _selected(metric: EntryMetric, report: Report) -> str:
    return report.said.selection.get(metric_name(metric), "")


def _csv_finding(error: InputError) -> str:
    row = [error.place.file, str(error.place.line or ""), "", "malformed", str(error)]
    return _rows([(*row, *[""] * (len(_COLUMNS) - len(row)))])


def _rows(rows: Sequence[Sequence[str]]) -> str:
    return spreadsheet.table([printable(cell) for cell in row] for row in rows)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _time(moment: int | None) -> str:
    return "" if moment is None else show_time(moment)
