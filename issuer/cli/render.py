"""Renderers: each value that a command has to say, as text for people and in the formats of CI systems and editors.

A `Finding` becomes text, JSON, a workflow command, a JUnit case or a SARIF result; checks of a policy become blocks and
lines, a diagnosis its lines or one document, and rows become a table. No exit code depends on the format.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import click
from msgspec import Struct
from rich.cells import cell_len, set_cell_size

from issuer import __version__
from issuer.cli.terminal import (
    columns,
    is_read,
    is_watched,
    paint,
    printable,
    render_json,
    say,
    say_document,
    shorten,
    show_source,
    wrap,
)
from issuer.codes import Code
from issuer.errors import Finding, Place
from issuer.formats import findings as diagnosis
from issuer.results.secret import without_secrets
from issuer.token.wire import ShownCheck

# -- text -------------------------------------------------------------------------------------------------------------


def say_text(text: str, *head: str, rest: int = 2, err: bool = False, **style: Any) -> None:
    """Say one text behind `head`, which may be painted; on a terminal it is broken between words, `rest` columns in."""
    width = sum(cell_len(click.unstyle(part)) for part in head)
    margin, broken = " " * width, is_watched() if err else is_read()
    lines = wrap(text, margin, " " * rest) if broken else [margin + printable(text)]
    said = "\n".join(lines)[width:]
    say(*head, paint(said, **style) if style else said, err=err)


def say_wrapped(text: str, first: str = "", rest: str | None = None, *, err: bool = False) -> None:
    """Say one text that is broken between words everywhere, behind `first`; its next lines are behind `rest`."""
    say("\n".join(wrap(text, first, rest)), err=err)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 test`, `2 tests`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def render_table(rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows in columns, two spaces apart, each cell made printable; no line ends in white space.

    Rich measures the cells, of which some signs take two columns; its own Table takes a millisecond a row.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(set_cell_size, row, widths)).rstrip() for row in cells)


def render_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay out values by their names, which are the heads of the columns; an empty value leaves its cell empty."""
    return render_table(
        [[name.upper() for name in rows[0]], *([str(cell or "") for cell in row.values()] for row in rows)]
    )


# -- problems in CI systems -------------------------------------------------------------------------------------------

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


class Problem(Struct, frozen=True):
    """What is wrong at one place: the rule that it breaks, a title of a few words, and one sentence."""

    level: str
    rule: str
    title: str
    message: str
    place: Place

    @classmethod
    def of(cls, finding: Finding, message: str) -> Problem:
        """Name a finding by its code."""
        return cls(finding.severity, str(finding.code), str(finding.code), message, finding.place)


def workflow_command(problem: Problem) -> str:
    """Write a workflow command of GitHub's; what would end it or a property is escaped as its runner unescapes it."""
    place = problem.place
    properties = {"file": place.file, "line": place.line or 1, "col": place.column or 1, "title": problem.title}
    named = ",".join(f"{name}={_escape(str(value), ':,')}" for name, value in properties.items())
    return f"::{problem.level} {named}::{_escape(problem.message)}"


def _escape(text: str, signs: str = "") -> str:
    for sign in "%\r\n" + signs:
        text = text.replace(sign, f"%{ord(sign):02X}")
    return printable(text)


class Case(Struct, frozen=True):
    """A case of JUnit, which failed or was skipped if there is a text that says why; `kind` is that of the failure."""

    group: str
    name: str
    failure: str = ""
    kind: str = ""
    skipped: str = ""

    def render(self) -> str:
        """Write the case as XML."""
        typed = f" type={_quote(self.kind)}" if self.kind else ""
        inner = f"    <failure message={_quote(self.failure)}{typed}/>\n" if self.failure else ""
        inner = f"    <skipped message={_quote(self.skipped)}/>\n" if self.skipped else inner
        return f"  <testcase name={_quote(self.name)} classname={_quote(self.group)}>\n{inner}  </testcase>\n"


XML = '<?xml version="1.0" encoding="UTF-8"?>\n'


def junit_suite(name: str, cases: Sequence[Case]) -> str:
    """Write one suite of cases."""
    failures, skipped = sum(bool(case.failure) for case in cases), sum(bool(case.skipped) for case in cases)
    counts = f'tests="{len(cases)}" failures="{failures}" errors="0" skipped="{skipped}"'
    return "".join(
        [f"<testsuite name={_quote(name)} {counts}>\n", *(each.render() for each in cases), "</testsuite>\n"]
    )


