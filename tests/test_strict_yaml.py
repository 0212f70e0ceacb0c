"""Strict YAML: what is accepted, real readers read alike; the rest is refused with line and column."""

import math
import tracemalloc
from typing import Any

import pytest
import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from ruamel.yaml import YAML

from issuer.errors import Code, InputError, Place
from issuer.strict_yaml import MAX_KEY, Document, load, number_text, quoted, resolve_plain
from tests import make
from tests.shared import VECTORS, needs_shared

assert make.NOW  # its hypothesis profile


def ruamel(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def pyyaml(text: str) -> Any:
    return yaml.safe_load(text)


READERS = [pyyaml, ruamel]


def read(text: str | bytes) -> Document:
    return load(text.encode() if isinstance(text, str) else text, "f.yaml")


def refusal(text: str | bytes) -> InputError:
    with pytest.raises(InputError) as caught:
        read(text)
    return caught.value


def same(ours: Any, theirs: Any) -> bool:
    """Compare as JSON does: numbers by value, but never a bool or a date for a number or text."""
    if isinstance(ours, bool) or isinstance(theirs, bool) or not isinstance(ours, int | float):
        if isinstance(ours, dict) and isinstance(theirs, dict):
            return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
        if isinstance(ours, list) and isinstance(theirs, list):
            return len(ours) == len(theirs) and all(map(same, ours, theirs))
        return type(ours) is type(theirs) and bool(ours == theirs)
    return isinstance(theirs, int | float) and ours == theirs


# -- plain scalars ----------------------------------------------------------------------------------------------------

# Every row of the matrix: the value where all four readers see the same one, `...` where it is refused.
MATRIX: dict[str, Any] = {
    "20.90": 20.9, "1e3": ..., "1e+3": ..., "2.09e1": ..., "1.0e+3": 1000, "017": ..., "0o17": ..., "0x1F": ...,
    "0b11": ..., "1_000": ..., "12:30": ..., "on": ..., "yes": ..., "2026-02-14": ..., "36190055": 36190055,
    "123e4567": ..., "1234567890123456789012345678901234567890": ..., "9007199254740993": ..., "1e400": ...,
    ".nan": ..., ".inf": ..., "1.10": 1.1, "-0": 0, "-0.0": 0, "=": ...,
}  # fmt: skip


@pytest.mark.parametrize("text", MATRIX)
def test_every_scalar_of_the_measured_matrix_is_read_alike_or_refused(text: str) -> None:
    if MATRIX[text] is ...:
        assert refusal(f"value: {text}").code in {Code.FILE_SCALAR, Code.FILE_NUMBER}
    else:
        assert read(f"value: {text}").value == {"value": MATRIX[text]}
        assert all(same(MATRIX[text], reader(text)) for reader in READERS)


@needs_shared
def test_the_matrix_above_has_every_row_of_the_measurement() -> None:
    lines = (VECTORS / "yaml_scalar_matrix.md").read_text().splitlines()
    cells = [line.split("|")[1] for line in lines if line.startswith("| ")][1:]
    scalars = {word.strip() for cell in cells for word in cell.split("(")[0].strip(" `").split(" / ")}
    in_words = {"40 digits", "duplicate keys"}
    assert scalars - in_words <= MATRIX.keys()


def test_a_duplicate_key_is_refused_where_pyyaml_takes_the_last() -> None:
    assert pyyaml("a: 1\na: 2") == {"a": 2}
    error = refusal('- a: 1\n  b: 2\n  "a": 3')
    assert (error.code, error.place) == (Code.FILE_DUPLICATE_KEY, Place("f.yaml", 3, 3))


def scalars() -> st.SearchStrategy[str]:
    letters = "0123456789+-._:eExXoObBnNaAfFiITZ~=<tru lsyYo"
    words = ["null", "Null", "True", "TRUE", "no", "Off", "y", "~", "=", "<<", ".NaN", "-.INF", "0o7", "0_8", "._", "1._5",
             "190:20:30", "190:20:30.15", "2026-1-1", "2001-12-14t21:59:43.10-05:00", "+1", ".5", "-.5", "1.", "1.e+5",
             "00.5", "+0x1", "1e5", "1E+5", "-", "١٢", "0.0e+0", "5.0e-324", "1.7e+308", "1,000", "1__0.5"]  # fmt: skip
    return (
        st.sampled_from(words)
        | st.text(letters, max_size=12)
        | st.from_regex(r"[-+]?[0-9]{0,17}\.?[0-9]{0,17}([eE][-+]?[0-9]{1,3})?", fullmatch=True)
    )


@settings(max_examples=500)
@given(scalars())
def test_what_is_accepted_as_a_plain_scalar_both_real_readers_read_as_the_same_value(text: str) -> None:
    assume(text == text.strip() and not text.startswith(("- ", ": ", "? ")) and text not in {"-", ":", "?"})
    try:
        ours = resolve_plain(text)
    except ValueError:
        return
    document = f"- {text}\n- [{text}]\n- {{a: {text}}}\n"
    try:
        value = read(document).value
    except InputError:
        return  # no plain scalar in every context, such as `a: b`
    for reader in READERS:
        assert same(value, reader(document)), reader
    if isinstance(ours, int | float):
        assert math.isfinite(ours)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("1e3", "write 1000,"), ("2e-05", "write 0.00002,"), ("1e-7", "write 1.0e-7,"), ("1.5E3", "write 1500,"),
        ("1e400", "write a plain decimal number"), ("yes", "write true, false or null"), ("2026-02-14", "double quotes"),
        ("", '""'), ("~", "null for nothing"), ("12:30", "double quotes"),
    ],
)  # fmt: skip
def test_a_disputed_scalar_is_refused_with_the_spelling_to_use(text: str, advice: str) -> None:
    with pytest.raises(ValueError) as caught:
        resolve_plain(text)
    assert advice in str(caught.value)


