"""`issuer verify --format`, `--quiet` and `--only-failed`: every form of the same answer, escaped for its readers."""

import csv
import io
import json
import re
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
OLD = make.file_for(SAID, iat=make.NOW - 7200, nbf=make.NOW - 7200, exp=make.NOW - 3600, jti="AAECAwQFBgcICQoLDA0OEA")
FALSE, BARE = GOOD.replace("20.9", "21.9"), write_entry(SAID.form)
FILE = GOOD + FALSE + OLD + BARE
RUN = "https://github.com/example-org/evals/actions/runs/19512345678/attempts/1"


class Place:
    """A folder with one file, and a hub that has it; `out` and `err` are the last command's output."""

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
        self.out, self.err = self._capsys.readouterr()
        return code


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return Place(tmp_path, capsys)


BOTH = (Place.one, Place.hub)


# -- the first lines --------------------------------------------------------------------------------------------------


def test_the_first_lines_name_the_result_its_job_and_its_issuer(place: Place) -> None:
    assert place.one() == 1
    heads = [line for line in place.out.splitlines() if ": acme/open-model@" in line]
    assert [line.partition(":")[0] for line in heads] == ["verified", "not verified", "good when issued", "unverified"]
    assert "accuracy 21.9" in heads[1]
    assert f"  its token: run with inspect-ai 0.3.285 by {RUN}\n" in place.out
    assert "  run with inspect-ai 0.3.285, according to the file\n  no trusted issuer vouches for it\n" in place.out
    place.write(GOOD)
    assert place.one() == 0
    assert place.out.splitlines()[:3] == [
        "verified: acme/open-model@9f3c2c9a1c4e on openai/gsm8k (gsm8k): accuracy 20.9 [match/accuracy]",
        f"  run with inspect-ai 0.3.285 by {RUN}",
        "  vouched for by https://issuer.example for its integration inspect-ai, 2026-11-18T11:06:40Z (0 s ago)",
    ]


COUNTED = make.file_for(SAID, caller=CALLER, attempt={"number": 3, "since": make.NOW - 25 * 86_400})


def test_the_fourth_line_names_the_attempt_and_the_last_line_explains_it(place: Place) -> None:
    place.write(COUNTED)
    assert place.one() == 0
    run_key = "this model commit, benchmark commit, task and framework"
    lines, since = place.out.splitlines(), f"were signed for {run_key} since "
    assert lines[3] == f"  attempt 3: with this one, 3 different results {since}2026-10-24T11:06:40Z (25 d ago)"
    explained = "  The attempt counts the different results that one registered identity had signed."
    not_counted = "Results of other identities do not count. Another commit, even an empty one, starts a new count."
    assert lines[-1] == f"{explained} {not_counted}"
    place.write(COUNTED.replace("20.9", "21.9"))
    assert place.one() == 1
    assert f"\n  its token: attempt 3: with this one, 3 different results {since}" in place.out
    for number, text in (
        (64, "  attempt 64 or more: with this one, 64 or more different results were signed for"),
        (1, f"  attempt 1: this is the first result signed for {run_key} since 2026"),
    ):
        place.write(make.file_for(SAID, attempt={"number": number, "since": make.NOW}))
        assert (place.one(), text in place.out) == (0, True)
    place.write(GOOD)
    assert (place.one(), "attempt " in place.out) == (0, False)


def test_every_form_refuses_an_attempt_above_the_trusted_maximum(place: Place) -> None:
    place.write(COUNTED)
    trusted = place.trust.read_text()
    reason = "4 issuer and audience: more different results were signed for this run than the trust file allows"
    for ask_for in BOTH:
        place.trust.write_text(trusted + "max_attempt: 2\n")
        for form in ("github", "junit", "sarif", "csv"):
            assert ask_for(place, "--format", form) == 1
            assert f"{reason} (token: attempt 3, here: at most 2)" in place.out, form
        place.trust.write_text(trusted + "max_attempt: 3\n")
        assert ask_for(place, "--format", "csv") == 0
        (row,) = csv.DictReader(io.StringIO(place.out))
        assert (row["attempt"], row["attempts_since"]) == ("3", "2026-10-24T11:06:40Z")
        assert ask_for(place, "--json") == 0
        assert '"attempt":{"number":3,"since":1792840000}' in re.sub(r"\s", "", place.out)


