"""Strict JSON: refusals of everything that parsers disagree about, with places, and only FormatError as an
exception."""

import json
import math
import subprocess
import sys
from functools import partial
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


def test_double_members_other_encodings_half_pairs_and_nul_are_refused() -> None:
    twice = {
        b'{"a": 1, "a": 1}': "/a", b'{"a": 1, "\\u0061": 2}': "/a", b'{"x": [{}, {"b": {}, "c": 0, "b": {}}]}': "/x/1/b",
        b'{"": 1, "": 2}': "/", b'{"a/b~": 1, "a/b~": 2}': "/a~1b~0",
    }  # fmt: skip
    assert {raw: refusal(raw) for raw in twice} == {raw: (Code.FILE_DUPLICATE_KEY, at) for raw, at in twice.items()}
    halves = {
        rb'"\ud800"': "", rb'["a", {"b": "\uDFFF"}]': "/1/b", rb'{"a": "x\u0000"}': "/a", rb'{"a": {"\u0000": 1}}': "/a",
        rb'{"\udc00\ud800": 1}': "",
    }  # fmt: skip
    assert {raw: refusal(raw) for raw in halves} == {raw: (Code.FILE_ENCODING, at) for raw, at in halves.items()}
    for raw in (
        b'\xef\xbb\xbf{"a": 1}', '{"a": 1}'.encode("utf-16"), '{"a": 1}'.encode("utf-32"), b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\xaf"',
    ):  # fmt: skip
        assert refusal(raw)[0] in {Code.FILE_ENCODING, Code.FILE_SYNTAX}
    assert read(rb'["\ud83d\ude00", "\\ud800", "\\u0000"]') == ["😀", "\\ud800", "\\u0000"]


def test_a_number_is_its_nearest_double_or_refused_in_any_spelling() -> None:
    for text in (
        "NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400", "4e-325", "9007199254740992", "9007199254740993", "1e16", "-1e16",
        "9007199254740992.0", "1e300", "0.123456789012345678", "123456789012345678", "0.100000000000000000",
        "9" * 5000, "1e" + "9" * 5000,
    ):  # fmt: skip
        assert refusal(f'{{"a": [0, {text}]}}'.encode()) == (Code.FILE_NUMBER, "/a/1")
        with pytest.raises(ValueError):
            exact_number(text.replace("Infinity", "inf"))
    numbers = {
        "20.90": 20.9, "2.09e1": 20.9, "9007199254740991": 2**53 - 1, "-9007199254740991.0": -(2**53) + 1.0,
        "0.30000000000000004": 0.30000000000000004, "5e-324": 5e-324, "0e999": 0, "0.00000000000000000000": 0,
        "1e15": 1e15, "9007199254740991e0": 2**53 - 1,
    }  # fmt: skip
    assert {text: read(text.encode()) for text in numbers} == {text: exact_number(text) for text in numbers} == numbers
    assert [math.copysign(1, exact_number(text)) for text in ("-0", "-0.0", "-0e5")] == [1, 1, 1]


def test_depth_and_size_are_bounded_exactly() -> None:
    assert read(b"[[1]]", max_depth=2) == [[1]]
    assert read(b'["[[[[[[{{{{{"]', max_depth=1) == ["[[[[[[{{{{{"]
    with pytest.raises(FormatError, match="nested deeper than 2"):
        read(b'[[{"a": 1}]]', max_depth=2)
    with pytest.raises(FormatError, match="deeper"):
        read(b'{"a":' * 100_000)
    assert loads(b"[12]", max_bytes=4, max_depth=1) == [12]
    with pytest.raises(FormatError, match="larger than 4 bytes"):
        loads(b"[123]", max_bytes=4, max_depth=1)