def test_quoted_and_block_scalars_are_text_whatever_they_look_like() -> None:
    text = "- \"1e3\"\n- 'yes'\n- |-\n  2026-02-14\n- >-\n  null\n- ''\n"
    assert read(text).value == ["1e3", "yes", "2026-02-14", "null", ""] == pyyaml(text)


def test_a_bare_date_is_text_only_where_it_was_declared() -> None:
    def at_date(pointer: str) -> bool:
        return pointer == "/0/date"

    document = load(b"- date: 2026-02-14\n", "f", bare_dates=at_date)
    assert document.value == [{"date": "2026-02-14"}]
    for text in (b"- other: 2026-02-14", b"- date: 2026-02-14 10:00:00", b"- date: {2026-02-14: 1}"):
        with pytest.raises(InputError, match="bare date"):
            load(text, "f", bare_dates=at_date)


# -- refusals ---------------------------------------------------------------------------------------------------------

REFUSED = {
    "anchor": ("a: &x 1", Code.FILE_FEATURE, 1, 4),
    "anchor on a map": ("- &x {a: b}", Code.FILE_FEATURE, 1, 3),
    "anchor on a key": ("&x a: b", Code.FILE_FEATURE, 1, 1),
    "alias": ("a: *x", Code.FILE_FEATURE, 1, 4),
    "alias as a key": ("*x : a", Code.FILE_FEATURE, 1, 1),
    "merge key": ("a:\n  <<: {b: 1}", Code.FILE_FEATURE, 2, 3),
    "tag": ("a:\n- !!str 1", Code.FILE_FEATURE, 2, 3),
    "local tag": ("a: !x {}", Code.FILE_FEATURE, 1, 4),
    "the non-specific tag": ("a: ! 12", Code.FILE_FEATURE, 1, 4),
    "python tag": ("!!python/object/apply:os.system [id]", Code.FILE_FEATURE, 1, 1),
    "tag on a key": ("!!str a: b", Code.FILE_FEATURE, 1, 1),
    "second document": ("a: b\n---\nc: d", Code.FILE_FEATURE, 2, 1),
    "an empty second document": ("a: b\n---\n", Code.FILE_FEATURE, 2, 1),
    "%YAML": ("%YAML 1.1\n---\na: b", Code.FILE_FEATURE, 1, 1),
    "%TAG": ("%TAG ! tag:x,2000:\n---\na: b", Code.FILE_FEATURE, 1, 1),
    "list as a key": ("? [a]\n: b", Code.FILE_FEATURE, 1, 3),
    "number as a key": ("a:\n  1: b", Code.FILE_SCALAR, 2, 3),
    "bool as a key": ("true: b", Code.FILE_SCALAR, 1, 1),
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
    "unclosed": ("a: [1,", Code.FILE_SYNTAX, 2, 1),
    "huge integer": ("a: 9007199254740993", Code.FILE_NUMBER, 1, 4),
    "eighteen digits": ("- 0.123456789012345678", Code.FILE_NUMBER, 1, 3),
    "long key": ("? " + "k" * (MAX_KEY + 1) + "\n: 1", Code.FILE_TOO_LARGE, 1, 3),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_readers_disagree_about_is_refused_with_line_and_column(name: str) -> None:
    text, code, line, column = REFUSED[name]
    error = refusal(text)
    assert (error.code, error.place) == (code, Place("f.yaml", line, column))


@pytest.mark.parametrize("raw", [b"a: \xff", b"a: b\n- \xed\xa0\x80", "a: b".encode("utf-16"), b"\xc0\xaf"])
def test_what_is_not_utf_8_is_refused(raw: bytes) -> None:
    error = refusal(raw)
    assert error.code is Code.FILE_ENCODING
    assert error.place.line >= 1


def test_size_depth_and_number_of_values_are_bounded_exactly() -> None:
    assert read("[" * 16 + "]" * 16).value
    assert refusal("[" * 17 + "]" * 17).code is Code.FILE_TOO_LARGE
    assert refusal("[" * 500_000).code is Code.FILE_TOO_LARGE
    assert read(b"- a" + b" " * ((1 << 20) - 3)).value == ["a"]
    assert refusal(b"- a" + b" " * ((1 << 20) - 2)).code is Code.FILE_TOO_LARGE
    assert refusal("[" + "1," * 200_000 + "]").code is Code.FILE_TOO_LARGE


def test_a_bomb_of_aliases_is_refused_at_its_first_anchor() -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    assert refusal(bomb).place.line == 1


def test_many_values_under_long_keys_do_not_fill_the_memory() -> None:
    key = '"' + "k" * 1000 + '"'
    text = "".join(f"{' ' * depth}{key}:\n" for depth in range(15)) + " " * 15 + "[" + "1," * 100_000 + "]"
    tracemalloc.start()
    try:
        assert refusal(text).code is Code.FILE_TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < 200e6
    finally:
        tracemalloc.stop()


def test_a_quoted_merge_key_is_a_key_like_any_other() -> None:
    text = '"<<": {b: 1}\n"=": 2\n'
    assert read(text).value == {"<<": {"b": 1}, "=": 2}
    assert all(same(read(text).value, reader(text)) for reader in READERS)


def test_windows_line_ends_are_line_ends() -> None:
    assert read("- a: b\r\n  c: d\r\n").value == [{"a": "b", "c": "d"}]


# -- places and types -------------------------------------------------------------------------------------------------


class Item(Struct, forbid_unknown_fields=True):
    name: str
    size: int = 0


def test_every_value_has_its_place() -> None:
    document = read('- name: "a"\n  é: [1,\n      {"x/y": 2}]\n')
    assert document.place("/0/name") == Place("f.yaml", 1, 9)
    assert document.place("/0/é/1/x~1y") == Place("f.yaml", 3, 15)
    assert document.place("/0/é/1/gone/far") == Place("f.yaml", 3, 7)
    assert document.place("") == Place("f.yaml", 1, 1)


def test_a_value_of_the_wrong_type_is_refused_at_its_place_with_the_remedy() -> None:
    with pytest.raises(InputError) as caught:
        read("- name: a\n- name: 1.10\n").convert(list[Item])
    assert str(caught.value) == "f.yaml:2:9: file.schema: expected text, got a number: put it in double quotes"
    with pytest.raises(InputError) as unknown:
        read("- name: a\n  nam: b\n").convert(list[Item])
    assert (unknown.value.place, unknown.value.pointer) == (Place("f.yaml", 2, 8), "/0/nam")


# -- writing ----------------------------------------------------------------------------------------------------------


@settings(max_examples=250)
@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53) + 1, 2**53 - 1))
@example(1e-6)
@example(9.999999999999999e-7)
@example(5e-324)
@example(-0.0)
@example(123456789.12345678)
def test_a_written_number_is_read_back_as_the_same_double_by_every_reader(value: float) -> None:
    assume(not float(value).is_integer() or abs(value) < 2**53)
    text = number_text(value)
    assert resolve_plain(text) == value
    for reader in READERS:
        assert same(value, reader(text)), text


