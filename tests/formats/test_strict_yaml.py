"""Strict YAML: real readers agree about every accepted text, and refusals have line and column."""

import contextlib
import inspect
import math
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec import Struct
from yaml._yaml import CParser

from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.formats.strict_json import pointer_to
from issuer.formats.strict_yaml import MAX_KEY, MAX_NODES, Document, examine, load, number_text, quoted
from issuer.results import emit
from tests.support.shared import VECTORS, examples
from tests.support.yaml_readers import JAVASCRIPT, READERS, same


def read(text: str | bytes) -> Document:
    return load(text.encode() if isinstance(text, str) else text, "f.yaml")


def refusal(text: str | bytes) -> InputError:
    with pytest.raises(InputError) as caught:
        read(text)
    return caught.value


# The expected result for each row of the measurement: the value on which all four readers agree, `...` for a refusal.
MATRIX: dict[str, Any] = {
    "20.90": 20.9, "1e3": ..., "1e+3": ..., "2.09e1": ..., "1.0e+3": 1000, "017": ..., "0o17": ..., "0x1F": 31,
    "0b11": ..., "1_000": ..., "12:30": ..., "on": ..., "yes": ..., "2026-02-14": ..., "36190055": 36190055,
    "123e4567": ..., "1234567890123456789012345678901234567890": ..., "9007199254740993": ..., "1e400": ...,
    ".nan": ..., ".inf": ..., "1.10": 1.1, "-0": 0, "-0.0": 0, "=": ...,
}  # fmt: skip
IN_WORDS = {"40 digits": "1234567890123456789012345678901234567890"}


def rows() -> list[tuple[str, tuple[str, ...]]]:
    """Return (scalar, the four recorded readings) of every row, taken from the file."""
    lines = (VECTORS / "yaml_scalar_matrix.md").read_text().splitlines()
    cells = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")][1:]
    found = [
        (IN_WORDS.get(word, word), tuple(readings))
        for first, *readings in cells
        for word in first.split("(")[0].strip(" `").split(" / ")
    ]
    return [row for row in found if row[0] != "duplicate keys"]


def recorded(cell: str, text: str) -> Any:
    """Return the number in a recorded cell, or None if the cell is not a number."""
    number = re.search(r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?", cell)
    if cell in {"int", "float", "number", "int exact"} or "(exact)" in cell:
        return float(text)
    return float(number[0]) if number and not cell.startswith(("str", "date")) else None


def test_a_measured_scalar_is_read_only_if_all_recorded_readings_are_one_value() -> None:
    """The recorded columns replace js-yaml and yaml where node or its packages are missing."""
    table = rows()
    assert len(table) >= 25
    assert {text for text, _ in table} == MATRIX.keys()
    for text, readings in table:
        values = [recorded(cell, text) for cell in readings if cell not in {"-", "same"}]
        agreed = None not in values and len(set(values)) == 1
        if MATRIX[text] is not ...:
            assert agreed
            assert values[0] == MATRIX[text]
            assert read(f"value: {text}").value == {"value": MATRIX[text]}
            assert all(same({"value": MATRIX[text]}, reader(f"value: {text}")) for reader in READERS)
        else:
            assert refusal(f"value: {text}").code in {Code.FILE_SCALAR, Code.FILE_NUMBER}
            if agreed and "-" not in readings:  # all of them read the number, but round it: a double cannot hold it
                assert abs(values[0]) > 2**53 - 1


@pytest.mark.long
@pytest.mark.needs_tool("node", "npm")
def test_both_javascript_readers_read_accepted_and_written_scalars_alike(node: Callable[[str, object], Any]) -> None:
    texts = {f"value: {text}" for text in MATRIX}

    @examples(3000)
    @given(scalars())
    def gather(text: str) -> None:
        texts.add(f"- {text}\n")

    @examples(1000)
    @given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), st.floats(-1e15, 1e15))
    def gather_written(text: str, number: float) -> None:
        texts.add(f"- {quoted(text)}\n- {number_text(number)}\n")

    gather()
    gather_written()
    accepted = {}
    for text in sorted(texts):
        with contextlib.suppress(InputError):
            accepted[text] = read(text).value
    assert len(accepted) > 1000
    for (text, ours), readings in zip(accepted.items(), node(JAVASCRIPT, list(accepted)), strict=True):
        assert all(same(ours, theirs) for theirs in readings), (text, readings)


