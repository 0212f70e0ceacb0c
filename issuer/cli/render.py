"""Renderers of findings, policy checks, diagnoses and tables: text for people, and formats of CI systems and editors.

A `Finding` becomes text, JSON, a workflow command, a JUnit case or a SARIF result. No exit code depends on the format.
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
    Painted,
    columns,
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
    """Write `head`, which may be painted, and then the text. On a terminal, wrap it and indent by `rest` columns."""
    width = sum(cell_len(click.unstyle(part)) for part in head)
    body = "\n".join(wrap(text, " " * width, " " * rest, err=err))[width:]
    say(*head, paint(body, **style) if style else body, err=err)


def say_wrapped(text: str, first: str = "", rest: str | None = None, *, err: bool = False) -> None:
    """Write one text, wrapped on a terminal. `first` and `rest` are the prefixes of its lines."""
    say("\n".join(wrap(text, first, rest, err=err)), err=err)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 test`, `2 tests`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def render_table(rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows in columns, two spaces apart. Escapes each cell; no line ends in white space.

    Rich measures the cells, because some characters take two columns. Rich's Table is too slow: 1 ms for each row.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(set_cell_size, row, widths)).rstrip() for row in cells)


def render_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay out values under their names. An empty value gives an empty cell."""
    return render_table(
        [[name.upper() for name in rows[0]], *([str(cell or "") for cell in row.values()] for row in rows)]
    )


# -- problems in CI systems -------------------------------------------------------------------------------------------

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


class Defect(Struct, frozen=True):
    """A defect at one place: the rule that it breaks, a title of a few words, and one sentence."""

    level: str
    rule: str
    title: str
    message: str
    place: Place

    @classmethod
    def of(cls, finding: Finding, message: str) -> Defect:
        """Return a finding as a problem. Its code is the rule and the title."""
        return cls(finding.severity, str(finding.code), str(finding.code), message, finding.place)


def workflow_command(problem: Defect) -> str:
    """Return a GitHub workflow command. Escapes each delimiter in the way that GitHub's runner unescapes."""
    place = problem.place
    properties = {"file": place.file, "line": place.line or 1, "col": place.column or 1, "title": problem.title}
    named = ",".join(f"{name}={_escape(str(value), ':,')}" for name, value in properties.items())
    return f"::{problem.level} {named}::{_escape(problem.message)}"


def _escape(text: str, signs: str = "") -> str:
    for sign in "%\r\n" + signs:
        text = text.replace(sign, f"%{ord(sign):02X}")
    return printable(text)


class Case(Struct, frozen=True):
    """A JUnit case. `failure` or `skipped` has the reason if it did not pass; `kind` is the type of a failure."""

    group: str
    name: str
    failure: str = ""
    kind: str = ""
    skipped: str = ""

    def render(self) -> str:
        """Return the case as XML."""
        typed = f" type={_quote(self.kind)}" if self.kind else ""
        inner = f"    <failure message={_quote(self.failure)}{typed}/>\n" if self.failure else ""
        inner = f"    <skipped message={_quote(self.skipped)}/>\n" if self.skipped else inner
        return f"  <testcase name={_quote(self.name)} classname={_quote(self.group)}>\n{inner}  </testcase>\n"


XML = '<?xml version="1.0" encoding="UTF-8"?>\n'


def junit_suite(name: str, cases: Sequence[Case]) -> str:
    """Return one suite of cases as XML."""
    failures, skipped = sum(bool(case.failure) for case in cases), sum(bool(case.skipped) for case in cases)
    counts = f'tests="{len(cases)}" failures="{failures}" errors="0" skipped="{skipped}"'
    return "".join(
        [f"<testsuite name={_quote(name)} {counts}>\n", *(each.render() for each in cases), "</testsuite>\n"]
    )


def junit(name: str, cases: Sequence[Case]) -> str:
    """Return an XML document with one suite."""
    return XML + junit_suite(name, cases).rstrip("\n")


def _quote(text: str) -> str:
    """Quote an XML attribute. Line breaks stay. `printable` escapes the characters that XML 1.0 cannot contain."""
    return quoteattr("\n".join(map(printable, text.split("\n"))), {"\n": "&#10;"})


