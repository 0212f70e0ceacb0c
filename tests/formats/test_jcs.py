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
@example({"\x7f": 1, "\x00": 2, "\x1f": 3})
@example({"\U0001f600": 1, "\ufb33": 2})  # sorting by UTF-16 code units reverses the order of these two
def test_the_fast_way_writes_what_the_reference_package_writes(value: Any) -> None:
    once = jcs.canonical(value)
    assert once == rfc8785.dumps(value)
    assert jcs.canonical(json.loads(once, parse_int=float)) == once


@given(VALUES, VALUES)
@example({"\U0001f600": 1e-7}, 1e-7)
def test_what_is_plain_is_written_canonically_wherever_it_is_put(one: Any, other: Any) -> None:
    put = jcs.encode({"b": [jcs.plain(one)], "a": {"c": jcs.plain(other), "B": "é"}, "n": jcs.plain(1)})
    assert put == rfc8785.dumps({"b": [one], "a": {"c": other, "B": "é"}, "n": 1})


def test_numbers_of_rfc_8785_appendix_b_and_as_files_have_them() -> None:
    for bits, text in vectors("jcs_numbers.json")["appendix_b"]:
        (value,) = struct.unpack(">d", bytes.fromhex(bits))
        if text is None:
            with pytest.raises(ValueError, match="not representable"):
                jcs.canonical(value)
        else:
            assert jcs.canonical(value).decode() == text
            assert jcs.canonical([value]).decode() == f"[{text}]"
    for text, bits, canonical in vectors("jcs_numbers.json")["in_files"]:
        assert jcs.canonical(json.loads(text)).decode() == canonical
        assert struct.pack(">d", float(text)).hex() == bits
        assert jcs.canonical(struct.unpack(">d", bytes.fromhex(bits))[0]).decode() == canonical


def test_the_examples_of_rfc_8785_section_3_2() -> None:
    members = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\x80": 6, "\u00f6": 7}
    assert list(json.loads(jcs.canonical(members)).values()) == [2, 4, 6, 7, 1, 5, 3]
    raw = (
        rb'{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],'
        rb'"string":"\u20ac$\u000F\u000aA' + rb"'" + rb'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}'
    )
    assert jcs.canonical(json.loads(raw)).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_what_is_not_json_is_refused_and_never_written_as_a_list() -> None:
    numbers: list[Any] = [float("nan"), float("inf"), -float("inf"), 2**53, -(2**53), 10**400, "\ud800"]
    others: list[Any] = [b"ab", {1, 2}, {1: 2}, {"a": b""}, {"\ud800": 1}, object(), range(3)]
    for value in [*numbers, *([each] for each in numbers), *({"a": each} for each in numbers), *others]:
        with pytest.raises(ValueError):
            jcs.canonical(value)


def test_a_text_enumeration_is_text_a_tuple_an_array_and_the_digest_sha_256() -> None:
    word = enum.StrEnum("word", ["PASS"]).PASS  # type: ignore[attr-defined]
    assert jcs.canonical({"verdict": word}) == b'{"verdict":"pass"}'
    assert jcs.canonical(({"b": (1.0,), "a": ()},)) == b'[{"a":[],"b":[1]}]'
    value = claims()
    raw = jcs.canonical(value)
    assert jcs.digest(value) == jcs.digest_of_bytes(raw) == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    assert loads(raw, max_bytes=9999, max_depth=8) == value
