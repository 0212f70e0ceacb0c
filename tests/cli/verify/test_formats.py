"""`issuer verify --format`, `--quiet` and `--only-failed`: every form of the same answer, escaped as its readers need it."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from issuer.cli.verify.formats import FORMS, form_of
from issuer.results.entry import write_entry
from issuer.verify.report import json_schema
from tests.support import make
from tests.support.asking import ask
from tests.support.judging_vectors import reports_of
from tests.support.samples import SAMPLES
from tests.support.shared import vectors
from tests.support.tree import write_result, write_trust

SAID = make.submission({"run": {"selection": {"accuracy": "match/accuracy"}}})
CALLER = {"provider": "github-actions", "issuer": SAMPLES[0].issuer, **SAMPLES[0].public}
GOOD = make.file_for(SAID, caller=CALLER)
OTHER = make.token_for(SAID, caller=CALLER, jti="AAECAwQFBgcICQoLDA0OEA")
OLD = make.file_for(SAID, iat=make.NOW - 7200, nbf=make.NOW - 7200, exp=make.NOW - 3600, jti="AAECAwQFBgcICQoLDA0OEA")
FALSE, BARE = GOOD.replace("20.9", "21.9"), write_entry(SAID.form)
FILE = GOOD + FALSE + OLD + BARE
RUN = "https://github.com/example-org/evals/actions/runs/19512345678/attempts/1"


class Place:
    """A folder with one file, and a hub that has it; `said` is what the last command wrote."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys, self.trust = folder, capsys, write_trust(folder)
        self.write(FILE)

    def write(self, text: str | bytes) -> None:
        self.file = write_result(self.folder / "hub", make.REPO, "gsm8k.yaml", text)

    def one(self, *more: object) -> int:
        return self._ask(self.file, "--repo", make.REPO, *more)

    def hub(self, *more: object) -> int:
        return self._ask(self.folder / "hub", "--jobs", 1, *more)

    def _ask(self, *arguments: object) -> int:
        code = ask(self.folder, make.NOW, *arguments, "--trust", self.trust)
        self.said, self.complained = self._capsys.readouterr()
        return code


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return Place(tmp_path, capsys)


BOTH = pytest.mark.parametrize("ask_for", [Place.one, Place.hub], ids=["a file", "a folder"])
Ask = Callable[..., int]


# -- the first lines --------------------------------------------------------------------------------------------------


def test_the_first_three_lines_say_what_by_whom_and_who_vouches(place: Place) -> None:
    place.write(GOOD)
    assert place.one() == 0
    assert place.said.splitlines()[:3] == [
        "verified: acme/open-model@9f3c2c9a1c4e on openai/gsm8k (gsm8k): accuracy 20.9 [match/accuracy]",
        f"  run with inspect-ai 0.3.285 by {RUN}",
        "  vouched for by https://issuer.example for its integration inspect-ai, 2026-11-18T11:06:40Z (0 s ago)",
    ]


COUNTED = make.file_for(SAID, caller=CALLER, attempt={"number": 3, "since": make.NOW - 25 * 86_400})
RUN_KEY = "this model commit, benchmark commit, task and framework"
NOT_COUNTED = "Results of other identities do not count. Another commit, even an empty one, starts a new count."


def test_which_attempt_it_was_is_the_fourth_line_and_what_that_counts_the_last(place: Place) -> None:
    place.write(COUNTED)
    assert place.one() == 0
    said = place.said.splitlines()
    assert said[3] == (
        f"  attempt 3: with this one, 3 different results were signed for {RUN_KEY} since 2026-10-24T11:06:40Z (25 d ago)"
    )
    assert (
        said[-1] == f"  The attempt counts the different results that one registered identity had signed. {NOT_COUNTED}"
    )
    place.write(COUNTED.replace("20.9", "21.9"))
    assert place.one() == 1
    assert (
        f"\n  its token: attempt 3: with this one, 3 different results were signed for {RUN_KEY} since " in place.said
    )
    place.write(make.file_for(SAID, attempt={"number": 64, "since": make.NOW}))
    assert place.one() == 0
    assert "  attempt 64 or more: with this one, 64 or more different results were signed for" in place.said
    place.write(make.file_for(SAID, attempt={"number": 1, "since": make.NOW}))
    assert place.one() == 0
    assert f"  attempt 1: this is the first result signed for {RUN_KEY} since 2026" in place.said
    place.write(GOOD)
    assert place.one() == 0
    assert "attempt " not in place.said


