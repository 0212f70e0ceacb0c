"""Help: examples that work, pages that are there, variables that are read, and a version that says what it is."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import id as ambient
import msgspec
import pytest

from issuer.cli import cli
from issuer.cli.help import EXAMPLES, TOPICS
from issuer.cli.version import commit_of, describe_version, released_from
from issuer.client.credential import gitlab_variable
from issuer.formats import jose
from issuer.service.settings.model import VARIABLES
from issuer.service.settings.reader import OTHERS
from tests.support.in_process import run
from tests.support.shared import ROOT


def commands(inside: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield every command and group below the root, by the words after `issuer`."""
    if path:
        yield " ".join(path), inside
    if isinstance(inside, click.Group):
        context = click.Context(inside)
        for name in inside.list_commands(context):
            found = inside.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))


COMMANDS = dict(commands())


def test_exactly_the_commands_have_examples_and_a_page() -> None:
    assert set(EXAMPLES) == set(COMMANDS)
    for examples in EXAMPLES.values():
        assert examples.lines
        assert (ROOT / examples.page).is_file(), examples.page


def test_the_examples_of_a_command_are_read_by_it() -> None:
    """Its options exist and accept these values; the test runs no command."""
    for path in EXAMPLES.keys() & COMMANDS:
        for example in EXAMPLES[path].lines:
            words = shlex.split(example)
            assert " ".join(words).startswith(path.split()[0]), example
            command: click.Command = cli
            while isinstance(command, click.Group) and words and not words[0].startswith("-"):
                found = command.get_command(click.Context(command), words.pop(0))
                assert found is not None, example
                command = found
            command.make_context("issuer", words[: words.index(">")] if ">" in words else words)


def test_help_fits_a_terminal_and_ends_with_its_page(tmp_path: Path) -> None:
    for path in ["", *sorted(COMMANDS)]:
        done = run([*path.split(), "-h"], tmp_path)
        assert (done.code, done.err) == (0, ""), path
        lines = done.out.splitlines()
        assert "  Examples:" in lines, path
        assert lines[-1].startswith("  Learn more: ")
        assert not {sign for sign in done.out if 0x2500 <= ord(sign) < 0x2580}, "no boxes"
        # One word may be wider: it can be copied.
        assert not [line for line in lines if len(line) > 80 and len(line.split()) > 3]


# Those of the samples in deploy/, which say which issuer a CI job installs.
OF_SAMPLES = {"ISSUER_COMMIT", "ISSUER_SOURCE"}


def test_the_page_of_variables_names_all_that_are_read_and_that_of_exit_codes_all(tmp_path: Path) -> None:
    page = set(re.findall(r"\b[A-Z][A-Z_]{3,}", run(["help", "environment"], tmp_path).out))
    options = {
        name
        for command in COMMANDS.values()
        for parameter in command.params
        for name in ([parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar or [])
    }
    settings = set(VARIABLES) | (OTHERS - OF_SAMPLES)
    code = "".join((ROOT / "issuer" / path).read_text("utf-8") for path in ("client/credential.py", "cli/terminal.py"))
    assert options | settings | {"XDG_STATE_HOME", "XDG_CACHE_HOME", "NO_COLOR"} <= page
    assert set(re.findall(r'= "(ISSUER_[A-Z_]+)"', code)) <= page
    assert re.findall(r"^  (\d)  ", run(["help", "exit-codes"], tmp_path).out, re.M) == list("0123456")
    assert sorted(TOPICS) == ["credentials", "environment", "exit-codes"]


def test_completion_prints_a_script_for_each_shell(tmp_path: Path) -> None:
    printed = {shell: run(["completion", shell], tmp_path) for shell in ("fish", "zsh", "bash")}
    for shell, done in printed.items():
        assert (done.code, done.err, f"_ISSUER_COMPLETE={shell}_complete" in done.out) == (0, "", True)
    command = ["bash", "-c", printed["bash"].out + "\ntype _issuer_completion"]
    defined = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "_issuer_completion is a function" in defined
    asked = {"_ISSUER_COMPLETE": "bash_complete", "COMP_WORDS": "issuer ver", "COMP_CWORD": "1"}
    assert run([], tmp_path, env=asked).out == "plain,verify\n"


def test_the_commit_comes_from_git_archive_or_loose_packed_or_detached_heads(tmp_path: Path) -> None:
    file = tmp_path / "commit.txt"
    assert released_from(file) == ""
    for text, found in (("ab" * 20 + "\n", "ab" * 20), ("$Format:%H$\n", ""), ("ab" * 19 + "\x1b[", ""), ("\xff", "")):
        file.write_text(text, "latin-1")
        assert released_from(file) == found
    git, commit = tmp_path / ".git", "ab" * 20
    assert commit_of(tmp_path) == ""
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert commit_of(tmp_path) == ""
    (git / "packed-refs").write_text(f"# pack-refs\n{commit} refs/heads/main\n")
    assert commit_of(tmp_path) == commit
    (git / "refs" / "heads" / "main").write_text("cd" * 20 + "\n")
    assert commit_of(tmp_path) == "cd" * 20
    (git / "HEAD").write_text(f"{commit}\n")
    assert commit_of(tmp_path) == commit
    (git / "HEAD").write_text("\x1b[2J\n")
    assert commit_of(tmp_path) == ""
    worktree = tmp_path / "worktree"
    worktree.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (worktree / ".git").write_text(f"gitdir: {git}\n")
    assert commit_of(worktree) == "cd" * 20
    lines = run(["--version"], tmp_path).out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["issuer", "commit", "Python", "OpenSSL"]
    assert "TLS" in lines[4]
    assert describe_version().splitlines() == lines


def test_the_id_package_reads_our_variable_of_gitlab(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("GITHUB_", "ACTIONS_", "CIRCLE", "BUILDKITE")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GITLAB_CI", "true")
    for audience in ("https://issuer.example", "http://127.0.0.1:8000/a-b", "9 lives", "é", "a_b"):
        payload = jose.base64url_encode(msgspec.json.encode({"aud": audience}))  # the package looks into it
        monkeypatch.setenv(gitlab_variable(audience), f"x.{payload}.x")
        assert ambient.detect_credential(audience) == f"x.{payload}.x"
    assert gitlab_variable("http://127.0.0.1:8080") == "HTTP___127_0_0_1_8080_ID_TOKEN"
