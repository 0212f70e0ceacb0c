"""The body of `POST /verify`: one well-formed question, or a refusal with its place; never anything else."""

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


def test_a_question_has_the_entries_of_its_file_and_where_they_sit() -> None:
    question = read_question(asked(yaml=FILE + FILE, at=5))
    assert question.entries == read_entries((FILE + FILE).encode(), "x")
    assert (question.repo, question.path, question.at, question.benchmarks) == (make.REPO, make.PATH, 5, {})
    assert read_question(asked()).at is None


def test_an_entry_in_json_is_the_same_entry() -> None:
    (entry,) = read_question(asked(yaml=..., entry=ENTRY)).entries
    (same,) = read_entries(FILE.encode(), "x")
    assert (entry.form, entry.token, entry.metrics, entry.dataset) == (
        same.form,
        same.token,
        same.metrics,
        same.dataset,
    )
    assert entry.pointer == ""


def test_the_definition_is_of_the_commit_that_the_entries_name() -> None:
    question = read_question(asked(benchmark=make.BENCHMARK_TEXT))
    assert question.benchmarks == {(make.BENCHMARK, SAID.claims.benchmark_revision): make.benchmark()}


@pytest.mark.parametrize(
    ("members", "code", "pointer"),
    [
        ({"yaml": ...}, Code.REQUEST_MALFORMED, ""), ({"entry": ENTRY}, Code.REQUEST_MALFORMED, ""), ({"repo": ...}, Code.REQUEST_MALFORMED, ""),
        ({"path": ...}, Code.REQUEST_MALFORMED, ""), ({"repo": ""}, Code.REQUEST_MALFORMED, "/repo"), ({"repo": 5}, Code.REQUEST_MALFORMED, "/repo"),
        ({"path": "x" * 513}, Code.REQUEST_MALFORMED, "/path"), ({"yaml": 5}, Code.REQUEST_MALFORMED, "/yaml"), ({"yaml": None}, Code.REQUEST_MALFORMED, "/yaml"),
        ({"yaml": "- &a 1"}, Code.REQUEST_MALFORMED, "/yaml"), ({"yaml": "x: 1"}, Code.REQUEST_MALFORMED, "/yaml"), ({"yaml": "- x: 1"}, Code.REQUEST_MALFORMED, "/yaml"),
        ({"at": "2026-11-21"}, Code.REQUEST_MALFORMED, "/at"), ({"at": -1}, Code.REQUEST_MALFORMED, "/at"), ({"at": 2**34}, Code.REQUEST_MALFORMED, "/at"), ({"at": True}, Code.REQUEST_MALFORMED, "/at"),
        ({"benchmark": "x: 1"}, Code.REQUEST_MALFORMED, "/benchmark"), ({"benchmark": {}}, Code.REQUEST_MALFORMED, "/benchmark"), ({"trust": "x"}, Code.REQUEST_UNKNOWN_MEMBER, "/trust"),
        ({"yaml": ..., "entry": []}, Code.REQUEST_MALFORMED, "/entry"), ({"yaml": ..., "entry": {}}, Code.REQUEST_MALFORMED, "/entry"),
        ({"yaml": ..., "entry": {**ENTRY, "dataset": 5}}, Code.REQUEST_MALFORMED, "/entry/dataset"), ({"yaml": ..., "entry": {**ENTRY, "verifyToken": "x"}}, Code.REQUEST_MALFORMED, "/entry/verifyToken"),
        ({"yaml": ..., "entry": {**ENTRY, "run": {"a": [None]}}}, Code.REQUEST_MALFORMED, "/entry/run/a/0"),
    ],
)  # fmt: skip
def test_a_body_that_is_no_question_is_refused_at_its_place(members: dict[str, Any], code: Code, pointer: str) -> None:
    error = refusal(asked(**members))
    assert (error.code, error.faults[0].pointer, error.code.meaning.status) == (code, pointer, 400)


def test_a_fault_in_the_text_is_told_with_its_line_and_column() -> None:
    error = refusal(asked(yaml=FILE.replace("value: 20.9", "value: 1e3")))
    assert error.faults[0].detail.startswith("line 12, column 14: ")


@pytest.mark.parametrize(
    ("member", "detail"),
    [
        ({"dataset": {"id": 5}}, "expected text, got a whole number: put it in double quotes"),
        ({"value": "20.9"}, "expected a number, got text: write it without quotes"),
        ({"metrics": 5}, "expected a list, got a whole number"),
    ],
)
def test_a_fault_in_an_entry_of_json_says_what_to_do_about_quotes(member: dict[str, Any], detail: str) -> None:
    assert refusal(asked(yaml=..., entry={**ENTRY, **member})).faults[0].detail == detail


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", Code.REQUEST_MALFORMED), (b"[]", Code.REQUEST_MALFORMED), (b"\xff", Code.REQUEST_MALFORMED), (b"{" * 9999, Code.REQUEST_MALFORMED),
        (b'{"repo":"a","repo":"b"}', Code.REQUEST_DUPLICATE_MEMBER), (b" " * (MAX_QUESTION_BYTES + 1), Code.REQUEST_MALFORMED),
        (asked().replace(b'"yaml"', b'"at":1e400,"yaml"'), Code.REQUEST_MALFORMED),
    ],
    ids=range(7),
)  # fmt: skip
def test_what_is_no_strict_json_is_refused(raw: bytes, code: Code) -> None:
    assert refusal(raw).code is code


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=5,
)


@examples(200)
@given(st.dictionaries(st.sampled_from(["entry", "yaml", "benchmark", "at", "repo", "x"]), JSON))
def test_any_members_are_the_question_or_a_refusal(members: dict[str, Any]) -> None:
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