@pytest.mark.long
def test_the_processes_of_a_folder_judge_the_attempts_too(place: Place) -> None:
    place.write(COUNTED + GOOD)
    place.trust.write_text(place.trust.read_text() + "max_attempt: 2\n")
    assert place.hub("--json", "--jobs", 2) == 1
    reports = [json.loads(line) for line in place.out.splitlines()[:2]]
    assert [(report["verdict"], report["attempt"]) for report in reports] == [
        ("failed", {"number": 3, "since": make.NOW - 25 * 86_400}), ("verified", None),
    ]  # fmt: skip


def test_the_first_line_names_a_partial_run_and_an_unnamed_metric_and_stays_short(place: Place) -> None:
    bare, metrics = f'- dataset: {{id: "{make.BENCHMARK}"}}\n', [{"metric_id": f"m{n}", "value": n} for n in range(9)]
    for text, code, end in (
        (make.file_for(make.submission({"run": {"completeness": "partial"}})), 0, ": accuracy 20.9, of a partial run"),
        (f"{bare}  value: 20.9\n", 1, "unverified: acme/open-model on openai/gsm8k: 20.9, of an unnamed metric"),
        (bare, 1, "unverified: acme/open-model on openai/gsm8k: no metric"),
        (make.file_for(make.submission(metrics=metrics, task_id="t" * 128)), 0, "m0 0, m1 1, m2 2, m3 3, and 5 more"),
    ):
        place.write(text)
        assert (place.one(), place.out.splitlines()[0].endswith(end)) == (code, True), place.out


def test_an_entry_with_an_expired_token_is_good_when_issued(place: Place) -> None:
    place.write(OLD)
    assert place.one() == 4
    assert place.out.startswith("good when issued: acme/open-model@")
    assert "This proves: the file and the token say the same, and the token was good when it was issued." in place.out
    assert place.hub() == 4
    assert "1 good when issued" in place.out
    assert place.one("--received-now") == 1
    place.trust.write_text(place.trust.read_text() + "receipt_keys: {file: keys2.json}\n")
    (place.folder / "keys2.json").write_bytes(make.jwks(make.RECEIPT_KEY))
    assert place.one() == 4
    assert place.out.startswith("undecided: acme/open-model@"), "a receipt could still say"


# -- json -------------------------------------------------------------------------------------------------------------


def test_json_has_claims_caller_and_times_and_fits_its_schema(place: Place) -> None:
    assert place.one("--json") == 1
    document = json.loads(place.out)
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
        None, {}, None, good["said"]["metrics"],
    )  # fmt: skip


# -- github -----------------------------------------------------------------------------------------------------------


def test_github_gets_a_command_for_each_entry_that_is_not_good(place: Place) -> None:
    for ask_for in BOTH:
        assert ask_for(place, "--format", "github") == 1
        lines = place.out.splitlines()
        assert [line.partition(" ")[0] for line in lines] == ["::error", "::warning", "::error"]
        places = [int(each.partition("line=")[2].partition(",")[0]) for each in lines]
        assert places == sorted(places)
        assert places[0] < FILE.splitlines().index("      value: 21.9") + 1 < places[1]
        assert ",title=not verified::not verified: 8 metrics: accuracy differs (token: 20.9, here: 21.9)" in lines[0]
        assert ask_for(place, "--format", "github", "--allow-unsigned") == 1
        assert len(place.out.splitlines()) == 2


