"""The `issuer` command line. Each command reads its options, calls a library and prints the answer.

A command is imported when it is called, so `verify` and `token` start without the server.

Exit codes (contract section 6): 0 good, 1 the answer is no, 2 usage, 3 input missing or malformed, 4 could not decide,
5 the issuer refused, 6 local state.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import click
from click.exceptions import NoArgsIsHelpError

from issuer.cli.exits import exit_for_error, extra_of
from issuer.cli.help import HELP_NAMES, with_examples
from issuer.cli.terminal import is_watched, printable, say, say_error, wrap
from issuer.codes import Code
from issuer.errors import IssuerError, SetupError
from issuer.results.secret import without_secrets

_COMMANDS = {
    "abuse": ("issuer.cli.operate.abuse", "abuse", "Show signs of abuse; quarantine or release an identity."),
    "audit": ("issuer.cli.operate.audit", "audit", "Verify, follow and search audit files."),
    "benchmark": ("issuer.cli.results.lint", "benchmark", "Make and check a benchmark definition, eval.yaml."),
    "check": ("issuer.cli.token.check", "check", "Check whether the issuer would sign an evaluation's results."),
    "completion": ("issuer.cli.help", "completion", "Print a shell script that completes commands."),
    "config": ("issuer.cli.operate.serve", "config", "Show, check and describe the service's settings."),
    "demo": ("issuer.cli.demo", "demo", "Sign and verify a real evaluation run, step by step."),
    "dev": ("issuer.cli.dev", "dev", "Run a throw-away issuer with fake CI jobs, to try an integration."),
    "doctor": ("issuer.cli.token.check", "doctor", "Find out why a machine gets no token, or check a service."),
    "help": ("issuer.cli.help", "help_", "Show the help of a command, or a page for several commands."),
    "init": ("issuer.cli.operate.serve", "init", "Make a folder for a new service."),
    "keys": ("issuer.cli.operate.keys", "keys", "Make, rotate, list and revoke signing keys."),
    "leaderboard": ("issuer.cli.verify.leaderboard", "leaderboard", "Rank results, and show the evidence for each."),
    "log": ("issuer.cli.log", "log", "Verify, follow, start and repair a transparency log."),
    "page": ("issuer.cli.verify.leaderboard", "page", "Write the page that verifies a result in a browser."),
    "pat": ("issuer.cli.operate.pat", "pat", "Make, list and revoke personal access tokens."),
    "policy": ("issuer.cli.policy", "policy", "Write, check, test, explain and compare policies."),
    "resume": ("issuer.cli.operate.stops", "resume", "Lift an emergency stop."),
    "reproduce": ("issuer.cli.results.compare", "reproduce", "Compare two runs of one evaluation."),
    "results": ("issuer.cli.results.group", "results", "Make, check, compare and export result files."),
    "revocations": ("issuer.cli.operate.revocations", "revocations", "Show and renew the signed revocation list."),
    "revoke": ("issuer.cli.operate.revocations", "revoke", "Revoke tokens by id, or by integration and time."),
    "serve": ("issuer.cli.operate.serve", "serve", "Run the service."),
    "stop": ("issuer.cli.operate.stops", "stop", "Stop a caller, or all callers, at once."),
    "stops": ("issuer.cli.operate.stops", "stops", "List the emergency stops."),
    "submit": ("issuer.cli.token.submit", "submit", "Get runs signed, and propose them on the Hub."),
    "token": ("issuer.cli.token.request", "token", "Request verify tokens, and show what a token says."),
    "verify": ("issuer.cli.verify.command", "verify", "Check a result file as a relying party."),
    "witness": ("issuer.cli.log", "witness", "Make and run a witness of transparency logs."),
}


def _show_version(context: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from issuer.cli.version import describe_version

        say(describe_version())
        context.exit()


@contextlib.contextmanager
def _masking_credentials() -> Iterator[None]:
    """Mask text that looks like a credential in usage errors. Click quotes the misplaced words of the command line."""
    try:
        yield
    except click.ClickException as error:
        error.message = printable(without_secrets(error.message, guess=True), "\n")  # type: ignore[misc]  # click formats it when it is shown
        raise


class _Lazy(click.Group):
    """A group whose commands are imported when they are called."""

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        """Parse the options before the command's name."""
        with _masking_credentials():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _masking_credentials():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of the commands."""
        return list(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write one line for each command without importing it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in _COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command. Raises NoSuchCommand, which suggests names with a similar spelling."""
        if args[0] not in _COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.NoSuchCommand(args[0], possibilities=_COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return one command."""
        if cmd_name not in _COMMANDS:
            return None
        module, name, _ = _COMMANDS[cmd_name]
        with extra_of("server,embedded", f"`issuer {cmd_name}`"):
            command: click.Command = getattr(importlib.import_module(module), name)
        return with_examples(command, cmd_name)


_EPILOG = """\b
Examples:
  issuer demo
  issuer verify FILE --repo acme/open-model --trust trust.yaml
  issuer token request --issuer https://issuer.example --claims run.json

`issuer help COMMAND` explains a command. `issuer help exit-codes`, `environment` and `credentials` apply to several.

Learn more: README.md
"""


@click.group(cls=_Lazy, context_settings={"help_option_names": HELP_NAMES}, epilog=_EPILOG)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
              help="Show the release, its commit, Python and OpenSSL.")  # fmt: skip
def cli() -> None:
    """Get evaluation results signed, and verify signed results.

    A framework's CI job requests verify tokens from an issuer. A relying party verifies result files. An operator runs
    the issuer.
    """


def main() -> None:
    """Run the command line. Print a declared error as one message and end with its exit code."""
    try:
        code = cli(prog_name="issuer", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        _end_usage(error)
    except click.Abort:
        say("stopped", err=True)
        sys.exit(130)
    except IssuerError as error:
        _end(error)
    except OSError as error:  # for example an unwritable folder or a full disk
        where = f"{error.filename}: " if error.filename else ""
        _end(SetupError(Code.MACHINE_FAILED, f"{where}{error.strerror or error}"))


def _end_usage(error: click.ClickException) -> NoReturn:
    """Print the usage line and the error; for a group without a command, print the help. Then exit."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, NoArgsIsHelpError):
        say(error.format_message(), err=True)
        sys.exit(error.exit_code)
    if context is not None:
        say(f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n", err=True)
    message = f"Error: {error.format_message()}"
    say("\n".join(wrap(message, rest="  ", err=True)) if is_watched() else message, err=True)
    sys.exit(error.exit_code)


def _end(error: IssuerError) -> NoReturn:
    say_error(error)
    sys.exit(exit_for_error(error))