def scalars() -> st.SearchStrategy[str]:
    letters = "0123456789+-._:eExXoObBnNaAfFiITZ~=<tru lsyYo"
    words = ["null", "Null", "True", "TRUE", "no", "Off", "y", "~", "=", "<<", ".NaN", "-.INF", "0o7", "0_8", "._", "1._5",
             "190:20:30", "190:20:30.15", "2026-1-1", "2001-12-14t21:59:43.10-05:00", "+1", ".5", "-.5", "1.", "1.e+5",
             "00.5", "+0x1", "1e5", "1E+5", "-", "١٢", "0.0e+0", "5.0e-324", "1.7e+308", "0x1f", "-0x1f", "0xFF_", "0X1F", "0x1FFFFFFFFFFFFF", "0x20000000000000", "1,000", "1__0.5"]  # fmt: skip
    return (
        st.sampled_from(words)
        | st.text(letters, max_size=12)
        | st.from_regex(r"[-+]?[0-9]{0,17}\.?[0-9]{0,17}([eE][-+]?[0-9]{1,3})?", fullmatch=True)
    )


@examples(500)
@given(scalars())
def test_an_accepted_plain_scalar_is_the_same_value_to_both_real_readers(text: str) -> None:
    assume(text == text.strip() and not text.startswith(("- ", ": ", "? ")) and text not in {"-", ":", "?"})
    document = f"- {text}\n- [{text}]\n- {{a: {text}}}\n"
    try:
        value: Any = read(document).value
    except InputError:
        return  # disputed, or not a plain scalar in every context, such as `a: b`
    for reader in READERS:
        assert same(value, reader(document)), reader
    if isinstance(value[0], int | float):
        assert math.isfinite(value[0])


def test_a_disputed_scalar_is_refused_with_the_spelling_to_use() -> None:
    advice = {
        "1e3": "write 1000,", "2e-05": "write 0.00002,", "1e-7": "write 1.0e-7,", "1.5E3": "write 1500,",
        "1e400": "write a plain decimal number", "yes": "write true, false or null", "2026-02-14": "double quotes",
        "": '""', "~": "null for nothing", "12:30": "double quotes",
    }  # fmt: skip
    assert [text for text, words in advice.items() if words not in refusal(f"a: {text}").detail] == []
    assert read("a: 0x1FFFFFFFFFFFFF").value == {"a": 2**53 - 1}
    codes = {text: refusal(f"a: {text}").code for text in ("0x20000000000000", "0x" + "f" * 5000, "-0x1F")}
    assert list(codes.values()) == [Code.FILE_NUMBER, Code.FILE_NUMBER, Code.FILE_SCALAR]


def test_text_that_looks_like_a_disputed_scalar_is_read() -> None:
    texts: dict[str, Any] = {
        "- \"1e3\"\n- 'yes'\n- |-\n  2026-02-14\n- >-\n  null\n- ''\n": ["1e3", "yes", "2026-02-14", "null", ""],
        '"<<": {b: 1}\n"=": 2\n': {"<<": {"b": 1}, "=": 2}, "- a: b\r\n  c: d\r\n": [{"a": "b", "c": "d"}],
        "- |-\n  b": ["b"], "- >2-\n   b": [" b"], "- |\n  b\n- c": ["b\n", "c"], '- "a\\\n  \\ b"\n': ["a b"],
        "- {? a : 1}\n": [{"a": 1}], "- https://a.example/?b\n": ["https://a.example/?b"], "- ?a\n- b?": ["?a", "b?"],
    }  # fmt: skip
    for text, value in texts.items():
        assert read(text).value == value
        assert all(same(value, reader(text)) for reader in READERS), text


def test_a_bare_date_is_text_only_where_it_was_declared() -> None:
    def at_date(pointer: str) -> bool:
        return pointer == "/0/date"

    assert load(b"- date: 2026-02-14\n", "f", bare_dates=at_date).value == [{"date": "2026-02-14"}]
    for text in (
        b"- date: 2026-02-30",
        b"- date: 0000-01-01",
        b"- other: 2026-02-14",
        b"- date: 2026-02-14 10:00:00",
        b"- date: {2026-02-14: 1}",
    ):
        with pytest.raises(InputError, match="bare date"):
            load(text, "f", bare_dates=at_date)