def test_no_value_or_name_of_a_file_escapes_from_its_place_in_any_form(place: Place) -> None:
    hostile = json.dumps("x%0A::error::forged\n::set-output name=x::y\r\x1b[2J\u2028\x85,file=/etc/passwd")
    link, name = "[the run](https://evil.example)", json.dumps("</failure><failure message='")
    place.write(
        f'- dataset: {{id: "a/b", task_id: {hostile}}}\n  framework: {{name: {name}, version: "=1+1"}}\n'
        f'  metrics: [{{metric_id: {hostile}, value: -1.5}}, {{metric_id: "=cmd()", value: 1}}]\n  verify_token: {hostile}\n'
    )
    for ask_for in BOTH:
        written = {}
        for form in FORMS:
            assert ask_for(place, "--format", form) == 1
            assert not {"\x1b", "\r", "\u2028", "\x85"} & set(place.out)
            written[form] = place.out
        (line,) = written["github"].splitlines()
        head, _, message = line.removeprefix("::error ").partition("::")
        assert (line[:13], head.count("="), "%250A" in message) == ("::error file=", 4, True), "file, line, col, title"
        assert len(ElementTree.fromstring(written["junit"]).findall(".//failure")) == 1
        first, second = list(csv.DictReader(io.StringIO(written["csv"])))
        assert (first["value"], first["framework_version"], second["metric"]) == ("-1.5", "'=1+1", "'=cmd()")
    place.write(f'- dataset: {{id: "a/b", task_id: "{link}"}}\n  metrics: [{{metric_id: m, value: 1}}]\n')
    for ask_for in BOTH:
        assert ask_for(place, "--format", "sarif") == 1
        (result,) = json.loads(place.out)["runs"][0]["results"]
        assert "[the run] (https://evil.example)" in result["message"]["text"]
    odd = place.folder / "odd"
    file = write_result(odd, make.REPO, "g\nh,i::%é \x1b.yaml", FALSE)
    assert [place._ask(file, "--repo", make.REPO, "--format", form) for form in FORMS] == [1] * len(FORMS)
    assert place._ask(odd, "--jobs", 1, "--format", "github") == 1
    assert "g%0Ah%2Ci%3A%3A%25é \\x1b.yaml," in place.out
    assert place._ask(odd, "--jobs", 1, "--format", "sarif") == 1
    (result,) = json.loads(place.out)["runs"][0]["results"]
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


def test_junit_has_its_published_shape_and_a_case_for_each_entry(place: Place) -> None:
    for ask_for in BOTH:
        for more, failures, skipped in (((), 3, 0), (("--allow-unsigned",), 2, 1)):
            assert ask_for(place, "--format", "junit", *more) == 1
            suites = ElementTree.fromstring(place.out)
            check_junit(suites)
            (suite,) = suites
            assert [suite.get(name) for name in ("tests", "failures", "skipped")] == ["4", str(failures), str(skipped)]
            assert suite[0].get("name", "").startswith("entry 0: acme/open-model@9f3c2c9a1c4e on openai/gsm8k")
            assert len(suite[0]) == 0
            kinds = [failure.get("type") for failure in suite.findall(".//failure")]
            assert kinds[:2] == ["failed", "good_when_issued"]


# -- sarif ------------------------------------------------------------------------------------------------------------


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def listed(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


TEXT: dict[str, Any] = {"type": "string"}
MESSAGE = closed(["text"], text=TEXT)
FROM_1: dict[str, Any] = {"type": "integer", "minimum": 1}
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


def test_sarif_has_its_published_shape_and_names_check_level_and_line(place: Place) -> None:
    write_result(place.folder / "hub", "acme/other", "a b%.yaml", "- [")
    for ask_for, code in zip(BOTH, (1, 3), strict=True):
        assert ask_for(place, "--format", "sarif") == code
        document = json.loads(place.out)
        Draft202012Validator(SARIF).validate(document)
        (run,) = document["runs"]
        found = [(result["ruleId"], result["level"]) for result in run["results"]]
        assert found[:3] == [("check-8", "error"), ("check-5", "warning"), ("unsigned", "error")]
        assert {rule for rule, _ in found[:3]} <= {rule["id"] for rule in run["tool"]["driver"]["rules"]}
        assert found[3:] == [("file.syntax", "error")] * (ask_for is Place.hub)
    location = json.loads(place.out)["runs"][0]["results"][3]["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"].endswith("/a%20b%25.yaml")
    assert location["region"] == {"startLine": 1, "startColumn": 3}


# -- csv --------------------------------------------------------------------------------------------------------------


def test_csv_has_a_row_for_each_metric_with_caller_and_times_and_no_formula(place: Place) -> None:
    for ask_for in BOTH:
        assert ask_for(place, "--format", "csv") == 1
        rows = list(csv.DictReader(io.StringIO(place.out)))
        assert [row["verdict"] for row in rows] == ["verified", "failed", "good_when_issued", "unverified"]
        names = ("metric", "value", "selection", "run_url", "issued_at", "reason")
        good = ["accuracy", "20.9", "match/accuracy", RUN, "2026-11-18T11:06:40Z", ""]
        assert [rows[0][name] for name in names] == good
        assert [rows[3][name] for name in ("issuer", "issued_at", "reason")] == ["", "", "unverified: no token"]
        vouched = ("issuer", "integration", "run_url", "issued_at", "expires_at", "attempt", "attempts_since")
        assert [rows[1][name] for name in ("value", *vouched)] == ["21.9", *[""] * 7], "no issuer signed 21.9"
        assert all(rows[2][name] for name in ("issuer", "integration", "issued_at", "expires_at"))
    formulas = ["=1+1", "+1+1", "-1+1", "@SUM(1)", "x;=1+1", 'x"; =1', "＝1+1"]
    entry = "- dataset: {{id: {}}}\n  metrics: [{{metric_id: m, value: -1.0e-7}}]\n"
    place.write("".join(entry.format(json.dumps(formula)) for formula in formulas))
    assert place.one("--format", "csv") == 1
    rows = list(csv.DictReader(io.StringIO(place.out)))
    found = [row["benchmark_repo"] for row in rows]
    assert ([cell.replace("'", "") for cell in found], all("'" in cell for cell in found)) == (formulas, True)
    cells = [cell.strip(' "') for line in place.out.splitlines() for cell in re.split(r"[,;]", line)]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "＝"))], "whatever separates cells"
    assert {float(row["value"]) for row in rows} == {-1e-7}


