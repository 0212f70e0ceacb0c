"""The YAML reader in JavaScript: the value of `strict_yaml`, its refusal, or "use `issuer verify`".

Held to it on what this project writes, on what other writers make of the same, and on that with something changed.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from issuer.errors import InputError
from issuer.formats import strict_yaml
from issuer.results import emit
from issuer.results.entry import PROFILES, is_date_member, write_entry
from tests.support import make
from tests.support.javascript import Calls, Failed
from tests.support.shared import ROOT

pytestmark = [pytest.mark.needs_tool("node"), pytest.mark.long]


def in_python(text: str) -> Any:
    """Return the value with each number's kind, or the refusal."""
    try:
        return typed(strict_yaml.load(text.encode(), "f", bare_dates=is_date_member).value)
    except InputError as error:
        return error.code, error.detail, error.place.line, error.place.column


def typed(value: Any) -> str:
    """Write a value so that 20 and 20.0 differ, and the order of members does not count."""
    return json.dumps(value, sort_keys=True)


def compare(texts: list[str]) -> Counter[str]:
    """Read texts on both sides; return how many were read, refused and left to `issuer verify`."""
    calls, outcomes = Calls(), Counter[str]()
    for text in texts:
        calls.add("yaml.js", "readYaml", text.encode(), {"bareDates": {"$matches": "^/[0-9]+/date$"}})
    for text, found in zip(texts, calls.run(), strict=True):
        wanted = in_python(text)
        if not isinstance(found, Failed):
            assert typed(found) == wanted, repr(text)
            outcomes["read"] += 1
        elif found.name == "Beyond":
            assert (found.code, "use `issuer verify`" in found.message) == ("beyond", True)
            outcomes["beyond"] += 1
            outcomes["beyond, and good"] += isinstance(wanted, str)
        else:
            assert isinstance(wanted, tuple), (text, found)
            assert (found.code, found.message, found.line, found.column) == wanted, repr(text)
            outcomes["refused"] += 1
    return outcomes


WORDS = [
    "", "a", "accuracy", "no-tools, temperature 0", "été", "😀 emoji", "it's", 'a "quote"', "a\\b", "line\nline", " led", "trailed ",
    "yes", "on", "1", "1e3", "017", "12:30", "2026-11-21", "null", "~", "#no", "a #no", "a: b", "- a", "[x]", "{x}", "&a", "*a", "!a",
    "%", "@", "`", "|", ">", "?", ":", "x" * 90 + " " + "y" * 40, "many words " * 30, "tab\there", "\u2028", "\x7f", "\u0130", "a\n\nb\n",
    "https://hub.example/a?b=c&d=e#f", "sha256:" + "0" * 64, "\x00".replace("\x00", "nul"), "true-ish", "0x1f", "1_000", "=", "<<", "-", "--",
    "--- a", "...", "\ttab", "x\n  deeper\n back", "\n", "ends\n", "trailing  \nspaces", "y" * 1500,
]  # fmt: skip
NUMBERS = [0, 1, -1, 20.9, 2 / 3, 1e-7, 2e-5, 0.1, 100, 2**53 - 1, -2.5, 1e15, 123456.789, 1.5e-300, True, False, None]
NAMES = [
    "a", "b", "model_repo", "no", "1", "seed", "x y", "é", "run", "__proto__", "constructor", "10", "2", "null", "a:b", "a-b", "-a",
]  # fmt: skip


def value_of(at: random.Random, depth: int = 0) -> Any:
    kind = at.random()
    if depth > 3 or kind < 0.5:
        return at.choice(WORDS)
    if kind < 0.72:
        return at.choice(NUMBERS)
    if kind < 0.88:
        return {at.choice(NAMES): value_of(at, depth + 1) for _ in range(at.randrange(4))}
    return [value_of(at, depth + 1) for _ in range(at.randrange(4))]


