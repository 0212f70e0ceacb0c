"""Strict JSON: refusals of everything that parsers disagree about, with places, and only FormatError as an
exception."""

import json
import math
import time
from typing import Annotated, Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Struct, UnsetType

from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, reading
from issuer.formats import strict_json
from issuer.formats.strict_json import Misfit, convert, count_values, exact_number, loads, misfits, pointer_to

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


def read(raw: bytes, max_depth: int = 16) -> Any:
    return loads(raw, max_bytes=1 << 20, max_depth=max_depth)


def refusal(raw: bytes) -> tuple[Code, str]:
    with pytest.raises(FormatError) as caught:
        read(raw)
    return caught.value.code, caught.value.pointer


@pytest.mark.parametrize(
    ("raw", "pointer"),
    [
        (b'{"a": 1, "a": 1}', "/a"),
        (b'{"a": 1, "\\u0061": 2}', "/a"),
        (b'{"x": [{}, {"b": {}, "c": 0, "b": {}}]}', "/x/1/b"),
        (b'{"": 1, "": 2}', "/"),
        (b'{"a/b~": 1, "a/b~": 2}', "/a~1b~0"),
    ],
)
def test_a_member_that_is_named_twice_is_refused_with_its_pointer(raw: bytes, pointer: str) -> None:
    assert refusal(raw) == (Code.FILE_DUPLICATE_KEY, pointer)


@pytest.mark.parametrize(
    "raw",
    [
        b'\xef\xbb\xbf{"a": 1}', '{"a": 1}'.encode("utf-16"), '{"a": 1}'.encode("utf-32"), b'"\xff"', b'"\xed\xa0\x80"',
        b'"\xc0\xaf"',
    ],
)  # fmt: skip
def test_other_encodings_than_strict_utf_8_without_a_mark_are_refused(raw: bytes) -> None:
    assert refusal(raw)[0] in {Code.FILE_ENCODING, Code.FILE_SYNTAX}


@pytest.mark.parametrize(
    ("raw", "pointer"),
    [
        (rb'"\ud800"', ""),
        (rb'["a", {"b": "\uDFFF"}]', "/1/b"),
        (rb'{"a": "x\u0000"}', "/a"),
        (rb'{"a": {"\u0000": 1}}', "/a"),
        (rb'{"\udc00\ud800": 1}', ""),
    ],
)
def test_half_a_surrogate_pair_and_nul_are_refused_in_values_and_names(raw: bytes, pointer: str) -> None:
    assert refusal(raw) == (Code.FILE_ENCODING, pointer)


def test_a_surrogate_pair_and_an_escaped_backslash_are_text() -> None:
    assert read(rb'["\ud83d\ude00", "\\ud800", "\\u0000"]') == ["😀", "\\ud800", "\\u0000"]


NO_NUMBERS = ["NaN", "Infinity", "-Infinity"]


@pytest.mark.parametrize(
    "text",
    [
        *NO_NUMBERS, "1e400", "-1e400", "1e-400", "4e-325", "9007199254740992", "9007199254740993", "1e16", "-1e16",
        "9007199254740992.0", "1e300", "0.123456789012345678", "123456789012345678", "0.100000000000000000",
        "9" * 5000, "1e" + "9" * 5000,
    ],
)  # fmt: skip
def test_a_number_that_a_double_cannot_carry_exactly_is_refused_in_any_spelling(text: str) -> None:
    assert refusal(f'{{"a": [0, {text}]}}'.encode()) == (Code.FILE_NUMBER, "/a/1")
    with pytest.raises(ValueError):
        exact_number(text.replace("Infinity", "inf"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("20.90", 20.9), ("2.09e1", 20.9), ("9007199254740991", 2**53 - 1), ("-9007199254740991.0", -(2**53) + 1.0),
        ("0.30000000000000004", 0.30000000000000004), ("5e-324", 5e-324), ("0e999", 0), ("0.00000000000000000000", 0),
        ("1e15", 1e15), ("9007199254740991e0", 2**53 - 1),
    ],
)  # fmt: skip
def test_a_number_is_its_nearest_double(text: str, value: float) -> None:
    assert read(text.encode()) == exact_number(text) == value