# -- quiet, only failed -----------------------------------------------------------------------------------------------


def test_quiet_writes_no_line_and_only_failed_omits_good_entries(place: Place) -> None:
    for ask_for in BOTH:
        assert (ask_for(place, "--quiet"), place.out, place.err) == (1, "", "")
        assert ask_for(place, "--only-failed", "--json") == 1
        assert '"failed"' in place.out
        assert not re.search(r'"verdict": ?"verified"', place.out)
        assert ask_for(place, "--only-failed", "--format", "csv") == 1
        verdicts = [row["verdict"] for row in csv.DictReader(io.StringIO(place.out))]
        assert verdicts == ["failed", "good_when_issued", "unverified"]
    place.write(GOOD)  # then the document is empty
    written = {}
    for form in FORMS:
        assert place.hub("--format", form, "--only-failed") == 0
        written[form] = place.out
    assert json.loads(written["sarif"])["runs"][0]["results"] == []
    assert len(ElementTree.fromstring(written["junit"])) == 0
    assert (written["github"], len(written["csv"].splitlines())) == ("", 1)
    assert (place.one("--only-failed"), place.out) == (0, "")


def test_every_form_reports_a_file_that_cannot_be_read_or_has_no_token(place: Place) -> None:
    for text, code in (("- [", "file.syntax"), (None, "file.unreadable")):
        place.file.unlink() if text is None else place.write(text)
        for form in FORMS:
            assert (place.one("--format", form), code in place.out, code in place.err) == (3, True, True), form
            assert text or "no such file" in place.out.lower()
            if form == "sarif":
                Draft202012Validator(SARIF).validate(json.loads(place.out))
            if form == "junit":
                check_junit(ElementTree.fromstring(place.out))
    for text in ("[]\n", BARE):
        place.write(text)
        for ask_for in BOTH:
            for form in ("junit", "sarif"):
                assert ask_for(place, "--allow-unsigned", "--format", form) == 1
                assert "no entry has a token that could be checked, so the answer is no" in place.err
            assert (ask_for(place, "--allow-unsigned", "--quiet"), place.err) == (1, "")


def test_the_answer_for_a_copy_names_the_option_and_wrong_options_are_usage_errors(place: Place) -> None:
    copy = place.folder / "gsm8k.yaml"
    copy.write_text(GOOD)
    assert place._ask(copy, "--repo", make.REPO) == 1
    assert "For a copy, give its path in the repository: --path .eval_results/NAME.yaml" in place.err
    assert (place._ask(copy, "--repo", make.REPO, "--path", make.PATH), place.err) == (0, "")
    for more in (("--json", "--quiet"), ("--json", "--format", "csv"), ("--quiet", "--format", "csv")):
        with pytest.raises(click.UsageError):
            place.one(*more)
    for repo in ("https://huggingface.co/acme/open-model", "open-model", "acme/open-model/tree/main", ""):
        with pytest.raises(click.UsageError, match="OWNER/NAME"):
            place._ask(place.file, "--repo", repo)