def entry_of(at: random.Random) -> dict[str, Any]:
    item = make.submission(
        {"date": "2026-11-21T09:00:00Z", "notes": at.choice(["no tools", "été \"x\"", "a\\b"]), "run": {"seed": 1, "epochs": 2}},
        metrics=[{"metric_id": f"m{number}", "value": at.choice([20.9, 0.5, 3, 2 / 3])} for number in range(at.randrange(1, 4))],
    )  # fmt: skip
    return {**item.form, "metrics": list(item.claims.to_json()["metrics"])}


def written(at: random.Random) -> str:
    if at.random() < 0.4:
        token, profile = "eyJ" + "aB3_-" * 300 + ".x.y", at.choice(PROFILES)
        entries = (entry_of(at) for _ in range(at.randrange(1, 3)))
        return "".join(write_entry(entry, token, profile=profile, primary="m0") for entry in entries)
    return "".join(emit.item({"v": value_of(at), at.choice(NAMES): value_of(at)}) for _ in range(at.randrange(1, 3)))


def other_writers(at: random.Random) -> str:
    """Write a file as PyYAML does, in one of its styles, or as JSON."""
    value = [
        entry_of(at) if at.random() < 0.3 else {"v": value_of(at), "w": value_of(at)} for _ in range(at.randrange(1, 3))
    ]
    if at.random() < 0.15:
        return json.dumps(value, ensure_ascii=at.random() < 0.5, indent=at.choice([None, 1, 2])) + "\n"
    return yaml.safe_dump(
        value, default_flow_style=at.choice([None, False, True]), width=at.choice([20, 80, 10_000]), allow_unicode=at.random() < 0.7,
        default_style=at.choice([None, None, None, '"', "'", "|", ">"]), indent=at.choice([2, 2, 4]), sort_keys=False,
        explicit_start=at.random() < 0.2, line_break=at.choice([None, None, "\r\n"]),
    )  # fmt: skip


def test_every_file_that_this_project_writes_is_read() -> None:
    at = random.Random(2)
    outcomes = compare([written(at) for _ in range(4000)])
    assert outcomes["beyond"] == 0
    assert outcomes["read"] > 3500


def test_nearly_every_file_of_another_writer_is_read() -> None:
    at = random.Random(3)
    outcomes = compare([other_writers(at) for _ in range(4000)])
    assert outcomes["beyond, and good"] < 0.12 * outcomes["read"], outcomes


HARMLESS = """\
# A comment, and an empty line.

---
- dataset: {id: "openai/gsm8k", task_id: gsm8k, revision: '5503434ddd753f426f4b38109466949a1217c2bb'}   # where from
  model_revision: "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321"
  framework:
      name: inspect-ai
      version: "0.3.285"
  metrics:
  - {metric_id: accuracy, value: 20.90}
  -
    metric_id: f1
    value: 1.0e-7
    slice: hard ones
  date: 2026-11-21
  notes: >-
    Folded text,
    of two lines.

    And a third.
  run:
    argv: [--seed=1, "a b", -1,
      [x]]
    text: |
      as it
        stands
    empty: {}
    long: some words
      that go on
  "source" : {url: "https://hub.example/x?y=1"}
  verify_token: 'eyJ'
"""


def test_harmless_variations_are_read() -> None:
    spelt = [HARMLESS, HARMLESS.replace("\n", "\r\n"), HARMLESS.replace("---\n", ""), HARMLESS.rstrip("\n")]
    assert compare(spelt) == {"read": 4}