def sarif(tool: str, rules: Mapping[str, Mapping[str, str]], results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a SARIF 2.1.0 document. `rules` has the texts of each rule by member name."""
    written = [{"id": rule, **{name: {"text": text} for name, text in texts.items()}} for rule, texts in rules.items()]
    driver = {"name": tool, "version": __version__, "rules": written}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def sarif_result(problem: Defect) -> dict[str, Any]:
    """Return one SARIF result. The place's line and column count from 1; 0 means unknown.

    Breaks up `[words](address)`, which would be a link in a message (SARIF 2.1.0, 3.11.6).
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
    """Return the findings of `tool`, such as `issuer policy check`, in one of FORMATS. May return ""."""
    writers: dict[str, Callable[[], str]] = {
        "human": lambda: "\n".join(line for finding in findings for line in _human(finding)),
        "json": lambda: _json(findings, files, tool),
        "github": lambda: Painted("\n".join(workflow_command(_problem(finding)) for finding in findings)),
        "junit": lambda: _junit(findings, files, tool),
        "sarif": lambda: _sarif(findings, tool),
    }
    return writers[form]()


def format_finding(finding: Finding) -> str:
    """Return one finding as one line for people: `file:line:col: code: defect, next step`."""
    mark = "warning: " if finding.severity == "warning" else ""
    return printable(without_secrets(f"{finding.place}: {mark}{finding.code}: {_sentence(finding)}"))


def _sentence(finding: Finding) -> str:
    return f"{finding.detail.rstrip('.')}. {finding.code.meaning.remedy}"


def _human(finding: Finding) -> list[str]:
    """Return the lines of a finding. A syntax error also shows the faulty line, with a caret below the place."""
    return [format_finding(finding), *(show_source(finding.place) if finding.code is Code.FILE_SYNTAX else [])]


def _problem(finding: Finding) -> Defect:
    return Defect.of(finding, _sentence(finding))


def _json(findings: Sequence[Finding], files: Sequence[str], tool: str) -> str:
    rows = [{"severity": each.severity, **document_of(each), "remedy": each.code.meaning.remedy} for each in findings]
    return render_json({"version": 1, "tool": tool, "files": list(files), "findings": rows})


def document_of(finding: Finding) -> dict[str, Any]:
    """Return a finding as a JSON object."""
    place = finding.place
    return {
        "code": str(finding.code), "file": place.file, "line": place.line, "column": place.column,
        "pointer": finding.pointer, "detail": finding.detail,
    }  # fmt: skip


def _junit(findings: Sequence[Finding], files: Sequence[str], tool: str) -> str:
    """Return a document with one case for each file."""
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
    """Write each line of a diagnosis as soon as it is known, with its next step, and return all lines.

    If `about` is given, write one JSON document instead, with these members and the lines.
    """
    diagnosed = []
    for line in lines:
        diagnosed.append(line)
        if about is None:
            text = f"{line.name}: {line.detail}" + (f" ({line.code})" if line.code else "")
            say_text(text, paint(line.verdict.ljust(_VERDICT), fg=_COLOURS[line.verdict]), rest=_VERDICT + 2)
            if line.next:
                say_text(f"next: {line.next}", " " * _VERDICT, rest=_VERDICT + 2)
    if about is not None:
        members = ("name", "verdict", "detail", "code", "next")
        rows = [{name: getattr(line, name) for name in members} for line in diagnosed]
        say_document({"version": 1, **about, "lines": rows})
    return diagnosed


# -- checks of a policy -----------------------------------------------------------------------------------------------

FAILED = "FAIL"
_MARGIN = " " * 6


def render_checks(checks: Sequence[ShownCheck], *, verbose: bool = False) -> str:
    """Return a block for each failed check, then the passed checks: on one line, or with `verbose` one line each.

    Shows the values of failed checks whole, because a difference may be at the end.
    """
    failed = [line for check in checks if not check.passed for line in _block(check)]
    passed = [check for check in checks if check.passed]
    if not passed:
        return "\n".join(failed)
    return "\n".join([*failed, *(_rows(passed) if verbose else _summary(passed))])


def _block(check: ShownCheck) -> Iterator[str]:
    # A check without a pointer judges no member of the request: the rule's place identifies it.
    yield printable(f"{FAILED}  {check.code} {check.pointer or check.rule}".rstrip())
    rule = check.rule if check.pointer else ""
    for label, text in (("yours", check.actual), ("wanted", check.expected), ("rule", rule), ("next", check.hint)):
        if text:
            yield from wrap(text, f"{_MARGIN}{label + ':':<8}")


def _summary(passed: Sequence[ShownCheck]) -> list[str]:
    names = ", ".join(dict.fromkeys(map(subject, passed)))
    return wrap(f"{counted(len(passed), 'check')}: {names}", "ok    ")


def _rows(passed: Sequence[ShownCheck]) -> list[str]:
    """Return one line for each check: its name and its value. Cuts long values; the user need not compare them."""
    names = list(map(subject, passed))
    room = max(30, columns() - len(_MARGIN) - max(map(len, names)) - 2)
    rows = [("ok  ", name, shorten(check.actual, room)) for name, check in zip(names, passed, strict=True)]
    return render_table(rows).split("\n")


# The subjects of identity and integration checks. Their codes name only the failure.
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
    """Return the subject of a check in a word or two. The name of its failure would mislead if the check passed."""
    code = Code.named(check.code)
    if code in _SUBJECTS:
        return _SUBJECTS[code]
    if check.code.startswith("policy."):
        return check.code.partition(".")[2]
    return check.rule.rpartition(".")[2] or check.code