def test_a_syntax_error_has_line_and_column_and_no_text_of_the_document() -> None:
    with pytest.raises(FormatError) as caught:
        read(b'{"a": 1,\n "b": s3cret}')
    error = caught.value
    assert (error.code, error.line, error.column) == (Code.FILE_SYNTAX, 2, 7)
    assert "s3cret" not in str(error)
    assert str(error.located(Place("body"))).startswith("body:2:7: file.syntax: ")
    assert pointer_to(pointer_to("", "a/b"), "m~n") + pointer_to("", 0) == "/a~1b/m~0n/0", "RFC 6901"


def test_reading_and_counting_take_linear_time() -> None:
    """In quadratic time each would take minutes."""
    raw = b'{"' + b"k" * 500_000 + b'": [' + b"[]," * 170_000 + rb'"\u0000"]}'
    assert refusal(raw)[0] is Code.FILE_ENCODING
    for text in (b'"' + b'\\"' * 500_000, b"[" + b'"' * 500_000 + b",[" * 9, b"[ " * 300_000 + b" " * 300_000):
        count_values(text + b"," * 100, 50)
    assert len(faults({"items": [], "deep": {"n" * 200_000: {"k": [1] * 20_000}, "x": {"k": ["1"]}}})) == 1


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
    # Another function with the same decisions: only with `exact_number` the quick reader is used.
    at_length = partial(loads, max_bytes=1 << 20, max_depth=depth, number=lambda text: exact_number(text))
    try:
        value = read(raw, depth)
    except FormatError as error:
        with pytest.raises(FormatError) as caught:
            at_length(raw)
        assert caught.value.faults == error.faults  # noqa: PT017
    else:
        assert repr(value) == repr(at_length(raw))


def test_an_object_is_read_quickly_unless_it_is_in_doubt() -> None:
    """The quick reader takes a third of the time. It does not accept a document that may nest too deep."""
    quick = [
        '{"a":"b","c":[1.5,{}]}', "{}", '{"a":[{}]}', '{"a":[{}],"b":"[[","c":[{}]}', '{"digest":"sha256:0000000000000000"}',
    ]  # fmt: skip
    slow = [
        '{"a":[[{}]]}', '{"a":"}","b":[[[]]]}', '{"a":[1234567890123456]}', '{"a":-1234567890123456}', '{"a":1,"a":1}',
        '{"a":1e400}', "[]",
    ]  # fmt: skip
    assert [text for text in [*quick, *slow] if strict_json._read_quickly(text.encode(), 3) is not None] == quick


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
    assert fault({"items": [], "names": {"ok": "abc", "x/y": "abcd"}})[0] == "/names/x~1y"
    assert fault({"items": [], "deep": {"a": {"b": [1]}, "c": {"d": [1, 2, "x"]}}})[0] == "/deep/c/d/2"
    unknown = "this member is not known here"
    assert fault({"items": [{"count": 1, "a/b": 2}]}) == ("/items/0/a~1b", unknown)
    assert fault({"items": [], "`": 1}) == ("/`", unknown)
    assert fault({"itmes": [], "items": []}) == ("/itmes", f"{unknown} (did you mean `items`?)")
    assert fault({"items": [], "item" * 16384: 1})[1] == unknown


def test_every_fault_is_found_where_it_is_also_in_the_meant_member_of_a_union() -> None:
    value: dict[str, Any] = {
        "items": [{"count": "1", "kind": "c", "x": 1}, {"count": 1}, {}, 7],
        "names": {"a/b": "long", "ok": "abc", "c": 1},
        "deep": {"a": {"b": [1, "2", None]}},
        "either": {"text": 1},
        "x": None,
    }
    assert faults(value) == [
        ("/items/0/count", "expected a whole number, got text"),
        ("/items/0/kind", "invalid enum value 'c'; it is one of a, b"), ("/items/0/x", "this member is not known here"),
        ("/items/2", "object missing required field `count`"), ("/items/3", "expected a map, got a whole number"),
        ("/names/a~1b", "expected text of length <= 3"), ("/names/c", "expected text, got a whole number"),
        ("/deep/a/b/1", "expected a whole number, got text"),
        ("/deep/a/b/2", "expected a whole number, got nothing (null)"),
        ("/either/text", "expected text, got a whole number"), ("/x", "this member is not known here"),
    ]  # fmt: skip
    values: list[tuple[Any, str]] = [({"text": "a", "x": 1}, "/x"), ([1, "a"], "/1"), (1.5, ""), ([], ""), (None, "")]
    for value, place in values:
        assert [pointer for pointer, _ in faults({"items": [], "either": value})] == [f"/either{place}"]
    assert faults({"items": [], "pair": [1, 2]}) == [("/pair", "expected text, got a whole number")], "it has no parts"


