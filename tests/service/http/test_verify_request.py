"""The body of `POST /verify`: one well-formed question, or a refusal with its place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import Refused
from issuer.results.entry import drop_nulls, read_entries
from issuer.service.http.bounds import MAX_QUESTION_BYTES
from issuer.service.http.verify import read_question
from tests.support import make
from tests.support.shared import examples

SAID = make.submission({"notes": "no tools"})
FILE = make.file_for(SAID)
ENTRY: dict[str, Any] = {**SAID.form, "verify_token": make.token_for(SAID)}
ASKED: dict[str, Any] = {"repo": make.REPO, "path": make.PATH, "yaml": FILE}


def asked(**members: Any) -> bytes:
    """Return a good body with other members; one that is `...` is left out."""
    return json.dumps(make.without_dots({**ASKED, **members})).encode()


def refusal(raw: bytes) -> Refused:
    with pytest.raises(Refused) as caught:
        read_question(raw)
    return caught.value


def test_a_question_has_the_entries_of_its_file() -> None:
    question = read_question(asked(yaml=FILE + FILE, at=5))
    assert question.entries == read_entries((FILE + FILE).encode(), "x")
    assert (question.repo, question.path, question.at, question.benchmarks) == (make.REPO, make.PATH, 5, {})
    assert read_question(asked()).at is None


def test_an_entry_in_json_is_the_same_entry() -> None:
    (entry,) = read_question(asked(yaml=..., entry=ENTRY)).entries
    (same,) = read_entries(FILE.encode(), "x")
    for name in ("form", "token", "metrics", "dataset"):
        assert getattr(entry, name) == getattr(same, name)
    assert entry.pointer == ""


def test_the_benchmark_definition_is_of_the_commit_of_the_entries() -> None:
    question = read_question(asked(benchmark=make.BENCHMARK_TEXT))
    assert question.benchmarks == {(make.BENCHMARK, SAID.claims.benchmark_revision): make.benchmark()}


# The members of a body that is refused, by the place of the fault.
FAULTS: dict[str, list[dict[str, Any]]] = {
    "": [{"yaml": ...}, {"entry": ENTRY}, {"repo": ...}, {"path": ...}],
    "/repo": [{"repo": ""}, {"repo": 5}],
    "/path": [{"path": "x" * 513}],
    "/yaml": [{"yaml": each} for each in (5, None, "- &a 1", "x: 1", "- x: 1")],
    "/at": [{"at": each} for each in ("2026-11-21", -1, 2**34, True)],
    "/benchmark": [{"benchmark": "x: 1"}, {"benchmark": {}}],
    "/entry": [{"yaml": ..., "entry": []}, {"yaml": ..., "entry": {}}],
    "/entry/dataset": [{"yaml": ..., "entry": {**ENTRY, "dataset": 5}}],
    "/entry/verifyToken": [{"yaml": ..., "entry": {**ENTRY, "verifyToken": "x"}}],
    "/entry/run/a/0": [{"yaml": ..., "entry": {**ENTRY, "run": {"a": [None]}}}],
}


def test_a_body_that_is_not_a_question_is_refused_at_its_place() -> None:
    for pointer, bodies in FAULTS.items():
        for members in bodies:
            error = refusal(asked(**members))
            assert (error.code, error.faults[0].pointer) == (Code.REQUEST_MALFORMED, pointer), members
            assert error.code.meaning.status == 400
    error = refusal(asked(trust="x"))
    assert (error.code, error.faults[0].pointer) == (Code.REQUEST_UNKNOWN_MEMBER, "/trust")


def test_a_fault_says_its_line_and_what_to_do_about_quotes() -> None:
    error = refusal(asked(yaml=FILE.replace("value: 20.9", "value: 1e3")))
    assert error.faults[0].detail.startswith("line 12, column 14: ")
    details: dict[str, dict[str, Any]] = {
        "expected text, got a whole number: put it in double quotes": {"dataset": {"id": 5}},
        "expected a number, got text: write it without quotes": {"value": "20.9"},
        "expected a list, got a whole number": {"metrics": 5},
    }
    for detail, member in details.items():
        assert refusal(asked(yaml=..., entry={**ENTRY, **member})).faults[0].detail == detail


def test_a_body_that_is_not_strict_json_is_refused() -> None:
    no_number = asked().replace(b'"yaml"', b'"at":1e400,"yaml"')
    for raw in (b"", b"[]", b"\xff", b"{" * 9999, b" " * (MAX_QUESTION_BYTES + 1), no_number):
        assert refusal(raw).code is Code.REQUEST_MALFORMED
    assert refusal(b'{"repo":"a","repo":"b"}').code is Code.REQUEST_DUPLICATE_MEMBER


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=5,
)


@examples(200)
@given(st.dictionaries(st.sampled_from(["entry", "yaml", "benchmark", "at", "repo", "x"]), JSON))
def test_any_members_are_a_question_or_refused(members: dict[str, Any]) -> None:
    (same,) = read_entries(FILE.encode(), "x")
    for body in ({**ASKED, **members}, {"repo": make.REPO, "path": make.PATH, "entry": {**ENTRY, **members}}):
        try:
            question = read_question(json.dumps(body).encode())
        except Refused:
            continue
        assert (question.repo, question.path, question.at) == (body["repo"], body["path"], body.get("at"))
        assert body.keys() <= {"repo", "path", "at", "benchmark", "yaml", "entry"}
        for entry in question.entries if "entry" in body else ():
            assert (entry.form, entry.token) == (drop_nulls({**same.form, **members}), same.token)


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(raw: bytes) -> None:
    refusal(raw)