@BOTH
def test_an_attempt_above_the_highest_that_is_trusted_is_a_no_in_every_form(place: Place, ask_for: Ask) -> None:
    place.write(COUNTED)
    place.trust.write_text(place.trust.read_text() + "max_attempt: 2\n")
    reason = "4 issuer and audience: more different results were signed for this run than the trust file allows"
    for form in ("github", "junit", "sarif", "csv"):
        assert ask_for(place, "--format", form) == 1
        assert f"{reason} (token: attempt 3, here: at most 2)" in place.said, form
    place.trust.write_text(place.trust.read_text().replace("max_attempt: 2", "max_attempt: 3"))
    assert ask_for(place, "--format", "csv") == 0
    (row,) = csv.DictReader(io.StringIO(place.said))
    assert (row["attempt"], row["attempts_since"]) == ("3", "2026-10-24T11:06:40Z")
    assert ask_for(place, "--json") == 0
    said = re.sub(r"\s", "", place.said)
    assert '"attempt":{"number":3,"since":1792840000}' in said


@pytest.mark.long
def test_the_processes_of_a_folder_judge_the_attempts_too(place: Place) -> None:
    place.write(COUNTED + GOOD)
    place.trust.write_text(place.trust.read_text() + "max_attempt: 2\n")
    assert place.hub("--json", "--jobs", 2) == 1
    reports = [json.loads(line) for line in place.said.splitlines()[:2]]
    assert [(report["verdict"], report["attempt"]) for report in reports] == [
        ("failed", {"number": 3, "since": make.NOW - 25 * 86_400}), ("verified", None),
    ]  # fmt: skip


def test_what_is_not_verified_begins_by_whose_word_it_is(place: Place) -> None:
    assert place.one() == 1
    heads = [line for line in place.said.splitlines() if ": acme/open-model@" in line]
    words = [line.partition(":")[0] for line in heads]
    assert words == ["verified", "not verified", "good when issued", "unverified"]
    assert "accuracy 21.9" in heads[1]
    assert f"  its token: run with inspect-ai 0.3.285 by {RUN}\n" in place.said
    assert "  run with inspect-ai 0.3.285, according to the file\n  no trusted issuer vouches for it\n" in place.said


def test_a_partial_run_and_a_value_of_no_named_metric_are_said(place: Place) -> None:
    place.write(make.file_for(make.submission({"run": {"completeness": "partial"}})))
    assert place.one() == 0
    assert place.said.splitlines()[0].endswith(": accuracy 20.9, of a partial run")
    place.write(f'- dataset: {{id: "{make.BENCHMARK}"}}\n  value: 20.9\n')
    assert place.one() == 1
    assert place.said.startswith("unverified: acme/open-model on openai/gsm8k: 20.9, of an unnamed metric\n")
    place.write(f'- dataset: {{id: "{make.BENCHMARK}"}}\n')
    assert place.one() == 1
    assert place.said.startswith("unverified: acme/open-model on openai/gsm8k: no metric\n")


def test_many_metrics_and_long_names_stay_one_line(place: Place) -> None:
    metrics = [{"metric_id": f"m{number}", "value": number} for number in range(9)]
    place.write(make.file_for(make.submission(metrics=metrics, task_id="t" * 128)))
    assert place.one() == 0
    first = place.said.splitlines()[0]
    assert first.endswith("m0 0, m1 1, m2 2, m3 3, and 5 more")