AMBIGUOUS = [
    "yes", "no", "On", "OFF", "y", "True", "NULL", "~", "0o7", "0b1", "017", "1_000", "1e3", "2e-05", "1e+3", "12:30", "12:30:00", ".inf",
    "-.INF", ".nan", ".ınf", "yeſ", "2026-11-21", "2026-11-21T09:00:00Z", "2026-11-21 09:00", "2026-02-29",
    "2024-02-29", "2026-13-01", "2026-11-00", "0000-01-01", "0001-01-01", "9999-12-31", "=", "<<", "0x1F", "0xFFFFFFFFFFFFFFFFF",
    "9007199254740992", "9007199254740991", "1e400", "1.0e+400", "1.0e-400", "0.12345678901234567", "0.123456789012345678", "+1", "-0",
    "-0.0", ".5", "5.", "00", "0.50", "1.0.0", "1,000", "0x", "0o", "1e", "1__0", "1.5e3", "1.5e+3", "٣", "0x_1", "+.5e-3", "-", "--1",
]  # fmt: skip
ODD = [
    "a: &x 1\n", "a: *x\n", "a: !!str 1\n", "!t\na: 1\n", "a: {<<: 1}\n", "<<: 1\n", "a: 1\n---\nb: 1\n", "%YAML 1.2\n---\na: 1\n", "a:\t1\n",
    "\ta: 1\n", "a: 1\n\tb: 1\n", "? a\n: b\n", "a: [1, 2\n", "a: {b: 1\n", 'a: "x\n', "a: 1\na: 2\n", "a: {b: 1, b: 2}\n", '"a": 1\na: 2\n',
    "1: 2\n", "yes: 1\n", "null: 1\n", "[a]: 1\n", "{a: b}: 1\n", "\ufeffa: 1\n", "a: \x85\n", "a: \u2028\n", "a: \x07\n", "a: \r b\n", "", "#\n",
    "a\n", "- \n", "a:\n", "a: 'b\n\n\n  c'\n", 'a: "b\\\n  c"\n', 'a: "\\0"\n', '"\\0": 1\n', 'a: "\\ud800"\n', 'a: "\\U00110000"\n',
    'a: "\\x41\\u00e9\\U0001F600"\n', "a: |+\n  x\n\n\n", "a: |2\n    x\n", "a: |-\n\n  x\nb: 1\n", "a: >\n x\n  y\n z\n\n", "a: |\nb: 1\n",
    "a: |\n  x", "a: |x\n  y\n", "a: | # c\n  y\n", "a: >1-\n  y\n", "a: [b: 1]\n", "a: [,]\n", "a: {b}\n", "a: {b: }\n", "a: [-]\n", "a: {? b : 1}\n",
    "a: x #\n  y\n", "a: x\n# c\n  y\n", "a: x\n\n  # c\nb: 1\n", "a: [1, # c\n  2]\n", "a: [1 #c\n]\n", "a: [\n  1\n]\n", "a: [\n1\n]\n", "a: [1]#c\n",
    "a: 'b'#c\n", "a:#c\n", "a: #c\n", "- a: 1\n b: 2\n", "- a: 1\n   b: 2\n", "a:\n  - 1\n - 2\n", "a:\n - 1\n  - 2\n", "- - - a\n", "-a\n", "-- a\n",
    "a: - b\n", "a: b: c\n", "a: b:\n", "a:b\n", "a :b\n", "a : b\n", "'a':b\n", "...\n", "a: 1\n...\n", "a: 1\n...\nb\n", "--- a\n", "---\n", "---\n---\n",
    "a: \"b\n c\"\n", "a: \"b\nc\"\n", "a: b\nc\n", "a: b\n c\n", "a: b\n\n c\n\n\n d\n", "a: b\n c: d\n", "- b\n c\n", "- b\nc\n", "a: {b: 'c', \"d\":1, e: f g}\n",
    "a: [a:b, c?d, e#f, g #h\n]\n", "a: http://x\n", "a: [http://x]\n", "a: {b:1}\n", "a: [a:, b]\n", "a: x? y\n", "a: [x? y]\n", "a: %x\n", "a: x%y\n",
    "a: ''\n", "a: ''''\n", "a: 'b''\n", 'a: ""\n', "a: [''  ,  \"\"]\n", "a: \n\n  b\n", "a: \n\nb: 1\n", "é: é\n", "😀: 1\n? 2\n",
    "a: x\u00a0\n", "a: \u00a0x\n", "a: 'x \u00a0'\n", "a: x\u3000 y\n", "-\u00a0a\n", "a: {b: c}}\n", "a: ]\n", "- [a]]\n", "[a]\n[b]\n", "{a: b}\nc: d\n",
    "- a\n-\n  - b\n-\n  c: 1\n", "a:\n- b\n- c\nd: e\n", "a:\n- b\n  - c\n", "- a:\n  - b\n- c\n", "- a:\n - b\n", "a: |\n\tx\n", "a: |\n  x\n\ty\n", "a: |\n   \n  x\n",
    "a: |\n  x\n   \n  y\n", "a: >\n  x\n   \n  y\n", "a: >\n\n\n  x\n\n\n  y\n\n", "a: >+\n  x\n\n", "a: >\n  x\n\n   y\n\n  z\n",
]  # fmt: skip