@pytest.mark.parametrize("text", ["-0", "-0.0", "-0e5"])
def test_minus_zero_becomes_zero(text: str) -> None:
    assert math.copysign(1, exact_number(text)) == 1


def test_depth_and_size_are_bounded_exactly() -> None:
    assert read(b"[[1]]", max_depth=2) == [[1]]
    with pytest.raises(FormatError, match="nested deeper than 2"):
        read(b'[[{"a": 1}]]', max_depth=2)
    with pytest.raises(FormatError, match="deeper"):
        read(b'{"a":' * 100_000)
    assert loads(b"[12]", max_bytes=4, max_depth=1) == [12]
    with pytest.raises(FormatError, match="larger than 4 bytes"):
        loads(b"[123]", max_bytes=4, max_depth=1)


def test_brackets_in_text_are_not_depth() -> None:
    assert read(b'["[[[[[[{{{{{"]', max_depth=1) == ["[[[[[[{{{{{"]


def test_a_syntax_error_has_line_and_column_and_no_text_of_the_document() -> None:
    with pytest.raises(FormatError) as caught:
        read(b'{"a": 1,\n "b": s3cret}')
    error = caught.value
    assert (error.code, error.line, error.column) == (Code.FILE_SYNTAX, 2, 7)
    assert "s3cret" not in str(error)
    assert str(error.located(Place("body"))).startswith("body:2:7: file.syntax: ")


@pytest.mark.parametrize("raw", [b"", b" ", b"{", b"01", b"+1", b".5", b"1.", b"'a'", b'{"a": 1,}', b"[1] 2", b'"\n"'])
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    assert refusal(raw)[0] is Code.FILE_SYNTAX


def test_many_values_under_a_long_name_are_read_in_linear_time() -> None:
    start = time.process_time()
    raw = b'{"' + b"k" * 500_000 + b'": [' + b"[]," * 170_000 + rb'"\u0000"]}'
    assert refusal(raw)[0] is Code.FILE_ENCODING
    assert time.process_time() - start < 10


@given(st.binary(max_size=60) | st.text('{}[]":,0123456789eE.+-\\uadtrn ', max_size=40).map(str.encode))
def test_any_bytes_are_a_value_or_an_input_error(raw: bytes) -> None:
    try:
        value = read(raw)
    except FormatError:
        return
    assert value == json.loads(raw)


NAME = st.sampled_from(
    ["a", "b", "é", "\\u0061", "\\u0022", '\\"', "a\\/b", "a/b", "\\ud800", "\x00", "\x7f", "{", ":"]
)
SCALAR = st.one_of(
    NAME.map('"{}"'.format),
    st.sampled_from(["true", "null", "NaN", "-", "01", "-0", "-0.0", "1.0", "1e2", "1e400", "{}", "9007199254740991"]),
    st.sampled_from(["9007199254740992", "-9007199254740992", "18446744073709551617", "9" * 5000, "", '"\\', "1 2"]),
    st.sampled_from(["0.1234567890123456789", '":1234567890123456"', "[[1]]", '["[[[["]', "[1,9007199254740993]"]),
    st.sampled_from(['{"a":1,"a":1}', '{"a":{"b":[]}}', '{"a/b":{"a/b":0}}', "1e15", "1E16", "-1.50"]),
)


