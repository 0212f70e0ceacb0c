"""The arguments of a run: every nesting becomes one bounded map, and the issuer accepts no other form."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats import jcs
from issuer.results.arguments import bounded, flat
from issuer.results.details import read_details
from tests.support.shared import examples

SECRET, DIGEST = "hf_" + "a1B2" * 8, "sha256:" + "0" * 64
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=70) | st.dictionaries(st.text("ab.é_", min_size=1, max_size=40), inner, max_size=70),
)  # fmt: skip


def faults(run: dict[str, Any]) -> list[tuple[Code, str]]:
    """Return the faults of a request's details with these members of `run`."""
    with pytest.raises(Refused) as caught:
        read_details({"run": run})
    return [(fault.code, fault.pointer) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("value", "members"),
    [
        ({"b": {"c": [1, {"d": True}], "e": None}}, {"a.b.c.0": 1, "a.b.c.1.d": True}),
        ("x" * 256, {"a": "x" * 256}),
        ("x" * 257, {"a": jcs.digest("x" * 257)}),
        ({"b": [], "c": {}, "d": ""}, {"a.d": ""}),
        ({"b.c": 1}, {"a": jcs.digest({"b.c": 1})}),
        ({"b" * 127: 1}, {"a": jcs.digest({"b" * 127: 1})}),
        ({"b" * 126: 1}, {"a." + "b" * 126: 1}),
        ([*range(65)], {"a": jcs.digest([*range(65)])}),
        ({SECRET: 1}, {"a": jcs.digest({SECRET: 1})}),
        (SECRET, {"a": jcs.digest(SECRET)}),
        ({"api_key": "Zq9vK2mXw7Tb4RsL8nYd"}, {"a.api_key": jcs.digest("Zq9vK2mXw7Tb4RsL8nYd")}),
        (None, {}),
    ],
)
def test_nested_arguments_become_scalars_by_dotted_name(value: Any, members: dict[str, Any]) -> None:
    assert flat({"a": value}) == bounded(flat({"a": value})) == members


def test_a_local_path_becomes_its_digest_and_other_text_stays() -> None:
    paths = [
        "/home/me/x", "~/x", "./x", "../x", "..\\x", "\\\\host\\x", "C:\\x", "d:/x", "file:///x", "--file=/x", "see /x", "'/x'", "[/x]",
        "https://me:pw@host/x",
    ]  # fmt: skip
    other = [
        "acme/model", "https://host/x", "s3://bucket/x", "and/or", "a / b", "1/2", "\n", "{{q}}\nAnswer:", "./", "9:/", "\\boxed{1}",
    ]  # fmt: skip
    assert [text for text in paths if flat({"a": text})["a"] != jcs.digest(text)] == []
    assert [text for text in other if flat({"a": text})["a"] != text] == []


def test_more_than_64_arguments_become_one_digest_of_all() -> None:
    many = {"a": {f"n{i}": i for i in range(33)}, "b": {f"n{i}": i for i in range(31)}}
    assert bounded(flat(many)) == flat(many)
    one_more = bounded(flat({**many, "c": 5}))
    found, changed = (bounded(flat({**many, "c": {f"n{i}": i for i in range(9)}, "last": last})) for last in (5, 6))
    assert [*one_more] == ["all"]
    assert [*found] == [*changed] == ["all"]
    assert found != changed, "it binds those that are not counted"


@given(st.dictionaries(st.sampled_from(["task", "generation"]), VALUES, min_size=1))
@examples(200)
def test_whatever_a_framework_was_asked_the_issuer_accepts_the_map(nested: dict[str, Any]) -> None:
    if made := bounded(flat(nested)):
        assert read_details({"run": {"arguments": made}}) == {"run": {"arguments": made}}


def test_other_forms_of_arguments_are_refused_with_their_pointer() -> None:
    cases: list[tuple[Any, str]] = [
        ([], ""), ("x", ""), ({}, ""), ({f"n{i}": 1 for i in range(65)}, ""), ({"a b": 1}, "/a b"), ({"a..b": 1}, "/a..b"), ({".a": 1}, "/.a"),
        ({"": 1}, "/"), ({"a" * 129: 1}, ""), ({"é": 1}, "/é"), ({"a\n": 1}, "/a\n"), ({"a": {"b": 1}}, "/a"), ({"a": [1]}, "/a"),
        ({"a": "x" * 257}, "/a"), ({"a": "/home/me"}, "/a"), ({"a": "s://u@h"}, "/a"), ({"all": DIGEST, "a": 1}, "/all"), ({"all": 1}, "/all"),
    ]  # fmt: skip
    for made, at in cases:
        assert faults({"arguments": made}) == [(Code.DETAILS_INVALID, f"/run/arguments{at}")], made
    assert faults({"arguments": {"all": DIGEST}, "completeness": "full"}) == [
        (Code.DETAILS_INVALID, "/run/completeness")
    ]
