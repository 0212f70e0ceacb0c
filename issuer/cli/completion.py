"""`issuer completion`: what a shell runs so that the Tab key completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from issuer.cli.terminal import say

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that has the Tab key complete issuer's commands and options, for bash, zsh or fish."""
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 (click has these three)
    script = kind(context.find_root().command, {}, "issuer", "_ISSUER_COMPLETE")
    say(ShellComplete.source(script), end="")  # Bash's own also starts a bash, to warn of one before 4.4