def junit(name: str, cases: Sequence[Case]) -> str:
    """Write a document of one suite."""
    return XML + junit_suite(name, cases).rstrip("\n")


def _quote(text: str) -> str:
    """Quote an XML attribute; a line break stays one, and what XML 1.0 cannot hold is gone by `printable`."""
    return quoteattr("\n".join(map(printable, text.split("\n"))), {"\n": "&#10;"})


def sarif(tool: str, rules: Mapping[str, Mapping[str, str]], results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a SARIF 2.1.0 document; each rule has texts by the name of their member."""
    written = [{"id": rule, **{name: {"text": text} for name, text in texts.items()}} for rule, texts in rules.items()]
    driver = {"name": tool, "version": __version__, "rules": written}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def sarif_result(problem: Problem) -> dict[str, Any]:
    """Return one result at a place in a file, whose line and column count from 1, and are 0 if they are unknown.

    No text becomes a link, as `[words](address)` does in a message (SARIF 2.1.0, 3.11.6).
    """
    place = problem.place
    where: dict[str, Any] = {"artifactLocation": {"uri": quote(os.fsencode(place.file), safe="/")}}
    if place.line:
        where["region"] = {"startLine": place.line, "startColumn": max(1, place.column)}
    return {
        "ruleId": problem.rule, "level": problem.level, "message": {"text": problem.message.replace("](", "] (")},
        "locations": [{"physicalLocation": where}],
    }  # fmt: skip


# -- findings ---------------------------------------------------------------------------------------------------------

FORMATS = ("human", "json", "github", "junit", "sarif")


def render(findings: Sequence[Finding], files: Sequence[str], tool: str, form: str) -> str:
    """Write what `tool` (as `issuer policy check`) found in `files`, in one of FORMATS; "" is nothing to say."""
    writers: dict[str, Callable[[], str]] = {
        "human": lambda: "\n".join(line for finding in findings for line in _human(finding)),
        "json": lambda: _json(findings, files, tool),
        "github": lambda: "\n".join(workflow_command(_problem(finding)) for finding in findings),
        "junit": lambda: _junit(findings, files, tool),
        "sarif": lambda: _sarif(findings, tool),
    }
    return writers[form]()


def format_finding(finding: Finding) -> str:
    """Write one finding on one line for people: `file:line:col: code: what, and what to do`."""
    mark = "warning: " if finding.severity == "warning" else ""
    return printable(without_secrets(f"{finding.place}: {mark}{finding.code}: {_sentence(finding)}"))


def _sentence(finding: Finding) -> str:
    return f"{finding.detail.rstrip('.')}. {finding.code.meaning.remedy}"


def _human(finding: Finding) -> list[str]:
    """Write a finding, and of text that could not be read the line with a caret below the place."""
    return [format_finding(finding), *(show_source(finding.place) if finding.code is Code.FILE_SYNTAX else [])]


def _problem(finding: Finding) -> Problem:
    return Problem.of(finding, _sentence(finding))


def _json(findings: Sequence[Finding], files: Sequence[str], tool: str) -> str:
    rows = [{"severity": each.severity, **document_of(each), "remedy": each.code.meaning.remedy} for each in findings]
    return render_json({"version": 1, "tool": tool, "files": list(files), "findings": rows})


def document_of(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON has it."""
    place = finding.place
    return {
        "code": str(finding.code), "file": place.file, "line": place.line, "column": place.column,
        "pointer": finding.pointer, "detail": finding.detail,
    }  # fmt: skip


def _junit(findings: Sequence[Finding], files: Sequence[str], tool: str) -> str:
    """Write a case for each file."""
    errors = [finding for finding in findings if finding.severity == "error"]
    failures = {name: list[str]() for name in [*files, *(finding.place.file for finding in errors)]}
    for finding in errors:
        failures[finding.place.file].append(format_finding(finding))
    return junit(tool, [Case(tool, name, "\n".join(failed)) for name, failed in failures.items()])


def _sarif(findings: Sequence[Finding], tool: str) -> str:
    codes = sorted({finding.code for finding in findings})
    texts = {str(code): {"shortDescription": code.meaning.title, "help": code.meaning.remedy} for code in codes}
    results = [{**sarif_result(_problem(each)), "ruleIndex": codes.index(each.code)} for each in findings]
    return render_json(sarif(tool, texts, results))


# -- diagnoses --------------------------------------------------------------------------------------------------------

_COLOURS: dict[diagnosis.Verdict, str] = {"pass": "green", "warning": "yellow", "FAIL": "red"}
_VERDICT = 9  # columns


def say_lines(lines: Iterable[diagnosis.Line], about: Mapping[str, object] | None) -> list[diagnosis.Line]:
    """Say each line of a diagnosis as it is found, with the next step below it; return them.

    With `about` one JSON document, which has these members, takes their place.
    """
    found = []
    for line in lines:
        found.append(line)
        if about is None:
            text = f"{line.name}: {line.detail}" + (f" ({line.code})" if line.code else "")
            say_text(text, paint(line.verdict.ljust(_VERDICT), fg=_COLOURS[line.verdict]), rest=_VERDICT + 2)
            if line.next:
                say_text(f"next: {line.next}", " " * _VERDICT, rest=_VERDICT + 2)
    if about is not None:
        members = ("name", "verdict", "detail", "code", "next")
        rows = [{name: getattr(line, name) for name in members} for line in found]
        say_document({"version": 1, **about, "lines": rows})
    return found


# -- checks of a policy -----------------------------------------------------------------------------------------------

FAILED = "FAIL"
_MARGIN = " " * 6


def render_checks(checks: Sequence[ShownCheck], *, verbose: bool = False) -> str:
    """Write a block for each check that failed, then those that passed: in one line, or with `verbose` one each.

    No value is cut off or broken: what differs may be at its end.
    """
    failed = [line for check in checks if not check.passed for line in _block(check)]
    passed = [check for check in checks if check.passed]
    if not passed:
        return "\n".join(failed)
    return "\n".join([*failed, *(_rows(passed) if verbose else _summary(passed))])


def _block(check: ShownCheck) -> Iterator[str]:
    # Where nothing in the request is judged, the rule's place says which check it is.
    yield printable(f"{FAILED}  {check.code} {check.pointer or check.rule}".rstrip())
    rule = check.rule if check.pointer else ""
    for label, text in (("yours", check.actual), ("wanted", check.expected), ("rule", rule), ("next", check.hint)):
        if text:
            yield from wrap(text, f"{_MARGIN}{label + ':':<8}")


def _summary(passed: Sequence[ShownCheck]) -> list[str]:
    names = ", ".join(dict.fromkeys(map(subject, passed)))
    return wrap(f"{counted(len(passed), 'check')}: {names}", "ok    ")


def _rows(passed: Sequence[ShownCheck]) -> list[str]:
    """Write one line a check: its name, and its value, which is as it should be, and so is cut if it is long."""
    names = list(map(subject, passed))
    room = max(30, columns() - len(_MARGIN) - max(map(len, names)) - 2)
    rows = [("ok  ", name, shorten(check.actual, room)) for name, check in zip(names, passed, strict=True)]
    return render_table(rows).split("\n")


# What is checked, where the code's second word, which says how it fails, does not name it.
_SUBJECTS = {
    Code.IDENTITY_ISSUER_UNKNOWN: "provider",
    Code.IDENTITY_ALGORITHM_REFUSED: "algorithm",
    Code.IDENTITY_EXPIRED: "times",
    Code.IDENTITY_AUDIENCE_MISMATCH: "audience of the token",
    Code.IDENTITY_MALFORMED: "form of the token",
    Code.IDENTITY_EVENT_FORBIDDEN: "event",
    Code.IDENTITY_REGISTRATION_EXPIRED: "expiry of the registration",
    Code.INTEGRATION_SUSPENDED: "mode",
    Code.INTEGRATION_STAGED: "mode",
}


def subject(check: ShownCheck) -> str:
    """Name what is checked, in a word or two: a check that passed is not called by how it fails."""
    code = Code.named(check.code)
    if code in _SUBJECTS:
        return _SUBJECTS[code]
    if check.code.startswith("policy."):
        return check.code.partition(".")[2]
    return check.rule.rpartition(".")[2] or check.code