@given(
    st.lists(st.tuples(NAME, SCALAR), max_size=4),
    st.sampled_from(["}", "}}", "", "} x", "}\n", ",}"]),
    st.integers(1, 4),
)
@example([("a", "1"), ("a", "1")], "}", 4)
@example([("a", '"\\u0022\\u0022"'), ("b", "1"), ("b", "2")], "}", 4)
@example([("a/b", "1"), ("a\\/b", "2")], "}", 4)
@example([("a", "9007199254740992")], "}", 4)
@example([("a", "[1,9007199254740993]")], "}", 4)
@example([("a", "-9007199254740992")], "}", 4)
@example([("a", "1.0"), ("b", "-0")], "}", 4)
@example([("a", "[[1]]")], "}", 2)
@example([("a", '["[[[["]')], "}", 2)
def test_an_object_is_read_quickly_as_it_is_at_length(members: list[tuple[str, str]], end: str, depth: int) -> None:
    raw = ("{" + ",".join(f'"{name}":{value}' for name, value in members) + end).encode()
    try:
        value = loads(raw, max_bytes=1 << 20, max_depth=depth)
    except FormatError as error:
        with pytest.raises(FormatError) as at_length:
            loads(raw, max_bytes=1 << 20, max_depth=depth, number=lambda text: exact_number(text))
        assert at_length.value.faults == error.faults  # noqa: PT017
    else:
        # Another function with the same decisions: only with `exact_number` the quick reader is used.
        assert repr(value) == repr(
            loads(raw, max_bytes=1 << 20, max_depth=depth, number=lambda text: exact_number(text))
        )


@pytest.mark.parametrize(
    ("text", "quickly"),
    [
        ('{"a":"b","c":[1.5,{}]}', True),
        ("{}", True),
        ('{"a":[{}]}', True),
        ('{"a":[{}],"b":"[[","c":[{}]}', True),
        ('{"digest":"sha256:0000000000000000"}', True),
        ('{"a":[[{}]]}', False),
        ('{"a":"}","b":[[[]]]}', False),
        ('{"a":[1234567890123456]}', False),
        ('{"a":-1234567890123456}', False),
        ('{"a":1,"a":1}', False),
        ('{"a":1e400}', False),
        ("[]", False),
    ],
)
def test_an_object_is_read_quickly_unless_it_is_in_doubt(text: str, quickly: bool) -> None:
    """The quick reader takes a third of the time. It does not accept a document that may nest too deep."""
    assert (strict_json._read_quickly(text.encode(), 3) is not None) is quickly


def values_in(value: Any) -> int:
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(values_in, within))


@given(ANYTHING, st.sampled_from([None, 1]), st.integers(1, 12))
@example([[], {}, [[]], {"a": {}}, ",[{", '"', "\\", 'a\\"'], 1, 9)
def test_values_are_counted_as_they_are_up_to_the_bound(value: Any, indent: int | None, most: int) -> None:
    raw = json.dumps(value, indent=indent, ensure_ascii=bool(indent)).encode("utf-8", "surrogatepass")
    count = values_in(value)
    assert count_values(raw, count) == count
    assert (count_values(raw, most) > most) == (count > most)
    assert count_values(raw, most) <= most + 1


@pytest.mark.parametrize(
    "raw", [b'"' + b'\\"' * 500_000, b"[" + b'"' * 500_000 + b",[" * 9, b"[ " * 300_000 + b" " * 300_000]
)
def test_counting_takes_linear_time_even_of_what_is_no_json(raw: bytes) -> None:
    began = time.process_time()
    count_values(raw + b"," * 100, 50)
    assert time.process_time() - began < 10, "quadratic, it would take hours"


@given(ANYTHING)
def test_what_python_writes_is_read_back_unless_it_holds_nul_or_half_a_pair(value: Any) -> None:
    text = json.dumps(value)
    try:
        assert read(text.encode()) == value
    except FormatError as error:
        assert error.code is Code.FILE_ENCODING  # noqa: PT017
        assert "\\u0000" in text or "\\ud" in text


# -- typed values -----------------------------------------------------------------------------------------------------


class Inner(Struct, forbid_unknown_fields=True):
    count: int
    kind: Literal["a", "b"] = "a"