def test_a_token_that_had_ended_is_good_when_issued_and_nobody_s_no(place: Place) -> None:
    place.write(OLD)
    assert place.one() == 4
    assert place.said.startswith("good when issued: acme/open-model@")
    assert "This proves: the file and the token say the same, and the token was good when it was issued." in place.said
    assert place.hub() == 4
    assert "1 good when issued" in place.said
    assert place.one("--received-now") == 1
    place.trust.write_text(place.trust.read_text() + "receipt_keys: {file: keys2.json}\n")
    (place.folder / "keys2.json").write_bytes(make.jwks(make.RECEIPT_KEY))
    assert place.one() == 4
    assert place.said.startswith("undecided: acme/open-model@"), "a receipt could still say"


# -- json -------------------------------------------------------------------------------------------------------------


def test_json_has_claims_caller_and_times_and_fits_its_schema(place: Place) -> None:
    assert place.one("--json") == 1
    document = json.loads(place.said)
    Draft202012Validator(json_schema()).validate(document)
    good, false, _, bare = document["reports"]
    assert good["claims"] == json.loads(SAID.claims.canonical)
    assert (good["caller"], good["run_url"], good["integration"]) == (CALLER, RUN, "inspect-ai")
    assert (good["issued_at"], good["expires_at"], good["at"]) == (make.NOW, make.NOW + 3600, make.NOW)
    assert good["said"]["selection"] == {"accuracy": "match/accuracy"}
    assert not [report for report in document["reports"] if report["attempt"] is not None], "none was counted"
    assert false["claims"]["metrics"] == [{"metric_id": "accuracy", "value": 20.9}]
    assert false["said"]["metrics"] == [{"metric_id": "accuracy", "value": 21.9}]
    assert (bare["claims"], bare["caller"], bare["issued_at"], bare["said"]["metrics"]) == (
        None,
        {},
        None,
        good["said"]["metrics"],
    )


# -- github -----------------------------------------------------------------------------------------------------------


@BOTH
def test_github_gets_a_command_for_each_entry_that_is_not_good(place: Place, ask_for: Ask) -> None:
    assert ask_for(place, "--format", "github") == 1
    lines = place.said.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["::error", "::warning", "::error"]
    line = FILE.splitlines().index("      value: 21.9") + 1
    place_of = [int(each.partition("line=")[2].partition(",")[0]) for each in lines]
    assert place_of == sorted(place_of)
    assert place_of[0] < line < place_of[1]
    assert ",title=not verified::not verified: 8 metrics: accuracy differs (token: 20.9, here: 21.9)" in lines[0]
    assert ask_for(place, "--format", "github", "--allow-unsigned") == 1
    assert len(place.said.splitlines()) == 2


HOSTILE = "x%0A::error::forged\n::set-output name=x::y\r\x1b[2J\u2028\x85,file=/etc/passwd"


@BOTH
@pytest.mark.parametrize("form", FORMS)
def test_no_value_of_a_file_escapes_from_its_place(place: Place, ask_for: Ask, form: str) -> None:
    hostile = json.dumps(HOSTILE)
    name = json.dumps("</failure><failure message='")
    place.write(
        f'- dataset: {{id: "a/b", task_id: {hostile}}}\n  framework: {{name: {name}, version: "=1+1"}}\n'
        f'  metrics: [{{metric_id: {hostile}, value: -1.5}}, {{metric_id: "=cmd()", value: 1}}]\n  verify_token: {hostile}\n'
    )
    assert ask_for(place, "--format", form) == 1
    assert not {"\x1b", "\r", "\u2028", "\x85"} & set(place.said)
    if form == "github":
        (line,) = place.said.splitlines()
        assert line.startswith("::error file=")
        head, _, message = line.removeprefix("::error ").partition("::")
        assert head.count("=") == 4, "file, line, col and title, and nothing that the file says"
        assert "%250A" in message
    if form == "junit":
        assert len(ElementTree.fromstring(place.said).findall(".//failure")) == 1
    if form == "csv":
        first, second = list(csv.DictReader(io.StringIO(place.said)))
        assert (first["value"], first["framework_version"]) == ("-1.5", "'=1+1")
        assert second["metric"] == "'=cmd()"


