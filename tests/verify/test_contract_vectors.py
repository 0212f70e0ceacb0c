"""`tests/vectors/contract/`: what is in the files is what `issuer.verify` answers, and what their generator makes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from typing import Any

import pytest

from issuer.errors import FormatError, InputError, Refused
from issuer.formats import jcs
from issuer.formats.strict_json import loads
from issuer.results.claims import read_claims
from issuer.results.entry import read_entries
from issuer.verify.report import NAMES
from tests.support.contract_vectors import FILES, FOLDER, VERSION, make_files
from tests.support.judging_vectors import MAX_JSON_BYTES, MAX_JSON_DEPTH, judge_case

READ: dict[str, Any] = {name: json.loads((FOLDER / name).read_bytes()) for name in FILES}
PAGE = (FOLDER / "README.md").read_text("utf-8")


def named(file: str) -> pytest.MarkDecorator:
    """Run a test for each case of a file, by its name."""
    cases = READ[file]["cases"]
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


def test_the_files_are_what_their_generator_makes() -> None:
    for name, text in make_files().items():
        assert (FOLDER / name).read_text("ascii") == text, f"{name}: run `python -m tests.support.contract_vectors`"


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_its_version_and_each_case_a_name_of_its_own(name: str) -> None:
    assert READ[name]["version"] == VERSION
    assert max(Counter(case["name"] for case in READ[name]["cases"]).values()) == 1


@named("verify.json")
def test_a_report_is_that_of_the_vector(case: dict[str, Any]) -> None:
    assert judge_case(case, READ["verify.json"]["trusts"]) == case["reports"]


def test_every_check_passes_and_fails_somewhere_and_every_verdict_is_given() -> None:
    reports = [report for case in READ["verify.json"]["cases"] for report in case["reports"]]
    found = {(number, status) for report in reports for number, status in report["checks"].items()}
    assert {(str(number), word) for number in NAMES for word in ("pass", "fail")} <= found
    assert {(str(number), "unknown") for number in (2, 3, 5, 8, 10, 11)} <= found
    verdicts = Counter(report["verdict"] for report in reports)
    assert verdicts.keys() == {"verified", "failed", "undecided", "good_when_issued", "unverified"}
    assert len(reports) > 100


@named("json.json")
def test_json_has_these_canonical_bytes_or_is_refused(case: dict[str, Any]) -> None:
    raw = base64.b64decode(case["base64"])
    if "refused" in case:
        with pytest.raises(FormatError) as refused:
            loads(raw, max_bytes=MAX_JSON_BYTES, max_depth=MAX_JSON_DEPTH)
        assert str(refused.value.code) == case["refused"]
    else:
        value = loads(raw, max_bytes=MAX_JSON_BYTES, max_depth=MAX_JSON_DEPTH)
        assert jcs.canonical(value).decode() == case["canonical"]


@named("claims.json")
def test_claims_have_this_digest_or_these_faults(case: dict[str, Any]) -> None:
    value = loads(case["json"].encode(), max_bytes=MAX_JSON_BYTES, max_depth=MAX_JSON_DEPTH)
    if "refused" in case:
        with pytest.raises(Refused) as refused:
            read_claims(value)
        faults = [{"code": str(fault.code), "pointer": fault.pointer} for fault in refused.value.faults]
        assert faults == case["refused"]
    else:
        assert read_claims(value).digest == case["claims_digest"]
        assert digest(case["canonical"]) == case["claims_digest"]


@named("entries.json")
def test_entries_have_this_digest_or_are_refused_at_this_line(case: dict[str, Any]) -> None:
    raw = case["yaml"].encode() if "yaml" in case else base64.b64decode(case["base64"])
    if "refused" in case:
        with pytest.raises(InputError) as refused:
            read_entries(raw, "file.yaml")
        assert {"code": str(refused.value.code), "line": refused.value.place.line} == case["refused"]
    else:
        forms = [jcs.canonical(entry.form).decode() for entry in read_entries(raw, "file.yaml")]
        assert forms == [each["canonical"] for each in case["entries"]]
        assert [digest(form) for form in forms] == [each["content_digest"] for each in case["entries"]]


def digest(canonical: str) -> str:
    """Take a digest as any language does."""
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def test_the_page_names_every_file_member_and_number() -> None:
    members = {name for file in READ.values() for case in file["cases"] for name in case}
    members |= {name for case in READ["verify.json"]["cases"] for report in case["reports"] for name in report}
    assert not [name for name in {*FILES, *members} if f"`{name}`" not in PAGE]
    assert f"version {VERSION}" in PAGE
    assert f"{MAX_JSON_BYTES} bytes" in PAGE
    assert f"{MAX_JSON_DEPTH} deep" in PAGE
