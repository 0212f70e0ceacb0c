"""`issuer policy fmt`: only the layout changes."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import InputError
from issuer.formats.strict_json import JSON
from issuer.formats.strict_yaml import load
from issuer.policy.authoring.fmt import format_file
from tests.support.policies import POLICY, PROVIDERS
from tests.support.shared import ROOT

POLICIES = ROOT / "policies"


def fmt(text: str) -> str:
    return format_file(text.encode(), "x.yaml").decode()


def value(text: str) -> JSON:
    return load(text.encode(), "x.yaml", bare_dates=lambda _: True).value


CASES = {
    "levels become two spaces, lists go inside": (
        "a:\n- x:   1\n  y: 2\n-   z: 3\n    w: 4\nb:\n      c:\n             d: 1\n",
        "a:\n  - x:   1\n    y: 2\n  - z: 3\n    w: 4\nb:\n  c:\n    d: 1\n",
    ),
    "comments move with their lines": (
        "# head\na:\n    # first\n    b: 1   # tail\n    # last of a\n# of c\nc: 1\n# end\n",
        "# head\na:\n  # first\n  b: 1   # tail\n  # last of a\n# of c\nc: 1\n# end\n",
    ),
    "single quotes become double where nothing needs an escape": (
        "a: 'x'\nb: 'say \"x\"'\nc: 'back\\slash'\n'd': \"e\"\nf: 'it''s'\n",
        'a: "x"\nb: \'say "x"\'\nc: \'back\\slash\'\n"d": "e"\nf: "it\'s"\n',
    ),
    "blank lines and blanks at the end go, lines end as on Unix": ("\n\na: 1  \r\n\r\n\r\n\r\nb: 2\n\n\n", "a: 1\n\nb: 2\n"),
    "a list of lists": ("a:\n-  -  1\n   -  2\n-  - 3\n", "a:\n  - - 1\n    - 2\n  - - 3\n"),
    "a value of several lines moves as a whole": (
        "a:\n    b: [1,   # one\n        2]\n    c: |\n        text  \n\n          more\n    d: \"x\n       y\"\n",
        "a:\n  b: [1,   # one\n      2]\n  c: |\n      text  \n\n        more\n  d: \"x\n     y\"\n",
    ),
    "a value on a separate line": ("a:\n      b\nc:\n     [1]\n", "a:\n  b\nc:\n  [1]\n"),
    "signs beyond ASCII": ("a:\n- 'ünü'   # 𝄞\n- '𝄞'\n", 'a:\n  - "ünü"   # 𝄞\n  - "𝄞"\n'),
    "a dash alone": ("-\n    a: 1\n-\n    b: 2\n", "-\n  a: 1\n-\n  b: 2\n"),
    "a last line without its end": ("a: 1", "a: 1\n"),
}  # fmt: skip


def test_the_layout_is_canonical_and_that_of_the_samples() -> None:
    for case, (before, after) in CASES.items():
        assert fmt(before) == fmt(after) == after, case
        assert value(before) == value(after), case
    samples = sorted(POLICIES.glob("*.yaml"))
    assert [path.name for path in samples if format_file(path.read_bytes(), path.name) != path.read_bytes()] == []


def test_a_rare_layout_is_kept_or_refused() -> None:
    """`+` makes the blank lines behind a block part of its text."""
    texts = ["a:\n    b: |2\n        x\n    c: 1\n", "a:\n    ? b\n    : 1\n", 'a: {b: "c\n\n  d"}\n']
    assert [text for text in texts if not kept_or_refused(text)] == []
    for text in ("a: |+\n  x\n\n\n\nb: 1\n", "a: >+\n  x\n\n\n"):
        with pytest.raises(InputError, match="left unchanged") as caught:
            fmt(text)
        assert (caught.value.code, caught.value.place.file) == (Code.FILE_RULE, "x.yaml")
    for text in ("a: [1\n", "a: &x 1\n", "a: no\n", "", "\ufeffa: 1\n"):
        with pytest.raises(InputError) as caught:
            fmt(text)
        assert re.match(r"x\.yaml:[12]:[0-9]+: file\.", str(caught.value))


def kept_or_refused(text: str) -> bool:
    try:
        return value(fmt(text)) == value(text)
    except InputError as error:
        return error.code is Code.FILE_RULE and error.place.file == "x.yaml"


COMMENT = re.compile(r"#[^\n]*")


@st.composite
def untidy(draw: st.DrawFn) -> str:
    """Write a file as people do: other widths, quotes, blank lines and comments, at places of which each is allowed."""
    width, quote = draw(st.sampled_from([2, 3, 4, 7])), draw(st.booleans())
    lines = []
    for line in draw(st.sampled_from([POLICY, PROVIDERS])).splitlines():
        indent = len(line) - len(line.lstrip())
        text = re.sub("^- ", "-" + " " * (width - 1), line.lstrip())
        if quote:
            text = re.sub(r'"([^"\\\']*)"', r"'\1'", text)
        if draw(st.booleans()):
            lines.append(
                " " * draw(st.integers(0, 9)) + draw(st.sampled_from(["# note", "#", "# it's: {x", '# "', ""]))
            )
        lines.append(" " * (indent // 2 * width) + text + draw(st.sampled_from(["", "", "  ", "   # why"])))
    return "\n".join(lines) + "\n" * draw(st.integers(0, 3))


@settings(deadline=None)
@given(untidy())
def test_formatting_changes_neither_values_nor_comments_and_is_done_once(text: str) -> None:
    after = fmt(text)
    assert value(after) == value(text)
    assert [found.rstrip() for found in COMMENT.findall(after)] == [found.rstrip() for found in COMMENT.findall(text)]
    assert fmt(after) == after
    assert "\n\n\n" not in after
