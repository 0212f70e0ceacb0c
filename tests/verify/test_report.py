"""Reports: their JSON form fits its schema, for every outcome."""

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest

from issuer.formats import jcs
from issuer.results.entry import write_entry
from issuer.verify.report import REPORT_VERSION, Report, Reports, json_schema
from tests.support import make
from tests.support.reports import judge

ITEM = make.submission()
FILE = make.file_for(ITEM)
VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def reports() -> tuple[Report, ...]:
    """Return one report of every verdict, with every status in some check."""
    others = (FILE.replace("20.9", "21"), write_entry(ITEM.form), write_entry(ITEM.form, "x"))
    return (judge(FILE), judge(FILE, make.trust(keys=None)), *map(judge, others))


def test_real_output_of_every_verdict_fits_the_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    found = reports()
    assert [report.verdict for report in found] == ["verified", "undecided", "failed", "unverified", "failed"]
    assert {check.status.value for report in found for check in report.checks} == {"pass", "fail", "unknown", "skip"}
    VALIDATOR.validate(msgspec.json.decode(msgspec.json.encode(Reports(REPORT_VERSION, found))))
    line = jsonschema.Draft202012Validator({**json_schema(), "$ref": "#/$defs/Report"})
    for report in found:
        line.validate(msgspec.json.decode(msgspec.json.encode(report)))


def test_the_schema_refuses_another_document() -> None:
    document = msgspec.json.decode(msgspec.json.encode(Reports(REPORT_VERSION, reports()[:1])))
    (report,) = document["reports"]
    changes: list[dict[str, Any]] = [
        {"verdict": "good"}, {"version": 2}, {"at": "now"}, {"at_from": "author date"}, {"checks": {}}, {"jti": None}, {"repo": ...},
    ]  # fmt: skip
    for changed in changes:
        document["reports"][0] = make.without_dots({**report, **changed})
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate(document)


def test_a_report_vouches_for_nothing_of_a_token_without_a_good_signature() -> None:
    by_stranger = make.signed(make.HEADER, jcs.canonical(make.payload_of(ITEM)), make.STRANGER)
    report = judge(write_entry(ITEM.form, by_stranger))
    assert report.failed == (3,)
    assert {report.issuer, report.framework, report.jti, report.kid, report.content_digest} == {""}
    good = reports()[0]
    assert (good.issuer, good.framework, good.jti, good.kid) == (make.ISSUER, "inspect-ai", make.JTI, make.KID)
    assert (good.repo, good.path, good.content_digest) == (make.REPO, make.PATH, ITEM.content_digest)