@given(ANYTHING)
def test_a_value_fits_if_and_only_if_it_has_no_fault(value: Any) -> None:
    found: list[tuple[str, str]] = []
    try:
        convert(value, Outer)
    except FormatError as error:
        found = [(error.pointer, error.detail)]
    assert faults(value)[:1] == found


def test_text_without_quotes_and_a_number_in_quotes_are_known_as_such() -> None:
    cases: list[tuple[Any, str]] = [
        ({"items": [], "names": {"a": 1}}, "missing"), ({"items": [], "names": {"a": [1]}}, "missing"),
        ({"items": [{"count": "1"}]}, "needless"), ({"items": [{"count": None}]}, ""), ({"items": [{"count": 1.5}]}, ""),
        ({"items": [], "names": {"a": "long"}}, ""), ({"items": [], "x`, got `str`": 1}, ""), ({}, ""),
    ]  # fmt: skip
    assert [
        (value, quotes) for value, quotes in cases if [misfit.quotes for misfit in misfits(value, Outer)] != [quotes]
    ] == []


def test_a_part_s_error_has_the_pointer_of_the_whole_and_no_file_until_it_is_located() -> None:
    with pytest.raises(InputError) as caught, reading("run.json"):
        convert({"items": [{"count": "1"}]}, Outer)
    assert str(caught.value) == "run.json: file.schema: expected a whole number, got text"
    assert caught.value.faults[0].pointer == caught.value.pointer == "/items/0/count"
    (misfit,) = misfits({"items": [], "x": 1}, Outer)
    located = misfit.within("/runs/3").located(Place("a.yaml", 4, 2))
    assert (str(located.place), located.pointer, located.code) == ("a.yaml:4:2", "/runs/3/x", Code.FILE_UNKNOWN_MEMBER)


def test_text_that_poses_as_a_path_of_a_message_is_a_fault_and_no_crash() -> None:
    for sent in [
        "x - at `$[5]", "x - at `$[0][1][2]`", "x - at `$[" + "9" * 5000 + "]", "x - at `$.items[99]", "x - at `$[...]",
        "x - at `$.items.count.a", "`", " - at `$", "x` - at `$.items`", "x` - at `$.items[99]", "x` - at `$.items[0][1].a", "x - at `$[\u0663]", "a\nb",
    ]:  # fmt: skip
        assert fault({"items": [], sent: 1})[1] == "this member is not known here"
        assert fault({"items": [{"count": 1, "kind": sent}]})[1].startswith("invalid enum value")


# Types that refer to each other take msgspec long enough for the threads to meet. A crash would end all tests.
AT_ONCE = """
import sys, threading, msgspec
from issuer.formats.strict_json import convert
sys.setswitchinterval(1e-6)
for _ in range(100):
    for number in range(20):
        exec(f"class Kind{number}(msgspec.Struct):\\n inner: 'Kind{number - 1} | None' = None" if number else "Kind0 = int")
    ready = threading.Barrier(6)
    threads = [threading.Thread(target=lambda: (ready.wait(), convert({"inner": {"inner": {}}}, Kind19))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_a_type_that_many_threads_use_for_the_first_time_crashes_no_process() -> None:
    done = subprocess.run([sys.executable, "-c", AT_ONCE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
