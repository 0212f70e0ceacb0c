"""The plainest YAML: what is read quickly is what the strict reader reads, and nearly every entry is."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from issuer.formats import strict_yaml
from issuer.formats.yaml_blocks import read_blocks
from issuer.results import emit
from tests.support import make
from tests.support.shared import examples

MANY = strict_yaml.MAX_NODES
# Whatever stands there, the text is not read quickly any more, and no value is another one.
AT_LENGTH = "# at length\n"

INDENT = st.sampled_from(
    ["", "  ", "    ", "      ", " ", "   ", "\t", "- ", "  - ", "    - ", "- - ", "-", "-  ", "? "]
)
KEY = st.sampled_from([
    "a", "b", "model_repo", "verifyToken", "n", "Null", "no", "nothing", "e5", "0x1", "1", "a-b", "é", '"a"', "<<", "a b", "a" * 65,
    "", "&a", "true", "_a",
])  # fmt: skip
VALUE = st.sampled_from([
    "", '"a"', '""', '"a: b # c"', "\"it's\"", '"a', 'a"', '"a\\n"', '"a" ', '"a" # b', '"a": "b"', '"é😀"', '"\u2028"', '"\x85"',
    '"a\tb"', "'a'", "1", "-1", "-0", "0.5", "-0.0", "00", "007", "1.", "1e3", "1_0", "+1", "12:30", "9007199254740993",
    "0.12345678901234567890", "0.6666666666666666", "true", "null", "~", "[]", "{}", "a", "|", "2026-11-21", "*a", "!a",
    "1.0.0", ".5", "0x10",
])  # fmt: skip
LINE = st.tuples(INDENT, KEY, st.sampled_from([":", ":", ":", "", " :"]), st.sampled_from([" ", " ", "", "  "]), VALUE)
GOOD = st.tuples(
    st.sampled_from(["", "  ", "    ", "      ", "- ", "  - ", "    - "]), st.sampled_from("abcd"), st.just(":"), st.just(" "),
    st.sampled_from(['"a"', "1", "0.5", "", ""]),
)  # fmt: skip
JSON = st.recursive(
    st.text(max_size=4) | st.integers(-(2**60), 2**60) | st.floats() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("aby_", max_size=3), inner, max_size=3),
    max_leaves=8,
)


def assert_the_same(text: str) -> None:
    """Whatever is read quickly is accepted at length, and is the same in every type and the order of members."""
    value = read_blocks(text, MANY)
    if value is not None:
        assert repr(strict_yaml.load((AT_LENGTH + text).encode(), "f").value) == repr(value)


@examples(2000)
@given(
    st.lists(GOOD, max_size=6) | st.lists(GOOD | LINE, max_size=4),
    st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", ""]),
)
@example([("- ", "a", ":", " ", ""), ("    ", "b", ":", " ", "1"), ("  ", "a", ":", " ", "1")], "\n")
@example([("", "a", ":", " ", ""), ("", "b", ":", " ", "1")], "\n")
@example([("", "a", ":", " ", ""), ("- ", "b", ":", " ", "1")], "\n")
@example([("- ", "a", ":", " ", "1"), ("", "b", ":", " ", "1")], "\n")
@example([("", "a", ":", " ", ""), ("    ", "b", ":", " ", "1")], "\n")
@example([("", "a", ":", " ", "1"), ("  ", "b", ":", " ", "1")], "\n")
@example([("", "a", ":", " ", ""), ("  - ", "b", ":", " ", "1"), ("  ", "b", ":", " ", "1")], "\n")
def test_lines_are_read_quickly_as_they_are_at_length(lines: list[tuple[str, ...]], end: str) -> None:
    assert_the_same("".join("".join(line).rstrip(" ") + end for line in lines))
    assert_the_same("".join("".join(line) + "\n" for line in lines) + end)


@examples(500)
@given(
    st.lists(JSON, min_size=1, max_size=3),
    st.integers(0, 400),
    st.sampled_from(['"', "\\", " ", "  ", "\n", "-", ":", "#", "0", "é", "\x00"]),
)
def test_what_is_written_with_one_other_character_is_read_quickly_as_at_length(items: Any, at: int, char: str) -> None:
    try:
        text = "".join(emit.item({"v": item}) for item in items)
    except (ValueError, OverflowError):  # a number that is none
        return
    assert_the_same(text)
    assert_the_same(text[:at] + char + text[at:])
    assert_the_same(text[:at] + char + text[at + 1 :])


def test_an_entry_is_read_quickly_as_it_is_written() -> None:
    metrics = [
        {"metric_id": "accuracy", "value": 2 / 3, "slice": "hard", "sample_size": 9},
        {"metric_id": "f1", "value": -1},
    ]
    details: dict[str, Any] = {
        "date": "2026-11-21T09:00:00Z",
        "source": {"url": "https://hub.example/x"},
        "notes": "été",
        "run": {"seed": 1},
    }
    item = make.submission(details, metrics=metrics)
    value = read_blocks(item.entry("a.b.c"), MANY)
    assert value == [{**item.form, "metrics": list(item.claims.to_json()["metrics"]), "verify_token": "a.b.c"}]


@pytest.mark.parametrize(
    "text",
    [
        "", "\n", "a:\n", "a: 1", "a: 1\n\n", "a: 1\n# b\n", "a: 1\na: 2\n", "a:\n- b: 1\n", "a:\n    b: 1\n", "a: 1\n  b: 1\n", " a: 1\n",
        "- a: 1\n  - b: 1\n", "- a: 1\nb: 1\n", "no: 1\n", "a: 9007199254740993\n", "a: 0.123456789012345678\n", "a: 01\n", 'a: "\\n"\n',
        'a: "\x7f"\n', 'a: "\u2028"\n', "a: true\n", "---\na: 1\n", f"{'a' * 65}: 1\n",
    ],
)  # fmt: skip
def test_another_form_is_left_to_the_strict_reader(text: str) -> None:
    assert read_blocks(text, MANY) is None


def test_the_depth_and_the_number_of_values_are_left_to_it_as_well() -> None:
    deep = "".join("  " * level + "a:\n" for level in range(30)) + "  " * 30 + "a: 1\n"
    assert read_blocks(deep, MANY) is None
    text = "".join(f"a{number}: 1\n" for number in range(10))
    assert read_blocks(text, 31)
    assert read_blocks(text, 30) is None
