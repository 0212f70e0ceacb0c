"""Findings of `policy check` and `results lint` in the forms that people, editors and CI systems read.

`human` is `file:line:col: code: what, and what to do`; `github` are workflow commands, `junit` one test case per file,
`sarif` is SARIF 2.1.0. The exit code does not depend on the form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any
from xml.sax.saxutils import quoteattr

from issuer import __version__
from issuer.cli.terminal import printable, render_json, show_source
from issuer.codes import Code
from issuer.errors import Finding
from issuer.results.secret import without_secrets

FORMATS = ("human", "json", "github", "junit", "sarif")
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(findings: Sequence[Finding], files: Sequence[str], tool: str, form: str) -> str:
    """Write what `tool` (as `issuer policy check`) found in `files`, in one of FORMATS; "" is nothing to say."""
    writers: dict[str, Callable[[], str]] = {
        "human": lambda: "\n".join(line for finding in findings for line in _human(finding)),
        "json": lambda: _json(findings, files, tool),
        "github": lambda: "\n".join(map(_github, findings)),
        "junit": lambda: _junit(findings, files, tool),
        "sarif": lambda: _sarif(findings, tool),
    }
    return writers[form]()


def format_finding(finding: Finding) -> str:
    """Write one finding on one line for people: `file:line:col: code: what, and what to do`."""
    mark = "warning: " if finding.severity == "warning" else ""
    what = finding.detail.rstrip(".")
    line = f"{finding.place}: {mark}{finding.code}: {what}. {finding.code.meaning.remedy}"
    return printable(without_secrets(line))


def _human(finding: Finding) -> list[str]:
    """Write a finding, and of text that could not be read the line with a caret below the place."""
    return [format_finding(finding), *(show_source(finding.place) if finding.code is Code.FILE_SYNTAX else [])]


def _json(findings: Sequence[Finding], files: Sequence[str], tool: str) -> str:
    rows = [
        {
            "severity": finding.severity,
            "code": str(finding.code),
            "file": finding.place.file,
            "line": finding.place.line,
            "column": finding.place.column,
            "pointer": finding.pointer,
            "detail": finding.detail,
            "remedy": finding.code.meaning.remedy,
        }
        for finding in findings
    ]
    document = {"version": 1, "tool": tool, "files": list(files), "findings": rows}
    return render_json(document)


def _github(finding: Finding) -> str:
    place, message = finding.place, f"{finding.detail.rstrip('.')}. {finding.code.meaning.remedy}"
    return workflow_command(finding.severity, place.file, place.line, place.column, str(finding.code), message)


def workflow_command(level: str, file: str, line: int, column: int, title: str, message: str) -> str:
    """Write a workflow command; what would end it or a property is escaped as GitHub's runner unescapes it."""
    properties = {"file": file, "line": line or 1, "col": column or 1, "title": title}
    named = ",".join(f"{name}={_escape(str(value), ':,')}" for name, value in properties.items())
    return f"::{level} {named}::{_escape(message)}"


def _escape(text: str, signs: str = "") -> str:
    for sign in "%\r\n" + signs:
        text = text.replace(sign, f"%{ord(sign):02X}")
    return printable(text)


def _junit(findings: Sequence[Finding], files: Sequence[str], tool: str) -> str:
    errors = [finding for finding in findings if finding.severity == "error"]
    named = list(dict.fromkeys([*files, *(finding.place.file for finding in errors)]))
    failures = {name: [format_finding(finding) for finding in errors if finding.place.file == name] for name in named}
    return junit_suite(tool, [(tool, name, failures[name]) for name in named])


def junit_suite(tool: str, cases: Sequence[tuple[str, str, Sequence[str]]]) -> str:
    """Write a JUnit suite of cases: a group, a name, and what failed of it."""
    written = [junit_case(group, name, "\n".join(failed)) for group, name, failed in cases]
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + junit_suite_of(tool, written).rstrip("\n")


def junit_suite_of(name: str, cases: Sequence[str]) -> str:
    """Write one suite of written cases."""
    failures, skipped = (sum(f"    <{word} " in case for case in cases) for word in ("failure", "skipped"))
    counts = f'tests="{len(cases)}" failures="{failures}" errors="0" skipped="{skipped}"'
    return "".join([f"<testsuite name={_quote(name)} {counts}>\n", *cases, "</testsuite>\n"])


def junit_case(group: str, name: str, failure: str = "", *, kind: str = "", skipped: str = "") -> str:
    """Write one case, which failed or was skipped where there is a text that says why; `kind` is that of a failure."""
    typed = f" type={_quote(kind)}" if kind else ""
    inner = f"    <failure message={_quote(failure)}{typed}/>\n" if failure else ""
    inner = f"    <skipped message={_quote(skipped)}/>\n" if skipped else inner
    return f"  <testcase name={_quote(name)} classname={_quote(group)}>\n{inner}  </testcase>\n"


def _quote(text: str) -> str:
    """Quote an XML attribute; a line break stays one, and what XML 1.0 cannot hold is gone by `printable`."""
    return quoteattr("\n".join(map(printable, text.split("\n"))), {"\n": "&#10;"})


def _sarif(findings: Sequence[Finding], tool: str) -> str:
    codes = sorted({finding.code for finding in findings})
    rules = [
        {
            "id": str(code),
            "shortDescription": {"text": code.meaning.title},
            "help": {"text": code.meaning.remedy},
        }
        for code in codes
    ]
    driver = {"name": tool, "version": __version__, "rules": rules}
    results = [_sarif_result(finding, codes.index(finding.code)) for finding in findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    document = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return render_json(document)


def _sarif_result(finding: Finding, rule: int) -> dict[str, Any]:
    place, message = finding.place, f"{finding.detail.rstrip('.')}. {finding.code.meaning.remedy}"
    uri = PurePath(place.file).as_posix()
    result = sarif_result(str(finding.code), finding.severity, message, uri, place.line, place.column)
    return {**result, "ruleIndex": rule}


def sarif_result(rule: str, level: str, message: str, uri: str, line: int, column: int) -> dict[str, Any]:
    """Return one result at a place in a file; line and column count from 1, and are 0 where they are not known.

    No text becomes a link, as `[words](address)` does in a message (SARIF 2.1.0, 3.11.6).
    """
    where: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if line:
        where["region"] = {"startLine": line, "startColumn": max(1, column)}
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": message.replace("](", "] (")},
        "locations": [{"physicalLocation": where}],
    }