class Text(Struct, forbid_unknown_fields=True):
    text: str


class Outer(Struct, forbid_unknown_fields=True):
    items: list[Inner]
    names: dict[str, Annotated[str, Meta(max_length=3)]] = {}
    deep: dict[str, dict[str, list[int]]] = {}
    pair: tuple[int, str] | UnsetType = UNSET
    either: int | Text | Annotated[list[int], Meta(min_length=1)] | UnsetType = UNSET


def fault(value: Any) -> tuple[str, str]:
    with pytest.raises(Misfit) as caught:
        convert(value, Outer)
    unknown = caught.value.detail.startswith("this member is not known here")
    assert caught.value.code is (Code.FILE_UNKNOWN_MEMBER if unknown else Code.FILE_SCHEMA)
    return caught.value.pointer, caught.value.detail


def faults(value: Any) -> list[tuple[str, str]]:
    return [(misfit.pointer, misfit.detail) for misfit in misfits(value, Outer)]


def test_a_value_that_does_not_fit_is_refused_with_its_pointer_in_plain_words() -> None:
    assert fault({"items": [{"count": 1}, {"count": "1"}]}) == ("/items/1/count", "expected a whole number, got text")
    assert fault({"items": [{"count": True}]}) == ("/items/0/count", "expected a whole number, got true or false")
    assert fault({"items": [{"count": 1.0}]})[0] == "/items/0/count"
    assert fault({"items": [None]}) == ("/items/0", "expected a map, got nothing (null)")
    assert fault([]) == ("", "expected a map, got a list")


def test_an_unknown_member_is_refused_with_its_pointer() -> None:
    unknown = "this member is not known here"
    assert fault({"items": [{"count": 1, "a/b": 2}]}) == ("/items/0/a~1b", unknown)
    assert fault({"items": [], "`": 1}) == ("/`", unknown)


def test_an_unknown_member_near_a_known_one_is_told_which() -> None:
    assert fault({"itmes": [], "items": []}) == ("/itmes", "this member is not known here (did you mean `items`?)")
    assert fault({"items": [], "item" * 16384: 1})[1] == "this member is not known here"


def test_every_fault_is_found_where_it_is() -> None:
    value: dict[str, Any] = {
        "items": [{"count": "1", "kind": "c", "x": 1}, {"count": 1}, {}, 7],
        "names": {"a/b": "long", "ok": "abc", "c": 1},
        "deep": {"a": {"b": [1, "2", None]}},
        "either": {"text": 1},
        "x": None,
    }
    assert faults(value) == [
        ("/items/0/count", "expected a whole number, got text"),
        ("/items/0/kind", "invalid enum value 'c'; it is one of a, b"),
        ("/items/0/x", "this member is not known here"),
        ("/items/2", "object missing required field `count`"),
        ("/items/3", "expected a map, got a whole number"),
        ("/names/a~1b", "expected text of length <= 3"),
        ("/names/c", "expected text, got a whole number"),
        ("/deep/a/b/1", "expected a whole number, got text"),
        ("/deep/a/b/2", "expected a whole number, got nothing (null)"),
        ("/either/text", "expected text, got a whole number"),
        ("/x", "this member is not known here"),
    ]


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"text": "a", "x": 1}, "/either/x"),
        ([1, "a"], "/either/1"),
        (1.5, "/either"),
        ([], "/either"),
        (None, "/either"),
    ],
)
def test_of_a_union_the_member_of_the_value_s_shape_is_meant(value: Any, place: str) -> None:
    assert [pointer for pointer, _ in faults({"items": [], "either": value})] == [place]


def test_what_cannot_be_taken_apart_is_at_fault_as_a_whole() -> None:
    value: dict[str, Any] = {"items": [], "pair": [1, 2]}
    assert faults(value) == [("/pair", "expected text, got a whole number")]


def test_what_fits_has_no_fault() -> None:
    assert faults({"items": [{"count": 1}], "either": [1]}) == []