def test_ambiguous_texts_are_read_or_refused_as_in_python() -> None:
    block, flow = ("a: {}\n", "- {}\n", "- date: {}\n", "a: {} # c\n", "a:\n  {}\n"), ("a: [{}]\n", "a: {{b: {}}}\n")
    places = (*block, *flow, "{}: 1\n", "a: '{}'\n")
    outcomes = compare([*ODD, *(place.format(word) for place in places for word in AMBIGUOUS)])
    assert outcomes["read"] > 100
    assert outcomes["refused"] > 200


PARTS = [
    " ", "  ", "\n", "\n\n", "\n  ", "\t", "-", "- ", ": ", ":", "#", " #", '"', "'", "\\", ",", "[", "]", "{", "}", "|", ">", "|-\n", ">-\n", "&a ",
    "*a", "!x ", "?", "? ", "%", "---\n", "...\n", "0", "e", ".", "_", "é", "😀", "\x85", "\u2028", "\ufeff", "\x00", "\r", "\r\n", "null", "yes",
    "<<: ", "a: 1\n", "- a\n", "''", '""', "\\n", "\\\n", "\\ud83d", "1e3", "    ",
]  # fmt: skip


def mutated(text: str, at: random.Random) -> str:
    """Change a part of a text, or move, double or lose one of its lines."""
    for _ in range(at.choice([1, 1, 1, 2, 3])):
        if at.random() < 0.3:
            lines = text.splitlines(keepends=True) or [""]
            one, other = at.randrange(len(lines)), at.randrange(len(lines))
            change = at.choice(["move", "double", "lose", "indent", "dedent", "blank"])
            lines[one] = {
                "move": lines[other], "double": lines[one] * 2, "lose": "", "indent": at.choice([" ", "  "]) + lines[one],
                "dedent": lines[one].removeprefix("  "), "blank": at.choice(["\n", "   \n", "# c\n", "  # c\n"]) + lines[one],
            }[change]  # fmt: skip
            text = "".join(lines)
            continue
        start = at.randrange(len(text) + 1)
        end = min(len(text), start + at.choice([0, 0, 0, 1, 1, 2, 4]))
        text = text[:start] + at.choice([*PARTS, ""]) + text[end:]
    return text


