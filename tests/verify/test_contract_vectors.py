"""`tests/vectors/contract/`: `issuer.verify` gives the answers in the files, and their generator makes the files."""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from issuer.errors import FormatError, InputError, Refused
from issuer.formats import jcs
from issuer.formats.strict_json import loads
from issuer.results.claims import read_claims
from issuer.results.entry import read_entries
from issuer.verify.report import NAMES
from tests.support.contract_vectors import FILES, FOLDER, VERSION, make_files
from tests.support.judging_vectors import MAX_JSON_BYTES, MAX_JSON_DEPTH, judge_case

Case = dict[str, Any]
READ: dict[str, Any] = {name: json.loads((FOLDER / name).read_bytes()) for name in FILES}
PAGE = (FOLDER / "README.md").read_text("utf-8")


def test_the_files_are_what_their_generator_makes_with_a_version_and_unique_names() -> None:
    for name, text in make_files().items():
        assert (FOLDER / name).read_text("ascii") == text, f"{name}: run `python -m tests.support.contract_vectors`"
        assert READ[name]["version"] == VERSION
        assert max(Counter(case["name"] for case in READ[name]["cases"]).values()) == 1


def differing(file: str, answer: Callable[[Case], Case]) -> dict[str, Case]:
    """Return the answers that a file does not have, by the names of its cases."""
    answers = {case["name"]: (case, answer(case)) for case in READ[file]["cases"]}
    return {name: got for name, (case, got) in answers.items() if {key: case.get(key) for key in got} != got}


def test_a_report_is_that_of_the_vector() -> None:
    trusts = READ["verify.json"]["trusts"]
    assert differing("verify.json", lambda case: {"reports": judge_case(case, trusts)}) == {}


def test_every_check_passes_and_fails_somewhere_and_every_verdict_is_given() -> None:
    reports = [report for case in READ["verify.json"]["cases"] for report in case["reports"]]
    found = {(number, status) for report in reports for number, status in report["checks"].items()}
    assert {(str(number), word) for number in NAMES for word in ("pass", "fail")} <= found
    assert {(str(number), "unknown") for number in (2, 3, 5, 8, 10, 11)} <= found
    verdicts = Counter(report["verdict"] for report in reports)
    assert verdicts.keys() == {"verified", "failed", "undecided", "good_when_issued", "unverified"}
    assert len(reports) > 100


def test_json_has_these_canonical_bytes_or_is_refused() -> None:
    def answer(case: Case) -> Case:
        try:
            value = loads(base64.b64decode(case["base64"]), max_bytes=MAX_JSON_BYTES, max_depth=MAX_JSON_DEPTH)
        except FormatError as error:
            return {"refused": str(error.code)}
        return {"canonical": jcs.canonical(value).decode()}

    assert differing("json.json", answer) == {}


def test_claims_have_this_digest_or_these_faults() -> None:
    def answer(case: Case) -> Case:
        value = loads(case["json"].encode(), max_bytes=MAX_JSON_BYTES, max_depth=MAX_JSON_DEPTH)
        try:
            claims = read_claims(value, signed=True)
        except Refused as error:
            return {"refused": [{"code": str(fault.code), "pointer": fault.pointer} for fault in error.faults]}
        assert digest(case["canonical"]) == claims.digest
        return {"claims_digest": claims.digest}

    assert differing("claims.json", answer) == {}


def test_entries_have_these_digests_or_are_refused_at_this_line() -> None:
    def answer(case: Case) -> Case:
        raw = case["yaml"].encode() if "yaml" in case else base64.b64decode(case["base64"])
        try:
            forms = [jcs.canonical(entry.form).decode() for entry in read_entries(raw, "file.yaml")]
        except InputError as error:
            return {"refused": {"code": str(error.code), "line": error.place.line}}
        return {"entries": [{"canonical": form, "content_digest": digest(form)} for form in forms]}

    assert differing("entries.json", answer) == {}


def digest(canonical: str) -> str:
    """Return a digest without code of the issuer."""
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def test_the_page_names_every_file_member_and_number() -> None:
    members = {name for file in READ.values() for case in file["cases"] for name in case}
    members |= {name for case in READ["verify.json"]["cases"] for report in case["reports"] for name in report}
    assert not [name for name in {*FILES, *members} if f"`{name}`" not in PAGE]
    assert f"version {VERSION}" in PAGE
    assert f"{MAX_JSON_BYTES} bytes" in PAGE
    assert f"{MAX_JSON_DEPTH} deep" in PAGE