REFUSED = {
    "anchor": ("a: &x 1", Code.FILE_FEATURE, 1, 4),
    "anchor on a key": ("&x a: b", Code.FILE_FEATURE, 1, 1),
    "alias": ("a: *x", Code.FILE_FEATURE, 1, 4),
    "alias as a key": ("*x : a", Code.FILE_FEATURE, 1, 1),
    "merge key": ("a:\n  <<: {b: 1}", Code.FILE_FEATURE, 2, 3),
    "tag": ("a:\n- !!str 1", Code.FILE_FEATURE, 2, 3),
    "the non-specific tag": ("a: ! 12", Code.FILE_FEATURE, 1, 4),
    "python tag": ("!!python/object/apply:os.system [id]", Code.FILE_FEATURE, 1, 1),
    "tag on a key": ("!!str a: b", Code.FILE_FEATURE, 1, 1),
    "second document": ("a: b\n---\nc: d", Code.FILE_FEATURE, 2, 1),
    "%YAML": ("%YAML 1.1\n---\na: b", Code.FILE_FEATURE, 1, 1),
    "%TAG": ("%TAG ! tag:x,2000:\n---\na: b", Code.FILE_FEATURE, 1, 1),
    "list as a key": ("? [a]\n: b", Code.FILE_FEATURE, 1, 3),
    "number as a key": ("a:\n  1: b", Code.FILE_SCALAR, 2, 3),
    "disputed key": ("on: b", Code.FILE_SCALAR, 1, 1),
    "empty value": ("a:\nb: 1", Code.FILE_SCALAR, 1, 3),
    "empty item": ("- a\n-\n", Code.FILE_SCALAR, 2, 2),
    "empty file": ("", Code.FILE_SYNTAX, 1, 1),
    "only a comment": ("# a\n", Code.FILE_SYNTAX, 2, 1),
    "byte order mark": ("\ufeffa: b", Code.FILE_ENCODING, 1, 1),
    "byte order mark inside": ("a: b\nc: d\ufeff", Code.FILE_ENCODING, 2, 5),
    "next line": ("a: b\x85c", Code.FILE_ENCODING, 1, 5),
    "line separator": ("a: b\n\u2028", Code.FILE_ENCODING, 2, 1),
    "a carriage return alone": ("# hidden\r- a: b\n", Code.FILE_ENCODING, 1, 9),
    "control character": ("a: 'b\x07'", Code.FILE_ENCODING, 1, 6),
    "non-character": ("a: b\n\ufffe", Code.FILE_ENCODING, 2, 1),
    "raw NUL": ("a: \x00", Code.FILE_ENCODING, 1, 4),
    "escaped NUL": ('a: "\\0"', Code.FILE_ENCODING, 1, 4),
    "escaped half of a pair": ('a: "\\ud800"', Code.FILE_SYNTAX, 1, 7),
    "tab as indentation": ("a:\n\tb: c", Code.FILE_SYNTAX, 2, 1),
    "unclosed": ("a: [1,", Code.FILE_SYNTAX, 1, 4),
    "huge integer": ("a: 9007199254740993", Code.FILE_NUMBER, 1, 4),
    "eighteen digits": ("- 0.123456789012345678", Code.FILE_NUMBER, 1, 3),
    "block text at the end of a file without a line end": ("- a\n- |\n  b", Code.FILE_SCALAR, 2, 3),
    "folded text that is kept at such an end": ("a: >+\n  b\n  c", Code.FILE_SCALAR, 1, 4),
    "an empty line below an escaped line end": ('- "a\\\n\n  b"\n', Code.FILE_SCALAR, 1, 3),
    "the same in a key": ('? "a\\\r\n \t\r\n b"\n: 1\n', Code.FILE_SCALAR, 1, 3),
    "a question mark before a key": ("- {?a: 1}\n", Code.FILE_SCALAR, 1, 5),
    "a question mark before a key in a list": ("- [?a: 1]\n", Code.FILE_SCALAR, 1, 5),
    "key twice": ('- a: 1\n  b: 2\n  "a": 3', Code.FILE_DUPLICATE_KEY, 3, 3),
    "long key": ("? " + "k" * (MAX_KEY + 1) + "\n: 1", Code.FILE_TOO_LARGE, 1, 3),
}


def test_what_readers_disagree_about_is_refused_with_line_and_column() -> None:
    """The first refusal is the same alone and among all."""
    for name, (text, code, line, column) in REFUSED.items():
        error, first = refusal(text), examine(text.encode(), "f.yaml")[1][0]
        assert (error.code, error.place) == (first.code, first.place) == (code, Place("f.yaml", line, column)), name
    for raw in [b"a: \xff", b"a: b\n- \xed\xa0\x80", "a: b".encode("utf-16"), b"\xc0\xaf"]:
        error = refusal(raw)
        assert (error.code, error.place.line >= 1) == (Code.FILE_ENCODING, True), "not UTF-8"


