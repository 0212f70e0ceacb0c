"""Findings in every form: the same content, escaped as each form needs it."""

import json
from xml.etree import ElementTree

from issuer.cli.exits import exit_for_findings
from issuer.cli.render import FORMATS, render
from issuer.codes import Code
from issuer.errors import Finding, Place

BAD = Finding(Code.FILE_RULE, Place("a,b.yaml", 3, 7), 'wrong: 100%, "x"\n::error::forged \x1b[2J', "/x")
DOUBT = Finding(Code.FILE_SCHEMA, Place("c.yaml"), "doubtful.", severity="warning")


def test_people_get_one_line_with_place_code_detail_and_remedy_and_ci_one_command() -> None:
    first, second = render([BAD, DOUBT], ["a,b.yaml", "c.yaml"], "issuer policy check", "human").split("\n")
    assert first.startswith("a,b.yaml:3:7: file.rule: wrong: 100%")
    assert first.endswith(f". {Code.FILE_RULE.meaning.remedy}")
    assert second == f"c.yaml: warning: file.schema: doubtful. {Code.FILE_SCHEMA.meaning.remedy}"
    assert tuple(exit_for_findings(findings) for findings in ([], [DOUBT], [DOUBT, BAD])) == (0, 0, 3)
    (line,) = render([BAD], [], "t", "github").split("\n")
    assert line.startswith('::error file=a%2Cb.yaml,line=3,col=7,title=file.rule::wrong: 100%25, "x"%0A::error::')
    assert [form for form in FORMATS if "\x1b" in render([BAD], [], "t", form)] == []


def test_sarif_and_json_have_every_member_and_junit_a_case_for_every_file() -> None:
    run = json.loads(render([BAD, BAD, DOUBT], [], "t", "sarif"))["runs"][0]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["file.rule", "file.schema"]
    assert [result["level"] for result in run["results"]] == ["error", "error", "warning"]
    region = run["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 3, "startColumn": 7}
    (found,) = json.loads(render([BAD], ["a,b.yaml"], "t", "json"))["findings"]
    assert (found["detail"], found["line"], found["column"], found["pointer"]) == (BAD.detail, 3, 7, "/x")
    suite = ElementTree.fromstring(render([BAD, DOUBT], ["a,b.yaml", "c.yaml"], "t", "junit"))
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["2", "1", "0", "0"]
    failures = {case.get("name"): [str(each.get("message")) for each in case.findall("failure")] for case in suite}
    assert (failures["c.yaml"], len(failures["a,b.yaml"])) == ([], 1)
    assert "a,b.yaml:3:7: file.rule" in failures["a,b.yaml"][0]