def changed_texts(at: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        text = at.choice([written(at), other_writers(at), at.choice(ODD), HARMLESS])
        yield mutated(text[:3000], at)


def test_many_changed_files_are_read_or_refused_as_in_python_or_left_to_it() -> None:
    outcomes = compare(list(changed_texts(random.Random(5), 10_000)))
    assert min(outcomes["read"], outcomes["refused"], outcomes["beyond"]) > 500, outcomes


MIB = 1024 * 1024
HOSTILE = {
    "spaces": "a: x" + " " * (MIB - 10) + "y\n", "spaces in quotes": 'a: "x' + " " * (MIB - 10) + 'y"\n',
    "empty lines": "a: x" + "\n" * (MIB - 10) + "b: 1\n",
    "empty lines in quotes": "a: 'x" + "\n" * (MIB - 20) + "  y'\n",
    "empty lines in a block": "a: |\n" + "\n" * (MIB - 20) + "  y\n", "brackets": "[" * MIB,
    "braces": "{a: " * (MIB // 4), "dashes": "- " * (MIB // 2), "quotes": "'" * MIB,
    "escapes": 'a: "' + "\\n" * (MIB // 2 - 10) + '"\n', "comments": "# c\n" * (MIB // 4),
    "digits": "a: " + "9" * (MIB - 10) + "\n", "a date": "a: 2026-11-21 " + " " * (MIB - 20) + "\n",
    "sixty": "a: 1" + ":1" * (MIB // 2 - 10) + "x\n", "many items": "- a\n" * (MIB // 4),
    "many members": "".join(f"k{number}: 1\n" for number in range(90_000)),
    "a long flow": "[" + "a," * (MIB // 2 - 10) + "]\n", "one line over": "a" * (MIB + 1),
    "a long key": "a" * (MIB - 10) + ": 1\n", "not UTF-8": "\udcff",
}  # fmt: skip


@pytest.mark.timeout(120)
def test_a_hostile_file_is_answered_as_in_python() -> None:
    """A reader in linear time takes two seconds, and another one longer than the test may."""
    calls = Calls()
    texts = {name: text.encode("utf-8", "surrogateescape") for name, text in HOSTILE.items()}
    for raw in texts.values():
        calls.add("yaml.js", "readYaml", raw)
    answers = calls.run()
    for (name, raw), found in zip(texts.items(), answers, strict=True):
        try:
            wanted: Any = typed(strict_yaml.load(raw, "f").value)
        except InputError as error:
            wanted = error.code
        if isinstance(found, Failed):
            assert found.name == "Beyond" or found.code in {wanted, "file.too_large"}, name
        else:
            assert typed(found) == wanted, name


def test_a_place_is_found_by_its_pointer_as_in_python() -> None:
    pointers = ["", "/0", "/0/dataset/id", "/0/metrics/1/value", "/0/metrics/7", "/0/run/text", "/0/source/url", "/9"]
    calls = Calls()
    read = calls.add("yaml.js", "readYamlDocument", HARMLESS.encode(), {"bareDates": {"$matches": "date$"}})
    for pointer in pointers:
        calls.add("yaml.js", "YamlDocument.place", read, pointer)
    document = strict_yaml.load(HARMLESS.encode(), "f", bare_dates=is_date_member)
    places = [document.place(pointer) for pointer in pointers]
    assert calls.run()[1:] == [{"line": place.line, "column": place.column} for place in places]


@pytest.mark.timeout(60)
def test_places_in_one_long_line_are_found_in_linear_time() -> None:
    """A walk over the line for each place would take longer than the test may."""
    text = "[" + ", ".join(f'{{dataset: {{id: "😀{"e" * 2040}/{number}"}}}}' for number in range(500)) + "]"
    document = strict_yaml.load(text.encode(), "f")
    pointers = [f"/{number}/dataset/id" for number in range(500)] * 60
    calls = Calls()
    read = calls.add("yaml.js", "readYamlDocument", text.encode())
    for pointer in pointers:
        calls.add("yaml.js", "YamlDocument.place", read, pointer)
    places = [document.place(pointer) for pointer in pointers]
    assert calls.run()[1:] == [{"line": place.line, "column": place.column} for place in places]


def test_every_good_yaml_file_of_this_repository_is_read() -> None:
    places = [place for folder in ("deploy", "policies", "tests/data") for place in (ROOT / folder).rglob("*.y*ml")]
    outcomes = compare([place.read_text("utf-8") for place in places])
    assert outcomes["read"] > 15
    assert outcomes["beyond, and good"] == 0, "anchors and several documents are refused in Python"
