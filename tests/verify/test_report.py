"""Reports: the JSON form is what its schema says, for every outcome that there is."""

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest

from issuer.formats import jcs
from issuer.results.entry import read_entries, write_entry
from issuer.verify import Context, verify_entries
from issuer.verify.report import NAMES, REPORT_VERSION, Report, Reports, json_schema
from tests.support import make

SAID = make.submission()
FILE = make.file_for(SAID)
VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def reports() -> tuple[Report, ...]:
    """Return one report of every verdict, with every status in some check."""
    found: list[Report] = []
    good, no_keys = make.trust(), make.trust(keys=None)
    for text, trust in (
        (FILE, good), (FILE, no_keys), (FILE.replace("20.9", "21"), good), (write_entry(SAID.form), good), (write_entry(SAID.form, "x"), good),
    ):  # fmt: skip
        entries = read_entries(text.encode(), make.PATH)
        found += verify_entries(entries, make.REPO, make.PATH, trust, make.NOW, Context(make.NOW))
    return tuple(found)


def test_real_output_of_every_verdict_fits_the_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    found = reports()
    assert [report.verdict for report in found] == ["verified", "undecided", "failed", "unverified", "failed"]
    assert {check.status.value for report in found for check in report.checks} == {"pass", "fail", "unknown", "skip"}
    VALIDATOR.validate(msgspec.json.decode(msgspec.json.encode(Reports(REPORT_VERSION, found))))


def test_a_json_line_is_a_report_of_its_own() -> None:
    line = jsonschema.Draft202012Validator({**json_schema(), "$ref": "#/$defs/Report"})
    for report in reports():
        line.validate(msgspec.json.decode(msgspec.json.encode(report)))


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("verdict", "good"),
        ("version", 2),
        ("at", "now"),
        ("at_from", "author date"),
        ("checks", {}),
        ("jti", None),
        ("repo", ...),
    ],
)
def test_the_schema_refuses_what_is_no_report(change: str, value: Any) -> None:
    document = msgspec.json.decode(msgspec.json.encode(Reports(REPORT_VERSION, reports()[:1])))
    document["reports"][0] = make.without_dots({**document["reports"][0], change: value})
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(document)


def test_every_check_is_there_in_its_order_under_its_name() -> None:
    for report in reports():
        assert {check.number: check.name for check in report.checks} == NAMES
        assert [check.number for check in report.checks] == list(range(1, 12))


def test_a_report_vouches_for_nothing_of_a_token_without_a_good_signature() -> None:
    by_stranger = make.signed(make.HEADER, jcs.canonical(make.payload_of(SAID)), make.STRANGER)
    entries = read_entries(write_entry(SAID.form, by_stranger).encode(), make.PATH)
    (report,) = verify_entries(entries, make.REPO, make.PATH, make.trust(), make.NOW, Context(make.NOW))
    assert report.failed == (3,)
    assert {report.issuer, report.framework, report.jti, report.kid, report.content_digest} == {""}
    good = reports()[0]
    assert (good.issuer, good.framework, good.jti, good.kid) == (make.ISSUER, "inspect-ai", make.JTI, make.KID)
    assert (good.repo, good.path, good.content_digest) == (make.REPO, make.PATH, SAID.content_digest)