def test_size_depth_and_number_of_values_are_bounded_exactly() -> None:
    """libyaml's composer recurses in C: without our bound on the depth the process would die."""
    assert read("[" * 16 + "]" * 16).value
    assert read(b"- a" + b" " * ((1 << 20) - 3)).value == ["a"]
    assert read(b"- ?a\n- |\n  " + b"b" * ((1 << 20) - 12) + b"\n").value
    for text in ("[" * 17 + "]" * 17, "- a" + " " * ((1 << 20) - 2)):
        assert refusal(text).code is Code.FILE_TOO_LARGE
    assert inspect.signature(load).parameters["max_values"].default == MAX_NODES == 200_000
    assert load(b"[" + b"1," * 999 + b"]", "f", max_values=1000).value
    with pytest.raises(InputError, match="more than 1000 values"):
        load(b"[" + b"1," * 1000 + b"]", "f", max_values=1000)
    for deep in (b"[" * 200_000, b"- " * 200_000, b"{a: " * 200_000, b"? " * 200_000):
        (found,) = examine(deep, "f")[1]
        assert found.code is Code.FILE_TOO_LARGE
    bomb = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    assert refusal(bomb).place.line == 1, "a bomb of aliases is refused at its first anchor and not walked"
    assert len(examine(bomb.encode(), "f")[1]) == 9
    assert len(examine(b"&a [*a, *a]", "f")[1]) == 1


def test_libyaml_s_composer_calls_its_hooks_before_and_after_each_node() -> None:
    calls = list[str]()
    names = ("descend_resolver", "resolve", "ascend_resolver")
    hooks = {name: lambda *_, name=name: calls.append(name) for name in names}
    root = type("Watched", (CParser,), hooks)("a: [x]").get_single_node()
    down, up = names[:2], names[2]
    assert calls == [*down, *down, up, *down, *down, up, up, up]
    assert getattr(root, "tag", "none") is None


def test_many_values_under_long_keys_do_not_fill_the_memory() -> None:
    key = '"' + "k" * 1000 + '"'
    text = "".join(f"{' ' * depth}{key}:\n" for depth in range(15)) + " " * 15 + "[" + "1," * 2000 + "]"
    tracemalloc.start()
    try:
        assert read(text).place("/" + "/".join(["k" * 1000] * 15) + "/1999").line == 16
        assert tracemalloc.get_traced_memory()[1] < 10e6, "the pointers of them all would be 30 MB"
    finally:
        tracemalloc.stop()


class Item(Struct, forbid_unknown_fields=True):
    name: str
    size: int = 0


def test_every_value_has_its_place_and_one_of_another_type_is_refused_there() -> None:
    document = read('- name: "a"\n  é: [1,\n      {"x/y": 2}]\n')
    assert document.place("/0/name") == Place("f.yaml", 1, 9)
    assert document.place("/0/é/1/x~1y") == Place("f.yaml", 3, 15)
    assert document.place("/0/é/1/gone/far") == Place("f.yaml", 3, 7)
    assert document.place("") == Place("f.yaml", 1, 1)
    with pytest.raises(InputError) as caught:
        read("- name: a\n- name: 1.10\n").convert(list[Item])
    assert str(caught.value) == "f.yaml:2:9: file.schema: expected text, got a number: put it in double quotes"
    with pytest.raises(InputError) as unknown:
        read("- name: a\n  nam: b\n").convert(list[Item])
    assert (unknown.value.place, unknown.value.pointer) == (Place("f.yaml", 2, 8), "/0/nam")