def test_a_hostile_file_name_is_escaped_in_every_form(place: Place) -> None:
    bad = "g\nh,i::%é \x1b.yaml"
    file = write_result(place.folder / "odd", make.REPO, bad, FALSE)
    for form in FORMS:
        code = ask(place.folder, make.NOW, file, "--repo", make.REPO, "--trust", place.trust, "--format", form)
        assert code == 1
    assert place._ask(place.folder / "odd", "--jobs", 1, "--format", "github") == 1
    assert "g%0Ah%2Ci%3A%3A%25é \\x1b.yaml," in place.said
    assert place._ask(place.folder / "odd", "--jobs", 1, "--format", "sarif") == 1
    (result,) = json.loads(place.said)["runs"][0]["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.endswith("/g%0Ah%2Ci%3A%3A%25%C3%A9%20%1B.yaml")


def test_every_report_of_the_vectors_is_written_in_every_form() -> None:
    """Of each way in which a file, a token, a key or a time can be wrong."""
    found = vectors("contract/verify.json")
    judged = [(case["path"], reports_of(case, found["trusts"])) for case in found["cases"]]
    for name in (None, *FORMS):
        form = form_of(name, as_json=False, unsigned_fails=True)
        for path, reports in judged:
            written = form.writer.reports(path, reports)
            assert all(sign.isprintable() or sign == "\n" for sign in written)
            good = {report.verdict for report in reports} == {"verified"}
            assert name is None or bool(written) == (name in {"junit", "csv"} or not good)
            if name == "csv":
                assert {len(row) for row in csv.reader(io.StringIO(written))} == {24}
            if name == "junit":
                check_junit(ElementTree.fromstring(written))


# -- junit ------------------------------------------------------------------------------------------------------------

# What the published schemas of JUnit's readers have in common: each element's attributes (those required first) and
# children.
JUNIT: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors"}, {"skipped", "time", "timestamp", "hostname", "id", "package"},
        {"testcase", "properties", "system-out", "system-err"},
    ),
    "testcase": ({"name"}, {"classname", "time", "group"}, {"failure", "skipped", "system-out", "system-err"}),
    "failure": (set(), {"message", "type"}, set()),
    "skipped": (set(), {"message", "type"}, set()),
}  # fmt: skip


def check_junit(element: ElementTree.Element) -> None:
    required, allowed, children = JUNIT[element.tag]
    assert required <= element.attrib.keys() <= required | allowed
    if element.tag == "testsuite":
        counted = {"tests": ".//testcase", "failures": ".//failure", "skipped": ".//skipped"}
        assert {name: int(element.attrib[name]) for name in counted} == {
            name: len(element.findall(path)) for name, path in counted.items()
        }
    for child in element:
        assert child.tag in children
        check_junit(child)


@BOTH
def test_junit_is_of_its_published_shape_with_a_case_for_each_entry(place: Place, ask_for: Ask) -> None:
    for more, failures, skipped in (((), 3, 0), (("--allow-unsigned",), 2, 1)):
        assert ask_for(place, "--format", "junit", *more) == 1
        suites = ElementTree.fromstring(place.said)
        check_junit(suites)
        (suite,) = suites
        assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", str(failures), str(skipped))
        assert suite[0].get("name", "").startswith("entry 0: acme/open-model@9f3c2c9a1c4e on openai/gsm8k")
        assert len(suite[0]) == 0
        kinds = [failure.get("type") for failure in suite.findall(".//failure")]
        assert kinds[:2] == ["failed", "good_when_issued"]


# -- sarif ------------------------------------------------------------------------------------------------------------