@pytest.mark.parametrize(
    ("value", "text"), [(20.9, "20.9"), (2e-05, "0.00002"), (1e-7, "1.0e-7"), (1.5e-9, "1.5e-9"), (20.0, "20")]
)
def test_numbers_are_written_as_the_contract_shows(value: float, text: str) -> None:
    assert number_text(value) == text


@settings(max_examples=250)
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


# -- anything ---------------------------------------------------------------------------------------------------------

FRAGMENTS = ["a", "b: ", "- ", "\n", "\n  ", '"', "'", "|", ">-", "{", "}", "[", "]", ", ", " #", "? ", "!", "&x ", "*x", "%",
             "@", "`", "1", "1.5", "true", "null", "\\", "\\n", "\\u00e9", "é", "😀", "---", "...", "=", "<<", "~", "::", "\r\n",
             "\t", "2026-02-14"]  # fmt: skip


@settings(max_examples=500)
@given(
    st.binary(max_size=40)
    | st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(lambda parts: "".join(parts).encode())
)
def test_any_bytes_are_a_document_or_an_input_error_with_a_place(raw: bytes) -> None:
    try:
        document = read(raw)
    except InputError as error:
        assert error.place.line >= 1 or error.code is Code.FILE_TOO_LARGE  # noqa: PT017
    else:
        assert document.place("").line >= 1


@settings(max_examples=500)
@given(st.lists(st.sampled_from([part for part in FRAGMENTS if part != "\t"]), max_size=9).map("".join))
def test_an_accepted_list_is_read_alike_by_every_reader_that_takes_it(tail: str) -> None:
    text = "- " + tail
    try:
        value = read(text).value
    except InputError:
        return
    assume(isinstance(value, list))
    for reader in READERS:
        try:
            theirs = reader(text)
        except (yaml.YAMLError, ValueError):
            continue
        except Exception as error:  # noqa: BLE001  (ruamel's own tree)
            assert "ruamel" in type(error).__module__  # noqa: PT017
            continue
        assert same(value, theirs), reader