@examples(200)
@given(
    st.recursive(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab~/é😀 ", max_size=3), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(["# head\n", ""]),
)
def test_the_place_of_every_node_is_that_of_its_text(value: Any, head: str) -> None:
    text = head + emit.item({"v": value})
    document, lines = read(text), text.split("\n")

    def check(value: Any, pointer: str) -> None:
        start, end = document.span(pointer)
        place = document.place(pointer)
        assert text[:start].count("\n") + 1 == place.line
        assert lines[place.line - 1][place.column - 1 :].startswith(text[start:end].split("\n")[0])
        if isinstance(value, str):
            assert text[start:end] == quoted(value)
        for name, inner in (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        ):
            check(inner, pointer_to(pointer, name))

    check([{"v": value}], "")


def test_a_comment_is_found_and_no_value_is_taken_for_one() -> None:
    texts: dict[str, tuple[int, int] | None] = {
        "a: b": None, 'a: "#"\nb#: c#d\n': None, "a: |\n  # x\nb: >\n  y # z\n": None, "a: '# # #'": None, "# x\na: b": (1, 1),
        "a: b # x": (1, 6), "a: | # x\n  y\n": (1, 6), "a: b\n# end\n": (2, 1), "[a, # x\n b]": (1, 5), "a: |\n  y\n# x\nb: c": (3, 1),
    }  # fmt: skip
    places = {text: read(text).first_comment(text) for text in texts}
    assert {text: found and (found.line, found.column) for text, found in places.items()} == texts


def test_all_refusals_are_listed_in_the_order_of_the_file() -> None:
    text = "- a: 1e3\n  a: on\n  ? [x]\n  : &y {b: ~}\n- !t c\n- 0.123456789012345678\n"
    document, refusals = examine(text.encode(), "f")
    assert [(str(each.code), each.place.line) for each in refusals] == [
        ("file.scalar", 1), ("file.duplicate_key", 2), ("file.scalar", 2), ("file.feature", 3), ("file.feature", 4),
        ("file.feature", 5), ("file.number", 6),
    ]  # fmt: skip
    assert [each.pointer for each in refusals][:3] == ["/0/a", "/0/a", "/0/a"]
    assert document
    assert refusal(text).place.column == refusals[0].place.column == 6
    document, refusals = examine(b"- on\n" * 5000, "f")
    assert (document, len(refusals)) == (None, 100)
    *shown, last = read("- 1\n" * 101).misfits(list[str])
    assert (len(shown), last.place.line, last.detail) == (100, 101, "more than 100 faults: the rest is not shown")
    assert len(read("- 1\n" * 100).misfits(list[str])) == 100


@examples(250)
@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53) + 1, 2**53 - 1))
@example(1e-6)
@example(9.999999999999999e-7)
@example(5e-324)
@example(-0.0)
@example(123456789.12345678)
def test_a_written_number_is_the_same_double_to_every_reader(value: float) -> None:
    assume(not float(value).is_integer() or abs(value) < 2**53)
    text = number_text(value)
    assert read(f"- {text}").value == [value]
    for reader in READERS:
        assert same(value, reader(text)), text


def test_numbers_are_written_as_the_contract_shows() -> None:
    numbers = {20.9: "20.9", 2e-05: "0.00002", 1e-7: "1.0e-7", 1.5e-9: "1.5e-9", 20.0: "20"}
    assert {value: number_text(value) for value in numbers} == numbers


@examples(250)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
@example('"\\\n\r\t\x07\x7f\x85\xa0\u2028\u2029\ufeff\ufffe\uffff\U0010ffff😀\U000e0001')
@example(" lead and trail ")
@example("a: b # c")
@example("%YAML")
def test_written_text_is_one_line_and_read_back_by_every_reader(text: str) -> None:
    written = quoted(text)
    assert written.isprintable()
    assert read(f"- {written}\n").value == [text]
    for reader in READERS:
        assert reader(f"- {written}\n") == [text]


FRAGMENTS = ["a", "b: ", "!!str ", "%TAG ! !x\n", "- ", "\n", "\n  ", '"', "'", "|", ">-", "{", "}", "[", "]", ", ", " #", "? ", "!", "&x ", "*x", "%",
             "@", "`", "1", "1.5", "true", "null", "\\", "\\n", "\\u00e9", "é", "😀", "---", "...", "=", "<<", "~", "::", "\r\n",
             "\t", "2026-02-14"]  # fmt: skip


@examples(500)
@given(
    st.binary(max_size=40)
    | st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(lambda parts: "".join(parts).encode())
)
def test_any_bytes_are_a_document_or_an_input_error_with_a_place(raw: bytes) -> None:
    """Directives are not in the node graph, only in the parser's events."""
    try:
        document = read(raw)
    except InputError as error:
        assert error.place.line >= 1 or error.code is Code.FILE_TOO_LARGE  # noqa: PT017
        return
    assert document.place("").line >= 1
    for event in yaml.parse(raw, Loader=yaml.CSafeLoader):
        assert not isinstance(event, yaml.AliasEvent)
        assert not [name for name in ("anchor", "tag", "tags") if getattr(event, name, None)]


@examples(500)
@given(st.lists(st.sampled_from([*FRAGMENTS, "?", "# c"]), max_size=9).map("".join))
@example("{a: b?c}")
@example('"a"\t# c')
def test_an_accepted_list_is_read_alike_by_every_reader(tail: str) -> None:
    text = "- " + tail
    try:
        value = read(text).value
    except InputError:
        return
    assume(isinstance(value, list))
    assert all(same(value, reader(text)) for reader in READERS), text
