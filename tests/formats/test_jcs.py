"""RFC 8785 bytes: published vectors, and agreement of both encoders."""

import enum
import hashlib
import json
import struct
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from issuer.formats import jcs
from issuer.formats.strict_json import loads
from tests.support.make import claims
from tests.support.shared import vectors

NUMBERS = st.one_of(
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 2.0**53, 1e-5, 9.999e-6, 1e-6, 1e15, 1e16, 1e21, 1e22, 5e-324, 0.1, 20.0]),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=15,
)


@given(VALUES)
@example(2.0**53)
@example({"\U0001f600": 1, "\ufb33": 2})  # sorting by UTF-16 code units reverses the order of these two
def test_the_fast_way_writes_what_the_reference_package_writes(value: Any) -> None:
    assert jcs.canonical(value) == rfc8785.dumps(value)


@given(st.dictionaries(st.text(st.characters(max_codepoint=127)), NUMBERS | TEXT))
def test_ascii_keys_with_control_characters_are_written_as_the_reference_package_does(value: Any) -> None:
    assert jcs.canonical(value) == rfc8785.dumps(value)


@given(VALUES, VALUES)
@example({"\U0001f600": 1e-7}, 1e-7)
def test_what_is_plain_is_written_canonically_wherever_it_is_put(one: Any, other: Any) -> None:
    put = jcs.encode({"b": [jcs.plain(one)], "a": {"c": jcs.plain(other), "B": "é"}, "n": jcs.plain(1)})
    assert put == rfc8785.dumps({"b": [one], "a": {"c": other, "B": "é"}, "n": 1})


@given(VALUES)
def test_canonical_bytes_are_a_fixed_point(value: Any) -> None:
    once = jcs.canonical(value)
    assert jcs.canonical(json.loads(once, parse_int=float)) == once


@pytest.mark.parametrize(("bits", "text"), vectors("jcs_numbers.json")["appendix_b"])
def test_numbers_of_rfc_8785_appendix_b(bits: str, text: str | None) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    if text is None:
        with pytest.raises(ValueError, match="not representable"):
            jcs.canonical(value)
    else:
        assert jcs.canonical(value).decode() == text
        assert jcs.canonical([value]).decode() == f"[{text}]"


@pytest.mark.parametrize(("text", "bits", "canonical"), vectors("jcs_numbers.json")["in_files"])
def test_numbers_as_they_are_written_in_files(text: str, bits: str, canonical: str) -> None:
    assert jcs.canonical(json.loads(text)).decode() == canonical
    assert struct.pack(">d", float(text)).hex() == bits
    assert jcs.canonical(struct.unpack(">d", bytes.fromhex(bits))[0]).decode() == canonical


def test_the_sorting_example_of_rfc_8785_section_3_2_3() -> None:
    members = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\x80": 6, "\u00f6": 7}
    assert list(json.loads(jcs.canonical(members)).values()) == [2, 4, 6, 7, 1, 5, 3]


def test_the_example_of_rfc_8785_section_3_2_2() -> None:
    raw = (
        rb'{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],'
        rb'"string":"\u20ac$\u000F\u000aA' + rb"'" + rb'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}'
    )
    assert jcs.canonical(json.loads(raw)).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 2**53, -(2**53), 10**400, "\ud800"])
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    for where in (value, [value], {"a": value}):
        with pytest.raises(ValueError):
            jcs.canonical(where)


@pytest.mark.parametrize("value", [b"ab", {1, 2}, {1: 2}, {"a": b""}, {"\ud800": 1}, object(), range(3)])
def test_what_is_no_json_is_refused_and_never_written_as_a_list(value: Any) -> None:
    with pytest.raises(ValueError):
        jcs.canonical(value)


def test_a_member_of_an_enumeration_of_text_is_its_text_and_no_list_of_letters() -> None:
    word = enum.StrEnum("word", ["PASS"]).PASS  # type: ignore[attr-defined]
    assert jcs.canonical({"verdict": word}) == b'{"verdict":"pass"}'


def test_a_tuple_is_an_array() -> None:
    assert jcs.canonical(({"b": (1.0,), "a": ()},)) == b'[{"a":[],"b":[1]}]'


def test_the_digest_is_sha256_over_the_canonical_bytes() -> None:
    value = claims()
    raw = jcs.canonical(value)
    assert jcs.digest(value) == jcs.digest_of_bytes(raw) == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    assert loads(raw, max_bytes=9999, max_depth=8) == value
