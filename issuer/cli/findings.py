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
from issuer.cli.terminal import printable, render_json
from issuer.errors import Finding
from issuer.results.secret import without_secrets

FORMATS = ("human", "json", "github", "junit", "sarif")
_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(findings: Sequence[Finding], files: Sequence[str], tool: str, form: str) -> str:
    """Write what `tool` (as `issuer policy check`) found in `files`, in one of FORMATS; "" is nothing to say."""
    writers: dict[str, Callable[[], str]] = {
        "human": lambda: "\n".join(map(format_finding, findings)),
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
    """Write a workflow command; what would end it or a property is escaped as GitHub's runner unescapes it."""
    place = finding.place
    properties = {"file": place.file, "line": place.line or 1, "col": place.column or 1, "title": str(finding.code)}
    named = ",".join(f"{name}={_escape(str(value), ':,')}" for name, value in properties.items())
    message = f"{finding.detail.rstrip('.')}. {finding.code.meaning.remedy}"
    return f"::{finding.severity} {named}::{_escape(message)}"


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
    failures = sum(bool(failed) for _, _, failed in cases)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name={_quote(tool)} tests="{len(cases)}" failures="{failures}">',
    ]
    for group, name, failed in cases:
        lines.append(f"  <testcase name={_quote(name)} classname={_quote(group)}>")
        if failed:
            lines.append(f"    <failure message={_quote(chr(10).join(failed))}/>")
        lines.append("  </testcase>")
    return "\n".join([*lines, "</testsuite>"])


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
    document = {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return render_json(document)


def _sarif_result(finding: Finding, rule: int) -> dict[str, Any]:
    place = finding.place
    where: dict[str, Any] = {"artifactLocation": {"uri": PurePath(place.file).as_posix()}}
    if place.line:
        where["region"] = {"startLine": place.line, "startColumn": max(1, place.column)}
    return {
        "ruleId": str(finding.code),
        "ruleIndex": rule,
        "level": finding.severity,
        "message": {"text": f"{finding.detail.rstrip('.')}. {finding.code.meaning.remedy}"},
        "locations": [{"physicalLocation": where}],
    }