def test_a_long_name_over_many_values_is_searched_in_no_time() -> None:
    began = time.process_time()
    assert len(faults({"items": [], "deep": {"n" * 200_000: {"k": [1] * 20_000}, "x": {"k": ["1"]}}})) == 1
    assert time.process_time() - began < 2


@given(ANYTHING)
def test_a_value_fits_if_and_only_if_it_has_no_fault(value: Any) -> None:
    told: list[tuple[str, str]] = []
    try:
        convert(value, Outer)
    except FormatError as error:
        told = [(error.pointer, error.detail)]
    assert faults(value)[:1] == told


@pytest.mark.parametrize(
    ("value", "quotes"),
    [
        ({"items": [], "names": {"a": 1}}, "missing"), ({"items": [], "names": {"a": [1]}}, "missing"),
        ({"items": [{"count": "1"}]}, "needless"), ({"items": [{"count": None}]}, ""), ({"items": [{"count": 1.5}]}, ""),
        ({"items": [], "names": {"a": "long"}}, ""), ({"items": [], "x`, got `str`": 1}, ""), ({}, ""),
    ],
)  # fmt: skip
def test_text_without_quotes_and_a_number_in_quotes_are_known_as_such(value: Any, quotes: str) -> None:
    assert [misfit.quotes for misfit in misfits(value, Outer)] == [quotes]


def test_a_part_s_error_has_the_pointer_of_the_whole_and_no_file_until_it_is_located() -> None:
    with pytest.raises(InputError) as caught, reading("run.json"):
        convert({"items": [{"count": "1"}]}, Outer)
    assert str(caught.value) == "run.json: file.schema: expected a whole number, got text"
    assert caught.value.faults[0].pointer == caught.value.pointer == "/items/0/count"
    (misfit,) = misfits({"items": [], "x": 1}, Outer)
    located = misfit.within("/runs/3").located(Place("a.yaml", 4, 2))
    assert (str(located.place), located.pointer, located.code) == ("a.yaml:4:2", "/runs/3/x", Code.FILE_UNKNOWN_MEMBER)


def test_the_key_that_a_message_hides_is_found() -> None:
    assert fault({"items": [], "names": {"ok": "abc", "x/y": "abcd"}})[0] == "/names/x~1y"
    assert fault({"items": [], "deep": {"a": {"b": [1]}, "c": {"d": [1, 2, "x"]}}})[0] == "/deep/c/d/2"


@pytest.mark.parametrize(
    "sent",
    [
        "x - at `$[5]", "x - at `$[0][1][2]`", "x - at `$[" + "9" * 5000 + "]", "x - at `$.items[99]", "x - at `$[...]",
        "x - at `$.items.count.a", "`", " - at `$", "x` - at `$.items`", "x` - at `$.items[99]", "x` - at `$.items[0][1].a", "x - at `$[\u0663]", "a\nb",
    ],
)  # fmt: skip
def test_text_that_poses_as_a_path_of_a_message_is_a_fault_and_no_crash(sent: str) -> None:
    assert fault({"items": [], sent: 1})[1] == "this member is not known here"
    assert fault({"items": [{"count": 1, "kind": sent}]})[1].startswith("invalid enum value")


@given(
    st.dictionaries(
        st.text("x - at`$[].0129items", max_size=20) | st.sampled_from(["items", "names", "deep"]), ANYTHING
    )
)
@example({"items": [{"count": 1}], "deep": {"a": []}})
def test_any_json_is_a_typed_value_or_an_input_error(value: Any) -> None:
    try:
        convert(value, Outer)
    except FormatError as error:
        assert error.faults[0].pointer == error.pointer  # noqa: PT017


def test_a_pointer_escapes_as_rfc_6901_does() -> None:
    assert pointer_to(pointer_to("", "a/b"), "m~n") + pointer_to("", 0) == "/a~1b/m~0n/0"
