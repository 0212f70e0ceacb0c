"""`issuer verify` within this process, at a time that a test chooses."""

from pathlib import Path

from issuer.cli.exits import exit_for_error
from issuer.cli.terminal import describe_error, say
from issuer.cli.verify.command import answer, verify
from issuer.errors import IssuerError


def ask(home: Path, now: int, *arguments: object) -> int:
    """Run the command at `now` (Unix seconds); return its exit code. `home` has its cache and its state."""
    apart = ("--cache", home / "cache", "--state", home / "state")
    with verify.make_context("verify", [str(each) for each in (*arguments, *apart)]) as context:
        try:
            return int(answer(context.params, now))
        except IssuerError as error:
            say(f"issuer: {describe_error(error)}", err=True)
            return int(exit_for_error(error))