TEXT: dict[str, Any] = {"type": "string"}
MESSAGE: dict[str, Any] = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": TEXT},
    "additionalProperties": False,
}
FROM_1: dict[str, Any] = {"type": "integer", "minimum": 1}


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def listed(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


# The part of SARIF 2.1.0 (OASIS Standard, 27 March 2020) that is written here, by its sections 3.13 to 3.52: every member
# that it requires, and none that it does not know.
SARIF = closed(
    ["version", "runs"],
    version={"const": "2.1.0"},
    **{"$schema": {"type": "string", "format": "uri"}},
    runs=listed(
        closed(
            ["tool"],
            columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
            tool=closed(
                ["driver"],
                driver=closed(
                    ["name"], name=TEXT, version=TEXT,
                    rules=listed(closed(["id"], id=TEXT, shortDescription=MESSAGE, help=MESSAGE), uniqueItems=True),
                ),
            ),
            results=listed(
                closed(
                    ["message"],
                    message=MESSAGE, ruleId=TEXT, ruleIndex={"type": "integer", "minimum": -1},
                    level={"enum": ["none", "note", "warning", "error"]},
                    locations=listed(closed([], physicalLocation=closed(
                        ["artifactLocation"],
                        artifactLocation=closed([], uri={"type": "string", "format": "uri-reference", "pattern": "^[!-~]+$"}),
                        region=closed([], startLine=FROM_1, startColumn=FROM_1),
                    ))),
                )
            ),
        )
    ),
)  # fmt: skip


@BOTH
def test_sarif_is_of_its_published_shape_and_names_check_level_and_line(place: Place, ask_for: Ask) -> None:
    write_result(place.folder / "hub", "acme/other", "a b%.yaml", "- [")
    assert ask_for(place, "--format", "sarif") == (1 if ask_for is Place.one else 3)
    document = json.loads(place.said)
    Draft202012Validator(SARIF).validate(document)
    (run,) = document["runs"]
    found = [(result["ruleId"], result["level"]) for result in run["results"]]
    assert found[:3] == [("check-8", "error"), ("check-5", "warning"), ("unsigned", "error")]
    assert {rule for rule, _ in found[:3]} <= {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    if ask_for is Place.hub:
        assert found[3:] == [("file.syntax", "error")]
        location = run["results"][3]["locations"][0]["physicalLocation"]
        assert location["artifactLocation"]["uri"].endswith("/a%20b%25.yaml")
        assert location["region"] == {"startLine": 1, "startColumn": 3}


def test_without_anything_wrong_each_document_is_whole(place: Place) -> None:
    place.write(GOOD)
    for form in FORMS:
        assert place.hub("--format", form, "--only-failed") == 0
        if form == "sarif":
            assert json.loads(place.said)["runs"][0]["results"] == []
        if form == "junit":
            assert len(ElementTree.fromstring(place.said)) == 0
        if form == "github":
            assert place.said == ""
        if form == "csv":
            assert len(place.said.splitlines()) == 1


# -- csv --------------------------------------------------------------------------------------------------------------


@BOTH
def test_csv_has_a_row_for_each_metric_with_who_and_when(place: Place, ask_for: Ask) -> None:
    assert ask_for(place, "--format", "csv") == 1
    rows = list(csv.DictReader(io.StringIO(place.said)))
    assert [row["verdict"] for row in rows] == ["verified", "failed", "good_when_issued", "unverified"]
    good = rows[0]
    assert (good["metric"], good["value"], good["selection"], good["run_url"]) == (
        "accuracy",
        "20.9",
        "match/accuracy",
        RUN,
    )
    assert (good["issued_at"], good["reason"]) == ("2026-11-18T11:06:40Z", "")
    assert (rows[3]["issuer"], rows[3]["issued_at"], rows[3]["reason"]) == ("", "", "unverified: no token")
    assert rows[1]["value"] == "21.9"
    vouched = ("issuer", "integration", "run_url", "issued_at", "expires_at", "attempt", "attempts_since")
    assert [rows[1][name] for name in vouched] == [""] * 7, "nobody signed 21.9"
    assert all(rows[2][name] for name in ("issuer", "integration", "issued_at", "expires_at"))


@pytest.mark.parametrize("formula", ["=1+1", "+1+1", "-1+1", "@SUM(1)", "x;=1+1", 'x"; =1', "＝1+1"])
def test_no_cell_is_a_formula_whatever_ends_cells(place: Place, formula: str) -> None:
    place.write(f"- dataset: {{id: {json.dumps(formula)}}}\n  metrics: [{{metric_id: m, value: -1.0e-7}}]\n")
    assert place.one("--format", "csv") == 1
    (row,) = csv.DictReader(io.StringIO(place.said))
    assert "'" in row["benchmark_repo"]
    assert row["benchmark_repo"].replace("'", "") == formula
    for line in place.said.splitlines():
        for cell in re.split(r"[,;]", line):
            assert cell.strip(' "')[:1] not in {"=", "+", "@", "＝"}
    assert float(row["value"]) == -1e-7


# -- quiet, only failed -----------------------------------------------------------------------------------------------


@BOTH
def test_quiet_writes_nothing_and_only_failed_leaves_out_what_is_good(place: Place, ask_for: Ask) -> None:
    assert ask_for(place, "--quiet") == 1
    assert (place.said, place.complained) == ("", "")
    assert ask_for(place, "--only-failed", "--json") == 1
    assert '"failed"' in place.said
    assert not re.search(r'"verdict": ?"verified"', place.said)
    assert ask_for(place, "--only-failed", "--format", "csv") == 1
    assert [row["verdict"] for row in csv.DictReader(io.StringIO(place.said))] == [
        "failed",
        "good_when_issued",
        "unverified",
    ]


def test_only_failed_of_a_good_file_is_nothing(place: Place) -> None:
    place.write(GOOD)
    assert place.one("--only-failed") == 0
    assert place.said == ""


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_cannot_be_read_is_told_in_the_form_and_exits_3(place: Place, form: str) -> None:
    place.write("- [")
    assert place.one("--format", form) == 3
    assert "file.syntax" in place.said
    assert "file.syntax" in place.complained
    if form == "sarif":
        Draft202012Validator(SARIF).validate(json.loads(place.said))
    if form == "junit":
        check_junit(ElementTree.fromstring(place.said))


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_is_not_there_is_told_in_the_form_too(place: Place, form: str) -> None:
    place.file.unlink()
    assert place.one("--format", form) == 3
    assert "file.unreadable" in place.said
    assert "no such file" in place.said.lower()
    assert "file.unreadable" in place.complained


@pytest.mark.parametrize("more", [("--json", "--quiet"), ("--json", "--format", "csv"), ("--quiet", "--format", "csv")])
def test_two_forms_at_once_are_a_usage_error(place: Place, more: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError):
        place.one(*more)


@pytest.mark.parametrize(
    "repo", ["https://huggingface.co/acme/open-model", "open-model", "acme/open-model/tree/main", ""]
)
def test_what_is_no_repository_is_a_usage_error_and_accuses_no_file(place: Place, repo: str) -> None:
    with pytest.raises(click.UsageError, match="OWNER/NAME"):
        place._ask(place.file, "--repo", repo)


@pytest.mark.parametrize("text", ["[]\n", BARE])
@BOTH
def test_a_no_for_want_of_any_token_is_said_whatever_the_form(place: Place, ask_for: Ask, text: str) -> None:
    place.write(text)
    for form in ("junit", "sarif"):
        assert ask_for(place, "--allow-unsigned", "--format", form) == 1
        assert "no entry has a token that could be checked, so the answer is no" in place.complained
    assert ask_for(place, "--allow-unsigned", "--quiet") == 1
    assert place.complained == ""


@BOTH
def test_nothing_of_a_file_is_a_link_in_sarif(place: Place, ask_for: Ask) -> None:
    place.write(
        '- dataset: {id: "a/b", task_id: "[the run](https://evil.example)"}\n  metrics: [{metric_id: m, value: 1}]\n'
    )
    assert ask_for(place, "--format", "sarif") == 1
    (result,) = json.loads(place.said)["runs"][0]["results"]
    assert "[the run] (https://evil.example)" in result["message"]["text"]


def test_of_a_copy_it_is_said_how_to_say_where_it_lies(place: Place) -> None:
    copy = place.folder / "gsm8k.yaml"
    copy.write_text(GOOD)
    assert place._ask(copy, "--repo", make.REPO) == 1
    assert "For a copy, give its path in the repository: --path .eval_results/NAME.yaml" in place.complained
    assert place._ask(copy, "--repo", make.REPO, "--path", make.PATH) == 0
    assert place.complained == ""
