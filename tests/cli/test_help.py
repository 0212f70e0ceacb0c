"""Help: examples that work, pages that are there, variables that are read, and a version that says what it is."""

from __future__ import annotations

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
    """Yield every command and group below the root, by what is typed after `issuer`."""
    if path:
        yield " ".join(path), inside
    if isinstance(inside, click.Group):
        context = click.Context(inside)
        for name in inside.list_commands(context):
            found = inside.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))


COMMANDS = dict(commands())


def test_every_command_has_examples_and_a_page_and_nothing_else_has() -> None:
    assert set(EXAMPLES) == set(COMMANDS)
    for examples in EXAMPLES.values():
        assert examples.lines
        assert (ROOT / examples.page).is_file(), examples.page


def test_the_examples_of_a_command_are_read_by_it() -> None:
    """Its options are there, and take these values; nothing is run."""
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


def test_help_fits_a_terminal_and_ends_with_where_to_learn_more(tmp_path: Path) -> None:
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


def test_the_page_of_variables_names_all_that_are_read(tmp_path: Path) -> None:
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


def test_the_page_of_exit_codes_has_those_of_the_commands(tmp_path: Path) -> None:
    page = run(["help", "exit-codes"], tmp_path).out
    assert re.findall(r"^  (\d)  ", page, re.M) == list("0123456")
    assert sorted(TOPICS) == ["credentials", "environment", "exit-codes"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_what_its_shell_runs(shell: str, tmp_path: Path) -> None:
    done = run(["completion", shell], tmp_path)
    assert (done.code, done.err) == (0, "")
    assert f"_ISSUER_COMPLETE={shell}_complete" in done.out
    if shell == "bash":
        script = done.out + "\nCOMP_WORDS=(issuer ver); COMP_CWORD=1; type _issuer_completion"
        assert "_issuer_completion is a function" in subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, check=True
        ).stdout  # fmt: skip


def test_a_completion_is_what_the_shell_asks_for(tmp_path: Path) -> None:
    asked = {"_ISSUER_COMPLETE": "bash_complete", "COMP_WORDS": "issuer ver", "COMP_CWORD": "1"}
    assert run([], tmp_path, env=asked).out == "plain,verify\n"


def test_version_says_commit_python_and_openssl(tmp_path: Path) -> None:
    lines = run(["--version"], tmp_path).out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["issuer", "commit", "Python", "OpenSSL"]
    assert "TLS" in lines[4]
    assert describe_version().splitlines() == lines


def test_the_commit_of_a_release_is_what_git_archive_wrote(tmp_path: Path) -> None:
    file = tmp_path / "commit.txt"
    assert released_from(file) == ""
    for text, commit in (("ab" * 20 + "\n", "ab" * 20), ("$Format:%H$\n", ""), ("ab" * 19 + "\x1b[", ""), ("\xff", "")):
        file.write_text(text, "latin-1")
        assert released_from(file) == commit


def test_the_commit_is_that_of_the_checkout_loose_packed_or_detached(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("audience", ["https://issuer.example", "http://127.0.0.1:8000/a-b", "9 lives", "é", "a_b"])
def test_the_variable_of_gitlab_is_the_one_that_is_looked_for(audience: str) -> None:
    """By the `id` package itself, in an environment that is GitLab's."""
    payload = jose.base64url_encode(msgspec.json.encode({"aud": audience}))  # the package looks into it
    token, before = f"x.{payload}.x", dict(os.environ)
    os.environ.clear()
    os.environ.update({"GITLAB_CI": "true", gitlab_variable(audience): token})
    try:
        assert ambient.detect_credential(audience) == token
    finally:
        os.environ.clear()
        os.environ.update(before)
