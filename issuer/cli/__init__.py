"""The `issuer` command line, one file a command: it reads options, calls a library and prints, and decides nothing.

Commands are imported when they are called: `verify` and `token` start without the server.

Exit codes (contract section 6): 0 good, 1 the answer is no, 2 usage, 3 input missing or malformed, 4 could not decide,
5 the issuer refused, 6 local state.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import rich_click as click

from issuer import __version__
from issuer.cli.exits import exit_for_error
from issuer.cli.terminal import describe_error, printable, say
from issuer.codes import Code
from issuer.errors import IssuerError, SetupError
from issuer.results.secret import without_secrets

_COMMANDS = {
    "audit": ("issuer.cli.audit", "audit", "Verify, follow and search the audit."),
    "benchmark": ("issuer.cli.benchmark", "benchmark", "Make and check a benchmark's definition, eval.yaml."),
    "demo": ("issuer.cli.demo", "demo", "Show the whole line on a real evaluation run."),
    "dev": ("issuer.cli.dev", "dev", "Run a throw-away issuer that speaks as any CI job, to try an integration."),
    "keys": ("issuer.cli.keys", "keys", "Make, rotate, list and revoke signing keys."),
    "log": ("issuer.cli.log", "log", "Verify, follow, begin and mend a transparency log."),
    "pat": ("issuer.cli.pat", "pat", "Make, list and revoke personal access tokens."),
    "policy": ("issuer.cli.policy", "policy", "Write, check, test, explain and compare policies."),
    "resume": ("issuer.cli.stops", "resume", "Lift an emergency stop."),
    "results": ("issuer.cli.results", "results", "Make, check, compare and export result files."),
    "revocations": ("issuer.cli.revocations", "revocations", "Show and renew the list of what is revoked."),
    "revoke": ("issuer.cli.revocations", "revoke", "Revoke tokens, or what an integration had signed."),
    "serve": ("issuer.cli.serve", "serve", "Run the service."),
    "stop": ("issuer.cli.stops", "stop", "Stop a caller, or everything, at once."),
    "stops": ("issuer.cli.stops", "stops", "List the emergency stops."),
    "token": ("issuer.cli.token", "token", "Ask an issuer for verify tokens."),
    "verify": ("issuer.cli.verify", "verify", "Check a result file as a relying party."),
    "witness": ("issuer.cli.witness", "witness", "Make and run a witness of transparency logs."),
}


@contextlib.contextmanager
def _discreet() -> Iterator[None]:
    """Take what looks like a credential out of a usage error: click quotes whatever was typed in the wrong place."""
    try:
        yield
    except click.ClickException as error:
        error.message = printable(without_secrets(error.message, guess=True), "\n")  # type: ignore[misc]  # click formats it when it is shown
        raise


class _Lazy(click.RichGroup):
    """A group whose commands are imported when they are called."""

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        """Read the options before the command."""
        with _discreet():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _discreet():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Name the commands."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in _COMMANDS:
            return None
        module, name, text = _COMMANDS[cmd_name]
        if ctx.invoked_subcommand is None and not ctx.resilient_parsing and "--help" in sys.argv[1:2]:
            return click.RichCommand(name=cmd_name, help=text)  # the overview needs one line of each, not its imports
        try:
            command: click.Command = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "issuer":
                raise
            detail = f"`issuer {cmd_name}` needs {error.name}. Run `pip install 'eval-token-issuer[server,embedded]'`."
            raise SetupError(Code.SETTINGS_INVALID, detail) from None
        return command


@click.group(cls=_Lazy, help="A token issuer authority for AI evaluation results, and both ends of its wire.")
@click.version_option(__version__, prog_name="issuer")
def cli() -> None:
    """Run the command that the arguments name."""


def main() -> None:
    """Run the command line; every declared error becomes one message and its exit code."""
    try:
        cli(prog_name="issuer")
    except IssuerError as error:
        _end(error)
    except OSError as error:  # a folder that cannot be written, a disk that is full
        _end(SetupError(Code.SETTINGS_INVALID, f"{error.filename or 'this machine'}: {error.strerror or error}"))


def _end(error: IssuerError) -> NoReturn:
    say(f"issuer: {describe_error(error)}", err=True)
    sys.exit(exit_for_error(error))
